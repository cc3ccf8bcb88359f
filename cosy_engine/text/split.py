"""Paragraphs to segments of a good length for the model, with the pause that each one's last mark asks for.

Pieces end at sentence and clause marks; short ones are joined; a piece that is still too long is cut at the best place
near its middle: a comma, else a blank, else between two graphemes. Nothing that is spoken is ever dropped. A dot inside
a decimal, version, URL, mail address or abbreviation ends nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_LENGTH, MIN_LENGTH, MERGE_LENGTH = 80, 60, 20  # the reference's thresholds; about 15 s of speech at most
HARD_LENGTH = 120  # joined sentences may pass MAX_LENGTH up to here, never beyond
BY_CHARACTERS = ("zh", "ja", "ko", "th")  # one character is about a syllable; elsewhere token ids are counted

STOPS = "。？！?!…‥｡．।॥؟۔.\n"
CLAUSES = "；;：:、؛"
COMMAS = "，,،､—–"
CLOSERS = "”’」』）)]】》〉»›〕］｝}"
STRAIGHT_QUOTES = "\"'"

# Marks before the first word are for the eye; a model may speak at them.
_MARKS = re.escape(STOPS + CLAUSES + COMMAS)
LEADING = re.compile(rf"^([{re.escape(STRAIGHT_QUOTES)}“‘「『《（(]*)[{_MARKS}\s][{_MARKS}\s{re.escape(CLOSERS)}]*")

# Silence wanted after a segment, by its last mark: what a calm reader leaves.
PARAGRAPH_S, STOP_S, CLAUSE_S, COMMA_S, FORCED_S = 0.5, 0.3, 0.2, 0.1, 0.05

# Words whose dot ends no sentence. Missing one costs a pause, a needless one nothing but a longer piece.
_ABBREVIATIONS = """
mr mrs ms dr prof ph sr sra srta st jr vs etc approx dept est fig inc ltd corp vol pp eds gen col lt sgt capt rev hon mt
ave blvd rd bzw ca usw vgl nr str bsp evtl ggf inkl zzgl mme mlle mm cf env tel av jan feb mar apr jun jul aug sep sept
oct nov dec avv dott sig sigg гл ул рис см тыс млн млрд руб
"""
NUMBERED = frozenset(
    ["no", "nos", "sec", "ch", "chap", "eq", "ext", "art", "pt", "pg", "p", "par", "ver"]
)  # before a number only: "Sec. 4", "(No. 5)"
NUMBER_FOLLOWS = re.compile(r"\s?[(§]?\d")
POSSESSED = re.compile(
    r"\b(?:my|your|his|her|its|our|their|the|phone|serial|order|account|reference|flight|room) no$", re.I
)
ORDINAL_FOLLOWS = r" (?:[a-zäöü]|Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)"
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())


@dataclass(frozen=True)
class Segment:
    """One unit for the model. pause_s: silence that should follow it; 0 after the last."""

    text: str
    pause_s: float = 0.0


@dataclass(frozen=True)
class _Piece:
    text: str
    forced: bool = False  # cut from a longer piece
    last_line: bool = False  # a line break followed


def split_text(
    text: str, count: Callable[[str], int], language: str = "en", marks: Iterable[str] = (), *, join: bool = True
) -> tuple[Segment, ...]:
    """Segments of normalised text, in order; none when nothing can be spoken.

    count: number of token ids of a string, the measure for alphabetic languages. marks: special tokens that the text
    may hold ([breath]); they are never cut. A segment without a final mark gets one. join: short sentences share a segment;
    False is for a model that may end where the first of them does.
    """
    length = len if language in BY_CHARACTERS else count
    whole = _mark_pattern(marks)
    pieces: list[_Piece] = []
    for piece in _sentences(text):
        pieces += _bounded(piece, length, whole)
    wide = language in ("zh", "ja")
    segments: list[Segment] = []
    spoken = [p for p in pieces if _spoken(p.text, whole)]
    for group in (g for some in ([spoken] if join else _by_sentence(spoken)) for g in _groups(some, length, wide)):
        joined = re.sub(r"\s*\n\s*", "" if wide else " ", _join([p.text for p in group], wide)).strip()
        segments.append(Segment(closed(joined, group[-1].forced, wide), _pause_s(joined, group[-1])))
    if segments:
        segments[-1] = Segment(segments[-1].text)
    return tuple(segments)


def _by_sentence(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Pieces up to each end mark."""
    sentences: list[list[_Piece]] = [[]]
    for piece in pieces:
        sentences[-1].append(piece)
        if piece.text.rstrip().rstrip(CLOSERS + STRAIGHT_QUOTES).endswith(tuple(STOPS)):
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def speakable(text: str) -> bool:
    """Whether text holds a letter, ideograph or digit."""
    return any(unicodedata.category(c)[0] in "LN" for c in text)


