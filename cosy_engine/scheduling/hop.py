"""How many blocks of speech tokens to wait for before the next chunk of a stream (pure, per stream)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HopPolicy:
    """One block of 25 tokens (1 s of speech) for the first sound, then longer hops while the listener has audio.

    growth: how many times as long the next hop is: what comes must be made while the one before it is heard.
    """

    first_blocks: int = 1
    largest_blocks: int = 4
    growth: int = 2

    def blocks(self, chunk: int) -> int:
        """Blocks to collect for chunk number `chunk` of a stream, counted from 0 for every stream anew."""
        return min(self.first_blocks * self.growth ** min(chunk, 16), self.largest_blocks)
