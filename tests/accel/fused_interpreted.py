"""The fused step on the CPU: run by test_decode_fused.py in a process of its own, with TRITON_INTERPRET=1.

The interpreter runs everything but programmatic dependent launch; sums are NumPy's, in fp32.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton.runtime.interpreter as interpreter

from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.fused_config import Dot, Gemv, GemvConfig, RowsConfig, best_config
from cosy_engine.llm.pool import DecodePool
from cosy_engine.llm.sampling import repetition_aware
from cosy_engine.llm.speech_lm import SpeechLM, first_rows
from cosy_engine.settings.model_spec import LlmSpec
from tests.llm.test_golden_lm import build
from tests.llm.test_pool import plan

RECORD = ("token", "step", "draw", "recent", "done", "stop_id", "finite", "out")
# Large blocks: the interpreter's time is the number of programs.
GEMV = GemvConfig(
    qkv=Gemv(8, 1), out=Gemv(64, 1), gate_up=Gemv(128, 1), down=Gemv(64, 1), head=Gemv(512, 1), slices=2, block=32
)
ROWS = RowsConfig(
    qkv=Dot(16, 1, tile=32), out=Dot(64, 1, tile=32), gate_up=Dot(128, 1, tile=32), down=Dot(64, 1, tile=32),
    head=Dot(512, 1, tile=32), slices=2, block=32, down_slice=64,
)  # fmt: skip
PRODUCTS = ("qkv", "gate_up", "down", "head")


def recut(config, **fields):
    """All products but the output's with other fields."""
    return replace(config, **{name: replace(getattr(config, name), **fields) for name in PRODUCTS})


def coarse(rows):
    return GEMV if rows <= 2 else ROWS


@pytest.fixture(autouse=True)
def bf16_products(monkeypatch):
    """The interpreter keeps bf16 as its bits and would multiply those."""
    plain = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.data.dtype != np.uint16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), interpreter.tl.float32)

    monkeypatch.setattr(
        interpreter.InterpreterBuilder,
        "create_dot",
        lambda self, a, b, *rest: plain(self, widened(a), widened(b), *rest),
    )


def pools(lm: SpeechLM, rows: int, used: int, config=coarse) -> tuple[DecodePool, DecodePool]:
    """(eager, fused) with the same `used` plans admitted; the fused weights are views of the same memory."""
    both = []
    for _ in range(2):
        pool = DecodePool(lm, rows, 160, 80)
        for seed in range(used):
            pool.admit(plan(seed + 1))
        both.append(pool)
    both[1].step = FusedStep(TorchStep(lm, 160), config)
    return tuple(both)


def random_lm(spec: LlmSpec, dtype=torch.float32) -> SpeechLM:
    torch.manual_seed(3)
    lm = SpeechLM(spec).requires_grad_(False).eval()
    for name, weight in lm.named_parameters():
        if name.endswith("norm.weight"):
            weight.copy_(1 + 0.3 * torch.randn_like(weight))
        elif name.endswith("bias"):
            weight.copy_(0.3 * torch.randn_like(weight))
        elif "embed" in name:
            weight.copy_(torch.randn_like(weight))
        else:
            scale = 2.5 if name.startswith("llm_decoder") else 1.0
            weight.copy_(torch.randn_like(weight) * scale * weight.shape[1] ** -0.5)
    return lm.set_precision(dtype)


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("rows,used", [(1, 1), (2, 2), (4, 3)])
def test_forty_steps_draw_the_ids_of_the_eager_step(version, rows, used):
    eager, fused = pools(build(version), rows, used)
    for _ in range(40):
        eager.launch()
        fused.launch()
    for name in RECORD:
        assert torch.equal(getattr(eager.state, name), getattr(fused.state, name)), name
    assert torch.equal(eager.state.cache.length, fused.state.cache.length)
    assert max(map(len, (p.tokens for p in fused.collect().values()))) > 10
    for row, length in enumerate(eager.state.cache.length.tolist()):  # what lies in the spare position is nobody's
        for name in ("keys", "values"):
            cached, expected = (getattr(pool.state.cache, name)[:, row, :, :length] for pool in (fused, eager))
            # 1e-4: fp32 sums in another order, through two layers
            torch.testing.assert_close(cached, expected, atol=1e-4, rtol=0)


