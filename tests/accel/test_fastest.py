"""Choosing among equal ways; the clock is faked."""

import pytest
import torch

from cosy_engine.accel import fastest
from cosy_engine.accel.fastest import Fastest

TOOK = {"first": 1.0, "hardly faster": 0.99, "faster": 0.8}


@pytest.fixture
def choose(monkeypatch):
    """A Fastest on a machine where a way takes TOOK milliseconds and other ways cannot run."""
    ran = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(fastest, "_milliseconds", lambda call: TOOK[call()])
    choice = Fastest()
    return lambda key, ways: choice(key, ways, lambda way: ran.append(way) or way), ran


def test_the_fastest_way_is_taken_and_measured_once(choose):
    call, ran = choose
    assert call("size", ("first", "faster", "hardly faster")) == "faster"
    ran.clear()
    assert call("size", ("first", "faster")) == "faster" and ran == ["faster"]


def test_noise_does_not_decide(choose):
    assert choose[0]("size", ("first", "hardly faster")) == "first"


def test_what_cannot_run_is_left_out_and_named_when_nothing_can(choose):
    assert choose[0]("size", ("too large", "first")) == "first"
    with pytest.raises(KeyError, match="too large"):
        choose[0]("other size", ("larger still", "too large"))


def test_a_cpu_takes_the_first_way_unmeasured():
    assert Fastest()("size", ("first", "faster"), lambda way: way) == "first"
