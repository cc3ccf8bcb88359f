"""Capitals and Greek letters in English, for a model that has hardly seen them: shouting is written small, abbreviations,
single letters and Greek ones by the names of the letters."""

from __future__ import annotations

import re
import unicodedata
from string import ascii_uppercase

WORD = re.compile(r"\b[A-Z]{2,}(?:'[A-Z]+)?\b")
LETTER = re.compile(r"(?<![\w'])[b-hj-np-zB-HJ-NP-Z](?![\w'])")  # alone; a, I and O are words
LETTERS_IN_A_ROW = re.compile(
    r"(?<![\w'])(?!O I\b)[A-Z](?: [A-Z])+(?![\w'])"
)  # U S A, J R R Tolkien: there an A is a letter
READ_AS_WORD = 4  # letters, with a vowel among them: NASA, UNESCO
NAMES = "ay bee see dee ee eff gee aitch eye jay kay ell em en oh pee cue are ess tee you vee double-you ex why zee"
LETTERS = dict(zip(ascii_uppercase, NAMES.split(), strict=True))

GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff\u00b5\u2126]")


def without_greek(text: str) -> str:
    """Greek letters by name, as formulas are read; Ω is an ohm, and μ before a letter means micro."""

    def named(match: re.Match) -> str:
        letter, end = unicodedata.normalize("NFKC", match[0]), match.end()
        if letter == "Ω":
            return " ohm "
        if letter == "μ" and text[end : end + 1].isascii() and text[end : end + 1].isalpha():
            return " micro "
        name = unicodedata.name(letter, "").partition(" LETTER ")[2].partition(" WITH ")[0].lower()
        return f" {name} " if name else match[0]

    # A Greek word is no formula: it stays, to be told as another language.
    return re.sub(r"[^\S\n]{2,}", " ", GREEK.sub(named, text)) if not re.search(GREEK.pattern + "{3}", text) else text


def without_capitals(text: str) -> str:
    """Words in capitals and single letters as they are spoken; all other text as it is."""
    small, large = sum(c.islower() for c in text), sum(c.isupper() for c in text)
    shouted = large > 3 * small

    def written(match: re.Match) -> str:
        word = match[0]
        if shouted or (len(word) >= READ_AS_WORD and re.search("[AEIOUY]", word)):
            return word.lower()
        return " ".join(LETTERS[c] for c in word if c in LETTERS)

    text = LETTERS_IN_A_ROW.sub(lambda m: " ".join(LETTERS[c] for c in m[0].split()), text)
    out = LETTER.sub(lambda m: LETTERS[m[0].upper()], WORD.sub(written, text))
    if out.strip(" .!?").lower() == "a":  # all that is to be said is no article
        out = out.lower().replace("a", LETTERS["A"])
    return out[:1].upper() + out[1:] if shouted else out
