"""The vocoder with windows of fixed size replayed from captured graphs.

A window is computed as if it were all of speech: its false edges reach only as far as the network sees, and what they touch is
thrown away. So one graph for each size serves the start, the middle and the end of any utterance and any stream. Only at
the end of speech must the window end where speech ends; elsewhere it may reach beyond what is there.

What one window hands to the next are phase sums, in fp64, as in vocoder.stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cosy_engine.accel.graphs import Captured, Graph, Pool
from cosy_engine.accel.vocoder_lean import LeanHift, PlainOps
from cosy_engine.vocoder.hift import Hift
from cosy_engine.vocoder.source import DrawnNoise
from cosy_engine.vocoder.stream import CAUSAL, SYMMETRIC, WindowState

WINDOWS = (48, 64, 80, 96, 128, 192, 256, 384, 512, 768)  # mel frames, 50 a second


@dataclass(frozen=True)
class Edges:
    """How far a window's false edges reach, in frames. pitch_left, pitch_right: into the pitch alone. left, right: into samples."""

    pitch_left: int
    pitch_right: int
    left: int
    right: int

    @classmethod
    def of(cls, causal: bool) -> Edges:
        reach = CAUSAL if causal else SYMMETRIC
        # v3: pitch and decoder look ahead side by side, and the decoder looks further; v2: one after the other
        right = reach.right if causal else reach.f0_right + reach.source_right + reach.right
        return cls(reach.f0_left, reach.f0_right, reach.f0_left + reach.left, right)


@dataclass(frozen=True)
class Window:
    """Frames first .. first+frames-1; of them, up to frame `ready` samples are final after it."""

    first: int
    frames: int
    ready: int


def next_window(emitted: int, arrived: int, final: bool, sizes: Sequence[int], edges: Edges) -> Window | None:
    """What to render when `emitted` of `arrived` frames are done and `final` says that no more will come (pure).

    Returns: None when nothing can be made final by a window of these sizes; at the end of speech the utterance is then too
    short for them.
    """
    begin = max(0, emitted - edges.left)
    need = arrived - begin
    if final:
        for frames in sizes:
            if need <= frames <= arrived:
                return Window(arrived - frames, frames, arrived)
    elif arrived - edges.right <= emitted:
        return None
    else:
        for frames in sizes:
            if need <= frames:
                return Window(begin, frames, arrived - edges.right)
    for frames in reversed(sizes):
        if frames < need and begin + frames - edges.right > emitted:
            return Window(begin, frames, begin + frames - edges.right)
    return None


class WindowStep:
    """Static inputs of a window of W frames; calling gives its samples and phase sums. See LeanHift.render."""

    def __init__(self, lean: LeanHift, frames: int):
        net, device = lean.net, lean.net.device
        harmonics = net.m_source.harmonics
        self.lean, self.frames = lean, frames
        self.mel = torch.zeros(1, frames, net.spec.mel_bins, device=device)
        self.noise = torch.zeros(1, frames * net.frame_samples, harmonics, device=device)
        self.known = torch.ones(frames, dtype=torch.float64, device=device)
        self.carry = torch.zeros(harmonics, 1, dtype=torch.float64, device=device)
        self.start = torch.zeros(1, dtype=torch.int64, device=device)

    def __call__(self) -> tuple[Tensor, Tensor]:
        return self.lean.render(self.mel, self.noise, self.known, self.carry, self.start)


@dataclass(slots=True)
class StreamState:
    """A stream. sizes: of windows that were there when it began. first: index of the first frame kept. mel: (M, arrived - first).
    sums: (9, n) fp64 phase sums of frames from `first` on whose pitch is final."""

    sizes: tuple[int, ...]
    drawn: DrawnNoise | None
    mel: Tensor
    sums: Tensor
    first: int = 0
    arrived: int = 0
    emitted: int = 0
    finished: bool = False