def worst_log_prob_error(lm: SpeechLM, rows: int, config, steps: int = 3) -> tuple[float, float]:
    """(fused, torch step) against the eager step in fp32 with the same rounded weights, cached positions and ids."""
    exact = copy.deepcopy(lm).set_precision(torch.float32)
    low, high = DecodePool(lm, rows, 160, 80).state, DecodePool(exact, rows, 160, 80).state
    plain = TorchStep(lm, 160)
    fused, errors = FusedStep(plain, config), [0.0, 0.0]
    with torch.inference_mode():
        for row in range(rows):
            some = plan(row + 1)
            exact.feed(high, row, exact.prompt(some.text_ids, some.speech_ids), context=len(some.text_ids) + 12)
        low.max_tokens.fill_(80)
        for name in ("keys", "values", "length"):
            getattr(low.cache, name).copy_(getattr(high.cache, name))
        for _ in range(steps):
            low.done.fill_(False)
            for name in ("keys", "values"):
                getattr(high.cache, name).copy_(getattr(low.cache, name))
            high.cache.length.copy_(low.cache.length)
            hidden = exact.backbone(exact.embed_speech(low.token)[:, None], high.cache, context=160)
            expected = exact.log_probs(hidden[:, 0])
            other = lm.log_probs(lm.backbone.norm(plain.hidden(low, rows, 160)))
            fused.scratch(rows).logits.fill_(torch.nan)  # every one must be written
            fused(low, rows, 0)
            for i, log_probs in enumerate((fused.logits(rows).log_softmax(-1), other)):
                errors[i] = max(errors[i], (log_probs - expected).abs().nan_to_num(nan=torch.inf).max().item())
    return tuple(errors)


# fp16 keeps 11 bits of keys, values and queries (and of the activations on tensor cores) of a model whose log-probs lie
# within +-20; bf16 8 bits, eight times as much, and the interpreter cuts off instead of rounding, twice as much again.
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("dtype,atol", [(torch.float32, 1e-4), (torch.float16, 2e-2), (torch.bfloat16, 0.32)])
def test_log_probs_stay_near_fp32(rows, dtype, atol):
    error, other = worst_log_prob_error(build("v3").set_precision(dtype), rows, coarse)
    print(f"log-prob error, {rows} rows, {dtype}: {error:.1e}; torch step {other:.1e}")
    assert error < atol


@pytest.mark.parametrize("rows", [1, 3])
def test_a_layer_of_the_published_widths(rows):
    """896 and 4864 are no powers of two, 6564 ids end inside a block, seven query heads share a KV head."""
    spec = LlmSpec.v2(
        text_vocab=200, width=896, layers=1, heads=14, kv_heads=2, head_dim=64, ffn_width=4864, speech_tokens=6561
    )
    lm = random_lm(spec, torch.float16)
    wide = replace(GEMV, out=Gemv(128, 1), gate_up=Gemv(512, 1), qkv=Gemv(32, 1), slices=4)
    dots = replace(best_config(8), head=Dot(1024, 4), gate_up=Dot(512, 4), down=Dot(128, 4), out=Dot(128, 4))
    error, other = worst_log_prob_error(lm, rows, lambda rows: wide if rows <= 2 else dots, steps=1)
    print(f"log-prob error, published widths, {rows} rows: {error:.1e}; torch step {other:.1e}")
    assert error < 1e-2  # as fp16 above, one layer


@pytest.mark.parametrize("rows", [1, 3])
def test_a_swiglu_that_leaves_fp16_stays_finite(rows):
    spec = LlmSpec.v3(
        text_vocab=200, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn_width=128, speech_tokens=120
    )
    lm = random_lm(spec)
    for layer in lm.backbone.layers:
        layer.post_attention_layernorm.weight.mul_(240.0)
    lm.set_precision(torch.float16)
    with torch.inference_mode():
        layer = lm.backbone.layers[0]
        x = layer.post_attention_layernorm(lm.embed_speech(torch.arange(100)))
        largest = (torch.nn.functional.silu(x @ layer.mlp.gate_proj.weight.float().T)
                   * (x @ layer.mlp.up_proj.weight.float().T) / layer.mlp.scale).abs().max()  # fmt: skip
    assert largest > 2 * 65504  # plain fp16 would give inf here
    assert worst_log_prob_error(lm, rows, coarse)[0] < 2e-2  # as fp16 above


