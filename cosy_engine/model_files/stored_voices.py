"""Voices that the official tools keep in a model folder: spk2info.pt, a dict of name -> what "add speaker" has saved of a clip.

Such a file is no part of a published release; people add it. Its voices have been made with the networks of that folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosy_engine.errors import ModelFilesError
from cosy_engine.model_files.weights import unpickled
from cosy_engine.types import Voice

TOKENS, MEL, EMBEDDING, WORDS = "flow_prompt_speech_token", "prompt_speech_feat", "flow_embedding", "prompt_text"
MOST_VALUES = 10**6  # of a field; a clip of 30 s has 120,000 in its mel


def read_stored_voices(path: Path, words: Callable[[list[int]], str]) -> tuple[dict[str, Voice], list[str]]:
    """(voices by name, why others are left out). words: text ids of a transcript -> what was said.

    Shapes are checked here; whether a model can take them is for its own check.
    """
    try:
        data = unpickled(path)
    except ModelFilesError as error:  # the models are there: they speak without it
        return {}, [str(error)]
    if not isinstance(data, dict):
        return {}, [f"{path.name} holds a {type(data).__name__}, not voices by name"]
    voices, wrong = {}, []
    for name, entry in data.items():
        try:
            voices[str(name)] = _voice(entry, words)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            wrong.append(f"{str(name)[:60]!r} in {path.name}: {error}")
    return voices, wrong


def _voice(entry: Any, words: Callable[[list[int]], str]) -> Voice:
    if not isinstance(entry, dict) or not {TOKENS, MEL, EMBEDDING, WORDS} <= entry.keys():
        if isinstance(entry, dict) and isinstance(entry.get("embedding"), Tensor):
            raise ValueError(
                "a speaker embedding alone, which only first-generation models speak with: save the voice from its clip"
            )
        raise ValueError("not what the official add_zero_shot_spk writes: save the voice from its clip")
    fields = {key: entry[key] for key in (TOKENS, MEL, EMBEDDING, WORDS)}
    for key, value in fields.items():
        if (
            not isinstance(value, Tensor)
            or value.layout != torch.strided
            or value.is_meta
            or value.numel() > MOST_VALUES
        ):
            raise ValueError(f"{key} is no tensor of a clip: save the voice from its clip")
    tokens, mel, embedding = (
        fields[TOKENS].reshape(-1).long(),
        fields[MEL].float(),
        fields[EMBEDDING].reshape(-1).float(),
    )
    transcript = words(fields[WORDS].reshape(-1).tolist())
    mel = mel.reshape(-1, mel.shape[-1])
    digest = hashlib.sha256(
        b"".join(x.contiguous().numpy().tobytes() for x in (tokens, mel, embedding)) + transcript.encode()
    )
    return Voice(tokens, mel, embedding, transcript, digest.hexdigest())
