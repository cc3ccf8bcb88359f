"""Mel of training utterances as the flow makes it from their true codes: what the vocoder really gets to hear.

    python -m tools.demo_model.flow_mels --corpus c/0 --codes codes.npz --flow out/flow.safetensors --out flow_mels.npz
        --hours 5

A vocoder that was trained on true mels alone rings on these; train_vocoder.py --mels takes the file.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.flow import Flow, build_flow
from cosy_engine.settings.model_spec import DiTSpec
from cosy_engine.stages import FlowPrompt
from tools.demo_model import codes, data, schedule, sizes
from tools.demo_model.train_flow import FRAMES_PER_TOKEN, Rows


@dataclass(frozen=True)
class MadeMels:
    """mel: (N, 80) float16, one utterance after another; start, frames, utterance: (U,), numbers of the corpus."""

    mel: Tensor
    start: Tensor
    frames: Tensor
    utterance: Tensor

    @classmethod
    def read(cls, path: str | Path, device) -> "MadeMels":
        z = np.load(path)
        frames = torch.from_numpy(z["frames"]).to(device)
        start = torch.cat([frames.new_zeros(1), frames.cumsum(0)[:-1]])
        return cls(torch.from_numpy(z["mel"]).to(device), start, frames, torch.from_numpy(z["utterance"]).to(device))


def load_flow(path: str | Path, device) -> Flow:
    """Trained weights in the engine's class; sizes from the file, or those of the shipped model."""
    facts = schedule.load(path, {})
    dim, depth = facts.get("dim", sizes.DIT.dim), facts.get("depth", sizes.DIT.depth)
    estimator = DiTSpec(dim, depth, dim // sizes.DIT.head_dim, sizes.DIT.head_dim, sizes.DIT.ff_mult)
    flow = build_flow(sizes.flow_spec(estimator))
    schedule.load(path, {"flow": flow})
    return flow.to(device).finish_loading()


def make(flow: Flow, rows: Rows, limit_tokens: int, batch: int, seed: int = 0) -> tuple[list[np.ndarray], list[int]]:
    """Mels and numbers of random utterances, each after a prompt of its voice, until limit_tokens are spoken."""
    rng = np.random.default_rng(seed)
    length, first, count = (x.cpu().numpy() for x in (rows.length, rows.first, rows.count))
    chosen = rng.permutation(np.nonzero((length > 25) & (length < 250) & (count > 1))[0])
    chosen = chosen[: int(np.searchsorted(length[chosen].cumsum(), limit_tokens)) + 1]
    chosen = chosen[np.argsort(length[chosen])]
    mels, numbers = [], []

    def of(u: int) -> tuple[Tensor, Tensor]:
        at, n = int(rows.begins[u]), int(rows.length[u])
        frames = slice(FRAMES_PER_TOKEN * at, FRAMES_PER_TOKEN * (at + n))
        return rows.codes[codes.CLEAN, at : at + n].long(), rows.mel[frames].float()

    for group in np.array_split(chosen, max(1, len(chosen) // batch)):
        others = first[group] + rng.integers(count[group])
        prompts = [FlowPrompt(*of(int(u)), rows.vectors[codes.CLEAN, int(u)].float()) for u in others]
        made = flow.whole([of(int(u))[0] for u in group], prompts)
        mels += [mel.T.cpu().numpy().astype(np.float16) for mel in made]
        numbers += [int(rows.order[u]) for u in group]
    return mels, numbers


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--corpus", nargs="+", required=True)
    ap.add_argument("--codes", nargs="+", required=True, help="codes.npz of --corpus, in the same order")
    ap.add_argument("--flow", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--hours", type=float, default=5)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = ap.parse_args()
    start = time.time()
    rows = Rows(data.Corpus(a.corpus, a.device), codes.load(a.codes), 1, 1)
    mels, numbers = make(load_flow(a.flow, a.device), rows, int(a.hours * 3600 * 25), a.batch)
    frames = np.array([len(m) for m in mels])
    np.savez(a.out, mel=np.concatenate(mels), frames=frames, utterance=np.array(numbers))
    print(f"{len(mels)} utterances, {frames.sum() / 50 / 3600:.2f} h in {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
