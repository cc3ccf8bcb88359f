"""Stages that run in microseconds and fulfil cosy_engine.stages; the scheduler's tests need no model."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from cosy_engine.llm.pool import RowPlan
from cosy_engine.scheduling.session import Job, SegmentJob
from cosy_engine.stages import Stages
from cosy_engine.types import Voice

SPEC = SimpleNamespace(
    speech_tokens=100, silent_ids=(), max_silent_run=5, min_ratio=2.0, max_ratio=20.0, eos_id=100, fill_id=101
)


class FakePool:
    """Speaks `scripts[i]` at the i-th admission (the last again afterwards); an Exception in a script is raised there.

    One id for every row at a launch. plans: what was admitted.
    """

    steps = 1

    def __init__(self, *scripts):
        self.scripts, self.plans, self.rows = scripts, [], {}
        self.sent = []

    @property
    def active(self):
        return len(self.rows)

    def fits(self, plan):
        return True

    def admit(self, plan):
        row = next(i for i in range(99) if i not in self.rows)
        self.rows[row] = [list(self.scripts[min(len(self.plans), len(self.scripts) - 1)]), 0, plan.max_tokens]
        self.plans.append(plan)
        return row

    def release(self, row):
        del self.rows[row]

    def launch(self):
        for state in self.rows.values():
            if state[1] < len(state[0]) and isinstance(state[0][state[1]], Exception):
                raise state[0][state[1]]
            state[1] += 1
        self.sent = list(self.rows)

    def collect(self):
        found = {}
        for row in self.sent:
            if row in self.rows:
                script, count, limit = self.rows[row]
                ended = count > len(script)
                tokens = script[: min(count, limit)]
                found[row] = SimpleNamespace(
                    tokens=tokens, done=ended or count >= limit, stop_id=100 if ended else -1, finite=True
                )
        return found


class FakeFlow:
    """Two frames a token, each holding the token's id."""

    spec = SimpleNamespace(block_tokens=25)

    def whole(self, tokens, prompts, *, streaming=False, finalize=True):
        return [row.float().repeat_interleave(2)[None].expand(80, -1) for row in tokens]

    starts = 0

    def start(self, prompt):
        self.starts += 1
        fresh = torch.zeros(0, dtype=torch.int64)
        return SimpleNamespace(waiting=fresh, fork=lambda: SimpleNamespace(waiting=fresh))

    def tokens_to_next(self, state):
        return 28 - len(state.waiting)

    def advance(self, state, tokens, *, final=False):
        state.waiting = torch.cat([state.waiting, tokens])
        ready = len(state.waiting) if final else max(0, len(state.waiting) - 3) // 25 * 25
        out, state.waiting = state.waiting[:ready], state.waiting[ready:]
        return self.whole([out], [None])[0]


class FakeGroupingFlow(FakeFlow):
    """Two at once, of any size. solved: how many orders each call had; failures: what the next calls with several raise."""

    def __init__(self, *failures):
        self.solved, self.failures = [], list(failures)

    def order(self, tokens, prompt, *, streaming=False, finalize=True):
        return SimpleNamespace(flow=self, size=100, tokens=tokens, mel=None)

    def next_order(self, state, tokens, *, final=False):
        state.order = self.order(tokens, None)
        return state.order

    def groups(self, size):
        return (2,)

    def solve(self, orders):
        self.solved.append(len(orders))
        if len(orders) > 1 and self.failures:
            raise self.failures.pop(0)
        for order in orders:
            order.mel = self.whole([order.tokens], [None])[0]


class FakeVocoder:
    """480 samples a frame."""

    def whole(self, mel, *, seed=0):
        return mel[0].repeat_interleave(480) / 1000

    def start(self, *, seed=0):
        return None

    def advance(self, state, mel, *, final=False):
        return self.whole(mel)


class BrokenVocoder(FakeVocoder):
    """Gives NaN."""

    def whole(self, mel, *, seed=0):
        return super().whole(mel) * torch.nan


def stages(*scripts) -> Stages:
    return Stages(
        lm=SimpleNamespace(device=torch.device("cpu"), spec=SPEC),
        pool=FakePool(*scripts),
        lone_pool=lambda plan: FakePool(*scripts),
        plan=RowPlan,
        flow=FakeFlow(),
        vocoder=FakeVocoder(),
        bistream=None,
        stretch=lambda mel, speed: mel[:, : int(mel.shape[1] / speed)],
    )


def job(*texts: str, **options) -> Job:
    voice = Voice(torch.arange(30), torch.zeros(60, 80), torch.zeros(192), "words")
    segments = tuple(SegmentJob(text, (1, 2), tuple(range(len(text))), len(text), 0.1) for text in texts)
    defaults = {"llm_hears_reference": True, "seed": 7, "rate_hz": 24000}
    return Job(segments, voice, **(defaults | options))
