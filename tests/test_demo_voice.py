"""The shipped voice speaks: what was written, in the voice that was given, in English only."""

import itertools
import json

import numpy as np
import pytest
import torch

from cosy_engine import Request, load
from cosy_engine.audio.waveform import read_clip
from cosy_engine.errors import LanguageUnknown, ModeUnavailable
from cosy_engine.model_files.layout import find_release
from tests.conftest import DEMO_VOICE
from tests.recogniser import Recogniser, word_errors

VOICES = DEMO_VOICE.parent / "voices"
# Written for this test; neither the corpus nor its held-out part has them. The recogniser makes 2 % errors of its own.
SENTENCES = (
    "The children walked along the river until the sun went down.",
    "Please put the blue cup on the table beside the window.",
    "She has read the same book three times since last summer.",
    "We could not find the old bridge behind the forest.",
)
LARGEST_WORD_ERROR_RATE = 0.2  # 4 % on 80 held-out sentences; one word of these four sentences is 2.3 %


@pytest.fixture(scope="module")
def engine():
    engine = load(DEMO_VOICE, device="cpu", slots=2)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def examples() -> dict[str, dict]:
    """Reference and transcript of each example voice."""
    return {
        path.stem: {"reference": str(path), "transcript": path.with_suffix(".txt").read_text("utf-8").strip()}
        for path in sorted(VOICES.glob("*.ogg"))
    }


@pytest.fixture(scope="module")
def recogniser():
    return Recogniser()


@pytest.mark.parametrize("stream", (False, True))
def test_what_is_written_is_understood(engine, examples, recogniser, stream):
    wrong = total = 0
    for sentence, example in zip(SENTENCES, itertools.cycle(examples.values())):
        result = engine.speak_all(Request(text=sentence, seed=1, stream=stream, **example))
        more, words = word_errors(sentence, recogniser(result.samples, result.rate_hz))
        wrong, total = wrong + more, total + words
        assert result.report.retries == 0
    assert wrong / total <= LARGEST_WORD_ERROR_RATE


def test_no_sentence_is_lost(engine, examples, recogniser):
    text = "First we walk to the river. Then we drink some tea together."
    result = engine.speak_all(Request(text=text, seed=7, **examples["soft"]))
    wrong, total = word_errors(text, recogniser(result.samples, result.rate_hz))
    assert len(result.report.segments) == 2 and wrong / total <= LARGEST_WORD_ERROR_RATE


def test_shouting_is_understood(engine, examples, recogniser):
    result = engine.speak_all(Request(text=SENTENCES[0].upper(), seed=1, **examples["low"]))
    wrong, total = word_errors(SENTENCES[0], recogniser(result.samples, result.rate_hz))
    assert wrong / total <= LARGEST_WORD_ERROR_RATE


def test_without_a_transcript_it_is_understood_too(engine, examples, recogniser):
    result = engine.speak_all(
        Request(mode="cross_lingual", text=SENTENCES[0], seed=2, reference=examples["low"]["reference"])
    )
    wrong, total = word_errors(SENTENCES[0], recogniser(result.samples, result.rate_hz))
    assert wrong / total <= LARGEST_WORD_ERROR_RATE


@pytest.mark.parametrize("change_db", (-38, -20, 9))
def test_the_level_of_the_reference_is_not_that_of_the_output(engine, examples, recogniser, change_db):
    clip = read_clip(examples["low"]["reference"])
    reference = clip.rate_hz, np.clip(clip.samples * 10 ** (change_db / 20), -1, 1)
    result = engine.speak_all(Request(**(examples["low"] | {"text": SENTENCES[0], "seed": 1, "reference": reference})))
    wrong, total = word_errors(SENTENCES[0], recogniser(result.samples, result.rate_hz))
    assert wrong / total <= LARGEST_WORD_ERROR_RATE and result.report.retries == 0
    assert -32 < 20 * np.log10(np.sqrt(np.mean(result.samples**2))) < -12
    assert any("level was changed" in note for note in result.report.notes)


