"""A comparison as one PNG, made to be shared: figures, stage bars, mels and how they differ, machine and versions.

Drawn from the JSON alone, so that a comparison made on a bare server can be drawn elsewhere. English, as the built-in font is.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from cosy_engine.compare.record import FORMAT, LOUDEST_DB, QUIETEST_DB
from cosy_engine.errors import SettingInvalid

SCALE = 2  # pixels of a unit
WIDTH, ROW, LEFT, TOP = 1280, 66, 28, 172
COLORS = {  # of the stages, here and in the page
    "reference": "#94a3b8", "prefill": "#38bdf8", "decode": "#6366f1", "flow": "#14b8a6", "vocoder": "#f59e0b", "other": "#cbd5e1",
}  # fmt: skip
INK, DIM, LINE, PAPER = "#0f172a", "#64748b", "#e2e8f0", "#ffffff"
COLUMNS = ((LEFT, "Variant"), (206, "First audio"), (316, "RTF"), (404, "Per token"), (516, "Where the time goes"),
           (886, "Mel"), (1042, "Difference"), (1198, "Tokens"))  # fmt: skip
BAR_WIDTH, MEL_WIDTH = 340, 140


def render(data: dict[str, Any]) -> bytes:
    """PNG of `as_data`'s result.

    Raises: SettingInvalid: not a comparison's JSON.
    """
    from PIL import Image, ImageDraw  # Gradio brings it; a machine that only measures may lack it

    if data.get("format") != FORMAT:
        raise SettingInvalid(f"this is not a comparison ({FORMAT}): give the JSON that `compare` wrote")
    rows = data["variants"]
    height = TOP + ROW * len(rows) + 92
    image = Image.new("RGB", (SCALE * WIDTH, SCALE * height), PAPER)
    pen = _Pen(ImageDraw.Draw(image), image)
    _head(pen, data)
    for x, words in COLUMNS:
        pen.text(x, TOP - 26, words, 12, DIM)
    base = next(row for row in rows if row["id"] == data["baseline"])
    longest = max((sum(row["stages_ms"].values()) for row in rows if row["runs"]), default=0.0) or 1.0
    for number, row in enumerate(rows):
        _row(pen, TOP + ROW * number, row, base, longest)
    _foot(pen, TOP + ROW * len(rows), data)
    held = io.BytesIO()
    image.save(held, "PNG", optimize=True)
    return held.getvalue()


class _Pen:
    """Draws in units of a 1280-wide page."""

    def __init__(self, draw: Any, image: Any):
        self.draw, self.image = draw, image

    def text(self, x: float, y: float, words: str, size: int = 13, color: str = INK) -> None:
        from PIL import ImageFont

        self.draw.text((SCALE * x, SCALE * y), words, color, ImageFont.load_default(SCALE * size))

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        if SCALE * width >= 1:
            self.draw.rectangle((SCALE * x, SCALE * y, SCALE * (x + width) - 1, SCALE * (y + height) - 1), fill=color)

    def line(self, y: float) -> None:
        self.box(LEFT, y, WIDTH - 2 * LEFT, 1, LINE)

    def pixels(self, x: float, y: float, width: float, height: float, rgb: np.ndarray) -> None:
        from PIL import Image

        size = int(SCALE * width), int(SCALE * height)
        self.image.paste(Image.fromarray(rgb).resize(size, Image.Resampling.BILINEAR), (int(SCALE * x), int(SCALE * y)))


def _head(pen: _Pen, data: dict[str, Any]) -> None:
    machine, versions = data["machine"], data["versions"]
    facts = [machine.get("device"), f"driver {machine['driver']}" if machine.get("driver") else "", machine.get("cpu"),
             f"{machine.get('cpu_cores')} cores", f"{machine.get('launch_us')} us per launch", f"{machine.get('copy_tb_s')} TB/s copy"]  # fmt: skip
    request = data["request"]
    asked = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in request.items())
    pen.text(LEFT, 24, f"{data['what']}: one request, {len(data['variants'])} ways", 24)
    pen.text(LEFT, 64, "  |  ".join(str(fact) for fact in facts if fact), 13, DIM)
    pen.text(LEFT, 84, "  |  ".join(f"{name} {version}" for name, version in versions.items()), 13, DIM)
    pen.text(
        LEFT,
        104,
        f"{asked}; medians of {data['runs']} {'runs' if data['runs'] > 1 else 'run'} in turns, after {data['warm_ups']} discarded",
        13,
        DIM,
    )
    pen.line(TOP - 6)


def _row(pen: _Pen, y: float, row: dict[str, Any], base: dict[str, Any], longest: float) -> None:
    x = [column for column, _ in COLUMNS]
    is_base = row["id"] == base["id"]
    pen.text(x[0], y + 12, f"{row['tier']} {row['precision']}", 15)
    pen.text(x[0], y + 33, ("streamed" if row["stream"] else "whole") + (", the baseline" if is_base else ""), 12, DIM)
    pen.line(y + ROW - 1)
    if not row["runs"]:
        pen.text(x[1], y + 20, row["error"][:150], 13, "#b91c1c")
        return
    _figure(pen, x[1], y, f"{row['first_audio_ms'][0]:,.0f} ms", f"± {row['first_audio_ms'][1]:,.0f}")
    _figure(pen, x[2], y, f"{row['rtf'][0]:.3f}", f"± {row['rtf'][1]:.3f}")
    if row["ms_per_token"]:
        ratio = row["floor_ratio"]
        _figure(pen, x[3], y, f"{row['ms_per_token'][0]:.2f} ms", f"{ratio:.1f} x floor" if ratio else "waited for")
    at = x[4]
    for stage, color in COLORS.items():
        width = BAR_WIDTH * row["stages_ms"][stage] / longest
        pen.box(at, y + 14, width, 22, color)
        at += width
    memory = f", {row['memory_gb']:.2f} GB" if row["memory_gb"] else ""
    pen.text(
        x[4], y + 40, f"{sum(row['stages_ms'].values()):,.0f} ms for {row['audio_s']:.1f} s of audio{memory}", 12, DIM
    )
    mel, other = (unpacked(one["sketch"]) for one in (row, base if base["runs"] else row))
    pen.pixels(x[5], y + 8, MEL_WIDTH, ROW - 18, inked(mel))
    if not is_base:
        pen.pixels(x[6], y + 8, MEL_WIDTH, ROW - 18, difference(mel, other))
        like = row["likeness"] or {}
        if like:
            _figure(pen, x[7], y, "equal" if like["same_tokens"] else f"first {like['tokens_equal']}",
                    f"{like['mel_db']:.2f} dB" if like["mel_db"] is not None else "")  # fmt: skip


def _figure(pen: _Pen, x: float, y: float, words: str, under: str) -> None:
    pen.text(x, y + 12, words, 15)
    pen.text(x, y + 33, under, 12, DIM)


def _foot(pen: _Pen, y: float, data: dict[str, Any]) -> None:
    x = LEFT
    for stage, color in COLORS.items():
        pen.box(x, y + 16, 12, 12, color)
        pen.text(x + 18, y + 14, stage, 12, DIM)
        x += 34 + 7 * len(stage) + 16
    pen.text(LEFT, y + 38, "First audio: request in to first sample out, reference included. RTF: seconds of work / seconds of audio. ± is largest minus "
             "smallest. Floor: reading the step's weights once at copy speed.", 12, DIM)  # fmt: skip
    pen.text(LEFT, y + 56, "In streaming, decoding runs beside rendering and only what was waited for is counted. Difference: of log-mels, darkest at "
             "20 dB. Tokens: how many leading ones equal the baseline's; mean mel difference.", 12, DIM)  # fmt: skip


def unpacked(sketch: dict[str, Any]) -> np.ndarray:
    """(bins, columns) uint8, low bins first."""
    flat = np.frombuffer(base64.b64decode(sketch["mel"]), np.uint8)
    return flat.reshape(sketch["bins"], sketch["columns"])


def inked(mel: np.ndarray) -> np.ndarray:
    """(bins, columns) uint8 -> (bins, columns, 3), low bins at the bottom, light where silent."""
    share = mel[::-1, :, None].astype(np.float32) / 255
    light, middle, dark = (np.array(color, np.float32) for color in ((248, 250, 252), (99, 102, 241), (15, 23, 42)))
    rgb = np.where(share < 0.6, light + (middle - light) * share / 0.6, middle + (dark - middle) * (share - 0.6) / 0.4)
    return rgb.astype(np.uint8)


def difference(mel: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Two (bins, columns) uint8 -> (bins, columns, 3): white where equal, red from 20 dB on."""
    decibels = np.abs(mel.astype(np.float32) - base) * (LOUDEST_DB - QUIETEST_DB) / 255
    share = np.clip(decibels / 20, 0, 1)[::-1, :, None]
    light, dark = np.array((248, 250, 252), np.float32), np.array((185, 28, 28), np.float32)
    return (light + (dark - light) * share).astype(np.uint8)
