"""Values that cross rooms. All frozen: what one room hands to another does not change under it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cosy_engine.settings.modes import likely_mode


@dataclass(frozen=True, eq=False)
class Clip:
    """Audio as decoded, before any feature. samples: (N,) float32 mono in [-1, 1] at rate_hz; digest: of the content.
    notes: what was odd about the file and how it was met, for the user."""

    samples: np.ndarray
    rate_hz: int
    digest: str
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


@dataclass(frozen=True, eq=False)
class Voice:
    """What the models know of a reference clip; a few kB, holds no audio.

    tokens: (P,) int64 speech tokens at 25 Hz. mel: (2P, M) float32 natural-log mel at 50 Hz.
    embedding: (192,) float32 raw speaker vector. transcript: of the clip, "" when unknown. All on the CPU.
    key: content hash of clip and model; equal keys mean equal features.
    """

    tokens: Tensor
    mel: Tensor
    embedding: Tensor
    transcript: str = ""
    key: str = ""

    @property
    def seconds(self) -> float:
        return len(self.tokens) / 25

    @classmethod
    def empty(cls) -> Voice:
        """A place holder for a voice that is read later."""
        return cls(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 80), torch.zeros(192))


@dataclass(frozen=True, eq=False)
class Request:
    """One job. Only the fields that the mode asks for (settings.modes) are read; others must stay empty.

    mode: "" chooses by what is given: source, a saved Voice, instruction, transcript, or none of them (likely_mode).
    reference: a path, a Clip or a Voice. source: clip whose words are kept in voice conversion.
    text: a string, or an iterator of strings that arrive piece by piece (bistream).
    seed: fixes every draw; None draws one and reports it. speed: 0.5-2, whole audio only.
    """

    mode: str = ""
    text: object = ""
    reference: object = None
    transcript: str = ""
    instruction: str = ""
    source: object = None
    seed: int | None = None
    speed: float = 1.0
    stream: bool = False
    precision: str | None = None  # None: the engine's default
    tier: str | None = None  # likewise
    client: str = ""  # who asks; used for fairness only

    def __post_init__(self) -> None:
        if self.mode == "":
            transcript, instruction = (
                (x.strip() if isinstance(x, str) else x) for x in (self.transcript, self.instruction)
            )
            mode = likely_mode(
                transcript=bool(transcript),
                instruction=bool(instruction),
                source=self.source is not None,
                saved=isinstance(self.reference, Voice),
            )
            object.__setattr__(self, "mode", mode)


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """samples: (N,) float32 at rate_hz, |x| <= 0.99. segment: index of the text segment; segments: how many there are."""

    samples: np.ndarray
    rate_hz: int
    segment: int
    segments: int


@dataclass(frozen=True)
class Report:
    """What a finished request cost. Seconds are wall-clock; rtf = compute_s / audio_s of the whole job, front end
    included; first_audio_s is from request in to the first chunk out; stages_s sums per stage."""

    audio_s: float
    compute_s: float
    first_audio_s: float
    tokens: int
    ms_per_token: float
    stages_s: dict[str, float]
    seed: int
    retries: int
    notes: tuple[str, ...]
    model: str
    mode: str
    precision: str
    tier: str
    device: str
    provider: str
    segments: tuple[dict, ...] = field(default_factory=tuple)  # text, start_s, end_s, tokens
    rows: int = 0  # most rows that were decoded together, this request's own included; 0 where nothing was decoded
    queue_s: float = 0.0  # until it first had a slot; not part of compute_s

    @property
    def rtf(self) -> float:
        return self.compute_s / self.audio_s if self.audio_s else 0.0


def to_int16(samples: np.ndarray) -> np.ndarray:
    """Float [-1, 1] to int16 with one fixed gain; values beyond are clipped, never wrapped."""
    return (np.clip(samples, -1.0, 1.0) * 32767.0).astype(np.int16)


def cpu_float(x: Tensor) -> np.ndarray:
    """(..., N) tensor on any device to a float32 array."""
    return x.detach().to("cpu", torch.float32).numpy()
