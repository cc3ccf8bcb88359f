"""Runs variants of one request in turns: warm-ups are discarded, each round starts with another variant, so that a
machine that slows down slows all alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cosy_engine.compare.likeness import forced_log_probs, likeness
from cosy_engine.compare.outcome import STAGES, Outcome, Run, Variant
from cosy_engine.compare.subjects import Subject
from cosy_engine.errors import Busy, Cancelled, CosyError, ModeUnavailable, SettingInvalid
from cosy_engine.health.measure import PeakMemory, copy_bandwidth, wait
from cosy_engine.scheduling.session import Session

FORCED_TOKENS = 32  # of the baseline, whose log-probabilities are compared


@dataclass(frozen=True)
class Step:
    """Progress. doing: "waiting", "capturing", "warming", "running", "judging" or "done". turn: which warm-up or run of
    the variant it is, from 1; 0 in the other steps."""

    doing: str
    done: int
    total: int
    variant: Variant | None = None
    turn: int = 0


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
                if turn < self.warm_ups:
                    yield Step("warming", done, total, outcome.variant, turn + 1)
                    self._guarded(outcome, self._warm)
                else:
                    yield Step("running", done, total, outcome.variant, turn - self.warm_ups + 1)
                    self._guarded(outcome, self._run)
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
