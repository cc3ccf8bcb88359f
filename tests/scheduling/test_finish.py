"""The last stage before the listener, on signals whose right answer is known."""

import numpy as np
import pytest

from cosy_engine.scheduling.finish import Finish, FinishRules
from cosy_engine.types import to_int16

RATE = 24000


def voice(seconds: float, level: float = 0.3) -> np.ndarray:
    t = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 180 * t + 1.0)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    """A vocoder's floor, not zeros."""
    return (
        (0.001 * np.random.default_rng(1).standard_normal(round(seconds * RATE))).clip(-0.004, 0.004).astype(np.float32)
    )


def through(samples: np.ndarray, sizes=(10**9,), **options) -> np.ndarray:
    finish, out, at, i = Finish(RATE, **options), [], 0, 0
    while at < len(samples):
        size = sizes[i % len(sizes)]
        out.append(finish.take(samples[at : at + size]))
        at, i = at + size, i + 1
    out.append(finish.end())
    whole = np.concatenate(out)
    assert finish.emitted == len(whole)
    return whole


def silent_ends(samples: np.ndarray) -> tuple[float, float]:
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return loud[0] / RATE, (len(samples) - 1 - loud[-1]) / RATE


MIXED = np.concatenate([silence(1.3), voice(0.7), silence(0.4), voice(0.31), silence(2.6), voice(0.5), silence(3.0)])


@pytest.mark.parametrize("sizes", [(1,), (7, 4001), (240,), (24000,), (119, 121, 0, 20160)])
def test_chunks_of_any_size_give_the_same_samples(sizes):
    samples = MIXED[20000:60000] if sizes == (1,) else MIXED
    np.testing.assert_array_equal(through(samples, sizes), through(samples))


def test_clean_speech_is_untouched_between_the_fades():
    samples = np.concatenate([silence(0.2), voice(2.0), silence(0.3), voice(1.0), silence(0.05)])
    out = through(samples)
    assert len(out) == len(samples)
    np.testing.assert_array_equal(out[120:-120], samples[120:-120])


@pytest.mark.parametrize("sizes", [(10**9,), (5000,)])
def test_silence_is_bounded_at_both_ends_and_inside(sizes):
    out = through(MIXED, sizes)
    lead, trail = silent_ends(out)
    assert lead <= 0.3 and trail <= 0.15
    loud = np.flatnonzero(np.abs(out) > 0.01)
    assert np.diff(loud).max() / RATE <= 1.02
    spoken = np.abs(MIXED) > 0.01
    assert (np.abs(out) > 0.01).sum() == spoken.sum()  # only silence went


def test_a_soft_onset_after_a_long_silence_stays():
    soft = voice(0.04, level=0.004)
    out = through(np.concatenate([np.zeros(2 * RATE, np.float32), soft, voice(0.5)]))
    start = len(out) - len(voice(0.5)) - len(soft)
    np.testing.assert_array_equal(out[start : start + len(soft)], soft)


def test_a_stream_waits_only_where_it_must():
    finish = Finish(RATE)
    assert not len(finish.take(silence(3.0)))
    assert len(finish.take(voice(1.0))) >= 1.24 * RATE  # the bounded lead, and all of the speech but the fade
    assert len(finish.take(silence(0.1))) >= 0.09 * RATE  # will be kept, whatever follows
    assert len(finish.take(silence(5.0))) <= 0.01 * RATE
    assert len(finish._held) <= 101  # memory of a silence is bounded


def test_no_click_at_the_ends():
    """Speech that starts and stops at full level."""
    out = through(voice(0.5, level=0.9))
    assert abs(out[0]) < 1e-3 and abs(out[-1]) < 1e-3
    steps = np.abs(np.diff(out))
    assert max(steps[:120].max(), steps[-120:].max()) <= 1.1 * steps[200:-200].max()


@pytest.mark.parametrize("length", [0, 1, 50, 119, 120, 121, 241, 500])
def test_sounds_shorter_than_the_fades_end_well(length):
    out = through(np.full(length, 0.5, np.float32), (60,))
    assert len(out) == length and np.isfinite(out).all() and np.abs(out).max(initial=0) <= 0.5
    assert not length or (abs(out[0]) < 1e-3 and abs(out[-1]) < 1e-3)


def test_full_scale_is_clipped_not_wrapped_and_neighbours_keep_their_level():
    samples = voice(1.0, level=0.3)
    samples[12000:12010] = [1.0, -1.0, 1.5, -1.5, 1.0, 2.0, -2.0, 1.0, -1.0, 1.0]
    out = through(samples, (480,))
    assert np.abs(out).max() <= 0.99
    np.testing.assert_array_equal(out[200:12000], samples[200:12000])
    cast = to_int16(out)
    assert np.array_equal(np.sign(cast[12000:12010]), np.sign(samples[12000:12010])) and abs(int(cast.min())) < 32768


def test_the_pause_is_what_the_punctuation_asks_for_whatever_the_model_left():
    for left in (0.0, 0.1, 0.25, 2.0):
        finish = Finish(RATE, pause_s=0.3)
        parts = [finish.take(np.concatenate([voice(0.5), silence(left)])), finish.end(), finish.pause()]
        _, trail = silent_ends(np.concatenate(parts))
        assert trail == pytest.approx(0.3, abs=0.012), left  # the grid's 10 ms


def test_own_timing_is_left_alone():
    out = through(MIXED, trim=False)
    assert len(out) == len(MIXED)
    np.testing.assert_array_equal(out[120:-120], MIXED[120:-120])


def test_a_later_segment_has_less_silence_before_it():
    assert silent_ends(through(MIXED, first=False))[0] <= 0.11


def test_the_rules_fit_together():
    rules = FinishRules()
    assert rules.trail_s + rules.onset_s <= rules.pause_s and rules.fade_s <= rules.frame_s
    assert rules.onset_s <= rules.later_lead_s <= rules.first_lead_s <= 0.3
