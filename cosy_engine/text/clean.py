"""What a user typed, made harmless: odd characters cleaned silently, tags acted on, removed or kept as the model needs.

Nothing a person would say is removed here: letters, ideographs, digits, and the words between tags stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

# Characters that are drawn as nothing and would become tokens: zero-width, bidi controls, soft hyphen, BOM, selectors.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffd-\uffff\U000e0000-\U000e0fff]"
)
JOINERS = re.compile("[\u200c\u200d]")  # meaningful only inside Arabic and Indic words
EMOJI = re.compile(
    "[\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\u20e3\u2022\u00a9\u00ae"
    "\u2122\U0001f000-\U0001faff]+"
)
EMOTICON = re.compile(r"(?<!\w)[:;][-^']?[()DPp|*/\\](?![\w/])")
BLANKS = re.compile("[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
SQUARED = re.compile("[\u3371-\u33df]")  # units set in one square: kg, km, mm
STYLED = re.compile(
    "[\ufb00-\ufb06\u24b6-\u24e9\U0001d400-\U0001d7ff\U0001f130-\U0001f149]"
)  # letters as ligatures, set in fonts, circled
STROKES = re.compile("[\u0334-\u0338\u20d0-\u20df]")  # drawn over letters for decoration
GROUPED = re.compile("(?<=[0-9])[\u00a0\u2007\u2009\u202f](?=[0-9]{3}(?![0-9]))")  # parts thousands
LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029\v\f]")
STACKED = re.compile(r"([\u0300-\u036f]{3})[\u0300-\u036f]+")  # more than three accents on a letter are decoration
# Full-width letters, digits and the signs that belong to numbers and addresses; Chinese punctuation stays wide.
NARROW = {ord(c) + 0xFEE0: c for c in map(chr, range(0x21, 0x7F)) if c.isalnum() or c in "%$+-=@&#*/.<>|_\\^~\"'"}
NARROW |= {0xFFE5: "¥", 0xFFE1: "£", 0x2011: "-", 0x2010: "-", 0x2212: "-", 0xFE63: "-", 0x02BC: "'", 0xFF62: "「"}
NARROW |= {0xB5: "μ", 0x2126: "Ω"}  # signs of units, and the Greek letters that they are
NARROW |= {0xFF63: "」", 0xFF61: "。", 0xFF64: "、"}

BAR = "[|\uff5c\u01c0\u2223\u2758\ufe31\u00a6]"
OPEN, CLOSE = "[<\uff1c\u2039\u3008\ufe64\u27e8]", "[>\uff1e\u203a\u3009\ufe65\u27e9]"
CONTROL = re.compile(rf"{OPEN}\s*{BAR}([^<>\n|\uff5c]{{0,60}}?){BAR}\s*{CLOSE}")
ANGLE = re.compile(
    r"</?[A-Za-z][\w:-]*(?:\s+[\w:-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+))*\s*/?>|<!--[^<>]{0,500}-->", re.S
)
SQUARE = re.compile(r"\[\s*([^\[\]\n]{1,40}?)\s*\]")
TAG_WORD = re.compile(r"/?[A-Za-z][A-Za-z_-]*/?")
TAG_VALUE = re.compile(r"/?[A-Za-z][A-Za-z_-]*\s*[:=]\s*[\w.,%-]+|[a-z][a-z_-]*\s+\d[\d.]*\s*m?s?")
EVENT_WORD = re.compile(
    r"\b(?:pause|break|silence|laugh|breath|sigh|cough|whisper|giggle|chuckle|gasp|sniff|cr(?:y|ies)|sob|yawn|groan|"
    r"clears? throat|music|applause|noise|tone|voice|emotion)(?:s|es|ing|ter|e?d|y)?\b",
    re.I,
)
PREFIX = re.compile(rf"\s*You are a helpful assistant\.\s*{OPEN}\s*{BAR}\s*endofprompt\s*{BAR}\s*{CLOSE}", re.I)


def clean_characters(text: str, keep_emoji: bool = False) -> str:
    """NFC text with `\\n` line ends and plain blanks, without invisible, control, private, unassigned or emoji characters.

    Full-width letters and digits become narrow. What is drawn, or may stand for something, becomes a blank, so that it parts
    words: an emoji, a control, private or unassigned character, half of a surrogate pair.
    """
    text = LINE_ENDS.sub("\n", text)
    text = re.sub("([0-9#*])\ufe0f?\u20e3", r"\1 ", text)  # keycaps keep their digit
    text = INVISIBLE.sub("", GROUPED.sub("", text))
    text = STYLED.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text)
    text = _drop_joiners(text)
    if not keep_emoji:
        text = EMOTICON.sub(" ", EMOJI.sub(" ", text))
    text = BLANKS.sub(" ", text).translate(NARROW)
    text = SQUARED.sub(lambda m: unicodedata.normalize("NFKC", m[0]), text.replace("㎡", "m²").replace("㎥", "m³"))
    text = "".join(map(_drawn, text))
    text = STACKED.sub(r"\1", STROKES.sub("", unicodedata.normalize("NFC", text)))
    return unicodedata.normalize("NFC", text)


def neutralise_tags(text: str, marks: Iterable[str]) -> tuple[str, list[str]]:
    """(text without any tag but `marks`, notes that say what was removed). Words between tags stay.

    marks: special tokens that a user may write; a wrong case ("[Laughter]") is mended. `<|...|>` goes in every
    spelling. `[word]` and `<word attribute="...">` are tags; brackets around other things are only punctuation.
    """
    marks = frozenset(marks)
    folded = {mark.lower(): mark for mark in marks if mark.strip("[]</>").islower() and len(mark) > 4}
    removed: list[str] = []

    def control(match: re.Match) -> str:
        inner = match[1].strip()
        if inner.count(" ") > 1 or re.search(r"[^\x00-\x7f]", inner):
            return f" {inner} "  # no tag's name: words between bars
        removed.append(f"<|{inner}|>")
        return " "

    def tag(match: re.Match) -> str:
        written = match[0]
        if written in marks:
            return written
        known = folded.get(re.sub(r"\s", "", written).lower())
        if known:
            return known
        if written[0] == "[":
            inner = match[1]
            if f"[{inner}]" in marks:
                return f"[{inner}]"
            short_event = len(inner.split()) <= 3 and inner.isascii() and EVENT_WORD.search(inner)
            if not (TAG_WORD.fullmatch(inner) or TAG_VALUE.fullmatch(inner) or short_event or _phone_like(inner)):
                return written
        removed.append(written)
        return " "

    before = None
    while before != text:  # a removed tag may have stood inside another
        before = text
        text = CONTROL.sub(control, text)
    text = re.sub(rf"({OPEN})\s*(?={BAR})|({BAR})\s*(?={CLOSE})", lambda m: (m[1] or m[2]) + " ", text)
    text = SQUARE.sub(tag, ANGLE.sub(tag, text))
    notes = []
    if removed:
        shown = ", ".join(dict.fromkeys(removed))
        notes.append(f"not spoken, because the model has no such tag in a text: {shown[:200]}")
    return text, notes


def strip_prefix(text: str) -> str:
    """text without the fixed v3 prefix that official examples put in front; the engine adds it itself."""
    match = PREFIX.match(INVISIBLE.sub("", text))
    return INVISIBLE.sub("", text)[match.end() :] if match else text


def _phone_like(inner: str) -> bool:
    """A pinyin or CMU bracket that this release does not have."""
    return bool(re.fullmatch(r"[A-Z]{1,2}[0-2]?|[a-zü\u00e0-\u01dc]{1,5}[1-5]?", inner))


def _drawn(c: str) -> str:
    """c, or what stands for it where it is no character that a model knows."""
    if c == "\n" or c in "\u200c\u200d":
        return c
    kind = unicodedata.category(c)
    return "" if kind == "Cf" else " " if kind[0] == "C" else c


def _drop_joiners(text: str) -> str:
    def keep(match: re.Match) -> str:
        before = text[match.start() - 1 : match.start()]
        return match[0] if "\u0600" <= before <= "\u0dff" else ""

    return JOINERS.sub(keep, text)
