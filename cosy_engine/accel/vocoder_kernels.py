"""Triton kernels between the vocoder's convolutions: each reads its inputs once and writes what the next convolution takes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from cosy_engine.accel.vocoder_lean import Part

FP16_MAX = tl.constexpr(65504.0)


@triton.jit
def load(x, bias, at, real, C: tl.constexpr):
    """fp32, with the bias by channel unless it is None; what left fp16 saturates, for the sine of an infinity is NaN."""
    y = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    if bias is not None:
        y += tl.load(bias + at % C).to(tl.float32)
    return tl.minimum(tl.maximum(y, -FP16_MAX), FP16_MAX)


@triton.jit
def snake(x, bias, alpha, out, count, C: tl.constexpr, BLOCK: tl.constexpr):
    """out = x + sin^2(alpha x) / alpha. All (T, C), alpha by channel."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    y = load(x, bias, at, real, C)
    a = tl.load(alpha + at % C)
    s = tl.sin(y * a)
    tl.store(out + at, y + s * s / (a + 1e-9), mask=real)


@triton.jit
def add_snake(x, x_bias, d, d_bias, alpha, total, out, count, C: tl.constexpr, BLOCK: tl.constexpr):
    """total = x + d, and its snake."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    y = load(x, x_bias, at, real, C) + load(d, d_bias, at, real, C)
    tl.store(total + at, y, mask=real)
    a = tl.load(alpha + at % C)
    s = tl.sin(y * a)
    tl.store(out + at, y + s * s / (a + 1e-9), mask=real)


@triton.jit
def sum_of_three(
    up, up_bias, x, x_bias, d, d_bias, out, count, C: tl.constexpr, REFLECT: tl.constexpr, BLOCK: tl.constexpr
):
    """out = up + x + d. REFLECT: `up` is one row shorter and its second row is put before the first."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    there = at
    if REFLECT:
        there = tl.where(at < C, at + C, at - C)
    y = load(up, up_bias, there, real, C) + load(x, x_bias, at, real, C) + load(d, d_bias, at, real, C)
    tl.store(out + at, y, mask=real)


@triton.jit
def mean_leaky(
    x1, x1_bias, d1, d1_bias, x2, x2_bias, d2, d2_bias, x3, x3_bias, d3, d3_bias, out, count, slope,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = leaky_relu(((x1 + d1) + (x2 + d2) + (x3 + d3)) / 3)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    y = load(x1, x1_bias, at, real, C) + load(d1, d1_bias, at, real, C)
    y += load(x2, x2_bias, at, real, C) + load(d2, d2_bias, at, real, C)
    y += load(x3, x3_bias, at, real, C) + load(d3, d3_bias, at, real, C)
    y = y / 3
    tl.store(out + at, tl.where(y > 0, y, y * slope), mask=real)


class VocoderKernels:
    """The operations of vocoder_lean in Triton; tensors are contiguous, one row of a batch. Biases are added by who reads next."""

    def __init__(self, block: int = 1024):
        self.block = block

    def _over(self, x: Tensor) -> tuple[tuple[int], dict]:
        """Grid and constants of a kernel over (1, T, C)."""
        return (triton.cdiv(x.numel(), self.block),), dict(count=x.numel(), C=x.shape[2], BLOCK=self.block)

    def conv2d(self, x: Tensor, weight: Tensor, bias: Tensor, *how) -> tuple[Tensor, Tensor | None]:
        return F.conv2d(x, weight, None, *how), bias.data

    def snake(self, x: Part, alpha: Tensor, dtype: torch.dtype) -> Tensor:
        out = torch.empty_like(x.value, dtype=dtype)
        grid, constants = self._over(out)
        snake[grid](*x, alpha, out, **constants)
        return out

    def add_snake(self, x: Part, d: Part, alpha: Tensor, dtype: torch.dtype) -> tuple[Part, Tensor]:
        total, out = torch.empty_like(x.value, dtype=torch.float32), torch.empty_like(x.value, dtype=dtype)
        grid, constants = self._over(out)
        add_snake[grid](*x, *d, alpha, total, out, **constants)
        return Part(total), out

    def sum_of_three(self, up: Part, x: Part, d: Part, reflect: bool) -> Part:
        out = torch.empty_like(x.value, dtype=torch.float32)
        grid, constants = self._over(out)
        sum_of_three[grid](*up, *x, *d, out, REFLECT=reflect, **constants)
        return Part(out)

    def mean_leaky(self, pairs: list[tuple[Part, Part]], slope: float, dtype: torch.dtype) -> Tensor:
        out = torch.empty_like(pairs[0][0].value, dtype=dtype)
        parts = [tensor for pair in pairs for part in pair for tensor in part]
        assert len(parts) == 12  # three kernel sizes in both releases
        grid, constants = self._over(out)
        mean_leaky[grid](*parts, out, slope=slope, **constants)
        return out
