"""What a variant is, and what its runs gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import torch

from cosy_engine.compare.likeness import Likeness
from cosy_engine.errors import SettingInvalid
from cosy_engine.settings.engine_config import PRECISIONS, TIERS

STAGES = ("reference", "prefill", "decode", "flow", "vocoder", "other")  # other: checks, copies, waits between stages
Spread = tuple[float, float]  # median, largest minus smallest


@dataclass(frozen=True)
class Variant:
    """One way to run a request."""

    tier: str
    precision: str
    stream: bool = False

    @property
    def id(self) -> str:
        return f"{self.tier}-{self.precision}-{'stream' if self.stream else 'whole'}"

    @classmethod
    def parse(cls, text: str) -> Variant:
        """From an id; "-whole" may be left out.

        Raises: SettingInvalid: no such variant.
        """
        parts = text.strip().split("-")
        tier, precision, how = parts if len(parts) == 3 else [*parts, "whole"] if len(parts) == 2 else ("", "", "")
        if tier not in TIERS or precision not in PRECISIONS or how not in ("whole", "stream"):
            raise SettingInvalid(
                f"unknown variant {text!r}: write tier-precision or tier-precision-stream, for example graph-fp16-stream "
                f"(tiers: {', '.join(TIERS)}; precisions: {', '.join(PRECISIONS)})"
            )
        return cls(tier, precision, how == "stream")


ALL_VARIANTS = tuple(Variant(t, p, s) for s in (False, True) for t in TIERS for p in PRECISIONS)


@dataclass(frozen=True, eq=False)
class Run:
    """One run. first_s, wall_s: from request in to first and last sample out, reference included. stages_s: by STAGES;
    in streaming decode is what rendering had to wait for, because both run side by side. memory_bytes: see PeakMemory.
    disturbed: others were served meanwhile."""

    first_s: float
    wall_s: float
    audio_s: float
    tokens: int
    stages_s: dict[str, float]
    memory_bytes: int | None
    retries: int
    disturbed: bool


@dataclass(eq=False)
class Outcome:
    """A variant's runs and its sound. error: why it has none or no more. spoken: ids of the last run, segment by segment.
    floor_ms: time to read the weights of a decode step once. capture_s: warming up before the first run."""

    variant: Variant
    runs: list[Run] = field(default_factory=list)
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    rate_hz: int = 24000
    spoken: list[list[int]] = field(default_factory=list)
    floor_ms: float = 0.0
    resting_bytes: int = 0
    capture_s: float = 0.0
    log_probs: torch.Tensor | None = None
    likeness: Likeness | None = None
    error: str = ""

    def of(self, figure: Callable[[Run], float]) -> Spread:
        """Median and spread of a figure over the runs."""
        values = [figure(run) for run in self.runs]
        return median(values), max(values) - min(values)

    @property
    def first_ms(self) -> Spread:
        return self.of(lambda run: 1000 * run.first_s)

    @property
    def rtf(self) -> Spread:
        return self.of(lambda run: run.wall_s / run.audio_s if run.audio_s else 0.0)

    @property
    def token_ms(self) -> Spread | None:
        """Milliseconds of a token; None where nothing was decoded."""
        if not self.runs[-1].tokens:
            return None
        return self.of(lambda run: 1000 * run.stages_s["decode"] / run.tokens)

    @property
    def floor_ratio(self) -> float | None:
        """A token's time over the floor; None in streaming, where decoding hides behind rendering."""
        if self.variant.stream or not self.floor_ms or self.token_ms is None:
            return None
        return self.token_ms[0] / self.floor_ms

    @property
    def memory_gb(self) -> float | None:
        """Weights, cache and the most that a run took besides; on a CPU the peak of the whole process."""
        taken = [run.memory_bytes for run in self.runs if run.memory_bytes is not None]
        return (self.resting_bytes + max(taken)) / 1e9 if taken else None

    def stages_ms(self) -> dict[str, float]:
        return {stage: self.of(lambda run, stage=stage: 1000 * run.stages_s[stage])[0] for stage in STAGES}
