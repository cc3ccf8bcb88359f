"""The fused tier: what fits, what is said where it cannot run, and its kernels under Triton's interpreter."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.fused_config import best_config, misfit, unavailable
from cosy_engine.llm.pool import DecodePool
from cosy_engine.settings.model_spec import LlmSpec, SamplingSpec
from tests.accel.interpreter import interpreted, run_interpreted
from tests.llm.test_golden_lm import build
from tests.llm.test_pool import plan

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = dict(
    text_vocab=151936, width=896, layers=24, heads=14, kv_heads=2, head_dim=64, ffn_width=4864, speech_tokens=6561
)


@pytest.mark.parametrize(
    "cases",
    [
        "forty_steps",
        "log_probs or published or beyond or finite or stride or weights_once or leaves_fp16 or pieces",
        "block_sizes or no_block_divides",
        "sampler",
    ],
)
@interpreted
def test_kernels_under_the_interpreter(cases):
    run_interpreted("fused_interpreted.py", cases)


def test_both_releases_and_small_models_fit():
    assert misfit(LlmSpec.v2(**PUBLISHED)) is None
    assert misfit(LlmSpec.v3(**PUBLISHED)) is None
    assert misfit(LlmSpec.v3(**PUBLISHED | dict(width=64, heads=4, head_dim=16, ffn_width=128))) is None


@pytest.mark.parametrize(
    "sizes,named",
    [
        (dict(head_dim=80), "head_dim 80"),
        (dict(heads=34), "17 query heads"),
        (dict(heads=13), "13 query heads"),
        (dict(width=900), "multiples of 16"),
        (dict(speech_tokens=40000), "at most 32768"),
        (dict(sampling=SamplingSpec(top_k=64)), "top_k 64"),
        (dict(sampling=SamplingSpec(top_p=1.0)), "top_p 1.0"),
    ],
)
def test_a_model_that_does_not_fit_is_told_why(sizes, named):
    assert named in misfit(LlmSpec.v3(**PUBLISHED | sizes))


def test_a_cpu_machine_is_told_what_is_needed():
    assert "CUDA GPU" in unavailable(torch.device("cpu"))


def test_each_number_of_rows_has_block_sizes():
    assert all(best_config(rows).slices & (best_config(rows).slices - 1) == 0 for rows in range(1, 33))
    assert replace(best_config(1), slices=4).slices == 4


# With a GPU


def why_not_run() -> str | None:
    if not torch.cuda.is_available():
        return "needs a CUDA device"
    return unavailable(torch.device("cuda:0"))


@pytest.mark.gpu
@pytest.mark.skipif(why_not_run() is not None, reason=str(why_not_run()))
@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("rows,used", [(1, 1), (2, 2), (8, 5)])
def test_captured_fused_steps_draw_the_eager_ids(version, rows, used):
    """fp32, so that both draw the same; rows of the bucket that hold no request stay as they are."""
    lm = build(version).to("cuda:0")
    drawn = []
    for fused in (False, True):
        pool = DecodePool(lm, rows, 160, 80)
        if fused:
            plain = TorchStep(lm, 160)
            step = FusedStep(plain)
            pool.step = GraphDecode(step, pool.state, rows, plain, any_context=True, pieces=step.pieces)
        admitted = [pool.admit(plan(seed + 1)) for seed in range(used)]
        if fused:  # rows that are being decoded are left as they were
            for work in pool.step.captures():
                work()
        for _ in range(40):
            pool.launch()
        progress = pool.collect()
        drawn.append([list(progress[row].tokens) for row in admitted])
    assert drawn[0] == drawn[1] and max(map(len, drawn[0])) > 10
    assert pool.step.replays == 40


@pytest.mark.gpu
@pytest.mark.skipif(why_not_run() is not None, reason=str(why_not_run()))
def test_repeated_steps_on_a_gpu_give_the_same_bits():
    """No sum depends on the order in which programs finish."""
    lm = build("v3").to("cuda:0").set_precision(torch.float16)
    step = FusedStep(TorchStep(lm, 160))
    seen = []
    for _ in range(5):
        pool = DecodePool(lm, 4, 160, 80, step=step)
        for seed in range(4):
            pool.admit(plan(seed + 1))
        pool.launch()
        torch.cuda.synchronize()
        seen.append(step.logits(4).clone())
    assert all(torch.equal(seen[0], other) for other in seen[1:])
