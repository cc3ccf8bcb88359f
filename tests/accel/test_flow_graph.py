"""The graphed flow against the flow itself; on the CPU the captured step is simply run again at each replay."""

import pytest
import torch

from cosy_engine.accel.flow_graph import GraphFlow
from cosy_engine.accel.fused_config import flow_misfit
from cosy_engine.settings.published import PUBLISHED
from tests.accel.interpreter import interpreted, run_interpreted
from tests.flow.models import TINY, tiny_flow, tiny_prompt, tiny_tokens

ROUNDING = 1e-4  # padded rows change the order of sums in attention and products, over 10 steps


def rerun(step, share):
    return step


@pytest.fixture(params=TINY)
def both(request):
    flow = tiny_flow(request.param)
    fast = GraphFlow(flow, buckets=(104, 152, 256), capture_graph=rerun)
    for chore in fast.captures():
        chore()
    return flow, fast


@pytest.mark.parametrize(("streaming", "finalize"), [(False, True), (True, True), (True, False)])
def test_padding_to_a_bucket_changes_nothing(both, streaming, finalize):
    flow, fast = both
    for tokens, prompt in ((31, 12), (50, 0), (60, 30), (41, 9)):
        tokens, prompt = tiny_tokens(flow, tokens), tiny_prompt(flow, prompt)
        before = fast.replays
        ours = fast.whole([tokens], [prompt], streaming=streaming, finalize=finalize)[0]
        expected = flow.whole([tokens], [prompt], streaming=streaming, finalize=finalize)[0]
        assert fast.replays == before + flow.spec.steps
        torch.testing.assert_close(ours, expected, atol=ROUNDING, rtol=0)


def test_what_fits_no_bucket_runs_plainly(both):
    flow, fast = both
    tokens, prompt = tiny_tokens(flow, 140), tiny_prompt(flow, 10)
    ours = fast.whole([tokens], [prompt])[0]
    assert fast.replays == 0 and torch.equal(ours, flow.whole([tokens], [prompt])[0])


@pytest.mark.parametrize("hop", [1, 7, 25, 60])
def test_a_recomputed_stream_equals_a_cached_one(both, hop):
    flow, fast = both
    tokens, prompt = tiny_tokens(flow, 93), tiny_prompt(flow, 31)
    cached, recomputed = flow.start(prompt), fast.start(prompt)
    for at in range(0, len(tokens), hop):
        piece = tokens[at : at + hop]
        assert fast.tokens_to_next(recomputed) == flow.tokens_to_next(cached)
        ours, theirs = fast.advance(recomputed, piece), flow.advance(cached, piece)
        torch.testing.assert_close(ours, theirs, atol=ROUNDING, rtol=0)
    nothing = tokens[:0]
    ours, theirs = fast.advance(recomputed, nothing, final=True), flow.advance(cached, nothing, final=True)
    torch.testing.assert_close(ours, theirs, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("version", TINY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_fp32_in_few_operations_too(version, dtype):
    flow = tiny_flow(version)
    tokens, prompt = tiny_tokens(flow, 40), tiny_prompt(flow, 10)
    exact = flow.whole([tokens], [prompt])[0]
    fast = GraphFlow(tiny_flow(version).set_precision(dtype), buckets=(104,), capture_graph=rerun)
    fast.capture(104)
    ours = fast.whole([tokens], [prompt])[0]
    # weights and products rounded to 8 or 11 bits, over 4 steps
    assert (ours - exact).square().mean().sqrt() < (0.03 if dtype == torch.bfloat16 else 0.004) * exact.std()


def test_sizes_that_tensor_cores_do_not_take_are_named():
    assert all(flow_misfit(spec.flow) is None for spec in PUBLISHED.values())
    assert "head_dim is 8" in flow_misfit(TINY["v2"])
    assert "head_dim is 8" in flow_misfit(TINY["v3"])


@interpreted
def test_kernels_under_the_interpreter():
    run_interpreted("flow_interpreted.py")
