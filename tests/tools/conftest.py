"""A corpus of tones in the format of the generated one, so that the demo voice's training runs in seconds."""

import json
from pathlib import Path

import numpy as np
import pytest

from tools.demo_model.corpus import sentences_file

VOICES, EACH, RATE_HZ = 4, 4, 24000


def write_corpus(folder: Path, guests: bool = False) -> Path:
    """Hums with a pitch per voice; durations, pitch curve and text as generate.py (or guests.py) would write them."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows, waves, curves, size, curve_size = [], [], [], 0, 0
    for k, sentence in enumerate(sentences_file.read()[: VOICES * EACH]):
        symbols = sentence["phonemes"][:20]
        durations = rng.integers(2, 5, len(symbols) + 2)
        n = int(durations.sum()) * 600
        hz = 110.0 * (1 + k % VOICES)
        wave = 0.3 * np.sin(2 * np.pi * hz * np.arange(n) / RATE_HZ) + rng.normal(0, 0.02, n)
        pitch = np.full(n // 300, hz, np.float16)
        row = {"shard": 0, "start": size, "length": n, "speaker": f"v{k % VOICES}", "text": sentence["text"]}
        if guests:
            row["segments"] = [("ə", n / RATE_HZ / 2), (" ", n / RATE_HZ)]
        else:
            row |= {"shift": 1.0, "phonemes": symbols, "durations": durations.tolist(), "cut": 0}
            row["pitch"] = [curve_size, len(pitch)]
        rows.append(row)
        waves.append((wave * 32767).clip(-32768, 32767).astype(np.int16))
        curves.append(pitch)
        size, curve_size = size + n, curve_size + len(pitch)
    (folder / "index.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    np.save(folder / "audio_000.npy", np.concatenate(waves))
    np.save(folder / "pitch_000.npy", np.concatenate(curves))
    style = rng.normal(size=(VOICES, 128)).astype(np.float32)
    np.savez(folder / "speakers.npz", names=[f"v{k}" for k in range(VOICES)], style=style, shift=np.ones(VOICES))
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "train")


@pytest.fixture(scope="session")
def guests(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("guests") / "guests", guests=True)
