"""Pieces that the front networks and both velocity estimators share: dense layer, convolution, attention, stream memory.

Everything here is time-major, (B, T, C). Matrices and convolutions work in the dtype of their weights; what flows
between them (residuals, norms) stays fp32, so `cast` is the only way into half precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FP16_MAX = 65504.0


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in dtype; fp16 saturates instead of turning to infinity, for an infinity becomes NaN one layer later."""
    if x.dtype == dtype:
        return x
    return x.clamp(-FP16_MAX, FP16_MAX).to(dtype) if dtype == torch.float16 else x.to(dtype)


def bounded(x: Tensor) -> Tensor:
    """Saturate what a fp16 matrix product overflowed; other dtypes pass untouched."""
    return x.clamp(-FP16_MAX, FP16_MAX) if x.dtype == torch.float16 else x


@dataclass(slots=True)
class StreamCache:
    """What finished blocks leave behind for one network (at one solver step): keys, values, left edges of convolutions.

    kv: (layers, 2, rows, heads, capacity, head_dim), of which `length` positions are filled; it grows by doubling, so
    its address changes a few times in a stream and a captured graph can be bound to a capacity.
    lefts: per convolution (rows, K-1, C), zeros at the start. Updated in place.
    """

    kv: Tensor
    lefts: list[Tensor]
    length: int = 0

    def reserve(self, extra: int) -> None:
        """Make room for `extra` more positions."""
        need, have = self.length + extra, self.kv.shape[4]
        if need <= have:
            return
        capacity = max(need, 2 * have)
        grown = self.kv.new_empty(*self.kv.shape[:4], capacity, self.kv.shape[5])
        grown[..., : self.length, :] = self.kv[..., : self.length, :]
        self.kv = grown

    def extend(self, slot: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k, v (rows, heads, T, head_dim) of layer `slot` behind the old ones; returns old and new together."""
        end = self.length + k.shape[2]
        self.kv[slot, 0, :, :, self.length : end] = k
        self.kv[slot, 1, :, :, self.length : end] = v
        return self.kv[slot, 0, :, :, :end], self.kv[slot, 1, :, :, :end]

    def join(self, slot: int, x: Tensor) -> Tensor:
        """x (rows, T, C) with convolution `slot`'s left edge before it; the edge moves on."""
        left = self.lefts[slot]
        x = torch.cat([left, x], dim=1)
        left.copy_(x[:, x.shape[1] - left.shape[1] :])
        return x

    def fork(self) -> StreamCache:
        """An independent copy; only filled positions are copied."""
        kv = torch.empty_like(self.kv)
        kv[..., : self.length, :] = self.kv[..., : self.length, :]
        return StreamCache(kv, [left.clone() for left in self.lefts], self.length)

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.kv, *self.lefts))


@dataclass(slots=True)
class CachePlan:
    """Gives every attention layer and convolution its slot while a network is built, and makes caches of that size."""

    heads: int
    head_dim: int
    layers: int = 0
    edges: list[tuple[int, int]] | None = None

    def attention(self) -> int:
        self.layers += 1
        return self.layers - 1

    def convolution(self, channels: int, kernel: int) -> int:
        self.edges = [*(self.edges or []), (kernel - 1, channels)]
        return len(self.edges) - 1

    def new(self, rows: int, capacity: int, like: Tensor) -> StreamCache:
        """Empty cache with the dtype and device of a weight."""
        kv = like.new_empty(self.layers, 2, rows, self.heads, capacity, self.head_dim)
        return StreamCache(kv, [like.new_zeros(rows, width, channels) for width, channels in self.edges or []])


class Dense(nn.Linear):
    """Linear layer in the dtype of its weight, whatever comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(cast(x, self.weight.dtype), self.weight, self.bias)


class Conv(nn.Conv1d):
    """Convolution over time-major signals, (B, T, C).

    Ungrouped ones run as one matrix product over gathered taps: no transpositions between them and the attention
    layers, which want the same layout.
    """

    slot: int = -1  # left edge in a StreamCache; set by `planned`

    def planned(self, plan: CachePlan) -> Conv:
        self.slot = plan.convolution(self.in_channels, self.kernel_size[0])
        return self

    def valid(self, x: Tensor) -> Tensor:
        """(B, T + K - 1, C) -> (B, T, C'), no padding."""
        kernel = self.kernel_size[0]
        x = cast(x, self.weight.dtype)
        if kernel == 1:
            return bounded(F.linear(x, self.weight[..., 0], self.bias))
        if self.groups == 1:
            return bounded(F.linear(x.unfold(1, kernel, 1).flatten(2), self.weight.flatten(1), self.bias))
        return bounded(F.conv1d(x.transpose(1, 2), self.weight, self.bias, groups=self.groups).transpose(1, 2))

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        """Causal: frame t sees t-K+1 .. t. Without a cache, x (B, T, C) is the whole signal."""
        x = cast(x, self.weight.dtype)
        if self.kernel_size[0] > 1:
            x = F.pad(x, (0, 0, self.kernel_size[0] - 1, 0)) if cache is None else cache.join(self.slot, x)
        return self.valid(x)


class Norm(nn.LayerNorm):
    """Layer norm in fp32, also of half-precision input."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H*D) -> (B, H, T, D)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, H*D)"""
    return x.transpose(1, 2).flatten(2)


def attention_mask(
    frames: int, block: int | Tensor | None, lengths: Tensor | None, device: torch.device, start: int = 0
) -> Tensor | None:
    """Which keys each query may see: True = visible; None = all.

    Queries are frames start .. start+frames-1, keys 0 .. start+frames-1. block: a query sees its own block of this
    many frames and all before (counted from frame 0); None: everything; a tensor is not looked at on the host. lengths: (B,) valid keys of each row, for
    right-padded rows. Result broadcasts to (B, 1, queries, keys).
    """
    keys = torch.arange(start + frames, device=device)
    mask = None
    if isinstance(block, Tensor) or (block is not None and (start + frames - 1) // block > start // block):
        ends = (keys[start:] // block + 1) * block
        mask = (keys[None, :] < ends[:, None])[None, None]
    if lengths is not None:
        valid = (keys[None, :] < lengths[:, None])[:, None, None]
        mask = valid if mask is None else mask & valid
    return mask


def time_features(t: Tensor, width: int) -> Tensor:
    """Sinusoids of the flow time: (B,) in [0, 1] -> (B, width), all sines then all cosines, of 1000 t."""
    half = width // 2
    rates = torch.exp(torch.arange(half, device=t.device, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    angles = 1000 * t.float()[:, None] * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def full_precision(layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer in fp32 even when its weights are stored in half: for values computed once at load."""
    bias = None if layer.bias is None else layer.bias.float()
    return F.linear(x.float(), layer.weight.float(), bias)