class GraphVocoder:
    """A Vocoder over a Hift.

    ops: what runs between convolutions (vocoder_lean.PlainOps or vocoder_kernels.VocoderKernels). capture_graph: makes a callable
    of a WindowStep; Graph on a GPU. pool: shared with what never runs at the same time. An utterance that fits no captured window runs plainly.
    """

    def __init__(
        self,
        net: Hift,
        sizes: tuple[int, ...] = WINDOWS,
        capture_graph: Callable = Graph,
        ops=None,
        pool: Pool | None = None,
    ):
        self.net, self.spec, self.ops = net, net.spec, ops or PlainOps()
        self._wanted = sizes
        self.sizes: tuple[int, ...] = ()  # those captured
        self.edges = Edges.of(net.causal)
        self._capture_graph, self._pool = capture_graph, pool or Pool()
        self._lean: LeanHift | None = None
        self._steps: dict[int, tuple[WindowStep, Callable]] = {}
        self.replays = 0
        self.captured: list[Captured] = []

    # ---- warm-up

    def captures(self) -> Iterator[Callable[[], None]]:
        """One piece of work for each size, short ones first: they make the first sound."""
        for frames in self._wanted:
            yield lambda frames=frames: self.capture(frames)

    @torch.inference_mode()
    def capture(self, frames: int) -> None:
        """Capture one size."""
        cuda = self.net.device.type == "cuda"
        began, before = time.perf_counter(), torch.cuda.memory_reserved() if cuda else 0
        self._lean = self._lean or LeanHift(self.net, self.ops)
        step = WindowStep(self._lean, frames)
        self._steps[frames] = step, self._capture_graph(step, self._pool)
        self.sizes = tuple(sorted(self._steps))
        taken = torch.cuda.memory_reserved() - before if cuda else 0
        self.captured.append(Captured(f"vocoder {frames} frames", time.perf_counter() - began, taken))

    # ---- Vocoder

    def whole(self, mel: Tensor, *, seed: int = 0) -> Tensor:
        """See stages.Vocoder.whole."""
        if not self.sizes or next_window(0, mel.shape[1], True, self.sizes, self.edges) is None:
            return self.net.whole(mel, seed=seed)
        return self.advance(self.start(seed=seed), mel, final=True)

    @torch.inference_mode()
    def start(self, *, seed: int = 0) -> StreamState | WindowState:
        """See stages.Vocoder.start. A stream that begins before any size is captured stays with the network's own way."""
        net = self.net
        if not self.sizes:
            return net.start(seed=seed)
        sums = torch.zeros(net.m_source.harmonics, 0, dtype=torch.float64, device=net.device)
        return StreamState(self.sizes, net.noise(seed), torch.zeros(self.spec.mel_bins, 0, device=net.device), sums)

    @torch.inference_mode()
    def advance(self, state: StreamState | WindowState, mel: Tensor, *, final: bool = False) -> Tensor:
        """See stages.Vocoder.advance."""
        if isinstance(state, WindowState):
            return self.net.advance(state, mel, final=final)
        assert not state.finished, "advance() after final=True: start a new stream"
        mel = mel.to(self.net.device, torch.float32)
        state.mel = torch.cat([state.mel, mel], dim=1) if state.mel.shape[1] else mel
        state.arrived += mel.shape[1]
        state.finished = final
        parts = []
        while state.emitted < state.arrived:
            window = next_window(state.emitted, state.arrived, final, state.sizes, self.edges)
            if window is None:
                if final:
                    parts.append(self._plainly(state))
                break
            parts.append(self._render(state, window))
        self._forget(state)
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.zeros(0, device=self.net.device)

    def _render(self, state: StreamState, window: Window) -> Tensor:
        step, graph = self._steps[window.frames]
        size, first, pitch = self.net.frame_samples, window.first, self.edges.pitch_left
        count = min(window.frames, state.arrived - first)
        at = first - state.first
        step.mel[0, :count] = state.mel[:, at : at + count].T
        if count < window.frames:
            step.mel[0, count:] = 0
        step.noise[:, : count * size] = self.net.noise_rows(state.drawn, first * size, (first + count) * size)
        step.known[:pitch] = 1.0 if first == 0 else 0.0
        if first == 0:
            step.carry.zero_()
        else:
            step.carry.copy_(state.sums[:, at + pitch - 1, None])
        step.start.fill_(first)
        samples, sums = graph()
        self.replays += 1
        held = state.sums.shape[1]  # sums of frames up to state.first + held are there
        sure = first + count - self.edges.pitch_right
        if sure > state.first + held:
            state.sums = torch.cat([state.sums, sums[:, state.first + held - first : sure - first]], dim=1)
        out = samples[(state.emitted - first) * size : (window.ready - first) * size].clone()
        state.emitted = window.ready
        return out

    def _plainly(self, state: StreamState) -> Tensor:
        """The end of an utterance that is too short for windows: all of it is still kept."""
        assert state.first == 0
        noise = self.net.noise_rows(state.drawn, 0, state.arrived * self.net.frame_samples)[0]
        return self.net.whole(state.mel, noise=noise)[state.emitted * self.net.frame_samples :]

    def _forget(self, state: StreamState) -> None:
        """Keep what the longest window could want."""
        drop = state.arrived - state.sizes[-1] - state.first
        if drop > 0:
            state.mel, state.sums = state.mel[:, drop:].clone(), state.sums[:, drop:].clone()
            state.first += drop
            if state.drawn is not None:
                start = state.first * self.net.frame_samples
                state.drawn.rows(start, start, forget=True)
