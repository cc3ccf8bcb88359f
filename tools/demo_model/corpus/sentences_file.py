"""The sentences with phonemes that this folder carries (made by sentences.py and phonemes.py)."""

import json
import lzma
import zlib
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("sentences.jsonl.xz")


@cache
def read(path: str | Path = PATH) -> list[dict]:
    """Rows with text, phonemes (the teacher's alphabet) and kind; `path` may be .jsonl or .jsonl.xz. Read once: leave them."""
    opener = lzma.open if str(path).endswith(".xz") else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row.get("phonemes")]


def is_held_out(text: str) -> bool:
    """One sentence in 64 is kept for the dev split and for gates; no training speech says it."""
    return zlib.crc32(text.encode()) % 64 == 0
