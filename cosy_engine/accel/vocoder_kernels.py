"""Triton kernels between the vocoder's convolutions: each reads its inputs once and writes what the next convolution takes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

FP16_MAX = tl.constexpr(65504.0)


@triton.jit
def load(x, at, real):
    """fp32; what left fp16 in a product saturates, for the sine of an infinity is NaN."""
    return tl.minimum(tl.maximum(tl.load(x + at, mask=real, other=0.0).to(tl.float32), -FP16_MAX), FP16_MAX)


@triton.jit
def snake(x, add, alpha, total, out, count, C: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    """out = y + sin^2(alpha y) / alpha of y = x (+ add, written to total). All (T, C), alpha by channel."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    y = load(x, at, real)
    if ADD:
        y += load(add, at, real)
        tl.store(total + at, y, mask=real)
    a = tl.load(alpha + at % C)
    s = tl.sin(y * a)
    tl.store(out + at, y + s * s / (a + 1e-9), mask=real)


@triton.jit
def sum_of_three(up, x, d, out, count, C: tl.constexpr, REFLECT: tl.constexpr, BLOCK: tl.constexpr):
    """out = up + x + d. REFLECT: `up` is one row shorter and its second row is put before the first."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    there = at
    if REFLECT:
        there = tl.where(at < C, at + C, at - C)
    tl.store(out + at, load(up, there, real) + load(x, at, real) + load(d, at, real), mask=real)


@triton.jit
def mean_leaky(x1, d1, x2, d2, x3, d3, out, count, slope, BLOCK: tl.constexpr):
    """out = leaky_relu(((x1 + d1) + (x2 + d2) + (x3 + d3)) / 3)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    y = load(x1, at, real) + load(d1, at, real)
    y += load(x2, at, real) + load(d2, at, real)
    y += load(x3, at, real) + load(d3, at, real)
    y = y / 3
    tl.store(out + at, tl.where(y > 0, y, y * slope), mask=real)


class VocoderKernels:
    """The operations of vocoder_lean in Triton; tensors are contiguous, one row of a batch."""

    def __init__(self, block: int = 1024):
        self.block = block

    def _grid(self, count: int) -> tuple[int]:
        return (triton.cdiv(count, self.block),)

    def snake(self, x: Tensor, alpha: Tensor, dtype: torch.dtype) -> Tensor:
        out = torch.empty_like(x, dtype=dtype)
        snake[self._grid(x.numel())](x, x, alpha, x, out, x.numel(), C=x.shape[2], ADD=False, BLOCK=self.block)
        return out

    def add_snake(self, x: Tensor, d: Tensor, alpha: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        total, out = torch.empty_like(x, dtype=torch.float32), torch.empty_like(x, dtype=dtype)
        snake[self._grid(x.numel())](x, d, alpha, total, out, x.numel(), C=x.shape[2], ADD=True, BLOCK=self.block)
        return total, out

    def sum_of_three(self, up: Tensor, x: Tensor, d: Tensor, reflect: bool) -> Tensor:
        out = torch.empty_like(x, dtype=torch.float32)
        sum_of_three[self._grid(x.numel())](up, x, d, out, x.numel(), C=x.shape[2], REFLECT=reflect, BLOCK=self.block)
        return out

    def mean_leaky(self, pairs: list[tuple[Tensor, Tensor]], slope: float, dtype: torch.dtype) -> Tensor:
        out = torch.empty_like(pairs[0][0], dtype=dtype)
        parts = [part for pair in pairs for part in pair]
        assert len(parts) == 6  # three kernel sizes in both releases; LeanHift asks before
        mean_leaky[self._grid(out.numel())](*parts, out, out.numel(), slope, BLOCK=self.block)
        return out
