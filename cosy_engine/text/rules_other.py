"""How other languages read numbers: spelled by num2words with the language's own marks, or left for the model.

Nothing here ever reads a digit in English. Grammatical agreement (gender, case) is not attempted.
"""

from __future__ import annotations

import re

from cosy_engine.text.numerals import cardinal, digits, ko_native, ordinal, year

# decimal: the mark before decimals. thousands: what may part groups of three.
MARKS = {
    "de": (",", "."), "fr": (",", " "), "es": (",", "."), "it": (",", "."), "pt": (",", "."), "nl": (",", "."), "ru": (",", " "),
    "uk": (",", " "), "pl": (",", " "), "sv": (",", " "), "tr": (",", "."), "vi": (",", "."), "ja": (".", ","), "ko": (".", ","),
    "th": (".", ","), "ar": (".", ","), "he": (".", ","),
}  # fmt: skip
PERCENT = {
    "de": "Prozent", "fr": "pour cent", "es": "por ciento", "it": "per cento", "pt": "por cento", "nl": "procent", "ru": "процентов",
    "uk": "відсотків", "pl": "procent", "sv": "procent", "tr": "yüzde", "vi": "phần trăm", "ja": "パーセント", "ko": "퍼센트",
    "th": "เปอร์เซ็นต์", "ar": "بالمئة", "he": "אחוז",
}  # fmt: skip
MINUS = {
    "de": "minus", "fr": "moins", "es": "menos", "it": "meno", "pt": "menos", "nl": "min", "ru": "минус", "uk": "мінус", "pl": "minus",
    "sv": "minus", "tr": "eksi", "vi": "âm", "ja": "マイナス", "ko": "마이너스", "th": "ลบ", "ar": "سالب", "he": "מינוס",
}  # fmt: skip
TO = {
    "de": "bis", "fr": "à", "es": "a", "it": "a", "pt": "a", "nl": "tot", "ru": "до", "uk": "до", "pl": "do", "sv": "till", "tr": "ila",
    "vi": "đến", "ja": "から", "ko": "에서", "th": "ถึง", "ar": "إلى", "he": "עד",
}  # fmt: skip
CLOCK = {"de": " Uhr ", "fr": " heures ", "ja": "時", "ko": "시 "}  # between hour and minute; a blank elsewhere
CURRENCIES = ("€", "$", "£", "R$", "₹", "¢")
MONEY = {
    "de": ("Euro", "Dollar", "Pfund", "Real", "Rupien", "Cent"), "fr": ("euros", "dollars", "livres", "réaux", "roupies", "centimes"),
    "es": ("euros", "dólares", "libras", "reales", "rupias", "centavos"), "it": ("euro", "dollari", "sterline", "real", "rupie", "centesimi"),
    "pt": ("euros", "dólares", "libras", "reais", "rupias", "centavos"), "nl": ("euro", "dollar", "pond", "real", "roepie", "cent"),
    "ru": ("евро", "долларов", "фунтов", "реалов", "рупий", "центов"), "uk": ("євро", "доларів", "фунтів", "реалів", "рупій", "центів"),
    "pl": ("euro", "dolarów", "funtów", "reali", "rupii", "centów"), "ja": ("ユーロ", "ドル", "ポンド", "レアル", "ルピー", "セント"),
    "ko": ("유로", "달러", "파운드", "헤알", "루피", "센트"),
}  # fmt: skip
EQUALS = {"de": "gleich", "fr": "égale", "es": "igual a", "it": "uguale a", "pt": "igual a", "ru": "равно"}
PLUS = {
    "de": "plus",
    "fr": "plus",
    "es": "más",
    "it": "più",
    "pt": "mais",
    "nl": "plus",
    "ru": "плюс",
    "ja": "プラス",
    "ko": "플러스",
}
AND = {
    "de": "und",
    "fr": "et",
    "es": "y",
    "it": "e",
    "pt": "e",
    "nl": "en",
    "ru": "и",
    "pl": "i",
    "sv": "och",
    "tr": "ve",
}
DEGREES = {"de": "Grad", "fr": "degrés", "es": "grados", "it": "gradi", "pt": "graus", "nl": "graden", "ru": "градусов",
           "ja": "度", "ko": "도"}  # fmt: skip
NUMBER = {"de": "Nummer", "fr": "numéro", "es": "número", "it": "numero", "pt": "número"}
KO_COUNTERS = "시간|시|살|개|명|마리|번|장|병|잔|권|대|채|그루|켤레|송이|사람|달|가지|군데"
DE_MONTHS = "Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
DE_DATE = r"(?<![\d.])(0?[1-9]|[12]\d|3[01])\.(0?[1-9]|1[0-2])\.((?:1\d|20)\d\d)(?!\d)"
TIGHT = ("ja", "th")  # written without blanks


