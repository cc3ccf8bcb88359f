"""Runs variants of one request in turns: warm-ups are discarded, each round starts with another variant, so that a
machine that slows down slows all alike."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol

import numpy as np
import torch

from cosy_engine.bench import Bench, random_models
from cosy_engine.build import unavailable_here
from cosy_engine.compare.likeness import Likeness, forced_log_probs, likeness
from cosy_engine.engine import Engine
from cosy_engine.errors import Busy, Cancelled, CosyError, ModeUnavailable, SettingInvalid
from cosy_engine.health.measure import PeakMemory, copy_bandwidth, wait
from cosy_engine.scheduling.guard import Guard
from cosy_engine.scheduling.session import Job, SegmentJob, Session
from cosy_engine.scheduling.worker import Worker
from cosy_engine.settings.engine_config import PRECISIONS, TIERS
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.types import Request

STAGES = ("reference", "prefill", "decode", "flow", "vocoder", "other")  # other: checks, copies, waits between stages
FORCED_TOKENS = 32  # of the baseline, whose log-probabilities are compared
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


class Subject(Protocol):
    """What is compared: a model with its worker, and one job. unavailable: tier or precision -> why not here."""

    name: str
    spec: ModelSpec
    device: torch.device
    shelf: Any
    worker: Worker
    guard: Guard
    unavailable: dict[str, str]

    def job(self, stream: bool) -> Job:
        """The job, with everything before the model (text, reference) done anew."""
        ...

    def warming(self) -> bool:
        """Whether the worker still has work of its own."""
        ...

    def facts(self) -> dict[str, Any]:
        """What is asked of the model, without private words."""
        ...


class EngineSubject:
    """A request to a loaded engine. The seed is fixed once, so that all variants draw alike."""

    def __init__(self, engine: Engine, request: Request):
        """Raises: SettingInvalid: text that arrives in pieces cannot be spoken twice."""
        if not isinstance(request.text, str):
            raise SettingInvalid("text in pieces cannot be compared: give the whole text")
        seed = secrets.randbelow(2**31) if request.seed is None else request.seed
        self.request = replace(request, seed=seed, tier=None, precision=None)
        self.engine, self.name, self.spec = engine, engine.name, engine.spec
        self.shelf, self.worker, self.guard = engine.shelf, engine.worker, engine.guard
        self.device = engine.shelf.device
        self.unavailable = engine.unavailable

    def job(self, stream: bool) -> Job:
        self.engine.voices.forget()
        speed = 1.0 if stream else self.request.speed
        return self.engine.job(replace(self.request, stream=stream, speed=speed))[0]

    def warming(self) -> bool:
        done, total = self.engine.warm_up_progress()
        return done < total

    def facts(self) -> dict[str, Any]:
        text = self.request.text
        return {"mode": self.request.mode, "characters": len(text), "seed": self.request.seed}


class RandomSubject:
    """Random weights of a release's sizes on a worker of its own; a fixed number of tokens is spoken."""

    def __init__(self, name: str, spec: ModelSpec, device: torch.device, tokens: int = 125, seed: int = 1):
        models = random_models(spec, device)
        self._bench = Bench(spec, models, rows=[1])
        self.name, self.spec, self.device, self.tokens, self.seed = name, spec, device, tokens, seed
        self.shelf, self.guard = self._bench.shelf, Guard(noise_crossings=1.0)  # random weights make noise
        self.worker = Worker(slots=1, queue=1)
        self.unavailable = unavailable_here(device, spec.llm)

    def job(self, stream: bool) -> Job:
        segment = SegmentJob("random", (), tuple(self._bench.text), fixed_tokens=self.tokens)
        return Job((segment,), self._bench.voice, True, self.seed, self.spec.mel.rate_hz, stream=stream)

    def warming(self) -> bool:
        return self.worker.chores_left > 0

    def facts(self) -> dict[str, Any]:
        return {"mode": "fixed_tokens", "tokens": self.tokens, "reference_tokens": len(self._bench.voice.tokens)}

    def close(self) -> None:
        self.worker.close()


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


