"""The velocity estimators' operations in Triton (FlowKernels, with the calls of flow_lean.PlainOps), for half precision.

Here attention that knows its lengths; the other kernels: flow_pointwise, flow_products. v3's large products stay with cuBLAS, which is
faster at its sizes than what Triton makes of them; v2's are so small that launches decide. Where several cuts of a kernel (or a
library) compute the same, what is fastest on the device is measured while a bucket warms up.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosy_engine.accel.fastest import Fastest
from cosy_engine.accel.flow_lean import causal, scores_fp32
from cosy_engine.accel.flow_pointwise import add_norm, norm_mish, rotate_first
from cosy_engine.accel.flow_products import conv, position_conv, product_add

LIBRARY = "library"  # a way to make a product: by cuBLAS or cuDNN
ATTENTION = ((64, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 2))  # queries, keys of a tile, warps, stages
# rows, columns of a tile, warps, depth of a step, stages
ADD = ((64, 64, 4, 64, 4), (64, 64, 4, 128, 3), (64, 32, 4, 128, 3), LIBRARY)
CONV = ((64, 64, 4, 64, 4), LIBRARY)


@triton.jit(do_not_specialize=["frames", "requests"])
def attend(
    mixed, out, limits, scale, frames, requests,
    HEADS: tl.constexpr, HD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attention of BM queries of one head. mixed: (B, frames, 3, HEADS, HD). out: (B, frames, HEADS * HD).

    limits: (requests, 2) valid frames, and frames of a block: a query sees valid keys up to the end of its block. Row b is of request
    b % requests. Padded queries are skipped, their output is not written.
    """
    WIDE: tl.constexpr = HEADS * HD
    first = tl.program_id(0) * BM
    row = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    if PDL:
        gdc_launch_dependents()
    valid = tl.load(limits + 2 * (row % requests))  # set before the step began
    block = tl.load(limits + 2 * (row % requests) + 1)
    if PDL:
        gdc_wait()
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


def _class(frames: int) -> int:
    """Buckets between two powers of two are alike enough to be measured once; the name is the upper power."""
    return 1 << frames.bit_length()


