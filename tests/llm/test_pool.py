"""Rows join and leave the decode batch between steps; what each gets is what it gets alone."""

import numpy as np
import pytest
import torch

from cosy_engine.llm.pool import DecodePool, RowPlan
from tests.llm.test_golden_lm import build

LM = build("v3")


def plan(seed: int, tokens: int = 40) -> RowPlan:
    draws = np.random.default_rng(seed)
    return RowPlan(
        text_ids=draws.integers(0, 190, 5 + seed % 4).tolist(),
        speech_ids=torch.from_numpy(draws.integers(0, 120, 3 * seed % 11)),
        uniforms=draws.random((tokens, 2), np.float32),
        min_tokens=6,
        max_tokens=tokens,
    )


def pool(rows: int, steps: int = 1) -> DecodePool:
    return DecodePool(LM, rows, 160, 80, steps=steps)


def alone(seed: int, tokens: int = 40) -> list[int]:
    one = pool(1)
    row = one.admit(plan(seed, tokens))
    while True:
        one.launch()
        progress = one.collect()[row]
        if progress.done:
            return list(progress.tokens)


@pytest.mark.parametrize("steps", [1, 5])
def test_rows_that_join_and_leave_get_what_they_get_alone(steps):
    shared = pool(3, steps)
    waiting = list(range(8))
    owners: dict[int, int] = {}
    finished: dict[int, list[int]] = {}
    turn = 0
    while waiting or owners:
        if waiting and turn % 3 == 0 and (row := shared.admit(plan(waiting[0]))) is not None:
            owners[row] = waiting.pop(0)
        results = shared.collect()
        shared.launch()
        for row, progress in results.items():
            if progress.done:
                finished[owners.pop(row)] = list(progress.tokens)
                shared.release(row)
        turn += 1
    assert finished == {seed: alone(seed) for seed in range(8)}
    assert shared.active == 0


def test_a_full_batch_takes_no_more_and_a_left_row_is_reused():
    shared = pool(2)
    first, second = shared.admit(plan(1)), shared.admit(plan(2))
    assert shared.admit(plan(3)) is None
    shared.launch()
    shared.release(first)
    assert shared.collect().keys() == {second}
    third = shared.admit(plan(3))
    assert third == first
    shared.launch()
    assert shared.collect()[third].tokens == alone(3)[:2]  # the prefill's draw and one step


def test_broken_numbers_of_one_row_never_reach_its_successor():
    shared = pool(1)
    row = shared.admit(plan(1))
    shared.launch()
    with torch.inference_mode():
        for cached in (shared.state.cache.keys, shared.state.cache.values):
            cached[:, row, :, : shared._rows[row].reached] = torch.nan
    shared.launch()
    assert not shared.collect()[row].finite
    shared.release(row)
    row = shared.admit(plan(2))
    for _ in range(60):
        shared.launch()
    progress = shared.collect()[row]
    assert progress.finite and progress.tokens == alone(2)


def test_a_plan_that_does_not_fit_is_known_before():
    shared = pool(1)
    assert shared.fits(plan(1, 80)) and not shared.fits(plan(1, 81)) and not shared.fits(plan(1, 200))
