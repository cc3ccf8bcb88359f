"""Strings that are one token to a reader: web and mail addresses, IPs, versions, model names, phone numbers.

They are written out with the signs' names in the language of the text, so that nothing later can cut or misread them.
In a language without a table they stay as they are, and the splitter keeps them whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cosy_engine.text.numerals import cardinal, digits

SIGNS = {
    "zh": {".": "点", "/": "斜杠", ":": "冒号", "@": "艾特", "-": "杠", "_": "下划线", "?": "问号", "=": "等于", "&": "和",
           "#": "井号", "%": "百分号", "+": "加", "~": "波浪线", ",": "逗号"},
    "en": {".": "dot", "/": "slash", ":": "colon", "@": "at", "-": "dash", "_": "underscore", "?": "question mark",
           "=": "equals", "&": "and", "#": "hash", "%": "percent", "+": "plus", "~": "tilde", ",": "comma"},
    "de": {".": "Punkt", "/": "Schrägstrich", ":": "Doppelpunkt", "@": "at", "-": "Bindestrich", "_": "Unterstrich"},
    "fr": {".": "point", "/": "barre oblique", ":": "deux points", "@": "arobase", "-": "tiret", "_": "tiret bas"},
    "es": {".": "punto", "/": "barra", ":": "dos puntos", "@": "arroba", "-": "guion", "_": "guion bajo"},
    "it": {".": "punto", "/": "barra", ":": "due punti", "@": "chiocciola", "-": "trattino", "_": "trattino basso"},
    "pt": {".": "ponto", "/": "barra", ":": "dois pontos", "@": "arroba", "-": "hífen", "_": "sublinhado"},
    "ru": {".": "точка", "/": "слэш", ":": "двоеточие", "@": "собака", "-": "дефис", "_": "подчёркивание"},
    "ja": {".": "ドット", "/": "スラッシュ", ":": "コロン", "@": "アットマーク", "-": "ハイフン", "_": "アンダーバー"},
    "ko": {".": "점", "/": "슬래시", ":": "콜론", "@": "골뱅이", "-": "하이픈", "_": "밑줄"},
}  # fmt: skip
POINT = {"zh": "点", "en": "point", "de": "Punkt", "fr": "point", "es": "punto", "it": "punto", "pt": "ponto",
         "ru": "точка", "ja": "てん", "ko": "점", "nl": "punt"}  # fmt: skip
PLUS = {"zh": "加", "en": "plus", "de": "plus", "fr": "plus", "es": "más", "it": "più", "pt": "mais", "ru": "плюс",
        "ja": "プラス", "ko": "플러스", "nl": "plus"}  # fmt: skip

_TLD = (
    "com|org|net|edu|gov|mil|info|biz|io|ai|app|dev|tv|me|cc|co|xyz|top|site|online|shop|tech|cloud|eu|cn|uk|us|de|fr|es|"
    "ru|jp|kr|br|nl|ch|at|be|pl|se|ca|au|in|hk|tw|sg|html?|js|py|json|txt|pdf|csv|wav|mp3|md|exe|zip"
)
_PATH = r"(?:[:/?#][\w\-./?%&=+#~:@,]*[\w/=#])?"
MAIL = r"(?<![\w.+-])[A-Za-z0-9][\w.+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
URL = (
    rf"(?:https?|ftp)://[\w\-.]+{_PATH}|(?<![\w.@])www\.[\w-]+(?:\.[\w-]+)*{_PATH}"
    rf"|(?<![\w.@])(?:[A-Za-z0-9][\w-]*\.)+(?:{_TLD})(?![A-Za-z0-9_]){_PATH}"
    rf"|(?<![\w./])\.(?:{_TLD}|NET)(?![\w.])"
)
IP = r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)(?::\d+|/\d+)?"
_STAGE = r"(?:-?(?:alpha|beta|rc|dev|a|b)(?:[.-]?\d+)?(?![A-Za-z]))?"
VERSION = rf"(?<![A-Za-z\d.,])[vV]\.?\d+(?:\.\d+)*(?![\d.]*\d){_STAGE}|(?<![\d.,A-Za-z])\d+(?:\.\d+){{2,}}(?![\d.]*\d){_STAGE}"
# A capital or a digit right behind a letter tells a name (GPT-4.1, Qwen2.5-0.5B) from words (mid-1990s).
MODEL = (
    r"(?<![\w.])(?=[\w.-]*[A-Za-z])(?=[\w.-]*\d)(?:[A-Z][A-Za-z]*[-_ ]?(?<! )|[A-Za-z]+(?=\d))\d[A-Za-z0-9]*"
    r"(?:[-_.][A-Za-z0-9]+)*"
)
PHONE = (
    r"(?<![\w.,/-])(?<!\d=)(?<!\d= )(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d[\d .-]{5,14}\d"
    r"|\(\d{2,4}\) ?\d{3,4}[ .-]\d{3,4}|(?:1[ .-])?\d{3}[ .-]\d{3}[ .-]\d{4}|0\d{2,4}[ /-]\d{3,8}(?:[ -]\d{2,4})*"
    r"|400-\d{3,4}-\d{3,4}|\d{4}(?: \d{4}){2,3}"
    # a code of three groups or more, unless it is a date
    r"|(?!(?:1\d|20)\d\d-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])(?!\d)|(?:0?[1-9]|[12]\d|3[01])-(?:0?[1-9]|[12]\d|3[01])-(?:19|20)\d\d(?!\d))\d+(?:-\d+){2,}"
    r"|\d{3}-\d{4}|1[3-9]\d(?:[ -]?\d{4}){2}|0\d(?:[ .]\d\d){4})(?![\w/-]|[.,]\d|\s?=)"
)
PHONE_CONTEXT = re.compile(r"\b(?:call|phone|tel|dial|fax|number|reach|at|or|mobile)\b|电话|拨|致电", re.I)
_ASCII = re.ASCII  # a Chinese character must not count as part of an address


def speak_literals(text: str, language: str) -> str:
    """text with its literals written out in words."""
    if language not in SIGNS:
        return text
    for pattern, read in _RULES:
        text = pattern.sub(lambda match, read=read: read(match, language), text)
    return text


def _address(match: re.Match, language: str) -> str:
    written, tail = match[0], ""
    while written and written[-1] in ".,?:-":
        written, tail = written[:-1], written[-1] + tail
    return _spaced(_signed(written, language), match, language) + tail


def _signed(written: str, language: str) -> str:
    signs = SIGNS[language]
    parts = []
    for part in re.findall(r"[A-Za-z]+|\d+|.", written):
        spoken = digits(part, language) if part.isdigit() else signs.get(part, " " if not part.isalnum() else part)
        parts.append(spoken or part)
    if language == "zh":
        joined = "".join(" " + p + " " if p.isascii() else p for p in parts)
        return re.sub(r" +", " ", re.sub(r" ?([^\x00-\x7f]) ?", r"\1", joined)).strip()
    return " ".join(" ".join(parts).split())


def _ip(match: re.Match, language: str) -> str:
    if any(int(part) > 255 for part in re.split("[:/]", match[0])[0].split(".")):
        return _version(match, language)
    return _address(match, language)


def _version(match: re.Match, language: str) -> str:
    written = match[0]
    if re.fullmatch(r"(?:19|20)\d\d\.(?:0?[1-9]|1[0-2])\.(?:0?[1-9]|[12]\d|3[01])", written):
        return written.replace(".", "-")  # a date; its own rule reads it
    if language in ("de", "en", "zh") and re.fullmatch(
        r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?:19|20)\d\d", written
    ):
        return written  # likewise
    return _spaced(_named(written, language), match, language)


def _named(written: str, language: str) -> str:
    """Letters as they are, numbers as numbers, a dot as point, other signs as nothing."""
    parts: list[str] = []
    for part in re.findall(r"[A-Za-z]+|\d+|.", written):
        if part.isdigit():
            short = len(part) <= 2 and not (len(part) > 1 and part[0] == "0")
            spoken = cardinal(part, language) if short else digits(part, language)
            parts.append(spoken or part)
        elif part == ".":
            parts.append(POINT.get(language, "."))
        elif part.isalpha():
            parts.append(part)
    if language == "zh":
        return "".join(
            f" {p} " if p.isascii() and i and parts[i - 1].isascii() else p for i, p in enumerate(parts)
        ).strip()
    return " ".join(parts)


def _model(match: re.Match, language: str) -> str:
    return _spaced(_named(match[0], language), match, language)


def _phone(match: re.Match, language: str) -> str:
    if re.fullmatch(r"\d{3}-\d{4}", match[0]) and not PHONE_CONTEXT.search(match.string[: match.start()][-24:]):
        return match[0]  # as well a range
    groups = re.findall(r"\d+", match[0])
    spoken = [digits(group, language, phone=True) for group in groups]
    if None in spoken:
        return match[0]
    comma = "" if language in ("zh", "ja", "ko") else ","
    plus = PLUS.get(language, "plus") + (" " if comma else "") if match[0].startswith("+") else ""
    return _spaced(plus + (f"{comma} " if comma else "").join(spoken), match, language)


def _spaced(spoken: str, match: re.Match, language: str) -> str:
    """spoken, parted by blanks from letters and digits that touch the match (other scripts excepted)."""
    if language in ("zh", "ja"):
        return spoken
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return (" " if before.isalnum() else "") + spoken + (" " if after.isalnum() else "")


_RULES: list[tuple[re.Pattern, Callable[[re.Match, str], str]]] = [
    (re.compile(MAIL, _ASCII), _address),
    (re.compile(URL, _ASCII), _address),
    (re.compile(IP, _ASCII), _ip),
    (re.compile(PHONE, _ASCII), _phone),
    (re.compile(VERSION, _ASCII), _version),
    (re.compile(MODEL, _ASCII), _model),
]