@triton.jit(do_not_specialize=["frames"])
def attend_by_distance(
    mixed, scores, out, limits, frames,
    HEADS: tl.constexpr, HD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attention of BM queries of one head with scores of distances added. mixed: (frames, 4, HEADS, HD), scaled q, _, k, v.

    scores: (HEADS, frames, 2 frames) fp32, column c of the distance frames - 1 - c. limits: (2,), out: see attend.
    """
    WIDE: tl.constexpr = HEADS * HD
    first = tl.program_id(0) * BM
    head = tl.program_id(1)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    valid = tl.load(limits)
    block = tl.load(limits + 1)
    if first < valid:
        m = first + tl.arange(0, BM)
        n = tl.arange(0, BN)
        d = tl.arange(0, HD)
        base = mixed + head * HD
        q = tl.load(base + m[:, None] * 4 * WIDE + d[None, :], mask=(m < valid)[:, None], other=0.0)
        of_row = scores + (head.to(tl.int64) * frames + m) * (2 * frames) + frames - 1 - m
        ends = tl.minimum((m // block + 1) * block, valid)
        stop = tl.minimum(((first + BM - 1) // block + 1) * block, valid)
        top = tl.full([BM], -1e30, tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, HD], tl.float32)
        for at in range(0, stop, BN):
            real = at + n < valid
            k = tl.load(base + 2 * WIDE + (at + n)[None, :] * 4 * WIDE + d[:, None], mask=real[None, :], other=0.0)
            seen = ((at + n)[None, :] < ends[:, None]) & (m < valid)[:, None]
            far = tl.load(of_row[:, None] + (at + n)[None, :], mask=seen, other=0.0)
            s = tl.where(seen, (tl.dot(q, k) + far) * 1.4426950408889634, -1e30)
            new = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - new[:, None])
            fade = tl.exp2(top - new)
            total = total * fade + tl.sum(p, 1)
            v = tl.load(base + 3 * WIDE + (at + n)[:, None] * 4 * WIDE + d[None, :], mask=real[:, None], other=0.0)
            acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
            top = new
        o = out + m[:, None] * WIDE + head * HD + d[None, :]
        tl.store(o, acc / total[:, None], mask=(m < valid)[:, None])


class FlowKernels:
    """The operations of flow_lean in Triton.

    attention, add, conv: cuts to choose from, see above. pdl: programmatic dependent launch, None asks the device.
    """

    fused = True

    def __init__(
        self,
        attention: tuple = ATTENTION,
        add: tuple = ADD,
        conv: tuple = CONV,
        pdl: bool | None = None,
    ):
        self.cuts = {"attention": attention, "add": add, "conv": conv}
        able = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
        self.pdl = able if pdl is None else pdl
        self.fastest = Fastest()

    def _launch(self, warps: int = 4, stages: int = 3) -> dict:
        return dict(num_warps=warps, num_stages=stages, PDL=self.pdl, launch_pdl=self.pdl)

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
            ADD=add is not None, GATE=gate is not None, **tile, **self._launch(),
        )  # fmt: skip
        return h, out

    def carried(self, h: Tensor, dtype: torch.dtype) -> Tensor:
        return h  # `conv` takes fp32

    def conv(self, x: Tensor, layer) -> Tensor:
        batch, frames, width = x.shape
        size, _, taps = layer.weight.shape
        step = min(64, width & -width)

        def run(cut) -> Tensor:
            if cut == LIBRARY:
                return causal(x.to(layer.weight.dtype), layer).contiguous()
            rows, columns, warps, depth, stages = cut
            out = torch.empty(batch, frames, size, dtype=layer.weight.dtype, device=x.device)
            conv[(triton.cdiv(frames, rows), triton.cdiv(size, columns), batch)](
                x, layer.weight.data, layer.bias.data, out, frames,
                C=width, N=size, TAPS=taps, BM=rows, BN=columns, BK=min(depth, step), **self._launch(warps, stages),
            )  # fmt: skip
            return out

        return self.fastest(("conv", batch, _class(frames), width, str(x.dtype), size, taps), self.cuts["conv"], run)

    def conv_mish(self, x: Tensor, layer, norm, add: Tensor, dtype: torch.dtype) -> Tensor:
        y = self.conv(x, layer)
        rows, tile = y.shape[0] * y.shape[1], self._tile(y.shape[2])
        out = torch.empty(y.shape, dtype=dtype, device=x.device)
        norm_mish[(triton.cdiv(rows, tile["R"]),)](
            y, norm.weight.data, norm.bias.data, add, out, rows, norm.eps, VECTOR=add.dim() == 1, **tile, **self._launch(),
        )  # fmt: skip
        return out

    def turns(self, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.stack([cos, sin])

    def rotate(self, mixed: Tensor, turns: Tensor) -> None:
        batch, frames, _, heads, width = mixed.shape
        rows = batch * frames
        rotate_first[(triton.cdiv(rows, 16), 2)](
            mixed, turns[0], turns[1], rows, frames, 3 * heads * width, heads * width, HALF=width // 2, R=16,
            **self._launch(),
        )  # fmt: skip

    def attention(self, mixed: Tensor, visible: Tensor) -> Tensor:
        batch, frames, _, heads, width = mixed.shape

        def run(cut) -> Tensor:
            out = torch.empty(batch, frames, heads * width, dtype=mixed.dtype, device=mixed.device)
            queries, keys, warps, stages = cut
            attend[(triton.cdiv(frames, queries), batch * heads)](
                mixed, out, visible, width**-0.5, frames, visible.numel() // 2, HEADS=heads, HD=width, BM=queries, BN=keys,
                **self._launch(warps, stages),
            )  # fmt: skip
            return out

        return self.fastest(("attention", batch, _class(frames), heads, width), self.cuts["attention"], run)

    def limits(self, valid: Tensor, block: Tensor, frames: int, device: torch.device) -> Tensor:
        return torch.cat([valid, block]).int()

    def attention_by_distance(self, mixed: Tensor, distances: Tensor, visible: Tensor) -> Tensor:
        _, frames, _, heads, width = mixed.shape
        scores = scores_fp32(mixed[0, :, 1].transpose(0, 1), distances)
        out = torch.empty(1, frames, heads * width, dtype=mixed.dtype, device=mixed.device)
        attend_by_distance[(triton.cdiv(frames, 64), heads)](
            mixed, scores, out, visible, frames, HEADS=heads, HD=width, BM=64, BN=32 if width < 64 else 64,
            **self._launch(4, 3),
        )  # fmt: skip
        return out

    def position_conv(self, x: Tensor, layer, add: Tensor | None) -> Tensor:
        batch, frames, width = x.shape
        out = torch.empty(x.shape, dtype=x.dtype if add is None else torch.float32, device=x.device)
        position_conv[(triton.cdiv(frames, 128), layer.groups, batch)](
            x, layer.weight.data, layer.bias.data, x if add is None else add, out, frames,
            C=width, G=width // layer.groups, TAPS=layer.kernel_size[0], BM=128, ADD=add is not None,
            **self._launch(4, 4),
        )  # fmt: skip
        return out

    def product_add(self, h: Tensor, x: Tensor, layer) -> Tensor:
        rows, (size, depth) = h.shape[0] * h.shape[1], layer.weight.shape

        def run(cut) -> Tensor:
            if cut == LIBRARY:
                return h.add_(layer(x))
            block, columns, warps, step, stages = cut
            product_add[(triton.cdiv(rows, block), triton.cdiv(size, columns))](
                x, layer.weight.data, layer.bias.data, h, rows,
                K=depth, N=size, BM=block, BN=columns, BK=min(step, depth), **self._launch(warps, stages),
            )  # fmt: skip
            return h

        return self.fastest(("product add", h.shape[0], _class(h.shape[1]), depth, size), self.cuts["add"], run)
