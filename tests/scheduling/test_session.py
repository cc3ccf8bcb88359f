"""One request through fake stages: whole and streamed audio, the guard, errors, cancelling."""

import gc
import itertools
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

from cosy_engine.errors import Busy, Cancelled, GenerationFailed, NotFinite
from cosy_engine.scheduling.guard import LOOP, Guard, SilenceLimiter
from cosy_engine.scheduling.hop import HopPolicy
from cosy_engine.scheduling.session import Session
from cosy_engine.scheduling.worker import Worker
from tests import fakes

SPEECH = [(7 * i * i + 3 * i) % 97 for i in range(140)]  # no period


@pytest.fixture
def worker():
    worker = Worker(slots=3, queue=4)
    yield worker
    worker.close()
    assert not worker._thread.is_alive()


def clock():
    return next(clock.ticks)


clock.ticks = itertools.count()


def run(worker, job, stages):
    session = Session(job, stages, clock)
    worker.submit(session)
    return session, list(session.audio())


def joined(chunks):
    return np.concatenate([chunk.samples for chunk in chunks])


def test_streamed_audio_equals_whole_audio_and_comes_in_growing_chunks(worker):
    _, whole = run(worker, fakes.job("a" * 50), fakes.stages(SPEECH))
    session, chunks = run(worker, fakes.job("a" * 50, stream=True), fakes.stages(SPEECH))
    assert len(whole) == 1 and len(whole[0].samples) == 960 * len(SPEECH)
    np.testing.assert_array_equal(joined(chunks), joined(whole))
    assert [round(len(c.samples) / 960) for c in chunks] == [25, 50, 65]
    assert len(chunks[0].samples) == 25 * 960 - 120  # the fade's 5 ms wait: they may be the end
    assert session.cost.tokens == len(SPEECH) and session.cost.retries == 0


def test_every_stream_starts_with_the_same_hop(worker):
    sizes = [len(run(worker, fakes.job("a" * 50, stream=True), fakes.stages(SPEECH))[1][0].samples) for _ in range(4)]
    assert len(set(sizes)) == 1
    assert [HopPolicy().blocks(i) for i in range(5)] == [1, 2, 4, 4, 4]


def test_segments_are_joined_by_their_pause_and_their_times_add_up(worker):
    session, chunks = run(worker, fakes.job("a" * 50, "b" * 50), fakes.stages(SPEECH))
    assert [c.segment for c in chunks] == [0, 0, 1]
    assert len(chunks[1].samples) == 2400 and not chunks[1].samples.any()
    first, second = session.cost.segments
    assert first["end_s"] == pytest.approx(5.6) and second["start_s"] == pytest.approx(5.7)


def test_a_loop_is_spoken_again_with_another_draw_and_reported(worker):
    stages = fakes.stages(SPEECH[:20] + list(range(12)) * 20, SPEECH)
    session, chunks = run(worker, fakes.job("a" * 50), stages)
    assert len(joined(chunks)) == 960 * len(SPEECH)
    assert session.cost.retries == 1 and "another draw" in session.cost.notes[0]
    first, second = (plan.uniforms for plan in stages.pool.plans)
    assert not np.array_equal(first, second)


def test_what_was_heard_already_is_cut_not_repeated(worker):
    looping = SPEECH[:60] + list(range(12)) * 20
    session, chunks = run(worker, fakes.job("a" * 50, stream=True), fakes.stages(looping))
    assert session.cost.retries == 0 and "cut" in session.cost.notes[0]
    assert 0 < len(joined(chunks)) < 960 * 160


def test_a_text_that_never_ends_is_cut_at_the_length_limit(worker):
    endless = [(13 * i * i + i) % 89 for i in range(3000)]
    session, chunks = run(worker, fakes.job("abcde"), fakes.stages(endless))
    assert session.cost.retries == 1 and len(joined(chunks)) == 960 * 100  # 20 tokens for each text id
    assert "cut" in session.cost.notes[-1]


def test_nothing_twice_is_an_error_that_names_the_segment(worker):
    with pytest.raises(GenerationFailed, match="segment 1"):
        run(worker, fakes.job("hello"), fakes.stages([]))


def test_same_seed_same_draws_and_other_seed_other_draws(worker):
    tables = []
    for seed in (7, 7, 8):
        stages = fakes.stages(SPEECH)
        run(worker, fakes.job("a" * 50, seed=seed), stages)
        tables.append(stages.pool.plans[0].uniforms)
    assert np.array_equal(tables[0], tables[1]) and not np.array_equal(tables[0], tables[2])


