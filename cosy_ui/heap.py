"""Memory that Python has freed goes back to the system. glibc gives every thread an arena of its own and keeps what is freed in
it: with the page's forty threads the process held twice what it used, and grew for hours. Elsewhere nothing is done."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

M_ARENA_MAX = -8  # malloc.h
ARENAS = 2  # one waits on the other rarely: the interpreter's lock lets one thread allocate at a time, torch takes large blocks


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def few_arenas() -> None:
    """Let all threads share ARENAS arenas; what MALLOC_ARENA_MAX says goes first. Before threads are started: those that have an
    arena keep it."""
    libc = _glibc()
    if libc and not os.environ.get("MALLOC_ARENA_MAX"):
        libc.mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Return what is free inside the arenas, too; takes some milliseconds, in which other threads run."""
    if libc := _glibc():
        libc.malloc_trim(0)
