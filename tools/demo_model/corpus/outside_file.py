"""Read what outside.py wrote."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class OutsideClip:
    """wave: (N,) float32 at 16 kHz. source: "foreign pack", "piper", "espeak" or "recorded"."""

    wave: np.ndarray
    voice: str
    source: str
    phonemes: str


def read(path: str | Path) -> list[OutsideClip]:
    """All clips of an outside.npz."""
    z = np.load(path)
    ends = np.cumsum(z["length"])
    rows = zip(ends, z["length"], z["voice"].tolist(), z["source"].tolist(), z["phonemes"].tolist(), strict=True)
    return [OutsideClip(z["audio"][e - n : e].astype(np.float32) / 32768, v, s, p) for e, n, v, s, p in rows]
