"""The flow with its solver steps replayed from captured graphs, one for each bucket of frames.

One graph holds one Euler step (both guidance rows); the step number lives on the device, so ten replays are a solve. An
utterance is padded to its bucket and a key mask hides the padding, which changes nothing but rounding.

Streams recompute the frames of the prompt and of earlier chunks instead of keeping caches: a cache costs about 90 MB per
second of speech and stream at full size (spec of the model), and binds a graph to one stream's addresses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cosy_engine.accel.buckets import round_up
from cosy_engine.accel.flow_front import lean_front
from cosy_engine.accel.flow_lean import PlainOps, hidden, lean
from cosy_engine.accel.graphs import Captured, Graph, Pool
from cosy_engine.stages import FlowPrompt

# 50 frames a second, prompt included; multiples of 8, which attention kernels want of a mask's rows.
FRAMES = (104, 152, 200, 256, 304, 352, 400, 456, 504, 552, 608, 656, 704, 760, 808, 904, 1000, 1208, 1504, 2000)


@dataclass(slots=True)
class RecomputeState:
    """A stream: the prompt, all tokens so far, and how many of them (prompt included) are in finished blocks."""

    prompt: FlowPrompt
    tokens: Tensor
    done: int

    def fork(self) -> RecomputeState:
        """An independent stream that continues from here."""
        return replace(self)


class SolverStep:
    """One Euler step of a bucket of F frames, on static tensors.

    x: (1, F, M) fp32, the state, moved on by each call. mu, cond: (2, F, M). speaker: (2, M); second rows stay zero.
    step: (1,) int64, counts calls since it was set to 0; more than the solver's steps wrap around.
    visible: which keys a query sees, see flow_lean.PlainOps; `see` fills it.
    estimator: the lean form of the velocity estimator.
    """

    def __init__(self, decoder, frames: int, mel_bins: int, device: torch.device, estimator):
        self.decoder, self.frames, self.estimator = decoder, frames, estimator
        self.x = torch.zeros(1, frames, mel_bins, device=device)
        self.mu, self.cond = (torch.zeros(2, frames, mel_bins, device=device) for _ in range(2))
        self.speaker = torch.zeros(2, mel_bins, device=device)
        if estimator.ops.fused:
            self.visible = torch.full((2,), frames, dtype=torch.int32, device=device)
        else:
            dtype = next(decoder.estimator.parameters()).dtype
            self.visible = torch.zeros(1, 1, frames, frames, dtype=dtype, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.sizes = torch.tensor(decoder.sizes, device=device)
        self.table = estimator.modulation_table(decoder.time_table())

    def see(self, valid: Tensor, block: Tensor) -> None:
        """Which keys count: the first `valid` frames, up to the end of the query's block of `block` frames; (1,) int64 each."""
        if self.estimator.ops.fused:
            self.visible[:1] = valid
            self.visible[1:] = block
            return
        self.visible.zero_().masked_fill_(hidden(valid, block, self.frames, self.x.device), -torch.inf)

    def __call__(self) -> None:
        rate, now = self.decoder.cfg_rate, self.step % len(self.decoder.sizes)
        x = self.x.expand(2, -1, -1)
        velocity = self.estimator(x, self.mu, self.speaker, self.cond, self.table[now], self.visible)
        given, free = velocity[:1], velocity[1:]
        self.x += self.sizes[now] * ((1.0 + rate) * given - rate * free)
        self.step += 1


