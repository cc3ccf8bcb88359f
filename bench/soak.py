"""Do memory, threads, speed or sound change when an engine runs for long?

    python bench/soak.py [--model assets/demo_voice] [--jobs 300] [--every 20] [--device cpu] [--tier eager]

Mixed jobs: all modes, whole and streamed, one to four short texts at once, one in seven left early. Every `--every` jobs
a line says what is held. At the end a job with a fixed seed must give the samples it gave at the start. Flat means: no
more tensors and threads than after warming up, and less than 50 MB more memory. Exit status 1 when it is not flat.
The last line is JSON.
"""

import argparse
import gc
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from cosy_engine import Engine, Request, load
from cosy_engine.audio.clicks import clicks

WORDS = "the quick brown fox jumps over the lazy dog"
TEXTS = ("Hi.", "Yes.", "It is.", "So be it.")
FLAT_MB = 50


@dataclass(frozen=True)
class Held:
    """What the process holds. megabytes: resident; device_mb: allocated on the GPU, 0 without one."""

    tensors: int
    threads: int
    megabytes: int
    device_mb: int


def held() -> Held:
    """Counted after a collection, so that only what is really kept is seen. Memory is 0 where the system does not say."""
    gc.collect()
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) if statm.exists() else 0
    return Held(
        tensors=sum(type(o) is torch.Tensor for o in gc.get_objects()),
        threads=threading.active_count(),
        megabytes=pages * 4096 // 2**20,
        device_mb=torch.cuda.memory_allocated() // 2**20 if torch.cuda.is_available() else 0,
    )


def clip(seconds: float, pitch_hz: float, rate_hz: int = 24000) -> tuple[int, np.ndarray]:
    """A buzz with syllables."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 20))
    return rate_hz, (0.1 * wave * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * t))).astype(np.float32)


def mixed_jobs(engine: Engine, count: int, seed: int, texts: tuple[str, ...] = TEXTS) -> tuple[float, int]:
    """Run `count` jobs that follow from seed; returns (seconds of audio, clicks in it)."""
    draw = np.random.default_rng(seed)
    voices = [engine.voice(clip(2.0 + i, 120.0 + 40 * i), WORDS) for i in range(3)]
    audio_s, clicked = 0.0, 0
    for i in range(count):
        mode = ("saved_voice", "cross_lingual", "instruct")[i % 3]
        speech = engine.speak(
            Request(
                mode=mode,
                text=" ".join(draw.choice(texts, int(draw.integers(1, 5)) if len(texts) > 1 else 1)),
                reference=voices[int(draw.integers(3))],
                instruction="softly" if mode == "instruct" else "",
                seed=i,
                stream=bool(i % 2),
            )
        )
        if i % 7 == 3:  # a listener who leaves
            next(speech, None)
            speech.close()
            speech._session.finished.wait(30)
            continue
        samples = np.concatenate([chunk.samples for chunk in speech])
        audio_s += len(samples) / engine.spec.mel.rate_hz
        clicked += len(clicks(samples, engine.spec.mel.rate_hz))
    return audio_s, clicked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(Path(__file__).resolve().parent.parent / "assets" / "demo_voice"))
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tier", default="auto")
    options = parser.parse_args()
    engine = load(options.model, device=options.device, tier=options.tier)
    fixed = Request("saved_voice", "It is so.", engine.voice(clip(3.0, 150.0), WORDS), seed=3)
    lines: list[Held] = []
    audio_s, clicked, began = 0.0, 0, time.perf_counter()
    mixed_jobs(engine, 60, seed=0)  # warms caches and allocators up
    first = engine.speak_all(fixed).samples
    for done in range(0, options.jobs, options.every):
        piece_began = time.perf_counter()
        seconds, found = mixed_jobs(engine, min(options.every, options.jobs - done), seed=1 + done)
        audio_s, clicked = audio_s + seconds, clicked + found
        lines.append(held())
        took = time.perf_counter() - piece_began
        print(
            f"{done + options.every:5d} jobs: {lines[-1]}, {took / max(seconds, 1e-9):.3f} s for a second", flush=True
        )
    same = bool(np.array_equal(engine.speak_all(fixed).samples, first))
    engine.close()
    growth = {name: getattr(lines[-1], name) - getattr(lines[0], name) for name in Held.__dataclass_fields__}
    limits = {"tensors": 5, "threads": 0, "megabytes": FLAT_MB, "device_mb": FLAT_MB}
    flat = same and all(growth[name] <= limit for name, limit in limits.items())
    figures = {"jobs": options.jobs, "growth": growth, "same_sound": same, "flat": flat, "clicks": clicked}
    print(json.dumps({**figures, "audio_s": round(audio_s, 1), "seconds": round(time.perf_counter() - began, 1)}))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
