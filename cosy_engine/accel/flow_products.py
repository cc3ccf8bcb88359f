"""Triton kernels of the velocity estimators that multiply: small products with the residual after them, and convolutions. Attention and what is no product: flow_kernels."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosy_engine.accel.flow_pointwise import bound, mish


@triton.jit(do_not_specialize=["frames"])  # buckets differ in them: one compilation serves all
def position_conv(
    x, w, bias, add, out, frames,
    C: tl.constexpr, G: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr, ADD: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """out = mish(causal grouped convolution) (+ add) of BM frames of one group of G channels. x, add, out: (B, frames, C).
    w: (C, TAPS, G) in memory."""
    group = tl.program_id(1)
    row = tl.program_id(2) * frames
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, G)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    acc = tl.zeros([BM, G], tl.float32)
    for tap in range(TAPS):
        source = t + tap - (TAPS - 1)
        seen = (source >= 0) & (source < frames)
        a = tl.load(x + (row + source)[:, None] * C + group * G + c[None, :], mask=seen[:, None], other=0.0)
        b = tl.load(w + (group * G + c)[None, :] * (TAPS * G) + tap * G + c[:, None])
        acc = tl.dot(a, b, acc)
    acc += tl.load(bias + group * G + c)[None, :].to(tl.float32)
    y = mish(bound(acc))
    at = (row + t)[:, None] * C + group * G + c[None, :]
    if ADD:
        y += tl.load(add + at, mask=(t < frames)[:, None], other=0.0).to(tl.float32)
    tl.store(out + at, y, mask=(t < frames)[:, None])


@triton.jit(do_not_specialize=["frames"])  # buckets differ in them: one compilation serves all
def conv(
    x, w, bias, out, frames,
    C: tl.constexpr, N: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """out (B, frames, N) = causal convolution of x (B, frames, C), which may be fp32. w: (N, TAPS, C) in memory; C a multiple
    of BK."""
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row = tl.program_id(2) * frames
    if PDL:
        gdc_launch_dependents()
    offset = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if PDL:
        gdc_wait()
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, TAPS * C, BK):
        source = t + at // C - (TAPS - 1)
        c = tl.multiple_of(at % C, BK) + tl.arange(0, BK)
        seen = (source >= 0) & (source < frames)
        a = tl.load(x + (row + source)[:, None] * C + c[None, :], mask=seen[:, None], other=0.0)
        b = tl.load(w + n[None, :] * (TAPS * C) + (at + tl.arange(0, BK))[:, None], mask=(n < N)[None, :], other=0.0)
        if a.dtype == tl.float32:
            a = bound(a)
        acc = tl.dot(a.to(b.dtype), b, acc)
    real = (t < frames)[:, None] & (n < N)[None, :]
    tl.store(out + (row + t)[:, None] * N + n[None, :], bound(acc + offset), mask=real)


@triton.jit(do_not_specialize=["rows"])  # buckets differ in them: one compilation serves all
def product_add(
    x, w, bias, h, rows,
    K: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """h += x @ w^T + bias. x: (rows, K) half. w: (N, K); K a multiple of BK. h: (rows, N) fp32, in place."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    real = (m < rows)[:, None] & (n < N)[None, :]
    if PDL:
        gdc_launch_dependents()
    offset = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if PDL:
        gdc_wait()
    acc = tl.zeros([BM, BN], tl.float32)
    for at in range(0, K, BK):
        k = at + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < rows)[:, None], other=0.0)
        b = tl.load(w + n[None, :] * K + k[:, None], mask=(n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc)
    at_h = h + m[:, None] * N + n[None, :]
    tl.store(at_h, tl.load(at_h, mask=real, other=0.0) + bound(acc + offset), mask=real)
