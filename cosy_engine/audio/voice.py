"""Reference clip to `Voice`: computed once per clip and model, kept by content, saved as one file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cosy_engine.audio.features import TOKENIZER_HZ, flow_mel, resample
from cosy_engine.audio.speaker_encoder import WIDTH
from cosy_engine.audio.speech_tokenizer import MAX_S, SAMPLES_PER_TOKEN
from cosy_engine.errors import ModelFilesError, ReferenceTooLong, ReferenceTooShort, ReferenceUnreadable
from cosy_engine.settings.model_spec import MelSpec
from cosy_engine.types import Clip, Voice

MIN_S = 0.5  # below, neither the speaker vector nor the prompt says anything about a voice
FRAMES_PER_TOKEN = 2
VOICE_FORMAT = "cosy-voice-1"
MAX_VOICE_BYTES = 2 * 2**20  # 30 s take 0.5 MB
MAX_TRANSCRIPT_CHARS = 2000
MAX_NAME_CHARS = 60
Model = Callable[[Tensor], Tensor]  # (N,) float32 at 16 kHz -> ids or vector


class VoiceEncoder:
    """The audio front end of one release. Safe to share between threads; a clip is computed once, also when several
    threads ask at the same time."""

    def __init__(
        self,
        tokenizer: Model,
        speaker: Model,
        mel_spec: MelSpec,
        model_key: str,
        *,
        cache_bytes: int = 64 * 2**20,
        speech_tokens: int = 6561,
    ):
        """speech_tokens: how many codes the language model knows. model_key: names the weights behind tokenizer and speaker; part of every voice's key."""
        self.tokenizer = tokenizer
        self.speaker = speaker
        self.mel_spec = mel_spec
        self.model_key = model_key
        self.speech_tokens = speech_tokens
        self._voices = _Cache(cache_bytes)
        self._sources = _Cache(cache_bytes // 4)

    @property
    def provider(self) -> str:
        """What the speech tokenizer, the larger of the two, runs on."""
        return getattr(self.tokenizer, "provider", "")

    def encode(self, clip: Clip, transcript: str = "") -> Voice:
        """Tokens, mel and speaker vector of clip, tokens and mel in the ratio 1 : 2.

        Both rates are resampled from the clip itself, never one from the other.
        Raises: ReferenceTooShort: under 0.5 s. ReferenceTooLong: over 30 s.
        """
        if clip.seconds < MIN_S:
            raise ReferenceTooShort(
                f"the reference clip is {clip.seconds:.2f} s, at least {MIN_S} s are needed: "
                "record a longer one (3 to 10 s is best)"
            )
        if clip.seconds > MAX_S:
            raise ReferenceTooLong(
                f"the reference clip is {clip.seconds:.1f} s, at most {MAX_S:.0f} s can be read: trim it and try again"
            )
        key = self.key(clip)
        voice = self._voices.get(key, lambda: self._encode(clip, key))
        return replace(voice, transcript=transcript)

    def forget(self) -> None:
        """Compute every clip anew from here on, as a first-time user's is."""
        self._voices.clear()
        self._sources.clear()

    def source_tokens(self, clip: Clip) -> Tensor:
        """(T,) int64 speech tokens of a clip of any length, for voice conversion. Above 30 s it is read in parts that
        are cut at quiet places, on token borders.

        Raises: ReferenceTooShort: under 0.5 s.
        """
        if clip.seconds < MIN_S:
            raise ReferenceTooShort(
                f"the source clip is {clip.seconds:.2f} s, at least {MIN_S} s are needed: record a longer one"
            )
        return self._sources.get(self.key(clip), lambda: self._source_tokens(clip))

    def key(self, clip: Clip) -> str:
        return hashlib.sha256(f"{clip.digest}\n{self.model_key}".encode()).hexdigest()[:32]

    @torch.inference_mode()
    def _encode(self, clip: Clip, key: str) -> Voice:
        wave = torch.from_numpy(clip.samples)
        wave16 = resample(wave, clip.rate_hz, TOKENIZER_HZ)
        mel = flow_mel(resample(wave, clip.rate_hz, self.mel_spec.rate_hz)[None], self.mel_spec)[0]  # (F, M)
        tokens = self.tokenizer(wave16)
        length = min(len(mel) // FRAMES_PER_TOKEN, len(tokens))
        voice = Voice(
            tokens=tokens[:length].clone(),
            mel=mel[: FRAMES_PER_TOKEN * length].clone(),
            embedding=self.speaker(wave16),
            key=key,
        )
        self.check(voice, "the reference")
        return voice

    def check(self, voice: Voice, name: str) -> None:
        """See check_voice, with this model's sizes."""
        check_voice(voice, name, speech_tokens=self.speech_tokens, mel_bins=self.mel_spec.bins)

    @torch.inference_mode()
    def _source_tokens(self, clip: Clip) -> Tensor:
        wave = resample(torch.from_numpy(clip.samples), clip.rate_hz, TOKENIZER_HZ)
        parts = []
        while len(wave):
            cut = len(wave) if len(wave) <= MAX_S * TOKENIZER_HZ else _quiet_place(wave)
            if cut < SAMPLES_PER_TOKEN and parts:
                break  # a rest of less than one token
            parts.append(self.tokenizer(wave[:cut]))
            wave = wave[cut:]
        tokens = torch.cat(parts)
        if int(tokens.min()) < 0 or int(tokens.max()) >= self.speech_tokens:
            raise ModelFilesError(
                "the speech tokenizer gave ids that the language model does not know: files of two models are mixed"
            )
        return tokens


def save_voice(path: str | Path, voice: Voice, model_key: str, name: str = "") -> None:
    """One .safetensors file: features, and the transcript in its metadata. Written whole or not at all. name: what people
    call the voice, for `voice_name`."""
    path = Path(path)
    check_voice(voice, path.name, mel_bins=voice.mel.shape[-1], speech_tokens=2**31)
    header = {"format": VOICE_FORMAT, "model": model_key, "transcript": voice.transcript, "key": voice.key}
    if name:
        header["name"] = name
    tensors = {
        "tokens": voice.tokens.to(torch.int32).contiguous(),
        "mel": voice.mel.float().contiguous(),
        "embedding": voice.embedding.float().contiguous(),
    }
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        save_file(tensors, part, metadata={"voice": json.dumps(header)})
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load_voice(path: str | Path, model_key: str, *, speech_tokens: int = 6561, mel_bins: int = 80) -> Voice:
    """A voice that `save_voice` wrote. Nothing in the file is believed before it is checked.

    Raises: ReferenceUnreadable: no voice file, a damaged one, or one that was made with another model.
    """
    path = Path(path)
    name = path.name

    def check(right: bool, what: str) -> None:
        if not right:
            raise ReferenceUnreadable(f"{name} is not a usable voice file ({what}): save the voice again from its clip")

    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError:  # a name longer than the file system allows
        size = None
    check(size is not None, "no such file")
    check(0 < size <= MAX_VOICE_BYTES, f"{size} bytes, expected 1 to {MAX_VOICE_BYTES}")
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("voice", "null"))
            names = set(file.keys())
            check(names == {"tokens", "mel", "embedding"}, f"it holds {sorted(names)[:5]}")
            tokens, mel, embedding = (file.get_tensor(key) for key in ("tokens", "mel", "embedding"))
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise ReferenceUnreadable(
            f"{name} is not a usable voice file ({str(error)[:100]}): save the voice again from its clip"
        ) from error
    check(isinstance(header, dict) and header.get("format") == VOICE_FORMAT, f"its format is not {VOICE_FORMAT}")
    transcript, key = header.get("transcript"), header.get("key")
    check(
        isinstance(transcript, str) and len(transcript) <= MAX_TRANSCRIPT_CHARS, "its transcript is missing or too long"
    )
    check(isinstance(key, str) and len(key) <= 64, "its key is missing")
    kinds = tokens.dtype, mel.dtype, embedding.dtype
    check(kinds == (torch.int32, torch.float32, torch.float32), f"its numbers are {kinds}")
    voice = Voice(tokens.long(), mel, embedding, transcript, key)
    check_voice(voice, name, speech_tokens=speech_tokens, mel_bins=mel_bins)
    if header.get("model") != model_key:
        raise ReferenceUnreadable(
            f"{name} was made with {str(header.get('model'))[:60]}, the loaded model is {model_key}: "
            "save the voice again from its clip with this model"
        )
    return voice


def voice_name(path: str | Path) -> str:
    """The name in a file that `load_voice` has taken; the file's own where it holds none that can be shown."""
    with safe_open(path, "pt") as file:
        name = json.loads(file.metadata()["voice"]).get("name")
    fits = isinstance(name, str) and 0 < len(name.strip()) <= MAX_NAME_CHARS and _is_text(name)
    return " ".join((name if fits else Path(path).stem).split())[:MAX_NAME_CHARS]


def check_voice(voice: Voice, name: str, *, speech_tokens: int = 6561, mel_bins: int = 80) -> None:
    """A voice that a model can take: shapes, ranges, finite numbers. An id out of range would break a GPU for everyone.

    Raises: ReferenceUnreadable: says what is wrong.
    """

    def check(right: bool, what: str) -> None:
        if not right:
            raise ReferenceUnreadable(f"{name} is not a usable voice ({what}): save the voice again from its clip")

    tokens, mel, embedding = voice.tokens, voice.mel, voice.embedding
    check(all(isinstance(x, Tensor) for x in (tokens, mel, embedding)), "its features are no tensors")
    check(not tokens.is_floating_point() and tokens.ndim == 1, f"tokens {tokens.dtype} {tuple(tokens.shape)}")
    check(1 <= len(tokens) <= MAX_S * 25, f"{len(tokens)} tokens")
    check(
        mel.is_floating_point() and mel.shape == (FRAMES_PER_TOKEN * len(tokens), mel_bins), f"mel {tuple(mel.shape)}"
    )
    check(embedding.is_floating_point() and embedding.shape == (WIDTH,), f"embedding {tuple(embedding.shape)}")
    check(int(tokens.min()) >= 0 and int(tokens.max()) < speech_tokens, "a token id is outside the model's range")
    check(bool(torch.isfinite(mel).all() and torch.isfinite(embedding).all()), "a value is not finite")
    check(float(mel.abs().max()) < 30 and 0 < float(embedding.abs().max()) < 1e4, "a value is out of range")
    check(_is_text(voice.transcript) and _is_text(voice.key), "its words are no text")
    check(
        isinstance(voice.transcript, str) and len(voice.transcript) <= MAX_TRANSCRIPT_CHARS,
        f"its transcript is longer than {MAX_TRANSCRIPT_CHARS} characters",
    )


def _is_text(value: object) -> bool:
    """Half a surrogate pair is a str that nothing can be done with: no page, file or terminal takes it."""
    try:
        return isinstance(value, str) and value.encode("utf-8") is not None
    except UnicodeEncodeError:
        return False


class _Cache:
    """Least recently used values up to a number of bytes; each is computed by the first who asks."""

    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._kept: OrderedDict[str, object] = OrderedDict()
        self._running: dict[str, Future] = {}
        self._lock = threading.Lock()

    def get(self, key: str, compute: Callable[[], object]):
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            running = self._running.get(key)
            mine = running is None
            if mine:
                running = self._running[key] = Future()
        if not mine:
            return running.result()
        try:
            value = compute()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            running.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
            self._kept[key] = value
            self.used_bytes += _bytes(value)
            while self.used_bytes > self.limit_bytes and len(self._kept) > 1:
                self.used_bytes -= _bytes(self._kept.popitem(last=False)[1])
        running.set_result(value)
        return value

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.used_bytes = 0


def _bytes(value: object) -> int:
    tensors = (value,) if isinstance(value, Tensor) else (value.tokens, value.mel, value.embedding)
    return sum(t.numel() * t.element_size() for t in tensors)


def _quiet_place(wave: Tensor) -> int:
    """Where to end the first part of a long wave: the quietest token in the last third of the allowed length."""
    limit = math.floor(MAX_S * TOKENIZER_HZ / SAMPLES_PER_TOKEN)
    first = 2 * limit // 3
    frames = wave[first * SAMPLES_PER_TOKEN : limit * SAMPLES_PER_TOKEN].view(-1, SAMPLES_PER_TOKEN)
    level = frames.square().mean(dim=1)
    smooth = torch.nn.functional.avg_pool1d(level[None, None], 5, 1, padding=2)[0, 0]  # 0.2 s: a pause, not a stop
    return (first + int(smooth.argmin())) * SAMPLES_PER_TOKEN
