"""How English reads what is written in digits and signs; see rules_zh for the two tables."""

from __future__ import annotations

import re

from cosy_engine.text.numerals import cardinal, digits, ordinal, year
from cosy_engine.text.rules_zh import EQUATION, SUPERSCRIPTS, in_words, roman

_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()
_MONTH = "|".join(MONTHS) + "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec"
UNITS = {  # sign: (one, many)
    "mmHg": ("millimeter of mercury", "millimeters of mercury"), "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"), "L": ("liter", "liters"), "mg": ("milligram", "milligrams"),
    "kg": ("kilogram", "kilograms"), "g": ("gram", "grams"), "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"), "mm": ("millimeter", "millimeters"), "nm": ("nanometer", "nanometers"),
    "m": ("meter", "meters"), "ft": ("foot", "feet"), "lb": ("pound", "pounds"), "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"), "mi": ("mile", "miles"), "kW": ("kilowatt", "kilowatts"), "W": ("watt", "watts"),
    "kWh": ("kilowatt hour", "kilowatt hours"), "mAh": ("milliamp hour", "milliamp hours"), "V": ("volt", "volts"),
    "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"), "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"), "dB": ("decibel", "decibels"), "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"), "GB": ("gigabyte", "gigabytes"), "TB": ("terabyte", "terabytes"),
    "Mbps": ("megabit per second", "megabits per second"), "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"), "min": ("minute", "minutes"), "hr": ("hour", "hours"), "hrs": ("hour", "hours"), "h": ("hour", "hours"),
    "mph": ("mile per hour", "miles per hour"), "kcal": ("kilocalorie", "kilocalories"),
    "°C": ("degree Celsius", "degrees Celsius"), "℃": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "℉": ("degree Fahrenheit", "degrees Fahrenheit"),
    "¢": ("cent", "cents"), "°": ("degree", "degrees"), "m²": ("square meter", "square meters"), "km²": ("square kilometer", "square kilometers"),
    "μm": ("micrometer", "micrometers"), "μg": ("microgram", "micrograms"), "μL": ("microliter", "microliters"),
    "μs": ("microsecond", "microseconds"), "Ω": ("ohm", "ohms"), "kΩ": ("kiloohm", "kiloohms"), "MΩ": ("megaohm", "megaohms"),
    "m³": ("cubic meter", "cubic meters"), "cm³": ("cubic centimeter", "cubic centimeters"),
}  # fmt: skip
PER = {"h": "hour", "s": "second", "min": "minute", "day": "day", "L": "liter", "l": "liter", "kg": "kilogram", "dl": "deciliter",
       "m²": "square meter", "m³": "cubic meter", "week": "week", "month": "month", "year": "year"}  # fmt: skip
CURRENCIES = {"HK$": ("Hong Kong dollar", "Hong Kong dollars", "cent"), "$": ("dollar", "dollars", "cent"), "€": ("euro", "euros", "cent"), "£": ("pound", "pounds", "penny"),
              "¥": ("yen", "yen", ""), "￥": ("yuan", "yuan", ""), "US$": ("dollar", "dollars", "cent"), "₹": ("rupee", "rupees", "")}  # fmt: skip
ABBREVIATIONS = {"Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Dr": "Doctor", "Prof": "Professor", "vs": "versus",
                 "etc": "et cetera", "Jr": "Junior", "Sr": "Senior", "approx": "approximately", "Gen": "General"}  # fmt: skip
NUMBERED_THINGS = {"Sec": "Section", "Ch": "Chapter", "Chap": "Chapter", "Eq": "Equation", "Fig": "Figure", "Vol": "Volume", "Art": "Article",
                   "Ext": "extension", "No": "number", "Nos": "numbers", "P": "page", "Pg": "page", "Pp": "pages", "Pt": "Part", "Ver": "version"}  # fmt: skip
