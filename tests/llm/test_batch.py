"""Rows of one batch do not hear each other, and draws depend on a row's own table of uniforms only."""

import torch

from tests.llm.test_golden_lm import build, run


def test_sampled_ids_alone_equal_those_in_a_batch():
    lm = build("v3")
    torch.manual_seed(0)
    prompts = [lm.prompt([5, 6, 7, 196][:n], torch.arange(3 * n)) for n in (1, 2, 4)]
    tables = torch.rand(3, 60, 2)

    def sample(rows):
        state = lm.start(len(rows), 100, 60)
        state.uniforms.copy_(tables[list(rows)])
        for slot, row in enumerate(rows):
            state.min_tokens[slot], state.max_tokens[slot] = 5, 60
            state.forbid_early[slot, lm.spec.speech_tokens :] = True
            lm.prefill(state, slot, prompts[row].detach())
        while not state.done.all():
            lm.decode_step(state)
        return [lm.read(state, slot) for slot in range(len(rows))]

    together = sample([2, 0, 1])
    assert [sample([2])[0], sample([0])[0], sample([1])[0]] == together
    assert all(len(p.tokens) >= 5 for p in together)


def test_a_row_with_broken_numbers_ends_alone():
    lm = build("v2")
    good = lm.prompt([5, 6, 7], torch.arange(4)).detach()
    broken = torch.full_like(good, torch.nan)
    first, second = run(lm, [(broken, 0, 20), (good, 0, 20)], None)
    assert not first.finite and first.tokens == []
    assert second.finite and second.tokens


def test_half_precision_stays_near_fp32():
    for dtype, limit in ((torch.bfloat16, 0.3), (torch.float16, 0.05)):  # 8 and 11 bits of mantissa, log-probs up to 40
        exact, lm = build("v3"), build("v3").set_precision(dtype)
        inputs = exact.prompt([5, 6, 7], torch.arange(20)).detach()
        with torch.inference_mode():
            difference = lm.log_probs(lm.backbone(inputs[None])) - exact.log_probs(exact.backbone(inputs[None]))
        assert difference.abs().max() < limit
