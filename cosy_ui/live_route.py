"""`GET live`: what the Doctor tab's live panel draws. The page asks every two seconds, only while somebody looks at it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from cosy_engine import Engine
from cosy_engine.health.live import LiveFigures
from cosy_ui.doctor_words import doctor_words
from cosy_ui.guests import Guests
from cosy_ui.login import guarded


def add_live_route(app: FastAPI, engine: Engine, guests: Guests) -> None:
    """guests.shared: strangers see the engine's own counters, not the machine's load."""
    device = engine.shelf.device
    figures = LiveFigures(device.index or 0 if device.type == "cuda" else None)

    def live() -> JSONResponse:
        told: dict[str, Any] = {"at_s": time.monotonic(), "engine": asdict(engine.snapshot())}
        if not guests.shared:
            told |= figures.read() | {"why_no_gpu": [doctor_words(figures.why_no_gpu, lang) for lang in ("en", "zh")]}
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    guarded(app, guests, "/live", live)
