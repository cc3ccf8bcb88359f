"""Which ids the model is given, for each mode and release; what is refused, and with which words."""

from __future__ import annotations

import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosy_engine.errors import LanguageUnknown, TextEmpty, TextTooLong, TextUnspeakable
from cosy_engine.settings.modes import MODES
from cosy_engine.text.frontend import SYSTEM, TextFrontend
from tests.text import steady

EOP = "<|endofprompt|>"
SYS = SYSTEM + EOP


def shown(frontend, mode: str, **inputs) -> tuple[str, str]:
    """(prompt, first segment of "好。") as text."""
    prompt = frontend.prompt_ids(MODES[mode], **inputs)
    segment = frontend.segment_ids(frontend.plan("好。").segments[0], prompt)
    return frontend.tokenizer.decode(prompt), frontend.tokenizer.decode(segment.ids)


@pytest.mark.parametrize(
    ("release", "mode", "inputs", "prompt", "segment"),
    [
        ("v2", "zero_shot", {"transcript": "希望你。"}, "希望你。", "好。"),
        ("v3", "zero_shot", {"transcript": "希望你。"}, SYS + "希望你。", "好。"),
        ("v2", "cross_lingual", {}, "", "好。"),
        ("v3", "cross_lingual", {}, "", SYS + "好。"),
        ("v2", "instruct", {"instruction": "请用广东话表达。"}, "请用广东话表达。" + EOP, "好。"),
        ("v3", "instruct", {"instruction": "请用广东话表达。"}, SYSTEM + " 请用广东话表达。" + EOP, "好。"),
        ("v3", "saved_voice", {"transcript": "希望你。"}, SYS + "希望你。", "好。"),
        ("v3", "saved_voice", {}, "", SYS + "好。"),
        ("v3", "saved_voice", {"transcript": "你。", "instruction": "快"}, SYSTEM + " 快" + EOP, "好。"),
        ("v2", "saved_voice", {}, "", "好。"),
    ],
)
def test_prompt_rules(frontends, release, mode, inputs, prompt, segment):
    assert shown(frontends[release], mode, **inputs) == (prompt, segment)


@pytest.mark.parametrize("typed", ["快", "快<|endofprompt|>", f"{SYSTEM} 快<|endofprompt|>", "快 <|endofprompt|> "])
@pytest.mark.parametrize("release", ["v2", "v3"])
def test_an_instruction_with_or_without_the_end_tag_is_the_same(frontends, release, typed):
    frontend = frontends[release]
    ids = frontend.prompt_ids(MODES["instruct"], instruction=typed)
    assert ids == frontend.prompt_ids(MODES["instruct"], instruction="快")
    assert ids.count(frontend.tokenizer.endofprompt_id) == 1


def test_only_a_prompt_with_transcript_is_heard(frontends):
    hears = frontends["v3"].hears_reference
    assert hears(MODES["zero_shot"], "你好")
    assert not hears(MODES["cross_lingual"], "你好")
    assert not hears(MODES["saved_voice"], "")
    assert not hears(MODES["saved_voice"], "你好", "快一点")
    assert not hears(MODES["zero_shot"], " 。 ")  # a transcript without words is none


def test_a_long_text_gets_the_v3_prefix_before_every_segment(frontends):
    frontend = frontends["v3"]
    plan = frontend.plan("今天天气很好，我们一起去公园散步吧。" * 20)
    assert len(plan.segments) > 3
    for segment in plan.segments:
        ids = frontend.segment_ids(segment, [])
        assert frontend.tokenizer.decode(ids.ids) == SYS + segment.text
        assert ids.n_target == len(ids.ids) - len(frontend.tokenizer.encode(SYS))


@pytest.mark.parametrize("typed", [SYS, f" {SYSTEM}<|endofprompt|>", SYSTEM + "＜｜endofprompt｜＞"])
def test_a_prefix_copied_from_official_examples_is_not_spoken(frontends, typed):
    for frontend in frontends.values():
        assert frontend.plan(typed + "你好。").segments[0].text == "你好。"
        assert frontend.transcript(typed + "你好。")[0] == "你好。"


