"""Who comes next (pure: no torch, no clock, no threads)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def next_in_queue(waiting: Sequence[str], running: Sequence[str]) -> int:
    """Index of the waiting request that gets a free slot.

    Fair over clients, not over requests: whoever has the fewest running goes first, in order of arrival among equals. So one
    client with a hundred requests delays another's only request by one slot at most. Requests without a client name
    share the name "".
    """
    busy = Counter(running)
    return min(range(len(waiting)), key=lambda i: (busy[waiting[i]], i))
