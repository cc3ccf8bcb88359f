"""Load of the machine at this moment: of the GPU by NVIDIA's management library, of the CPU by the system."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

FRESH_S = 1.0  # many pages that look share one reading


class LiveFigures:
    """Reads when asked, at most once a second. Safe to use from any thread.

    why_no_gpu: why there are no figures of a GPU; "" where there are.
    """

    def __init__(self, index: int | None):
        """index: of the CUDA device; None on a CPU."""
        self._lock = threading.Lock()
        self._read_at, self._last = 0.0, {}
        self._ticks = _cpu_ticks()
        self._handle: Any = None
        self.why_no_gpu = "this engine runs on the CPU"
        if index is not None:
            try:
                import pynvml

                pynvml.nvmlInit()
                self._handle, self.why_no_gpu = pynvml.nvmlDeviceGetHandleByIndex(index), ""
            except ImportError:
                self.why_no_gpu = "nvidia-ml-py is not installed: pip install nvidia-ml-py"
            except Exception as error:  # no driver library, or no right to ask it
                self.why_no_gpu = f"the driver gives no figures ({error})"

    def read(self) -> dict[str, Any]:
        """gpu: busy (0 to 1), memory_gb, memory_most_gb, power_w, clock_mhz, or None; cpu: busy, memory_gb of this process.
        What a system does not tell is left out."""
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_S:
                self._last = {"gpu": self._gpu(), "cpu": self._cpu()}
                self._read_at = time.monotonic()
            return self._last

    def _gpu(self) -> dict[str, float] | None:
        if self._handle is None:
            return None
        import pynvml as library

        found: dict[str, float] = {}
        for name, question in (
            ("busy", lambda: library.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100),
            ("memory_gb", lambda: library.nvmlDeviceGetMemoryInfo(self._handle).used / 1e9),
            ("memory_most_gb", lambda: library.nvmlDeviceGetMemoryInfo(self._handle).total / 1e9),
            ("power_w", lambda: library.nvmlDeviceGetPowerUsage(self._handle) / 1000),
            ("power_most_w", lambda: library.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000),
            ("clock_mhz", lambda: float(library.nvmlDeviceGetClockInfo(self._handle, library.NVML_CLOCK_SM))),
            ("clock_most_mhz", lambda: float(library.nvmlDeviceGetMaxClockInfo(self._handle, library.NVML_CLOCK_SM))),
        ):
            with contextlib.suppress(library.NVMLError):
                found[name] = question()
        return found

    def _cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        now = _cpu_ticks()
        if now and self._ticks and now[1] > self._ticks[1]:
            found["busy"] = (now[0] - self._ticks[0]) / (now[1] - self._ticks[1])
        self._ticks = now
        with contextlib.suppress(OSError, ValueError, AttributeError):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            found["memory_gb"] = pages * os.sysconf("SC_PAGE_SIZE") / 1e9
            found["memory_most_gb"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
        return found


def _cpu_ticks() -> tuple[int, int] | None:
    """(busy, all) since the system's start; None where the system does not tell."""
    try:
        fields = [int(part) for part in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(fields) - fields[3] - fields[4], sum(fields)
