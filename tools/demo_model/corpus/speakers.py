"""Speakers for the corpus: blends of the teacher's voice packs, some with a pitch and formant shift."""

import hashlib
import random

BASE = [
    "af_alloy",
    "af_aoede",
    "af_bella",
    "af_heart",
    "af_jessica",
    "af_kore",
    "af_nicole",
    "af_nova",
    "af_river",
    "af_sarah",
    "af_sky",
    "am_adam",
    "am_echo",
    "am_eric",
    "am_fenrir",
    "am_liam",
    "am_michael",
    "am_onyx",
    "am_puck",
    "am_santa",
    "bf_alice",
    "bf_emma",
    "bf_isabella",
    "bf_lily",
    "bm_daniel",
    "bm_fable",
    "bm_george",
    "bm_lewis",
]
# blends kept for the held-out test: the first digits of the SHA-256 of their sorted pack names
HELD = ["c5d1b62841df", "ab7b3f86ae0e", "9c62a446cbca"]


def held(packs):
    return hashlib.sha256(" ".join(sorted(packs)).encode()).hexdigest()[:12] in HELD


def make(n_blend, seed=7, extrapolate=True):
    """list of (id, {pack: weight}, shift); shift multiplies pitch and formants"""
    r = random.Random(seed)
    out = [(v, {v: 1.0}, 1.0) for v in BASE]
    fem = [v for v in BASE if v[1] == "f"]
    mal = [v for v in BASE if v[1] == "m"]
    while len(out) < len(BASE) + n_blend:
        k = r.random()
        pool = fem if k < 0.4 else mal if k < 0.8 else BASE
        n = 2 if r.random() < 0.7 else 3
        vs = r.sample(pool, n)
        if held(vs):
            continue
        w = [r.uniform(0.25, 1) for _ in vs]
        t = sum(w)
        w = [x / t for x in w]
        if extrapolate and n == 2 and r.random() < 0.15:
            e = r.uniform(0.1, 0.3)
            w = [1 + e, -e]
        shift = 1.0 if r.random() < 0.5 else round(r.uniform(0.88, 1.14), 3)
        out.append((f"mix{len(out) - len(BASE):04d}", {v: round(x, 3) for v, x in zip(vs, w, strict=False)}, shift))
    return out


def unseen(n, n_blend, seed=4242):
    """n blends for development: no training blend of make(n_blend) has the same packs, and no two of them do"""
    r = random.Random(seed)
    taken = {tuple(sorted(m)) for _, m, _ in make(n_blend)}
    out = []
    while len(out) < n:
        k = r.random()
        pool = [v for v in BASE if v[1] == "fm"[k < 0.45]] if k < 0.9 else BASE
        vs = r.sample(pool, 2 if r.random() < 0.7 else 3)
        if held(vs) or tuple(sorted(vs)) in taken:
            continue
        taken.add(tuple(sorted(vs)))
        w = [r.uniform(0.25, 1) for _ in vs]
        out.append(
            (
                f"dev{len(out):03d}",
                {v: round(x / sum(w), 3) for v, x in zip(vs, w, strict=False)},
                1.0 if r.random() < 0.5 else round(r.uniform(0.88, 1.14), 3),
            )
        )
    return out
