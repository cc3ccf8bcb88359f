"""Long references are cut to their best part at pauses, and a clip's end is closed by silence."""

from __future__ import annotations

import numpy as np
import pytest

from cosy_engine.audio import vad
from cosy_engine.audio.vad import speech_spans
from cosy_engine.audio.waveform import read_clip
from cosy_engine.audio.window import best_span, best_window, cut, end_at_pause


def joined(speech, *parts) -> np.ndarray:
    """Clips by number and pauses in seconds, one after another at 24 kHz."""
    out = [speech[p].samples if isinstance(p, int) else np.zeros(int(p * 24000), np.float32) for p in parts]
    return np.concatenate(out)


@pytest.fixture(params=["silero", "energy"])
def backend(request, monkeypatch):
    if request.param == "energy":
        monkeypatch.setattr(vad, "_silero", lambda: None)
    elif vad.backend() != "silero":
        pytest.skip("silero-vad is not installed")
    return request.param


def test_speech_is_found_where_it_is(speech, backend):
    clip = read_clip((24000, joined(speech, 1.0, 0, 2.0)))
    spans = speech_spans(clip)
    assert spans[0][0] == pytest.approx(1.0, abs=0.3)
    assert spans[-1][1] == pytest.approx(1.0 + speech[0].seconds, abs=0.4)


def test_a_short_clip_comes_back_untouched(speech):
    clip, notes = best_window(speech[0])
    assert clip is speech[0] and notes == []


def test_a_long_clip_is_cut_to_3_to_10_s_at_pauses(speech, backend):
    long = read_clip((24000, joined(speech, 3.0, 0, 0.6, 1, 0.6, 2, 4.0, 0)))
    clip, notes = best_window(long)
    assert 3.0 <= clip.seconds <= 10.0
    assert "part from" in notes[0]
    spans = speech_spans(clip)
    assert spans[0][0] < 0.5  # starts with the voice, not with the 3 s of silence
    assert np.abs(clip.samples[:24]).max() < 0.02 and np.abs(clip.samples[-24:]).max() < 0.02  # no click at the cuts
    assert sum(b - a for a, b in spans) > 0.6 * clip.seconds
    assert clip.digest != long.digest


def test_the_same_clip_gives_the_same_window(speech):
    wave = joined(speech, 0, 0.5, 1, 0.5, 2)
    first, second = (best_window(read_clip((24000, wave)))[0] for _ in range(2))
    assert first.digest == second.digest


def test_a_clipped_part_is_avoided(speech):
    """A quiet good half behind a distorted one."""
    loud = np.clip(joined(speech, 1) * 20, -1, 1)
    wave = np.concatenate([loud, joined(speech, 1.0, 2, 0.3)])
    clip, _ = best_window(read_clip((24000, wave)), max_s=6.0)
    assert (np.abs(clip.samples) > 0.99).mean() < 0.001


def test_speech_without_a_pause_is_cut_where_the_voice_is_weakest(speech, monkeypatch):
    clip = read_clip((24000, joined(speech, 1, 1)))
    monkeypatch.setattr("cosy_engine.audio.window.speech_spans", lambda clip: [(0.0, clip.seconds)])
    window, _ = best_window(clip)
    assert 3.0 <= window.seconds <= 10.0


def test_a_long_clip_without_speech_says_so():
    t = np.arange(24000 * 15) / 24000
    clip, notes = best_window(read_clip((24000, (0.2 * np.sin(2 * np.pi * 50 * t)).astype(np.float32))))
    assert clip.seconds <= 10.0
    assert notes


def test_the_end_is_closed_by_silence(speech):
    closed, notes = end_at_pause(speech[0], pad_s=0.2)
    assert np.all(closed.samples[-int(0.05 * 24000) :] == 0) or np.abs(closed.samples[-240:]).max() < 1e-3
    last_word = speech_spans(speech[0])[-1][1]
    assert closed.seconds >= last_word + 0.19
    assert notes == []


def test_a_broken_off_word_is_dropped_only_when_asked(speech):
    """The clip stops in the middle of its last sentence, behind a pause."""
    wave = np.concatenate([joined(speech, 0, 0.5), speech[1].samples[: int(0.8 * 24000)]])
    clip = read_clip((24000, wave))
    cut, notes = end_at_pause(clip, cut=True)
    assert cut.seconds < speech[0].seconds + 0.5
    assert "inside a word" in notes[0]
    kept, notes = end_at_pause(clip, cut=False)
    assert kept.seconds >= clip.seconds
    assert notes == []


def test_the_chosen_part_can_be_asked_for_and_moved(speech):
    clip = read_clip((24000, joined(speech, 0, 1.0, 1, 1.0, 2, 1.0, 0)))
    start, end = best_span(clip)
    chosen = best_window(clip)[0]
    assert 3 <= end - start <= 10 and chosen.digest == cut(clip, start, end).digest
    moved = cut(clip, start + 0.5, end)
    assert moved.seconds == pytest.approx(end - start - 0.5, abs=0.001) and moved.digest != chosen.digest


def test_a_cut_to_the_whole_length_changes_nothing(speech):
    assert best_span(speech[0]) == (0.0, speech[0].seconds)
    assert cut(speech[0], 0.0, round(speech[0].seconds, 3)) is speech[0]
