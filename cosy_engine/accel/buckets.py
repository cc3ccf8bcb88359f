"""Sizes worth capturing, and rounding up to them (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

ROWS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (256, 512, 1024, 2048)  # positions that attention looks at; a short context should not read the whole cache


def round_up(value: int, buckets: Sequence[int]) -> int | None:
    """The smallest bucket that holds `value`; None when it is larger than all."""
    at = bisect_left(buckets, value)
    return buckets[at] if at < len(buckets) else None
