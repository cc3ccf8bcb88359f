"""The words of a reference clip by a local Whisper model. Nothing is downloaded: the files must be there already."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import torch

from cosy_engine.audio.features import TOKENIZER_HZ, resample
from cosy_engine.errors import ModeUnavailable
from cosy_engine.types import Clip

log = logging.getLogger(__name__)

MAX_S = 30.0  # what Whisper hears at once


class Transcriber:
    """Loads its model at the first call; one clip at a time. `unavailable` says why it cannot, "" where it can."""

    def __init__(self, model: str | Path | None, device: str | torch.device = "cpu"):
        """model: a folder, or a name whose files lie in the local cache; None turns transcription off."""
        self.model, self.device = str(model) if model else "", device
        self._lock = threading.Lock()
        self._pipeline: Any = None
        self.unavailable = "" if model else "no Whisper model was given: start with --whisper FOLDER"
        if model and not (Path(model) / "config.json").is_file() and not _cached(str(model)):
            self.unavailable = f"the Whisper model {model} is not on this machine: give its folder with --whisper"

    def words(self, clip: Clip) -> str:
        """What is said in a clip; of more than 30 s only the first 30.

        Raises: ModeUnavailable: there is no model, or it cannot be loaded.
        """
        if self.unavailable:
            raise ModeUnavailable(f"transcription is off: {self.unavailable}")
        wave = resample(torch.from_numpy(clip.samples), clip.rate_hz, TOKENIZER_HZ)[: int(MAX_S * TOKENIZER_HZ)]
        with self._lock:
            heard = self._loaded()({"raw": wave.numpy(), "sampling_rate": TOKENIZER_HZ})
        return str(heard["text"]).strip()

    def _loaded(self) -> Any:
        if self._pipeline is None:
            try:
                from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq, AutoTokenizer, pipeline

                model, tokenizer, features = (
                    kind.from_pretrained(self.model, local_files_only=True)
                    for kind in (AutoModelForSpeechSeq2Seq, AutoTokenizer, AutoFeatureExtractor)
                )
                self._pipeline = pipeline(
                    "automatic-speech-recognition",
                    model=model,
                    tokenizer=tokenizer,
                    feature_extractor=features,
                    device=self.device,
                )
            except Exception as error:  # whatever is wrong with the files, the page must go on
                log.exception("the Whisper model cannot be loaded")
                self.unavailable = (
                    f"the Whisper model {Path(self.model).name} cannot be loaded ({type(error).__name__})"
                )
                raise ModeUnavailable(f"transcription is off: {self.unavailable}; type the words") from error
        return self._pipeline


def _cached(name: str) -> bool:
    """Whether a model's files lie in the local cache."""
    try:
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    except (ImportError, ValueError):  # ValueError: no possible name
        return False
