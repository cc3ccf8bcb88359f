"""Gradio's player for wav files of our own making."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.data_classes import FileData

from gradio.events import Dependency

class TakePlayer(gr.Audio):
    """Serves a file as it is. Gradio's own starts ffprobe for each file where ffmpeg is installed, and fails without it."""

    def postprocess(self, value: Any) -> Any:
        if isinstance(value, (str, Path)):
            return FileData(path=str(value), orig_name=Path(value).name)
        return super().postprocess(value)

    def get_block_name(self) -> str:
        return "audio"
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component
