"""Make many hours of teacher speech on a GPU (or a little on a CPU).

    python -m tools.demo_model.corpus.generate --teacher teacher.npz --out c/0 --part 0/3 --hours 13.5 --seed 10 --batch 96

Needs numpy, scipy and torch only. The folder gets shard files of 16-bit samples (audio_000.npy, 24 kHz, utterances one
after another) and index.jsonl with, per utterance: shard, start, length (samples), speaker, mix, shift, speed, text,
phonemes, durations, cut. Symbol k of the phonemes ends (600 * sum(durations[:k + 2]) / shift - cut) samples into the
utterance; durations[0] is the silence before the first symbol. The sound itself runs about 1500 / shift samples (60 ms)
ahead of these borders. pitch_000.npy holds the pitch in Hz (below 10: unvoiced), value k of an utterance at sample
(300 * k / shift - cut); "pitch" is its start and length there. speakers.npz holds, per speaker, the mean style vector
(the first 128 values shape the voice) and the shift.

It stops at --hours or after --seconds, whichever is first, so a run of fixed length always ends with a usable corpus.
Sentences are drawn in batches of like length; every batch mixes speakers. --split dev takes one sentence in 64, which
--split train leaves out, and 60 blends that no training speaker equals. To use a GPU fully start three processes, each
with its --part k/n of the sentences, --out and --seed.
"""

import argparse
import json
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np

from tools.demo_model.corpus import sentences_file, speakers
from tools.demo_model.corpus.teacher import Teacher

RATE_HZ = 24000
SHARD_SAMPLES = 2 * 3600 * RATE_HZ


def shifted(wave: np.ndarray, factor: float) -> np.ndarray:
    """Pitch and formants times factor; the length is divided by it."""
    if factor == 1.0:
        return wave
    from scipy.signal import resample_poly

    f = Fraction(factor).limit_denominator(50)
    return resample_poly(wave, f.denominator, f.numerator).astype(np.float32)


def trimmed(wave: np.ndarray, before=2400, after=3600) -> tuple[np.ndarray, int]:
    """The waveform without most of its silent ends, and how many samples went at the start."""
    level = np.abs(wave)
    loud = np.flatnonzero(level > 0.01 * max(float(level.max()), 1e-3))
    if not len(loud):
        return wave[:0], 0
    cut = max(0, int(loud[0]) - before)
    return wave[cut : loud[-1] + after], cut


def finish(wave: np.ndarray, shift: float) -> tuple[np.ndarray, int]:
    """Shifted, trimmed, 16-bit; and how many samples went at the start."""
    wave, cut = trimmed(shifted(wave, shift))
    if not len(wave) or not np.isfinite(wave).all():
        return wave[:0].astype(np.int16), 0
    gain = min(1.0, 0.98 / max(1e-6, np.abs(wave).max()))
    return (np.clip(wave * gain, -1, 1) * 32767).astype(np.int16), cut


