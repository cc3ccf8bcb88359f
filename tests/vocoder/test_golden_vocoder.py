"""The vocoder against the official modules at small size. Tolerances are those of the golden data's README."""

import pytest
import torch

from cosy_engine.vocoder import build_vocoder
from cosy_engine.vocoder.source import MAX_SAMPLES, FixedNoise, fixed_noise
from cosy_engine.vocoder.spectrum import istft, stft
from cosy_engine.vocoder.stream import OVERLAP_FRAMES
from tests import golden_data
from tests.vocoder.models import golden_vocoder

VERSIONS = ("v2", "v3")
F0 = {"v2": 5e-3, "v3": 1e-4}  # Hz; v3 was recorded in fp64
SOURCE = 3e-3  # fp32 phases of some 1e4 rad
WAVE = 3e-5  # from given mel and source, floor 3e-6
WHOLE_V3 = 1e-4
WHOLE_V2_RMS = 2e-2  # relative; 3.3e-3 from the thread count alone
SPECTRUM = 1e-5


@pytest.fixture(scope="module", params=VERSIONS)
def golden(request):
    version = request.param
    return version, golden_vocoder(version), golden_data.tensors(f"hift_{version}"), f"hift_{version}"


def runs(name: str) -> list[tuple[str, str, bool]]:
    """(case, prefix of its tensors, finalize)"""
    tags = (("f1.", True), ("f0.", False)) if name == "hift_v3" else (("", True),)
    return [
        (case, f"{case}.{tag}", finalize)
        for tag, finalize in tags
        for case in golden_data.cases(name, f"{tag}f0")
        if f"{case}.mel" in golden_data.tensors(name)
    ]


def test_transforms_are_the_official_ones(golden):
    _, vocoder, data, _ = golden
    spec = vocoder.spec
    spectrum = stft(data["stft.x"][None], spec.istft_n_fft, spec.istft_hop)[0]
    golden_data.near(spectrum, torch.cat([data["stft.real"], data["stft.imag"]]), SPECTRUM)
    magnitude = data["istft.magnitude"][None].clamp(max=100)
    golden_data.near(
        istft(magnitude, data["istft.phase"][None], spec.istft_n_fft, spec.istft_hop)[0], data["istft.out"], SPECTRUM
    )


@torch.no_grad()
def test_pitch_is_the_official_one(golden):
    version, vocoder, data, name = golden
    for case, prefix, finalize in runs(name):
        golden_data.near(
            vocoder.f0_predictor(data[f"{case}.mel"][None], finalize=finalize)[0], data[f"{prefix}f0"], F0[version]
        )


@torch.no_grad()
def test_excitation_from_the_official_pitch_is_the_official_one(golden):
    _, vocoder, data, name = golden
    for case, prefix, finalize in runs(name):
        f0 = data[f"{prefix}f0"][None]
        noise = data["noise_f16"][:, : f0.shape[1] * vocoder.frame_samples].float()
        golden_data.near(vocoder.m_source(f0, noise), data[f"{prefix}source"], SOURCE)
        if finalize and f"{case}.sine_plus_noise" in data:
            harmonics = vocoder.m_source.excite(f0, vocoder.m_source.phase_sums(f0), noise)
            golden_data.near(harmonics[0, ::40], data[f"{case}.sine_plus_noise"], SOURCE)


def test_excitation_from_the_official_seed_is_the_official_one():
    vocoder, data = golden_vocoder("v2"), golden_data.tensors("hift_v2")
    for case in golden_data.cases("hift_v2", "source_seed4321"):
        f0 = data[f"{case}.f0"][None]
        generator = torch.Generator().manual_seed(4321)
        torch.rand(1, 9, generator=generator)
        # drawn into a transposed tensor, like the published one: the order of draws follows the memory
        noise = torch.empty(1, 9, f0.shape[1] * vocoder.frame_samples).transpose(1, 2).normal_(generator=generator)
        with torch.no_grad():
            golden_data.near(vocoder.m_source(f0, noise), data[f"{case}.source_seed4321"], SOURCE)


def test_wave_from_given_source_is_the_official_one(golden):
    _, vocoder, data, name = golden
    for case, prefix, finalize in runs(name):
        source = data[f"{prefix}source"][0]
        golden_data.near(
            vocoder.whole(data[f"{case}.mel"], source=source, finalize=finalize), data[f"{prefix}wav"], WAVE
        )
        if f"{case}.wav_cached" in data:
            cached = data[f"{case}.cache_source"][0]
            source = torch.cat([cached, source[len(cached) :]])
            golden_data.near(vocoder.whole(data[f"{case}.mel"], source=source), data[f"{case}.wav_cached"], WAVE)


def test_whole_vocoder_is_the_official_one(golden):
    version, vocoder, data, name = golden
    for case, prefix, finalize in runs(name):
        wave = vocoder.whole(data[f"{case}.mel"], noise=data["noise_f16"][0], finalize=finalize)
        if version == "v3":
            golden_data.near(wave, data[f"{prefix}wav"], WHOLE_V3)
        else:
            golden_data.near_rms(wave, data[f"{prefix}wav"], WHOLE_V2_RMS)


