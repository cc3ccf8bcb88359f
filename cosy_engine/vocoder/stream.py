"""Chunked vocoding: what one stream remembers, and how much of the new audio is final."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cosy_engine.vocoder.source import DrawnNoise

if TYPE_CHECKING:
    from cosy_engine.vocoder.hift import Hift


@dataclass(frozen=True)
class Reach:
    """How far parts of the network see, in mel frames.

    f0_left, f0_right: the F0 predictor. source_right: the phase between two frame centres needs the next frame (v2).
    left, right: the decoder; v3's right is its 4 look-ahead frames and the one where the transforms reflect.
    """

    f0_left: int
    f0_right: int
    source_right: int
    left: int
    right: int


SYMMETRIC = Reach(f0_left=5, f0_right=5, source_right=1, left=16, right=15)
CAUSAL = Reach(f0_left=8, f0_right=3, source_right=0, left=32, right=5)


@dataclass(slots=True)
class WindowState:
    """A stream that equals the whole run: each step decodes the new frames behind a window of old ones.

    Pitch, phase sums and excitation are made once per frame and kept; only the decoder runs again over its left
    context (32 frames in v3, 16 in v2). States per convolution would save that, at the price of some 80 small copies
    a step, and the step is bound by launches.

    v2 cannot end a chunk exactly without seeing 21 frames on. We wait for them (0.42 s) instead of cross-fading an
    8-frame overlap (0.16 s) like the published stream: no seam, no phase jump, and the wait does not delay the first
    sound, it only leaves 0.26 s less audio in the first chunk.

    first: index of the first mel frame kept. arrived, pitched, excited, emitted: counts of frames since the start.
    mel: (1, M, arrived - first). source: (1, 480 (excited - first)). f0, sums: of frames excited .. pitched-1.
    before: (1, 9, 1) phase sum of frame excited-1.
    """

    drawn: DrawnNoise | None
    injected: Tensor | None = None
    arrived: int = 0
    pitched: int = 0
    excited: int = 0
    emitted: int = 0
    first: int = 0
    mel: Tensor | None = None
    source: Tensor | None = None
    f0: Tensor | None = None
    sums: Tensor | None = None
    before: Tensor | None = None
    finished: bool = False

    def advance(self, net: Hift, mel: Tensor, final: bool) -> Tensor:
        """(M, F) new frames -> the samples that are now final."""
        assert not self.finished, "advance() after final=True: start a new stream"
        reach = CAUSAL if net.causal else SYMMETRIC
        if mel.shape[1]:
            self.mel = mel[None] if self.mel is None else torch.cat([self.mel, mel[None]], dim=2)
            self.arrived += mel.shape[1]
        self.finished = final
        pitched = self.arrived if final else self.arrived - reach.f0_right
        excited = pitched if final else pitched - reach.source_right
        ready = excited if final else excited - reach.right
        if ready <= self.emitted:
            return mel.new_zeros(0)
        self._pitch(net, reach, pitched, final)
        self._excite(net, excited, final)
        size = net.frame_samples
        window = slice(0, excited - self.first)
        y = net.decode(self.mel[..., window], self.source, finalize=final)[0]
        y = y[(self.emitted - self.first) * size : (ready - self.first) * size]
        self.emitted = ready
        drop = max(0, ready - reach.left - self.first)
        self.mel, self.source, self.first = self.mel[..., drop:], self.source[:, drop * size :], self.first + drop
        return y

    def _pitch(self, net: Hift, reach: Reach, pitched: int, final: bool) -> None:
        if pitched == self.pitched:
            return
        start = max(self.first, self.pitched - reach.f0_left)
        f0 = net.f0_predictor(self.mel[..., start - self.first :], finalize=final)
        f0 = f0[:, self.pitched - start : pitched - start]
        carry = self.before if self.sums is None or not self.sums.shape[2] else self.sums[..., -1:]
        sums = net.m_source.phase_sums(f0, carry)
        self.f0 = f0 if self.f0 is None else torch.cat([self.f0, f0], dim=1)
        self.sums = sums if self.sums is None else torch.cat([self.sums, sums], dim=2)
        self.pitched = pitched

    def _excite(self, net: Hift, excited: int, final: bool) -> None:
        count, size = excited - self.excited, net.frame_samples
        if count == 0:
            return
        rows = slice(self.excited * size, excited * size)
        if self.injected is not None:
            noise = self.injected[None, rows].float()
        else:
            noise = net.noise_rows(self.drawn, rows.start, rows.stop, forget=True)
        after = self.sums[..., count : count + 1] if self.sums.shape[2] > count else None
        place = {"before": self.before, "after": after, "start": self.excited}
        fresh = net.m_source(self.f0[:, :count], noise, self.sums[..., :count], **place)
        self.source = fresh if self.source is None else torch.cat([self.source, fresh], dim=1)
        self.before = self.sums[..., count - 1 : count]
        self.f0, self.sums = self.f0[:, count:], self.sums[..., count:]
        self.excited = excited


OVERLAP_FRAMES = 8


@dataclass(slots=True)
class OverlapState:
    """v2's published stream, for comparison with it: 8 frames are made twice and cross-faded.

    Its known blemishes are kept: the fade's halves sum to 1.08, the phase starts anew in each chunk, and the noise
    starts at row 0 of each chunk.
    """

    drawn: DrawnNoise | None
    injected: Tensor | None = None
    mel: Tensor | None = None
    source: Tensor | None = None
    tail: Tensor | None = None
    finished: bool = False
    given: list[Tensor] = field(default_factory=list)  # excitations to use instead of own ones, one per step

    def advance(self, net: Hift, mel: Tensor, final: bool) -> Tensor:
        """(M, F) new frames -> samples; all but the last 8 frames' unless final."""
        assert not self.finished, "advance() after final=True: start a new stream"
        size = OVERLAP_FRAMES * net.frame_samples
        mel = mel if self.mel is None else torch.cat([self.mel, mel], dim=1)
        if mel.shape[1] < OVERLAP_FRAMES and not final:
            self.mel = mel  # too short to leave an overlap; nothing was made of it yet
            return mel.new_zeros(0)
        self.finished = final
        if mel.shape[1] == 0:
            return mel.new_zeros(0)
        source = self.given.pop(0)[None] if self.given else self._source(net, mel)
        y = net.decode(mel[None], source)[0]
        if self.tail is not None:
            y = torch.cat([fade(self.tail, y[:size]), y[size:]])
        if final:
            return y
        self.mel, self.source, self.tail = mel[:, -OVERLAP_FRAMES:], source[:, -size:], y[-size:]
        return y[:-size]

    def _source(self, net: Hift, mel: Tensor) -> Tensor:
        samples = mel.shape[1] * net.frame_samples
        if self.injected is not None:
            noise = self.injected[None, :samples].float()
        else:
            noise = net.noise_rows(self.drawn, 0, samples)
        source = net.m_source(net.f0_predictor(mel[None]), noise)
        if self.source is not None:
            source = torch.cat([self.source, source[:, self.source.shape[1] :]], dim=1)
        return source


def fade(old: Tensor, new: Tensor) -> Tensor:
    """Cross-fade two (N,) signals with the halves of a symmetric Hamming window (sum 1.08), in fp64 like the original."""
    n = old.shape[0]
    k = torch.arange(2 * n, device=old.device, dtype=torch.float64)
    window = 0.54 - 0.46 * torch.cos(2 * torch.pi * k / (2 * n - 1))
    return (new * window[:n] + old * window[n:]).float()
