"""The last stage before the listener: silence at the ends and in pauses bounded, no click, peak below full scale.

It works on a grid of 10 ms that starts with the segment, so cutting the audio into chunks cannot change a sample, and
whole and streamed audio get the same treatment. Between those cuts and the fades clean speech passes sample for sample.
No level is changed here, least of all per chunk. Numpy only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class FinishRules:
    """Thresholds with their reasons.

    frame_s: grid of all decisions; 10 ms is one period of the deepest voice.
    silent_peak: a frame that stays below is silence. -46 dBFS: a trained vocoder's pauses stay below 0.003 in 99 of 100
        frames (median 0.0004), and the softest fricatives of a voice at its usual -18 dBFS reach 0.01.
    first_lead_s, later_lead_s: silence kept before the speech of the first and of a later segment. People notice 0.3 s;
        before a later one the punctuation's pause has been made already.
    onset_s: kept before the first loud frame in any case: a soft consonant may begin there.
    trail_s: least silence kept behind the last loud frame, for the same reason; the punctuation's pause may be longer.
    pause_s: longest silence inside a segment. 1 s is what a reader leaves at a paragraph; longer ones sound broken.
    fade_s: cosine at both ends of a segment; 5 ms is too short to be heard and too long to click.
    peak: below full scale, so that a 16-bit cast and a lossy codec have room. The vocoder's own limit is the same.
    """

    frame_s: float = 0.01
    silent_peak: float = 0.005
    first_lead_s: float = 0.25
    later_lead_s: float = 0.1
    onset_s: float = 0.05
    trail_s: float = 0.1
    pause_s: float = 1.0
    fade_s: float = 0.005
    peak: float = 0.99


@dataclass(slots=True)
class Heard:
    """What came out of the vocoder, counted for the guard. loud: samples in frames that are no silence; crossings: sign
    changes in them; rails: samples at the vocoder's limit."""

    samples: int = 0
    loud: int = 0
    crossings: int = 0
    rails: int = 0


@dataclass(slots=True)
class Finish:
    """One segment's audio on its way out: `take` chunks, then `end`.

    first: whether it is the request's first segment. pause_s: silence wanted behind it (`pause()` makes what is
    missing). trim=False leaves every silence as it is, where the timing is the user's own.
    """

    rate_hz: int
    first: bool = True
    pause_s: float = 0.0
    trim: bool = True
    rules: FinishRules = field(default_factory=FinishRules)
    heard: Heard = field(default_factory=Heard)
    emitted: int = 0
    _rest: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # less than a frame
    _held: deque = field(default_factory=deque)  # silent frames that may have to go
    _kept: int = 0  # silent frames let through since the last loud one
    _begun: bool = False
    _ready: list = field(default_factory=list)
    _tail: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # as long as the fade: may be the end

    def take(self, samples: np.ndarray) -> np.ndarray:
        """(N,) more samples -> those that are certain to be heard as they are. Waits 5 ms in speech; in a silence only
        for what may have to go."""
        self.heard.rails += int((np.abs(samples) >= self.rules.peak * 0.995).sum())
        samples = np.clip(samples, -self.rules.peak, self.rules.peak)
        self.heard.samples += len(samples)
        samples = np.concatenate([self._rest, samples])
        size = self._samples(self.rules.frame_s)
        whole = len(samples) // size * size
        self._look(samples[:whole].reshape(-1, size))
        self._rest = samples[whole:]
        return self._let_go(last=False)

    def end(self) -> np.ndarray:
        """What is still to come, faded out at its end."""
        if len(self._rest):
            self._look(self._rest[None])
        self._rest = self._rest[:0]
        self._held.clear()
        return self._let_go(last=True)

    def pause(self) -> np.ndarray:
        """Silence that is missing to pause_s behind the last loud frame, after `end`."""
        there = self._kept * self._samples(self.rules.frame_s)
        return np.zeros(max(0, self._samples(self.pause_s) - there), np.float32)

    def _samples(self, seconds: float) -> int:
        return round(seconds * self.rate_hz)

    def _frames(self, seconds: float) -> int:
        return round(seconds / self.rules.frame_s)

    def _look(self, frames: np.ndarray) -> None:
        """Decide on each of (n, samples); all are measured at once, for a whole utterance has a thousand."""
        loud = np.abs(frames).max(axis=1, initial=0.0) >= (self.rules.silent_peak if self.trim else 0.0)
        signs = np.signbit(frames)
        crossings = (signs[:, 1:] != signs[:, :-1]).sum(axis=1)
        self.heard.loud += int(loud.sum()) * frames.shape[1]
        self.heard.crossings += int(crossings[loud].sum())
        for frame, is_loud in zip(frames, loud.tolist(), strict=True):
            self._frame(frame, is_loud)

    def _frame(self, frame: np.ndarray, loud: bool) -> None:
        rules = self.rules
        if loud:
            self._ready += self._held
            self._ready.append(frame)
            self._held.clear()
            self._begun, self._kept = True, 0
        elif not self._begun:
            self._held.append(frame)
            if len(self._held) > self._frames(rules.first_lead_s if self.first else rules.later_lead_s):
                self._held.popleft()
        elif self._kept < self._frames(max(self.pause_s, rules.trail_s)):  # certain to stay, whatever follows
            self._ready.append(frame)
            self._kept += 1
        else:
            self._held.append(frame)
            onset = self._frames(rules.onset_s)
            if self._kept + len(self._held) > max(self._frames(rules.pause_s), self._kept + onset):
                del self._held[len(self._held) - onset - 1]  # the newest may be the onset of what follows

    def _let_go(self, last: bool) -> np.ndarray:
        out = np.concatenate([self._tail, *self._ready])
        self._ready = []
        fade = self._samples(self.rules.fade_s)
        cut = len(out) if last else max(0, len(out) - fade)
        out, self._tail = out[:cut], out[cut:].copy()
        ramp = (0.5 - 0.5 * np.cos(np.pi * np.arange(fade) / fade)).astype(np.float32)
        rising = ramp[self.emitted : self.emitted + len(out)]
        out[: len(rising)] *= rising
        if last:
            falling = ramp[::-1][-len(out) :] if len(out) else ramp[:0]
            out[len(out) - len(falling) :] *= falling
        self.emitted += len(out)
        return out
