"""Load figures: of a faked card, of one that does not tell everything, and of this machine's CPU."""

import sys
import time
from types import SimpleNamespace

from cosy_engine.health import live
from cosy_engine.health.live import LiveFigures


class Library:
    """NVIDIA's management library with one card that keeps its power to itself."""

    NVMLError, NVML_CLOCK_SM = RuntimeError, 1

    def __init__(self, **answers):
        self.answers = {
            "nvmlInit": None, "nvmlDeviceGetHandleByIndex": "card", "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=73),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=4e9, total=8e9), "nvmlDeviceGetClockInfo": 1500,
        } | answers  # fmt: skip

    def __getattr__(self, name):
        def answer(*_):
            value = self.answers.get(name, RuntimeError("Not Supported"))
            if isinstance(value, Exception):
                raise value
            return value

        return answer


def test_a_card_is_read_and_what_it_does_not_tell_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    figures = LiveFigures(0)
    assert figures.why_no_gpu == ""
    assert figures.read()["gpu"] == {"busy": 0.73, "memory_gb": 4.0, "memory_most_gb": 8.0, "clock_mhz": 1500.0}


def test_why_there_are_no_figures_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Library(nvmlInit=RuntimeError("Driver Not Loaded")))
    assert "Driver Not Loaded" in LiveFigures(0).why_no_gpu
    monkeypatch.setitem(sys.modules, "pynvml", None)  # makes the import fail
    assert "pip install nvidia-ml-py" in LiveFigures(0).why_no_gpu
    assert LiveFigures(None).read()["gpu"] is None


def test_many_who_look_share_one_reading(monkeypatch):
    figures = LiveFigures(None)
    first = figures.read()
    assert figures.read() is first
    monkeypatch.setattr(live, "FRESH_S", 0.0)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        sum(range(1000))
    second = figures.read()
    assert second is not first and 0 < second["cpu"]["busy"] <= 1 and second["cpu"]["memory_gb"] > 0.01


def test_a_system_that_tells_nothing_leaves_nothing_broken(monkeypatch):
    monkeypatch.setattr(live, "_cpu_ticks", lambda: None)
    monkeypatch.setattr(live, "Path", lambda *_: SimpleNamespace(read_text=lambda: (_ for _ in ()).throw(OSError())))
    assert LiveFigures(None).read() == {"gpu": None, "cpu": {}}
