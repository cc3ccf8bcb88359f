"""Triton kernels of the velocity estimators that lie between products: gate, residual, norm, modulation, rotation."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

FP16_MAX = tl.constexpr(65504.0)


@triton.jit
def bound(x):
    """Saturate what a product in half precision overflowed."""
    return tl.minimum(tl.maximum(x, -FP16_MAX), FP16_MAX)


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


@triton.jit(do_not_specialize=["rows"])  # buckets differ in them: one compilation serves all
def add_norm(
    h, add, gate, scale, shift, out, rows, eps,
    D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr, ADD: tl.constexpr, GATE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """h += gate * add, then out = LN(h) * scale + shift. h: (rows, D) fp32, in place. add, out: (rows, D) half."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    d = tl.arange(0, DP)[None, :]
    real = (r < rows) & (d < D)
    at = r * D + d
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    x = tl.load(h + at, mask=real, other=0.0)
    if ADD:
        more = bound(tl.load(add + at, mask=real, other=0.0).to(tl.float32))
        if GATE:
            more *= tl.load(gate + d, mask=d < D, other=0.0)
        x += more
        tl.store(h + at, x, mask=real)
    y = layer_norm(x, real, eps, D)
    y = y * tl.load(scale + d, mask=d < D, other=0.0) + tl.load(shift + d, mask=d < D, other=0.0)
    tl.store(out + at, y, mask=real)


@triton.jit(do_not_specialize=["rows"])  # buckets differ in them: one compilation serves all
def norm_mish(
    x, weight, bias, add, out, rows, eps,
    D: tl.constexpr, DP: tl.constexpr, R: tl.constexpr, VECTOR: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = mish(LN(x)) + add. x, out, add: (rows, D); add may be one VECTOR for all."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    d = tl.arange(0, DP)[None, :]
    real = (r < rows) & (d < D)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    y = layer_norm(bound(tl.load(x + r * D + d, mask=real, other=0.0).to(tl.float32)), real, eps, D)
    y = y * tl.load(weight + d, mask=d < D, other=0.0) + tl.load(bias + d, mask=d < D, other=0.0)
    if VECTOR:
        more = tl.load(add + d, mask=d < D, other=0.0).to(tl.float32)
    else:
        more = tl.load(add + r * D + d, mask=real, other=0.0).to(tl.float32)
    tl.store(out + r * D + d, mish(y) + more, mask=real)


@triton.jit(do_not_specialize=["rows", "frames"])  # buckets differ in them: one compilation serves all
def rotate_first(mixed, cos, sin, rows, frames, stride, part, HALF: tl.constexpr, R: tl.constexpr, PDL: tl.constexpr):
    """Interleaved pairs of the first head of q and k, in place. mixed: (rows, 3, heads, 2 HALF). cos, sin: (frames, HALF)."""
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    j = tl.arange(0, HALF)[None, :]
    real = r < rows
    at = mixed + r * stride + tl.program_id(1) * part + 2 * j
    if PDL:
        gdc_launch_dependents()
    c = tl.load(cos + (r % frames) * HALF + j, mask=real, other=0.0)
    s = tl.load(sin + (r % frames) * HALF + j, mask=real, other=0.0)
    if PDL:
        gdc_wait()
    even = tl.load(at, mask=real, other=0.0).to(tl.float32)
    odd = tl.load(at + 1, mask=real, other=0.0).to(tl.float32)
    tl.store(at, even * c - odd * s, mask=real)
    tl.store(at + 1, odd * c + even * s, mask=real)
