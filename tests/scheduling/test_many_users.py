"""Many users on one worker: all finish, short jobs get their turn, who leaves is forgotten, errors arrive at once."""

import gc
import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from cosy_engine.errors import GenerationFailed
from cosy_engine.scheduling.session import Session
from cosy_engine.scheduling.worker import Worker
from tests import fakes

SPEECH = np.random.default_rng(5).integers(10, 97, 140).tolist()


@pytest.fixture
def worker():
    worker = Worker(slots=3, queue=40)
    yield worker
    worker.close()


def session(job, stages=None, **options) -> Session:
    return Session(job, stages or fakes.stages(SPEECH), itertools.count().__next__, **options)


def samples_of(request) -> int:
    return sum(len(chunk.samples) for chunk in request.audio())


def test_five_users_with_twenty_short_jobs_each_all_finish(worker):
    """F03."""
    found: list[int] = []

    def user(stream: bool):
        for _ in range(20):
            request = session(fakes.job("a" * 50, stream=stream))
            worker.submit(request)
            found.append(samples_of(request))

    users = [threading.Thread(target=user, args=(i % 2 == 0,)) for i in range(5)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(30)
    assert found == [140 * 960] * 100


def test_fifty_listeners_who_leave_after_the_first_chunk_leave_nothing(worker):
    """F05, F06, D09: threads, sessions, rows and objects are what they were."""
    stages = fakes.stages(SPEECH)

    def leave() -> None:
        request = session(fakes.job(*["a" * 50] * 20, stream=True), stages)
        worker.submit(request)
        audio = request.audio()
        next(audio)
        began = time.monotonic()
        audio.close()
        assert request.finished.wait(5) and time.monotonic() - began < 1.0

    leave()
    gc.collect()
    threads, kept = threading.active_count(), sum(type(o) is Session for o in gc.get_objects())
    for _ in range(50):
        leave()
    gc.collect()
    assert threading.active_count() == threads and worker.load() == (0, 0) and stages.pool.active == 0
    assert sum(type(o) is Session for o in gc.get_objects()) <= max(1, kept)


def test_one_word_does_not_wait_for_a_book(worker):
    """F09: it comes while the first segments of a long job are spoken."""
    book = session(fakes.job(*["a" * 50] * 60))
    worker.submit(book)
    pages = book.audio()
    next(pages)
    word = session(fakes.job("aaaa"), fakes.stages(SPEECH[:20]))
    worker.submit(word)
    assert samples_of(word) == 20 * 960
    assert not book.finished.is_set()
    pages.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stage", ["flow", "vocoder", "pool"])
def test_an_error_in_any_stage_ends_the_stream_at_once(worker, stage, stream):
    """D09: others left the listener waiting for 50 minutes."""
    stages = fakes.stages(SPEECH)

    def broken(*args, **options):
        raise RuntimeError("out of memory")

    if stage == "pool":
        stages.pool.admit = broken
    else:
        part = type(getattr(stages, stage))()
        part.whole = part.advance = broken
        stages = replace(stages, **{stage: part})
    request = session(fakes.job("a" * 50, stream=stream), stages)
    worker.submit(request)
    began = time.monotonic()
    with pytest.raises(GenerationFailed, match="RuntimeError"):
        samples_of(request)
    assert time.monotonic() - began < 2.0 and worker.load() == (0, 0)


def test_every_call_to_the_device_comes_from_one_thread(worker):
    """E05: captured graphs fail in any other thread than their own."""
    seen = set()

    class Watching(fakes.FakeFlow):
        def whole(self, *args, **options):
            seen.add(threading.get_ident())
            return super().whole(*args, **options)

    worker.add_chores([lambda: seen.add(threading.get_ident())])

    def user():
        for stream in (False, True):
            request = session(fakes.job("a" * 50, stream=stream), replace(fakes.stages(SPEECH), flow=Watching()))
            worker.submit(request)
            samples_of(request)

    users = [threading.Thread(target=user) for _ in range(6)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(20)
    assert seen == {worker._thread.ident}


def test_a_unit_of_more_than_30_s_is_spoken_whole_in_a_row_of_its_own(worker):
    """E09: others end near 28 s without a word. What the shared batch has no room for gets its own."""
    long = np.random.default_rng(6).integers(10, 97, 900).tolist()
    stages = fakes.stages([])
    stages.pool.fits = lambda plan: False
    own = fakes.FakePool(long)
    stages = replace(stages, lone_pool=lambda plan: own)
    for stream in (False, True):
        request = session(fakes.job("a" * 120, stream=stream), stages)
        worker.submit(request)
        assert samples_of(request) == 900 * 960 and not request.cost.notes
    assert own.active == 0 and not stages.pool.plans


def test_a_new_job_follows_the_old_one_and_shares_no_sound_with_it(worker):
    """F12: three presses in a row give three sounds, each its own."""
    scripts = [SPEECH[:50], SPEECH[50:100], SPEECH[90:140]]
    requests = [session(fakes.job("a" * 20, stream=True), fakes.stages(script)) for script in scripts]
    for request in requests:
        worker.submit(request)
    for request, script in zip(requests, scripts, strict=True):
        audio = np.concatenate([chunk.samples for chunk in request.audio()])
        expected = np.repeat(np.array(script, np.float32) / 1000, 960)
        np.testing.assert_array_equal(audio[120:-120], expected[120:-120])