class SolverStart:
    """What precedes the first Euler step of a bucket: front network, speaker, start values, which keys count.

    ids: (1, F / 2 + look-ahead) int64. embedding: (1, 192). numbers: (3,) int64, tokens there, tokens that become frames, tokens of
    a block (as many as ids for no blocks). front: see flow_front.lean_front, None makes one for this bucket alone.
    """

    def __init__(self, flow, step: SolverStep, front=None):
        self.flow, self.step, self.front = flow, step, front or lean_front(flow, step.estimator.ops, step.frames)
        device, spec = flow.device, flow.spec
        self.ids = torch.zeros(1, step.frames // 2 + spec.lookahead_tokens, dtype=torch.int64, device=device)
        self.embedding = torch.zeros(1, spec.speaker_width, device=device)
        self.numbers = torch.ones(3, dtype=torch.int64, device=device)
        self.noise = flow.noise(0, step.frames)

    def __call__(self) -> None:
        step = self.step
        there, ready, block = self.numbers.split(1)
        step.mu[:1] = self.front(self.ids, there, ready, block)
        step.speaker[0] = self.flow.speaker(self.embedding)[0]
        step.x[0] = self.noise
        step.see(2 * ready, 2 * block)
        step.step.zero_()


class GraphFlow:
    """A FlowDecoder over a Flow.

    ops: what runs between the products (flow_lean.PlainOps or flow_kernels.FlowKernels). capture_graph: makes a callable
    of a SolverStart or a SolverStep; Graph on a GPU. pool: shared with what never runs at the same time.
    """

    def __init__(
        self,
        flow,
        buckets: tuple[int, ...] = FRAMES,
        capture_graph: Callable = Graph,
        ops=None,
        pool: Pool | None = None,
    ):
        self.flow, self.spec, self.buckets = flow, flow.spec, buckets
        self.ops = ops or PlainOps()
        self._capture_graph, self._pool = capture_graph, pool or Pool()
        self._estimator = self._front = None
        self._steps: dict[int, tuple[SolverStart, Callable[[], object], Callable[[], object]]] = {}
        self.replays = 0
        self.captured: list[Captured] = []

    # ---- warm-up

    def captures(self) -> Iterator[Callable[[], None]]:
        """One piece of work for each bucket, short ones first: they make the first sound."""
        for frames in self.buckets:
            yield lambda frames=frames: self.capture(frames)

    @torch.inference_mode()
    def capture(self, frames: int) -> None:
        """Capture one bucket."""
        device = self.flow.device
        cuda = device.type == "cuda"
        began, before = time.perf_counter(), torch.cuda.memory_reserved() if cuda else 0
        if self._estimator is None:
            self._estimator = lean(self.flow.decoder.estimator, self.ops)
            self._front = lean_front(self.flow, self.ops, max(self.buckets))
        step = SolverStep(self.flow.decoder, frames, self.spec.mel_bins, device, self._estimator)
        start = SolverStart(self.flow, step, self._front)
        graphs = [self._capture_graph(part, self._pool) for part in (start, step)]
        self._steps[frames] = start, *graphs
        taken = torch.cuda.memory_reserved() - before if cuda else 0
        self.captured.append(Captured(f"flow {frames} frames", time.perf_counter() - began, taken))

    # ---- FlowDecoder

    @torch.inference_mode()
    def whole(
        self, tokens: list[Tensor], prompts: list[FlowPrompt], *, streaming: bool = False, finalize: bool = True
    ) -> list[Tensor]:
        """See stages.FlowDecoder.whole. Rows are solved one after another: at these sizes the chip is full."""
        return [self._one(row, prompt, streaming, finalize) for row, prompt in zip(tokens, prompts, strict=True)]

    def _one(self, tokens: Tensor, prompt: FlowPrompt, streaming: bool, finalize: bool) -> Tensor:
        flow = self.flow
        count = len(prompt.tokens) + len(tokens)
        frames = 2 * max(0, count - (0 if finalize else self.spec.lookahead_tokens))
        known = prompt.mel.shape[0]
        captured = self._steps.get(round_up(frames, self.buckets))
        if captured is None or frames <= known:
            return flow.whole([tokens], [prompt], streaming=streaming, finalize=finalize)[0]
        start, begin, move = captured
        step = start.step
        start.ids[0, : len(prompt.tokens)] = prompt.tokens
        start.ids[0, len(prompt.tokens) : count] = tokens
        start.embedding[0] = prompt.embedding
        for at, value in enumerate((count, frames // 2, self.spec.block_tokens if streaming else start.ids.shape[1])):
            start.numbers[at].fill_(value)
        step.cond[0, :known] = prompt.mel
        step.cond[0, known:] = 0
        begin()
        for _ in flow.decoder.sizes:
            move()
        self.replays += len(flow.decoder.sizes)
        return step.x[0, known:frames].T.contiguous()

    def start(self, prompt: FlowPrompt) -> RecomputeState:
        """A new stream; nothing is computed yet."""
        whole_blocks = max(0, len(prompt.tokens) - self.spec.lookahead_tokens) // self.spec.block_tokens
        return RecomputeState(prompt, prompt.tokens[:0], whole_blocks * self.spec.block_tokens)

    def tokens_to_next(self, state: RecomputeState) -> int:
        """See stages.FlowDecoder.tokens_to_next."""
        have = len(state.prompt.tokens) + len(state.tokens)
        return state.done + self.spec.block_tokens + self.spec.lookahead_tokens - have

    def advance(self, state: RecomputeState, tokens: Tensor, *, final: bool = False) -> Tensor:
        """See stages.FlowDecoder.advance; costs a pass over everything so far when a block completes."""
        state.tokens = torch.cat([state.tokens, tokens.to(state.tokens.device, state.tokens.dtype)])
        have, block = len(state.prompt.tokens) + len(state.tokens), self.spec.block_tokens
        ready = have if final else max(0, have - self.spec.lookahead_tokens) // block * block
        if ready <= state.done:
            return torch.zeros(self.spec.mel_bins, 0, device=self.flow.device)
        end = len(state.tokens) if final else ready + self.spec.lookahead_tokens - len(state.prompt.tokens)
        mel = self.whole([state.tokens[:end]], [state.prompt], streaming=True, finalize=final)[0]
        known = state.prompt.mel.shape[0]
        new = mel[:, max(0, 2 * state.done - known) :]
        state.done = ready
        return new.contiguous()