def _spoken(text: str, whole: re.Pattern | None) -> bool:
    return speakable(text) or bool(whole and whole.search(text))


def _sentences(text: str) -> list[_Piece]:
    """Cut after each run of end or clause marks and the closers behind it, where a word has come before."""
    pieces, start, i, begun = [], 0, 0, False
    while i < len(text):
        begun = begun or speakable(text[i])
        if not begun or not ends_piece(text, i):
            i += 1
            continue
        end = i + 1
        while end < len(text):
            c = text[end]
            stop = c in STOPS + CLAUSES and (c != "." or ends_piece(text, end) or text[end - 1] == ".")
            if not (stop or c in CLOSERS or (c in STRAIGHT_QUOTES and _closing(text, start, end))):
                break
            end += 1
        pieces.append(_Piece(_from_first_word(text[start:end]), last_line="\n" in text[i:end]))
        start, i, begun = end, end, False
    pieces.append(_Piece(_from_first_word(text[start:])))
    return _rejoin_marks(pieces)


def _from_first_word(text: str) -> str:
    return LEADING.sub(r"\1", text.strip()) if speakable(text) else text.strip()


def _rejoin_marks(pieces: list[_Piece]) -> list[_Piece]:
    """A piece of marks alone belongs to the one before (an ellipsis after a line break, a stray bracket)."""
    out: list[_Piece] = []
    for piece in pieces:
        if out and piece.text and not speakable(piece.text):
            out[-1] = _Piece(out[-1].text + piece.text, last_line=out[-1].last_line or piece.last_line)
        elif piece.text:
            out.append(piece)
        elif out and piece.last_line:
            out[-1] = _Piece(out[-1].text, last_line=True)
    return out


def ends_piece(text: str, i: int) -> bool:
    """Whether the character at i is a mark that ends a piece: a dot inside a token or abbreviation does not."""
    c = text[i]
    following = text[i + 1 : i + 2]
    if c in "。？！…‥｡।॥؟۔；、؛：\n":
        return True
    if c in "?!;:":  # not inside a URL or a clock time
        return not following or following.isspace() or not following.isascii() or following in STRAIGHT_QUOTES + CLOSERS
    if c not in ".．":
        return False
    if following and not (following.isspace() or _wide(following) or following in STRAIGHT_QUOTES + CLOSERS + "…"):
        return False
    if following and _wide(following) and text[i - 1 : i].isdigit():
        return False  # "1.苹果" numbers a list
    if text[i - 1 : i].isdigit() and re.match(ORDINAL_FOLLOWS, text[i + 1 : i + 6]):
        return False  # "3. Mai"
    word = re.search(r"[^\W\d_]+$", text[max(0, i - 12) : i])
    if not word or not following:
        return True
    before = text[i - len(word[0]) - 1 : i - len(word[0])]
    initial = len(word[0]) == 1 and not _wide(word[0]) and (word[0].isupper() or before == ".")
    number = word[0].lower() in NUMBERED and NUMBER_FOLLOWS.match(text, i + 1)  # "No. 5", not "I said no."
    number = number or (POSSESSED.search(text[max(0, i - 20) : i]) and re.match(r"\s[a-z]", text[i + 1 : i + 3]))
    return not (initial or number or word[0].lower() in ABBREVIATIONS)


def _closing(text: str, start: int, end: int) -> bool:
    """Whether the straight quote at `end` closes: an odd one of its kind in this piece, or nothing opens behind it."""
    following = text[end + 1 : end + 2]
    return text[start:end].count(text[end]) % 2 == 1 or not following or following.isspace()


def _wide(c: str) -> bool:
    return unicodedata.east_asian_width(c) in "WF"


def _bounded(piece: _Piece, length: Callable[[str], int], whole: re.Pattern | None) -> list[_Piece]:
    """The piece, halved until every part is at most MAX_LENGTH long."""
    done: list[_Piece] = []
    todo = [piece]
    while todo:
        part = todo.pop()
        cut = _middle(part.text, whole) if length(part.text) > MAX_LENGTH else 0
        if not cut:
            done.append(part)
            continue
        left, right = part.text[:cut].rstrip(), part.text[cut:].lstrip()
        todo.append(_Piece(right, part.forced, part.last_line))
        todo.append(_Piece(left, forced=True))
    return done


