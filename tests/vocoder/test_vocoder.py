"""What must hold for any weights: streams, noise, precision, gradients. Random tiny models, no files."""

import pytest
import torch

from cosy_engine.errors import TextTooLong
from cosy_engine.vocoder import build_vocoder, stretch
from cosy_engine.vocoder.source import DrawnNoise, fixed_noise
from cosy_engine.vocoder.stream import CAUSAL, SYMMETRIC
from tests.vocoder.models import TINY, random_state, stream, tiny_mel, tiny_vocoder

ROUNDING = 2e-5  # fp32 sums in another order; waves lie in +-1

versions = pytest.mark.parametrize("version", TINY)


@versions
def test_chunking_does_not_change_the_sound(version):
    vocoder, mel = tiny_vocoder(version), tiny_mel(120)
    whole = vocoder.whole(mel, seed=4)
    assert whole.shape == (480 * 120,) and whole.abs().max() <= 0.99 and whole.std() > 0.01
    for pieces in ([1] * 120, [50, 50], [3, 1, 40, 0, 2, 31, 1], [120], [76, 44]):
        torch.testing.assert_close(stream(vocoder, mel, pieces, seed=4), whole, atol=ROUNDING, rtol=0)


@versions
@pytest.mark.parametrize("frames", (0, 1, 2, 8, 9, 21, 22))
def test_short_sounds_end_well(version, frames):
    vocoder, mel = tiny_vocoder(version), tiny_mel(frames)
    whole = vocoder.whole(mel)
    assert whole.shape == (480 * frames,)
    for pieces in ([], [1] * frames, [frames]):
        torch.testing.assert_close(stream(vocoder, mel, pieces), whole, atol=ROUNDING, rtol=0)


@versions
def test_two_streams_do_not_hear_each_other(version):
    vocoder = tiny_vocoder(version)
    mels = [tiny_mel(90, seed=1), tiny_mel(90, seed=2)]
    alone = [stream(vocoder, mel, [30, 30], seed=i) for i, mel in enumerate(mels)]
    states, parts = [vocoder.start(seed=i) for i in (0, 1)], ([], [])
    for start in (0, 30, 60):
        for i in (0, 1):
            parts[i].append(vocoder.advance(states[i], mels[i][:, start : start + 30], final=start == 60))
    for i in (0, 1):
        assert torch.equal(torch.cat(parts[i]), alone[i])


@versions
def test_latency_is_what_is_promised(version):
    vocoder = tiny_vocoder(version)
    held = 8 if version == "v3" else 21
    state = vocoder.start()
    assert len(vocoder.advance(state, tiny_mel(50))) == 480 * (50 - held)
    assert len(vocoder.advance(state, tiny_mel(7))) == 480 * 7


@versions
def test_a_stream_forgets_what_it_no_longer_needs(version):
    vocoder = tiny_vocoder(version)
    reach = CAUSAL if version == "v3" else SYMMETRIC
    state = vocoder.start()
    for _ in range(6):
        vocoder.advance(state, tiny_mel(50))
        assert state.mel.shape[2] <= reach.left + 21
        assert state.source.shape[1] <= 480 * (reach.left + 21)
        assert version == "v3" or len(state.drawn.kept) <= 24000 + 480 * 21


def test_v2_seed_fixes_the_noise_and_nothing_else_does():
    vocoder, mel = tiny_vocoder("v2"), tiny_mel(30)
    before = torch.get_rng_state()
    assert torch.equal(vocoder.whole(mel, seed=7), vocoder.whole(mel, seed=7))
    assert not torch.equal(vocoder.whole(mel, seed=7), vocoder.whole(mel, seed=8))
    assert torch.equal(before, torch.get_rng_state())


def test_drawn_noise_does_not_depend_on_the_cutting():
    whole = DrawnNoise(9, 3, torch.device("cpu")).rows(0, 50_000)
    pieces, noise, start = [], DrawnNoise(9, 3, torch.device("cpu")), 0
    for stop in (1, 480, 23_999, 24_001, 50_000):
        pieces.append(noise.rows(start, stop, forget=True))
        start = stop
    assert torch.equal(torch.cat(pieces, dim=1), whole)
    assert abs(whole.mean()) < 0.01 and abs(whole.std() - 1) < 0.01


def test_v3_is_the_same_for_every_seed_and_draws_nothing_global():
    vocoder, mel = tiny_vocoder("v3"), tiny_mel(30)
    before = torch.get_rng_state()
    assert torch.equal(vocoder.whole(mel, seed=7), vocoder.whole(mel, seed=8))
    assert torch.equal(before, torch.get_rng_state())


def test_v3_refuses_more_than_300_s_with_a_remedy():
    with pytest.raises(TextTooLong, match="split the text"):
        fixed_noise(9).rows(7_199_999, 7_200_001, torch.device("cpu"))


