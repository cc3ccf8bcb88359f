"""What can be compared: a request to a loaded engine, or random weights of a release's sizes."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, Protocol

import torch

from cosy_engine.bench import Bench, random_models
from cosy_engine.build import unavailable_here
from cosy_engine.engine import Engine
from cosy_engine.errors import SettingInvalid
from cosy_engine.scheduling.guard import Guard
from cosy_engine.scheduling.session import Job, SegmentJob
from cosy_engine.scheduling.worker import Worker
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.types import Request


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