def test_voices_differ_and_each_is_nearest_to_its_own_reference(engine, examples):
    def voice(samples, rate_hz):
        vector = engine.voices.encode(read_clip((rate_hz, samples)), "").embedding
        return torch.nn.functional.normalize(torch.as_tensor(vector).flatten().float(), dim=0)

    heard, given = [], []
    for example in examples.values():
        clip = read_clip(example["reference"])
        given.append(voice(clip.samples, clip.rate_hz))
        result = engine.speak_all(Request(text=SENTENCES[0], seed=1, **example))
        heard.append(voice(result.samples, result.rate_hz))
    near = torch.stack(heard) @ torch.stack(given).T
    assert near.argmax(1).tolist() == list(range(len(examples)))
    assert (near.diagonal() - (near - 2 * torch.eye(len(near))).amax(1)).min() > 0.05


def test_a_greeting_is_spoken_as_well_as_a_sentence_and_gets_no_hint_about_its_length(engine, examples, recogniser):
    wrong = total = 0
    for example in examples.values():
        result = engine.speak_all(Request(text="Thank you very much.", seed=1, **example))
        assert result.report.notes == ()
        errors, words = word_errors("Thank you very much.", recogniser(result.samples, result.rate_hz))
        wrong, total = wrong + errors, total + words
    assert wrong / total <= LARGEST_WORD_ERROR_RATE


def test_the_card_is_the_models_and_the_folder_is_small(engine):
    card = find_release(DEMO_VOICE).card
    assert card["trained"] and card["languages"] == ["en"] and "fetch" in card["note"]
    assert engine.name == json.loads((DEMO_VOICE / "card.json").read_text("utf-8"))["name"]
    assert sum(p.stat().st_size for p in DEMO_VOICE.rglob("*") if p.is_file()) <= 64e6


def test_a_language_it_was_not_taught_is_refused_by_name(engine, examples):
    low = examples["low"]
    for text, language in (
        ("今天天气很好。", "Chinese"),
        ("Guten Morgen, wie geht es dir?", "German"),
        ("Привет, мир", "Russian"),
    ):
        with pytest.raises(LanguageUnknown, match=f"text looks like {language}.*English only"):
            engine.speak(Request(text=text, **low))
    with pytest.raises(LanguageUnknown, match="transcript looks like Chinese"):
        engine.speak(Request(text="Hello there.", reference=low["reference"], transcript="今天天气很好。"))
    for pieces, language in (
        (["Hello, ", "你好。"], "Chinese"),
        (["Gu", "ten Mor", "gen, wi", "e ge", "ht es d", "ir?"], "German"),
    ):
        with pytest.raises(LanguageUnknown, match=language):
            engine.speak_all(Request(text=iter(pieces), **low))


def test_names_from_abroad_and_symbols_that_are_read_are_no_other_language(engine, examples):
    for text in (
        "The café in Zürich costs 5 €.",
        "Die Hard is a film.",
        "It is 20 °C and 5 µm wide.",
        "La La Land, and Amélie.",
    ):
        engine.job(Request(text=text, **examples["low"]))


def test_what_it_was_not_taught_is_not_pretended(engine, examples):
    with pytest.raises(ModeUnavailable, match="instruct"):
        engine.speak(
            Request(mode="instruct", text="Hello.", instruction="softly", reference=examples["low"]["reference"])
        )
    _, notes = engine.job(Request(text="Hello there [laughter] my friend.", **examples["low"]))
    assert any("[laughter]" in note for note in notes)


def test_half_precision_speaks_too(engine, examples, recogniser):
    """bf16 is the half precision that a CPU has; fp16 is measured on a GPU."""
    if "bf16" in engine.unavailable:
        pytest.skip(f"bf16: {engine.unavailable['bf16']}")
    result = engine.speak_all(Request(text=SENTENCES[1], seed=1, precision="bf16", **examples["middle"]))
    wrong, total = word_errors(SENTENCES[1], recogniser(result.samples, result.rate_hz))
    assert wrong / total <= LARGEST_WORD_ERROR_RATE and np.abs(result.samples).max() < 1
