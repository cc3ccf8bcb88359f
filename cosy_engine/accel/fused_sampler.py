"""Triton kernel that ends a decode step: masks, both draws of repetition-aware sampling, and the row's record.

Draws what `llm.sampling.repetition_aware` draws and writes what `SpeechLM.finish_step` writes.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def sample(
    logits, uniforms, forbid, forbid_early, token, step, draw, recent, min_tokens, max_tokens, done, stop_id, finite,
    out, length, found_id, found_p, sorted_id, sorted_p, V, speech_tokens, draws, room,
    VP: tl.constexpr, WINDOW: tl.constexpr, WP: tl.constexpr, TOP_P: tl.constexpr, TOP_K: tl.constexpr,
    REPEATS: tl.constexpr, FLOOR: tl.constexpr, C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program a row. logits: (M, V). draws, room: columns of `uniforms` and of `out`. The four `found_`, `sorted_`
    tables hold C entries a row.

    The mass before a member of the nucleus is below TOP_P, so more than 1 - TOP_P is left for at most V ids of no
    larger probability: the member has at least (1 - TOP_P) / V. FLOOR is that bound as the bits of an fp32;
    non-negative floats order like their bits. Bisection of the bits raises the bound until at most C ids are left, of
    which at least TOP_K lie at or above it. They are compacted and ranked pairwise: exact, no sort of V, ties to the
    lower id. Ids above the upper bound are compacted first, so that a crowd of equal ones at the edge cannot push out
    a larger one.
    """
    row = tl.program_id(0)
    if PDL:
        gdc_launch_dependents()
    # What only earlier steps wrote may be read before the wait.
    active = tl.load(done + row) == 0
    steps = tl.load(step + row)
    drawn = tl.load(draw + row)
    limit = tl.load(max_tokens + row)
    was_finite = tl.load(finite + row) != 0
    early = steps < tl.load(min_tokens + row)
    pair = uniforms + (row * draws + tl.minimum(drawn, draws - 1)) * 2
    u1 = tl.load(pair).to(tl.float64)
    u2 = tl.load(pair + 1).to(tl.float64)
    v = tl.arange(0, VP)
    allowed = tl.load(forbid + row * V + v, mask=v < V, other=1) == 0
    allowed = allowed & (tl.load(forbid_early + row * V + v, mask=(v < V) & early, other=0) == 0)
    w = tl.arange(0, WP)
    past = tl.load(recent + row * WINDOW + w, mask=w < WINDOW, other=-1)
    shifted = tl.load(recent + row * WINDOW + w + 1, mask=w < WINDOW - 1, other=-1)
    if PDL:
        gdc_wait()
    lg = tl.load(logits + row * V + v, mask=v < V, other=0.0)
    broken = tl.sum(tl.where(tl.abs(lg) < float("inf"), 0, 1), 0) > 0
    lg = tl.where(allowed, tl.where(broken, 0.0, lg), -float("inf"))  # masked before any maximum or sum
    mx = tl.max(lg, 0)
    e = tl.exp(lg - mx)
    p = tl.div_rn(e, tl.zeros_like(e) + tl.sum(e, 0))

    key = p.to(tl.int32, bitcast=True)
    lo = tl.full([], FLOOR, tl.int32)
    hi = tl.max(key, 0) + 1
    n = tl.sum((key >= lo).to(tl.int32), 0)
    while (n > C) & (hi - lo > 1):
        mid = lo + (hi - lo) // 2
        count = tl.sum((key >= mid).to(tl.int32), 0)
        enough = count >= TOP_K
        lo = tl.where(enough, mid, lo)
        hi = tl.where(enough, hi, mid)
        n = tl.where(enough, count, n)
    above = key >= hi  # fewer than TOP_K
    rest = (key >= lo) & (key < hi)  # together more than C only if all of `rest` are equal
    counts = tl.cumsum(above.to(tl.int32) + rest.to(tl.int32) * 65536, 0)
    slot = tl.where(above, (counts & 65535) - 1, tl.sum(above.to(tl.int32), 0) + (counts >> 16) - 1)
    kept = (above | rest) & (slot < C)
    tl.store(found_id + row * C + slot, v, mask=kept)
    tl.store(found_p + row * C + slot, p, mask=kept)
    n = tl.minimum(n, C)
    tl.debug_barrier()  # other threads of this program read what was just stored
    i = tl.arange(0, C)
    pi = tl.load(found_p + row * C + i, mask=i < n, other=-1.0)
    ids = tl.load(found_id + row * C + i, mask=i < n, other=VP)
    pj = tl.load(found_p + row * C + i, mask=i < n, other=-1.0)[None, :]
    jds = tl.load(found_id + row * C + i, mask=i < n, other=VP)[None, :]
    ahead = (pj > pi[:, None]) | ((pj == pi[:, None]) & (jds < ids[:, None]))
    rank = tl.sum(ahead.to(tl.int32), 1)
    tl.store(sorted_id + row * C + rank, ids, mask=i < n)
    tl.store(sorted_p + row * C + rank, pi, mask=i < n)
    tl.debug_barrier()

    # Added one by one in fp32 as upstream does: a candidate exactly at TOP_P must fall on the same side.
    before = 0.0
    mass = tl.zeros([], tl.float64)
    for j in tl.static_range(TOP_K):
        pj1 = tl.load(sorted_p + row * C + j, mask=j < n, other=0.0)
        mass += tl.where(before < TOP_P, pj1, 0.0).to(tl.float64)
        before += pj1
    target = u1 * mass
    before = 0.0
    cdf = tl.zeros([], tl.float64)
    index = tl.zeros([], tl.int32)
    last = tl.zeros([], tl.int32)
    for j in tl.static_range(TOP_K):
        pj1 = tl.load(sorted_p + row * C + j, mask=j < n, other=0.0)
        weight = tl.where(before < TOP_P, pj1, 0.0)
        cdf += weight.to(tl.float64)
        index += (cdf <= target).to(tl.int32)
        last = tl.where(weight > 0, j, last)
        before += pj1
    chosen = tl.load(sorted_id + row * C + tl.minimum(index, last))

    if tl.sum((past == chosen).to(tl.int32), 0) >= REPEATS:  # rare: the second draw, from all other ids
        others = tl.where(v == chosen, -float("inf"), lg)
        e2 = tl.exp(others - tl.max(others, 0))
        p2 = tl.div_rn(e2, tl.zeros_like(e2) + tl.sum(e2, 0))
        cdf2 = tl.cumsum(p2.to(tl.float64), 0)
        passed = tl.sum(((cdf2 <= u2 * tl.max(cdf2, 0)) & (v < V)).to(tl.int32), 0)
        chosen = tl.minimum(passed, tl.max(tl.where(p2 > 0, v, 0), 0))

    tl.debug_barrier()  # every thread has read the old record
    stops = chosen >= speech_tokens
    emit = active & (stops == 0) & (broken == 0)
    tl.store(out + row * room + tl.minimum(steps, room - 1), chosen, mask=emit)
    tl.store(token + row, chosen, mask=emit)
    tl.store(recent + row * WINDOW + w, tl.where(w == WINDOW - 1, chosen, shifted), mask=(w < WINDOW) & active)
    tl.store(stop_id + row, chosen, mask=active & stops)
    steps += emit.to(tl.int64)
    tl.store(step + row, steps)
    tl.store(draw + row, drawn + active.to(tl.int64))
    tl.store(length + row, tl.load(length + row) + active.to(tl.int64))
    tl.store(finite + row, (was_finite & ((broken == 0) | (active == 0))).to(tl.uint8))
    tl.store(done + row, ((active == 0) | stops | broken | (steps >= limit)).to(tl.uint8))
