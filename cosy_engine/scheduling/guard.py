"""Cheap signs that a generated token sequence is not speech of the given text (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EMPTY, LOOP, TOO_LONG = "empty", "loop", "too_long"


@dataclass(frozen=True)
class Guard:
    """Thresholds with their reasons.

    loop_tokens: 3 s at 25 tokens/s; speech does not repeat itself almost exactly for that long.
    loop_periods: a loop has a period of up to 2 s; shorter than the sampler's window of 10 cannot survive its redraw,
        except for silence.
    loop_match: share of tokens equal to those one period earlier.
    """

    loop_tokens: int = 75
    longest_period: int = 50
    loop_match: float = 0.9

    def looping(self, tokens: Sequence[int]) -> bool:
        """Whether the last `loop_tokens` tokens repeat with one period."""
        tail = list(tokens[-self.loop_tokens :])
        if len(tail) < self.loop_tokens:
            return False
        return any(self._match(tail, period) >= self.loop_match for period in range(1, self.longest_period + 1))

    @staticmethod
    def _match(tail: list[int], period: int) -> float:
        pairs = len(tail) - period
        return sum(a == b for a, b in zip(tail, tail[period:], strict=False)) / pairs

    def verdict(self, tokens: Sequence[int], ended: bool) -> str | None:
        """None when nothing is wrong. ended: the model gave its end mark (else the length limit cut it)."""
        if not tokens:
            return EMPTY
        if self.looping(tokens):
            return LOOP
        return None if ended else TOO_LONG


@dataclass(slots=True)
class SilenceLimiter:
    """Drops silent tokens beyond a run of `max_run`; v3 only, the set is empty in v2. The LLM keeps its own context."""

    silent_ids: frozenset[int]
    max_run: int
    run: int = 0

    def keep(self, tokens: Sequence[int]) -> list[int]:
        kept = []
        for token in tokens:
            self.run = self.run + 1 if token in self.silent_ids else 0
            if self.run <= self.max_run:
                kept.append(token)
        return kept