@pytest.mark.parametrize(
    "tag",
    [
        "<|endofprompt|>", "<|im_start|>", "＜｜endofprompt｜＞", "<\u200b|endof\u200bprompt|>", "< | endofprompt | >",
        "<|endof<|x|>prompt|>", "<|zh|>", "<|EndOfPrompt|>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("release", ["v2", "v3"])
def test_a_typed_control_tag_is_never_spoken_and_switches_nothing_off(frontends, release, tag):
    frontend = frontends[release]
    plan = frontend.plan(f"非常快速{tag}这款新应用程序有3.5个版本")
    text = "".join(segment.text for segment in plan.segments)
    for piece in ("endof", "prompt", "im_", "start", "|", "<", "zh"):
        assert piece not in text.lower()
    assert "非常快速" in text and "这款新应用程序有三点五个版本" in text  # still normalised
    assert any("not spoken" in note for note in plan.notes)
    control = {i for t, i in frontend.tokenizer.specials.items() if t.startswith("<|")}
    for segment in plan.segments:
        ids = frontend.segment_ids(segment, [])
        assert not control & set(ids.ids[len(ids.ids) - ids.n_target :])


@pytest.mark.parametrize(
    "tag", ["[laughter]", "[breath]", "<strong>勇气</strong>", "<laughter>哈</laughter>", "[Laughter]"]
)
@pytest.mark.parametrize("release", ["v2", "v3"])
def test_known_event_tags_act(frontends, release, tag):
    frontend = frontends[release]
    plan = frontend.plan(f"他很有{tag}，是吧")
    ids = set(frontend.segment_ids(plan.segments[0], []).ids)
    assert frontend.tokenizer.specials[tag.lower().partition("勇")[0].partition("哈")[0]] in ids
    assert not plan.notes


def test_phoneme_brackets_survive_digit_reading_in_v3(frontends):
    text = frontends["v3"].plan("报道[j][ǐ]予好评3次。Say [HH][AH0][L][OW1] now.").segments[0].text
    assert "报道[j][ǐ]予好评三次" in text and "[HH][AH0][L][OW1]" in text


@pytest.mark.parametrize(
    "tag", ['<break time="1s"/>', "[foo]", "<whisper>", "[pause 1s]", "[long pause]", "<b>", "[sad]"]
)
def test_unknown_tags_are_removed_with_a_note(frontends, tag):
    plan = frontends["v3"].plan(f"Hello {tag} world.")
    assert plan.segments[0].text == "Hello world."
    assert tag in plan.notes[0]


def test_brackets_around_words_are_not_tags(frontends):
    assert "引用文字" in frontends["v3"].plan("他说[引用文字]。").segments[0].text
    assert "very important remark" in frontends["v3"].plan("A [very important remark] here.").segments[0].text
    assert "a is less than b" in frontends["v3"].plan("we know that a < b and c").segments[0].text


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\u200b", "\u3000", "\t", "\ufeff", " \r\n \u00a0", "\ue000"])
def test_an_empty_text_is_refused_kindly(frontends, text):
    with pytest.raises(TextEmpty, match="write what is to be spoken"):
        frontends["v3"].plan(text)


@pytest.mark.parametrize(
    "text", ["。", "……", "，，，", "!!!", "?!", "🎉", "—", "[laughter]", "<|endofprompt|>", "👍🏽!"]
)
def test_a_text_without_words_is_refused_kindly(frontends, text):
    with pytest.raises(TextUnspeakable, match="write some words"):
        frontends["v3"].plan(text)


def test_the_length_limit_is_said_with_both_numbers(frontends, tokenizers):
    with pytest.raises(TextTooLong, match=r"5,001 characters, at most 5,000"):
        frontends["v3"].plan("字" * 5001)
    short = TextFrontend(tokenizers["v2"], SimpleNamespace(needs_prefix=False), max_chars=10)
    with pytest.raises(TextTooLong, match="at most 10"):
        short.plan("x" * 11)


@pytest.mark.parametrize(
    "text", ["字" * 5000, "今天天气很好，我们去散步吧。" * 357, "It was a bright cold day. " * 192]
)
def test_a_page_of_5000_characters_is_planned_whole(frontends, text):
    plan = frontends["v3"].plan(text)
    assert letters("".join(s.text for s in plan.segments)) == letters(text)
    assert len(plan.segments) > 5


@pytest.mark.parametrize("text", ["好", "是的", "Hi", "No", "tak", "1次", "A"])
def test_very_short_texts_make_one_closed_segment(frontends, text):
    (segment,) = frontends["v3"].plan(text).segments
    assert segment.text[-1] in "。."
    assert len(segment.text) <= 5


@pytest.mark.parametrize("text", ["訇訇地响", "龘靐齉", "𠀀𠀁𠀂", "㐀㐁", "﨎"])
def test_rare_ideographs_reach_the_model(frontends, text):
    assert letters("".join(s.text for s in frontends["v3"].plan(text).segments)) == unicodedata.normalize("NFC", text)


def test_a_text_much_shorter_than_the_transcript_gets_a_hint_unless_the_model_speaks_such_well(frontends):
    frontend = frontends["v3"]
    plan = frontend.plan("今天天气不错啊")
    assert "shorter" in frontend.short_text_note(plan, "字" * 60)
    assert frontend.short_text_note(plan, "字" * 10) is None
    taught = TextFrontend(frontend.tokenizer, frontend.spec, frontend.normalizer, short_texts=True)
    assert taught.short_text_note(plan, "字" * 60) is None


@pytest.mark.parametrize(
    ("text", "transcript", "named"),
    [("Good morning, how are you today?", "希望你以后能够做的比我还好呦。", "speaks zh and the text is en"),
     ("今天天气很好。", "The weather is fine today.", "speaks en and the text is zh"),
     ("今天用GPT写代码。", "希望你以后能够做的比我还好呦。", None), ("The weather is fine.", "This is my own voice.", None), ("Hi", "xyzzy", None)],
)  # fmt: skip
def test_a_reference_of_another_language_gets_a_hint_about_its_accent(frontends, text, transcript, named):
    frontend = frontends["v3"]
    note = frontend.accent_note(frontend.plan(text), transcript)
    assert (named in note and "cross_lingual" in note) if named else note is None


def test_a_tag_split_over_pieces_is_held_back_and_neutralised(frontends):
    frontend = frontends["v3"]
    pieces = list(frontend.pieces(["Hello <|endof", "prompt|> wor", "ld [laugh", "ter] ok", " a<b"]))
    text = "".join(map(frontend.tokenizer.decode, pieces))
    assert text.split() == ["Hello", "world", "[laughter]", "ok", "a<b."]
    ids = [i for piece in pieces for i in piece]
    assert frontend.tokenizer.specials["[laughter]"] in ids
    assert frontend.tokenizer.endofprompt_id not in ids


@pytest.mark.parametrize(
    ("pieces", "end"),
    [(["Hel", "lo"], "o."), (["Hello. "], "o. "), (["Hello", ' "you"'], 'u".'), (["你", "好"], "好。"), (["Hello", "\n"], "\n."), (["Yes,"], "s,")],
)  # fmt: skip
def test_a_text_in_pieces_gets_a_final_mark_as_any_text(frontends, pieces, end):
    text = "".join(map(frontends["v2"].tokenizer.decode, frontends["v2"].pieces(pieces)))
    assert text.endswith(end)


def test_pieces_are_ready_as_they_come(frontends):
    fed = []

    def source():
        for text in ("one ", "two ", "three"):
            fed.append(text)
            yield text

    pieces = frontends["v2"].pieces(source())
    next(pieces)
    assert fed == ["one "]


def test_a_model_of_one_language_reads_numbers_in_it_and_knows_it_by_the_words_alone(tokenizers):
    frontend = TextFrontend(tokenizers["v2"], SimpleNamespace(needs_prefix=False), languages=("en",))
    plan = frontend.plan("El Niño: 5 typhoons.")
    assert plan.language == "en" and plan.segments[0].text == "El Niño: five typhoons."
    for text in ("Ich habe 1 Hund und 30 Katzen.", "Guten Tag."):
        with pytest.raises(LanguageUnknown, match="German"):
            frontend.plan(text)
        with pytest.raises(LanguageUnknown, match="transcript looks like German"):
            frontend.transcript(text)


def test_a_text_in_pieces_is_judged_by_one_word_only_at_its_end(tokenizers):
    frontend = TextFrontend(tokenizers["v2"], SimpleNamespace(needs_prefix=False), languages=("en",))
    assert list(frontend.pieces(["Merci", " is French", " for thanks."]))
    with pytest.raises(LanguageUnknown, match="French"):
        list(frontend.pieces(["Mer", "ci."]))


def test_compatible_mode_is_the_reference(tokenizers):
    frontend = TextFrontend(tokenizers["v2"], SimpleNamespace(needs_prefix=False), compatible=True)
    assert [s.text for s in frontend.plan("（括号）内容——破折号").segments] == ["括号内容 破折号。"]


def letters(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c).startswith("L"))


PIECES = st.sampled_from(
    ["<|", "|>", "endofprompt", "[", "]", "<", ">", "[laughter]", "<strong>", "你好", "。", "，", "”", "hello ", "1", "23.5",
     "www.a.com", "\n", "\u200b", " ", "é", "я", "あ", "한", "🎉", "<|endofprompt|>", "＜｜", "｜＞", ".", "-", "—"]
)  # fmt: skip


@settings(steady, max_examples=400)
@given(st.one_of(st.lists(PIECES, max_size=25).map("".join), st.text(max_size=80)))
def test_whatever_is_typed_gives_segments_or_a_named_error(frontends, text):
    frontend = frontends["v3"]
    try:
        plan = frontend.plan(text)
    except (TextEmpty, TextUnspeakable):
        return
    control = {i for t, i in frontend.tokenizer.specials.items() if t.startswith("<|")}
    normal = frontend.normalizer(text)
    assert letters("".join(s.text for s in plan.segments)) == letters(normal.text)
    for segment in plan.segments:
        assert "\n" not in segment.text and "\u200b" not in segment.text
        ids = frontend.segment_ids(segment, [])
        assert ids.n_target > 0
        assert not control & set(ids.ids[len(ids.ids) - ids.n_target :])
