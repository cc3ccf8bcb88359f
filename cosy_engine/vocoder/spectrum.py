"""The vocoder's small Fourier transforms (16 points, hop 4) as matrix products.

At this size a product with the basis is faster than an FFT call, has no plan to set up, and can be captured in a graph.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor


@cache
def bases(n_fft: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(n_fft, bins * 2) forward with window, (bins * 2, n_fft) inverse with window, (n_fft,) squared window; fp32.

    Columns: real parts, then imaginary parts. Periodic Hann window. Computed in fp64.
    """
    with torch.inference_mode(False):
        n = torch.arange(n_fft, device="cpu", dtype=torch.float64)
        bins = torch.arange(n_fft // 2 + 1, device="cpu", dtype=torch.float64)
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * n / n_fft)
        angle = 2 * math.pi * n[:, None] * bins / n_fft
        forward = window[:, None] * torch.cat([angle.cos(), -angle.sin()], dim=1)
        twice = torch.full_like(bins, 2.0)
        twice[0] = twice[-1] = 1.0  # the lowest and the highest bin have no mirror image
        inverse = torch.cat([twice * angle.cos(), -twice * angle.sin()], dim=1).T / n_fft * window
        return tuple(x.float().contiguous().to(device) for x in (forward, inverse, window.square()))


def stft(x: Tensor, n_fft: int, hop: int) -> Tensor:
    """(B, N) -> (B, 2 * bins, N // hop + 1), real parts then imaginary parts; centred, edges reflected."""
    forward, _, _ = bases(n_fft, x.device)
    x = F.pad(x[:, None], (n_fft // 2, n_fft // 2), mode="reflect")[:, 0]
    return (x.unfold(1, n_fft, hop) @ forward).transpose(1, 2)


def overlap_add(frames: Tensor, hop: int) -> Tensor:
    """(B, T, n_fft) pieces laid `hop` apart and summed -> (B, (T - 1) * hop + n_fft)."""
    parts = frames.unflatten(2, (-1, hop)).unbind(2)  # n_fft / hop pieces of (B, T, hop)
    last = len(parts) - 1
    total = sum(F.pad(part, (0, 0, i, last - i)) for i, part in enumerate(parts))
    return total.flatten(1)


def laid_down(parts: Tensor, n_fft: int, hop: int) -> Tensor:
    """(B, T, 2 * bins) real and imaginary parts -> (B, (T - 1) * hop), not yet divided by the envelope."""
    _, inverse, _ = bases(n_fft, parts.device)
    y = overlap_add(parts @ inverse, hop)
    return y[:, n_fft // 2 : y.shape[1] - n_fft // 2]


def envelope(frames: int, n_fft: int, hop: int, device: torch.device) -> Tensor:
    """(1, (frames - 1) * hop), the true sum of squared windows."""
    _, _, squared = bases(n_fft, device)
    y = overlap_add(squared.expand(1, frames, -1), hop)
    return y[:, n_fft // 2 : y.shape[1] - n_fft // 2]


def istft(magnitude: Tensor, phase: Tensor, n_fft: int, hop: int) -> Tensor:
    """(B, bins, T) each -> (B, (T - 1) * hop), the inverse of stft; divided by the true sum of squared windows."""
    parts = torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], dim=1).transpose(1, 2)
    return laid_down(parts, n_fft, hop) / envelope(parts.shape[1], n_fft, hop, parts.device)
