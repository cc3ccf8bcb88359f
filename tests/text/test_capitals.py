"""Capitals for a model that was not taught them."""

import pytest

from cosy_engine.text.capitals import without_capitals, without_greek


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("THE SUN WENT DOWN.", "The sun went down."),
        ("HELLO WORLD", "Hello world"),
        ("NASA spoke to the FBI today.", "nasa spoke to the eff bee eye today."),
        ("It is a DVD, and I am here.", "It is a dee vee dee, and I am here."),
        ("A plain sentence with London in it.", "A plain sentence with London in it."),
        ("", ""),
        ("Plan B, or x?", "Plan bee, or ex?"),
        ("It's a rock 'n' roll R and B song, I'd say.", "It's a rock 'n' roll are and bee song, I'd say."),
        ("m", "em"),
        ("A.", "Ay."),
        ("A A Milne of the U S A.", "ay ay Milne of the you ess ay."),
        ("I saw a plan. O I see", "I saw a plan. O I see"),
    ],
)
def test_capitals_are_written_as_they_are_spoken(text, spoken):
    assert without_capitals(text) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("π is about three.", " pi is about three."),
        ("The angle θ is wide.", "The angle theta is wide."),
        ("five µm wide", "five micro m wide"),
        ("a 5 Ω part", "a 5 ohm part"),
        ("γειά σου", "γειά σου"),
    ],
)
def test_greek_letters_are_named_and_greek_words_are_left(text, spoken):
    assert without_greek(text) == spoken
