"""Where a sound clicks: single steps that stand out from the signal around them. Numpy only."""

from __future__ import annotations

import numpy as np

BLOCK_S = 0.005  # of the neighbourhood; shorter than a consonant, longer than a click
FLOOR = 0.02  # change of slope between samples that can be heard at all, of full scale
FACTOR = 12.0  # against what most samples of the block before or behind stay below; a plosive's own onset is below 6
USUAL = 0.9  # share of samples; a few of them may be other clicks


def clicks(samples: np.ndarray, rate_hz: int) -> list[int]:
    """Sample numbers of the clicks in (N,) float32, at most one a block.

    A click is a jump of value or slope: the second difference there is FACTOR times what it is in both neighbouring
    blocks. Speech that starts or stops suddenly is loud on one side, so it is none; white noise is as loud on both.
    """
    size = max(8, round(BLOCK_S * rate_hz))
    samples = np.concatenate([np.zeros(size), samples.astype(np.float64), np.zeros(size)])  # a hard start clicks too
    bend = np.abs(np.diff(samples, 2))
    blocks = bend[: len(bend) // size * size].reshape(-1, size)
    found = []
    for i in np.flatnonzero(blocks.max(axis=1) > FLOOR):
        at = i * size + int(blocks[i].argmax())
        left, right = bend[max(0, at - size - 2) : max(0, at - 2)], bend[at + 3 : at + 3 + size]
        around = max(np.quantile(side, USUAL) if len(side) else 0.0 for side in (left, right))
        if bend[at] > FACTOR * around and (not found or at + 1 - size - found[-1] > size // 2):
            found.append(int(at) + 1 - size)
    return found
