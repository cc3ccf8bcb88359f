"""How Chinese reads what is written in digits and signs.

`before` mends what the WFST normaliser gets wrong (ranges, model names, repeated currencies), `after` reads what is
left, all of it when the normaliser is not installed. Both leave ideographs alone.
"""

from __future__ import annotations

import re
from decimal import Decimal

from cosy_engine.text.numerals import ZH_DIGITS, cardinal, digits

UNITS = {
    "mmHg": "毫米汞柱", "ml": "毫升", "mL": "毫升", "ML": "毫升", "L": "升", "l": "升", "dl": "分升", "μL": "微升", "mg": "毫克", "μg": "微克",
    "ug": "微克", "kg": "千克", "KG": "千克", "Kg": "千克", "g": "克", "km": "公里", "KM": "公里", "cm": "厘米", "mm": "毫米", "μm": "微米",
    "nm": "纳米", "dm": "分米", "m": "米", "kW": "千瓦", "kw": "千瓦", "MW": "兆瓦", "W": "瓦", "kWh": "千瓦时", "mAh": "毫安时", "Ah": "安时",
    "mA": "毫安", "V": "伏", "kV": "千伏", "mV": "毫伏", "Hz": "赫兹", "kHz": "千赫", "MHz": "兆赫", "GHz": "吉赫", "dB": "分贝", "Pa": "帕",
    "kPa": "千帕", "MPa": "兆帕", "kcal": "千卡", "cal": "卡", "kJ": "千焦", "J": "焦耳", "N": "牛", "ms": "毫秒", "min": "分钟", "h": "小时",
    "s": "秒", "mol": "摩尔", "mmol": "毫摩尔", "ha": "公顷", "°C": "摄氏度", "℃": "摄氏度", "°F": "华氏度", "℉": "华氏度", "°": "度",
    "m²": "平方米", "km²": "平方公里", "cm²": "平方厘米", "mm²": "平方毫米", "m³": "立方米", "cm³": "立方厘米", "mm³": "立方毫米",
    "m2": "平方米", "m3": "立方米", "㎡": "平方米", "㎏": "千克", "㎝": "厘米", "㎜": "毫米", "㎞": "公里", "㎎": "毫克", "Ω": "欧姆",
}  # fmt: skip
CURRENCIES = {
    "¥": "元",
    "￥": "元",
    "$": "美元",
    "€": "欧元",
    "£": "英镑",
    "₩": "韩元",
    "₽": "卢布",
    "₹": "卢比",
    "฿": "泰铢",
    "₫": "越南盾",
    "HK$": "港元",
    "US$": "美元",
}
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"

_NUMBER = r"\d+(?:\.\d+)?"
_UNIT = "|".join(re.escape(u) for u in sorted(UNITS, key=len, reverse=True))
_MONEY = "|".join(re.escape(c) for c in sorted(CURRENCIES, key=len, reverse=True))
_COUNTER = "[点时月日号天年岁人元个分秒周级度倍万亿千百章页层楼米公里斤克吨升毫厘名位次条件块套台家集期届路]"
_DASH = "[-–—~～〜－]"
_CODE_WORD = "电话|手机|热线|致电|拨打|拨|来电|号码|邮编|邮政编码|验证码|密码|编号|学号|工号|尾号|卡号|账号|帐号|车牌|房间号|QQ|qq|微信|ID|代码|代号"
_PLATES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
TWO_COUNTERS = "个只条本张位名家间次天种件块片杯瓶岁倍对双份套台把根颗段句遍趟周秒"

_SIGNED = r"\d+(?:\.\d+)?(?:\s?[-+*/×÷]\s?\d+(?:\.\d+)?(?![\d.]*\d))"
EQUATION = rf"(?<![A-Za-z\d.,/-]){_SIGNED}+(?=\s?=)|(?<=\d=){_SIGNED}+|(?<=\d = ){_SIGNED}+"
SCALES = {"k": 3, "m": 6, "b": 9, "t": 12}  # letter: power of ten