class Writer:
    """Shards, pitch curves and the index of one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.index = open(folder / "index.jsonl", "w", encoding="utf-8")  # noqa: SIM115
        self.shard, self.waves, self.curves, self.size, self.curve_size = 0, [], [], 0, 0
        self.samples = self.utterances = 0

    def add(self, wave: np.ndarray, pitch_hz: np.ndarray, **row) -> None:
        row |= {"shard": self.shard, "start": self.size, "length": len(wave), "pitch": [self.curve_size, len(pitch_hz)]}
        self.index.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.waves.append(wave)
        self.curves.append(pitch_hz.astype(np.float16))
        self.size += len(wave)
        self.curve_size += len(pitch_hz)
        self.samples += len(wave)
        self.utterances += 1

    def flush(self) -> None:
        """Close the current shard."""
        if self.waves:
            np.save(self.folder / f"audio_{self.shard:03d}.npy", np.concatenate(self.waves))
            np.save(self.folder / f"pitch_{self.shard:03d}.npy", np.concatenate(self.curves))
            self.shard, self.waves, self.curves, self.size, self.curve_size = self.shard + 1, [], [], 0, 0

    def close(self) -> None:
        self.flush()
        self.index.close()


def store(writer: Writer, jobs: list[tuple[dict, np.ndarray, Future]]) -> None:
    """Wait for the finished waves of one batch and write them."""
    for row, pitch_hz, job in jobs:
        wave, cut = job.result()
        if len(wave):
            writer.add(wave, pitch_hz * row["shift"], cut=cut, **row)
    if writer.size > SHARD_SAMPLES:
        writer.flush()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--teacher", required=True)
    ap.add_argument("--sentences", default=sentences_file.PATH)
    ap.add_argument("--out", required=True)
    ap.add_argument("--hours", type=float, default=40)
    ap.add_argument("--seconds", type=float, default=300)
    ap.add_argument("--speakers", type=int, default=1500)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--split", default="train", choices=("train", "dev"))
    ap.add_argument("--part", default="0/1")
    ap.add_argument("--threads", type=int, default=4)
    ap.add_argument("--mode", default="auto", choices=("auto", "plain", "fused", "half"), help="auto: half on a GPU")
    a = ap.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = False
    rng = random.Random(a.seed)
    part, parts = map(int, a.part.split("/"))
    rows = sentences_file.read(a.sentences)
    rows = [s for s in rows if sentences_file.is_held_out(s["text"]) == (a.split == "dev")][part::parts]
    cast = speakers.make(a.speakers) if a.split == "train" else speakers.unseen(60, a.speakers)
    options = {} if a.mode == "auto" else {"fused": a.mode != "plain", "half": a.mode == "half"}
    teacher = Teacher(a.teacher, a.device, **options)
    means = {k: v[20:120].mean(0) for k, v in teacher.voices.items()}
    writer = Writer(Path(a.out))
    np.savez(
        writer.folder / "speakers.npz",
        names=np.array([name for name, _, _ in cast]),
        shift=np.array([shift for _, _, shift in cast], np.float32),
        style=np.stack([sum(w * means[v] for v, w in mix.items()) for _, mix, _ in cast]).astype(np.float32),
    )
    start, pending = time.time(), []

    def done():
        return writer.samples > a.hours * 3600 * RATE_HZ or time.time() - start > a.seconds

    with ThreadPoolExecutor(a.threads) as pool:
        while not done():
            order = sorted(rng.sample(rows, len(rows)), key=lambda s: len(s["phonemes"]) + rng.uniform(-4, 4))
            groups = [order[k : k + a.batch] for k in range(0, len(order), a.batch)]
            rng.shuffle(groups)
            for group in groups:
                who = [rng.choice(cast) for _ in group]
                speeds = [rng.uniform(0.88, 1.15) for _ in group]
                paces = [speed / shift for speed, (_, _, shift) in zip(speeds, who, strict=True)]
                spoken = [s["phonemes"] for s in group]
                waves, durations, curves = teacher.batch(spoken, [mix for _, mix, _ in who], paces)
                jobs = []
                for k, (name, mix, shift) in enumerate(who):
                    row = {"speaker": name, "mix": mix, "shift": shift, "speed": round(speeds[k], 3)}
                    row |= {"text": group[k]["text"], "phonemes": spoken[k], "durations": durations[k]}
                    jobs.append((row, curves[k], pool.submit(finish, waves[k], shift)))
                pending.append(jobs)
                if len(pending) > 1:  # the threads finish one batch while the GPU makes the next
                    store(writer, pending.pop(0))
                if done():
                    break
        for jobs in pending:
            store(writer, jobs)
    writer.close()
    seconds, speech_s = time.time() - start, writer.samples / RATE_HZ
    speed = speech_s / seconds
    print(f"{writer.utterances} utterances, {speech_s / 3600:.3f} h in {seconds:.0f} s: {speed:.1f} times real time")


if __name__ == "__main__":
    main()
