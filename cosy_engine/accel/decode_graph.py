"""Decode steps as captured graphs, one for each bucket of rows and context; the plain step where none fits yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import torch

from cosy_engine.accel.buckets import CONTEXTS, ROWS, round_up
from cosy_engine.accel.graphs import Captured, Graph, Pool

# What a step moves; saved and put back around a capture, whose warm-up really runs. Cached keys and values need no
# saving: a step writes one position that the next real step writes again.
MOVED = ("token", "step", "draw", "recent", "done", "stop_id", "finite", "out")


class GraphDecode:
    """Callable like DecodePool's `step`. `captures()` lists the work of warming up; each item is one capture.

    plain: what runs where no captured bucket fits, None is `step` itself. any_context: `step` reads lengths on the
    device, so one bucket serves all. pieces: (state, rows) -> what is to be done before a bucket's captures. pool: shared with what
    never runs at the same time.
    """

    def __init__(
        self,
        step: Callable[[object, int, int], None],
        state: object,
        rows: int,
        plain: Callable[[object, int, int], None] | None = None,
        any_context: bool = False,
        pieces: Callable[[object, int], Iterable[Callable[[], object]]] = lambda state, rows: (),
        pool: Pool | None = None,
    ):
        self.step, self.plain, self.pieces, self.state = step, plain or step, pieces, state
        self.rows = [*(bucket for bucket in ROWS if bucket < rows), rows]  # a full batch of any size is captured
        capacity = state.cache.capacity
        buckets = [] if any_context else [bucket for bucket in CONTEXTS if bucket < capacity]
        self.contexts = buckets or [capacity]
        self.pool = pool or Pool()
        self.graphs: dict[tuple[int, int], Graph] = {}
        self.replays = 0
        self.captured: list[Captured] = []

    def __call__(self, state: object, rows: int, context: int) -> None:
        """Replay the smallest captured bucket that holds rows and context; else run the plain step."""
        graph = self.graphs.get((round_up(rows, self.rows), round_up(context, self.contexts)))
        if graph is None:
            self.plain(state, rows, context)
            return
        self.replays += 1
        graph()

    def captures(self) -> Iterator[Callable[[], object]]:
        """Pieces of work, one capture each (and what comes before it), the most used first: one row, short contexts."""
        for rows in self.rows:
            yield from self.pieces(self.state, rows)
            for context in self.contexts:
                yield lambda rows=rows, context=context: self.capture(rows, context)

    @torch.inference_mode()
    def capture(self, rows: int, context: int) -> None:
        """Capture one bucket; rows that are being decoded are left as they were."""
        torch.cuda.synchronize()  # nothing of another stream may still be using the state
        began, before = time.perf_counter(), torch.cuda.memory_reserved()
        tensors = [getattr(self.state, name) for name in MOVED] + [self.state.cache.length]
        kept = [tensor.clone() for tensor in tensors]
        graph = Graph(lambda: self.step(self.state, rows, context), self.pool)
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(old)
        torch.cuda.synchronize()
        self.graphs[rows, context] = graph
        name = f"decode {rows} rows, context {context}"
        self.captured.append(Captured(name, time.perf_counter() - began, torch.cuda.memory_reserved() - before))