VARIANTS = {
    "one slice": (replace(GEMV, slices=1), replace(ROWS, slices=1)),
    "more slices than positions": (replace(GEMV, slices=16), replace(ROWS, slices=8)),
    "keys after the wait": (replace(GEMV, attention_early=False), replace(ROWS, attention_early=False)),
    "small attention blocks": (replace(GEMV, block=16), replace(ROWS, block=16)),
    "shared inputs": (recut(GEMV, flat=True), ROWS),
    "wide inner": (replace(GEMV, inner_fp32=True), ROWS),
    "narrow tiles": (recut(GEMV, tile=32), recut(ROWS, tile=16)),
    "narrow shared tiles": (recut(GEMV, tile=32, flat=True), ROWS),
    "weights before the wait": (GEMV, recut(ROWS, early=True)),
    "uneven slices": (GEMV, recut(replace(ROWS, down_slice=128), tile=128)),
    "defaults": (best_config(1), best_config(8)),
}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_block_sizes_do_not_change_the_result(name, rows):
    pair = VARIANTS[name]
    error = worst_log_prob_error(build("v2"), rows, lambda rows: pair[rows > 2], steps=1)[0]
    assert error < 1e-4  # fp32 sums in another order


def test_sizes_that_no_block_divides():
    spec = LlmSpec.v3(
        text_vocab=200, width=80, layers=2, heads=6, kv_heads=2, head_dim=32, ffn_width=144, speech_tokens=120
    )
    for rows in (1, 5):
        assert worst_log_prob_error(random_lm(spec), rows, coarse, steps=2)[0] < 1e-4


def test_rows_that_are_done_or_beyond_the_batch_are_left_alone():
    _, fused = pools(build("v3"), 8, 6)
    with torch.inference_mode():
        fused.state.done[1] = True
    state = fused.state
    kept = copy.deepcopy(state)
    fused.step(state, 5, 0)  # rows 5..7 are padding of the kernels, row 5 holds a request
    for row, spare in ((1, True), (5, False), (6, False), (7, False)):
        for name in RECORD:
            assert torch.equal(getattr(state, name)[row], getattr(kept, name)[row]), name
        assert state.cache.length[row] == kept.cache.length[row]
        changed = (state.cache.keys != kept.cache.keys)[:, row].any(0).any(0).any(-1).nonzero()[:, 0].tolist()
        assert changed == ([int(kept.cache.length[1])] if spare else [])
    assert state.step[[0, 2, 3, 4]].tolist() == (kept.step + 1)[[0, 2, 3, 4]].tolist()


@pytest.mark.parametrize("rows", [2, 4])
def test_numbers_that_are_not_finite_end_their_row_only(rows):
    eager, fused = pools(build("v3"), rows, rows)
    for pool in (eager, fused):
        with torch.inference_mode():
            pool.state.cache.values[0, 1, :, 2] = torch.nan
        pool.launch()
    assert fused.state.finite.tolist() == eager.state.finite.tolist() == [row != 1 for row in range(rows)]
    for name in RECORD:
        assert torch.equal(getattr(eager.state, name), getattr(fused.state, name)), name


# The sampler alone


