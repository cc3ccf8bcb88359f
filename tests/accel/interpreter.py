"""Runs tests of Triton kernels on the CPU, in a process of their own with TRITON_INTERPRET=1."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def why_not_interpreted() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: CPU machines need `pip install triton 'numpy<2.4'` to interpret the kernels"
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4):
        return f"Triton's interpreter needs numpy below 2.4, this is {np.__version__}"
    return None


interpreted = pytest.mark.skipif(why_not_interpreted() is not None, reason=str(why_not_interpreted()))


def run_interpreted(file: str, cases: str = "test") -> None:
    """Run the tests of tests/accel/`file` whose names hold `cases`; they must pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", f"tests/accel/{file}", "-k", cases]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