LETTERED = re.compile(
    r"\b(?:vitamin|plan|option|grade|group|type|class|part|team|section|appendix|exhibit|point|hepatitis|answer|letter) $",
    re.I,
)
# Words that begin a sentence more often than they follow an abbreviation within one.
_BEGINS = (
    "He|She|It|We|They|I|I'm|You|The|This|That|These|Those|There|Then|But|And|So|In|On|At|My|His|Her|Our|Their|Your|If|When|What|Why|"
    "Who|How|Where|After|Before|For|Now|Not|No|Yes|Please|Let|As|Is|Are|Do|Did|Can|Some|Many|All|Most"
)
_ENDS = rf"(?=[\"'”’)]*\s*$|[\"'”’)]*\s+(?:{_BEGINS})\b)"  # where the dot of an abbreviation ends the sentence too
MONARCHS = (
    "Henry|Louis|Elizabeth|Charles|George|Edward|Richard|James|William|John|Paul|Pius|Benedict|Gregory|Francis|Philip|"
    "Peter|Catherine|Alexander|Nicholas|Frederick|Ramses|Napoleon|Otto|Leo|Clement|Innocent"
)
NUMBERED = "Chapter|Part|Act|Scene|Volume|Book|Section|Article|Appendix|Level|Phase|Stage|Type|Class|Grade|War|Step|Figure|Table|Title|Mark"

_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = "|".join(re.escape(u) for u in sorted(UNITS, key=len, reverse=True))
_PER = "|".join(re.escape(u) for u in sorted(PER, key=len, reverse=True))
_MONEY = "|".join(re.escape(c) for c in sorted(CURRENCIES, key=len, reverse=True))
_DASH = r"\s?[-–—~]\s?"
_DAY = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_YEAR = r"(?:1[1-9]\d\d|20\d\d|10[1-9]\d)"
_SCALE = r"(?:\s?(thousand|million|billion|trillion|[kKmMbB](?:n|il)?)\b)?"
SCALES = {"k": "thousand", "m": "million", "b": "billion"}

