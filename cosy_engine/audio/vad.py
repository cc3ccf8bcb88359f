"""Where a clip has speech: silero's network when its wheel is there (ONNX, no torch needed), else by energy."""

from __future__ import annotations

import importlib.util
import logging
import threading
from functools import cache
from pathlib import Path

import numpy as np
import torch

from cosy_engine.audio.features import TOKENIZER_HZ, resample
from cosy_engine.audio.onnx_session import OnnxModel
from cosy_engine.errors import CosyError
from cosy_engine.types import Clip

log = logging.getLogger(__name__)

FRAME_SAMPLES, CONTEXT_SAMPLES = 512, 64  # 32 ms frames at 16 kHz, and what the network sees before each
FRAME_S = FRAME_SAMPLES / TOKENIZER_HZ
MODEL_FILE = "data/silero_vad_16k_sequence.onnx"  # the whole clip in one call
ON, OFF = 0.5, 0.35  # speech starts above ON and lasts until below OFF
USUAL_PEAK = 0.1  # a clip below is raised to it: the network was made for speech at usual levels
MIN_SPEECH_FRAMES, MIN_PAUSE_FRAMES = 4, 4  # shorter runs (130 ms) are parts of a word
_lock = threading.Lock()


def speech_spans(clip: Clip) -> list[tuple[float, float]]:
    """(start, end) in seconds of each stretch of speech, in order, parted by pauses of at least 0.13 s."""
    probability = speech_probability(clip)
    speech = np.zeros(len(probability), bool)
    on = False
    for i, p in enumerate(probability):
        on = p > (OFF if on else ON)
        speech[i] = on
    spans: list[list[int]] = []
    for start, end in _runs(speech):
        if spans and start - spans[-1][1] < MIN_PAUSE_FRAMES:
            spans[-1][1] = end
        else:
            spans.append([start, end])
    return [
        (start * FRAME_S, min(end * FRAME_S, clip.seconds)) for start, end in spans if end - start >= MIN_SPEECH_FRAMES
    ]


def speech_probability(clip: Clip) -> np.ndarray:
    """(frames,) float32 in [0, 1], one for each 32 ms."""
    wave = resample(torch.from_numpy(clip.samples), clip.rate_hz, TOKENIZER_HZ).numpy()
    wave = wave * (USUAL_PEAK / min(max(float(np.abs(wave).max(initial=0.0)), 1e-6), USUAL_PEAK))
    model = _silero()
    frames = -(-len(wave) // FRAME_SAMPLES)
    padded = np.zeros(CONTEXT_SAMPLES + frames * FRAME_SAMPLES, np.float32)
    padded[CONTEXT_SAMPLES : CONTEXT_SAMPLES + len(wave)] = wave
    if model is None:
        return _by_energy(padded[CONTEXT_SAMPLES:].reshape(frames, FRAME_SAMPLES))
    windows = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT_SAMPLES + FRAME_SAMPLES)[::FRAME_SAMPLES]
    zeros = np.zeros((1, 1, 128), np.float32)
    return model.run(np.ascontiguousarray(windows), zeros, zeros).reshape(-1)


def backend() -> str:
    """ "silero" or "energy"."""
    return "energy" if _silero() is None else "silero"


def _by_energy(frames: np.ndarray) -> np.ndarray:
    """1 where a frame is well above the clip's quiet parts and not far below its loud ones."""
    level = 20 * np.log10(np.sqrt(np.mean(np.square(frames), axis=1)) + 1e-6)
    quiet, loud = np.percentile(level, 10), np.percentile(level, 95)
    threshold = max(loud - 30.0, min(quiet + 8.0, loud - 6.0), -60.0)
    return (level > threshold).astype(np.float32)


def _silero() -> OnnxModel | None:
    with _lock:
        return _load_silero()


@cache
def _load_silero() -> OnnxModel | None:
    found = importlib.util.find_spec("silero_vad")  # does not import it: that would need torchaudio
    if found is None or not found.submodule_search_locations:
        log.info("silero-vad is not installed: speech is found by energy")
        return None
    try:
        return OnnxModel(Path(found.submodule_search_locations[0], MODEL_FILE), device="cpu")
    except (CosyError, ImportError) as error:
        log.warning("speech is found by energy, as silero-vad cannot be used: %s", error)
        return None


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
