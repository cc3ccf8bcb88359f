"""What several rooms' tests share."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # sums keep one order; the machine's cores are shared by parallel runs


@pytest.fixture(scope="session")
def miniature_folder() -> Path:
    """The built-in model folder; tests that change it take a copy."""
    return Path(__file__).resolve().parent.parent / "assets" / "miniature"
