"""Phonemes by sentence, for gates that read codes back."""

from functools import cache

from tools.demo_model.corpus import sentences_file


@cache
def sentences() -> dict[str, str]:
    """Text -> phonemes in the teacher's alphabet, of all sentences that this folder carries."""
    return {row["text"]: row["phonemes"] for row in sentences_file.read()}