BEFORE = [
    (rf"(?<=\d)\s?({_UNIT})\s?[×xX*]\s?(?=\d)", lambda m: f"{m[1]}乘"),
    (rf"(?<=\d)(\s?(?:{_UNIT}|%|度)?)\s?[~～]\s?(?=[-负]\d)", lambda m: f"{m[1]}到"),
    (r"(?<=[\d零一二三四五六七八九十百])\s?[~～]\s?(?=[A-Z][\d一二三四五六七八九十])", lambda m: "到"),  # P45～P50
    (rf"(?<=[页章节层楼集期条款])\s?{_DASH}\s?(?=第)", lambda m: "到"),
    (rf"(\d+)′({_NUMBER})″", lambda m: f"{_n(m[1])}分{_n(m[2])}秒"),
    (r"(\d+)(?:st|nd|rd|th)(?![A-Za-z])", lambda m: f"第{_n(m[1])}"),
    (r"(?<![\d.])(0?[1-9]|[12]\d|3[01])\.(0?[1-9]|1[0-2])\.((?:19|20)\d\d)(?!\d)",
     lambda m: f"{digits(m[3], 'zh')}年{_n(str(int(m[2])))}月{_n(str(int(m[1])))}日"),
    (EQUATION, lambda m: in_words(m[0], {"-": "减", "/": "除以", "*": "乘"})),
    (rf"(?:(?<![\w.%)）\]}}])|(?<=[为是到至约温差低于])|(?<=温度))-(?=(?:{_MONEY})?\d)", lambda m: "负"),
    (rf"(?<=[\u4e00-\u9fff])-(?=(?:{_MONEY})\d)", lambda m: "负"),
    (rf"(?<=[\u4e00-\u9fff])(?<!零下)-(?={_NUMBER}\s?(?:度|℃|°|摄氏|%|元))", lambda m: "负"),
    (r"(?<=[\u4e00-\u9fff])[-–](?=\d)(?<![月日号点时分年周天个]-)", lambda m: ""),  # 歼-20
    (rf"([{_PLATES}][A-Z])[·•]?(?=[A-Z\d]{{5,6}}(?![A-Z\d]))([A-Z\d]*\d[A-Z\d]*)",
     lambda m: m[1] + re.sub(r"\d+", lambda run: digits(run[0], "zh", phone=True), m[2])),
    (r"(?<![\d.])(\d{1,2})·(\d{1,2})(?![\d.])", lambda m: digits(m[1] + m[2], "zh")),  # the day of an event: 9·18
    (r"['’‘](\d\d)(?=年)", lambda m: digits(m[1], "zh")),
    (r"(?<![\d.])2点(?=[^\d一二三四五六七八九零]|$)", lambda m: "两点"),
    (r"√\s?(?=[\dA-Za-z(（])", lambda m: "根号"),
    (r"(?<=\d)\s?[×xX]\s?(?=\d)", lambda m: "乘"),
    (r"(?<=\d)\s*(?:[-–—~～〜－]|至)\s*(?=\d{1,2}:[0-5]\d)", lambda m: "到"),
    (r"([周星期礼拜][一二三四五六日天])\s*[-–—~～至]\s*(?=周|星期|礼拜)", lambda m: f"{m[1]}到"),
    (r"(?<=[\u4e00-\u9fff])\s+(?=\d{1,2}[、.．)）])", lambda m: "，"),  # the next item of a list
    (r"(\d+)\s?\^\s?(\d+)", lambda m: f"{_n(m[1])}的{_n(m[2])}次方"),
    (r"§\s?(\d+)", lambda m: f"第{_n(m[1])}节"),
    (r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda m: m[1].replace(",", "")),
    (r"(?<!\d)((?:1\d|20)\d\d)[-/.](0?[1-9]|1[0-2])[-/.](0?[1-9]|[12]\d|3[01])(?!\d)",
     lambda m: f"{digits(m[1], 'zh')}年{_n(m[2])}月{_n(m[3])}日"),
    (rf"(?<!\d)((?:1\d|20)\d\d)年?\s*(?:{_DASH}|至|到)\s*((?:1\d|20)\d\d)(?=年)",
     lambda m: f"{digits(m[1], 'zh')}到{digits(m[2], 'zh')}"),
    (r"(?<![\d.])([12]\d{3})(?=年(?!前|来|间|的?历史)|年代)", lambda m: digits(m[1], "zh")),
    (r"(?<![\d.])([12]\d{2}[1-9])(?=年)", lambda m: digits(m[1], "zh")),
    # 9:30, 12:30:45 are times; other pairs are proportions
    (r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?![\d:]|\.\d)", lambda m: _time(m)),
    (rf"(?<![\d:.])({_NUMBER}):({_NUMBER})(?![\d:])", lambda m: f"{_n(m[1])}比{_n(m[2])}"),
    (rf"(?<![\d/.])(\d+\.\d+)/({_NUMBER})(?![\d/])", lambda m: f"{_n(m[2])}分之{_n(m[1])}"),
    (r"(?<![\dA-Za-z.])(?:(\d+)\s?h(?:rs?)?\s?)?(\d+)\s?m(?:in)?(?:\s?(\d+)\s?s(?:ec)?)?(?![\dA-Za-z])", lambda m: _duration(m)),
    (r"(?<!\d)([05-9][05])后(?![\d天年面日来半边方排门])", lambda m: digits(m[1], "zh") + "后"),  # who was born then
    (r"(?<![\d/])(\d+)/(\d+)\s?(?=mmHg|毫米汞柱)", lambda m: f"{_n(m[1])}比{m[2]}"),
    (rf"(?<=比分)(\d+)\s*{_DASH}\s*(\d+)", lambda m: f"{_n(m[1])}比{_n(m[2])}"),
    (rf"({_NUMBER})\s*-\s*({_NUMBER})(?=\s*=)", lambda m: f"{_n(m[1])}减{_n(m[2])}"),
    (rf"({_MONEY})\s?({_NUMBER})\s?(k|m|mil|mn|b|bn|t|tn|K|M|B|T)(?![A-Za-z])", lambda m: _scaled(m[2], m[3]) + CURRENCIES[m[1]]),
    (rf"({_NUMBER})\s?¢", lambda m: f"{_n(m[1])}美分"),
    (rf"(?:{_MONEY})\s?({_NUMBER})([万亿千百]*)(?=[元块圆])", lambda m: m[1] + m[2]),
    (rf"({_MONEY})\s?({_NUMBER})([万亿千百]*)", lambda m: f"{_n(m[2])}{m[3]}{CURRENCIES[m[1]]}"),
    (rf"({_NUMBER})([%‰])\s*(?:{_DASH}|至|到)\s*({_NUMBER})\2", lambda m: f"{_share(m[1], m[2])}到{_share(m[3], m[2])}"),
    (rf"({_NUMBER})\s*(?:{_DASH}|至|到)\s*({_NUMBER})([%‰])", lambda m: f"{_share(m[1], m[3])}到{_share(m[2], m[3])}"),
    # what stands left of a dash keeps its unit: 9点-11点, 3~5个, 5-10kg
    (rf"(?<![\d.\-/A-Za-z])({_NUMBER})(\s*(?:{_COUNTER}{{1,2}}|{_UNIT})?)\s*{_DASH}\s*(?=\d)", lambda m: f"{m[1]}{m[2].strip()}到"),
    (rf"([月日号点时分年])\s*{_DASH}\s*(?=\d)", lambda m: f"{m[1]}到"),
    (rf"({_NUMBER})\s*({_UNIT})\s*/\s*({_UNIT}|天|次|人|日|月|年)(?![A-Za-z])",
     lambda m: f"每{UNITS.get(m[3], m[3])}{_n(m[1])}{UNITS[m[2]]}"),
    (rf"({_NUMBER})\s*({_UNIT})(?![A-Za-z0-9²³])", lambda m: f"{_measured(m[1])}{UNITS[m[2]]}"),
    (rf"((?:{_CODE_WORD})[^\d，。；、！？\n]{{0,4}})(\d{{3,}})(?![\d.]*\d|[元块个人次])", lambda m: m[1] + digits(m[2], "zh", phone=True)),
    (r"(?<![\d.,])(110|119|120|122|114|12306|12315|12345|10086|10010|10000|95588)(?=报警|急救|客服|热线|电话)",
     lambda m: digits(m[1], "zh", phone=True)),
    (r"(?<![\d.,])(0\d+)(?![\d]*\.\d)", lambda m: digits(m[1], "zh")),
    (r"(?<![\d.,])(\d{11,})(?![\d.])", lambda m: digits(m[1], "zh", phone=True)),
    (r"(?<![\d.])(\d{1,2})\.(?=[\u4e00-\u9fff])", lambda m: f"{_n(m[1])}、"),
    (r"([\u4e00-\u9fff])\.(?=[\u4e00-\u9fff\s]|$)", lambda m: f"{m[1]}。"),
    (rf"[~～约]\s?(?={_NUMBER})", lambda m: "约"),
    (r"(?<![A-Za-z])([IVX]{2,5}(?=世|章|级|期|型|卷|部|度|类|号)|[IVX](?=世纪|章|级|期|卷|部))", lambda m: _roman(m[1])),
    (r"(?<=[\u4e00-\u9fff])(III?|IV|VI{1,3}|IX)(?![A-Za-z0-9])", lambda m: _roman(m[1])),
    (rf"([A-Za-z\d米尺)）])(⁻?)([{SUPERSCRIPTS}]+)", lambda m: m[1] + _power(m[1], m[2], m[3])),
    (r"\s?=\s?", lambda m: "等于"),
    (r"\s?[≠]\s?", lambda m: "不等于"),
    (r"\s?[≥]\s?", lambda m: "大于等于"),
    (r"\s?[≤]\s?", lambda m: "小于等于"),
    (r"\s?[≈]\s?", lambda m: "约等于"),
    (r"\s?[±]\s?", lambda m: "正负"),
    (r"(?<=[\dA-Za-z）)])\s?>\s?(?=[\dA-Za-z.（(-])", lambda m: "大于"),
    (r"(?<=[\dA-Za-z）)])\s?<\s?(?=[\dA-Za-z.（(-])", lambda m: "小于"),
]  # fmt: skip

