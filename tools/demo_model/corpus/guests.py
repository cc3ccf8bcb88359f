"""Speech of a second synthesiser, with its own phoneme times: what keeps the tokenizer from knowing one teacher only.

    python -m tools.demo_model.corpus.guests --out corpus/guests --hours 3 --jobs 10

flite (Debian package flite, BSD-like licence) speaks the training sentences with voices made of recordings of four
people. There is no pitch curve and no place in the teacher's voice space, so such clips train the phoneme losses and
the distance to the independent encoder only. Writes what generate.py writes, with `segments` ([symbol, end in seconds])
in place of durations.
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly

from tools.demo_model.corpus import sentences_file

VOICES = ("slt", "rms", "awb", "kal16")
RATE_HZ = 24000
# flite's phone set -> the teacher's symbols; er is two of them
SYMBOLS = dict(
    pair.split(":")
    for pair in [
        "aa:ɑ",
        "ae:æ",
        "ah:ʌ",
        "ao:ɔ",
        "aw:W",
        "ax:ə",
        "ay:I",
        "b:b",
        "ch:ʧ",
        "d:d",
        "dh:ð",
        "eh:ɛ",
        "er:əɹ",
        "ey:A",
        "f:f",
        "g:ɡ",
        "hh:h",
        "ih:ɪ",
        "iy:i",
        "jh:ʤ",
        "k:k",
        "l:l",
        "m:m",
        "n:n",
        "ng:ŋ",
        "ow:O",
        "oy:Y",
        "p:p",
        "r:ɹ",
        "s:s",
        "sh:ʃ",
        "t:t",
        "th:θ",
        "uh:ʊ",
        "uw:u",
        "v:v",
        "w:w",
        "y:j",
        "z:z",
        "zh:ʒ",
    ]
)


def segments(report: str) -> list[tuple[str, float]]:
    """flite's "ph:end ..." -> symbols with their ends in seconds; " " is silence."""
    out, last = [], 0.0
    for name, end in re.findall(r"(\w+):([\d.]+)", report):
        symbols, end = SYMBOLS.get(name, " "), float(end)
        for k, symbol in enumerate(symbols):
            out.append((symbol, round(last + (end - last) * (k + 1) / len(symbols), 4)))
        last = end
    return out


def speak(text: str, voice: str, stretch: float) -> tuple[np.ndarray, list[tuple[str, float]]]:
    """(N,) int16 at 24 kHz and its segments; an empty wave where flite fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.wav"
        options = ["--setf", f"duration_stretch={stretch:.3f}", "-voice", voice, "-psdur", "-t", text, "-o", path]
        report = subprocess.run(["flite", *options], capture_output=True, text=True)
        if report.returncode or not Path(path).exists():
            return np.zeros(0, np.int16), []
        rate_hz, wave = wavfile.read(path)
    wave = resample_poly(wave.astype(np.float32), 3, 2) if rate_hz == 16000 else wave.astype(np.float32)
    return (wave * min(1.0, 32000 / max(1.0, np.abs(wave).max()))).astype(np.int16), segments(report.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--sentences", default=sentences_file.PATH)
    ap.add_argument("--hours", type=float, default=3)
    ap.add_argument("--seconds", type=float, default=200)
    ap.add_argument("--jobs", type=int, default=8)
    ap.add_argument("--seed", type=int, default=5)
    a = ap.parse_args()
    start, rng = time.time(), random.Random(a.seed)
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = [s for s in sentences_file.read(a.sentences) if not sentences_file.is_held_out(s["text"])]
    rng.shuffle(rows)
    waves, size = [], 0
    with ThreadPoolExecutor(a.jobs) as pool, open(out / "index.jsonl", "w", encoding="utf-8") as index:
        for at in range(0, len(rows), 256):
            group = [(s["text"], rng.choice(VOICES), rng.uniform(0.85, 1.2)) for s in rows[at : at + 256]]
            for (text, voice, _), (wave, segs) in zip(group, pool.map(lambda g: speak(*g), group), strict=True):
                if len(wave) < RATE_HZ // 2 or not segs:
                    continue
                row = {"shard": 0, "start": size, "length": len(wave), "speaker": voice, "text": text, "segments": segs}
                index.write(json.dumps(row, ensure_ascii=False) + "\n")
                waves.append(wave)
                size += len(wave)
            if size > a.hours * 3600 * RATE_HZ or time.time() - start > a.seconds:
                break
    np.save(out / "audio_000.npy", np.concatenate(waves))
    np.save(out / "pitch_000.npy", np.zeros(1, np.float16))
    np.savez(
        out / "speakers.npz",
        names=np.array(VOICES),
        shift=np.ones(len(VOICES), np.float32),
        style=np.zeros((len(VOICES), 128), np.float32),
    )
    print(f"{len(waves)} utterances, {size / RATE_HZ / 3600:.2f} h in {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
