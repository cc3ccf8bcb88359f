"""A fault in any stage, in the middle of a batch, ends the request that it belongs to; all others sound as they do alone."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from cosy_engine import Request, load
from cosy_engine.errors import CosyError, GenerationFailed, MemoryShort
from cosy_engine.scheduling import session as sessions
from tests.test_engine import WORDS, speechlike

STAGES = ("prefill", "decode", "flow", "vocoder", "finish")
GUILTY_SEED = 3


@pytest.fixture(scope="module")
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=4)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def voice(engine):
    return engine.voice(speechlike(4.0), WORDS)


@pytest.fixture(scope="module")
def requests(voice):
    """The guilty one is the second of four; whole and streamed, one and two segments."""
    texts = "One of them is here. " * 5, "Hello there.", "The guilty one speaks too.", "So be it, and so on."
    return [
        Request("saved_voice", text, voice, seed=seed, stream=bool(seed % 2), client=str(seed))
        for text, seed in zip(texts, (1, 2, GUILTY_SEED, 4), strict=True)
    ]


@pytest.fixture(scope="module")
def alone(engine, requests):
    return [engine.speak_all(request).samples for request in requests]


def spoken(engine, requests) -> list:
    """Samples of each, or its error; all at once, in order."""
    found: list = [None] * len(requests)

    def user(i, speech):
        try:
            found[i] = np.concatenate([chunk.samples for chunk in speech])
        except CosyError as error:
            found[i] = error

    started = [engine.speak(request) for request in requests]
    threads = [threading.Thread(target=user, args=(i, speech)) for i, speech in enumerate(started)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(speech._session.finished.wait(5) for speech in started)
    return found


class Fault:
    """Raises `error` in one stage, for the guilty request only, at most `times` times and not before call number `first`."""

    def __init__(self, engine, monkeypatch, stage, error, times=10**9, first=0):
        self.error, self.times, self.first, self.calls, self.raised = error, times, first, 0, 0
        stages = engine.shelf.at("fp32", "eager")
        self.draws = np.random.default_rng(sessions._seed(GUILTY_SEED, 0, 0)).random((1, 2), np.float32)[0]
        self.guilty = False  # whether the session that now runs on the worker is the guilty one
        step = engine.worker._step

        def watched(session, news):
            self.guilty = session.job.seed == GUILTY_SEED
            try:
                step(session, news)
            finally:
                self.guilty = False

        monkeypatch.setattr(engine.worker, "_step", watched)
        if stage == "prefill":
            self.around(monkeypatch, stages.lm, "prefill", lambda *_: self.guilty)
        elif stage == "decode":
            self.around(monkeypatch, stages.lm, "decode_step", self.decodes_the_guilty_row)
        elif stage == "finish":
            self.around(monkeypatch, sessions.Finish, "take", lambda *_: self.guilty)
        else:
            for name in ("whole", "advance"):
                self.around(monkeypatch, getattr(stages, stage), name, lambda *_: self.guilty)

    def decodes_the_guilty_row(self, state, *rest) -> bool:
        mine = (state.uniforms[:, 0] == torch.from_numpy(self.draws)).all(-1)
        return bool((mine & ~state.done).any())

    def around(self, monkeypatch, owner, name, concerns):
        plain = getattr(owner, name)

        def faulty(*given, **options):
            if concerns(*given):
                self.calls += 1
                if self.calls > self.first and self.raised < self.times:
                    self.raised += 1
                    raise self.error
            return plain(*given, **options)

        monkeypatch.setattr(owner, name, faulty)


def clean(engine) -> bool:
    pool = engine.shelf.at("fp32", "eager").pool
    return engine.worker.load() == (0, 0) and pool.active == 0 and sorted(pool._free) == list(range(len(pool._free)))


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_reaches_the_right_user_only(engine, requests, alone, monkeypatch, stage):
    threads = threading.active_count()
    fault = Fault(engine, monkeypatch, stage, RuntimeError("injected"), first=2 if stage == "decode" else 0)
    found = spoken(engine, requests)
    for request, expected, got in zip(requests, alone, found, strict=True):
        if request.seed == GUILTY_SEED:
            assert isinstance(got, GenerationFailed) and "RuntimeError" in str(got)
        else:
            np.testing.assert_array_equal(got, expected)
    assert fault.raised and clean(engine) and threading.active_count() == threads
    monkeypatch.undo()
    np.testing.assert_array_equal(spoken(engine, requests)[2], alone[2])  # the service lives on


def test_a_decode_batch_that_failed_once_harms_nobody(engine, requests, alone, monkeypatch):
    fault = Fault(engine, monkeypatch, "decode", RuntimeError("injected"), times=1, first=5)
    for expected, got in zip(alone, spoken(engine, requests), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert fault.raised == 1 and clean(engine)


@pytest.mark.parametrize(
    ("stage", "first", "times"),
    [
        ("prefill", 0, 2),
        ("decode", 0, 2),
        ("flow", 0, 2),
        ("vocoder", 0, 2),
        ("decode", 60, 1),
        ("flow", 2, 1),
        ("vocoder", 2, 1),
    ],
)
def test_memory_that_runs_out_for_a_moment_changes_no_sample(engine, requests, alone, monkeypatch, stage, first, times):
    """Twice in a row at the start: one that came later gives way, then the guilty one itself, and all are heard in full. Or
    once in a stream that is being heard already."""
    long = replace(requests[2], text="The guilty one speaks too. " * 4)
    requests, alone = [*requests[:2], long, requests[3]], [*alone[:2], engine.speak_all(long).samples, alone[3]]
    fault = Fault(engine, monkeypatch, stage, torch.OutOfMemoryError("injected"), times, first)
    for expected, got in zip(alone, spoken(engine, requests), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-3)  # a stream that gave way sees its blocks in other groups
    assert fault.raised == times and clean(engine)


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_request_too_large_for_the_memory_ends_alone_and_with_what_to_do(engine, requests, alone, monkeypatch, stage):
    Fault(engine, monkeypatch, stage, torch.OutOfMemoryError("injected"))
    found = spoken(engine, requests)
    for request, expected, got in zip(requests, alone, found, strict=True):
        if request.seed == GUILTY_SEED:
            assert isinstance(got, MemoryShort) and "shorten" in str(got)
        else:
            np.testing.assert_allclose(got, expected, atol=1e-3)
    assert clean(engine)
    monkeypatch.undo()
    assert len(spoken(engine, requests)[2]) == len(alone[2])


def test_who_gave_way_waits_for_a_slot_and_slots_come_back(engine, requests, monkeypatch):
    Fault(engine, monkeypatch, "flow", torch.OutOfMemoryError("injected"), times=2)
    rooms = []
    relieve = engine.worker._relieve
    monkeypatch.setattr(engine.worker, "_relieve", lambda: (relieve(), rooms.append(engine.worker._room)))
    spoken(engine, requests)
    assert min(rooms) < 4
    spoken(engine, requests)
    assert engine.worker._room == 4
