"""Warming up where the device's memory is short; nothing is captured on a CPU."""

import logging
from contextlib import nullcontext

import pytest
import torch

from cosy_engine import build
from cosy_engine.accel.vocoder_graph import WINDOWS
from cosy_engine.bench import random_models
from tools.miniature.make import small_spec


@pytest.fixture(scope="module")
def shelf():
    return build.StageShelf(random_models(small_spec("v3", 700), torch.device("cpu")), 1, ("eager", "graph"))


def test_what_memory_has_no_room_for_is_left_out_and_said(shelf, monkeypatch, caplog):
    monkeypatch.setattr(build, "room", lambda device: build.ROOM_BYTES - 1)
    with caplog.at_level(logging.WARNING):
        for chore in shelf.chores("fp32", "graph"):
            chore()
    said = shelf.left_out("fp32", "graph")
    sizes = sum(1 for _ in shelf.at("fp32", "graph").flow.captures())
    assert f"flow {sizes}" in said and f"vocoder {len(WINDOWS)}" in said and said in caplog.text
    assert shelf.captured("fp32", "graph") == []


def test_a_capture_that_finds_no_memory_leaves_the_others(shelf, monkeypatch):
    done, left_out = [], []

    def full():
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for work in (full, lambda: done.append(1)):
        shelf._capture("flow", work, left_out)
    assert done == [1] and left_out == ["flow"]


def test_a_copy_for_another_device_leaves_the_original_where_it_is(shelf):
    net = shelf.models("fp32").flow
    moved = build.copied(net, torch.device("meta"))
    assert all(t.is_meta for t in (*moved.parameters(), *moved.buffers()))
    assert not any(t.is_meta for t in (*net.parameters(), *net.buffers()))
    twin = build.copied(net, net.device)
    for name, value in net.state_dict().items():
        other = twin.state_dict()[name]
        assert torch.equal(value, other) and (other.data_ptr() != value.data_ptr() or not other.numel())


def test_the_chosen_gpu_is_the_current_one_while_stages_are_made(shelf, monkeypatch):
    """E08, on a machine without a second GPU: what is asked of torch."""
    current = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(current.append(str(device))))
    second = build.StageShelf(shelf._read, 1, ("eager",), torch.device("cuda:1"))
    monkeypatch.setattr(build, "make_stages", lambda *arguments: current.append("made"))
    monkeypatch.setattr(build.StageShelf, "models", lambda self, precision: None)
    second.at("fp32", "eager")
    assert current == ["cuda:1", "made"]
