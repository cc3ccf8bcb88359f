"""G05: an engine that nobody uses gives its memory back when asked to, and the next request loads the model again and says so."""

import threading
import time
import weakref

import numpy as np
import pytest

from cosy_engine import Request, load
from cosy_engine.errors import ModelFilesError, SettingInvalid
from cosy_engine.scheduling.worker import Worker
from cosy_engine.settings.engine_config import EngineConfig
from tests import fakes
from tests.scheduling.test_guard import run

RATE = 24000
VOICE = (RATE, (0.2 * np.sin(np.arange(2 * RATE) * 0.05) * np.sin(np.arange(2 * RATE) * 0.0008)).astype(np.float32))
REQUEST = Request(mode="cross_lingual", text="Hello.", reference=VOICE, seed=3)


def until(true, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


@pytest.fixture
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=1, unload_after_s=1)
    yield engine
    engine.close()


def test_an_idle_engine_gives_its_memory_back_and_loads_again_for_the_next_request(engine):
    speech = engine.speak(REQUEST)  # kept, as a page keeps it
    before = np.concatenate([chunk.samples for chunk in speech])
    models, pool = engine.shelf.models("fp32"), engine.shelf.at("fp32", engine.tier).pool
    networks = [weakref.ref(part) for part in (models.lm, models.flow, models.vocoder, pool)]
    del models, pool
    assert until(lambda: engine.shelf.unloaded)
    assert until(lambda: not any(ref() for ref in networks))
    again = engine.speak_all(REQUEST)
    np.testing.assert_array_equal(again.samples, before)
    assert again.report.stages_s["load"] > 0 and again.report.first_audio_s >= again.report.stages_s["load"]
    assert any("loaded again in" in note for note in again.report.notes)
    assert speech.report.precision == "fp32" and "load" not in speech.report.stages_s
    assert not any("loaded again" in note for note in engine.speak_all(REQUEST).report.notes)
    assert until(lambda: engine.shelf.unloaded)  # and so on


def test_a_request_that_waits_for_its_text_keeps_the_model(engine):
    go_on = threading.Event()

    def pieces():
        yield "Hello "
        go_on.wait(30)
        yield "there."

    speech = engine.speak(Request(mode="cross_lingual", text=pieces(), reference=VOICE, seed=3))
    assert not until(lambda: engine.shelf.unloaded, 2.5)
    go_on.set()
    assert sum(len(chunk.samples) for chunk in speech)


def test_a_model_that_cannot_be_loaded_again_fails_its_request_alone(engine, monkeypatch):
    assert until(lambda: engine.shelf.unloaded)
    read = engine.shelf._again

    def gone():
        raise ModelFilesError("llm.pt is missing")

    monkeypatch.setattr(engine.shelf, "_again", gone)
    with pytest.raises(ModelFilesError, match=r"llm\.pt"):
        engine.speak(REQUEST)
    monkeypatch.setattr(engine.shelf, "_again", read)
    assert len(engine.speak_all(REQUEST).samples) and not engine.loading


def test_requests_at_once_load_the_model_once(engine, monkeypatch):
    assert until(lambda: engine.shelf.unloaded)
    read, times = engine.shelf._again, []
    monkeypatch.setattr(engine.shelf, "_again", lambda: (times.append(1), time.sleep(0.3), read())[2])
    found = []
    threads = [threading.Thread(target=lambda: found.append(engine.speak_all(REQUEST).samples)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 1 and len(found) == 3
    assert all(np.array_equal(one, found[0]) for one in found)


def test_resting_comes_once_after_each_use_and_never_during_one():
    rests = []
    worker = Worker(slots=1, queue=4, idle_s=0.1, on_idle=lambda: rests.append(worker.load()))
    try:
        assert until(lambda: len(rests) == 1, 5)
        time.sleep(0.4)
        assert len(rests) == 1
        run(worker, fakes.job("a" * 20), fakes.stages(list(range(10, 90))))
        assert until(lambda: len(rests) == 2, 5)
        assert set(rests) == {(0, 0)}
    finally:
        worker.close()


@pytest.mark.parametrize("wrong", [0, -1, 0.5, "10", True])
def test_wrong_idle_times_are_refused(wrong):
    with pytest.raises(SettingInvalid, match="unload_after_s"):
        EngineConfig(unload_after_s=wrong)
