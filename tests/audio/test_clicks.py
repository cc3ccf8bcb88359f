"""The click detector finds what is put in and nothing in clean speech."""

import numpy as np
import pytest

from cosy_engine.audio.clicks import clicks
from cosy_engine.types import to_int16

RATE = 24000


def tone(seconds=1.0, level=0.3, hz=180.0, phase=0.0):
    return level * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE + phase)


def test_clean_speech_and_noise_have_none(speech):
    for clip in speech:
        assert clicks(clip.samples, clip.rate_hz) == []
    assert clicks(0.3 * np.random.default_rng(0).standard_normal(RATE).clip(-3, 3), RATE) == []


def test_every_sample_that_jumps_is_found(speech):
    clip = speech[0]
    places = np.arange(5000, len(clip.samples) - 5000, 7001)
    for place in places:
        broken = clip.samples.copy()
        broken[place] += 0.9 if broken[place] < 0 else -0.9
        assert any(abs(found - place) <= 2 for found in clicks(broken, clip.rate_hz)), place


@pytest.mark.parametrize(
    "broken",
    [
        np.concatenate([tone(0.5, phase=1.5)[:12000], tone(0.5, phase=-1.5)]),  # chunks joined out of phase
        np.concatenate([tone(0.5)[:11900], np.zeros(1600), tone(0.5)[1600:]]),  # a gap between two files
        (tone(0.5, level=1.2) * 32768).astype(np.int64).astype(np.int16) / 32768,  # +1.0 wrapped
        tone(0.5, level=0.9, phase=1.4),  # starts at full level
    ],
)
def test_known_faults_are_found(broken):
    assert clicks(broken, RATE)


def test_the_cast_to_16_bits_clicks_not():
    assert clicks(to_int16(tone(0.5)) / 32768, RATE) == []