AFTER = [
    (rf"({_NUMBER})([%‰])", lambda m: _share(m[1], m[2])),
    (r"(?<![\d/])(\d+)/(\d+)(?![\d/])", lambda m: f"{_n(m[2])}分之{_n(m[1])}" if int(m[2]) else f"{_n(m[1])} {_n(m[2])}"),
    (rf"(?<=[\d\w)）])\s?([×*xX])\s?(?={_NUMBER})", lambda m: "乘" if m[1] in "×*" or m.string[m.start() - 1].isdigit() else m[0]),
    (rf"(?<=[\d)）])\s?÷\s?(?={_NUMBER})", lambda m: "除以"),
    (r"[Cc]\+\+", lambda m: "C加加"),
    (r"(?<![A-Za-z])C#", lambda m: "C sharp"),
    (r"(?<=[\w）)])\s?\+\s?(?=[\w（(])", lambda m: "加"),
    (r"\+(?=\d)", lambda m: "正"),
    (r"\s?&\s?", lambda m: "和"),
    (r"#(?=\d)", lambda m: "井号"),
    (rf"(?<![\d.点])2(?=[{TWO_COUNTERS}]|年(?!级)|小时|分钟)", lambda m: "两"),
    (rf"{_NUMBER}", lambda m: _n(m[0])),
]  # fmt: skip


