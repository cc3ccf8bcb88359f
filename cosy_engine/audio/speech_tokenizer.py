"""16 kHz audio to 25 Hz speech tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.audio.features import TOKENIZER_HZ, WHISPER_BINS, whisper_log_mel
from cosy_engine.audio.onnx_session import MEND, OnnxModel
from cosy_engine.errors import ModelFilesError, ReferenceTooLong

MAX_S = 30.0  # the model's own limit; a longer clip is never cut silently, its transcript would no longer match
SAMPLES_PER_TOKEN = 640  # at 16 kHz


class SpeechTokenizer:
    """`speech_tokenizer_v2.onnx`, `speech_tokenizer_v3.onnx` or another file with their inputs."""

    def __init__(self, file: str | Path, *, device: object = "auto", threads: int = 1):
        """Raises: ModelFilesError: no ONNX model, or one with other inputs than (1, 128, F) and (1)."""
        self._model = OnnxModel(file, device=device, threads=threads)
        if len(self._model.inputs) != 2 or WHISPER_BINS not in self._model.shape(0):
            raise ModelFilesError(
                f"{self._model.file} takes {self._model.inputs}, a speech tokenizer takes {WHISPER_BINS}-bin features and "
                f"their length: {MEND}"
            )

    @property
    def provider(self) -> str:
        return self._model.provider

    def __call__(self, wave: Tensor) -> Tensor:
        """(N,) float32 at 16 kHz -> (ceil(N // 160 / 4),) int64 ids on the CPU.

        Raises: ReferenceTooLong: over 30 s. ReferenceTooShort: too few samples for one frame.
        """
        seconds = len(wave) / TOKENIZER_HZ
        if seconds > MAX_S:
            raise ReferenceTooLong(
                f"the clip is {seconds:.1f} s, at most {MAX_S:.0f} s can be read at once: trim it and try again"
            )
        features = whisper_log_mel(wave[None]).cpu().numpy()  # (1, 128, F)
        length = np.array([features.shape[2]], dtype=np.int32)
        return torch.from_numpy(np.asarray(self._model.run(features, length)).reshape(-1).astype(np.int64))