BEFORE = [
    (rf"(?<![\w.%)\]])[-−](?=(?:{_MONEY})?\d)", lambda m: "minus "),
    (r"(?<!\w)~\s?(?=\d)", lambda m: "about "),
    (r"(?<![\w.])(\d{1,3}(?:\.\d{3})+),(\d\d)(?!\d)", lambda m: f"{m[1].replace('.', '')}.{m[2]}".removesuffix(".00")),  # as the continent writes it
    (r"(?i:(?<=\d)(\s?[ap]\.?m\.?)?)\s?[-–—~]\s?(?=\d{1,2}:[0-5]\d)", lambda m: f"{m[1] or ''} to "),
    (rf"\b((?:{_DAY}|{_MONTH})[a-z]*)–(?=(?:{_DAY}|{_MONTH}))", lambda m: f"{m[1]} to "),
    (r"(?<=\b[A-Za-z])\^(-?)(\d+)", lambda m: _raised(m[1], m[2])),
    (EQUATION, lambda m: in_words(m[0], {"-": " minus ", "/": " divided by ", "*": " times "})),
    (r"√\s?(?=[\dA-Za-z(])", lambda m: "the square root of "),
    (r"(?<!\w)(\d)'(\d{1,2})\"", lambda m: f"{_n(m[1])} foot {_n(m[2])}"),
    (r"(?<!\w)(\d+)\s?\^\s?(-?)(\d+)", lambda m: f"{_n(m[1])} to the power of {'minus ' * bool(m[2])}{_n(m[3])}"),
    (r"(?<![\w.])(\d+)x(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", lambda m: f"{_n(m[1])} x"),
    (r"(?<=[\d)])(⁻?)([⁰¹²³⁴⁵⁶⁷⁸⁹]+)|(?<=(?<![A-Za-z])[A-Za-z])(?<!\dm)(?<!\d m)(⁻?)([⁰¹²³⁴⁵⁶⁷⁸⁹]+)|(?<=(?<![A-Za-z\d])(?<!\d )(?!am|an|as|at|be|by|do|go|he|if|in|is|it|me|my|no|of|on|or|so|to|up|us|we)[A-Za-z]{2})(⁻?)([²³])",
     lambda m: _power(m[1] or m[3] or m[5], m[2] or m[4] or m[6]) + " " * m.string[m.end() :][:1].isalnum()),
    (rf"(?<=\d)\s?[×]\s?(?={_NUMBER})", lambda m: " times "),
    (r"\s?÷\s?", lambda m: " divided by "),
    (r"\s?=\s?", lambda m: " equals "),
    (r"§\s?(?=\d)", lambda m: "section "),
    (rf"(?<![\d.,])(\d+),(\d{{1,2}})(?=\s?(?:{_UNIT}|%)(?![A-Za-z]))|(?<=[$€£¥])(\s?\d+),(\d\d)(?![\d,])",
     lambda m: f"{m[1] or m[3]}.{m[2] or m[4]}"),  # a decimal comma, as the continent writes it
    (r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,]*\d)", lambda m: m[1].replace(",", "")),
    (rf"(?<!\d)({_YEAR})[-/](0?[1-9]|1[0-2])[-/](0?[1-9]|[12]\d|3[01])(?!\d)", lambda m: _date(m[2], m[3], m[1])),
    (rf"(?<![\d/])(0?[1-9]|1[0-2])/(0?[1-9]|[12]\d|3[01])/({_YEAR})(?!\d)", lambda m: _date(m[1], m[2], m[3])),
    (rf"(?<![\d-])(0?[1-9]|1[0-2])-(0?[1-9]|[12]\d|3[01])-({_YEAR})(?![\d-])", lambda m: _date(m[1], m[2], m[3])),
    (rf"(?<![\d.-])(0?[1-9]|[12]\d|3[01])[.-](0?[1-9]|1[0-2])[.-]({_YEAR})(?![\d-])", lambda m: _date(m[2], m[1], m[3])),
    (r"(?<![\d/.])(0?[1-9]|1[0-2])/(0?[1-9]|[12]\d|3[01])/(\d\d)(?![\d/]|\s?=)", lambda m: _date(m[1], m[2], ("20" if int(m[3]) < 50 else "19") + m[3])),
    (rf"\b({_MONTH})\.?\s(\d{{1,2}})(?:st|nd|rd|th)?,?\s({_YEAR})\b", lambda m: f"{_month(m[1])} {ordinal(m[2], 'en')}, {year(m[3], 'en')}"),
    (rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?({_MONTH})\.?,?\s({_YEAR})\b", lambda m: f"{_month(m[2])} {ordinal(m[1], 'en')}, {year(m[3], 'en')}"),
    (rf"\b({_MONTH})\.?\s(\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)", lambda m: f"{_month(m[1])} {ordinal(m[2], 'en')}"),
    (rf"\b({_MONTH})\.?,?\s({_YEAR})\b", lambda m: f"{_month(m[1])} {year(m[2], 'en')}"),
    (rf"\b({_YEAR}){_DASH}({_YEAR})\b", lambda m: f"{year(m[1], 'en')} to {year(m[2], 'en')}"),
    (r"\b((?:1[1-9]|20)\d)0s\b", lambda m: _plural(year(m[1] + "0", "en"))),
    (r"(?<!\w)'?([2-9])0s\b", lambda m: _plural(cardinal(m[1] + "0", "en"))),
    (rf"(?i:\b(in|since|by|from|until|till|of|year|circa|during|before|after|born|around|early|late|mid|summer|winter|spring|autumn|fall|©)[ -])({_YEAR})\b(?![.,]\d|%|\s?(?:{_UNIT})\b|\s(?:people|men|women|dollars|euros|pounds|yuan|yen|steps|words|times|points|votes|copies|students|years|days))",
     lambda m: f"{m[0][: -len(m[2])]}{year(m[2], 'en')}"),
    (rf"\(({_YEAR})\)", lambda m: f"({year(m[1], 'en')})"),
    (r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?![\d:]|\.\d)", lambda m: _time(m)),
    (r"(?<![\d:.])(\d{4,}):(\d{4})(?![\d:])", lambda m: f"{_n(m[1])} {year(m[2], 'en')}"),  # a standard and its year
    (rf"(?<![\d:.])({_NUMBER}):({_NUMBER})(?![\d:])", lambda m: f"{_n(m[1])} to {_n(m[2])}"),
    (rf"(?<![\d/.])(\d+\.\d+)/({_NUMBER})(?![\d/])", lambda m: f"{_n(m[1])} out of {_n(m[2])}"),
    (r"(?<![\w.])(?:(\d+)\s?h(?:rs?)?\s?)?(\d+)\s?m(?:in)?(?:\s?(\d+)\s?s(?:ec)?)?(?!\w)", lambda m: _duration(m)),
    (r"\bno (\d+)(?![\d.,:/-]*\d)", lambda m: f"no {_n(m[1])}"),  # wetext takes it for a number's sign
    (r"(?<![\d/.-])(20/20|9/11|(\d+)-\2)(?![\d/.-])", lambda m: " ".join(map(_n, re.split("[/-]", m[1])))),
    (r"(?<![\d/.])(\d+)/\1(?![\d/.])", lambda m: f"{_n(m[1])} out of {_n(m[1])}"),
    (r"(?<![\d/.])(\d+)/(\d+)(?=\s?mmHg)", lambda m: f"{_n(m[1])} over {m[2]}"),
    (rf"(?<!\d)(1[3-9]|2\d|3[01])/(0?[1-9]|1[0-2])/({_YEAR})(?!\d)", lambda m: _date(m[2], m[1], m[3])),
    (rf"({_MONEY})\s?({_NUMBER}){_DASH}(?:\1)?({_NUMBER})({_SCALE})(?![\d.]*\d)",
     lambda m: f"{_n(m[2])} to {_money(m[1], m[3], None, m[5])}"),
    (rf"(?<![\w.])(?<![$€£¥￥₹])(?<![$€£¥￥₹] )(?!3M\b)({_NUMBER})(M|(?<=\d\d)[kK]|(?<=\.\d)[kK])\b", lambda m: f"{_n(m[1])} {SCALES[m[2].lower()]}"),
    (r"\b[Nn]°\s?(?=\d)", lambda m: "number "),
    (rf"(?i:\b(an?)) ({_MONEY})\s?(?:(\d+\.\d+)(?=\s?[a-zA-Z])|(\d+)(?![\d.]*\d)){_SCALE}(?= [a-z])(?! (?:and|or|for|in|on|at|to|from|is|was)\b)",
     lambda m: f"{m[1]} {_attribute(m[2], m[3] or m[4], m[5])}"),
    (rf"({_MONEY})\s?(\d+)(?:\.(\d\d))?{_SCALE}(?![\d.]*\d)", lambda m: _money(m[1], m[2], m[3], m[4])),
    (rf"({_MONEY})\s?({_NUMBER}){_SCALE}", lambda m: _money(m[1], m[2], None, m[3])),
    (r"(?i:\b(call|dial|phone|extension|ext\.|code|PIN|zip)(?: number)? )(\d{3,})\b(?!\s(?:people|times|of))", lambda m: m[0][: -len(m[2])] + digits(m[2], "en")),
    (r"\b24/7\b", lambda m: "twenty-four seven"),
    (rf"(?<![\w.\-/])({_NUMBER})(\s?(?:%|{_UNIT}|[ap]\.?m\.?)?){_DASH}(?={_NUMBER}(?![\w./-]*-\d))", lambda m: f"{m[1]}{m[2]} to "),
    (rf"(?<![\w.])({_NUMBER})\s?({_UNIT})\s?/\s?({_PER})(?![A-Za-z])", lambda m: f"{_unit(m[1], m[2])} per {PER[m[3]]}"),
    (rf"(?<![\w.])({_NUMBER})\s?({_UNIT})(?![A-Za-z0-9²³'’])", lambda m: _unit(m[1], m[2])),
    (r"(?<![\d.,])(0\d+)(?!\d*[.,:/]\d)", lambda m: digits(m[1], "en")),
    (r"(?<![\d.,])(\d{11,})(?![\d.,]*\d)", lambda m: digits(m[1], "en")),
    (r"\b(\d+)(?:st|nd|rd|th)\b", lambda m: ordinal(m[1], "en")),
    (rf"\b({MONARCHS}) ([IVX]+)\b(?!')", lambda m: f"{m[1]} the {ordinal(str(roman(m[2])), 'en')}" if roman(m[2]) else m[0]),
    (rf"\b((?:{NUMBERED}) )([IVXL]+)\b", lambda m: m[1] + _n(str(roman(m[2]))) if roman(m[2]) else m[0]),
    (r"\b([A-Z][a-z]+ )(II|III|IV|VI{1,3}|IX|XI{1,3}|XIV|XV|XVI{0,3}|XIX|XX)\b", lambda m: m[1] + _n(str(roman(m[2])))),
    (rf"(?<![\w.,:/$€£-])(\d{{4,}})(?![\w.,:/%-]*\d|[\w%/]|\s?(?:{_UNIT})\b)", lambda m: _n(m[1])),  # wetext takes it for a year
    (r"[#№] ?(?=\d)", lambda m: "number "),
    (r"\be\.g\.", lambda m: "for example"),
    (r"\bi\.e\.", lambda m: "that is"),
    (rf"(?<![\w.])(?:[A-Za-z]\.(?:\s?[A-Za-z]\.)+|Ph\.\s?D\.)({_ENDS})?", lambda m: _letters(m[0], m[1] is not None) + " " * m.string[m.end() :][:1].isalnum()),
    (rf"(?<![\w.'’])([A-Z])\. (?!(?:{_BEGINS})\b)(?=[A-Z])", lambda m: m[0] if LETTERED.search(m.string[: m.start()]) else f"{m[1]} "),  # an initial of a name
    (rf"(?i:\b({'|'.join(NUMBERED_THINGS)}))\.\s?(?=[(§]?\d)", lambda m: _thing(m[1])),
    (r"(?i:\b(my|your|his|her|its|our|their|the|phone|serial|order|account|reference|flight|room) no)\.(?=\s[a-z])", lambda m: f"{m[1]} number"),
    (rf"\b({'|'.join(ABBREVIATIONS)})\.(?=\s\S)", lambda m: ABBREVIATIONS[m[1]]),
    (r"\betc\.(?=\s*$)", lambda m: "et cetera."),
    (r"(?<![\w.])(\d+\.\d+)(?=[A-Za-z])", lambda m: f"{_n(m[1])} "),  # wetext would part it at the dot
]  # fmt: skip