def _n(number: str) -> str:
    return cardinal(number, "zh")


def _measured(number: str) -> str:
    return "两" if number == "2" else _n(number)


def _share(number: str, sign: str) -> str:
    return ("百分之" if sign == "%" else "千分之") + _n(number)


def _time(m: re.Match) -> str:
    hour, minute, second = m[1], m[2], m[3]
    words = f"{'两' if int(hour) == 2 else _n(str(int(hour)))}点"
    if int(minute) or second:
        words += ("零" if minute[0] == "0" and int(minute) else "") + f"{_n(str(int(minute)))}分"
    return words + (f"{_n(second.lstrip('0') or '0')}秒" if second else "")


def _duration(m: re.Match) -> str:
    """1h20m5s; a lone 20m is a length."""
    if not (m[1] or m[3]):
        return m[0]
    parts = ((m[1], "小时"), (m[2], "分" if m[3] else "分钟"), (m[3], "秒"))
    return "".join(_measured(number) + unit for number, unit in parts if number)


def _scaled(number: str, scale: str) -> str:
    """1.5 and M: the number in full, 一百五十万."""
    value = Decimal(number).scaleb(SCALES[scale[0].lower()])
    return _n(format(value.normalize(), "f"))


def in_words(sum_: str, signs: dict[str, str]) -> str:
    """A sum with its minus, division and multiplication signs as words."""
    return re.sub(r"(?<=\d)\s?([-/*×÷])\s?(?=\d)", lambda m: signs[{"×": "*", "÷": "/"}.get(m[1], m[1])], sum_)


def _power(base: str, sign: str, marks: str) -> str:
    number = "".join(str(SUPERSCRIPTS.index(c)) for c in marks)
    if sign or number not in ("2", "3"):
        return f"的{'负' * bool(sign)}{_n(number)}次方"
    return "的" * base.isdigit() + ("平方" if number == "2" else "立方")


def _roman(numeral: str) -> str:
    value = roman(numeral)
    return _n(str(value)) if value else numeral


def roman(numeral: str) -> int:
    """Value of a well-formed Roman numeral, 0 for other strings."""
    if not re.fullmatch(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})", numeral) or not numeral:
        return 0
    values = [{"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}[c] for c in numeral]
    return sum(-v if v < max([0, *values[i + 1 : i + 2]]) else v for i, v in enumerate(values))


def tidy(text: str) -> str:
    """Blanks and brackets as Chinese is set: no blank beside an ideograph, one between Latin words; brackets pause."""
    text = re.sub(r"[（(【\[]", "，", text)
    text = re.sub(r"[）)】\]](?=[\w“\"'])", "，", text)
    text = re.sub(r"[）)】\]]", "", text)
    text = re.sub(r"—{2,}|–{2,}|-{2,}", "，", text)
    text = re.sub(r"\s-\s", "，", text)
    text = re.sub(r" +", " ", text)
    text = re.sub(r"(?<![\x21-\x7e]) | (?![\x21-\x7e])", "", text)
    text = re.sub(r"[，,、]+(?=[。！？!?；;，,])", "", text)
    return re.sub(r"^[，,、\s]+|(?<=[。！？!?；;])[，,、]+", "", text)


assert len(ZH_DIGITS) == 10
