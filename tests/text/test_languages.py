"""What a model of few languages cannot speak is found; what any English text may hold is not mistaken for it."""

import pytest

from cosy_engine.text.languages import unspoken


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("你好", "zh"),
        ("I like 寿司 a lot", "zh"),
        ("こんにちは", "ja"),
        ("한국어", "ko"),
        ("Привет", "ru"),
        ("Guten Morgen, wie geht es dir?", "de"),
        ("La casa es grande y los niños son felices", "es"),
        ("Bonjour, comment allez-vous ?", "fr"),
        ("Xin chào, tôi là", "vi"),
        ("γειά σου", "und"),
        ("¿Dónde está la biblioteca?", "es"),
        ("Cảm ơn bạn rất nhiều", "vi"),
        ("ሰላም", "und"),
        ("ﻣﺮﺣﺒﺎ", "ar"),
        ("ㄅㄆㄇ", "und"),
    ],
)
def test_another_language_is_found(text, language):
    assert unspoken(text, ["en"]) == language


@pytest.mark.parametrize(
    "text",
    [
        "Hello there, how are you?",
        "The café in Zürich",
        "Die Hard is a film",
        "O Romeo, de la Cruz",
        "Sofia",
        "42",
        "C'est la vie, he said",
    ],
)
def test_english_with_words_from_abroad_is_english(text):
    assert unspoken(text, ["en"]) is None


def test_what_is_listed_may_be_spoken():
    assert unspoken("你好, Guten Morgen, wie geht es dir?", ["zh", "de"]) is None
    assert unspoken("你好", ["zh"]) is None
