"""A clip becomes one Voice, once; saved voices are checked field by field."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cosy_engine.audio.speaker_encoder import SpeakerEncoder
from cosy_engine.audio.speech_tokenizer import SpeechTokenizer
from cosy_engine.audio.voice import VoiceEncoder, load_voice, save_voice, voice_name
from cosy_engine.audio.waveform import read_clip
from cosy_engine.errors import ReferenceTooLong, ReferenceTooShort, ReferenceUnreadable
from cosy_engine.settings.model_spec import MelSpec
from tests.audio.conftest import encoded, muxed


def noise(seconds: float, rate_hz: int = 24000, seed: int = 0):
    return read_clip(
        (rate_hz, (0.1 * np.random.default_rng(seed).standard_normal(int(seconds * rate_hz))).astype(np.float32))
    )


@pytest.fixture
def encoder(tiny_networks):
    return VoiceEncoder(SpeechTokenizer(tiny_networks[0]), SpeakerEncoder(tiny_networks[1]), MelSpec(), "model-a")


@pytest.mark.parametrize("rate_hz", [16000, 24000, 44100])
@pytest.mark.parametrize("seconds", [0.5, 0.999, 1.013, 2.0, 5.37, 29.99])
def test_tokens_and_mel_are_one_to_two(encoder, seconds, rate_hz):
    voice = encoder.encode(noise(seconds, rate_hz), "hello")
    assert len(voice.mel) == 2 * len(voice.tokens)
    assert abs(len(voice.tokens) - 25 * seconds) <= 1.5
    assert (voice.tokens.dtype, voice.mel.dtype, voice.embedding.shape) == (torch.int64, torch.float32, (192,))
    assert voice.transcript == "hello"


def test_lengths_outside_the_models_range_are_refused(encoder):
    short = noise(0.6)
    with pytest.raises(ReferenceTooShort, match=r"0\.40 s, at least 0\.5 s"):
        encoder.encode(type(short)(short.samples[:9600], 24000, "x"))
    with pytest.raises(ReferenceTooLong, match=r"at most 30 s"):
        encoder.encode(noise(30.1))


def test_a_clip_is_computed_once_whatever_its_transcript(encoder):
    clip = noise(2)
    first, second = encoder.encode(clip, "one"), encoder.encode(clip, "two")
    assert first.tokens is second.tokens
    assert (first.transcript, second.transcript) == ("one", "two")
    assert first.key == second.key


def test_two_clips_with_the_same_transcript_are_two_voices(encoder):
    first, second = encoder.encode(noise(2, seed=1), "same"), encoder.encode(noise(2, seed=2), "same")
    assert first.key != second.key
    assert not torch.equal(first.embedding, second.embedding)


def test_another_model_has_another_key(encoder):
    other = VoiceEncoder(encoder.tokenizer, encoder.speaker, MelSpec(), "model-b")
    assert other.encode(noise(1)).key != encoder.encode(noise(1)).key


def counting(encoder):
    calls = []
    real = encoder.tokenizer

    def slow(wave):
        calls.append(len(wave))
        time.sleep(0.05)
        return real(wave)

    encoder.tokenizer = slow
    return calls


def test_threads_that_ask_together_share_one_computation(encoder):
    calls = counting(encoder)
    clip = noise(1)
    voices = []
    threads = [threading.Thread(target=lambda: voices.append(encoder.encode(clip))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len({id(voice.tokens) for voice in voices}) == 1


def test_an_error_reaches_all_who_wait_and_is_not_kept(encoder):
    real, clip = encoder.tokenizer, noise(1)

    def failing(wave):
        time.sleep(0.05)
        raise RuntimeError("once")

    encoder.tokenizer = failing
    errors = []

    def ask():
        try:
            encoder.encode(clip)
        except RuntimeError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["once"] * 3
    encoder.tokenizer = real
    assert len(encoder.encode(clip).tokens) == 25


def test_the_cache_stays_under_its_limit(tiny_networks):
    encoder = VoiceEncoder(
        SpeechTokenizer(tiny_networks[0]), SpeakerEncoder(tiny_networks[1]), MelSpec(), "m", cache_bytes=100_000
    )
    calls = counting(encoder)
    clips = [noise(2, seed=i) for i in range(6)]  # about 33 kB each
    for clip in clips:
        encoder.encode(clip)
    encoder.encode(clips[-1])
    assert len(calls) == 6
    encoder.encode(clips[0])  # long gone
    assert len(calls) == 7
    assert encoder._voices.used_bytes <= 100_000


def test_long_sources_are_read_in_parts_without_losing_a_token(encoder):
    clip = noise(65, 16000)
    tokens = encoder.source_tokens(clip)
    assert len(tokens) == 65 * 25
    assert len(encoder.source_tokens(noise(3.0))) == 75


def test_parts_of_a_source_are_cut_at_quiet_places(encoder):
    wave = noise(40, 16000).samples.copy()
    wave[16000 * 25 : 16000 * 26] = 0
    calls = counting(encoder)
    encoder.source_tokens(read_clip((16000, wave)))
    assert 25 * 16000 <= calls[0] <= 26 * 16000
    assert all(n % 640 == 0 for n in calls[:-1])


# Containers


@pytest.fixture(scope="module")
def real_encoder(miniature_folder):
    """The built-in networks, trained ones: a small change of the sound changes little."""
    return VoiceEncoder(
        SpeechTokenizer(miniature_folder / "speech_tokenizer_v3.onnx"),
        SpeakerEncoder(miniature_folder / "campplus.onnx"),
        MelSpec(),
        "miniature",
    )


def likeness(a, b) -> float:
    return torch.nn.functional.cosine_similarity(a.embedding, b.embedding, dim=0).item()


def matches(a, b) -> float:
    n = min(len(a.tokens), len(b.tokens))
    return (a.tokens[:n] == b.tokens[:n]).float().mean().item()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: encoded(x, 24000, "WAV", "PCM_24"),
        lambda x: encoded(x, 24000, "WAV", "FLOAT"),
        lambda x: encoded(x, 24000, "FLAC"),
        lambda x: encoded(np.stack([x, x], axis=1), 24000),
        lambda x: muxed(x, 24000, "matroska", "flac"),
    ],
)
def test_lossless_containers_give_the_same_voice(speech, real_encoder, clean_wav, make):
    reference = read_clip(clean_wav)
    voice, copy = real_encoder.encode(reference), real_encoder.encode(read_clip(make(reference.samples)))
    assert torch.equal(voice.tokens, copy.tokens) and torch.equal(voice.embedding, copy.embedding)


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda x: encoded(x, 24000, "MP3", "MPEG_LAYER_III"), 0.5),
        (lambda x: encoded(x, 24000, "OGG", "OPUS"), 0.5),
        (lambda x: muxed(x, 24000, "ipod", "aac"), 0.3),  # the encoder's delay shifts frames against each other
    ],
)
def test_lossy_containers_give_nearly_the_same_voice(speech, real_encoder, clean_wav, make, least):
    """Single tokens differ where the codec changed the sound; the speaker must not."""
    voice = real_encoder.encode(read_clip(clean_wav))
    copy = real_encoder.encode(read_clip(make(read_clip(clean_wav).samples)))
    assert likeness(voice, copy) > 0.97
    assert matches(voice, copy) > least
    other = real_encoder.encode(speech[1])
    assert likeness(voice, copy) > likeness(voice, other)


# Saved voices


@pytest.fixture
def saved(encoder, tmp_path):
    voice = encoder.encode(noise(2), "Ünïcode 你好")
    path = tmp_path / "my voice.safetensors"
    save_voice(path, voice, "model-a")
    return voice, path


def test_a_saved_voice_comes_back_equal(saved):
    voice, path = saved
    loaded = load_voice(path, "model-a")
    for name in ("tokens", "mel", "embedding"):
        assert torch.equal(getattr(loaded, name), getattr(voice, name))
    assert (loaded.transcript, loaded.key) == (voice.transcript, voice.key)
    assert list(path.parent.iterdir()) == [path]  # no partial file is left


def test_a_saved_voice_keeps_the_name_it_was_given(saved, tmp_path):
    voice, path = saved
    assert voice_name(path) == path.stem  # none was given
    for given, kept in (
        ("爷爷 <b>", "爷爷 <b>"),
        ("  a \n b ", "a b"),
        ("x" * 61, "file"),
        ("half \ud800", "file"),
        (5, "file"),
    ):
        save_voice(tmp_path / "file.safetensors", voice, "model-a", given)
        load_voice(tmp_path / "file.safetensors", "model-a")
        assert voice_name(tmp_path / "file.safetensors") == kept


def test_a_voice_of_another_model_is_refused(saved):
    with pytest.raises(ReferenceUnreadable, match="made with model-a, the loaded model is model-b"):
        load_voice(saved[1], "model-b")


def changed(path, change):
    tensors = load_file(path)
    header = {"format": "cosy-voice-1", "model": "model-a", "transcript": "x", "key": "k"}
    change(tensors, header)
    save_file(tensors, path, metadata={"voice": json.dumps(header)})


@pytest.mark.parametrize(
    "change",
    [
        lambda t, h: t.pop("mel"),
        lambda t, h: t.update(extra=torch.zeros(3)),
        lambda t, h: t.update(tokens=t["tokens"].float()),
        lambda t, h: t.update(tokens=t["tokens"] + 6561),
        lambda t, h: t.update(tokens=t["tokens"] - 6561),
        lambda t, h: t.update(tokens=t["tokens"][:-1].clone()),
        lambda t, h: t.update(tokens=t["tokens"][:0].clone(), mel=t["mel"][:0].clone()),
        lambda t, h: t.update(tokens=t["tokens"].repeat(20), mel=t["mel"].repeat(20, 1)),
        lambda t, h: t["mel"].fill_(float("nan")),
        lambda t, h: t["embedding"].fill_(float("inf")),
        lambda t, h: t["embedding"].zero_(),
        lambda t, h: t.update(embedding=torch.ones(256)),
        lambda t, h: t.update(mel=t["mel"].half()),
        lambda t, h: h.update(format="other"),
        lambda t, h: h.update(transcript=3),
        lambda t, h: h.update(transcript="x" * 5000),
        lambda t, h: h.pop("key"),
    ],
)
def test_a_tampered_voice_file_is_refused(saved, change):
    changed(saved[1], change)
    with pytest.raises(ReferenceUnreadable, match="save the voice again"):
        load_voice(saved[1], "model-a")


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\xff" * 20, (2**40).to_bytes(8, "little") + b"{}"])
def test_what_is_no_voice_file_is_refused(tmp_path, content):
    file = tmp_path / "v.safetensors"
    file.write_bytes(content)
    with pytest.raises(ReferenceUnreadable, match=r"v\.safetensors"):
        load_voice(file, "m")
    with pytest.raises(ReferenceUnreadable, match="no such file"):
        load_voice(tmp_path / "none.safetensors", "m")
