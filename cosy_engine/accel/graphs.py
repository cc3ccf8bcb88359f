"""Capture and replay of CUDA graphs behind a plain call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Captured:
    """What one capture cost. bytes: device memory that it made torch take from the driver."""

    name: str
    seconds: float
    bytes: int


class Pool:
    """Memory for graphs that never run at the same time: they use the same bytes.

    first: while graphs of other pools run too, the kernels of these get the device first. All are captured on one stream: what
    warm-up runs leave in the allocator, and the work space that cuBLAS keeps for each stream (32 MB on Hopper), is there once.
    """

    def __init__(self, first: bool = False):
        self.first = first

    @functools.cached_property
    def handle(self) -> tuple[int, int]:
        return torch.cuda.graph_pool_handle()

    @functools.cached_property
    def stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(priority=-1 if self.first else 0)  # a graph's kernels keep it


class Graph:
    """A function of no arguments, captured once and replayed by calling.

    Three things bite: what it writes is overwritten by the next call (clone to keep); the function really runs while
    warming up (restore any state that it advances); shapes and addresses are fixed. Capture and replay belong to one
    thread. pool: where its memory comes from; None is a pool of its own.
    """

    def __init__(self, fn: Callable[[], object], pool: Pool | None = None, warm_runs: int = 2):
        pool = pool or Pool()
        side = pool.stream
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_runs):  # libraries choose kernels and allocate work space on their first calls
                fn()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use the device (the ONNX front end does) while this one captures.
        with torch.cuda.graph(self._graph, pool=pool.handle, stream=side, capture_error_mode="thread_local"):
            self.output = fn()

    def __call__(self) -> object:
        """Replay on the current stream; the output lives in the graph's own memory."""
        self._graph.replay()
        return self.output
