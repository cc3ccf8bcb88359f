"""16 kHz audio to the 192-wide speaker vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.audio.features import FBANK_BINS, kaldi_fbank
from cosy_engine.audio.onnx_session import MEND, OnnxModel
from cosy_engine.errors import ModelFilesError

WIDTH = 192


class SpeakerEncoder:
    """`campplus.onnx` or another file with its input. On the CPU unless told otherwise, as officially."""

    def __init__(self, file: str | Path, *, device: object = "cpu", threads: int = 1):
        """Raises: ModelFilesError: no ONNX model, or one that does not take (1, M, 80)."""
        self._model = OnnxModel(file, device=device, threads=threads)
        if len(self._model.inputs) != 1 or FBANK_BINS not in self._model.shape(0):
            raise ModelFilesError(
                f"{self._model.file} takes {self._model.inputs}, a speaker encoder takes {FBANK_BINS}-bin features: {MEND}"
            )

    @property
    def provider(self) -> str:
        return self._model.provider

    def __call__(self, wave: Tensor) -> Tensor:
        """(N,) float32 at 16 kHz, N >= 400 -> (192,) float32 on the CPU, raw: the flow normalises it.

        Raises: ReferenceTooShort. ModelFilesError: the file gives another width.
        """
        out = np.asarray(self._model.run(kaldi_fbank(wave[None]).cpu().numpy()), dtype=np.float32).reshape(-1)
        if len(out) != WIDTH:
            raise ModelFilesError(f"{self._model.file} gives {len(out)} values, expected {WIDTH}: {MEND}")
        return torch.from_numpy(out.copy())