AFTER = [
    (rf"({_NUMBER})\s?%", lambda m: f"{_n(m[1])} percent" + " " * m.string[m.end() :][:1].isalpha()),
    (r"\b(\d+) (\d+)/(\d+)\b", lambda m: f"{_n(m[1])} and {_fraction(m[2], m[3])}"),
    (r"(?<![\d/.])(\d+)/(\d+)(?![\d/])", lambda m: _fraction(m[1], m[2])),
    (rf"(?<=\d)\s?[×x*]\s?(?={_NUMBER})", lambda m: " times "),
    (r"(?<=[\d\w)])\s?×\s?(?=\w)", lambda m: " times "),
    (r"\b(\d+)x\b", lambda m: f"{_n(m[1])} times"),
    (r"\s?≠\s?", lambda m: " is not equal to "),
    (r"\s?≥\s?", lambda m: " is at least "),
    (r"\s?≤\s?", lambda m: " is at most "),
    (r"\s?≈\s?", lambda m: " is about "),
    (r"\s?±\s?", lambda m: " plus or minus "),
    (r"(?<=[\w)])\s?>\s?(?=[\w(-])", lambda m: " is greater than "),
    (r"(?<=[\w)])\s?<\s?(?=[\w(-])", lambda m: " is less than "),
    (r"[Cc]\+\+", lambda m: "C plus plus"),
    (r"\bC#", lambda m: "C sharp"),
    (r"(?<=[\w)])\s?\+\s?(?=[\w(])", lambda m: " plus "),
    (r"(?<=\d)\+(?!\w)", lambda m: " plus"),
    (r"\+(?=\d)", lambda m: "plus "),
    (r"\s?&\s?", lambda m: " and "),
    (r"(?<=\w) @ (?=\w)", lambda m: " at "),
    (r"(?<!\w)@(?=\w)", lambda m: "at "),
    (r"\$", lambda m: " dollars "),
    (r"€", lambda m: " euros "),
    (r"£", lambda m: " pounds "),
    (r"%", lambda m: " percent "),
    (r"°", lambda m: " degrees "),
    (r"(?<=[A-Za-z])(\d+)|(\d+(?:\.\d+)?)(?=[A-Za-z])", lambda m: f" {_n(m[0]) if len(m[0]) < 3 or '.' in m[0] else digits(m[0], 'en')} "),
    (rf"(?<![\d.]){_NUMBER}", lambda m: _n(m[0])),
    (r"\d+", lambda m: digits(m[0], "en")),
]  # fmt: skip


