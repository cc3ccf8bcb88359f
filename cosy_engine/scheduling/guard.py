"""Cheap signs that generated tokens, or the sound made of them, are not speech of the given text (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cosy_engine.scheduling.finish import Heard

EMPTY, LOOP, TOO_LONG, TOO_SHORT, SILENT, NOISE = "empty", "loop", "too_long", "too_short", "silent", "noise"


@dataclass(frozen=True)
class Guard:
    """Thresholds with their reasons.

    loop_tokens: 3 s at 25 tokens/s; speech does not repeat itself almost exactly for that long.
    loop_periods: a loop has a period of up to 2 s; shorter than the sampler's window of 10 cannot survive its redraw,
        except for silence.
    look_every: tokens between two looks for a loop; a look takes the host 20 us for each row.
    loop_match: share of tokens equal to those one period earlier.
    short_ratio: tokens for a text id. Fast readers of any language stay above 2.5, and releases forbid an end before 2.
    spoken_ratio: the same without silent tokens, of which a short reading with pauses may be half.
    long_ratio, long_base: tokens for a text id, and to begin with, after which a reading is no reading: three times the
        usual 5, so that slow speech passes. Releases allow 20, which is minutes of murmur for a long segment.
    silent_s: a syllable lasts 0.1 s; less sound than that is none.
    noise_crossings: share of neighbouring samples with another sign. Speech has about 0.1 over a segment and white noise
        0.5; a segment of hissing consonants only does not exist.
    noise_rails: share of samples at the vocoder's limit. Loud speech touches it in single samples.
    """

    loop_tokens: int = 75
    longest_period: int = 50
    look_every: int = 5
    loop_match: float = 0.9
    short_ratio: float = 1.5
    spoken_ratio: float = 0.75
    long_ratio: float = 15.0
    long_base: int = 50
    silent_s: float = 0.1
    noise_crossings: float = 0.35
    noise_rails: float = 0.02

    def looping(self, tokens: Sequence[int]) -> bool:
        """Whether the last `loop_tokens` tokens repeat with one period."""
        tail = tokens[-self.loop_tokens :]
        if len(tail) < self.loop_tokens:
            return False
        pairs: Counter[int] = Counter()  # period -> tokens equal to the one that long before
        places: dict[int, list[int]] = {}
        for at, token in enumerate(tail):
            before = places.setdefault(token, [])
            for earlier in before:
                pairs[at - earlier] += 1
            before.append(at)
        return any(pairs[p] >= self.loop_match * (len(tail) - p) for p in range(1, self.longest_period + 1))

    def first_fault(self, tokens: list[int], seen: int, text_ids: int) -> tuple[list[int], str | None]:
        """What is wrong with tokens that still come, `seen` of which were looked at before, and the tokens up to there. It
        does not depend on how many come at once."""
        for count in range(seen + 1, len(tokens) + 1):
            if count % self.look_every == 0 and self.looping(tokens[:count]):
                return tokens[:count], LOOP
            if self.endless(count, text_ids):
                return tokens[:count], TOO_LONG
        return tokens, None

    def endless(self, count: int, text_ids: int) -> bool:
        """Whether `count` tokens are too many for a text of `text_ids` ids."""
        return count > self.long_base + self.long_ratio * text_ids

    def verdict(
        self, tokens: Sequence[int], ended: bool, text_ids: int = 0, silent_ids: Collection[int] = ()
    ) -> str | None:
        """None when nothing is wrong. ended: the model gave its end mark (else the length limit cut it)."""
        if not tokens:
            return EMPTY
        if self.looping(tokens):
            return LOOP
        if not ended:
            return TOO_LONG
        spoken = sum(token not in silent_ids for token in tokens)
        short = len(tokens) < self.short_ratio * text_ids or spoken < self.spoken_ratio * text_ids
        return TOO_SHORT if short else None

    def sound(self, heard: Heard, rate_hz: int) -> str | None:
        """The same for the finished sound of a segment."""
        if heard.loud < self.silent_s * rate_hz:
            return SILENT
        if heard.crossings > self.noise_crossings * heard.loud or heard.rails > self.noise_rails * heard.samples:
            return NOISE
        return None


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
