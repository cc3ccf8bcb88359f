"""Triton kernels of the velocity estimators: what lies between matrix products, and attention that knows its lengths.

FlowKernels has the calls of flow_lean.PlainOps, for weights in half precision. Products stay with cuBLAS and cuDNN, which are
faster at these sizes than what Triton makes of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

FP16_MAX = tl.constexpr(65504.0)


@triton.jit
def mish(x):
    e = tl.exp(tl.minimum(x, 20.0))
    n = e * (e + 2)
    return tl.where(x > 20.0, x, x * n / (n + 2))


@triton.jit
def layer_norm(x, real, eps, D: tl.constexpr):
    """x (R, DP) fp32, zero where not real, over its second axis."""
    centred = tl.where(real, x - (tl.sum(x, 1) / D)[:, None], 0.0)
    return centred * tl.rsqrt(tl.sum(centred * centred, 1) / D + eps)[:, None]


@triton.jit
def add_norm(
    h, add, gate, scale, shift, out, rows, eps,
    D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr, ADD: tl.constexpr, GATE: tl.constexpr,
):  # fmt: skip
    """h += gate * add, then out = LN(h) * scale + shift. h: (rows, D) fp32, in place. add, out: (rows, D) half."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    d = tl.arange(0, DP)[None, :]
    real = (r < rows) & (d < D)
    at = r * D + d
    x = tl.load(h + at, mask=real, other=0.0)
    if ADD:
        more = tl.load(add + at, mask=real, other=0.0).to(tl.float32)
        more = tl.minimum(tl.maximum(more, -FP16_MAX), FP16_MAX)  # a product that left fp16 saturates
        if GATE:
            more *= tl.load(gate + d, mask=d < D, other=0.0)
        x += more
        tl.store(h + at, x, mask=real)
    y = layer_norm(x, real, eps, D)
    y = y * tl.load(scale + d, mask=d < D, other=0.0) + tl.load(shift + d, mask=d < D, other=0.0)
    tl.store(out + at, y, mask=real)


