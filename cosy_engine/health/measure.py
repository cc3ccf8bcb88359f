"""Short measurements of a machine: launches, copies, waits, one core. Each takes well under a second."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import torch


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second of a large copy, read and written both counted."""
    size = 2**31 if device.type == "cuda" else 2**27
    if device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(device)[0] // 8)
    a, b = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        wait(device)
        began = time.perf_counter()
        b.copy_(a)
        wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size / best


def product_bandwidth(device: torch.device, dtype: torch.dtype) -> float:
    """Bytes of weights per second in products with one vector, the work of a decoded token; 20 matrices of a layer's size,
    so that no cache holds them."""
    weights = [torch.ones(4864, 896, dtype=dtype, device=device) for _ in range(20)]
    x = torch.ones(1, 896, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(12):
        wait(device)
        began = time.perf_counter()
        for weight in weights:
            torch.nn.functional.linear(x, weight)
        wait(device)
        best = min(best, time.perf_counter() - began)
    return sum(w.numel() * w.element_size() for w in weights) / best


def launch_microseconds(device: torch.device) -> float:
    """Host time of one small kernel, Python included (on a CPU: of one small operation)."""
    x = torch.zeros(1, device=device)
    count = 3000
    for _ in range(2):
        wait(device)
        began = time.perf_counter()
        for _ in range(count):
            x.add_(1.0)
        elapsed = time.perf_counter() - began
    wait(device)
    return 1e6 * elapsed / count


def sync_microseconds(device: torch.device) -> float:
    """One small kernel and the wait for it."""
    x = torch.zeros(1, device=device)
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        x.add_(1.0)
        wait(device)
        best = min(best, time.perf_counter() - began)
    return 1e6 * best


def single_core() -> float:
    """Turns of a plain Python loop, millions a second, best of three."""
    turns, best = 400_000, float("inf")
    for _ in range(3):
        total, began = 0, time.perf_counter()
        for i in range(turns):
            total += i & 7
        best = min(best, time.perf_counter() - began)
    return turns / best / 1e6


def disk_read(file: Path, most_bytes: int = 64 * 2**20) -> float:
    """Bytes per second from the start of a file, past what the system has kept of it where it can be told to forget."""
    with file.open("rb", buffering=0) as opened:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(opened.fileno(), 0, most_bytes, os.POSIX_FADV_DONTNEED)
        began, count = time.perf_counter(), 0
        while count < most_bytes and (block := opened.read(2**20)):
            count += len(block)
        return count / (time.perf_counter() - began)


class PeakMemory:
    """The most memory in use since this was made: on a GPU what torch has allocated beyond what it held then, on a CPU
    the resident memory of the whole process (Linux; since its start where the kernel does not let it be reset)."""

    def __init__(self, device: torch.device):
        self.device, self.before = device, 0
        if device.type == "cuda":
            wait(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def read(self) -> int | None:
        """Bytes; None where the system does not tell."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
        return None
