"""Triton kernels of a decode step for 3 to 32 rows, on tensor cores: seven kernels a layer.

Weights are the first operand of `tl.dot` and the rows its N side, so eight rows need no padding. The output and down
products are split over K into fp32 partials; a small norm kernel adds them to the residual in a fixed order and writes
normalised rows in the weights' precision. MP is the padded row count of all scratch tensors, M the real one: scratch
rows from M on stay zero and are computed in vain, tables of the caller are touched for M rows only.
PDL as in fused_kernels; EARLY loads all weights of a program before the wait, else a pipelined loop runs after it.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from cosy_engine.accel.fused_kernels import NEVER, silu


@triton.jit
def early_tiles(w, r, rm, lo, hi, STRIDE: tl.constexpr, SPAN: tl.constexpr, BK: tl.constexpr, EARLY: tl.constexpr):
    """Columns lo .. lo + SPAN - 1 (below hi) of rows r as (rows, BK) tiles; none when not EARLY."""
    tiles = ()
    if EARLY:
        for i in tl.static_range((SPAN + BK - 1) // BK):
            k = lo + i * BK + tl.arange(0, BK)
            mask = rm[:, None] & (k < hi)[None, :]
            tiles = tiles + (tl.load(w + r[:, None] * STRIDE + k[None, :], mask=mask, other=0.0),)  # noqa: RUF005
    return tiles


@triton.jit
def product(
    tiles, w, r, rm, x, m, lo, hi,
    STRIDE: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, MP: tl.constexpr, EARLY: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """(BN, MP) = w[r, lo:hi] @ x[:, lo:hi]^T in fp32. EVEN: hi - lo is a multiple of BK."""
    acc = tl.zeros([BN, MP], tl.float32)
    if EARLY:
        for i in tl.static_range(len(tiles)):
            k = lo + i * BK + tl.arange(0, BK)
            xt = tl.load(x + m[None, :] * STRIDE + k[:, None], mask=(k < hi)[:, None], other=0.0)
            acc = tl.dot(tiles[i], xt, acc, input_precision="ieee")
    else:
        for k0 in range(lo, hi, BK):
            k = k0 + tl.arange(0, BK)
            if EVEN:
                wt = tl.load(w + r[:, None] * STRIDE + k[None, :], mask=rm[:, None], other=0.0)
                xt = tl.load(x + m[None, :] * STRIDE + k[:, None])
            else:
                wt = tl.load(w + r[:, None] * STRIDE + k[None, :], mask=rm[:, None] & (k < hi)[None, :], other=0.0)
                xt = tl.load(x + m[None, :] * STRIDE + k[:, None], mask=(k < hi)[:, None], other=0.0)
            acc = tl.dot(wt, xt, acc, input_precision="ieee")
    return acc


@triton.jit
def norm_rows(
    x, source, token, part, gain, xn, eps, scale,
    P: tl.constexpr, MP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, FIRST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += scale * sum of P partials; xn = RMSNorm(x). One program a row. FIRST: x comes from the embedding table."""
    row = tl.program_id(0)
    k = tl.arange(0, HP)
    km = k < H
    if PDL:
        gdc_launch_dependents()
    g = tl.load(gain + k, mask=km, other=0.0)
    if PDL:
        gdc_wait()
    if FIRST:
        at = tl.load(token + row).to(tl.int32) * H
        xm = tl.load(source + at + k, mask=km, other=0.0).to(tl.float32)
    else:
        xm = tl.load(x + row * H + k, mask=km, other=0.0)
        add = tl.zeros([HP], tl.float32)
        for p in tl.static_range(P):
            add += tl.load(part + (p * MP + row) * H + k, mask=km, other=0.0)
        xm += add * scale
    factor = tl.rsqrt(tl.sum(xm * xm, 0) / H + eps)
    tl.store(x + row * H + k, xm, mask=km)
    tl.store(xn + row * H + k, xm * factor * g, mask=km)


