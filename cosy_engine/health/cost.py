"""What a decoded token should cost on a machine, from a few of its numbers (pure).

A step is bound by whichever is slower: the host, which launches operations one by one (eager) or a graph at once, and the
device, which reads all weights and starts every kernel. Counts are of this program's own steps at the published size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LAYERS = 24
EAGER_KERNELS_PER_LAYER = 40  # norms, rotary, products, masks, cache writes as separate launches
OTHER_KERNELS = 261  # casts (6 a layer), head, sampling and bookkeeping of a step; 1221 operations in all were counted
# Modules, views and allocations around a launch, in turns of the loop that `single_core` counts (H200 host: 17.6 us an
# operation in all, 9.7 us of it the launch, at 12.5 million turns a second).
TURNS_PER_OPERATION = 99
GRAPH_KERNELS = 480  # a captured step of few operations
FUSED_KERNELS = 122  # a step of hand-written kernels, one row
GRAPH_GAP_US = 3.1  # between two kernels of a replayed graph, start-up of each included (H200: 1.66 ms for 480)
FUSED_GAP_US = 2.2
WEIGHT_BYTES = {"fp32": 1.456e9, "fp16": 0.728e9, "bf16": 0.728e9}  # body and head, read once a step


@dataclass(frozen=True)
class MachineSpeed:
    """launch_us: host time of one small operation, Python included. copy_bytes_s: of a large device copy, read + written.
    single_core: millions of turns of a plain Python loop a second, None where unknown.
    product_bytes_s: precision -> weights read by a product with one vector; given where that is slower than a copy (CPUs)."""

    launch_us: float
    copy_bytes_s: float
    single_core: float | None = None
    product_bytes_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenCost:
    """Milliseconds of a token, and what bounds it: "launches", "bytes" or "kernels"."""

    ms: float
    bound: str
    launch_ms: float
    bytes_ms: float


def token_cost(speed: MachineSpeed, tier: str, precision: str) -> TokenCost:
    """One row, sampling included."""
    bytes_ms = 1000 * WEIGHT_BYTES[precision] / speed.product_bytes_s.get(precision, speed.copy_bytes_s)
    if tier == "eager":
        around_us = TURNS_PER_OPERATION / speed.single_core if speed.single_core else 0.0
        launch_ms = (LAYERS * EAGER_KERNELS_PER_LAYER + OTHER_KERNELS) * (speed.launch_us + around_us) / 1000
        # A CPU does the one after the other; a GPU reads while the host launches.
        ms = launch_ms + bytes_ms if speed.product_bytes_s else max(launch_ms, bytes_ms)
        return TokenCost(ms, "launches" if launch_ms >= bytes_ms else "bytes", launch_ms, bytes_ms)
    kernels, gap = (GRAPH_KERNELS, GRAPH_GAP_US) if tier == "graph" else (FUSED_KERNELS, FUSED_GAP_US)
    kernel_ms = kernels * gap / 1000
    ms = kernel_ms + bytes_ms
    return TokenCost(ms, "kernels" if kernel_ms >= bytes_ms else "bytes", kernel_ms, bytes_ms)
