"""The part of a clip that serves best as reference: 3 to 10 s of speech that starts and ends at a pause."""

from __future__ import annotations

import hashlib
from bisect import bisect_right

import numpy as np

from cosy_engine.audio.vad import FRAME_S, speech_probability, speech_spans
from cosy_engine.types import Clip

EDGE_S = 0.1  # silence kept on each side of a cut
FADE_S = 0.005
TAIL_S = 0.2  # the end of a clip leaks into the output when it does not end in silence


def best_window(clip: Clip, min_s: float = 3.0, max_s: float = 10.0) -> tuple[Clip, list[str]]:
    """(the best min_s .. max_s of clip, notes). A clip of at most max_s comes back untouched.

    Best is most speech, least clipping, and both ends at pauses; without pauses the least voiced places serve.
    """
    if clip.seconds <= max_s:
        return clip, []
    span = best_span(clip, min_s, max_s)
    if span is None:
        return cut(clip, 0.0, max_s), [f"no speech was found in the clip: its first {max_s:.0f} s are used"]
    start, end = span
    note = f"the clip is {clip.seconds:.0f} s long: the part from {start:.1f} s to {end:.1f} s is used as reference"
    return cut(clip, start, end), [note]


def best_span(clip: Clip, min_s: float = 3.0, max_s: float = 10.0) -> tuple[float, float] | None:
    """(start, end) in seconds of the part that `best_window` cuts, all of a short clip; None without any speech."""
    if clip.seconds <= max_s:
        return 0.0, clip.seconds
    spans = speech_spans(clip)
    return _best(clip, spans, min_s, max_s) if spans else None


def cut(clip: Clip, start_s: float, end_s: float) -> Clip:
    """The part of a clip between two times, faded at both ends; the clip itself when that is all of it."""
    first, last = max(0, int(start_s * clip.rate_hz)), min(len(clip.samples), int(end_s * clip.rate_hz))
    if first == 0 and last >= len(clip.samples) - 1:  # a time written with few digits may miss the last sample
        return clip
    return _changed(clip, _faded(clip.samples[first:last], clip.rate_hz))


def end_at_pause(clip: Clip, *, pad_s: float = TAIL_S, cut: bool = False) -> tuple[Clip, list[str]]:
    """(clip that ends in pad_s of silence, notes). cut: drop a word that the clip breaks off, back to the last pause
    in its final third; only without a transcript, which would no longer match."""
    spans = speech_spans(clip)
    if not spans:
        return clip, []
    notes = []
    end = spans[-1][1]
    if cut and clip.seconds - end < 2 * FRAME_S and len(spans) > 1 and spans[-2][1] > clip.seconds * 2 / 3:
        end = spans[-2][1]
        notes.append("the clip ends inside a word: it was cut at the pause before")
    keep = min(len(clip.samples), round((end + EDGE_S) * clip.rate_hz))
    samples = _faded(clip.samples[:keep], clip.rate_hz)
    missing = round((end + max(pad_s, EDGE_S)) * clip.rate_hz) - keep
    return _changed(clip, np.concatenate([samples, np.zeros(max(0, missing), np.float32)])), notes


def _best(clip: Clip, spans: list[tuple[float, float]], min_s: float, max_s: float) -> tuple[float, float]:
    starts = [max(0.0, a - EDGE_S) for a, _ in spans]
    ends = [min(clip.seconds, b + EDGE_S) for _, b in spans]
    clipped = np.concatenate([[0], np.cumsum(np.abs(clip.samples) > 0.985)])
    spoken = np.concatenate([[0.0], np.cumsum([b - a for a, b in spans])])
    best, best_score = None, -np.inf
    for i, start in enumerate(starts):
        for j in range(i, bisect_right(ends, start + max_s)):
            seconds = ends[j] - start
            if seconds < min_s:
                continue
            speech = spoken[j + 1] - spoken[i]
            hits = clipped[int(ends[j] * clip.rate_hz)] - clipped[int(start * clip.rate_hz)]
            score = speech - 0.5 * (seconds - speech) - 200 * hits / len(clip.samples[: int(seconds * clip.rate_hz)])
            if score > best_score + 1e-9:
                best, best_score = (start, ends[j]), score
    if best:
        return best
    # One stretch longer than max_s, or only scraps: start at the longest and end where the voice is weakest.
    start = max(0.0, max(spans, key=lambda span: span[1] - span[0])[0] - EDGE_S)
    start = max(0.0, min(start, clip.seconds - min_s))
    first, last = int((start + min_s) / FRAME_S), int(min(start + max_s, clip.seconds) / FRAME_S)
    weak = speech_probability(clip)[first:last]
    level = [
        np.square(clip.samples[int(k * FRAME_S * clip.rate_hz) : int((k + 1) * FRAME_S * clip.rate_hz)]).mean()
        for k in range(first, min(last, first + len(weak)))
    ]
    if not level:
        return start, min(start + max_s, clip.seconds)
    cost = weak[: len(level)] + np.sqrt(level) / (np.sqrt(max(level)) + 1e-9)
    return start, (first + int(np.argmin(cost)) + 0.5) * FRAME_S


def _faded(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    """A copy whose ends rise and fall in 5 ms, so that a cut makes no click."""
    out = samples.copy()
    n = min(int(FADE_S * rate_hz), len(out) // 2)
    if n:
        ramp = np.linspace(0.0, 1.0, n, dtype=np.float32)
        out[:n] *= ramp
        out[-n:] *= ramp[::-1]
    return out


def _changed(clip: Clip, samples: np.ndarray) -> Clip:
    digest = hashlib.sha256(f"{clip.rate_hz}\n".encode() + samples.tobytes()).hexdigest()
    return Clip(samples, clip.rate_hz, digest, clip.notes)
