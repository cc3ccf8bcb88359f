"""Whose turn it is, seen through the worker: slots between segments, clients in turn, chunks by deadline, waits that are told."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from cosy_engine.errors import Busy, Cancelled
from cosy_engine.scheduling import policy
from cosy_engine.scheduling.session import Session
from cosy_engine.scheduling.worker import Worker
from tests import fakes
from tests.scheduling.test_session import SPEECH


class GatedPool(fakes.FakePool):
    """Decodes nothing before it is told to, so that all requests are there first."""

    def __init__(self, *scripts):
        super().__init__(*scripts)
        self.gate = threading.Event()

    def launch(self):
        assert self.gate.wait(10)
        super().launch()


@pytest.fixture
def worker():
    worker = Worker(slots=1, queue=8)
    yield worker
    worker.close()


def session(*texts, stages, **options) -> Session:
    return Session(fakes.job(*texts, **options), stages, time.perf_counter)


def gated(script=SPEECH):
    pool = GatedPool(script)
    return replace(fakes.stages(script), pool=pool), pool


def watched(sessions, log):
    """Notes every segment of every session as it is given out."""
    for name, one in sessions.items():
        emit = one.emit

        def noted(samples, segment, name=name, emit=emit):
            if samples.any():
                log.append((name, segment))
            emit(samples, segment)

        one.emit = noted


def heard(sessions):
    return {name: sum(len(chunk.samples) for chunk in one.audio()) for name, one in sessions.items()}


def test_with_one_slot_a_word_waits_for_one_segment_of_a_book(worker):
    stages, pool = gated()
    book, log = session(*["a" * 50] * 6, stages=stages, client="reader"), []
    word = session("aaaa", stages=fakes.stages(SPEECH[:20]), client="caller")
    watched({"book": book, "word": word}, log)
    worker.submit(book)
    book.started.wait(5)
    worker.submit(word)
    assert worker.position(word) == 1 and worker.load() == (1, 1)
    pool.gate.set()
    heard({"word": word, "book": book})
    assert log == [("book", 0), ("word", 0), *(("book", i) for i in range(1, 6))]


def test_a_book_waits_for_one_word_at_a_time(worker):
    """Between two segments it is its client's turn again after each request of another client."""
    stages, pool = gated()
    book, log = session(*["a" * 50] * 3, stages=stages, client="reader"), []
    words = {f"word {i}": session("aaaa", stages=fakes.stages(SPEECH[:20]), client="caller") for i in range(3)}
    watched({"book": book} | words, log)
    worker.submit(book)
    book.started.wait(5)
    for word in words.values():
        worker.submit(word)
    pool.gate.set()
    heard({"book": book} | words)
    assert log == [("book", 0), ("word 0", 0), ("book", 1), ("word 1", 0), ("book", 2), ("word 2", 0)]


def test_one_slot_goes_round_over_clients_not_requests(worker):
    stages, pool = gated()
    first, log = session("a" * 50, stages=stages, client="many"), []
    many = {f"many {i}": session("aaaa", stages=fakes.stages(SPEECH[:20]), client="many") for i in range(4)}
    one = session("aaaa", stages=fakes.stages(SPEECH[:20]), client="one")
    watched(many | {"one": one}, log)
    worker.submit(first)
    first.started.wait(5)
    for request in (*many.values(), one):
        worker.submit(request)
    assert worker.position(one) == 1 and [worker.position(r) for r in many.values()] == [2, 3, 4, 5]
    pool.gate.set()
    heard({"first": first} | many | {"one": one})
    assert one.cost.queue_s >= first.cost.queue_s >= 0 and one.cost.queue_s < many["many 3"].cost.queue_s
    assert log[0] == ("one", 0) and [name for name, _ in log[1:]] == list(many)


def test_a_book_that_waits_for_its_slot_is_stopped_like_any_other(worker):
    stages, pool = gated()
    book = session(*["a" * 50] * 6, stages=stages, client="reader")
    slow, slow_pool = gated(SPEECH[:20])
    word = session("aaaa", stages=slow, client="caller")
    worker.submit(book)
    book.started.wait(5)
    worker.submit(word)
    pool.gate.set()
    word.started.wait(5)
    assert worker.position(book) == 0 and worker.load() == (2, 0)  # it has begun: no place in the queue
    book.cancel()
    slow_pool.gate.set()
    with pytest.raises(Cancelled):
        heard({"book": book})
    assert heard({"word": word})["word"] == 20 * 960 and worker.load() == (0, 0)


def test_many_streams_are_rendered_one_chunk_at_a_time_by_deadline():
    """All first chunks come before any second one, in order of arrival; a page's render waits for its length at most."""
    worker, log = Worker(slots=6, queue=0), []

    class SlowFlow(fakes.FakeFlow):
        def whole(self, *given, **options):
            time.sleep(0.004)
            return super().whole(*given, **options)

    stages, pool = gated()
    stages = replace(stages, flow=SlowFlow())
    streams = {f"stream {i}": session("a" * 50, stages=stages, stream=True) for i in range(6)}
    watched(streams, log)
    try:
        for stream in streams.values():
            worker.submit(stream)
        pool.gate.set()
        assert set(heard(streams).values()) == {140 * 960}
    finally:
        pool.gate.set()
        worker.close()
    assert [name for name, _ in log[:6]] == list(streams)


