"""A comparison as data: JSON with everything that its picture needs, and CSV for spreadsheets. No words of the user."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cosy_engine.compare.likeness import log_mel
from cosy_engine.settings.model_spec import MelSpec

if TYPE_CHECKING:
    from cosy_engine.compare.outcome import Outcome
    from cosy_engine.compare.run import Comparison

FORMAT = "cosy-compare-1"
SKETCH_BINS, SKETCH_COLUMNS = 40, 120  # of the mel that travels in the JSON, for its picture
LOUDEST_DB, QUIETEST_DB = 15.0, -65.0  # of the flow's mel; what is drawn white and black


def as_data(
    comparison: Comparison,
    machine: dict[str, Any],
    versions: dict[str, str],
    predicted: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Plain data. Milliseconds are [median, spread] over n runs; memory_gb as in Outcome; predicted: (tier, precision) ->
    ms per token by the doctor's cost model."""
    subject = comparison.subject
    longest = max((len(o.samples) for o in comparison.finished), default=0)
    return {
        "format": FORMAT,
        "what": subject.name,
        "request": subject.facts(),
        "machine": machine,
        "versions": versions,
        "baseline": comparison.baseline.id,
        "runs": comparison.runs,
        "warm_ups": comparison.warm_ups,
        "variants": [_row(o, longest, subject.spec.mel, predicted) for o in comparison.outcomes.values()],
    }


def _row(outcome: Outcome, longest: int, spec: MelSpec, predicted: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    variant = outcome.variant
    row: dict[str, Any] = {"id": variant.id} | asdict(variant) | {"runs": len(outcome.runs), "error": outcome.error}
    if not outcome.runs:
        return row
    likeness = outcome.likeness
    return row | {
        "first_audio_ms": _rounded(outcome.first_ms),
        "rtf": _rounded(outcome.rtf, 5),
        "ms_per_token": _rounded(outcome.token_ms) if outcome.token_ms else None,
        "predicted_ms": round(told, 3) if (told := predicted.get((variant.tier, variant.precision))) else None,
        "floor_ms": round(outcome.floor_ms, 4),
        "floor_ratio": round(outcome.floor_ratio, 2) if outcome.floor_ratio else None,
        "stages_ms": {stage: round(ms, 3) for stage, ms in outcome.stages_ms().items()},
        "memory_gb": round(outcome.memory_gb, 3) if outcome.memory_gb is not None else None,
        "capture_s": round(outcome.capture_s, 2),
        "audio_s": round(outcome.runs[-1].audio_s, 3),
        "tokens": outcome.runs[-1].tokens,
        "retries": max(run.retries for run in outcome.runs),
        "disturbed": any(run.disturbed for run in outcome.runs),
        "likeness": asdict(likeness) | {"same_tokens": likeness.same_tokens} if likeness else None,
        "sketch": {
            "seconds": round(longest / outcome.rate_hz, 3),
            "bins": SKETCH_BINS,
            "columns": SKETCH_COLUMNS,
            "mel": base64.b64encode(sketch(outcome.samples, longest, spec).tobytes()).decode(),
        },
    }


def _rounded(spread: tuple[float, float], digits: int = 3) -> list[float]:
    return [round(value, digits) for value in spread]


def sketch(
    samples: np.ndarray, longest: int, spec: MelSpec, bins: int = SKETCH_BINS, columns: int = SKETCH_COLUMNS
) -> np.ndarray:
    """(N,) samples -> (bins, columns) uint8 of their log-mel, low bins first; the time axis is `longest` samples long."""
    mel = log_mel(samples, spec)
    frames = max(1, longest // spec.hop_samples)
    padded = np.full((frames, spec.bins), QUIETEST_DB, np.float32)
    padded[: len(mel)] = mel[:frames]
    rows = np.linspace(0, frames, columns + 1)
    picked = np.stack([padded[int(a) : max(int(a) + 1, int(b))].mean(0) for a, b in pairwise(rows)])
    bands = np.stack([band.mean(1) for band in np.array_split(picked, bins, axis=1)])
    share = (bands - QUIETEST_DB) / (LOUDEST_DB - QUIETEST_DB)
    return (255 * np.clip(share, 0, 1)).astype(np.uint8)


def as_csv(data: dict[str, Any]) -> str:
    """One line a variant; medians, and the spread of what varies."""
    held = io.StringIO()
    table = csv.writer(held, lineterminator="\n")
    stages = ("reference", "prefill", "decode", "flow", "vocoder", "other")
    table.writerow(
        ["variant", "runs", "first_audio_ms", "first_audio_spread_ms", "rtf", "rtf_spread", "ms_per_token", "ms_per_token_spread",
         "times_floor", *(f"{stage}_ms" for stage in stages), "memory_gb", "tokens", "tokens_equal", "log_prob_difference",
         "mel_difference_db", "error"]
    )  # fmt: skip
    for row in data["variants"]:
        if not row["runs"]:
            table.writerow([_cell(row["id"]), 0, *[""] * 18, _cell(row["error"])])
            continue
        like = row["likeness"] or {}
        table.writerow(
            [_cell(row["id"]), row["runs"], *row["first_audio_ms"], *row["rtf"], *(row["ms_per_token"] or ("", "")), row["floor_ratio"],
             *(row["stages_ms"][stage] for stage in stages), row["memory_gb"], row["tokens"], like.get("tokens_equal"),
             like.get("log_prob"), like.get("mel_db"), _cell(row["error"])]
        )  # fmt: skip
    return held.getvalue()


def _cell(text: str) -> str:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
