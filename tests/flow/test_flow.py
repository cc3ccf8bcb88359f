"""What must hold for any weights: streams, batches, precision, gradients. Random tiny models, no files."""

import pytest
import torch

from cosy_engine.errors import TextTooLong
from cosy_engine.flow import build_flow
from tests.flow.models import TINY, tiny_flow, tiny_prompt, tiny_tokens

ROUNDING = 2e-5  # fp32: another split of sums, over 4 solver steps of values around 3

flows = pytest.mark.parametrize("version", TINY)


def stream(flow, prompt, tokens, pieces, state=None):
    """Mel of a stream fed in `pieces`, the rest at the end."""
    state, parts = state or flow.start(prompt), []
    for count in pieces:
        expected = flow.tokens_to_next(state)
        parts.append(flow.advance(state, tokens[:count]))
        assert (parts[-1].shape[1] > 0) == (count >= expected), "frames come exactly when tokens_to_next says so"
        tokens = tokens[count:]
    parts.append(flow.advance(state, tokens, final=True))
    return torch.cat(parts, dim=1)


@flows
@pytest.mark.parametrize("reference", (0, 1, 27, 28, 53))
def test_chunking_does_not_change_the_mel(version, reference):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, reference), tiny_tokens(flow, 83)
    whole = flow.whole([tokens], [prompt], streaming=True)[0]
    assert whole.shape == (flow.mel_bins, 2 * 83)
    for pieces in ([1] * 83, [2, 30, 1, 1, 11], [83], [28, 25, 25]):
        torch.testing.assert_close(stream(flow, prompt, tokens, pieces), whole, atol=ROUNDING, rtol=0)


@flows
@pytest.mark.parametrize("count", (1, 2, 3, 22, 25, 28))
def test_short_streams_end_well(version, count):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 10), tiny_tokens(flow, count)
    whole = flow.whole([tokens], [prompt], streaming=True)[0]
    torch.testing.assert_close(stream(flow, prompt, tokens, [1]), whole, atol=ROUNDING, rtol=0)


@flows
@pytest.mark.parametrize("frames", (20, 61, 130))
def test_prompt_mel_of_another_length_streams_too(version, frames):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 60, frames), tiny_tokens(flow, 31)
    whole = flow.whole([tokens], [prompt], streaming=True)[0]
    assert whole.shape[1] == 2 * (60 + 31) - frames
    state = flow.start(prompt)
    mel = torch.cat([flow.advance(state, tokens[:30]), flow.advance(state, tokens[30:], final=True)], dim=1)
    torch.testing.assert_close(mel, whole, atol=ROUNDING, rtol=0)


@flows
def test_two_streams_do_not_hear_each_other(version):
    flow = tiny_flow(version)
    prompts = [tiny_prompt(flow, 30, seed=5), tiny_prompt(flow, 12, seed=6)]
    tokens = [tiny_tokens(flow, 60, seed=7), tiny_tokens(flow, 60, seed=8)]
    alone = [stream(flow, p, t, [20, 20]) for p, t in zip(prompts, tokens, strict=True)]
    states, parts = [flow.start(p) for p in prompts], ([], [])
    for start in (0, 20, 40):
        for i in (0, 1):
            parts[i].append(flow.advance(states[i], tokens[i][start : start + 20], final=start == 40))
    for i in (0, 1):
        assert torch.equal(torch.cat(parts[i], dim=1), alone[i])


@flows
def test_a_forked_voice_is_independent_and_gives_the_same_mel(version):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 57), tiny_tokens(flow, 70)
    voice = flow.start(prompt)
    fresh = stream(flow, prompt, tokens, [9, 40])
    for other in (tiny_tokens(flow, 70, seed=9), tokens):
        mel = stream(flow, prompt, other, [9, 40], voice.fork())
    assert torch.equal(mel, fresh), "the first fork left the voice as it was"
    half = flow.start(prompt)
    head = flow.advance(half, tokens[:40])
    twin = half.fork()
    flow.advance(half, tiny_tokens(flow, 30, seed=9), final=True)
    tail = flow.advance(twin, tokens[40:], final=True)
    torch.testing.assert_close(torch.cat([head, tail], dim=1), fresh, atol=ROUNDING, rtol=0)


@flows
def test_a_finished_block_is_not_computed_again(version):
    flow = tiny_flow(version)
    seen = []
    flow.decoder.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[1]))
    stream(flow, tiny_prompt(flow, 57), tiny_tokens(flow, 100), [30, 1, 1, 30])
    assert seen[0] == 100, "two blocks of the prompt at once"
    assert sum(seen) == 2 * (57 + 100)


@flows
@pytest.mark.parametrize("streaming", (False, True))
@pytest.mark.parametrize("finalize", (False, True))
def test_a_row_in_a_batch_sounds_as_if_alone(version, streaming, finalize):
    flow = tiny_flow(version)
    sizes = [(20, 40), (0, 71), (37, 5), (5, 1), (0, 2)]
    prompts = [tiny_prompt(flow, p, seed=p) for p, _ in sizes]
    tokens = [tiny_tokens(flow, t, seed=t) for _, t in sizes]
    together = flow.whole(tokens, prompts, streaming=streaming, finalize=finalize)
    for row, prompt, mel in zip(tokens, prompts, together, strict=True):
        alone = flow.whole([row], [prompt], streaming=streaming, finalize=finalize)[0]
        torch.testing.assert_close(mel, alone, atol=ROUNDING, rtol=0)