def test_v3_stream_gives_the_official_wave_frame_by_frame():
    vocoder, data = golden_vocoder("v3"), golden_data.tensors("hift_v3")
    for case in golden_data.cases("hift_v3", "f1.wav"):
        mel, state = data[f"{case}.mel"], vocoder.start(noise=data["noise_f16"][0])
        parts = [vocoder.advance(state, frame) for frame in mel.split(1, dim=1)]
        assert sum(map(len, parts)) == vocoder.frame_samples * max(0, mel.shape[1] - 8)
        parts.append(vocoder.advance(state, mel[:, :0], final=True))
        golden_data.near(torch.cat(parts), data[f"{case}.f1.wav"], WHOLE_V3)


def test_weight_norm_of_a_published_file_is_kept_for_training_or_folded(golden):
    _, folded, _, name = golden
    weights = golden_data.weights(name)
    kept = build_vocoder(folded.spec, weight_norm=True)
    assert set(kept.state_dict()) == set(weights)
    kept.load_published(weights)
    assert all(torch.equal(value, weights[key]) for key, value in kept.state_dict().items())
    kept.finish_loading()
    assert set(kept.state_dict()) == set(folded.state_dict())
    for key, theirs in folded.state_dict().items():
        assert torch.equal(kept.state_dict()[key], theirs), key
    old_names = {
        key.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for key, value in weights.items()
    }
    again = build_vocoder(folded.spec)
    again.load_published({f"generator.{key}": value for key, value in old_names.items()})
    for mine, theirs in zip(again.state_dict().values(), folded.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_v3_noise_table_is_the_published_one():
    data = golden_data.tensors("hift_v3_fixed_noise")
    noise, cpu = fixed_noise(data["rand_ini"].shape[1]), torch.device("cpu")
    assert torch.equal(noise.first_phases[1:], data["rand_ini"][0, 1:])
    for key, rows in data.items():
        if key.startswith("sine_waves_first"):
            assert torch.equal(noise.rows(0, rows.shape[1], cpu), rows)


def test_v3_noise_table_ends_as_published():
    data = golden_data.tensors("hift_v3_fixed_noise")
    last = data["sine_waves_last_4"]
    noise = FixedNoise(last.shape[2])  # a private one: all of it is 259 MB
    assert torch.equal(noise.rows(MAX_SAMPLES - last.shape[1], MAX_SAMPLES, torch.device("cpu")), last)


# ---- the flow's recorded mel to the recorded wave, call by call


def calls(version: str, run: str):
    """Per recorded call: facts, new mel frames, source or None, wave."""
    data, facts = golden_data.tensors(f"pipeline_{version}"), golden_data.facts(f"pipeline_{version}")
    for i, call in enumerate(facts["runs"][run]["calls"]):
        yield call, data[f"{run}.flow_mel{i}"], data.get(f"{run}.source{i}"), data[f"{run}.wav{i}"]


def with_mel(version: str, streamed: bool) -> list[str]:
    data, facts = golden_data.tensors(f"pipeline_{version}"), golden_data.facts(f"pipeline_{version}")
    return [
        run
        for run, about in facts["runs"].items()
        if about["calls"][0]["stream"] == streamed
        and all(f"{run}.flow_mel{i}" in data and f"{run}.wav{i}" in data for i in range(len(about["calls"])))
    ]


def noise_of(version: str):
    if "noise_f16" not in golden_data.tensors(f"pipeline_{version}"):
        pytest.skip("this set has no noise for the pipeline")
    return golden_data.tensors(f"pipeline_{version}")["noise_f16"][0]


def test_recorded_mel_gives_the_recorded_offline_wave():
    for version in VERSIONS:
        vocoder = golden_vocoder(version)
        for run in with_mel(version, streamed=False):
            for _, mel, source, wave in calls(version, run):
                if source is not None:
                    golden_data.near(vocoder.whole(mel, source=source), wave, WAVE)
                mine = vocoder.whole(mel, noise=noise_of(version))
                golden_data.near(mine, wave, WHOLE_V3) if version == "v3" else golden_data.near_rms(
                    mine, wave, WHOLE_V2_RMS
                )


def test_v3_stream_of_recorded_mel_gives_the_recorded_chunks():
    vocoder = golden_vocoder("v3")
    for run in with_mel("v3", streamed=True):
        state = vocoder.start(noise=noise_of("v3"))
        for call, mel, _, wave in calls("v3", run):
            golden_data.near(vocoder.advance(state, mel, final=call["finalize"]), wave, WHOLE_V3)


@pytest.mark.parametrize("given_source", (True, False))
def test_v2_compatible_stream_of_recorded_mel_gives_the_recorded_chunks(given_source):
    vocoder = golden_vocoder("v2")
    for run in with_mel("v2", streamed=True):
        state = vocoder.start(compatible=True, noise=None if given_source else noise_of("v2"))
        for call, mel, source, wave in calls("v2", run):
            if given_source and source is None:
                pytest.skip("this set has no recorded source")
            if given_source:
                state.given = [source]
            mine = vocoder.advance(state, mel, final=call["finalize"])
            golden_data.near(mine, wave, WAVE) if given_source else golden_data.near_rms(mine, wave, WHOLE_V2_RMS)
        assert golden_data.facts("pipeline_v2")["mel_cache_len"] == OVERLAP_FRAMES
