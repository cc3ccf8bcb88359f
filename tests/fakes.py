"""Stages that run in microseconds and fulfil cosy_engine.stages; the scheduler's tests need no model."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from cosy_engine.scheduling.session import Job, SegmentJob
from cosy_engine.stages import Stages
from cosy_engine.types import Voice


@dataclass
class FakeState:
    script: list[int]
    limit: int
    uniforms: torch.Tensor
    count: int = 0
    min_tokens: list = field(default_factory=lambda: [0])
    max_tokens: list = field(default_factory=lambda: [0])
    forbid_early: torch.Tensor = field(default_factory=lambda: torch.zeros(1, 200, dtype=torch.bool))


class FakeLM:
    """Speaks `scripts[i]` at the i-th attempt (the last again afterwards); an Exception in a script is raised there."""

    device = torch.device("cpu")
    spec = SimpleNamespace(
        speech_tokens=100, silent_ids=(), max_silent_run=5, min_ratio=2.0, max_ratio=20.0, eos_id=100, fill_id=101
    )

    def __init__(self, *scripts):
        self.scripts, self.attempts = scripts, 0
        self.tables = []
        self.alive = 0

    def prompt(self, text_ids, speech_ids):
        return torch.zeros(1 + len(text_ids) + len(speech_ids), 4)

    def start(self, rows, positions, draws):
        script = self.scripts[min(self.attempts, len(self.scripts) - 1)]
        self.attempts += 1
        return FakeState(list(script), draws, torch.zeros(1, draws, 2))

    def prefill(self, state, row, inputs, sampler=None):
        self.tables.append(state.uniforms.clone())
        self.decode_step(state)

    def decode_step(self, state, sampler=None):
        if state.count < len(state.script) and isinstance(state.script[state.count], Exception):
            raise state.script[state.count]
        state.count += 1

    def read(self, state, row):
        limit = min(state.count, state.limit)
        tokens = state.script[:limit]
        ended = state.count > len(state.script)
        return SimpleNamespace(
            tokens=tokens, done=ended or limit >= state.limit, stop_id=100 if ended else -1, finite=True
        )


class FakeFlow:
    """Two frames a token, each holding the token's id."""

    spec = SimpleNamespace(block_tokens=25)

    def whole(self, tokens, prompts, *, streaming=False, finalize=True):
        return [row.float().repeat_interleave(2)[None].expand(80, -1) for row in tokens]

    def start(self, prompt):
        return SimpleNamespace(waiting=torch.zeros(0, dtype=torch.int64))

    def tokens_to_next(self, state):
        return 28 - len(state.waiting)

    def advance(self, state, tokens, *, final=False):
        state.waiting = torch.cat([state.waiting, tokens])
        ready = len(state.waiting) if final else max(0, len(state.waiting) - 3) // 25 * 25
        out, state.waiting = state.waiting[:ready], state.waiting[ready:]
        return self.whole([out], [None])[0]


class FakeVocoder:
    """480 samples a frame."""

    def whole(self, mel, *, seed=0):
        return mel[0].repeat_interleave(480) / 1000

    def start(self, *, seed=0):
        return None

    def advance(self, state, mel, *, final=False):
        return self.whole(mel)


def stages(*scripts) -> Stages:
    return Stages(
        FakeLM(*scripts), FakeFlow(), FakeVocoder(), None, lambda mel, speed: mel[:, : int(mel.shape[1] / speed)]
    )


def job(*texts: str, **options) -> Job:
    voice = Voice(torch.arange(30), torch.zeros(60, 80), torch.zeros(192), "words")
    segments = tuple(SegmentJob(text, (1, 2), tuple(range(len(text))), len(text), 0.1) for text in texts)
    defaults = {"llm_hears_reference": True, "seed": 7, "rate_hz": 24000, "samples_per_token": 960}
    return Job(segments, voice, **(defaults | options))