@flows
def test_non_final_frames_of_whole_blocks_stay(version):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 20), tiny_tokens(flow, 83)
    early = flow.whole([tokens[:33]], [prompt], streaming=True, finalize=False)[0]
    late = flow.whole([tokens], [prompt], streaming=True)[0]
    assert early.shape[1] == 60
    torch.testing.assert_close(early, late[:, :60], atol=ROUNDING, rtol=0)


@flows
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_stays_near_fp32_whole_and_in_a_stream(version, dtype):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 30), tiny_tokens(flow, 40)
    exact = flow.whole([tokens], [prompt], streaming=True)[0]
    flow.set_precision(dtype)
    for mel in (flow.whole([tokens], [prompt], streaming=True)[0], stream(flow, prompt, tokens, [1, 30])):
        assert mel.dtype == torch.float32 and mel.isfinite().all()
        error = (mel - exact).pow(2).mean().sqrt() / exact.std()
        assert error < (0.05 if dtype == torch.bfloat16 else 0.01)  # 8 and 11 bits through some 30 layers and 4 steps


@flows
def test_fp16_stays_finite_with_huge_weights(version):
    flow = tiny_flow(version)
    with torch.no_grad():
        for name, p in flow.named_parameters():
            if any(part in name for part in ("ff.", "to_out", "conv", "block", "w_1", "w_2")) and p.dim() > 1:
                p.mul_(1 if "to_q" in name or "to_k" in name or "norm" in name else 3000)
    flow.set_precision(torch.float16)
    mel = flow.whole([tiny_tokens(flow, 40)], [tiny_prompt(flow, 10)])[0]
    assert mel.isfinite().all()


@flows
@pytest.mark.parametrize("streaming", (False, True))
def test_gradients_reach_every_weight(version, streaming):
    flow = tiny_flow(version).train()
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, flow.spec.speech_tokens, (2, 40), generator=generator)
    lengths = torch.tensor([40, 31])
    mu = flow.condition(tokens, lengths, streaming=streaming)
    speaker = flow.speaker(torch.randn(2, flow.spec.speaker_width, generator=generator))
    x, cond = (torch.randn(mu.shape, generator=generator) for _ in range(2))
    v = flow.velocity(x, mu, torch.tensor([0.2, 0.9]), speaker, cond, 2 * lengths, streaming=streaming)
    (v[0].square().mean() + v[1, :, :62].square().mean()).backward()
    for name, p in flow.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all() and p.grad.abs().sum() > 0, name


@flows
def test_padding_does_not_reach_valid_frames_of_a_training_batch(version):
    flow = tiny_flow(version).train()
    tokens = torch.stack([tiny_tokens(flow, 40), tiny_tokens(flow, 40, seed=2)])
    lengths = torch.tensor([40, 23])
    with torch.no_grad():
        one, other = (flow.condition(t, lengths) for t in (tokens, tokens.index_fill(1, torch.arange(23, 40), 7)))
        torch.testing.assert_close(one[1, :, :46], other[1, :, :46], atol=ROUNDING, rtol=0)
        x, noise = torch.randn(2, 2, flow.mel_bins, 80, generator=torch.Generator().manual_seed(0))
        t, speaker = torch.tensor([0.3, 0.6]), torch.zeros(2, flow.mel_bins)
        v = flow.velocity(x, one, t, speaker, noise, 2 * lengths)
        alone = flow.velocity(x[1:, :, :46], one[1:, :, :46], t[1:], speaker[1:], noise[1:, :, :46])
        torch.testing.assert_close(v[1:, :, :46], alone, atol=ROUNDING, rtol=0)


@flows
def test_training_forgets_the_tables_of_old_weights(version):
    flow = tiny_flow(version)
    prompt, tokens = tiny_prompt(flow, 5), tiny_tokens(flow, 20)
    before = flow.whole([tokens], [prompt])[0]
    flow.train()
    with torch.no_grad():
        for name, p in flow.named_parameters():
            if "time" in name:
                p.mul_(1.5)
    fresh = build_flow(flow.spec)
    fresh.load_state_dict(flow.state_dict())
    after = flow.eval().whole([tokens], [prompt])[0]
    assert not torch.allclose(before, after)
    assert torch.equal(after, fresh.finish_loading().whole([tokens], [prompt])[0])


@flows
def test_more_than_300_s_is_refused_with_a_remedy(version):
    flow = tiny_flow(version)
    prompt = tiny_prompt(flow, 10)
    with pytest.raises(TextTooLong, match="split the text"):
        flow.whole([tiny_tokens(flow, 7491)], [prompt])
    with pytest.raises(TextTooLong, match="split the text"):
        flow.advance(flow.start(prompt), tiny_tokens(flow, 7600))


@flows
def test_nothing_draws_from_the_global_generator(version):
    flow = tiny_flow(version)
    before = torch.get_rng_state()
    flow.whole([tiny_tokens(flow, 9)], [tiny_prompt(flow, 4)])
    flow.advance(flow.start(tiny_prompt(flow, 4)), tiny_tokens(flow, 9), final=True)
    assert torch.equal(before, torch.get_rng_state())


@flows
def test_a_flow_built_without_memory_loads_and_speaks(version):
    flow = tiny_flow(version)
    with torch.device("meta"):
        empty = build_flow(flow.spec)
    empty.load_state_dict(flow.state_dict(), assign=True)
    empty.finish_loading()
    prompt, tokens = tiny_prompt(flow, 4), tiny_tokens(flow, 9)
    assert torch.equal(empty.whole([tokens], [prompt])[0], flow.whole([tokens], [prompt])[0])
