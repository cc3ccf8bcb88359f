"""Reference clips of the page: decoded once, described, and cut to the part that the user chose."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from pathlib import Path

from cosy_engine.audio.clip_report import ClipReport, describe
from cosy_engine.audio.decode import MAX_S
from cosy_engine.audio.waveform import read_clip
from cosy_engine.audio.window import best_span, cut
from cosy_engine.types import Clip

SHORTEST_S, LONGEST_S = 3.0, 10.0  # of the chosen part
KEPT_BYTES = 128 * 2**20  # of decoded samples
NUMBER = r"\d+(\.\d*)?(e-?\d+)?"
WINDOW = re.compile(f"{NUMBER},{NUMBER}@[0-9a-f]{{8}}", re.ASCII)  # what `write_window` and the page's handles write
DECODED_AT_ONCE = 2  # a small file can hold much sound


class Clips:
    """Decoded files by path and time of change. Safe to share between threads."""

    def __init__(self, max_s: float = MAX_S) -> None:
        """max_s: of a file; what is longer is refused while it is decoded."""
        self.max_s = max_s
        self._turns = threading.BoundedSemaphore(DECODED_AT_ONCE)
        self._kept: OrderedDict[tuple, Clip] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str) -> Clip:
        """Raises what read_clip raises."""
        file = Path(path)
        key = (path, file.stat().st_mtime_ns) if file.is_file() else (path, 0)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with self._turns:
            clip = read_clip(path, max_s=self.max_s)
        with self._lock:
            self._kept[key] = clip
            while len(self._kept) > 1 and sum(c.samples.nbytes for c in self._kept.values()) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return clip

    def forget(self, path: str) -> None:
        """The file is gone, so its sound goes too."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == path]:
                del self._kept[key]

    def part(self, path: str, window: str) -> Clip:
        """The chosen part of a file, its notes included."""
        clip = self.read(path)
        return cut(clip, *read_window(clip, window)[0])

    def report(self, path: str, window: str) -> ClipReport:
        """What can be said of the chosen part."""
        return describe(self.part(path, window))


def read_window(clip: Clip, window: str | None) -> tuple[tuple[float, float], bool]:
    """((start, end) in seconds inside the clip, whether speech was found). window: what `write_window` gave; one that
    was made for another clip, or is nonsense, gives the best part."""
    times, _, tag = (window or "").partition("@")
    try:
        start, end = (float(part) for part in times.split(","))
        if tag != clip.digest[:8] or not start < end:  # also false for not-a-number
            raise ValueError(window)
    except ValueError:
        best = best_span(clip, SHORTEST_S, LONGEST_S)
        return best or (0.0, min(clip.seconds, LONGEST_S)), best is not None
    shortest = min(SHORTEST_S, clip.seconds)
    start = min(max(0.0, start), clip.seconds - shortest)
    return (start, min(max(end, start + shortest), start + LONGEST_S, clip.seconds)), True


def write_window(clip: Clip, span: tuple[float, float]) -> str:
    """Names a part of this clip and of no other."""
    return f"{span[0]:.3f},{span[1]:.3f}@{clip.digest[:8]}"


def is_whole(clip: Clip, span: tuple[float, float]) -> bool:
    return span[0] <= 0.001 and span[1] >= clip.seconds - 0.002
