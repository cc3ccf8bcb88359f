"""int16 samples to the files that people take away; each says in its metadata that it is synthetic."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

SYNTHETIC = "Synthetic speech made with a cloned voice"  # stands in every file
# name -> (libsndfile's format, subtype, media type)
KINDS = {
    "wav": ("WAV", "PCM_16", "audio/wav"),
    "mp3": ("MP3", "MPEG_LAYER_III", "audio/mpeg"),
    "flac": ("FLAC", "PCM_16", "audio/flac"),
    "opus": ("OGG", "OPUS", "audio/ogg"),
}


@cache
def kinds_here() -> tuple[str, ...]:
    """Kinds that this machine's soundfile can write; wav always."""
    import soundfile

    formats = soundfile.available_formats()
    return tuple(
        k for k, (form, sub, _) in KINDS.items() if form in formats and sub in soundfile.available_subtypes(form)
    )


def encode(samples: np.ndarray, rate_hz: int, kind: str = "wav", note: str = "") -> bytes:
    """(N,) int16 as a file. wav and flac hold exactly these samples. note: settings, for the metadata."""
    import soundfile

    form, subtype, _ = KINDS[kind]
    held = io.BytesIO()
    with soundfile.SoundFile(held, "w", rate_hz, 1, subtype, format=form) as file:
        file.title = SYNTHETIC
        file.comment = f"{SYNTHETIC}. {note}".strip()
        file.software = "cosy-studio"
        file.write(samples)
    return held.getvalue()


def srt(segments: Iterable[dict]) -> str:
    """Subtitles of a report's segments."""
    lines = []
    for i, segment in enumerate((s for s in segments if s["text"].strip()), 1):
        lines.append(f"{i}\n{_clock(segment['start_s'])} --> {_clock(segment['end_s'])}\n{segment['text'].strip()}\n")
    return "\n".join(lines)


def zipped(files: Sequence[tuple[str, bytes]]) -> bytes:
    """Files by name in one archive; sound is not squeezed again."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return held.getvalue()


def safe_name(text: str, fallback: str) -> str:
    """A name for a file out of words: letters and digits of any script, at most 40 of them."""
    return re.sub(r"[^\w]+", "-", text, flags=re.UNICODE).strip("-_")[:40].strip("-_") or fallback


def _clock(seconds: float) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02},{ms % 1000:03}"
