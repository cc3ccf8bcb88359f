"""What one can ask for, as a table. The page shows what a mode asks; the engine checks the same rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """asks: fields of Request that must be given; accepts: fields that may be given besides.

    llm_hears_reference: transcript and speech tokens of the clip go to the language model (else the flow alone hears it).
    speaks_text: the words come from `text`; else from the `source` clip.
    """

    id: str
    asks: tuple[str, ...]
    llm_hears_reference: bool
    accepts: tuple[str, ...] = ()
    speaks_text: bool = True


MODES = {
    mode.id: mode
    for mode in (
        Mode("zero_shot", asks=("text", "reference", "transcript"), llm_hears_reference=True),
        Mode("cross_lingual", asks=("text", "reference"), llm_hears_reference=False),
        Mode("instruct", asks=("text", "reference", "instruction"), llm_hears_reference=False),
        # A saved voice carries its own transcript; with one it is heard by the LLM, without one by the flow alone.
        Mode("saved_voice", asks=("text", "reference"), llm_hears_reference=True, accepts=("instruction",)),
        Mode("voice_conversion", asks=("source", "reference"), llm_hears_reference=False, speaks_text=False),
    )
}


def likely_mode(*, transcript: bool, instruction: bool, source: bool, saved: bool) -> str:
    """The mode that the given inputs are for, where none is named. saved: the reference is a saved voice."""
    if source:
        return "voice_conversion"
    if saved:
        return "saved_voice"
    if instruction:
        return "instruct"
    return "zero_shot" if transcript else "cross_lingual"


OPTIONAL_INPUTS = ("text", "reference", "transcript", "instruction", "source")
