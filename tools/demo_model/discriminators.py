"""Discriminators for the vocoder's second stage: periods of the waveform, and spectrograms at three resolutions.

At a quarter of the usual width, so that they train fast and fit in a small checkpoint.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7, 11)
RESOLUTIONS = ((1024, 256), (2048, 512), (512, 128))  # n_fft, hop
SLOPE = 0.1


class Period(nn.Module):
    """The waveform folded into rows of `period` samples."""

    def __init__(self, period: int, widths=(8, 32, 128, 256)):
        super().__init__()
        self.period = period
        ends = (1, *widths)
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in itertools.pairwise(ends)
        )
        self.convs.append(weight_norm(nn.Conv2d(widths[-1], widths[-1], (5, 1), 1, (2, 0))))
        self.last = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), 1, (1, 0)))

    def forward(self, wave: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(B, N) -> score and the features of every layer."""
        wave = F.pad(wave, (0, -wave.shape[1] % self.period), mode="reflect")
        x, features = wave.view(wave.shape[0], 1, -1, self.period), []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), SLOPE)
            features.append(x)
        return self.last(x).flatten(1), features


class Spectrogram(nn.Module):
    """Magnitudes of one STFT."""

    def __init__(self, n_fft: int, hop: int, width=16):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        shapes = [(1, (3, 9), (1, 2)), *[(width, (3, 9), (1, 2))] * 3, (width, (3, 3), (1, 1))]
        self.convs = nn.ModuleList(weight_norm(nn.Conv2d(i, width, k, s, (k[0] // 2, k[1] // 2))) for i, k, s in shapes)
        self.last = weight_norm(nn.Conv2d(width, 1, (3, 3), 1, 1))

    def forward(self, wave: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(B, N) -> score and the features of every layer."""
        with torch.autocast(wave.device.type, enabled=False):
            s = torch.stft(wave.float(), self.n_fft, self.hop, window=self.window, return_complex=True)
            x = torch.sqrt(s.real**2 + s.imag**2 + 1e-9).transpose(1, 2)[:, None]  # (B, 1, frames, bins)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), SLOPE)
            features.append(x)
        return self.last(x).flatten(1), features


class Discriminators(nn.Module):
    """All of them on one waveform."""

    def __init__(self):
        super().__init__()
        self.each = nn.ModuleList([*(Period(p) for p in PERIODS), *(Spectrogram(*r) for r in RESOLUTIONS)])

    def forward(self, wave: Tensor) -> tuple[list[Tensor], list[list[Tensor]]]:
        """(B, N) -> scores and features of every discriminator."""
        results = [d(wave) for d in self.each]
        return [r[0] for r in results], [r[1] for r in results]


def discriminator_loss(real: list[Tensor], fake: list[Tensor]) -> Tensor:
    """Least squares: real to 1, fake to 0."""
    return sum(((r.float() - 1) ** 2).mean() + (f.float() ** 2).mean() for r, f in zip(real, fake, strict=True))


def generator_loss(fake: list[Tensor]) -> Tensor:
    """Least squares: fake to 1."""
    return sum(((f.float() - 1) ** 2).mean() for f in fake)


def feature_loss(real: list[list[Tensor]], fake: list[list[Tensor]]) -> Tensor:
    """L1 between the features of the true and the made waveform."""
    return sum(
        (r.detach().float() - f.float()).abs().mean()
        for a, b in zip(real, fake, strict=True)
        for r, f in zip(a, b, strict=True)
    )