def test_an_error_reaches_its_own_user_only(worker):
    broken = Session(fakes.job("a" * 50), fakes.stages([*SPEECH[:30], RuntimeError("device lost")]), clock)
    fine = Session(fakes.job("b" * 50), fakes.stages(SPEECH), clock)
    worker.submit(broken)
    worker.submit(fine)
    with pytest.raises(GenerationFailed, match="RuntimeError"):
        list(broken.audio())
    assert len(joined(list(fine.audio()))) == 960 * len(SPEECH)


def test_two_interleaved_streams_equal_two_lone_ones(worker):
    scripts = SPEECH, SPEECH[::-1]
    alone = [joined(run(worker, fakes.job("a" * 50, stream=True), fakes.stages(s))[1]) for s in scripts]
    sessions = [Session(fakes.job("a" * 50, stream=True), fakes.stages(s), clock) for s in scripts]
    for session in sessions:
        worker.submit(session)
    for session, expected in zip(sessions, alone, strict=True):
        np.testing.assert_array_equal(joined(list(session.audio())), expected)


def test_a_closed_iterator_frees_the_slot_and_the_state(worker):
    session = Session(fakes.job(*["a" * 50] * 50, stream=True), fakes.stages(SPEECH), clock)
    worker.submit(session)
    audio = session.audio()
    next(audio)
    audio.close()
    session.finished.wait(5)
    assert worker.load() == (0, 0)
    ghost = weakref.ref(session)
    del session, audio
    gc.collect()
    assert ghost() is None


def test_a_full_queue_refuses_and_a_cancelled_place_is_freed():
    worker = Worker(slots=1, queue=1)
    gate = threading.Event()
    stages = fakes.stages(SPEECH)
    stages.pool.launch = lambda: gate.wait(5)
    try:
        first, second, third = (Session(fakes.job("a" * 50), stages, clock) for _ in range(3))
        worker.submit(first)
        first.started.wait(5)
        worker.submit(second)
        assert worker.position(second) == 1 and worker.position(first) == 0
        with pytest.raises(Busy, match="waiting"):
            worker.submit(third)
        second.cancel()
        first.cancel()
        gate.set()
        with pytest.raises(Cancelled):
            list(second.audio())
        with pytest.raises(Cancelled):
            list(first.audio())
    finally:
        gate.set()
        worker.close()


def test_loops_are_found_and_speech_is_not_one():
    guard = Guard()
    assert not guard.looping(SPEECH) and guard.verdict(SPEECH, True) is None
    for period in (1, 2, 11, 40):
        loop = (SPEECH[:period] * 100)[:120]
        assert guard.verdict(SPEECH[:30] + loop, True) == LOOP


def test_silence_is_limited_over_chunk_borders():
    limiter = SilenceLimiter(frozenset({1, 2}), 5)
    kept = [token for piece in ([1, 2, 1], [2, 1, 1, 2], [9, 1]) for token in limiter.keep(piece)]
    assert kept == [1, 2, 1, 2, 1, 9, 1]


def test_background_work_is_done_between_turns_and_harms_nobody_when_it_fails(worker):
    done = []

    def broken():
        raise RuntimeError("no memory for this graph")

    worker.add_chores([lambda: done.append(1), broken, lambda: done.append(2)])
    _, chunks = run(worker, fakes.job("a" * 50), fakes.stages(SPEECH))
    for _ in range(100):
        if not worker.chores_left:
            break
        threading.Event().wait(0.01)
    assert done == [1, 2] and worker.chores_total == 3
    assert len(joined(chunks)) == 960 * len(SPEECH)


def test_the_prompt_is_rendered_once_for_all_segments_of_a_stream(worker):
    stages = fakes.stages(SPEECH)
    _, chunks = run(worker, fakes.job("a" * 50, "b" * 50, "c" * 50, stream=True), stages)
    assert stages.flow.starts == 1 and {chunk.segment for chunk in chunks} == {0, 1, 2}


@pytest.mark.parametrize("stream", [False, True])
def test_broken_numbers_in_half_precision_are_answered_by_fp32_and_said(worker, stream):
    broken, exact = fakes.stages(SPEECH), fakes.stages(SPEECH)
    broken = replace(broken, precision="fp16", vocoder=fakes.BrokenVocoder())
    session = Session(fakes.job("a" * 50, stream=stream), broken, clock, full_precision=lambda: exact)
    worker.submit(session)
    assert len(joined(list(session.audio()))) == 960 * len(SPEECH)
    assert session.cost.retries == 1 and "fp32" in session.cost.notes[0] and session.ran_as == ("fp32", "eager")
    assert broken.pool.active == 0


def test_broken_numbers_in_fp32_are_an_error(worker):
    stages = replace(fakes.stages(SPEECH), vocoder=fakes.BrokenVocoder())
    with pytest.raises(NotFinite, match="no numbers"):
        run(worker, fakes.job("a" * 50), stages)
    assert stages.pool.active == 0
