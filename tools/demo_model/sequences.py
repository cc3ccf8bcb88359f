"""Training sequences of the LM: one or more utterances of one voice, whole or with text and speech in turn.

Ids are kept in one row of integers: speech ids (sos, task and fill among them) as they are, text ids raised by the
number of speech ids. A target of IGNORED is not trained on.
Origin: the family's training layout; 5 text ids to 15 speech tokens in half of the rows that are long enough.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from cosy_engine.settings.model_spec import LlmSpec
from tools.demo_model.codes import Codes

IGNORED = -100


def whole(spec: LlmSpec, prefix: list[int], text: list[int], speech: list[int]) -> tuple[list[int], list[int]]:
    """[sos, prefix, text, task, speech] and what follows each position."""
    lifted = [t + spec.head_rows for t in (*prefix, *text)]
    ids = [spec.sos_row, *lifted, spec.task_row, *speech]
    return ids, [IGNORED] * (len(lifted) + 1) + [*speech, spec.eos_id]


def mixed(spec: LlmSpec, prefix: list[int], text: list[int], speech: list[int]) -> tuple[list[int], list[int]]:
    """[sos, prefix], then text and speech in turn, the last text with the task mark and all speech that is left."""
    ids = [spec.sos_row, *(t + spec.head_rows for t in prefix)]
    targets = [IGNORED] * len(ids)
    groups = len(text) // spec.mix_text
    for k in range(groups):
        some = text[k * spec.mix_text : (k + 1) * spec.mix_text]
        sound = speech[k * spec.mix_speech : (k + 1) * spec.mix_speech]
        ids += [t + spec.head_rows for t in some] + sound
        targets += [IGNORED] * (spec.mix_text - 1) + [*sound, spec.fill_id]
    rest, sound = text[groups * spec.mix_text :], speech[groups * spec.mix_speech :]
    ids += [*(t + spec.head_rows for t in rest), spec.task_row, *sound]
    targets += [IGNORED] * len(rest) + [*sound, spec.eos_id]
    return ids, targets


def can_mix(spec: LlmSpec, text: list[int], speech: list[int]) -> bool:
    """There is speech left when the text ends."""
    return len(speech) * spec.mix_text > len(text) * spec.mix_speech


@dataclass
class Draw:
    """Random sequences from a set of codes.

    ids_of: [variant][utterance] text ids, the plain spelling first; prefix: ids before every text.
    """

    spec: LlmSpec
    codes: Codes
    ids_of: list[list[list[int]]]
    prefix: list[int]
    longest: int = 448

    def __post_init__(self):
        self.start = self.codes.start
        self.by_voice = [np.nonzero(self.codes.voice == v)[0] for v in range(len(self.codes.voices))]

    def row(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """One sequence of at most `longest` positions and its targets."""
        joined = rng.choice([1, 2, 3], p=[0.4, 0.5, 0.1])
        first = int(rng.integers(len(self.codes.length)))
        voice = self.codes.voice[first]
        chosen = [first, *rng.choice(self.by_voice[voice], joined - 1)]
        text, speech = [], []
        for n, k in enumerate(chosen):
            noisy = n == 0 and joined > 1 and rng.random() < 0.3  # a prompt comes from a microphone
            at, size = self.start[k], self.codes.length[k]
            sound = self.codes.tokens[int(noisy), at : at + size].tolist()
            if joined > 1 and n == 0:
                hit = np.nonzero(rng.random(size) < 0.05 * (rng.random() < 0.5))[0]
                for j in hit:
                    sound[j] = int(rng.integers(self.spec.speech_tokens))
            if speech:
                sound = [speech[-1]] * int(rng.integers(0, 9)) + sound  # up to a third of a second between sentences
            variant = 0 if rng.random() < 0.5 else int(rng.integers(len(self.ids_of)))
            more = self.ids_of[variant][k]
            if speech and len(self.prefix) + len(text) + len(more) + len(speech) + len(sound) + 3 > self.longest:
                break
            text, speech = text + more, speech + sound
        mix = rng.random() < 0.5 and can_mix(self.spec, text, speech)
        ids, targets = (mixed if mix else whole)(self.spec, self.prefix, text, speech)
        return ids[: self.longest], targets[: self.longest]


class Batches(IterableDataset):
    """Endless batches of rows of like length, padded to one of a few shapes, so that a graph can be captured for each.

    Yields (positions, ids, targets), both (tokens // positions, positions) int32. Every worker draws its own rows.
    """

    def __init__(self, draw: Draw, tokens: int, shapes: tuple[int, ...], seed: int = 0):
        self.draw, self.tokens, self.shapes, self.seed = draw, tokens, shapes, seed

    def __iter__(self):
        worker = get_worker_info()
        rng = np.random.default_rng((self.seed, worker.id if worker else 0))
        waiting = {n: [] for n in self.shapes}
        while True:
            ids, targets = self.draw.row(rng)
            n = next((n for n in self.shapes if n >= len(ids)), self.shapes[-1])
            waiting[n].append((ids[:n], targets[:n]))
            if len(waiting[n]) == max(1, self.tokens // n):
                yield n, padded([i for i, _ in waiting[n]], n, 0), padded([t for _, t in waiting[n]], n, IGNORED)
                waiting[n] = []


def padded(rows: list[list[int]], positions: int, value: int) -> Tensor:
    """(rows, positions) int32, right-padded."""
    out = torch.full((len(rows), positions), value, dtype=torch.int32)
    for r, row in enumerate(rows):
        out[r, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return out
