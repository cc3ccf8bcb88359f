"""The flow's kernels on the CPU: run by test_flow_graph.py in a process of its own, with TRITON_INTERPRET=1."""

from dataclasses import replace

import pytest
import torch

from cosy_engine.accel.flow_graph import GraphFlow
from cosy_engine.accel.flow_kernels import LIBRARY, FlowKernels
from cosy_engine.accel.flow_lean import PlainOps
from tests.flow import models

# Products on tensor cores take at least 16 features a head, and as many channels a group of the position convolution.
SIZES = {
    "v2": replace(models.TINY["v2"].estimator, head_dim=16),
    "v3": replace(models.TINY["v3"].estimator, dim=256, head_dim=16, heads=2),
}
KERNELS = FlowKernels(attention=((64, 32, 4, 2),))
BY_LIBRARY = FlowKernels(attention=((64, 32, 4, 2),), add=(LIBRARY,), conv=(LIBRARY,))


def flow_of(version: str, monkeypatch):
    monkeypatch.setitem(models.TINY, version, replace(models.TINY[version], estimator=SIZES[version], steps=2))
    return models.tiny_flow(version).set_precision(torch.float16)


@pytest.mark.parametrize(("version", "kernels"), [("v2", KERNELS), ("v2", BY_LIBRARY), ("v3", KERNELS)])
def test_kernels_give_what_plain_torch_gives(version, kernels, monkeypatch):
    flow = flow_of(version, monkeypatch)
    both = [
        GraphFlow(flow, buckets=(104,), capture_graph=lambda step, share: step, ops=ops)
        for ops in (PlainOps(), kernels)
    ]
    for fast in both:
        fast.capture(104)
        fast.capture(104, 2)
    for tokens, prompt, options in (
        (31, 12, {}),
        (40, 9, {"streaming": True}),
        (30, 5, {"streaming": True, "finalize": False}),
    ):
        tokens, prompt = models.tiny_tokens(flow, tokens), models.tiny_prompt(flow, prompt)
        plain, ours = (fast.whole([tokens], [prompt], **options)[0] for fast in both)
        # fp16 products of the same inputs; what is summed in another order is rounded to 11 bits in each layer
        torch.testing.assert_close(ours, plain, atol=2e-2, rtol=0)
        assert (ours - plain).square().mean().sqrt() < 2e-3 * plain.std()
    alone, together = (
        [
            both[1].order(models.tiny_tokens(flow, tokens), models.tiny_prompt(flow, 9), streaming=True)
            for tokens in (20, 35)
        ]
        for _ in range(2)
    )
    both[1].solve(together)
    for one, other in zip(alone, together, strict=True):
        both[1].solve([one])
        torch.testing.assert_close(one.mel, other.mel, atol=2e-2, rtol=0)


def test_attention_sees_valid_keys_up_to_the_block_and_garbage_stays_out():
    frames, valid, block = 150, 117, 50
    draw = torch.Generator().manual_seed(0)
    mixed = torch.randn(2, frames, 3, 2, 16, generator=draw).half()
    keys = torch.arange(frames)
    for blocks in (frames, block):
        seen = (keys[None] < valid) & (keys[None] < (keys[:, None] // blocks + 1) * blocks)
        expected = PlainOps().attention(mixed.float(), torch.zeros(frames, frames).masked_fill(~seen, -torch.inf))
        dirty = mixed.clone()
        dirty[:, valid:] = torch.nan
        for cut in ((64, 32, 4, 2), (32, 64, 4, 2), (128, 128, 4, 2)):
            ours = FlowKernels((cut,)).attention(dirty, torch.tensor([valid, blocks], dtype=torch.int32))
            # fp16 weights of the sum and fp16 output, values of about 1
            torch.testing.assert_close(ours[:, :valid].float(), expected[:, :valid], atol=4e-3, rtol=0)


def test_attention_by_distance_sees_valid_keys_up_to_the_block_and_garbage_stays_out():
    frames, valid, block = 90, 71, 25
    draw = torch.Generator().manual_seed(0)
    mixed = torch.randn(1, frames, 4, 2, 16, generator=draw).half()
    distances = torch.randn(2, 2 * frames, 16, generator=draw).half()
    valid_at, plain = torch.tensor([valid]), PlainOps()
    for blocks in (frames, block):
        limits = valid_at, torch.tensor([blocks]), frames, mixed.device
        expected = plain.attention_by_distance(mixed.float(), distances.float(), plain.limits(*limits))
        dirty = mixed.clone()
        dirty[:, valid:] = torch.nan
        ours = KERNELS.attention_by_distance(dirty, distances, KERNELS.limits(*limits))
        # fp16 weights of the sum and fp16 output, values of about 1
        torch.testing.assert_close(ours[:, :valid].float(), expected[:, :valid], atol=4e-3, rtol=0)


def test_a_product_that_left_fp16_is_bounded():
    h, add = torch.zeros(1, 3, 32), torch.zeros(1, 3, 32).half()
    add[0, 1, 4] = torch.inf
    one = torch.ones(32)
    moved, normed = KERNELS.add_norm(h.clone(), add, one, one, 0 * one, 1e-6, torch.float16)
    assert moved[0, 1, 4] == 65504 and normed.isfinite().all()