def read_numbers(text: str, language: str) -> str:
    """text with its numbers spelled; unchanged where the language is not known here."""
    if language not in MARKS:
        return text
    decimal, thousands = MARKS[language]
    text = re.sub(rf"(?<![\d{re.escape(decimal)}])(\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+)(?!\d)",
                  lambda m: m[1].replace(thousands, ""), text)  # fmt: skip
    number = rf"\d+(?:{re.escape(decimal)}\d+)?"

    def say(written: str) -> str:
        return cardinal(written.replace(decimal, "."), language) or written

    def gap(m: re.Match, words: str) -> str:
        if language in TIGHT:
            return words
        before, after = m.string[: m.start()][-1:], m.string[m.end() :][:1]
        lead = " " if before.isalnum() else ""
        tail = " " if after.isalnum() and language != "ko" else ""
        return lead + words + tail

    def sub(pattern: str, read, flags: int = 0) -> None:
        nonlocal text
        text = re.sub(pattern, lambda m: gap(m, read(m)), text, flags=flags)

    if language == "ko":
        sub(rf"(?<![\d.])(\d{{1,2}})(?=\s?(?:{KO_COUNTERS})(?!\d))", lambda m: ko_native(m[1]) or say(m[1]))
    if language == "de":
        text = re.sub(DE_DATE, lambda m: f"{int(m[1])}. {DE_MONTHS.split('|')[int(m[2]) - 1]} {m[3]}", text)
        sub(rf"\b((?i:der|die|das)) (\d{{1,2}})\. (?=(?:{DE_MONTHS})\b)", lambda m: f"{m[1]} {ordinal(m[2], 'de')} ")
        sub(
            rf"\b((?i:am|dem|den|vom|zum|bis|des|im)) (\d{{1,2}})\. (?=(?:{DE_MONTHS})\b)",
            lambda m: f"{m[1]} {ordinal(m[2], 'de')}n ",
        )
        sub(rf"\b(\d{{1,2}})\. (?=(?:{DE_MONTHS})\b)", lambda m: f"{ordinal(m[1], 'de')}r ")
    if language == "fr":
        sub(
            r"\b(\d+)(?:ers?|ère|re|nde?|èmes?|emes?|es?)\b",
            lambda m: ordinal(m[1], "fr") + ("e" if m[0][-2:] in ("re", "de") else "") or m[0],
        )
    if language in ("es", "it", "pt"):
        sub(r"\b(\d+)\.?([ºª])", lambda m: _feminine(ordinal(m[1], language) or m[0], m[2] == "ª"))
    sub(r"\b[Nn][°º]\s?(?=\d)", lambda m: NUMBER.get(language, m[0].strip()) + " ")
    sub(r"(?<![\d:])([01]?\d|2[0-4])[:h]([0-5]\d)(?![\d:])(?: Uhr\b)?", lambda m: _clock(m, language, say))
    # $45.30 has its own country's point
    sub(r"(?<![A-Za-z])(R\$|(?:US)?\$|[€£₹])\s?(\d+\.\d\d)(?![.,]?\d)", lambda m: _money(m[1], m[2], language, say))
    sub(rf"(?<![A-Za-z])(R\$|(?:US)?\$|[€£₹])\s?({number})", lambda m: _money(m[1], m[2], language, say))
    sub(rf"({number})\s?(R\$|[€$£₹¢])", lambda m: _money(m[2], m[1], language, say))
    sub(rf"({number})\s?%", lambda m: f"{say(m[1])} {PERCENT[language]}".replace(" ", "" if language in TIGHT else " "))
    if language in DEGREES:
        sub(
            rf"({number})\s?(?:°C?|℃)(?![A-Za-z])",
            lambda m: say(m[1]) + ("" if language in TIGHT else " ") + DEGREES[language],
        )
    sub(rf"({number})\s?[-–—~～〜]\s?(?={number})", lambda m: f"{say(m[1])} {TO[language]} ")
    sub(rf"(?<![\w.%)])[-−]({number})", lambda m: f"{MINUS[language]} {say(m[1])}")
    for sign, table in (("=", EQUALS), ("+", PLUS), ("&", AND)):
        if language in table:
            sub(rf"\s?\{sign}\s?(?=\w)", lambda m, word=table[language]: f" {word} ")
    sub(r"(?<![\d.,])(0\d+|\d{12,})(?![.,]?\d)", lambda m: digits(m[1], language) or m[1])
    if language == "de":
        sub(r"(?<![\d.,])(1[1-9]\d\d)(?![.,]?\d)", lambda m: year(m[1], "de") or m[1])
    sub(rf"(?<![\d]){number}", lambda m: say(m[0]))
    return re.sub(r"  +", " ", text)


def _feminine(word: str, wanted: bool) -> str:
    return word[:-1] + "a" if wanted and word.endswith("o") else word


def _clock(m: re.Match, language: str, say) -> str:
    hour = ko_native(str(int(m[1]))) if language == "ko" and 1 <= int(m[1]) <= 12 else None
    words = (hour or say(str(int(m[1])))) + CLOCK.get(language, " ")
    if int(m[2]):
        words += say(str(int(m[2]))) + {"ja": "分", "ko": "분"}.get(language, "")
    return words.strip()


def _money(sign: str, amount: str, language: str, say) -> str:
    names = MONEY.get(language)
    if not names:
        return f"{say(amount)} {sign}"
    whole, _, cents = amount.replace(",", ".").partition(".")
    name = names[CURRENCIES.index(sign.removeprefix("US"))]
    if len(cents) != 2:
        return f"{say(amount)} {name}"
    return f"{say(whole)} {name}" + (f" {say(str(int(cents)))}" if int(cents) else "")
