"""Transcription works from local files only, and says why where it cannot."""

from __future__ import annotations

import json

import pytest

from cosy_engine.audio.transcribe import Transcriber
from cosy_engine.errors import ModeUnavailable


@pytest.fixture(scope="module")
def whisper_folder(tmp_path_factory):
    """A random Whisper of two thousand parameters with a byte vocabulary: every file that a real one has."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import (
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    folder = tmp_path_factory.mktemp("whisper")
    words = sorted(ByteLevel.alphabet())
    specials = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    vocab = {word: i for i, word in enumerate([*words, *specials])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = WhisperTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    end = vocab["<|endoftext|>"]
    config = WhisperConfig(
        vocab_size=len(vocab), d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=end, bos_token_id=end,
        eos_token_id=end, decoder_start_token_id=vocab["<|startoftranscript|>"], max_target_positions=32,
        begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    model.generation_config.max_length = 12
    model.save_pretrained(folder)
    return folder


def test_a_local_model_gives_words(whisper_folder, speech):
    transcriber = Transcriber(whisper_folder)
    assert transcriber.unavailable == ""
    assert isinstance(transcriber.words(speech[0]), str)


def test_without_a_model_the_reason_is_known(speech):
    transcriber = Transcriber(None)
    assert "--whisper" in transcriber.unavailable
    with pytest.raises(ModeUnavailable, match="transcription is off"):
        transcriber.words(speech[0])


def test_a_name_that_is_not_on_this_machine_is_not_looked_up_elsewhere():
    assert "is not on this machine" in Transcriber("nobody/no-such-whisper").unavailable


def test_a_broken_folder_turns_transcription_off(tmp_path, speech):
    (tmp_path / "config.json").write_text("{}")
    transcriber = Transcriber(tmp_path)
    with pytest.raises(ModeUnavailable, match="cannot be loaded"):
        transcriber.words(speech[0])
    assert "cannot be loaded" in transcriber.unavailable