@dataclass(frozen=True)
class Step:
    """Progress. doing: "waiting", "capturing", "warming", "running", "judging" or "done"."""

    doing: str
    done: int
    total: int
    variant: Variant | None = None


class Comparison:
    """Iterate `steps()`; `outcomes` fill up meanwhile. `stop()` from any thread ends it after the step in progress."""

    def __init__(
        self,
        subject: Subject,
        variants: Sequence[Variant],
        *,
        baseline: Variant | None = None,
        runs: int = 3,
        warm_ups: int = 1,
        anyway: bool = False,
    ):
        """baseline: what the others are set against, by default the first; it is run in any case. anyway: also while
        others are being served.

        Raises: Busy: others are being served. ModeUnavailable: a variant cannot run here. SettingInvalid: none is given.
        """
        if not variants:
            raise SettingInvalid("nothing to compare: choose at least one variant")
        if runs < 1 or warm_ups < 0:
            raise SettingInvalid("choose at least one run, and no fewer than 0 warm-ups")
        self.baseline = baseline or variants[0]
        ordered = dict.fromkeys([self.baseline, *variants])
        for variant in ordered:
            for name in (variant.tier, variant.precision):
                if name in subject.unavailable:
                    raise ModeUnavailable(f"{variant.id} is not available here: {subject.unavailable[name]}")
        running, waiting = subject.worker.load()
        if running + waiting and not anyway:
            raise Busy(
                f"{running + waiting} requests are being served: the figures would not be this machine's own. "
                "Try again in a moment, or compare anyway"
            )
        self.subject, self.runs, self.warm_ups, self.anyway = subject, runs, warm_ups, anyway
        self.outcomes = {variant: Outcome(variant, rate_hz=subject.spec.mel.rate_hz) for variant in ordered}
        self.copy_bytes_s = 0.0
        self.stopped = threading.Event()
        self._session: Session | None = None
        self._clock = time.perf_counter

    def stop(self) -> None:
        self.stopped.set()
        if session := self._session:
            session.cancel()

    @property
    def finished(self) -> list[Outcome]:
        """Outcomes that have figures, in the order of the variants."""
        return [outcome for outcome in self.outcomes.values() if outcome.runs]

    def steps(self) -> Iterator[Step]:
        """Do the work, a piece between two items. An error of the request itself is raised, one of a variant is kept."""
        rounds = self.warm_ups + self.runs
        outcomes = list(self.outcomes.values())
        total, done = (rounds + 2) * len(outcomes), 0
        while self.subject.warming() and not self.stopped.is_set():
            yield Step("waiting", 0, total)
            time.sleep(0.2)
        self.copy_bytes_s = self.subject.worker.call(lambda: copy_bandwidth(self.subject.device))
        for outcome in outcomes:
            yield Step("capturing", done, total, outcome.variant)
            self._guarded(outcome, self._capture)
            done += 1
        for turn in range(rounds):
            for index in range(len(outcomes)):
                outcome = outcomes[(turn + index) % len(outcomes)]
                yield Step("running" if turn >= self.warm_ups else "warming", done, total, outcome.variant)
                self._guarded(outcome, self._run if turn >= self.warm_ups else self._warm)
                done += 1
        base = self.outcomes[self.baseline]
        for outcome in outcomes:
            yield Step("judging", done, total, outcome.variant)
            self._guarded(outcome, lambda outcome: self._judge(outcome, base))
            done += 1
        yield Step("done", total, total)

    def _guarded(self, outcome: Outcome, work: Callable[[Outcome], None]) -> None:
        """A variant that cannot run must not lose the others' figures; what the user got wrong is the user's to hear."""
        if self.stopped.is_set():
            raise Cancelled("stopped")
        if outcome.error:
            return
        try:
            work(outcome)
        except Cancelled:
            raise
        except Exception as error:
            if isinstance(error, CosyError) and error.code not in ("not_finite", "generation_failed"):
                raise
            words = str(error).splitlines()
            outcome.error = (
                words[0] if isinstance(error, CosyError) else f"{type(error).__name__}: {words[0] if words else ''}"
            )

    def _capture(self, outcome: Outcome) -> None:
        """Make the variant's stages and its graphs, once for each tier and precision."""
        variant, shelf = outcome.variant, self.subject.shelf
        began = self._clock()
        chores = self.subject.worker.call(lambda: list(shelf.chores(variant.precision, variant.tier)))
        if not shelf.captured(variant.precision, variant.tier):
            for chore in chores:
                if self.stopped.is_set():
                    raise Cancelled("stopped")
                self.subject.worker.call(chore)
        outcome.capture_s = self._clock() - began
        stages = shelf.at(variant.precision, variant.tier)
        weights = [p.numel() * p.element_size() for name, p in stages.lm.named_parameters() if "embed" not in name]
        outcome.floor_ms = 1000 * sum(weights) / self.copy_bytes_s
        if self.subject.device.type == "cuda":
            models = shelf.models(variant.precision)
            held = [p for net in (models.lm, models.flow, models.vocoder) for p in net.parameters()]
            cache = stages.pool.state.cache
            outcome.resting_bytes = sum(t.numel() * t.element_size() for t in (*held, cache.keys, cache.values))

    def _warm(self, outcome: Outcome) -> None:
        self._once(outcome)

    def _run(self, outcome: Outcome) -> None:
        outcome.runs.append(self._once(outcome))

    def _once(self, outcome: Outcome) -> Run:
        subject, variant = self.subject, outcome.variant
        disturbed = self._others()
        began = self._clock()
        job = subject.job(variant.stream)
        front_s = self._clock() - began
        memory = PeakMemory(subject.device)
        session = Session(
            job,
            subject.shelf.at(variant.precision, variant.tier),
            self._clock,
            subject.guard,
            settle=lambda: wait(subject.device),
        )
        self._session = session
        subject.worker.submit(session)
        if self.stopped.is_set():
            session.cancel()
        first_s, chunks = 0.0, []
        for chunk in session.audio():
            first_s = first_s or self._clock() - began
            chunks.append(chunk.samples)
        wall_s = self._clock() - began
        self._session = None
        outcome.samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        outcome.spoken = session.spoken
        spent = {"reference": front_s} | session.cost.stages_s
        stages = {stage: spent.get(stage, 0.0) for stage in STAGES}
        stages["other"] = max(0.0, wall_s - sum(spent.values()))
        return Run(
            first_s=first_s,
            wall_s=wall_s,
            audio_s=len(outcome.samples) / job.rate_hz,
            tokens=sum(map(len, session.spoken)),
            stages_s=stages,
            memory_bytes=memory.read(),
            retries=session.cost.retries,
            disturbed=disturbed or session.cost.rows > 1 or self._others(),
        )

    def _others(self) -> bool:
        return sum(self.subject.worker.load()) > 0

    def _judge(self, outcome: Outcome, base: Outcome) -> None:
        """Set an outcome against the baseline's. Log-probabilities are of the baseline's own tokens, so that one early
        difference does not hide the rest."""
        if not outcome.runs or not base.runs:
            return
        tokens = base.spoken[0][:FORCED_TOKENS] if base.spoken else []
        if tokens:
            for one in (base, outcome):
                if one.log_probs is None:
                    one.log_probs = self._log_probs(one.variant, tokens)
        outcome.likeness = likeness(outcome, base, self.subject.spec.mel)

    def _log_probs(self, variant: Variant, tokens: list[int]) -> torch.Tensor:
        for outcome in self.outcomes.values():  # streaming does not change the language model
            same = (outcome.variant.tier, outcome.variant.precision) == (variant.tier, variant.precision)
            if same and outcome.log_probs is not None:
                return outcome.log_probs
        stages = self.subject.shelf.at(variant.precision, variant.tier)
        job = self.subject.job(variant.stream)
        return self.subject.worker.call(lambda: forced_log_probs(stages, job, tokens))
