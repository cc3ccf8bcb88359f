"""The generated corpus held on the device, with frame labels.

Everything a training step needs is gathered on the device from flat arrays: 16-bit audio at 24 kHz and, on a grid of
5 ms (120 samples), the phoneme class and the pitch. 50 h take 9 GB.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.audio.features import resample

RATE_HZ, GRID_SAMPLES = 24000, 120
# The teacher's sound runs ahead of its own durations: labels fit the spectrum best when read 60 ms later (measured as
# the share of mel variance that labels explain: 0.20 without this, 0.39 with it). Pitch needs no such correction.
LEAD_SAMPLES = 1500
# Class 0 is silence; stress marks belong to the vowel that follows; a space inside a phrase has no label.
PHONES = "əɹntɪsdlikðɛmæzpʌfwɔIbvAɑuhOTɡŋjʃɜWʊθʤʧYʒ"
N_PHONES = len(PHONES) + 1
_GAP, _STRESS = -1, -2
CLASS = {symbol: k + 1 for k, symbol in enumerate(PHONES)}
CLASS |= {"ᵊ": CLASS["ə"], "ᵻ": CLASS["ɪ"], " ": _GAP, "ˈ": _STRESS, "ˌ": _STRESS}
SHIFT_SPREAD = 0.06  # of the log shift of training voices, about
VOICE_AXES = 32


def phone_classes(phonemes: str) -> list[int]:
    """Classes of the symbols that are sounds, in order."""
    return [CLASS[c] for c in phonemes if CLASS.get(c, 0) > 0]


def frame_classes(item: dict) -> tuple[np.ndarray, list[int]]:
    """Phoneme class every GRID_SAMPLES (int8, -1 unlabelled) and the phoneme sequence of one row of index.jsonl."""
    frames = item["length"] // GRID_SAMPLES
    at = np.arange(frames) * GRID_SAMPLES + GRID_SAMPLES // 2
    if "segments" in item:  # a guest synthesiser: (symbol, end in seconds)
        symbols, ends = zip(*item["segments"], strict=True)
        classes = np.array([max(0, CLASS.get(c, 0)) for c in symbols])
        k = np.minimum(np.searchsorted(np.array(ends) * RATE_HZ, at, side="right"), len(ends) - 1)
        return classes[k].astype(np.int8), [c for c in classes.tolist() if c]
    durations = np.asarray(item["durations"])
    text = item["phonemes"][: len(durations) - 2]
    classes = [0, *(CLASS.get(c, 0) for c in text), 0]
    for k in range(len(classes) - 2, -1, -1):
        if classes[k] == _STRESS:
            classes[k] = classes[k + 1]
    classes = np.asarray(classes[: len(durations)])
    gap = classes == _GAP  # spaces: silence beside punctuation, else unlabelled
    before, after = np.concatenate([[0], classes[:-1]]), np.concatenate([classes[1:], [0]])
    classes[gap & ((before == 0) | (after == 0))] = 0
    sound_at = (at + item["cut"]) * item["shift"]
    k = np.minimum(np.searchsorted(np.cumsum(durations) * 600, sound_at + LEAD_SAMPLES, side="right"), len(classes) - 1)
    return classes[k].astype(np.int8), phone_classes(text)


def frame_pitch(item: dict, pitch_hz: np.ndarray) -> np.ndarray:
    """Pitch every GRID_SAMPLES (float16 Hz, 0 unvoiced) from the teacher's curve, one value per 300 samples."""
    if "segments" in item:
        return np.zeros(item["length"] // GRID_SAMPLES, np.float16)
    at = np.arange(item["length"] // GRID_SAMPLES) * GRID_SAMPLES + GRID_SAMPLES // 2 + item["cut"]
    k = np.minimum((at * item["shift"] / 300).astype(np.int64), len(pitch_hz) - 1)
    hz = pitch_hz[k].astype(np.float32)
    return np.where(hz < 60, 0, hz).astype(np.float16)


class Corpus:
    """Utterances of one or more folders that generate.py or guests.py wrote.

    samples, seconds: (U,) numpy, on the host. voices: names, in the order of their numbers. style: (voices, 128) what
    the teacher knows of each voice, shift: (voices,) its pitch and formant factor.
    """

    def __init__(self, folders, device, hours: float | None = None):
        self.device = torch.device(device)
        self.items, shards, pitches = [], [], []
        self.voices: list[str] = []
        total = 0
        for folder in map(Path, folders):
            facts = np.load(folder / "speakers.npz")
            names = facts["names"].tolist()
            assert not self.voices or self.voices == names, "folders with different speakers"
            self.voices, self.style, self.shift = names, facts["style"][:, :128], facts["shift"]
            first = {}
            for path in sorted(folder.glob("audio_*.npy")):
                shard = int(path.stem[-3:])
                shards.append(np.load(path, mmap_mode="r"))
                pitches.append(np.load(folder / f"pitch_{shard:03d}.npy"))
                first[shard] = (total, len(pitches) - 1)
                total += len(shards[-1])
            for line in (folder / "index.jsonl").read_text(encoding="utf-8").splitlines():
                item = json.loads(line)
                if item["shard"] in first:
                    start, item["pitches"] = first[item["shard"]]
                    item["at"] = start + item["start"]
                    self.items.append(item)
        if hours:
            ends = np.cumsum([item["length"] for item in self.items])
            self.items = self.items[: int(np.searchsorted(ends, hours * 3600 * RATE_HZ)) + 1]
        labels, sequences = zip(*map(frame_classes, self.items), strict=True)
        curves = [
            frame_pitch(i, pitches[i["pitches"]][i["pitch"][0] : sum(i["pitch"])] if "pitch" in i else None)
            for i in self.items
        ]
        self.samples = np.array([item["length"] for item in self.items])
        self.seconds = self.samples / RATE_HZ
        self.audio = torch.empty(total, dtype=torch.int16, device=device)
        at = 0
        for shard in shards:
            self.audio[at : at + len(shard)] = torch.from_numpy(np.array(shard))
            at += len(shard)
        self.labels, self.pitch_hz = self._flat(labels), self._flat(curves)
        self.phones = self._flat([np.array(s, np.int8) for s in sequences])
        self.grid_at, self.phones_at = self._starts(labels), self._starts(sequences)
        self.phones_host = np.array([len(s) for s in sequences])
        self.phones_n = torch.from_numpy(self.phones_host).to(device)
        number = {name: k for k, name in enumerate(self.voices)}
        self.at = torch.tensor([item["at"] for item in self.items], device=device)
        self.n = torch.tensor([item["length"] for item in self.items], device=device)
        self.voice = torch.tensor([number[item["speaker"]] for item in self.items], device=device)

    def _flat(self, parts) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(self.device)

    def _starts(self, parts) -> Tensor:
        return torch.from_numpy(np.cumsum([0, *(len(p) for p in parts[:-1])])).to(self.device)

    def wave(self, ids: Tensor, n: int, skip: Tensor | None = None, wrap=False, rate: Tensor | None = None) -> Tensor:
        """(B, n) float samples at 24 kHz of utterances ids (B,), from sample skip (B,) on.

        After the end come zeros or, with wrap, the start again. rate (B,) plays each clip that much faster and higher,
        a voice that the corpus does not have; skip then counts output samples.
        """
        pos = torch.arange(n, device=self.device)[None] + (0 if skip is None else skip[:, None])
        size, at = self.n[ids][:, None], self.at[ids][:, None]
        if rate is not None:
            pos = pos.double() * rate.double()[:, None]
            low = pos.long()
            weight = (pos - low).float()
            if wrap:
                a, b = low % size, (low + 1) % size
            else:
                a, b = low.clamp(max=size - 1), (low + 1).clamp(max=size - 1)
            wave = (self.audio[at + a].float() * (1 - weight) + self.audio[at + b].float() * weight) / 32768
            return wave if wrap else wave * (low < size)
        if wrap:
            return self.audio[at + pos % size].float() / 32768
        wave = self.audio[at + pos.clamp(max=size - 1)].float() / 32768
        return wave * (pos < size)

    def wave16(self, ids: Tensor, n: int, **where) -> Tensor:
        """The same at 16 kHz: (B, n * 2 / 3)."""
        return resample(self.wave(ids, n, **where), RATE_HZ, 16000)

    def grid(self, flat: Tensor, ids: Tensor, pos: Tensor, fill) -> Tensor:
        """Values of `labels` or `pitch_hz` at grid positions pos (B, K); `fill` beyond the ends."""
        size = (self.n[ids] // GRID_SAMPLES)[:, None]
        values = flat[self.grid_at[ids][:, None] + pos.clamp(max=size - 1).clamp(min=0)]
        return torch.where((pos < size) & (pos >= 0), values, torch.full_like(values, fill))

    def sequences(self, ids: Tensor) -> Tensor:
        """Phoneme sequences (B, K), padded with zeros."""
        k = torch.arange(int(self.phones_host.max()), device=self.device)[None]
        at = (self.phones_at[ids][:, None] + k).clamp(max=len(self.phones) - 1)
        return torch.where(k < self.phones_n[ids][:, None], self.phones[at].long(), 0)


def voice_targets(style: np.ndarray, shift: np.ndarray, basis: dict | None = None) -> tuple[np.ndarray, dict]:
    """(V, 128) styles and (V,) shifts -> (V, VOICE_AXES + 1) standardised: main axes of the style, and the log shift."""
    if basis is None:
        mean = style.mean(0)
        _, s, vt = np.linalg.svd(style - mean, full_matrices=False)
        k = min(VOICE_AXES, len(s))
        basis = {"mean": mean, "axes": vt[:k], "scale": np.maximum(s[:k] / math.sqrt(len(style)), 1e-4)}
    z = (style - basis["mean"]) @ basis["axes"].T / basis["scale"]
    return np.concatenate([z, np.log(shift)[:, None] / SHIFT_SPREAD], 1).astype(np.float32), basis


def batches(seconds: np.ndarray, cap_s: float, rng, limit_s=10.0, least_s=0.6) -> Iterator[np.ndarray]:
    """Endless stream of utterance numbers of like length, about cap_s in all when padded."""
    while True:
        order = np.argsort(seconds + rng.uniform(-0.25, 0.25, len(seconds)))
        groups, group, top = [], [], 0.0
        for k in (k for k in order if least_s < seconds[k] <= limit_s):
            if group and max(top, seconds[k]) * (len(group) + 1) > cap_s:
                groups.append(np.array(group))
                group, top = [], 0.0
            group.append(k)
            top = max(top, seconds[k])
        if group and (len(group) * top > cap_s / 2 or not groups):
            groups.append(np.array(group))
        rng.shuffle(groups)
        yield from groups
