"""The step made for capture against the model's own step, on the CPU where both are plain arithmetic."""

import pytest
import torch

from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.llm.pool import DecodePool
from tests.llm.test_golden_lm import build
from tests.llm.test_pool import plan


def decode(version: str, fast: bool, dtype=torch.float32):
    lm = build(version).set_precision(dtype)
    pool = DecodePool(lm, 3, 160, 80, step=TorchStep(lm, 160) if fast else None)
    rows = [pool.admit(plan(seed)) for seed in (1, 2, 6)]
    for _ in range(45):
        pool.launch()
    progress = pool.collect()
    return [list(progress[row].tokens) for row in rows], pool.state


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_fused_products_draw_the_same_ids(version):
    plain, fast = decode(version, False), decode(version, True)
    assert plain[0] == fast[0] and any(len(tokens) > 10 for tokens in fast[0])
    assert torch.equal(plain[1].cache.length, fast[1].cache.length)
    # 1e-4: sums in another order over 64 features, through two layers
    torch.testing.assert_close(plain[1].cache.keys, fast[1].cache.keys, atol=1e-4, rtol=0)


def test_the_model_keeps_its_weights_when_they_are_fused():
    lm, twin = build("v3"), build("v3")
    TorchStep(lm, 64)
    for name, weight in twin.state_dict().items():
        assert torch.equal(lm.state_dict()[name], weight), name


@pytest.mark.parametrize(("rows", "buckets"), [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 4]), (24, [1, 2, 4, 8, 16, 24])])
def test_a_full_batch_of_any_size_is_captured(rows, buckets):
    pool = DecodePool(build("v3"), rows, 40, 20)
    assert GraphDecode(pool.step, pool.state, rows).rows == buckets
