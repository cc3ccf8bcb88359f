"""What a model of few languages cannot speak is found; what any English text may hold is not mistaken for it."""

import pytest

from cosy_engine.text.languages import NAMES, SURE, detect, unspoken


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
        # one word tells a short sentence
        ("Guten Tag.", "de"),
        ("GUTEN MORGEN", "de"),
        ("Wie geht's?", "de"),
        ("Ich liebe dich", "de"),
        ("¿Qué tal?", "es"),
        ("Buenos días", "es"),
        ("Me llamo Ana", "es"),
        ("Merci beaucoup", "fr"),
        ("Je t’aime", "fr"),
        ("Grazie mille", "it"),
        ("O gato está na mesa", "es"),
        ("Dzień dobry", "pl"),
        ("Hej, jag heter Anna", "sv"),
        ("Xin chào", "vi"),
        ("Auf Wiedersehen", "de"),
        ("Tack så mycket", "sv"),
        ("Hyvää päivää", "fi"),
        ("Dobrý den", "cs"),
        ('"Ich bin ein Berliner."', "de"),
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
        # titles, names, quotations, loans
        "Et tu, Brute?",
        "Ursula von der Leyen spoke.",
        "Las Vegas, Los Gatos",
        "Das Lied von der Erde",
        "Le Monde, Le Figaro, Les Echos",
        "Für Elise",
        "Costa Rica y Panamá",
        "Buenos Aires",
        'Kennedy shouted "Ich bin ein Berliner und ich bin froh".',
        "Łódź, Gdańsk",
        "Don Quixote de la Mancha",
        "Così fan tutte",
        "Ludwig Mies van der Rohe",
        "E pluribus unum.",
        "Bon voyage!",
        # English words that other languages have too
        "Red hat",
        "Son, pour tea",
        "Hay bales",
        "ha ha",
        # signs are of no language
        "It costs ฿500.",
        "٣ apples",
    ],
)
def test_english_with_words_from_abroad_is_english(text):
    assert unspoken(text, ["en"]) is None


def test_what_is_listed_may_be_spoken():
    assert unspoken("你好, Guten Morgen, wie geht es dir?", ["zh", "de"]) is None
    assert unspoken("你好", ["zh"]) is None
    assert unspoken("Guten Tag, bonjour, takk", {*NAMES, *SURE}) is None


def test_one_word_decides_nothing_while_a_text_still_comes():
    assert unspoken("Merci", ["en"]) == "fr"
    assert unspoken("Merci", ["en"], goes_on=True) is None  # "Merci is French for thanks."
    assert unspoken("Guten Morgen, wie geht es dir", ["en"], goes_on=True) == "de"


@pytest.mark.parametrize(
    ("text", "language"), [("very " * 30, "en"), ("ha ha ha", "en"), ("Ho-ho-ho!", "en"), ("Luca ha 5 anni.", "it")]
)
def test_laughter_and_one_word_again_and_again_are_of_no_other_language(text, language):
    assert detect(text) == language
