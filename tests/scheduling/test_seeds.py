"""A request's draws are its own: whoever comes beside it, before it or leaves, its samples are those of its lone run."""

import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosy_engine import Request, load
from cosy_engine.errors import Cancelled
from tests.test_engine import WORDS, speechlike

TEXTS = ("Hi.", "It is so.", "Hello there, this is a test.", "One is here. And another one is here, too.")


@pytest.fixture(scope="module")
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=3, max_batch=2)  # one more slot than rows: some wait for a row
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def voices(engine):
    return [engine.voice(speechlike(2.0 + i, pitch_hz=120.0 + 60 * i), WORDS) for i in range(2)]


@pytest.fixture(scope="module")
def alone(engine, voices):
    """Samples of a lone run of (text, voice, seed, stream), made once."""
    known = {}

    def samples(*what):
        if what not in known:
            known[what] = engine.speak_all(asked(voices, *what)).samples
        return known[what]

    return samples


def asked(voices, text, voice, seed, stream, client="") -> Request:
    return Request("saved_voice", TEXTS[text], voices[voice], seed=seed, stream=stream, client=client)


ONE = st.fixed_dictionaries(
    {
        "what": st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.booleans()),
        "client": st.sampled_from("abc"),
        "after_s": st.sampled_from([0.0, 0.0, 0.01, 0.05]),
        "leaves_after": st.sampled_from([None, None, 0, 1]),  # chunks
    }
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(ONE, min_size=2, max_size=6))
def test_arrivals_and_stops_of_others_change_no_sample(engine, voices, alone, plan):
    expected = [alone(*one["what"]) for one in plan]
    found: list = [None] * len(plan)

    def user(i, one):
        speech = engine.speak(asked(voices, *one["what"], one["client"]))
        chunks = []
        try:
            while one["leaves_after"] is None or len(chunks) < one["leaves_after"]:
                chunks.append(next(speech).samples)
            speech.close()
        except (StopIteration, Cancelled):
            pass
        found[i] = np.concatenate([np.zeros(0, np.float32), *chunks])
        assert speech._session.finished.wait(20)

    threads = []
    for i, one in enumerate(plan):
        time.sleep(one["after_s"])
        threads.append(threading.Thread(target=user, args=(i, one)))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    for one, whole, got in zip(plan, expected, found, strict=True):
        np.testing.assert_array_equal(got, whole if one["leaves_after"] is None else whole[: len(got)])
    pool = engine.shelf.at("fp32", "eager").pool
    assert engine.worker.load() == (0, 0) and pool.active == 0


def test_the_first_run_equals_later_ones(miniature_folder):
    """Also the very first of a process: nothing is warmed up by it."""
    runs = []
    for _ in range(2):
        fresh = load(miniature_folder, device="cpu", slots=1)
        voice = fresh.voice(speechlike(3.0), WORDS)
        runs += [
            fresh.speak_all(Request("saved_voice", TEXTS[2], voice, seed=4, stream=True)).samples for _ in range(3)
        ]
        fresh.close()
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


def test_sixteen_users_at_once_are_all_served_as_alone(engine, voices, alone):
    """None starves: first requests go before second ones."""
    what = [(i % 4, i % 2, i % 3, i % 2 == 0) for i in range(16)]
    expected = [alone(*one) for one in what]
    order: list[str] = []
    found: list = [None] * 16

    def user(i):
        for turn in range(2):
            samples = engine.speak_all(asked(voices, *what[i], f"user {i}")).samples
            order.append(f"{i} {turn}")
            found[i] = samples

    threads = [threading.Thread(target=user, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for whole, got in zip(expected, found, strict=True):
        np.testing.assert_array_equal(got, whole)
    last_first = max(order.index(f"{i} 0") for i in range(16))
    assert last_first < 24  # all firsts would be 16; some seconds come before the last first is noticed by its thread
