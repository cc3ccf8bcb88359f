"""An independent speaker encoder as a second teacher: Resemblyzer's network on torch tensors, for whole batches.

    python -m tools.demo_model.independent resemblyzer.npz        # packs the weights of the PyPI package, 3 MB

The published package computes its mel with librosa; this one needs torch alone and agrees with it (tests/tools).
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cosy_engine.audio.features import mel_filters

FRAMES, HOP_SAMPLES = 160, 160  # one window of 1.6 s at 16 kHz


class IndependentEncoder(nn.Module):
    """16 kHz waves -> unit vectors of 256 values, all positive; cosine about 0.88 within and 0.64 between voices."""

    def __init__(self, path: str | Path):
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        with np.load(path) as packed:
            self.load_state_dict({k: torch.from_numpy(packed[k].astype(np.float32)) for k in packed})
        self.register_buffer("window", torch.hann_window(400), persistent=False)
        self.register_buffer("filters", mel_filters(16000, 400, 40, 0.0, None), persistent=False)
        self.requires_grad_(False)

    def mel(self, wave: Tensor) -> Tensor:
        """(B, N) -> (B, 1 + N // 160, 40) power mel, quiet clips raised to -30 dBFS as upstream does."""
        level = 20 * torch.log10(wave.square().mean(-1, keepdim=True).sqrt() + 1e-9)
        wave = wave * 10 ** ((-30 - level).clamp(min=0) / 20)
        spectrum = torch.stft(wave, 400, HOP_SAMPLES, window=self.window, pad_mode="constant", return_complex=True)
        power = spectrum.real**2 + spectrum.imag**2
        return (self.filters @ power).transpose(1, 2)

    @torch.no_grad()
    def forward(self, wave: Tensor, step: int = 77) -> Tensor:
        """(B, N) equally long clips -> (B, 256): mean over windows of 1.6 s, one every `step` frames."""
        short = FRAMES * HOP_SAMPLES - wave.shape[1]
        if short > 0:
            wave = nn.functional.pad(wave, (0, short))
        windows = self.mel(wave).unfold(1, FRAMES, step).transpose(2, 3)  # (B, W, 160, 40)
        _, (hidden, _) = self.lstm(windows.flatten(0, 1))
        each = nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=-1)
        return nn.functional.normalize(each.view(*windows.shape[:2], -1).mean(1), dim=-1)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    out = ap.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "resemblyzer==0.1.4"]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            wheel.extract("resemblyzer/pretrained.pt", folder)
        state = torch.load(Path(folder, "resemblyzer", "pretrained.pt"), map_location="cpu", weights_only=True)
    keep = {k: v for k, v in state["model_state"].items() if k.startswith(("lstm.", "linear."))}
    np.savez_compressed(out, **{k: v.numpy().astype(np.float16) for k, v in keep.items()})


if __name__ == "__main__":
    main()
