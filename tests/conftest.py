"""What several rooms' tests share."""

from pathlib import Path

import pytest
import torch

from tests import golden_data
from tools.miniature.make import make

torch.set_num_threads(1)  # sums keep one order; the machine's cores are shared by parallel runs


DEMO_VOICE = Path(__file__).resolve().parent.parent / "assets" / "demo_voice"


@pytest.fixture(scope="session")
def miniature_folder(tmp_path_factory) -> Path:
    """An untrained model, faster than the demo voice, with the demo voice's front end; tests that change it take a copy."""
    front_end = DEMO_VOICE / "speech_tokenizer_v3.onnx", DEMO_VOICE / "campplus.onnx"
    return make(tmp_path_factory.mktemp("models") / "miniature", "v3", *front_end)


def pytest_terminal_summary(terminalreporter):
    """How near we are to the official code, whenever its recorded data were compared."""
    if golden_data.WORST:
        terminalreporter.section("largest differences from the official outputs")
        for name, difference in sorted(golden_data.WORST.items()):
            terminalreporter.write_line(f"{difference:9.1e}  {name}")
