"""The reference's own text rules, kept exactly, quirks included; used only when asked for (`compatible=True`).

They make golden comparisons with the official software possible. What is wrong with them (decimals cut at the dot,
"007" read as seven, words glued at double blanks) is mended in `normalize` and `split`, not here.
Origin: spec 02; pinned by the golden text_cases.json.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

MAX_LENGTH, MIN_LENGTH, MERGE_LENGTH = 80, 60, 20
ZH_STOPS, EN_STOPS = set("。？！；：、.?!;"), set(".?!;:")
SPECIAL = ("<|", "|>")

Wfst = Callable[[str], str]


def reference_segments(text: str, count: Callable[[str], int], wfst: Wfst | None = None) -> list[str]:
    """Segments as the reference makes them. count: ids of a string. wfst: the wetext normaliser, None when absent.

    White space alone, where the reference raises IndexError, gives no segment.
    """
    if _untouched(text):
        return [text]
    language, text = _normal(text, wfst)
    if not text:
        return []
    stops, length = (ZH_STOPS, len) if language == "zh" else (EN_STOPS, count)
    pieces = split_pieces(text, stops, "。" if language == "zh" else ".")
    return [segment for segment in merge_pieces(pieces, length) if not _only_marks(segment)]


def reference_text(text: str, wfst: Wfst | None = None) -> str:
    """The unsplit form, for transcripts."""
    return text if _untouched(text) else _normal(text, wfst)[1]


def split_pieces(text: str, stops: set[str], final: str) -> list[str]:
    """Cut after every stop; a `"` or `”` right after one stays with it. A stop right after a stop is dropped."""
    if text[-1] not in stops:
        text += final
    pieces: list[str] = []
    start = 0
    for i, character in enumerate(text):
        if character not in stops:
            continue
        if text[start:i]:
            pieces.append(text[start : i + 1])
        if text[i + 1 : i + 2] in ('"', "”"):
            if pieces:
                pieces[-1] += text[i + 1]
            start = i + 2
        else:
            start = i + 1
    return pieces


def merge_pieces(
    pieces: list[str],
    length: Callable[[str], int],
    most: int = MAX_LENGTH,
    least: int = MIN_LENGTH,
    tail: int = MERGE_LENGTH,
) -> list[str]:
    """Join pieces into segments: close one when the next would pass `most` and it already has more than `least`."""
    segments: list[str] = []
    current = ""
    for piece in pieces:
        if length(current + piece) > most and length(current) > least:
            segments.append(current)
            current = ""
        current += piece
    if current and segments and length(current) < tail:
        segments[-1] += current
    elif current:
        segments.append(current)
    return segments


def number_words(run: str) -> str:
    """A run of digit characters as the reference reads it: 007 is seven, circled digits are zero."""
    from num2words import num2words

    digits = "".join(c for c in run if c.isdecimal())
    return num2words(int(digits)) if digits else "zero"


def _untouched(text: str) -> bool:
    return not text or all(bracket in text for bracket in SPECIAL)


def _normal(text: str, wfst: Wfst | None) -> tuple[str, str]:
    text = text.strip()
    language = "zh" if any("\u4e00" <= c <= "\u9fff" for c in text) else "en"
    if wfst:  # also without digits: newer wetext decides itself, and changes quotes and line breaks in English
        text = wfst(text)
    if language == "en":
        return language, _spell_runs(text)
    text = _drop_blanks(text.replace("\n", ""))
    text = text.replace("²", "平方").replace("³", "立方").replace(".", "。").replace(" - ", "，")
    text = re.sub(r"[（）【】`]", "", text).replace("——", " ")
    return language, re.sub(r"[，,、]+$", "。", text)


def _spell_runs(text: str) -> str:
    out, run = [], ""
    for character in text + "\0":
        if character.isdigit():
            run += character
            continue
        if run:
            out.append(number_words(run))
            run = ""
        out.append(character)
    return "".join(out[:-1])


def _drop_blanks(text: str) -> str:
    """Keep a blank only between two ASCII characters that are no blanks."""
    return "".join(
        c
        for i, c in enumerate(text)
        if c != " " or (0 < i < len(text) - 1 and all(n.isascii() and n != " " for n in (text[i - 1], text[i + 1])))
    )


def _only_marks(text: str) -> bool:
    return all(unicodedata.category(c)[0] in "PS" for c in text)