@triton.jit
def qkv_dot(
    xn, w, bias, rotary, length, q_out, keys, values,
    M: tl.constexpr, MP: tl.constexpr, H: tl.constexpr, NQ: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr,
    CAP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EARLY: tl.constexpr, EVEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: BN/2 rotary pairs of one head; tile rows are [first halves, second halves]."""
    HALF: tl.constexpr = HD // 2
    HB: tl.constexpr = BN // 2
    head = tl.program_id(0) // (HALF // HB)
    block = tl.program_id(0) % (HALF // HB)
    j = tl.arange(0, BN)
    r = head * HD + block * HB + j % HB + HALF * (j // HB)
    m = tl.arange(0, MP)
    if PDL:
        gdc_launch_dependents()
    tiles = early_tiles(w, r, r >= 0, 0, H, H, H, BK, EARLY)
    offset = tl.load(bias + r)
    if PDL:
        gdc_wait()
    acc = product(tiles, w, r, r >= 0, xn, m, 0, H, H, BK, BN, MP, EARLY, EVEN)
    acc += offset[:, None]
    a, b = tl.split(tl.permute(tl.reshape(acc, [2, HB, MP]), (1, 2, 0)))
    p = tl.load(length + m, mask=m < M, other=0).to(tl.int32)[None, :]
    d = (block * HB + tl.arange(0, HB))[:, None]
    mm = m[None, :]
    real = (mm < M) & (d >= 0)
    if head < NQ + NKV:
        c = tl.load(rotary + (p * HALF + d) * 2)
        s = tl.load(rotary + (p * HALF + d) * 2 + 1)
        ra = a * c - b * s
        rb = b * c + a * s
        if head < NQ:  # noqa: SIM108
            o = q_out + (mm * NQ + head) * HD + d
        else:
            o = keys + ((mm * NKV + head - NQ) * CAP + p) * HD + d
        tl.store(o, ra, mask=real)
        tl.store(o + HALF, rb, mask=real)
    else:
        o = values + ((mm * NKV + head - NQ - NKV) * CAP + p) * HD + d
        tl.store(o, a, mask=real)
        tl.store(o + HALF, b, mask=real)


@triton.jit
def out_dot(
    top, total, mixed, w, part,
    MP: tl.constexpr, H: tl.constexpr, NQ: tl.constexpr, HD: tl.constexpr, S: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Split over K by whole heads: program (n tile, K slice) combines the attention of its heads, then multiplies."""
    A: tl.constexpr = NQ * HD
    NH: tl.constexpr = BK // HD
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    m = tl.arange(0, MP)
    if PDL:
        gdc_launch_dependents()
    wt = tl.load(w + n[:, None] * A + k[None, :], mask=(n < H)[:, None], other=0.0)
    if PDL:
        gdc_wait()
    head = (tl.program_id(1) * NH + tl.arange(0, NH))[:, None]
    d = tl.arange(0, HD)[None, :, None]
    mx = tl.full([NH, MP], NEVER, tl.float32)
    for s in tl.static_range(S):
        mx = tl.maximum(mx, tl.load(top + (m[None, :] * S + s) * NQ + head))
    den = tl.zeros([NH, MP], tl.float32)
    num = tl.zeros([NH, HD, MP], tl.float32)
    for s in tl.static_range(S):
        o = (m[None, :] * S + s) * NQ + head
        f = tl.exp2(tl.load(top + o) - mx)
        den += f * tl.load(total + o)
        num += f[:, None, :] * tl.load(mixed + o[:, None, :] * HD + d)
    mix = tl.reshape(num / den[:, None, :], [BK, MP])
    acc = tl.dot(wt, mix.to(wt.dtype), input_precision="ieee")
    tl.store(part + (tl.program_id(1) * MP + m[None, :]) * H + n[:, None], acc, mask=(n < H)[:, None])


@triton.jit
def gate_up_dot(
    xn, w, h,
    MP: tl.constexpr, H: tl.constexpr, FFN: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EARLY: tl.constexpr,
    EVEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """h (MP, FFN) = silu(gate) * up. w: (2 FFN, H), gate rows first; `up` comes scaled where h is fp16."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, MP)
    if PDL:
        gdc_launch_dependents()
    tg = early_tiles(w, n, n < FFN, 0, H, H, H, BK, EARLY)
    tu = early_tiles(w, n + FFN, n < FFN, 0, H, H, H, BK, EARLY)
    if PDL:
        gdc_wait()
    if EARLY:
        ag = product(tg, w, n, n < FFN, xn, m, 0, H, H, BK, BN, MP, EARLY, EVEN)
        au = product(tu, w, n + FFN, n < FFN, xn, m, 0, H, H, BK, BN, MP, EARLY, EVEN)
    else:  # one loop, so that the rows are loaded once
        ag = tl.zeros([BN, MP], tl.float32)
        au = tl.zeros([BN, MP], tl.float32)
        for k0 in range(0, H, BK):
            k = k0 + tl.arange(0, BK)
            if EVEN:
                mask = (n < FFN)[:, None]
                xt = tl.load(xn + m[None, :] * H + k[:, None])
            else:
                mask = (n < FFN)[:, None] & (k < H)[None, :]
                xt = tl.load(xn + m[None, :] * H + k[:, None], mask=(k < H)[:, None], other=0.0)
            wg = tl.load(w + n[:, None] * H + k[None, :], mask=mask, other=0.0)
            wu = tl.load(w + (n + FFN)[:, None] * H + k[None, :], mask=mask, other=0.0)
            ag = tl.dot(wg, xt, ag, input_precision="ieee")
            au = tl.dot(wu, xt, au, input_precision="ieee")
    tl.store(h + m[None, :] * FFN + n[:, None], silu(ag) * au, mask=(n < FFN)[:, None])


@triton.jit
def down_dot(
    h, w, part,
    MP: tl.constexpr, H: tl.constexpr, FFN: tl.constexpr, KS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EARLY: tl.constexpr, EVEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (n tile, slice of KS inputs) -> its partial sums."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, MP)
    lo = tl.program_id(1) * KS
    hi = tl.minimum(lo + KS, FFN)
    if PDL:
        gdc_launch_dependents()
    tiles = early_tiles(w, n, n < H, lo, hi, FFN, KS, BK, EARLY)
    if PDL:
        gdc_wait()
    acc = product(tiles, w, n, n < H, h, m, lo, hi, FFN, BK, BN, MP, EARLY, EVEN)
    tl.store(part + (tl.program_id(1) * MP + m[None, :]) * H + n[:, None], acc, mask=(n < H)[:, None])


@triton.jit
def head_dot(
    xn, w, bias, logits, V,
    MP: tl.constexpr, H: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BIAS: tl.constexpr, EARLY: tl.constexpr,
    EVEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, MP)
    if PDL:
        gdc_launch_dependents()
    tiles = early_tiles(w, n, n < V, 0, H, H, H, BK, EARLY)
    offset = tl.zeros([BN], tl.float32)
    if BIAS:
        offset = tl.load(bias + n, mask=n < V, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    acc = product(tiles, w, n, n < V, xn, m, 0, H, H, BK, BN, MP, EARLY, EVEN)
    tl.store(logits + m[None, :] * V + n[:, None], acc + offset[:, None], mask=(n < V)[:, None])
