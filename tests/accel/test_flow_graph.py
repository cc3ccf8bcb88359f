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


def test_requests_solved_together_are_those_solved_alone(both):
    flow, fast = both
    asked = [
        fast.order(tiny_tokens(flow, tokens), tiny_prompt(flow, prompt), streaming=streaming, finalize=finalize)
        for tokens, prompt, streaming, finalize in (
            (60, 12, False, True), (55, 9, True, False), (40, 10, True, True), (64, 0, False, True),
        )
    ]  # fmt: skip
    assert [order.size for order in asked] == [152, 152, 104, 152] and fast.groups(152) == (2, 4, 8)
    for group in (asked[:2], asked):
        before = fast.replays
        fast.solve(group)
        assert fast.replays == before + flow.spec.steps
        for order in group:
            alone = fast.order(order.tokens, order.prompt, streaming=order.streaming, finalize=order.finalize)
            fast.solve([alone])
            torch.testing.assert_close(order.mel, alone.mel, atol=ROUNDING, rtol=0)


def test_streams_take_what_was_solved_together(both):
    flow, fast = both
    tokens, prompts = (
        [tiny_tokens(flow, 80), tiny_tokens(flow, 80).flip(0)],
        [tiny_prompt(flow, 30), tiny_prompt(flow, 12)],
    )
    alone, grouped = ([fast.start(prompt) for prompt in prompts] for _ in range(2))
    for at, final in ((0, False), (40, True)):
        pieces = [row[at : at + 40] for row in tokens]
        orders = [fast.next_order(state, piece, final=final) for state, piece in zip(grouped, pieces, strict=True)]
        fast.solve(orders)
        before = fast.replays
        ours = [fast.advance(state, piece, final=final) for state, piece in zip(grouped, pieces, strict=True)]
        assert fast.replays == before
        for mel, state, piece in zip(ours, alone, pieces, strict=True):
            torch.testing.assert_close(mel, fast.advance(state, piece, final=final), atol=ROUNDING, rtol=0)


def test_what_was_solved_for_other_tokens_is_not_taken(both):
    flow, fast = both
    tokens, prompt = tiny_tokens(flow, 80), tiny_prompt(flow, 30)
    state, other = fast.start(prompt), fast.start(prompt)
    fast.solve([fast.next_order(state, tokens[:40])])
    torch.testing.assert_close(fast.advance(state, tokens), fast.advance(other, tokens), atol=0, rtol=0)


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
