"""What several rooms' tests share."""

from pathlib import Path

import pytest
import torch

from tests import golden_data

torch.set_num_threads(1)  # sums keep one order; the machine's cores are shared by parallel runs


@pytest.fixture(scope="session")
def miniature_folder() -> Path:
    """The built-in model folder; tests that change it take a copy."""
    return Path(__file__).resolve().parent.parent / "assets" / "miniature"


def pytest_terminal_summary(terminalreporter):
    """How near we are to the official code, whenever its recorded data were compared."""
    if golden_data.WORST:
        terminalreporter.section("largest differences from the official outputs")
        for name, difference in sorted(golden_data.WORST.items()):
            terminalreporter.write_line(f"{difference:9.1e}  {name}")