def logits_like(kind: str, size: int, draws: np.random.Generator) -> torch.Tensor:
    x = torch.from_numpy(draws.standard_normal((6, size)).astype(np.float32))
    match kind:
        case "spread":
            return 2.5 * x
        case "peaked":
            return 12 * x
        case "rounded":  # crowds of ties inside the top 25
            return (3 * x).round()
        case "equal":
            return torch.zeros_like(x)
        case "one-hot":
            return torch.where(torch.arange(size) == 7, 200.0, x)
        case "tenths":  # the nucleus ends exactly where eight tenths are reached
            return torch.where(torch.arange(size) % (size // 10 + 1) == 3, 0.0, -100.0).expand(6, -1).clone()
        case "crowded":  # hundreds of equal ids under a few larger ones
            return torch.where(x > 1.5, x, torch.where(x > -0.5, 1.0, x))
    raise AssertionError(kind)


KINDS = ("spread", "peaked", "rounded", "equal", "one-hot", "tenths", "crowded")


@pytest.mark.parametrize("size", [120, 6561])
@pytest.mark.parametrize("kind", KINDS)
def test_the_sampler_writes_what_finish_step_writes(kind, size):
    spec = LlmSpec.v3(
        text_vocab=8, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ffn_width=16, speech_tokens=size
    )
    lm = SpeechLM(spec).requires_grad_(False)
    step = FusedStep(TorchStep(lm, 16))
    draws = np.random.default_rng(len(kind) + size)
    redraws = 0
    for trial in range(4):
        with torch.inference_mode():
            state = lm.start(6, 16, 12)
            state.uniforms.copy_(torch.from_numpy(draws.random((6, 12, 2), np.float32)))
            state.uniforms[0, :, 0], state.uniforms[1, :, 0] = 0.0, 1 - 2**-24
            state.forbid_early[:, spec.speech_tokens :] = True
            state.forbid[2, :9] = True
            state.min_tokens[:], state.max_tokens[:] = 1, 2
            state.done[3] = True
            log_probs = logits_like(kind, spec.head_rows, draws).log_softmax(-1)
            if trial == 3:  # a stop id wins once it may
                log_probs[4:, spec.eos_id], state.step[:] = 5.0, 1
                log_probs = log_probs.log_softmax(-1)
            if trial % 2:  # the first draw was among the recent ids
                masked = log_probs.masked_fill(state.forbid, -torch.inf)
                if trial == 1:
                    masked = masked.masked_fill(state.forbid_early, -torch.inf)
                nothing = torch.full_like(state.recent, -1)
                state.recent[:, trial] = repetition_aware(masked, nothing, state.uniforms[:, 0], spec.sampling)
                redraws += 1
            twin = copy.deepcopy(state)
            step.scratch(6).logits[:6] = log_probs
            for _ in range(2):
                lm.finish_step(twin, 6, log_probs)
                step._sample(state, 6, step.config(6), step.scratch(6), run)
                for name in (*RECORD, "forbid", "uniforms"):
                    assert torch.equal(getattr(state, name), getattr(twin, name)), (name, trial)
                assert torch.equal(state.cache.length, twin.cache.length)
    assert redraws == 2


def run(kernel, grid, *args, warps=4, **meta):
    kernel[grid](*args, num_warps=warps, PDL=False, **meta)


def test_both_steps_hold_the_weights_once():
    lm = build("v3")
    plain = TorchStep(lm, 64)
    fused = FusedStep(plain)
    for layer, ours, theirs in zip(lm.backbone.layers, fused.layers, plain.layers, strict=True):
        assert ours[1].data_ptr() == theirs.qkv.data_ptr() == layer.self_attn.q_proj.weight.data_ptr()
        assert ours[5].data_ptr() == theirs.gate_up.data_ptr() == layer.mlp.gate_proj.weight.data_ptr()
        assert ours[6].data_ptr() == layer.mlp.down_proj.weight.data_ptr()


@pytest.mark.parametrize("rows,kernels", [(1, 8), (4, 9)])
def test_pieces_are_the_kernels_of_a_step_once_each_and_run_nothing(rows, kernels):
    _, fused = pools(build("v2"), 4, 4)
    kept = copy.deepcopy(fused.state)
    names = [piece.func.__self__.__name__ for piece in fused.step.pieces(fused.state, rows)]
    assert len(names) == kernels and names[-1] == "sample", names
    assert all(torch.equal(getattr(kept, name), getattr(fused.state, name)) for name in RECORD)


def test_rows_of_a_state_are_found_by_their_stride():
    """The step gets the whole state and a number of rows; the eager step sees the same rows as views."""
    lm = build("v3")
    eager, fused = pools(lm, 4, 2)
    fused.step(fused.state, 2, 0)
    lm.decode_step(first_rows(eager.state, 2), context=160)
    for name in RECORD:
        assert torch.equal(getattr(eager.state, name), getattr(fused.state, name)), name
