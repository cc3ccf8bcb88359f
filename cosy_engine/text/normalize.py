"""Written text to what is said: numbers, dates, addresses and signs become words in the language of their sentence.

Order: characters are cleaned, typed tags neutralised, known marks shielded by private characters, lines made
paragraphs; then every sentence is read by the rules of its own language. `wetext` (a WFST normaliser for Chinese and
English) does the bulk where it is installed; rules before it mend what it is known to get wrong, rules behind it read
what is left, which is everything without it. What it returns is checked: if words are missing, its answer is not used.
"""

from __future__ import annotations

import importlib.metadata
import logging
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cosy_engine.text import numerals, rules_en, rules_other, rules_zh
from cosy_engine.text.clean import clean_characters, neutralise_tags
from cosy_engine.text.languages import HAN, detect
from cosy_engine.text.literals import speak_literals
from cosy_engine.text.split import ends_piece

log = logging.getLogger(__name__)

SHIELD = 0xE000  # first private-use character; one stands for each known mark
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
VULGAR = {c: unicodedata.normalize("NFKC", c).replace("\u2044", "/") for c in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
WFST_SAFE = re.compile(r"[\u0020-\u007e\u4e00-\u9fff，。！？；：、《》“”‘’·℃°％×÷±￥¥€£]+")
CLAUSE = re.compile(r"(?:[^，,；;。！？!?、\"“”()（）\n]|(?<=\d),(?=\d))+")
SPOKEN_MARKS = set(".,!?;:'\"-–—()…·&/，。！？；：、“”‘’（）《》〈〉「」『』【】～«»¿¡‹›„%‰€$£¥°+=’‘·・।॥؟،؛۔‐")
WRAPPED_CHARS = {True: 25, False: 60}  # a line at least this long was broken by its editor, not by its author
LONGEST_READ = 400  # characters the rules see at once: no sentence is longer, and some are quadratic in digits
MOST_NUMBERS = 12  # in a clause for wetext, whose time grows with the square of their readings; no clause has more
# Thousands parted by blanks; where the first group has three digits too, it may as well be a list of rooms or a phone number.
THOUSANDS = re.compile(
    r"(?<![A-Za-z\d.,:/+_])(?<!\d[- ])(?<![A-Za-z]-)([1-9]\d{0,2})((?: \d{3})+)(?!\d|[ :/-]\d|[.,]\d{3}(?!\d))",
    re.ASCII,
)
NO_THOUSANDS = re.compile(
    r"(?:\b(?:call|phone|tel|telephone|dial|fax|number|mobile|code|ext|room|rooms|jan\w*|feb\w*|mar(?:ch)?|apr\w*|may|june?|july?"
    r"|aug\w*|sept?\w*|oct\w*|nov\w*|dec\w*)\b|电话|手机|号码|热线|拨打?|致电|传真|邮编)\W*$",
    re.I,
)
AMOUNT = re.compile(r"\s?[€$£¥₹]|\s(?:euros?|dollars?|pounds?|yuan|yen|people|km)\b|\s?[元人个美欧平公]")
ELLIPSIS = re.compile(r"(?<!/)\.{3,}(?=\w)")  # a word or number begins behind it, and its last dot is no decimal point
END_MARK = re.compile(r"[.!?。！？…:：;；,，、—~～\"”』」)）\]】]$")


@dataclass(frozen=True)
class Normalised:
    """text: what is to be spoken, one paragraph a line. language: ISO 639-1 or "und". notes: for the user."""

    text: str
    language: str
    notes: tuple[str, ...] = ()


class TextNormalizer:
    """Safe to share between threads. backend: "wetext 0.1.8" or "built-in rules"."""

    def __init__(self, marks: Iterable[str] = (), *, use_wetext: bool = True):
        """marks: special tokens that a text may hold; they come out as they went in. use_wetext=False is as if it were
        not installed."""
        self.marks = tuple(sorted(marks, key=len, reverse=True))
        self._shield = {mark: chr(SHIELD + i) for i, mark in enumerate(self.marks)}
        self._unshield = {ord(c): mark for mark, c in self._shield.items()}
        self._mark_pattern = re.compile("|".join(map(re.escape, self.marks))) if self.marks else None
        self._wetext = _load_wetext() if use_wetext else None
        self._lock = threading.Lock()
        self.backend = f"wetext {self._wetext[2]}" if self._wetext else "built-in rules"
        log.info("text is normalised by %s", self.backend)

    @property
    def wfst(self) -> Callable[[str], str] | None:
        """The bare normaliser with the reference's choice of language; None when it is not installed."""
        return self._reference_wfst if self._wetext else None

    def __call__(self, text: str, language: str | None = None) -> Normalised:
        """Normalise text. language: ISO 639-1 to overrule detection."""
        notes: list[str] = []
        text = self._without_links(clean_characters(text), notes)
        text, tag_notes = neutralise_tags(text, self.marks)
        notes += tag_notes
        if self._mark_pattern:
            text = self._mark_pattern.sub(lambda m: self._shield[m[0]], text)
        text = THOUSANDS.sub(_joined, _plain_numerals(_without_markdown(ELLIPSIS.sub("... ", text))))
        wide_marks = re.search("[，。！？；：、]", text)
        whole = language or detect(text, fallback="zh" if wide_marks else "en")
        text = _paragraphs(text, wide=whole in ("zh", "ja"))
        lines = []
        for line in text.split("\n"):
            parts = [part for sentence in _sentences(line) for part in _by_language(sentence, language, whole)]
            lines.append("".join(self._read(part, spoken) for part, spoken in parts))
        spoken = _final(_only_spoken("\n".join(lines)), whole).translate(self._unshield)
        if whole in ("zh", "en") and not self._wetext and re.search(r"\d", text):
            notes.append("numbers were read by built-in rules: install wetext for better readings")
        return Normalised(spoken, whole, tuple(dict.fromkeys(notes)))

    def _read(self, text: str, language: str) -> str:
        """One sentence in the words of its language."""
        text = speak_literals(text, language)
        if language == "zh":
            for pattern, read in _ZH[0]:
                text = pattern.sub(read, text)
            text = self._by_wfst(text, "zh")
            for pattern, read in _ZH[1]:
                text = pattern.sub(read, text)
            return rules_zh.tidy(text)
        if language == "en":
            if numerals.available():
                for pattern, read in _EN[0]:
                    text = pattern.sub(read, text)
            text = self._by_wfst(text, "en")
            if numerals.available():
                for pattern, read in _EN[1]:
                    text = pattern.sub(read, text)
            return _keep_edges(text, rules_en.tidy(text))
        if numerals.available():
            text = rules_other.read_numbers(text, language)
        return text if language in ("ja", "ko") else _keep_edges(text, rules_en.tidy(text))

    def _by_wfst(self, text: str, language: str) -> str:
        if not self._wetext or not re.search(r"[0-9]", text):
            return text
        return WFST_SAFE.sub(lambda run: CLAUSE.sub(lambda m: self._clause(m[0], language), run[0]), text)

    def _clause(self, clause: str, language: str) -> str:
        core = clause.strip()
        if not 0 < len(re.findall(r"[0-9]+", core)) <= MOST_NUMBERS:
            return clause
        try:
            with self._lock:
                read = self._wetext[0 if language == "zh" else 1].normalize(core)
        except Exception as error:  # it fails by assertions and worse; the built-in rules read the clause then
            log.info("wetext failed on a clause (%s)", type(error).__name__)
            return clause
        read = read.replace('\\"', '"').replace("\\\\", "\\")
        if not _words_kept(core, read):
            return clause
        return clause.replace(core, read, 1)

    def _reference_wfst(self, text: str) -> str:
        normalizer = self._wetext[2 + (1 if re.search("[\u4e00-\u9fff]", text) else 2)]
        with self._lock:
            return normalizer.normalize(text)

    @staticmethod
    def _without_links(text: str, notes: list[str]) -> str:
        """Markdown links keep their words."""
        short = re.sub(r"!?\[([^\]\n]+)\]\((?:https?://|/|#)[^)\s]*\)", r"\1", text)
        if short != text:
            notes.append("the addresses behind links are not spoken")
        return short


def _load_wetext() -> tuple | None:
    """(zh, en, version, the reference's zh, the reference's en)."""
    try:
        from wetext import Normalizer

        pairs = Normalizer(lang="zh", remove_erhua=False), Normalizer(lang="en")
        version = importlib.metadata.version("wetext")
        if int(version.split(".")[1]) < 1 and version.startswith("0."):
            log.info("wetext %s loads its rules from the network; 0.1 or later is used offline", version)
            return None
        return (*pairs, version, Normalizer(remove_erhua=False), Normalizer())
    except Exception as error:  # a broken install must not stop the text; the backend says what is used
        log.info("wetext cannot be used (%s: %s)", type(error).__name__, error)
        return None


def _compiled(table: list) -> list[tuple[re.Pattern, Callable[[re.Match], str]]]:
    return [(re.compile(pattern), read) for pattern, read in table]


_ZH = _compiled(rules_zh.BEFORE), _compiled(rules_zh.AFTER)
_EN = _compiled(rules_en.BEFORE), _compiled(rules_en.AFTER)


def _sentences(line: str) -> list[str]:
    """line cut behind each sentence; joined again it is the same."""
    cuts = [i + 1 for i, c in enumerate(line) if c in "。！？!?…." and ends_piece(line, i)]
    sentences = [line[a:b] for a, b in zip([0, *cuts], [*cuts, len(line)], strict=True) if a < b]
    return [part for sentence in sentences for part in _bounded(sentence)]


def _by_language(sentence: str, language: str | None, whole: str) -> list[tuple[str, str]]:
    """(part, its language) of a sentence: one, or as many as it has turns between English and Chinese clauses."""
    own = language or detect(sentence, fallback=whole)
    if language or own not in ("en", "zh") or not (HAN.search(sentence) and re.search("[A-Za-z]{2}", sentence)):
        return [(sentence, own)]
    parts: list[tuple[str, str]] = []
    for clause in re.findall(r".+?(?:[，；;]|,(?!\d)|$)", sentence, re.S):
        spoken = detect(clause, fallback=own)
        if spoken not in ("en", "zh"):  # rare words in small letters are no names
            spoken = "en" if len(re.findall(r"\b[a-z]{2,}\b", clause)) > 1 else own
        if parts and parts[-1][1] == spoken:
            clause = parts.pop()[0] + clause
        parts.append((clause, spoken))
    return parts


def _bounded(sentence: str) -> list[str]:
    """sentence in parts of at most LONGEST_READ characters, cut where no number or word is, if there is such a place."""
    parts = []
    while len(sentence) > LONGEST_READ:
        window = sentence[:LONGEST_READ]
        places = (
            list(re.finditer(kind, window)) for kind in (r"[，,；;：:、](?!\d)|(?<![\d ]) ", r"[^\W\d](?=[^\x00-\x7f])")
        )
        cut = next((found[-1].end() for found in places if found and found[-1].end() > LONGEST_READ // 2), LONGEST_READ)
        parts.append(sentence[:cut])
        sentence = sentence[cut:]
    return [*parts, sentence] if sentence else parts


def _plain_numerals(text: str) -> str:
    """Digits of other scripts, circled numbers, fractions and Roman numeral signs as ASCII."""
    out = []
    for c in text.translate(SUBSCRIPTS):
        if c.isascii() or c in "⁰¹²³⁴⁵⁶⁷⁸⁹":
            out.append(c)
        elif c in VULGAR:
            out.append((" " if out and out[-1].isdigit() else "") + VULGAR[c])
        elif c.isdecimal():
            out.append(str(int(c)))
        elif unicodedata.category(c) in ("No", "Nl") and not HAN.match(c):
            out.append((" " if out and out[-1][-1:].isdigit() else "") + _numeral_sign(c))
        else:
            out.append(c)
    return "".join(out)


def _joined(match: re.Match) -> str:
    """A number without the blanks between its thousands."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    sure = match[2].endswith("000") or before.rstrip()[-1:] in tuple("€$£¥₹") or AMOUNT.match(after)
    if NO_THOUSANDS.search(before[-24:]) or (len(match[1]) == 3 and not sure):
        return match[0]
    return match[0].replace(" ", "")


def _numeral_sign(c: str) -> str:
    value = unicodedata.numeric(c, None)
    if value is None or value != int(value):
        return unicodedata.normalize("NFKC", c)
    return str(int(value))


def _without_markdown(text: str) -> str:
    text = re.sub(r"(?m)^[ ]*[-*+•·][ ]+", "\n", text)  # an item of a list is a paragraph
    text = re.sub(r"(?m)^[ ]*(?:#{1,6}[ ]+|>[ ]+|={3,}$|-{3,}$|\*{3,}$)", "", text)
    text = re.sub(
        r"\*\*([^*\n]+)\*\*|__([^_\n]+)__|(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])", lambda m: m[1] or m[2] or m[3], text
    )
    return text.replace("`", "")


def _paragraphs(text: str, wide: bool) -> str:
    """Lines that an editor broke are joined; every other line becomes a paragraph with a final mark."""
    lines = [line.strip() for line in text.split("\n")]
    out: list[str] = []
    open_line = False
    for i, line in enumerate(lines):
        if not line:
            open_line = False
            continue
        if open_line:
            out[-1] += ("" if wide or _wide_pair(out[-1], line) else " ") + line
        else:
            out.append(line)
        following = lines[i + 1] if i + 1 < len(lines) else ""
        wrapped = len(line) >= WRAPPED_CHARS[wide] or following[:1].islower()
        open_line = bool(following) and wrapped and not re.search(r"[.!?。！？…:：;；]$", line)
        if not open_line and i + 1 < len(lines) and not END_MARK.search(out[-1]):
            out[-1] += "。" if wide else "."
    return "\n".join(out)


def _wide_pair(left: str, right: str) -> bool:
    return bool(HAN.match(left[-1]) or HAN.match(right[0]))


def _words_kept(before: str, after: str) -> bool:
    """Whether a normaliser kept what it had no business to change: ideographs, and Latin words not beside a digit."""
    if Counter(HAN.findall(before)) - Counter(HAN.findall(after)):
        return False
    words = re.findall(r"(?<![\w.'])[A-Za-z]{4,}(?![\w.'])", before)
    folded = after.casefold()
    return all(word.casefold() in folded for word in words) and bool(after.strip())


def _keep_edges(before: str, after: str) -> str:
    """after with the blanks that before had at its ends, so that sentences stay apart."""
    lead = before[: len(before) - len(before.lstrip())]
    tail = before[len(before.rstrip()) :]
    return lead + after.strip() + tail if after.strip() else " "


def _only_spoken(text: str) -> str:
    """Signs without a reading become blanks; letters, marks of speech and shielded tags stay."""
    out = []
    for c in text:
        kind = unicodedata.category(c)
        if c in "⁰¹²³⁴⁵⁶⁷⁸⁹":  # a footnote's number: powers were read before
            continue
        out.append(
            c if kind[0] in "LMN" or c in SPOKEN_MARKS or c in "\n\u200c\u200d" or SHIELD <= ord(c) < 0xF8FF else " "
        )
    return "".join(out)


def _final(text: str, language: str) -> str:
    wide = language in ("zh", "ja")
    text = re.sub(r"[ ]*\n\s*", "\n", re.sub(r"[ ]{2,}", " ", text)).strip()
    if wide:
        text = re.sub(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])", "", text) if language == "zh" else text
    return re.sub(r"[，,、\s]+$", "。" if wide else ".", text) if re.search(r"\w", text) else text