def test_a_stopped_stream_leaves_after_one_step_and_one_render():
    worker = Worker(slots=2, queue=0)
    renders = []

    class Counting(fakes.FakeFlow):
        def advance(self, state, tokens, *, final=False):
            renders.append(len(tokens))
            time.sleep(0.02)
            return super().advance(state, tokens, final=final)

    stages = replace(fakes.stages(SPEECH), flow=Counting())
    stream = session(*["a" * 50] * 9, stages=stages, stream=True)
    try:
        worker.submit(stream)
        audio = stream.audio()
        next(audio)
        before, steps = len(renders), worker.steps
        audio.close()
        assert stream.finished.wait(5)
        assert len(renders) <= before + 1 and worker.steps <= steps + 8  # two turns, four steps each beside a render
        assert worker.load() == (0, 0) and stages.pool.active == 0
    finally:
        worker.close()


def test_a_full_queue_says_how_long_by_what_was_measured():
    worker = Worker(slots=1, queue=1)
    try:
        measured = session("a" * 50, stages=fakes.stages(SPEECH))
        worker.submit(measured)
        heard({"measured": measured})
        worker.call(lambda: None)  # the turn that ended it has been counted
        worker._rate.made_s, worker._rate.busy_s = 10.0, 5.0  # 2 s of audio a second
        stages, pool = gated()
        running, waiting, third = (session("a" * 50, stages=stages) for _ in range(3))  # 10 s of reading each
        worker.submit(running)
        running.started.wait(5)
        worker.submit(waiting)
        assert worker.expected_wait_s(waiting) == pytest.approx(5.0, rel=0.02) and worker.expected_wait_s(running) == 0
        with pytest.raises(Busy, match=r"1 requests are waiting already: try again in about 10 s"):
            worker.submit(third)
        pool.gate.set()
        heard({"running": running, "waiting": waiting})
        assert worker.expected_wait_s(waiting) == 0
    finally:
        pool.gate.set()
        worker.close()


def test_the_rate_is_seconds_of_audio_in_a_second_of_work(worker):
    began = time.perf_counter()
    request = session("a" * 50, stages=fakes.stages(SPEECH))
    worker.submit(request)
    audio_s = heard({"": request})[""] / 24000
    worker.call(lambda: None)
    assert worker._rate.per_s >= 0.5 * audio_s / (time.perf_counter() - began)
    np.testing.assert_allclose(worker._rate.made_s, audio_s, rtol=0.1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failures", [(), (RuntimeError("no"),), (torch.OutOfMemoryError(),)])
def test_renderings_that_are_wanted_at_once_are_solved_together_or_else_alone(stream, failures):
    """What fails for two is made for each alone; every listener hears what a lone one does."""
    worker = Worker(slots=3, queue=0)
    try:
        lone = session("a" * 50, stages=fakes.stages(SPEECH), stream=stream)
        worker.submit(lone)
        expected = np.concatenate([chunk.samples for chunk in lone.audio()])
        flow, all_there = fakes.FakeGroupingFlow(*failures), threading.Event()
        stages = replace(fakes.stages(SPEECH), flow=flow)
        crowd = [session("a" * 50, stages=stages, stream=stream) for _ in range(3)]
        holder = threading.Thread(target=worker.call, args=(all_there.wait,))
        holder.start()
        for one in crowd:
            worker.submit(one)
        all_there.set()
        holder.join()
        for one in crowd:
            assert np.array_equal(np.concatenate([chunk.samples for chunk in one.audio()]), expected)
        together = [count for count in flow.solved if count > 1]
        assert together and set(together) == {2} and len(together) >= len(failures)
        assert worker.load() == (0, 0)
    finally:
        worker.close()


def test_a_first_sound_waits_for_one_piece_of_others_only():
    """Its tokens are decoded beside the piece that is being made, however many launches they take."""
    worker = Worker(slots=2, queue=0)
    try:
        stages = fakes.stages(SPEECH)
        may_launch, launch = threading.Semaphore(20), stages.pool.launch
        stages.pool.launch = lambda: may_launch.acquire(timeout=10) and launch()
        early, late = (session("a" * 50, stages=stages, stream=True) for _ in range(2))
        worker.submit(early)
        while worker.steps < 20:
            time.sleep(0.001)
        early.dry_s = time.perf_counter() + 60  # as if a minute of it had been heard and made
        pieces, step = [], worker._step

        def noted(one, news):
            if one is early and isinstance(worker._running[one].wants, policy.Piece):
                pieces.append(late.cost.samples)
            step(one, news)

        worker._step = noted
        worker.submit(late)
        may_launch.release(1000)
        assert len(next(late.audio()).samples)
        assert pieces.count(0) <= 2  # its state is made, and a chunk
        list(early.audio())
    finally:
        worker.close()
