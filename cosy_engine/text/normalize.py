"""Numbers, symbols and brackets to speakable text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cosy_engine.text.clean import clean_characters, neutralise_tags


@dataclass(frozen=True)
class Normalised:
    """text: what is to be spoken, one paragraph a line. language: ISO 639-1. notes: for the user."""

    text: str
    language: str
    notes: tuple[str, ...] = ()


class TextNormalizer:
    backend = "built-in"

    def __init__(self, marks: Iterable[str] = ()):
        self.marks = frozenset(marks)

    def __call__(self, text: str, language: str | None = None) -> Normalised:
        text, notes = neutralise_tags(clean_characters(text), self.marks)
        zh = any("\u4e00" <= c <= "\u9fff" for c in text)
        return Normalised(text.strip(), language or ("zh" if zh else "en"), tuple(notes))