def _n(number: str) -> str:
    return cardinal(number, "en") or number


def _power(sign: str, marks: str) -> str:
    return _raised(sign, "".join(str(SUPERSCRIPTS.index(c)) for c in marks))


def _letters(dotted: str, ends: bool) -> str:
    """Dotted letters (U.S.A., p.m., Ph.D.) as capitals with blanks between; a dot stays where a sentence ends."""
    return " ".join(re.findall("[A-Za-z]", dotted)).upper() + "." * ends


def _thing(short: str) -> str:
    name = NUMBERED_THINGS[short.capitalize()]
    return (name if short[0].isupper() else name.lower()) + " "


def _raised(sign: str, number: str) -> str:
    if not sign and number in ("2", "3"):
        return " squared" if number == "2" else " cubed"
    return f" to the power of {'minus ' * bool(sign)}{_n(number)}"


def _plural(words: str | None) -> str:
    if not words:
        return ""
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def _month(name: str) -> str:
    return next(month for month in MONTHS if month.startswith(name[:3]))


def _date(month: str, day: str, year_number: str) -> str:
    return f"{MONTHS[int(month) - 1]} {ordinal(str(int(day)), 'en')}, {year(year_number, 'en')}"


def _time(m: re.Match) -> str:
    hour, minute, second = str(int(m[1])), m[2], m[3]
    after = m.string[m.end() :].lstrip()[:2].lower()
    apart = " " * m.string[m.end() :][:1].isalpha()  # 5:30pm
    if minute == "00" and not second:
        return _n(hour) + apart if after in ("am", "pm", "a.", "p.", "o'") else f"{_n(hour)} o'clock"
    words = f"{_n(hour)} " + (f"oh {_n(minute[1])}" if minute[0] == "0" else _n(minute))
    return words + (f" and {_n(second.lstrip('0') or '0')} seconds" if second else "") + apart