def _middle(text: str, whole: re.Pattern | None) -> int:
    """Best place to cut near the middle, 0 when the text is one single unit."""
    found = list(whole.finditer(text)) if whole else []
    inside = {i for match in found for i in range(match.start() + 1, match.end())}
    after_mark = {match.end() for match in found}
    cuts = [i for i in range(1, len(text)) if i not in inside and not _clings(text[i - 1], text[i])]
    if not cuts:
        return 0
    middle = len(text) / 2

    def after_comma(i: int) -> bool:
        if i in after_mark:
            return False
        mark = text[i - 1]
        if mark in "，、､；：":
            return True
        return mark in STOPS + COMMAS + CLAUSES + CLOSERS and (text[i].isspace() or _wide(text[i]))

    inner = [i for i in cuts if 0.2 * len(text) <= i <= 0.8 * len(text)]
    for fits in (after_comma, lambda i: text[i].isspace()):
        if places := [i for i in inner if fits(i)]:
            return min(places, key=lambda i: abs(i - middle))
    return min(cuts, key=lambda i: abs(i - middle) + 12 * _glued(text[i - 1], text[i]))


def _clings(left: str, right: str) -> bool:
    """Whether right is part of left's grapheme (combining marks, joiners, variation selectors, Hangul jamo)."""
    return (
        unicodedata.category(right)[0] == "M"
        or "\u200d" in (left, right)
        or "\u1160" <= right <= "\u11ff"
        or ("\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff")
        or "\U0001f3fb" <= right <= "\U0001f3ff"
    )


def _glued(left: str, right: str) -> bool:
    """Whether a cut here would open a word or number of narrow letters, or put a mark at the start."""
    if right in STOPS + CLAUSES + COMMAS + CLOSERS:
        return True
    return left.isascii() and right.isascii() and not left.isspace() and not right.isspace()


def _groups(pieces: list[_Piece], length: Callable[[str], int], wide: bool) -> list[list[_Piece]]:
    """Pieces gathered into segments, as the reference does, but never beyond HARD_LENGTH."""
    groups: list[list[_Piece]] = []
    current: list[_Piece] = []

    def size(*more: _Piece) -> int:
        return length(_join([p.text for p in (*current, *more)], wide))

    for piece in pieces:
        if current:
            now, then = size(), size(piece)
            cut_from_one = current[-1].forced and then > MAX_LENGTH
            if then > MAX_LENGTH and (now > MIN_LENGTH or cut_from_one or then > HARD_LENGTH):
                groups.append(current)
                current = []
        current = [*current, piece]
    if current:
        tail = current
        current = groups[-1] if groups else []
        if groups and length(_join([p.text for p in tail], wide)) < MERGE_LENGTH and size(*tail) <= HARD_LENGTH:
            groups[-1] = [*groups[-1], *tail]
        else:
            groups.append(tail)
    return groups


def _join(texts: list[str], wide: bool) -> str:
    """Pieces side by side; a blank between narrow ones."""
    out = ""
    for text in texts:
        narrow = out and text and not (_wide(out[-1]) or _wide(text[0]))
        out += (" " if narrow and not (wide and out[-1].isspace()) else "") + text
    return out


def closed(text: str, forced: bool = False, wide: bool | None = None) -> str:
    """text with a final mark: models were trained on sentences that have one. forced: it goes on; wide: by its last character
    where not given."""
    tail = text.rstrip(CLOSERS + STRAIGHT_QUOTES)
    if not tail or tail[-1] in STOPS + CLAUSES + COMMAS:
        return text
    wide = _wide(tail[-1]) if wide is None else wide
    mark = ("，" if wide else ",") if forced else ("。" if wide else ".")
    return text + mark


def _pause_s(text: str, last: _Piece) -> float:
    if last.last_line:
        return PARAGRAPH_S
    tail = text.rstrip(CLOSERS + STRAIGHT_QUOTES + " ")
    mark = tail[-1:]
    if last.forced:
        return COMMA_S if mark and mark in COMMAS + CLAUSES else FORCED_S
    if mark and mark in CLAUSES:
        return CLAUSE_S
    return COMMA_S if mark and mark in COMMAS else STOP_S


def _mark_pattern(marks: Iterable[str]) -> re.Pattern | None:
    ordered = sorted(marks, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None
