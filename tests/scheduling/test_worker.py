"""The worker outlives whatever a request does to it, and nobody waits for a dead one."""

import threading
import time
from contextlib import contextmanager

import pytest

from cosy_engine.errors import Busy, CosyError, GenerationFailed
from cosy_engine.scheduling.session import Session
from cosy_engine.scheduling.worker import Worker
from tests import fakes
from tests.scheduling.test_session import SPEECH


@pytest.fixture
def worker():
    worker = Worker(slots=2, queue=0)
    yield worker
    worker.close()


def session(stages=None):
    return Session(fakes.job("a" * 50), stages or fakes.stages(SPEECH), time.perf_counter)


def seconds_of(request):
    return sum(len(chunk.samples) for chunk in request.audio()) / 24000


def test_an_error_while_a_request_is_put_away_ends_that_request_only(worker):
    stages = fakes.stages([*SPEECH[:30], RuntimeError("device lost")])
    stages.pool.release = lambda row: 1 / 0
    broken, fine = session(stages), session()
    worker.submit(broken)
    worker.submit(fine)
    with pytest.raises(GenerationFailed):
        list(broken.audio())
    assert seconds_of(fine) > 5
    later = session()
    worker.submit(later)
    assert seconds_of(later) > 5 and worker.load() == (0, 0)


def test_a_library_that_wants_to_exit_ends_its_request_only(worker):
    broken = session(fakes.stages(SPEECH))
    broken.stages.vocoder.whole = lambda mel, seed=0: (_ for _ in ()).throw(SystemExit(3))
    worker.submit(broken)
    with pytest.raises(GenerationFailed, match="SystemExit"):
        list(broken.audio())
    fine = session()
    worker.submit(fine)
    assert seconds_of(fine) > 5


def test_a_broken_worker_fails_everyone_and_takes_no_more(worker, monkeypatch):
    def broken(ready):
        raise MemoryError

    monkeypatch.setattr(worker, "_turn", broken)
    lost = session()
    worker.submit(lost)
    with pytest.raises(CosyError, match="start the program again"):
        list(lost.audio())
    worker._thread.join(5)
    with pytest.raises(Busy):
        worker.submit(session())


def test_free_slots_count_before_the_queue_is_called_full(worker):
    requests = [session(), session()]
    for request in requests:
        worker.submit(request)  # a queue of 0 places, two free slots
    assert all(seconds_of(request) > 5 for request in requests)


def test_the_worker_counts_rows_and_steps(worker):
    stages, seen = fakes.stages(SPEECH), []
    advance = stages.flow.advance
    stages.flow.advance = lambda *given, **more: seen.append(worker.rows()) or advance(*given, **more)
    request = Session(fakes.job("a" * 50, stream=True), stages, time.perf_counter)
    worker.submit(request)
    assert seconds_of(request) > 5
    assert seen[0] == 1 and worker.rows() == 0  # a chunk is rendered while its row is still being decoded
    assert worker.steps >= len(SPEECH) and request.spoken == [SPEECH]


def test_work_for_the_device_is_done_on_its_thread_and_its_error_comes_back(worker):
    assert worker.call(lambda: threading.current_thread().name) == "cosy-worker" != threading.current_thread().name
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 / 0)
    request = session()
    worker.submit(request)
    assert worker.call(lambda: 5) == 5 and worker.chores_total == 0
    assert seconds_of(request) > 5
    worker.close()
    with pytest.raises(Busy):
        worker.call(lambda: 5)


def test_all_of_the_workers_work_is_done_inside_its_context():
    """E08: a thread begins with the first GPU as the current one, whichever was chosen."""
    entered = []

    @contextmanager
    def device():
        entered.append(threading.get_ident())
        yield
        entered.append("left")

    worker = Worker(slots=1, queue=0, inside=device)
    assert worker.call(lambda: threading.get_ident()) == entered[0] != threading.get_ident()
    worker.close()
    assert entered[1:] == ["left"]
