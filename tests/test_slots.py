"""How many requests run at once, and how many of them are decoded together."""

import numpy as np
import pytest

from cosy_engine import EngineConfig, load
from cosy_engine.errors import SettingInvalid
from cosy_engine.settings.engine_config import slots_for
from tests.scheduling.test_faults import spoken
from tests.test_engine import request
from webui import _arguments


def test_slots_follow_the_free_memory_of_a_gpu():
    assert [slots_for(gb * 10**9) for gb in (140, 16, 12, 7, 4)] == [32, 32, 16, 8, 4]
    assert slots_for(None) == 4


def test_the_command_line_leaves_what_is_not_given_to_the_device():
    given = _arguments(["--slots", "6", "--max-batch", "2", "--queue", "9"])
    assert (given.slots, given.max_batch, given.queue) == (6, 2, 9)
    none = _arguments([])
    assert (none.slots, none.max_batch, none.queue) == (None, None, 64)
    with pytest.raises(SettingInvalid, match="max_batch"):
        EngineConfig(max_batch=33)


def test_more_slots_than_rows_change_no_sample(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=4, max_batch=1)
    try:
        assert (engine.config.slots, engine.config.max_batch, engine.snapshot().rows_total) == (4, 1, 1)
        jobs = [request(seed=i, text="Hello there.", stream=bool(i % 2), client=str(i)) for i in range(6)]
        alone = [engine.speak_all(job).samples for job in jobs]
        for expected, got in zip(alone, spoken(engine, jobs), strict=True):
            np.testing.assert_array_equal(got, expected)
    finally:
        engine.close()


def test_defaults_are_filled_in(miniature_folder):
    engine = load(miniature_folder, device="cpu", max_batch=9)
    assert (engine.config.slots, engine.config.max_batch, engine.snapshot().rows_total) == (4, 4, 4)
    engine.close()
