"""The flow with its solver steps replayed from captured graphs, one for each bucket of frames.

One graph holds one Euler step (both guidance rows); the step number lives on the device, so ten replays are a solve. An
utterance is padded to its bucket and a key mask hides the padding, which changes nothing but rounding.

Requests of about one length may be solved together, each padded to the same bucket (`solve`): products of one request leave most of
the chip idle. A graph for each bucket and number of requests holds their step; what precedes it is done for each alone.

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
# Requests solved together: 2.0 to 2.4 times as many a second as one by one at 4 s, 1.3 at 13 s (bench/flow_rows.py, H200).
GROUPS = (2, 4, 8)
MOST_GROUPED = (
    2100  # frames of a group, about 45 ms: who comes meanwhile waits for all of it, and larger ones gain little
)
FRAMES = (104, 152, 200, 256, 304, 352, 400, 456, 504, 552, 608, 656, 704, 760, 808, 904, 1000, 1208, 1504, 2000)


@dataclass(slots=True, eq=False)
class FlowOrder:
    """A mel that is wanted of `flow`: (T,) tokens behind a prompt. frames: of both. size: the bucket that holds it, None where none
    does. mel: (M, F) of the tokens, once it is made."""

    flow: GraphFlow
    tokens: Tensor
    prompt: FlowPrompt
    streaming: bool
    finalize: bool
    frames: int
    size: int | None
    mel: Tensor | None = None


@dataclass(slots=True)
class RecomputeState:
    """A stream: the prompt, all tokens so far, and how many of them (prompt included) are in finished blocks. order: what the next
    `advance` will want, if it was asked for already."""

    prompt: FlowPrompt
    tokens: Tensor
    done: int
    order: FlowOrder | None = None

    def fork(self) -> RecomputeState:
        """An independent stream that continues from here."""
        return replace(self)


class SolverStep:
    """One Euler step of a bucket of F frames for R requests, on static tensors.

    x: (R, F, M) fp32, the state, moved on by each call. mu, cond: (2R, F, M), speaker: (2R, M); their second halves stay zero.
    step: (1,) int64, counts calls since it was set to 0; more than the solver's steps wrap around.
    visible: which keys a query sees, see flow_lean.PlainOps; `see` fills it.
    estimator: the lean form of the velocity estimator. table: its modulation_table.
    """

    def __init__(
        self,
        decoder,
        frames: int,
        mel_bins: int,
        device: torch.device,
        estimator,
        requests: int = 1,
        table: Tensor | None = None,
    ):
        self.decoder, self.frames, self.estimator, self.requests = decoder, frames, estimator, requests
        self.x = torch.zeros(requests, frames, mel_bins, device=device)
        self.mu, self.cond = (torch.zeros(2 * requests, frames, mel_bins, device=device) for _ in range(2))
        self.speaker = torch.zeros(2 * requests, mel_bins, device=device)
        if estimator.ops.fused:
            self.visible = torch.full((requests, 2), frames, dtype=torch.int32, device=device)
        else:
            dtype, rows = next(decoder.estimator.parameters()).dtype, 1 if requests == 1 else 2 * requests
            self.visible = torch.zeros(rows, 1, frames, frames, dtype=dtype, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.sizes = torch.tensor(decoder.sizes, device=device)
        self.table = estimator.modulation_table(decoder.time_table()) if table is None else table

    def see(self, valid: Tensor, block: Tensor) -> None:
        """Which keys count, for one request: the first `valid` frames, up to the end of the query's block of `block` frames; (1,)
        int64 each."""
        if self.estimator.ops.fused:
            self.visible[0, :1] = valid
            self.visible[0, 1:] = block
            return
        self.visible.zero_().masked_fill_(hidden(valid, block, self.frames, self.x.device), -torch.inf)

    def take(self, number: int, one: SolverStep) -> None:
        """Make a step of one request, as it stands, the request of that number."""
        self.x[number], self.mu[number], self.cond[number] = one.x[0], one.mu[0], one.cond[0]
        self.speaker[number] = one.speaker[0]
        self.visible[number :: self.requests] = one.visible[0]

    def __call__(self) -> None:
        rate, now = self.decoder.cfg_rate, self.step % len(self.decoder.sizes)
        x = self.x.expand(2, -1, -1) if self.requests == 1 else self.x.repeat(2, 1, 1)
        velocity = self.estimator(x, self.mu, self.speaker, self.cond, self.table[now], self.visible)
        given, free = velocity.chunk(2)
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
    """A GroupingFlow over a Flow.

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
        self._estimator = self._front = self._table = None
        self._steps: dict[int, tuple[SolverStart, Callable[[], object], Callable[[], object]]] = {}
        self._together: dict[tuple[int, int], tuple[SolverStep, Callable[[], object]]] = {}
        self.replays = 0
        self.captured: list[Captured] = []

    # ---- warm-up

    def captures(self) -> Iterator[Callable[[], None]]:
        """One piece of work for each bucket, short ones first: they make the first sound. Then those of several requests."""
        for frames in self.buckets:
            yield lambda frames=frames: self.capture(frames)
        for frames in self.buckets:
            for requests in GROUPS:
                if frames * requests <= MOST_GROUPED:
                    yield lambda frames=frames, requests=requests: self.capture(frames, requests)

    @torch.inference_mode()
    def capture(self, frames: int, requests: int = 1) -> None:
        """Capture one bucket, alone or (once it is captured alone) for several requests."""
        device = self.flow.device
        cuda = device.type == "cuda"
        began, before = time.perf_counter(), torch.cuda.memory_reserved() if cuda else 0
        if self._estimator is None:
            self._estimator = lean(self.flow.decoder.estimator, self.ops)
            self._front = lean_front(self.flow, self.ops, max(self.buckets))
            self._table = self._estimator.modulation_table(self.flow.decoder.time_table())
        step = SolverStep(self.flow.decoder, frames, self.spec.mel_bins, device, self._estimator, requests, self._table)
        if requests == 1:
            start = SolverStart(self.flow, step, self._front)
            graphs = [self._capture_graph(part, self._pool) for part in (start, step)]
            self._steps[frames] = start, *graphs
        elif frames in self._steps:
            self._together[frames, requests] = step, self._capture_graph(step, self._pool)
        taken = torch.cuda.memory_reserved() - before if cuda else 0
        self.captured.append(Captured(f"flow {frames} frames x {requests}", time.perf_counter() - began, taken))

    # ---- FlowDecoder

    @torch.inference_mode()
    def whole(
        self, tokens: list[Tensor], prompts: list[FlowPrompt], *, streaming: bool = False, finalize: bool = True
    ) -> list[Tensor]:
        """See stages.FlowDecoder.whole."""
        orders = [
            self.order(row, prompt, streaming=streaming, finalize=finalize)
            for row, prompt in zip(tokens, prompts, strict=True)
        ]
        for order in orders:
            self.solve([order])
        return [order.mel for order in orders]

    def order(self, tokens: Tensor, prompt: FlowPrompt, *, streaming: bool = False, finalize: bool = True) -> FlowOrder:
        """See stages.GroupingFlow.order."""
        count = len(prompt.tokens) + len(tokens)
        frames = 2 * max(0, count - (0 if finalize else self.spec.lookahead_tokens))
        size = round_up(frames, self.buckets)
        fits = size in self._steps and frames > prompt.mel.shape[0]
        return FlowOrder(self, tokens, prompt, streaming, finalize, frames, size if fits else None)

    def groups(self, size: int) -> tuple[int, ...]:
        """See stages.GroupingFlow.groups."""
        return tuple(requests for requests in GROUPS if (size, requests) in self._together)

    @torch.inference_mode()
    def solve(self, orders: list[FlowOrder]) -> None:
        """See stages.GroupingFlow.solve."""
        steps = len(self.flow.decoder.sizes)
        if len(orders) == 1:
            order = orders[0]
            if order.size is None:
                order.mel = self.flow.whole(
                    [order.tokens], [order.prompt], streaming=order.streaming, finalize=order.finalize
                )[0]
                return
            start, begin, move = self._steps[order.size]
            self._tell(start, order)
            begin()
            step = start.step
        else:
            size = max(order.size for order in orders)
            start, begin, _ = self._steps[size]
            step, move = self._together[size, len(orders)]
            for number, order in enumerate(orders):
                self._tell(start, order)
                begin()
                step.take(number, start.step)
            step.step.zero_()
        for _ in range(steps):
            move()
        self.replays += steps
        for x, order in zip(step.x, orders, strict=True):
            order.mel = x[order.prompt.mel.shape[0] : order.frames].T.contiguous()
        if len(orders) > 1 and step.x.is_cuda:
            torch.cuda.current_stream().synchronize()  # all of them wait as long: none pays for the others

    def _tell(self, start: SolverStart, order: FlowOrder) -> None:
        """An order to the static inputs of a bucket."""
        prompt, tokens, step = order.prompt, order.tokens, start.step
        known, count = prompt.mel.shape[0], len(prompt.tokens) + len(tokens)
        start.ids[0, : len(prompt.tokens)] = prompt.tokens
        start.ids[0, len(prompt.tokens) : count] = tokens
        start.embedding[0] = prompt.embedding
        block = self.spec.block_tokens if order.streaming else start.ids.shape[1]
        for at, value in enumerate((count, order.frames // 2, block)):
            start.numbers[at].fill_(value)
        step.cond[0, :known] = prompt.mel
        step.cond[0, known:] = 0

    def start(self, prompt: FlowPrompt) -> RecomputeState:
        """A new stream; nothing is computed yet."""
        whole_blocks = max(0, len(prompt.tokens) - self.spec.lookahead_tokens) // self.spec.block_tokens
        return RecomputeState(prompt, prompt.tokens[:0], whole_blocks * self.spec.block_tokens)

    def tokens_to_next(self, state: RecomputeState) -> int:
        """See stages.FlowDecoder.tokens_to_next."""
        have = len(state.prompt.tokens) + len(state.tokens)
        return state.done + self.spec.block_tokens + self.spec.lookahead_tokens - have

    def next_order(self, state: RecomputeState, tokens: Tensor, *, final: bool = False) -> FlowOrder | None:
        """See stages.GroupingFlow.next_order."""
        tokens = torch.cat([state.tokens, tokens.to(state.tokens.device, state.tokens.dtype)])
        state.order = self._order(state, tokens, final)
        return state.order

    def _order(self, state: RecomputeState, tokens: Tensor, final: bool) -> FlowOrder | None:
        """What a stream wants when these are all its tokens."""
        ready = self._ready(state, len(tokens), final)
        if ready <= state.done:
            return None
        end = len(tokens) if final else ready + self.spec.lookahead_tokens - len(state.prompt.tokens)
        return self.order(tokens[:end], state.prompt, streaming=True, finalize=final)

    def _ready(self, state: RecomputeState, count: int, final: bool) -> int:
        """Tokens in finished blocks, the prompt's included, when `count` are there."""
        have, block = len(state.prompt.tokens) + count, self.spec.block_tokens
        return have if final else max(0, have - self.spec.lookahead_tokens) // block * block

    def advance(self, state: RecomputeState, tokens: Tensor, *, final: bool = False) -> Tensor:
        """See stages.FlowDecoder.advance; costs a pass over everything so far when a block completes."""
        made, state.order = state.order, None
        state.tokens = torch.cat([state.tokens, tokens.to(state.tokens.device, state.tokens.dtype)])
        order = self._order(state, state.tokens, final)
        if order is None:
            return torch.zeros(self.spec.mel_bins, 0, device=self.flow.device)
        if made is not None and made.mel is not None and len(made.tokens) == len(order.tokens):
            order = made
        else:
            self.solve([order])
        new = order.mel[:, max(0, 2 * state.done - state.prompt.mel.shape[0]) :]
        state.done = self._ready(state, len(state.tokens), final)
        return new.contiguous()
