"""Segments have a good length, keep tokens and quotes whole, and lose nothing."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosy_engine.text.split import COMMA_S, HARD_LENGTH, MAX_LENGTH, PARAGRAPH_S, STOP_S, speakable, split_text
from tests.text import steady


def words(text: str) -> int:
    return len(text.split())


def texts(text: str, language: str = "en", count=words) -> list[str]:
    return [segment.text for segment in split_text(text, count, language)]


def spoken(text: str) -> str:
    """Letters, marks on them, digits: what a listener would miss."""
    return "".join(c for c in text if unicodedata.category(c)[0] in "LN")


LANGUAGES = st.sampled_from(["zh", "en", "ja", "de", "ru", "und"])
TRICKY = st.text(st.sampled_from('。！？.!?;:，,、…"”’」)） \n\taB你好あ한й1５é\u0301\u200d😀[]<>-—'), max_size=200)


@steady
@given(st.one_of(st.text(max_size=300), TRICKY), LANGUAGES)
def test_no_letter_ideograph_or_digit_is_lost(text, language):
    assert spoken("".join(texts(text, language, len))) == spoken(text)


@steady
@given(st.text(st.sampled_from("你好，。a b.1"), min_size=1, max_size=600), LANGUAGES)
def test_no_segment_is_too_long(text, language):
    for segment in texts(text, language, len):
        assert len(segment) <= HARD_LENGTH + 1  # one closing mark may be added


@steady
@given(TRICKY, LANGUAGES)
def test_every_segment_can_be_spoken_and_ends_in_a_mark(text, language):
    for segment in split_text(text, len, language):
        assert speakable(segment.text)
        assert 0 <= segment.pause_s <= PARAGRAPH_S


@pytest.mark.parametrize(
    "text",
    [
        "The value 3.14 and version 2.5.1 and www.example.com/a.b?c=1:2 and 192.168.1.1 and a.b@c.org stay whole",
        "Mr. Smith and Dr. Jones of the U.S. Army met at 10:30 a.m. with No. 5",
        "例如3.14和v2.5.1以及www.example.com都不切开",
        "i.e. this and e.g. that",
    ],
)
def test_dots_inside_tokens_end_nothing(text):
    long = text + " " + "word " * 100
    for token in text.split():
        if "." in token:
            assert any(token in segment for segment in texts(long.strip(), "en", len)), token


@pytest.mark.parametrize("closer", list("”’」』）》\"'"))
def test_closers_stay_with_their_sentence(closer):
    opener = {"”": "“", "’": "‘", "」": "「", "』": "『", "）": "（", "》": "《"}.get(closer, closer)
    sentence = opener + "你好" * 35 + "。" + closer
    first, second = texts(sentence + "再见" * 35 + "。", "zh", len)
    assert first == sentence
    assert second == "再见" * 35 + "。"


@pytest.mark.parametrize("text", ["。”你好", '！"好的', '."hello"', "？」はい"])
def test_a_text_may_open_with_an_end_mark_and_a_quote(text):
    assert spoken("".join(texts(text, "zh"))) == spoken(text)


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("...hello...", "hello..."),
        ("，，，hello", "hello。"),
        ("?! What", "What。"),
        (". . . hello", "hello。"),
        ("— hello", "hello。"),
        ('"... and then?"', '"and then?"'),
        ("“……好吧”", "“好吧”。"),
        ("。” hello", "hello。"),
    ],
)
def test_marks_before_the_first_word_are_left_out(text, segment):
    assert texts(text, "zh") == [segment]


def test_marks_before_a_later_sentence_are_left_out():
    assert [s.text for s in split_text("He said nothing.\n... And left. ...Then", words, join=False)] == [
        "He said nothing.",
        "And left.",
        "Then.",
    ]


@pytest.mark.parametrize("text", ["." * 5000, "。”" * 2500, '"' * 2500 + "." * 2500, "- " * 2500, "a" + " ." * 2500])
def test_a_page_of_marks_takes_no_time(text):
    began = time.process_time()
    texts(text, "zh")
    assert time.process_time() - began < 1


def test_text_without_marks_is_cut_between_words():
    segments = texts("word " * 400)
    assert all(40 <= words(s) <= MAX_LENGTH for s in segments)
    assert all(set(s.replace(",", "").replace(".", "").split()) == {"word"} for s in segments)


def test_ideographs_without_marks_are_cut_to_size():
    segments = texts("啊" * 500, "zh", len)
    assert all(len(s) <= MAX_LENGTH + 1 for s in segments)
    assert min(map(len, segments)) >= 40


def test_a_long_sentence_is_cut_at_a_comma():
    text = "这是一句没有句号的很长的话" * 4 + "，" + "后面还有同样长的一段文字在这里" * 4 + "。"
    first, second = split_text(text, len, "zh")
    assert first.text.endswith("，")
    assert first.pause_s == COMMA_S
    assert second.pause_s == 0.0


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("See Sec. 4.1, Eq. (5), Ch. 7 and ext. 89 of it", []),
        ("My no. is five", []),
        ("I said no. he left", ["I said no.", "he left."]),
        ("Wait a sec. I go", ["Wait a sec.", "I go."]),
    ],
)
def test_a_dot_before_a_number_ends_no_sentence(text, cuts):
    assert [s.text for s in split_text(text, words, join=False)] == (cuts or [text + "."])


def test_graphemes_and_marks_are_never_cut():
    for unit in ("e\u0301", "한\u1161", "[laughter]"):
        for segment in split_text(unit * 300, len, "en", ["[laughter]"]):
            assert segment.text.rstrip(",.").replace(unit, "") == ""


def test_pauses_follow_the_last_mark():
    long = "word " * 70
    first, second, third = split_text(f"{long}end.\n{long}end! {long}end", words, "en")
    assert (first.pause_s, second.pause_s, third.pause_s) == (PARAGRAPH_S, STOP_S, 0.0)


def test_short_sentences_are_joined():
    assert texts("One. Two. Three!") == ["One. Two. Three!"]
    assert texts("一。二。三", "zh", len) == ["一。二。三。"]


def test_a_page_of_short_lines_keeps_every_line():
    lines = [f"line number {'abc'[i % 3]}{i}" for i in range(300)]
    segments = texts(".\n".join(lines))
    assert spoken("".join(segments)) == spoken("".join(lines))
    assert max(map(words, segments)) <= HARD_LENGTH


def test_sentences_stay_alone_where_a_model_wants_it():
    text = 'Mr. Smith said: "Go on." We went; it rained. Yes!'
    found = [s.text for s in split_text(text, lambda t: len(t) // 4, "en", join=False)]
    assert found == ['Mr. Smith said: "Go on."', "We went; it rained.", "Yes!"]
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
