"""Nucleus and repetition-aware sampling on tensors, rows independent, randomness passed in as uniforms.

Both draws are inverse-CDF on given numbers, so a request's ids depend on its own table of uniforms and on nothing else:
not on neighbours in the batch, on the device's generator, or on how often a captured graph was replayed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosy_engine.settings.model_spec import SamplingSpec

ID_BITS = 20  # of a sorting key; ids stay far below 2^20
SLICES = 32  # whose largest are found side by side: 28 us instead of 40 for 6761 ids on an H200
BELOW_ONE = 1 - 2**-32  # largest uniform, above all of fp32 that are below 1: times a sum it stays below that sum


def nucleus(log_probs: Tensor, spec: SamplingSpec) -> tuple[Tensor, Tensor]:
    """Candidates of the first draw.

    Args: log_probs: (B, V), may hold -inf; renormalised here.
    Returns: ids (B, k) by falling probability (ties: lower id first) and their probabilities (B, k), zero where the
    mass before the candidate has reached top_p; the candidate that crosses it stays. At least one is kept.
    """
    probs = torch.softmax(log_probs, dim=-1)
    # One integer key per id, probability first and then lower id: a top-k that is stable without sorting all of V.
    # Non-negative floats order like their bits.
    size = probs.shape[-1]
    reverse = torch.arange(size - 1, -1, -1, device=probs.device)
    keys = torch.add(reverse, probs.view(torch.int32), alpha=1 << ID_BITS)
    top = largest(keys, min(spec.top_k, size))
    ids = size - 1 - (top & ((1 << ID_BITS) - 1))
    ordered = probs.gather(1, ids)
    return ids, torch.where(mass_before(ordered) < spec.top_p, ordered, 0.0)


def largest(keys: Tensor, count: int) -> Tensor:
    """(B, V) int64, all different and not negative -> the largest (B, count), falling; of slices first, where V is large."""
    share = -(-keys.shape[1] // SLICES)
    if share < 4 * count:
        return keys.topk(count, dim=-1).values
    sliced = torch.nn.functional.pad(keys, (0, SLICES * share - keys.shape[1]), value=-1).unflatten(1, (SLICES, share))
    return sliced.topk(count, dim=-1, sorted=False).values.flatten(1).topk(count, dim=-1).values


def mass_before(ordered: Tensor) -> Tensor:
    """(B, k) -> (B, k), the sum of all columns before each, added one by one in fp32.

    As upstream does: a candidate exactly at top_p must fall on the same side.
    """
    if ordered.is_cuda:
        # A scan along the first axis of a matrix adds in this order, one thread for a column; a lone column is added otherwise.
        rows, columns = ordered.shape
        shifted = ordered.new_zeros(columns, rows + 1)
        shifted[1:, :rows] = ordered[:, :-1].T
        return shifted.cumsum(0)[:, :rows].T
    before = [torch.zeros_like(ordered[:, 0])]
    for column in ordered[:, :-1].unbind(1):
        before.append(before[-1] + column)
    return torch.stack(before, dim=1)


def inverse_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """Index drawn with probability proportional to weights (B, K) for uniform (B,) up to BELOW_ONE; never a zero weight."""
    cdf = weights.cumsum(-1, dtype=torch.float64)  # the same index on every device
    target = uniform.double() * cdf[:, -1]
    return (cdf <= target[:, None]).sum(-1)


def without(log_probs: Tensor, ids: Tensor) -> Tensor:
    """The distribution of the second draw: log_probs (B, V) with ids (B,) excluded, renormalised probabilities."""
    return torch.softmax(log_probs.scatter(1, ids[:, None], -torch.inf), dim=-1)


def repetition_aware(log_probs: Tensor, recent: Tensor, uniforms: Tensor, spec: SamplingSpec) -> Tensor:
    """One id per row.

    Args: log_probs: (B, V). recent: (B, window) the last ids of each row, -1 where there is none yet.
    uniforms: (B, 2) for the two draws. Both are computed always: no branch depends on data.
    """
    uniforms = uniforms.double().clamp(max=BELOW_ONE)
    candidates, weights = nucleus(log_probs, spec)
    first = candidates.gather(1, inverse_cdf(weights, uniforms[:, 0])[:, None])[:, 0]
    repeats = (recent == first[:, None]).sum(-1)
    second = inverse_cdf(without(log_probs, first), uniforms[:, 1])
    return torch.where(repeats >= spec.window * spec.tau, second, first)