def _duration(m: re.Match) -> str:
    """1h 20m 5s; a lone 20m is a length."""
    hours, minutes, seconds = m[1], m[2], m[3]
    if not (hours or seconds):
        return m[0]
    parts = [_unit(number, unit) for number, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if number]
    return " ".join(parts)


def _money(sign: str, whole: str, cents: str | None, scale: str | None) -> str:
    one, many, cent = CURRENCIES[sign]
    if scale:
        amount = f"{_n(whole if not cents else f'{whole}.{cents}')} {SCALES.get(scale[0].lower(), scale) if len(scale) < 4 else scale}"
        return f"{amount} {many}"
    words = f"{_n(whole)} {one if whole == '1' else many}"
    if cents and int(cents):
        if not cent:
            return f"{_n(f'{whole}.{cents}')} {many}"
        small = (
            "pence" if cent == "penny" and cents != "01" else cent + ("" if cents == "01" or cent == "penny" else "s")
        )
        words = f"{words} and {_n(str(int(cents)))} {small}" if int(whole) else f"{_n(str(int(cents)))} {small}"
    return words


def _attribute(sign: str, amount: str, scale: str | None) -> str:
    """An amount before its noun: a five million dollar deal."""
    one, many, _ = CURRENCIES[sign]
    return _money(sign, amount, None, scale).removesuffix(many).removesuffix(one).rstrip() + f" {one}"


def _unit(number: str, sign: str) -> str:
    one, many = UNITS[sign]
    return f"{_n(number)} {one if number == '1' else many}"


def _fraction(top: str, bottom: str) -> str:
    a, b = int(top), int(bottom)
    if not 1 < b <= 100 or a >= b:
        return f"{_n(top)} over {_n(bottom)}"
    part = {2: "half", 4: "quarter"}.get(b) or ordinal(bottom, "en") or ""
    many = {"half": "halves"}.get(part, part + "s")
    return f"{_n(top)} {part if a == 1 else many}"


def tidy(text: str) -> str:
    text = text.replace("“", '"').replace("”", '"').replace("‘", "'").replace("’", "'")
    text = re.sub(r"\s+-+\s+|\s?[—–]\s?|\s?-{2,}\s?", ", ", text)
    return re.sub(r" +([,.;:!?])", r"\1", re.sub(r" +", " ", text)).strip()
