"""The spectrograms and the resampler equal the official ones, number for number."""

from __future__ import annotations

import math

import pytest
import torch

from cosy_engine.audio.features import (
    flow_mel,
    kaldi_fbank,
    kaldi_filters,
    mel_filters,
    resample,
    whisper_log_mel,
)
from cosy_engine.errors import ReferenceTooShort
from cosy_engine.settings.model_spec import MelSpec
from tests.golden_data import cases, near, tensors

CLIPS = cases("features", "x16k")
PAIRS = cases("resample", "y")


def clip(name: str, what: str) -> torch.Tensor:
    return tensors("features")[f"{name}.{what}"]


@pytest.mark.parametrize("name", CLIPS)
def test_tokenizer_mel_equals_golden(name):
    mine = whisper_log_mel(clip(name, "x16k")[None])[0]
    near(mine, clip(name, "whisper_logmel128"), 1e-4)  # fp32 FFT: the two-precision floor is 2e-5


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("center", [True, False])
def test_speaker_fbank_equals_golden(name, center):
    mine = kaldi_fbank(clip(name, "x16k")[None], center=center)[0]
    golden = clip(name, "kaldi_fbank80" if center else "kaldi_fbank80_raw")
    near(mine, golden, 5e-3)  # bins that hold almost nothing are rounding noise: floor 2.3e-3
    assert (mine - golden).abs().mean() <= 1e-4


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize(("fmax_hz", "key"), [(8000.0, "mel24k_fmax8000"), (None, "mel24k_fmaxnull")])
def test_flow_mel_equals_golden(name, fmax_hz, key):
    mine = flow_mel(clip(name, "x24k")[None], MelSpec(fmax_hz=fmax_hz))[0].T
    near(mine, clip(name, key), 2e-4)  # floor 2.7e-5


MATRICES = {
    "mel_filter.whisper_16k_400_128": lambda: mel_filters(16000, 400, 128, 0.0, None),
    "mel_filter.24k_1920_80_fmax8000": lambda: mel_filters(24000, 1920, 80, 0.0, 8000.0),
    "mel_filter.24k_1920_80_fmaxnull": lambda: mel_filters(24000, 1920, 80, 0.0, None),
    "mel_filter.kaldi_16k_512_80": kaldi_filters,
}


def test_mel_matrices_equal_golden():
    recorded = [key for key in MATRICES if key in tensors("features")]  # the trimmed copy has two of them
    assert recorded
    for key in recorded:
        near(MATRICES[key](), tensors("features")[key], 1e-7)


@pytest.mark.parametrize("pair", PAIRS)
def test_resampling_equals_golden(pair):
    golden = tensors("resample")
    near(resample(golden[f"{pair}.x"], *map(int, pair.split("_"))), golden[f"{pair}.y"], 2e-5)  # floor 8e-6


def tone(rate_hz: int) -> torch.Tensor:
    t = torch.arange(rate_hz, dtype=torch.float64) / rate_hz
    wave = 0.5 * torch.sin(2 * math.pi * 220 * t) + 0.25 * torch.sin(2 * math.pi * 1000 * t + 0.3)
    return wave.float()[None]


def test_features_equal_the_published_test_vectors():
    mel = whisper_log_mel(tone(16000))[0]
    near(mel[:4, 0], torch.tensor([1.08686, 1.18442, 1.18618, 1.15172]), 1e-4)
    near(mel[10:14, 50], torch.tensor([1.32742, 1.11961, 0.57527, 0.65977]), 1e-4)
    raw = kaldi_fbank(tone(16000), center=False)[0]
    assert raw.shape == (98, 80)
    near(raw[0, :4], torch.tensor([-5.1123, -7.98154, -6.13761, -4.32752]), 1e-4)
    near(raw[50, 40:44], torch.tensor([-13.93242, -14.35505, -15.03114, -15.01367]), 1e-3)  # near the floor
    v3 = flow_mel(tone(24000), MelSpec())[0].T
    assert v3.shape == (80, 50)
    near(v3[:4, 0], torch.tensor([0.30008, 0.42493, 0.68637, 1.28968]), 1e-4)
    assert v3.mean().item() == pytest.approx(-9.20071, abs=1e-4)
    assert flow_mel(tone(24000), MelSpec(fmax_hz=8000.0)).mean().item() == pytest.approx(-8.98377, abs=1e-4)
    down = resample(tone(48000), 48000, 16000)[0]
    near(down[8000:8004], torch.tensor([0.07385, 0.20275, 0.30703, 0.37702]), 1e-5)  # printed to 5 digits


def test_a_batch_gives_what_each_row_gives_alone():
    rows = torch.randn(3, 20000, generator=torch.Generator().manual_seed(1)) * torch.tensor([[0.3], [0.01], [0.1]])
    for feature in (whisper_log_mel, kaldi_fbank, lambda w: flow_mel(w, MelSpec()), lambda w: resample(w, 441, 320)):
        together = feature(rows)
        for i in range(3):
            near(together[i], feature(rows[i : i + 1])[0], 2e-5)  # other matmul shapes round differently


@pytest.mark.parametrize("samples", [7, 399, 16001])
@pytest.mark.parametrize(("old", "new"), [(44100, 24000), (8000, 24000), (192000, 16000), (11025, 24000)])
def test_resampled_length_is_exact(samples, old, new):
    assert resample(torch.zeros(samples), old, new).shape == (math.ceil(samples * new / old),)


def test_equal_rates_return_the_wave_untouched():
    wave = torch.randn(10)
    assert resample(wave, 24000, 24000) is wave


@pytest.mark.parametrize("feature", [whisper_log_mel, kaldi_fbank, lambda w: flow_mel(w, MelSpec())])
def test_too_few_samples_name_the_seconds_that_are_needed(feature):
    with pytest.raises(ReferenceTooShort, match=r"at least 0\.\d+ s"):
        feature(torch.zeros(1, 100))
