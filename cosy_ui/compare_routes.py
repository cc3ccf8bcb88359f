"""`GET compare/<id>.png` and its kin: sounds, pictures and exports of a comparison, made when they are asked for."""

from __future__ import annotations

import io
import json
import re

import numpy as np
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from cosy_engine import to_int16
from cosy_engine.compare import Outcome, as_csv
from cosy_engine.compare.picture import difference, inked, render
from cosy_engine.compare.record import sketch
from cosy_ui.audio_files import encode
from cosy_ui.compare_table import CompareTable, Kept
from cosy_ui.guests import Guests
from cosy_ui.login import guarded

GONE = {"error": "this comparison is no longer kept: run it again"}
BINS, COLUMNS = 80, 480  # of the pictures in the page
NAME = re.compile(r"([\w-]{8,64})\.(json|csv|png)|([\w-]{8,64})\.(\d{1,2})\.(wav|mel\.png|diff\.png)", re.ASCII)


def add_compare_routes(app: FastAPI, table: CompareTable, guests: Guests) -> None:
    def answer(name: str) -> Response:
        match = NAME.fullmatch(name)
        kept = table.find(match[1] or match[3]) if match else None
        if kept is None:
            return JSONResponse(GONE, status_code=404)
        if match[2]:
            return _export(kept, match[2])
        if int(match[4]) >= len(kept.outcomes) or not kept.outcomes[int(match[4])].runs:
            return JSONResponse(GONE, status_code=404)
        return _part(kept, int(match[4]), match[5])

    guarded(app, guests, "/compare/{name}", answer)


def _export(kept: Kept, kind: str) -> Response:
    data = kept.data()
    made, media = {
        "json": lambda: (json.dumps(data, indent=1).encode(), "application/json"),
        "csv": lambda: (as_csv(data).encode(), "text/csv; charset=utf-8"),
        "png": lambda: (render(data), "image/png"),
    }[kind]()
    headers = {"Content-Disposition": f'attachment; filename="comparison.{kind}"', "Cache-Control": "no-store"}
    return Response(made, media_type=media, headers=headers)


def _part(kept: Kept, index: int, kind: str) -> Response:
    outcome = kept.outcomes[index]
    headers = {"Cache-Control": "no-store"}
    if kind == "wav":  # the engine's own level, untouched: louder would sound better
        data = encode(to_int16(outcome.samples), outcome.rate_hz, "wav", f"comparison, {outcome.variant.id}")
        return Response(data, media_type="audio/wav", headers=headers)
    return Response(_png(_pixels(kept, outcome, kind)), media_type="image/png", headers=headers)


def _pixels(kept: Kept, outcome: Outcome, kind: str) -> np.ndarray:
    """(BINS, COLUMNS, 3) of a result's mel, or of its difference from the baseline; one time axis for all results."""
    spec, base = kept.comparison.subject.spec.mel, kept.comparison.outcomes[kept.comparison.baseline]
    longest = longest_samples(kept)
    own = sketch(outcome.samples, longest, spec, BINS, COLUMNS)
    if kind == "mel.png":
        return inked(own)
    return difference(own, sketch(base.samples, longest, spec, BINS, COLUMNS))


def longest_samples(kept: Kept) -> int:
    """The time axis of all pictures."""
    return max(1, *(len(outcome.samples) for outcome in kept.outcomes))


def _png(rgb: np.ndarray) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(rgb).save(held, "PNG")
    return held.getvalue()
