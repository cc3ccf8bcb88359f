"""From what the user gave to the ids that the language model reads, for every mode and release.

The fixed v3 prefix, the <|endofprompt|> rules and the harmlessness of typed tags live here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cosy_engine.errors import FETCH, LanguageUnknown, TextEmpty, TextTooLong, TextUnspeakable
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.settings.modes import Mode
from cosy_engine.text.capitals import without_capitals, without_greek
from cosy_engine.text.clean import clean_characters, neutralise_tags, strip_prefix
from cosy_engine.text.languages import NAMES, detect, unspoken
from cosy_engine.text.normalize import TextNormalizer
from cosy_engine.text.reference_rules import reference_segments, reference_text
from cosy_engine.text.split import STOP_S, Segment, closed, speakable, split_text
from cosy_engine.text.tokenizer import END_OF_PROMPT, TextTokenizer

SYSTEM = "You are a helpful assistant."  # fixed words that v3 was trained with
MAX_CHARS = 5000
LANGUAGE_CHARS = 400  # of a text that comes in pieces, by which its language is told


@dataclass(frozen=True)
class TextPlan:
    """A text cut into what the model is given one after another. notes: for the user, in English."""

    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()
    language: str = "en"


@dataclass(frozen=True)
class SegmentIds:
    """ids: of one segment as the model is fed, v3's prefix included where it belongs. n_target: how many of them are
    to be spoken; length limits count these (upstream counts the prefix too, which makes its limits loose)."""

    ids: list[int]
    n_target: int


class TextFrontend:
    """Texts, transcripts and instructions to ids. Holds no state of a request; safe to share between threads."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        spec: ModelSpec,
        normalizer: TextNormalizer | None = None,
        *,
        max_chars: int = MAX_CHARS,
        compatible: bool = False,
        languages: tuple[str, ...] = (),
        knows_tags: bool = True,
        knows_capitals: bool = True,
        joins_sentences: bool = True,
        short_texts: bool = False,
    ):
        """compatible: the reference's exact rules, for comparisons; what it does wrong is then done wrong.

        languages: the only ones that the model speaks, () for no limit. knows_tags: it was taught the tokenizer's tags;
        knows_capitals: and words in capitals (else they are written small, and short ones as the names of their letters);
        joins_sentences: it speaks several sentences of one segment to the end; short_texts: and a text much shorter than the
        reference's words as well as others.
        """
        self.tokenizer = tokenizer
        self.spec = spec
        self.languages = languages
        self._only = (
            languages[0] if len(languages) == 1 else None
        )  # whose numbers are read in it, whatever a text looks like
        self.marks = tokenizer.marks if knows_tags else ()
        self._join, self._short = joins_sentences, short_texts
        self._written = (lambda text: text) if knows_capitals else lambda text: without_capitals(without_greek(text))
        self.normalizer = normalizer or TextNormalizer(self.marks)
        self.max_chars = max_chars
        self.compatible = compatible
        self._prefix_ids = tokenizer.encode(SYSTEM + END_OF_PROMPT) if spec.needs_prefix else []

    @property
    def backend(self) -> str:
        """Which normaliser reads numbers; shown to the user."""
        return self.normalizer.backend

    def plan(self, text: str, language: str | None = None) -> TextPlan:
        """Segments of a text to speak. language: ISO 639-1 code, None to detect.

        Raises: TextEmpty: nothing but blanks. TextUnspeakable: marks or emoji only. TextTooLong: above max_chars.
        LanguageUnknown: the model does not speak it.
        """
        if len(text) > self.max_chars:
            raise TextTooLong(
                f"the text has {len(text):,} characters, at most {self.max_chars:,} are spoken at once: "
                "shorten it or generate it in parts"
            )
        text = strip_prefix(text)
        if not clean_characters(text, keep_emoji=True).strip():
            raise TextEmpty("the text is empty: write what is to be spoken")
        if self.compatible:
            clean, _ = neutralise_tags(text, self.marks)
            found = reference_segments(clean, self.tokenizer.count, self.normalizer.wfst)
            segments = tuple(Segment(s, STOP_S if i < len(found) - 1 else 0.0) for i, s in enumerate(found))
            notes, language = (), "zh" if re.search("[\u4e00-\u9fff]", clean) else "en"
        else:
            normal = self.normalizer(text, language or self._only)
            notes, language = normal.notes, normal.language
            segments = split_text(
                self._written(normal.text), self.tokenizer.count, language, self.marks, join=self._join
            )
        if not any(speakable(self._without_marks(segment.text)) for segment in segments):
            raise TextUnspeakable(
                "the text holds no word that can be spoken, only punctuation, symbols or tags: write some words"
            )
        self._check_language(text, "text")
        return TextPlan(segments, notes, language)

    def transcript(self, text: str) -> tuple[str, tuple[str, ...]]:
        """(normalised transcript of the reference in one piece, notes). "" when it holds nothing that is spoken.

        Raises: LanguageUnknown.
        """
        if self.compatible:
            return reference_text(strip_prefix(text), self.normalizer.wfst), ()
        normal = self.normalizer(strip_prefix(text), self._only)
        spoken = self._written(" ".join(normal.text.split("\n")).strip())
        self._check_language(text, "transcript")
        return (spoken, normal.notes) if speakable(spoken) else ("", normal.notes)

    def short_text_note(self, plan: TextPlan, transcript: str) -> str | None:
        """A hint when a text is under half as long as the reference's words: the published models tend to speak such texts worse
        (their own code warns of it), a model whose card says short_texts does not."""
        spoken = sum(len(segment.text) for segment in plan.segments)
        if transcript and not self._short and spoken < 0.5 * len(transcript.strip()):
            return (
                "the text is much shorter than the words of the reference clip, which often sounds worse: "
                "use a shorter clip, or a longer text"
            )
        return None

    @staticmethod
    def accent_note(plan: TextPlan, transcript: str) -> str | None:
        """A hint when the reference speaks another language than the text: its accent is cloned with the voice."""
        heard, spoken = detect(transcript, fallback="und"), plan.language
        if "und" in (heard, spoken) or heard == spoken:
            return None
        return (
            f"the reference speaks {heard} and the text is {spoken}: an accent may be heard; mode cross_lingual keeps it "
            "smaller, a reference in the language of the text smallest"
        )

    def prompt_ids(self, mode: Mode, transcript: str = "", instruction: str = "") -> list[int]:
        """Ids that stand before the text: an instruction, else the transcript if the mode's LLM hears the reference.

        Empty where the model gets no prompt text (cross-lingual; a saved voice without transcript).
        """
        if self.has_instruction(mode, instruction):
            return self._instruction_ids(instruction)
        transcript = self.transcript(transcript)[0] if mode.llm_hears_reference else ""
        return self._prefix_ids + self.tokenizer.encode_user(transcript) if transcript else []

    def hears_reference(self, mode: Mode, transcript: str = "", instruction: str = "") -> bool:
        """Whether the reference's speech tokens go to the LLM: they do exactly when its transcript does."""
        if self.has_instruction(mode, instruction) or not mode.llm_hears_reference:
            return False
        return bool(self.transcript(transcript)[0])

    @staticmethod
    def has_instruction(mode: Mode, instruction: str) -> bool:
        return "instruction" in mode.asks + mode.accepts and bool(_bare_instruction(instruction))

    def segment_ids(self, segment: Segment | str, prompt: list[int]) -> SegmentIds:
        """Ids of one segment. v3 refuses to speak without <|endofprompt|>, so a prompt that lacks it puts the prefix
        before every segment. prompt: what `prompt_ids` gave."""
        text = segment if isinstance(segment, str) else segment.text
        ids = self.tokenizer.encode_user(text)
        prefix = [] if self.tokenizer.endofprompt_id in prompt else self._prefix_ids
        return SegmentIds(prefix + ids, len(ids))

    def pieces(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Ids of text that arrives piece by piece (bistream); no normalisation, as a number may still be arriving. A text without
        a final mark gets one.

        A tag that is cut by a piece border is held back until it is whole, and is then as harmless as elsewhere.
        """
        held = heard = ""
        for text in texts:
            held += text
            heard = (heard + text)[-LANGUAGE_CHARS:]
            self._check_language(heard, "text", goes_on=True)
            cut = _open_tag(held)
            ready, held = held[:cut], held[cut:]
            if ids := self._piece_ids(ready):
                yield ids
        self._check_language(heard, "text")
        held += closed(heard.rstrip())[len(heard.rstrip()) :]
        if ids := self._piece_ids(held):
            yield ids

    def _check_language(self, text: str, what: str, goes_on: bool = False) -> None:
        """Of a text as it was typed: its numbers are in no language yet."""
        if not self.languages:
            return
        found = unspoken(self._written(clean_characters(text)), self.languages, goes_on=goes_on)
        if found is None:
            return
        known = ", ".join(NAMES[language] for language in self.languages)
        raise LanguageUnknown(
            f"the {what} looks like {NAMES.get(found, 'another language')}, and this model speaks {known} only: "
            f"write {known}, or get a full model with {FETCH} v3"
            + ("; the voice alone is cloned without a transcript (cross_lingual)" if what == "transcript" else "")
        )

    def _piece_ids(self, text: str) -> list[int]:
        return self.tokenizer.encode_user(self._written(neutralise_tags(clean_characters(text), self.marks)[0]))

    def _instruction_ids(self, instruction: str) -> list[int]:
        bare, _ = neutralise_tags(clean_characters(_bare_instruction(instruction)), self.marks)
        words = f"{SYSTEM} {bare.strip()}" if self.spec.needs_prefix else bare.strip()
        return [*self.tokenizer.encode_user(words), self.tokenizer.endofprompt_id]

    def _without_marks(self, text: str) -> str:
        for mark in self.marks:
            if mark in text:
                text = text.replace(mark, " ")
        return text


def _bare_instruction(instruction: str) -> str:
    """The instruction without the end tag and fixed words that official examples carry; the engine adds both."""
    text = strip_prefix(instruction).strip()
    text = text.removesuffix(END_OF_PROMPT).strip()
    return text.removeprefix(SYSTEM).strip()


def _open_tag(text: str) -> int:
    """Where a tag starts that has no end yet; len(text) when there is none. Long ones are no tags."""
    start = max(text.rfind("<"), text.rfind("["))
    if start < 0 or len(text) - start > 64 or re.search(r"[>\]]", text[start:]):
        return len(text)
    return start
