"""Rooms import downwards only, and the core needs no page, audio or text library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BELOW = {
    "llm": {"types", "settings", "errors"},
    "flow": {"types", "settings", "errors", "stages"},
    "vocoder": {"types", "settings", "errors", "stages"},
    "text": {"types", "settings", "errors"},
    "audio": {"types", "settings", "errors"},
    "accel": {
        "types",
        "settings",
        "errors",
        "stages",
        "flow",
        "vocoder",
    },  # lean forms of these networks; they know nothing of it
    "model_files": {"types", "settings", "errors"},
    "health": {"types", "settings", "errors", "model_files"},
    "scheduling": {"types", "settings", "errors", "stages"},
    "settings": {"errors"},
}


def imported(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize("room", BELOW)
def test_rooms_look_down_only(room):
    for file in (ROOT / "cosy_engine" / room).rglob("*.py"):
        for name in imported(file):
            if name.startswith("cosy_engine."):
                assert name.split(".")[1] in BELOW[room] | {room}, f"{file} imports {name}"


def test_only_the_page_imports_gradio():
    for file in (ROOT / "cosy_engine").rglob("*.py"):
        assert not any(name.split(".")[0] == "gradio" for name in imported(file)), file


def test_the_core_imports_without_page_audio_and_text_libraries():
    """A machine that only computes (a GPU server's training image, say) has none of these packages."""
    blocked = ("gradio", "librosa", "soundfile", "av", "wetext", "num2words", "silero_vad", "PIL", "onnxruntime")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"  # None in sys.modules makes an import fail
        "import cosy_engine, cosy_engine.llm.bistream, cosy_engine.flow, cosy_engine.vocoder, cosy_engine.audio.features\n"
        "import cosy_engine.scheduling.worker, cosy_engine.model_files.layout, cosy_engine.bench, cosy_engine.compare\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