@triton.jit
def norm_mish(
    x, weight, bias, add, out, rows, frames, stride, eps,
    D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """out = mish(LN(x)) + add. x: rows of `frames` each, `stride` values from one to the next. out, add: (rows, D); add may be
    one VECTOR for all."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    d = tl.arange(0, DP)[None, :]
    real = (r < rows) & (d < D)
    y = tl.load(x + (r // frames) * stride + (r % frames) * D + d, mask=real, other=0.0).to(tl.float32)
    y = tl.minimum(tl.maximum(y, -FP16_MAX), FP16_MAX)
    y = layer_norm(y, real, eps, D)
    y = y * tl.load(weight + d, mask=d < D, other=0.0) + tl.load(bias + d, mask=d < D, other=0.0)
    if VECTOR:
        more = tl.load(add + d, mask=d < D, other=0.0)
    else:
        more = tl.load(add + r * D + d, mask=real, other=0.0).to(tl.float32)
    tl.store(out + r * D + d, mish(y) + more, mask=real)


@triton.jit
def rotate_first(mixed, cos, sin, rows, frames, stride, part, HALF: tl.constexpr, R: tl.constexpr):
    """Interleaved pairs of the first head of q and k, in place. mixed: (rows, 3, heads, 2 HALF). cos, sin: (frames, HALF)."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    j = tl.arange(0, HALF)[None, :]
    real = r < rows
    at = mixed + r * stride + tl.program_id(1) * part + 2 * j
    c = tl.load(cos + (r % frames) * HALF + j, mask=real, other=0.0)
    s = tl.load(sin + (r % frames) * HALF + j, mask=real, other=0.0)
    even = tl.load(at, mask=real, other=0.0).to(tl.float32)
    odd = tl.load(at + 1, mask=real, other=0.0).to(tl.float32)
    tl.store(at, even * c - odd * s, mask=real)
    tl.store(at + 1, odd * c + even * s, mask=real)


@triton.jit
def attend(
    mixed, out, limits, scale, frames, HEADS: tl.constexpr, HD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Attention of BM queries of one head. mixed: (B, frames, 3, HEADS, HD). out: (B, frames, HEADS * HD).

    limits: valid frames, and frames of a block: a query sees valid keys up to the end of its block. Padded queries are skipped,
    their output is not written.
    """
    WIDE: tl.constexpr = HEADS * HD
    first = tl.program_id(0) * BM
    row = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    valid = tl.load(limits)
    block = tl.load(limits + 1)
    if first < valid:
        m = first + tl.arange(0, BM)
        n = tl.arange(0, BN)
        d = tl.arange(0, HD)
        base = mixed + row.to(tl.int64) * frames * 3 * WIDE + head * HD
        q = tl.load(base + m[:, None] * 3 * WIDE + d[None, :], mask=(m < valid)[:, None], other=0.0)
        ends = tl.minimum((m // block + 1) * block, valid)
        stop = tl.minimum(((first + BM - 1) // block + 1) * block, valid)
        clear = tl.minimum((first // block + 1) * block, valid) // BN * BN  # up to here every query sees every key
        top = tl.full([BM], -1e30, tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, HD], tl.float32)
        turn = scale * 1.4426950408889634
        for at in range(0, clear, BN):
            k = tl.load(base + WIDE + (at + n)[None, :] * 3 * WIDE + d[:, None])
            s = tl.dot(q, k) * turn
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - new[:, None])
            fade = tl.exp2(top - new)
            total = total * fade + tl.sum(p, 1)
            v = tl.load(base + 2 * WIDE + (at + n)[:, None] * 3 * WIDE + d[None, :])
            acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
            top = new
        for at in range(clear, stop, BN):
            real = at + n < valid
            k = tl.load(base + WIDE + (at + n)[None, :] * 3 * WIDE + d[:, None], mask=real[None, :], other=0.0)
            s = tl.dot(q, k) * turn
            s = tl.where((at + n)[None, :] < ends[:, None], s, -1e30)
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - new[:, None])
            fade = tl.exp2(top - new)
            total = total * fade + tl.sum(p, 1)
            v = tl.load(base + 2 * WIDE + (at + n)[:, None] * 3 * WIDE + d[None, :], mask=real[:, None], other=0.0)
            acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
            top = new
        o = out + (row.to(tl.int64) * frames + m[:, None]) * WIDE + head * HD + d[None, :]
        tl.store(o, acc / total[:, None], mask=(m < valid)[:, None])


class FlowKernels:
    """The operations of flow_lean in Triton. attention_cut: (queries, keys) of a tile, warps, stages."""

    fused = True

    def __init__(self, attention_cut: tuple[int, int, int, int] = (128, 64, 8, 3)):
        self.attention_cut = attention_cut

    @staticmethod
    def _tile(width: int) -> dict:
        padded = triton.next_power_of_2(width)
        return dict(D=width, DP=padded, R=max(1, 1024 // padded))

    def add_norm(
        self,
        h: Tensor,
        add: Tensor | None,
        gate: Tensor | None,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        rows, tile = h.shape[0] * h.shape[1], self._tile(h.shape[2])
        out = torch.empty_like(h, dtype=dtype)
        add_norm[(triton.cdiv(rows, tile["R"]),)](
            h, h if add is None else add, scale if gate is None else gate, scale, shift, out, rows, eps,
            ADD=add is not None, GATE=gate is not None, **tile,
        )  # fmt: skip
        return h, out

    def norm_mish(self, x: Tensor, norm, add: Tensor, dtype: torch.dtype) -> Tensor:
        batch, frames, width = x.shape
        rows, tile = batch * frames, self._tile(width)
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
        norm_mish[(triton.cdiv(rows, tile["R"]),)](
            x,
            norm.weight.data,
            norm.bias.data,
            add,
            out,
            rows,
            frames,
            x.stride(0),
            norm.eps,
            VECTOR=add.dim() == 1,
            **tile,
        )
        return out

    def turns(self, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.stack([cos, sin])

    def rotate(self, mixed: Tensor, turns: Tensor) -> None:
        batch, frames, _, heads, width = mixed.shape
        rows = batch * frames
        rotate_first[(triton.cdiv(rows, 16), 2)](
            mixed, turns[0], turns[1], rows, frames, 3 * heads * width, heads * width, HALF=width // 2, R=16
        )

    def attention(self, mixed: Tensor, visible: Tensor) -> Tensor:
        batch, frames, _, heads, width = mixed.shape
        out = torch.empty(batch, frames, heads * width, dtype=mixed.dtype, device=mixed.device)
        queries, keys, warps, stages = self.attention_cut
        attend[(triton.cdiv(frames, queries), batch * heads)](
            mixed, out, visible, width**-0.5, frames, HEADS=heads, HD=width, BM=queries, BN=keys,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out
