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


def test_results_of_a_launch_ahead_are_the_same_ids_one_launch_later():
    def spoken(ahead: int) -> tuple[list[list[int]], int]:
        pool = DecodePool(build("v3"), 2, 160, 80, steps=4, ahead=ahead)
        rows = {pool.admit(plan(seed)): [] for seed in (1, 6)}
        turns, waiting = 0, set(rows)
        while waiting:
            turns += 1
            for row, progress in pool.collect().items():
                rows[row] = list(progress.tokens)
                waiting -= {row} if progress.done else set()
            pool.launch()
        return list(rows.values()), turns

    plain, ahead = spoken(0), spoken(1)
    assert ahead[0] == plain[0] and ahead[1] == plain[1] + 1


def test_a_launch_from_before_says_nothing_of_a_row_s_new_owner():
    pool = DecodePool(build("v3"), 1, 160, 80, ahead=1)
    row = pool.admit(plan(1))
    pool.launch()
    pool.launch()
    pool.release(row)
    assert pool.admit(plan(6)) == row
    pool.launch()
    assert pool.collect() == {}
    pool.launch()
    assert len(pool.collect()[row].tokens) == 2


def test_nothing_is_decoded_for_rows_that_have_ended():
    ran = []
    pool = DecodePool(build("v3"), 1, 160, 80)
    eager = pool.step
    pool.step = lambda *args: ran.append(args) or eager(*args)
    row = pool.admit(plan(1))
    while True:
        pool.launch()
        if pool.collect()[row].done:
            break
    before = len(ran)
    pool.launch()
    assert len(ran) == before and pool.collect() == {}
