"""Digits to number words in many languages. Chinese and Korean counters are ours, the rest is num2words."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation

ZH_DIGITS = "零一二三四五六七八九"
ZH_GROUPS = ("", "万", "亿", "万亿", "亿亿")
KO_ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
KO_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
DIGITS = {
    "zh": ZH_DIGITS,
    "ja": ("ゼロ", "いち", "に", "さん", "よん", "ご", "ろく", "なな", "はち", "きゅう"),
    "ko": "공일이삼사오육칠팔구",
}
LARGEST_DIGITS = 15  # longer runs are codes, not quantities


def digits(run: str, language: str, *, phone: bool = False) -> str | None:
    """A run of digits one by one, None when the language is not known. phone: Chinese says yao for one."""
    if language == "zh":
        words = "".join(ZH_DIGITS[int(c)] for c in run)
        return words.replace("一", "幺") if phone else words
    table = DIGITS.get(language)
    if table:
        return ("" if language == "ko" else " ").join(table[int(c)] for c in run)
    spoken = [cardinal(c, language) for c in run]
    return None if None in spoken else " ".join(spoken)


def cardinal(number: str, language: str) -> str | None:
    """`number` ("12", "3.50"; a dot parts decimals) in words, None when the language cannot be spelled here.

    Runs that are too long for a quantity are read digit by digit. Decimals are read digit by digit after the point.
    """
    whole, _, fraction = number.partition(".")
    whole = whole or "0"
    if len(whole) > LARGEST_DIGITS and not fraction:
        return digits(whole, language)
    if language == "zh":
        return zh_cardinal(int(whole)) + ("点" + digits(fraction, "zh") if fraction else "")
    if fraction and language == "en":
        point = [cardinal(whole, "en"), "point", digits(fraction, "en")]
        return None if None in point else " ".join(point)
    return _spelled(whole if not fraction else f"{whole}.{fraction}", language)


def available() -> bool:
    """Whether languages other than Chinese can be spelled at all."""
    return _num2words() is not None


def ordinal(number: str, language: str) -> str | None:
    return _spelled(number, language, "ordinal")


def year(number: str, language: str) -> str | None:
    """A year the way years are said: 1999 is nineteen ninety-nine, in Chinese digit by digit."""
    return digits(number, "zh") if language == "zh" else _spelled(number, language, "year")


def zh_cardinal(n: int) -> str:
    """一千零二十四 of 1024; 两 before 百, 千, 万 and 亿 stays 二, which is always right."""
    if n == 0:
        return "零"
    groups: list[int] = []
    while n:
        n, rest = divmod(n, 10000)
        groups.append(rest)
    if len(groups) > len(ZH_GROUPS):
        return "".join(ZH_DIGITS[int(c)] for c in "".join(f"{g:04d}" for g in reversed(groups)).lstrip("0"))
    out, gap = "", False
    for i in reversed(range(len(groups))):
        group = groups[i]
        if not group:
            gap = bool(out)
            continue
        if out and (gap or group < 1000):
            out += "零"
        out += _zh_thousands(group, first=not out) + ZH_GROUPS[i]
        gap = False
    return out


def _zh_thousands(n: int, first: bool) -> str:
    out, gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // unit % 10
        if not digit:
            gap = bool(out)
            continue
        if gap:
            out += "零"
        gap = False
        out += name if unit == 10 and digit == 1 and not out and first else ZH_DIGITS[digit] + name
    return out


def ko_native(number: str) -> str | None:
    """The native Korean numeral that stands before a counter (세 시, 스무 살), None above 99."""
    if not number.isdigit() or not 1 <= int(number) <= 99:
        return None
    tens, ones = divmod(int(number), 10)
    return "스무" if (tens, ones) == (2, 0) else KO_TENS[tens] + KO_ONES[ones]


def _spelled(number: str, language: str, to: str = "cardinal") -> str | None:
    convert = _num2words()
    if convert is None:
        return None
    try:
        value = Decimal(number) if "." in number else int(number)
        words = convert(value, lang=language, to=to)
    except (NotImplementedError, InvalidOperation, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
        return None
    return " ".join(words.replace(" ,", ",").split()) if isinstance(words, str) else None


def _num2words() -> Callable | None:
    try:
        from num2words import num2words
    except ImportError:
        return None
    return num2words
