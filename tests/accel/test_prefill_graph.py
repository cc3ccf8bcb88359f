"""Prompts read by the captured prefill against the model's own; on the CPU the captured step is simply run again."""

import pytest
import torch

from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.prefill_graph import GraphPrefill
from cosy_engine.llm.pool import DecodePool
from tests.llm.test_golden_lm import build
from tests.llm.test_pool import plan

RECORD = (
    "token",
    "step",
    "draw",
    "recent",
    "min_tokens",
    "max_tokens",
    "done",
    "stop_id",
    "finite",
    "forbid",
    "forbid_early",
)


def pools(version: str, lengths=(16, 32), dtype=torch.float32) -> tuple[DecodePool, DecodePool]:
    lm = build(version).set_precision(dtype)
    plain, fast = DecodePool(lm, 3, 160, 80), DecodePool(lm, 3, 160, 80)
    fast.prefill = GraphPrefill(TorchStep(lm, 160), fast.state, lengths, capture_graph=lambda step, share: step)
    for chore in fast.prefill.captures():
        chore()
    return plain, fast


def assert_same_rows(plain: DecodePool, fast: DecodePool) -> None:
    for name in RECORD:
        assert torch.equal(getattr(plain.state, name), getattr(fast.state, name)), name
    assert torch.equal(plain.state.cache.length, fast.state.cache.length)
    assert torch.equal(plain.state.out[:, 0], fast.state.out[:, 0])
    for row, count in enumerate(plain.state.cache.length.tolist()):
        for ours, theirs in (
            (fast.state.cache.keys, plain.state.cache.keys),
            (fast.state.cache.values, plain.state.cache.values),
        ):
            # 1e-4: sums in another order over 64 features, through two layers
            torch.testing.assert_close(ours[:, row, :, :count], theirs[:, row, :, :count], atol=1e-4, rtol=0)
            assert not ours[:, row, :, count:].any()


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_captured_prompt_leaves_the_row_as_the_model_does(version):
    plain, fast = pools(version)
    for seed in (1, 2, 6):
        assert plain.admit(plan(seed)) == fast.admit(plan(seed))
        assert_same_rows(plain, fast)
    assert fast.prefill.replays == 3
    for _ in range(30):
        plain.launch()
        fast.launch()
    theirs, ours = plain.collect(), fast.collect()
    assert {row: p.tokens for row, p in theirs.items()} == {row: p.tokens for row, p in ours.items()}


def test_a_row_that_is_used_again_begins_anew():
    plain, fast = pools("v3")
    for pool in (plain, fast):
        row = pool.admit(plan(2))
        for _ in range(20):
            pool.launch()
        pool.release(row)
        pool.admit(plan(3))
    assert_same_rows(plain, fast)


def test_a_prompt_longer_than_all_buckets_is_read_plainly():
    plain, fast = pools("v3", lengths=(8,))
    for pool in (plain, fast):
        pool.admit(plan(3))
    assert fast.prefill.replays == 0
    assert_same_rows(plain, fast)


def test_capturing_leaves_rows_in_use_alone():
    plain, fast = pools("v3")
    for pool in (plain, fast):
        for seed in (1, 2, 6):
            pool.admit(plan(seed))
        for _ in range(5):
            pool.launch()
    fast.prefill.capture(32)
    assert_same_rows(plain, fast)


@torch.inference_mode()
def test_large_activations_stay_finite_in_fp16():
    """gate * up of about 1.6e5 leaves fp16; the log-probs stay near those of fp32."""
    results = []
    for dtype in (torch.float32, torch.float16):
        lm = build("v3")
        for layer in lm.backbone.layers:
            mlp = layer.mlp  # new tensors: those of the golden data are shared
            for part, factor in ((mlp.gate_proj, 120.0), (mlp.up_proj, 120.0), (mlp.down_proj, 1 / 2000)):
                part.weight.data = part.weight.data * factor
        lm.set_precision(dtype)
        inputs = lm.prompt([3, 4, 5, 6], torch.arange(9))
        results.append(lm.log_probs(lm.backbone(inputs[None]))[0])
        hidden = TorchStep(lm, 64).read_prompt(inputs)[0]
        results.append(lm.log_probs(lm.backbone.norm(hidden)))
    exact, _, eager, fast = results
    for half in (eager, fast):
        assert half.isfinite().all()
        assert (
            half - exact
        ).abs().max() < 0.1  # weights and inputs of products rounded to 11 bits; log-probs down to -24
