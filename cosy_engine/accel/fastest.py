"""Which of several equal ways is fastest on this device and at this size? Measured while a bucket is warmed up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

CALLS, REPLAYS = 8, 3
GAIN = 0.96  # a later way must win by so much, lest noise decide: another way rounds differently


class Fastest:
    """Chooses for each key among ways that compute the same, by their time in a captured graph.

    A way that does not run on this device (too little shared memory, say) is left out. On the CPU, with one way, or while a
    graph is being captured nothing is measured: the first way, or what was chosen before.
    """

    def __init__(self):
        self.chosen: dict[Hashable, Hashable] = {}

    def __call__(self, key: Hashable, ways: Sequence[Hashable], run: Callable[[Hashable], Tensor]) -> Tensor:
        """run(way) of the way chosen for the key; while measuring, it is called many times."""
        if key not in self.chosen:
            idle = not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing()
            if idle or len(ways) == 1:
                return run(ways[0])
            self.chosen[key] = self._measure(ways, run)
        return run(self.chosen[key])

    def _measure(self, ways: Sequence[Hashable], run: Callable[[Hashable], Tensor]) -> Hashable:
        best, shortest, failure = None, float("inf"), None
        for way in ways:
            try:
                took = _milliseconds(lambda way=way: run(way))
            except Exception as error:  # what cannot run here; when nothing can, the last reason is the caller's
                failure = error
                continue
            if took < shortest * (GAIN if best is not None else 1.0):
                best, shortest = way, took
        if best is None:
            raise failure
        return best


def _milliseconds(call: Callable[[], Tensor]) -> float:
    """Of CALLS calls in a graph, the shortest of some replays."""
    call()
    torch.cuda.current_stream().synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(CALLS):
            call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return min(times)
