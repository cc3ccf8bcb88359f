"""A corpus as the LM and the flow see it: speech tokens, speaker vectors and text of every utterance.

    python -m tools.demo_model.codes --corpus c/0 c/1 c/2 --out codes.npz
        [--tokenizer checkpoints/tokenizer.safetensors] [--speaker checkpoints/speaker.safetensors]

Each utterance is encoded twice, as it is and as a microphone would have heard it: prompts come from microphones. 200 h
are 36 MB of tokens each way. The tokens are what the exported file gives (float32 throughout).
"""

import argparse
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosy_engine.audio.features import kaldi_fbank
from tools.demo_model import augment, data, front_end, schedule
from tools.demo_model.train_tokenizer import encode_all

CHECKPOINTS = Path(__file__).with_name("checkpoints")
DEMO_VOICE = Path(__file__).resolve().parents[2] / "assets" / "demo_voice"  # the shipped model
CLEAN, NOISY = 0, 1


@dataclass(frozen=True)
class Codes:
    """U utterances. tokens: (2, N) int16, clean and noisy, one utterance after another; length: (U,) tokens.

    voice: (U,) number in `voices`. vectors: (2, U, 192) float16, of clean and of noisy speech. text: (U,).
    """

    tokens: np.ndarray
    length: np.ndarray
    voice: np.ndarray
    voices: list[str]
    vectors: np.ndarray
    text: list[str]

    @cached_property
    def start(self) -> np.ndarray:
        """(U,) where each utterance begins in `tokens`."""
        return np.cumsum([0, *self.length[:-1]])

    def of(self, k: int, noisy: bool = False) -> np.ndarray:
        """Tokens of utterance k."""
        at = self.start[k]
        return self.tokens[int(noisy), at : at + self.length[k]]


@torch.no_grad()
def vectors(net, c: data.Corpus, noisy: bool, seconds: float = 4.0, batch: int = 192) -> Tensor:
    """(U, 192) speaker vectors of `seconds` of each utterance from a random place, short ones wrapped around."""
    out = []
    for ids in torch.arange(len(c.items), device=c.device).split(batch):
        skip = (torch.rand(len(ids), device=c.device) * c.n[ids]).long()
        wave = c.wave16(ids, int(seconds * data.RATE_HZ), skip=skip, wrap=True)
        out.append(net(kaldi_fbank(augment.channel(wave) if noisy else wave)))
    return torch.cat(out)


def encode(c: data.Corpus, tokenizer, speaker) -> Codes:
    """All of a corpus."""
    full = torch.autocast(c.device.type, enabled=False)
    cap_s = 1500 if c.device.type == "cuda" else 60
    both = [encode_all(tokenizer, c, full, cap_s, noisy=noisy) for noisy in (False, True)]
    vector = torch.stack([vectors(speaker, c, noisy) for noisy in (False, True)])
    return Codes(
        tokens=np.stack([np.concatenate(codes) for codes in both]),
        length=np.array([len(x) for x in both[CLEAN]]),
        voice=c.voice.cpu().numpy().astype(np.int16),
        voices=c.voices,
        vectors=vector.cpu().numpy().astype(np.float16),
        text=[item["text"] for item in c.items],
    )


def save(path: str | Path, codes: Codes) -> None:
    np.savez(
        path, tokens=codes.tokens, length=codes.length, voice=codes.voice, voices=np.array(codes.voices),
        vectors=codes.vectors, text=np.array("\n".join(codes.text)),
    )  # fmt: skip


def load(paths: list[str | Path]) -> Codes:
    """One or more files of the same voices, joined."""
    files = [np.load(path) for path in paths]
    assert all(f["voices"].tolist() == files[0]["voices"].tolist() for f in files), "files with different voices"
    return Codes(
        tokens=np.concatenate([f["tokens"] for f in files], 1),
        length=np.concatenate([f["length"] for f in files]),
        voice=np.concatenate([f["voice"] for f in files]),
        voices=files[0]["voices"].tolist(),
        vectors=np.concatenate([f["vectors"] for f in files], 1),
        text=[line for f in files for line in str(f["text"]).split("\n")],
    )


def front_end_networks(tokenizer: str | Path, speaker: str | Path, device) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Trained tokenizer and speaker encoder in torch."""
    networks = front_end.Tokenizer(), front_end.SpeakerEncoder()
    schedule.load(tokenizer, {"tokenizer": networks[0]})
    schedule.load(speaker, {"speaker": networks[1]})
    return tuple(net.to(device).eval() for net in networks)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--corpus", nargs="+", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--tokenizer", default=CHECKPOINTS / "tokenizer.safetensors")
    ap.add_argument("--speaker", default=CHECKPOINTS / "speaker.safetensors")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = ap.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    start = time.time()
    networks = front_end_networks(a.tokenizer, a.speaker, a.device)
    codes = encode(data.Corpus(a.corpus, a.device), *networks)
    save(a.out, codes)
    hours = codes.length.sum() / 25 / 3600
    print(
        f"{len(codes.length)} utterances, {hours:.2f} h, {codes.tokens.shape[1]} tokens in {time.time() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
