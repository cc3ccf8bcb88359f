"""Zero-shot voice cloning with CosyVoice2 and Fun-CosyVoice3: `load`, a `Request`, and its audio.

Names are resolved on first use, so that `import cosy_engine.flow` needs no audio or text library.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "load": "build",
    "Engine": "engine",
    "Result": "engine",
    "Speech": "engine",
    "save": "engine",
    "CosyError": "errors",
    "UserError": "errors",
    "EngineConfig": "settings.engine_config",
    "MODES": "settings.modes",
    "Mode": "settings.modes",
    "AudioChunk": "types",
    "Clip": "types",
    "Report": "types",
    "Request": "types",
    "Voice": "types",
    "to_int16": "types",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