@versions
def test_upsampling_by_phase_equals_the_plain_form(version):
    vocoder = tiny_vocoder(version)
    generator = torch.Generator().manual_seed(0)
    for up in vocoder.ups:
        for frames in (1, 2, 11):
            x = torch.randn(2, up.in_channels, frames, generator=generator)
            phases, fast, up.phases = up.phases, up(x), None
            torch.testing.assert_close(fast, up(x), atol=ROUNDING, rtol=0)
            up.phases = phases


def test_v3_non_final_samples_are_the_beginning_of_the_whole():
    vocoder, mel = tiny_vocoder("v3"), tiny_mel(40)
    early = vocoder.whole(mel[:, :30], finalize=False)
    assert len(early) == 480 * 22
    torch.testing.assert_close(early, vocoder.whole(mel)[: 480 * 22], atol=ROUNDING, rtol=0)


def test_v2_compatible_stream_has_the_published_lengths():
    vocoder, mel = tiny_vocoder("v2"), tiny_mel(100)
    state = vocoder.start(compatible=True, seed=1)
    lengths = [len(vocoder.advance(state, mel[:, i : i + 25], final=i == 75)) for i in (0, 25, 50, 75)]
    assert lengths == [480 * 17, 480 * 25, 480 * 25, 480 * 33]


@versions
def test_no_step_at_a_join_is_larger_than_the_signal_around_it(version):
    vocoder, mel = tiny_vocoder(version), tiny_mel(150)
    state = vocoder.start(seed=2)
    parts = [vocoder.advance(state, part, final=i == 2) for i, part in enumerate(mel.split(50, dim=1))]
    wave, join = torch.cat(parts), 0
    steps = wave.diff().abs()
    for part in parts[:-1]:
        join += len(part)
        around = torch.cat([steps[join - 480 : join - 1], steps[join : join + 480]])
        assert steps[join - 1] <= 1.1 * around.max()


@versions
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_stays_near_fp32(version, dtype):
    vocoder, mel = tiny_vocoder(version), tiny_mel(60)
    exact = vocoder.whole(mel)
    vocoder.set_precision(dtype)
    for wave in (vocoder.whole(mel), stream(vocoder, mel, [20, 21])):
        assert wave.dtype == torch.float32 and wave.isfinite().all()
        error = (wave - exact).square().mean().sqrt() / exact.std()
        assert error < (0.1 if dtype == torch.bfloat16 else 0.02)  # 8 and 11 bits through some 40 layers and exp


@versions
def test_fp16_stays_finite_with_huge_weights(version):
    state = random_state(version)
    for key in state:
        if key.endswith("original0") and "f0" not in key:
            state[key] *= 300
    vocoder = build_vocoder(TINY[version])
    vocoder.load_published(state)
    wave = vocoder.finish_loading().set_precision(torch.float16).whole(tiny_mel(30))
    assert wave.isfinite().all()


@versions
def test_training_has_gradients_in_every_weight_and_then_folds(version):
    vocoder = build_vocoder(TINY[version], weight_norm=True)
    vocoder.load_published(random_state(version))
    mel = torch.stack([tiny_mel(20), tiny_mel(20, seed=2)])
    wave, f0 = vocoder.train()(mel, generator=torch.Generator().manual_seed(0))
    assert wave.shape == (2, 9600) and f0.shape == (2, 20)
    (wave.square().mean() + f0.square().mean() * 1e-6).backward()
    for name, p in vocoder.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all() and p.grad.abs().sum() > 0, name
    noise = torch.randn(1, 9600, 9, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        trained = vocoder(mel[:1], noise=noise)[0][0]
    folded = vocoder.finish_loading().whole(mel[0], noise=noise[0])
    assert not any("parametrizations" in key for key in vocoder.state_dict())
    # 1e-3: training runs F0 in fp32, and 20 frames of phase sums carry its rounding
    torch.testing.assert_close(folded, trained, atol=1e-3, rtol=0)


@versions
def test_a_row_in_a_batch_sounds_as_if_alone(version):
    vocoder = tiny_vocoder(version)
    mel = torch.stack([tiny_mel(20), tiny_mel(20, seed=2)])
    source = torch.randn(2, 9600, generator=torch.Generator().manual_seed(0)) * 0.1
    with torch.no_grad():
        both = vocoder.decode(mel, source)
        for i in (0, 1):
            alone = vocoder.decode(mel[i : i + 1], source[i : i + 1])[0]
            torch.testing.assert_close(both[i], alone, atol=ROUNDING, rtol=0)


@versions
def test_a_vocoder_built_without_memory_loads_and_sounds(version):
    with torch.device("meta"):
        empty = build_vocoder(TINY[version])
    empty.load_published(random_state(version))
    mel = tiny_mel(12)
    assert torch.equal(empty.finish_loading().whole(mel), tiny_vocoder(version).whole(mel))


def test_stretching_changes_the_length_by_the_speed():
    mel = torch.linspace(0, 1, 100).repeat(80, 1)
    for speed in (0.5, 0.8, 1.25, 2.0):
        out = stretch(mel, speed)
        assert out.shape == (80, int(100 / speed))
        assert (out[0].diff() >= 0).all()
    assert stretch(mel, 1.0) is mel
