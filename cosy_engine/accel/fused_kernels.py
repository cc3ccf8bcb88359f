"""Triton kernels of a decode step for one or two rows: matrix-vector products with all that surrounds them.

Five kernels a layer: norm + QKV + bias + rotary + cache write | attention in slices of the valid positions | combine +
output product + residual | norm + gate/up + SiLU | down product + residual. Residual stream, norms, softmax and sums
are fp32; no atomics, so nothing depends on the order in which programs finish.

Programmatic dependent launch (PDL): a kernel may start while the one before it still runs. What it loads before
`gdc_wait` must therefore be older than the step: weights, positions, and cached keys and values of earlier positions.
The first kernel of a step is launched without PDL, so it starts after everything of the step before. Every program
passes `gdc_wait`; that makes "the previous kernel has ended" include all kernels before that one.

Triton compiles a part of Python: no starred tuples, no conditional expressions on device values (hence the noqa).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LOG2E = tl.constexpr(1.4426950408889634)
NEVER = tl.constexpr(-1e30)  # a score that no position has; finite, so that differences of two stay numbers


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def weight_tiles(w, r, rm, K: tl.constexpr, BK: tl.constexpr):
    """Rows r of a (*, K) matrix as a tuple of (rows, BK) tiles: with BK = 256 a warp covers a row, 16 bytes a lane."""
    tiles = ()
    for i in tl.static_range((K + BK - 1) // BK):
        k = i * BK + tl.arange(0, BK)
        mask = rm[:, None] & (k < K)[None, :]
        tiles = tiles + (tl.load(w + r[:, None] * K + k[None, :], mask=mask, other=0.0),)  # noqa: RUF005
    return tiles


@triton.jit
def early_gains(gain, H: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr):
    """Norm gains as vectors of BK; none when not FLAT: held before the wait they would take registers from weights."""
    tiles = ()
    if FLAT:
        for i in tl.static_range((H + BK - 1) // BK):
            k = i * BK + tl.arange(0, BK)
            tiles = tiles + (tl.load(gain + k, mask=k < H, other=0.0),)  # noqa: RUF005
    return tiles


@triton.jit
def normed_tiles(x, gain, gains, eps, BN: tl.constexpr, H: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr):
    """x (H) * gain as fp32 tiles, and 1 / sqrt(mean(x^2) + eps) to multiply sums of them with.

    FLAT: tiles (1, BK), loaded once a program and exchanged through shared memory. Else repeated over BN rows by their
    addresses, which loads them straight in the layout of the weight tiles.
    """
    tiles = ()
    if FLAT:
        squares = tl.zeros([BK], tl.float32)
        for i in tl.static_range((H + BK - 1) // BK):
            k = i * BK + tl.arange(0, BK)
            v = tl.load(x + k, mask=k < H, other=0.0).to(tl.float32)
            squares += v * v
            tiles = tiles + ((v * gains[i])[None, :],)  # noqa: RUF005
        factor = tl.rsqrt(tl.sum(squares, 0) / H + eps)
    else:
        squares = tl.zeros([BN, BK], tl.float32)
        for i in tl.static_range((H + BK - 1) // BK):
            k = i * BK + tl.arange(0, BK)
            o = tl.zeros([BN, 1], tl.int32) + k[None, :]
            v = tl.load(x + o, mask=(k < H)[None, :], other=0.0).to(tl.float32)
            squares += v * v
            tiles = tiles + (v * tl.load(gain + o, mask=(k < H)[None, :], other=0.0),)  # noqa: RUF005
        factor = tl.rsqrt(tl.sum(squares, 1) / H + eps)
    return tiles, factor


@triton.jit
def weighted_sums(ws, xs, BN: tl.constexpr, BK: tl.constexpr):
    """(BN) sums over K of w * x."""
    acc = tl.zeros([BN, BK], tl.float32)
    for i in tl.static_range(len(ws)):
        acc += ws[i].to(tl.float32) * xs[i]
    return tl.sum(acc, 1)


@triton.jit
def qkv_gemv(
    x, source, token, gain, w, bias, rotary, length, q_out, keys, values, eps,
    M: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, NQ: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr,
    CAP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr, FIRST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: BN rotary pairs (d, d + HD/2) of one of the NQ + 2 NKV heads, all of H.

    FIRST: `source` is the embedding table, looked up by `token`; program 0 writes the row to x for later kernels.
    rotary: (S, HD/2, 2) cos, sin. keys, values: (B, NKV, CAP, HD) of this layer, written at length[row].
    """
    pid = tl.program_id(0)
    HALF: tl.constexpr = HD // 2
    head = pid // (HALF // BN)
    d = (pid % (HALF // BN)) * BN + tl.arange(0, BN)
    r = head * HD + d
    if PDL:
        gdc_launch_dependents()
    wa = weight_tiles(w, r, r >= 0, H, BK)
    wb = weight_tiles(w, r + HALF, r >= 0, H, BK)
    gs = early_gains(gain, H, BK, FLAT)
    ba = tl.load(bias + r)
    bb = tl.load(bias + r + HALF)
    if PDL:
        gdc_wait()
    for m in tl.static_range(M):
        p = tl.load(length + m).to(tl.int32)
        start = m * H
        if FIRST:
            start = tl.load(token + m).to(tl.int32) * H
            if pid == 0:
                k = tl.arange(0, HP)
                row = tl.load(source + start + k, mask=k < H, other=0.0)
                tl.store(x + m * H + k, row.to(tl.float32), mask=k < H)
        xs, factor = normed_tiles(source + start, gain, gs, eps, BN, H, BK, FLAT)
        a = weighted_sums(wa, xs, BN, BK) * factor + ba
        b = weighted_sums(wb, xs, BN, BK) * factor + bb
        if head < NQ + NKV:
            c = tl.load(rotary + (p * HALF + d) * 2)
            s = tl.load(rotary + (p * HALF + d) * 2 + 1)
            ra = a * c - b * s
            rb = b * c + a * s
            if head < NQ:  # noqa: SIM108
                o = q_out + (m * NQ + head) * HD + d
            else:
                o = keys + ((m * NKV + head - NQ) * CAP + p) * HD + d
            tl.store(o, ra)
            tl.store(o + HALF, rb)
        else:
            o = values + ((m * NKV + head - NQ - NKV) * CAP + p) * HD + d
            tl.store(o, a)
            tl.store(o + HALF, b)


@triton.jit
def attend(qv, kt, vt, valid, mi, li, acc, scale):
    """One block of positions into the running maximum (log2), sum and mix of the query heads."""
    sc = tl.dot(qv, kt, input_precision="ieee") * (scale * LOG2E)
    sc = tl.where(valid[None, :], sc, NEVER)
    mn = tl.maximum(mi, tl.max(sc, 1))
    e = tl.where(valid[None, :], tl.exp2(sc - mn[:, None]), 0.0)
    f = tl.exp2(mi - mn)
    return mn, li * f + tl.sum(e, 1), tl.dot(e.to(vt.dtype), vt, acc * f[:, None], input_precision="ieee")


@triton.jit
def attention(
    q, keys, values, length, done, top, total, mixed, scale,
    NQ: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, CAP: tl.constexpr, S: tl.constexpr, BT: tl.constexpr,
    EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: one row, one KV head, one of S slices of the earlier positions; the length is read on the device.

    Earlier positions were cached by earlier steps, so the first BT of a slice may be loaded before the wait (EARLY);
    this step's own position is added by the last slice. A row that is done looks at its own position only.
    Writes unnormalised partials per query head: maximum (log2), sum, and mix, at (row, slice, head).
    """
    row = tl.program_id(0) // NKV
    kv = tl.program_id(0) % NKV
    s = tl.program_id(1)
    G: tl.constexpr = NQ // NKV
    if PDL:
        gdc_launch_dependents()
        if not EARLY:
            gdc_wait()
    p = tl.load(length + row).to(tl.int32)
    seen = tl.where(tl.load(done + row) != 0, 0, p)
    size = tl.cdiv(tl.cdiv(seen, S), 16) * 16
    start = s * size
    end = tl.minimum(start + size, seen)
    hq = tl.arange(0, 16)
    d = tl.arange(0, HD)
    t = tl.arange(0, BT)
    base = (row * NKV + kv) * CAP * HD
    here = start + t
    valid = here < end
    kt = tl.load(keys + base + here[None, :] * HD + d[:, None], mask=valid[None, :], other=0.0)
    vt = tl.load(values + base + here[:, None] * HD + d[None, :], mask=valid[:, None], other=0.0)
    if PDL and EARLY:
        gdc_wait()
    qv = tl.load(q + (row * NQ + kv * G + hq)[:, None] * HD + d[None, :], mask=(hq < G)[:, None], other=0.0)
    # .cg: these two lines may neighbour what was loaded before the wait
    kn = tl.load(keys + base + p * HD + d, cache_modifier=".cg").to(tl.float32)
    vn = tl.load(values + base + p * HD + d, cache_modifier=".cg").to(tl.float32)
    mi = tl.full([16], NEVER, tl.float32)
    li = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, HD], tl.float32)
    mi, li, acc = attend(qv, kt, vt, valid, mi, li, acc, scale)
    for t0 in range(start + BT, end, BT):
        here = t0 + t
        valid = here < end
        kt = tl.load(keys + base + here[None, :] * HD + d[:, None], mask=valid[None, :], other=0.0)
        vt = tl.load(values + base + here[:, None] * HD + d[None, :], mask=valid[:, None], other=0.0)
        mi, li, acc = attend(qv, kt, vt, valid, mi, li, acc, scale)
    last = s == S - 1
    own = tl.sum(qv.to(tl.float32) * kn[None, :], 1) * (scale * LOG2E)
    own = tl.where(last, own, NEVER)
    mn = tl.maximum(mi, own)
    f = tl.exp2(mi - mn)
    e = tl.where(last, tl.exp2(own - mn), 0.0)
    acc = acc * f[:, None] + e[:, None] * vn[None, :]
    o = (row * S + s) * NQ + kv * G + hq
    tl.store(top + o, mn, mask=hq < G)
    tl.store(total + o, li * f + e, mask=hq < G)
    tl.store(mixed + o[:, None] * HD + d[None, :], acc, mask=(hq < G)[:, None])


@triton.jit
def out_gemv(
    top, total, mixed, w, x,
    M: tl.constexpr, H: tl.constexpr, NQ: tl.constexpr, NQP: tl.constexpr, HD: tl.constexpr, S: tl.constexpr,
    BN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Combine the S slices (every program does: they are small), multiply, add to the residual."""
    A: tl.constexpr = NQ * HD
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, NQP * HD)
    if PDL:
        gdc_launch_dependents()
    wt = tl.load(w + n[:, None] * A + k[None, :], mask=(n < H)[:, None] & (k < A)[None, :], other=0.0)
    if PDL:
        gdc_wait()
    hh = tl.arange(0, NQP)
    s = tl.arange(0, S)
    d = tl.arange(0, HD)
    for m in tl.static_range(M):
        o = (m * S + s)[:, None] * NQ + hh[None, :]
        ms = tl.load(top + o, mask=(hh < NQ)[None, :], other=0.0)
        ls = tl.load(total + o, mask=(hh < NQ)[None, :], other=1.0)
        acc = tl.load(mixed + o[:, :, None] * HD + d[None, None, :], mask=(hh < NQ)[None, :, None], other=0.0)
        old = tl.load(x + m * H + n, mask=n < H, other=0.0)
        f = tl.exp2(ms - tl.max(ms, 0)[None, :])
        f = f / tl.sum(f * ls, 0)[None, :]
        a = tl.reshape(tl.sum(acc * f[:, :, None], 0), [NQP * HD])
        tl.store(x + m * H + n, old + tl.sum(wt.to(tl.float32) * a[None, :], 1), mask=n < H)


@triton.jit
def gate_up_gemv(
    x, gain, w, h, eps,
    M: tl.constexpr, H: tl.constexpr, FFN: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """h (M, FFN) = silu(gate) * up. w: (2 FFN, H), gate rows first; `up` comes scaled where h is fp16."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    if PDL:
        gdc_launch_dependents()
    wg = weight_tiles(w, n, n < FFN, H, BK)
    wu = weight_tiles(w, n + FFN, n < FFN, H, BK)
    gs = early_gains(gain, H, BK, FLAT)
    if PDL:
        gdc_wait()
    for m in tl.static_range(M):
        xs, factor = normed_tiles(x + m * H, gain, gs, eps, BN, H, BK, FLAT)
        g = weighted_sums(wg, xs, BN, BK) * factor
        tl.store(h + m * FFN + n, silu(g) * (weighted_sums(wu, xs, BN, BK) * factor), mask=n < FFN)


@triton.jit
def down_gemv(
    h, w, x, scale,
    M: tl.constexpr, H: tl.constexpr, FFN: tl.constexpr, KA: tl.constexpr, KB: tl.constexpr, BN: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """x += scale * (h @ w^T). K is cut in a power of two KA and a masked rest KB, so that little is loaded in vain;
    warps share a row, so that h is loaded once."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    nm = (n < H)[:, None]
    ka = tl.arange(0, KA)
    if PDL:
        gdc_launch_dependents()
    wa = tl.load(w + n[:, None] * FFN + ka[None, :], mask=nm, other=0.0)
    if KB > 0:
        kb = KA + tl.arange(0, KB)
        wb = tl.load(w + n[:, None] * FFN + kb[None, :], mask=nm & (kb < FFN)[None, :], other=0.0)
    if PDL:
        gdc_wait()
    for m in tl.static_range(M):
        ha = tl.load(h + m * FFN + ka).to(tl.float32)
        y = tl.sum(wa.to(tl.float32) * ha[None, :], 1)
        if KB > 0:
            hb = tl.load(h + m * FFN + kb, mask=kb < FFN, other=0.0).to(tl.float32)
            y += tl.sum(wb.to(tl.float32) * hb[None, :], 1)
        old = tl.load(x + m * H + n, mask=n < H, other=0.0)
        tl.store(x + m * H + n, old + y * scale, mask=n < H)


@triton.jit
def head_gemv(
    x, gain, w, bias, logits, eps, V,
    M: tl.constexpr, H: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr, BIAS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    if PDL:
        gdc_launch_dependents()
    wt = weight_tiles(w, n, n < V, H, BK)
    gs = early_gains(gain, H, BK, FLAT)
    offset = tl.zeros([BN], tl.float32)
    if BIAS:
        offset = tl.load(bias + n, mask=n < V, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    for m in tl.static_range(M):
        xs, factor = normed_tiles(x + m * H, gain, gs, eps, BN, H, BK, FLAT)
        tl.store(logits + m * V + n, weighted_sums(wt, xs, BN, BK) * factor + offset, mask=n < V)
