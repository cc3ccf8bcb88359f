"""Both sound stages on a CUDA device: no wait for the device inside a step, and the same numbers as on the CPU."""

import copy

import pytest
import torch

from cosy_engine.stages import FlowPrompt
from tests.flow.models import TINY, tiny_flow, tiny_prompt, tiny_tokens
from tests.vocoder.models import tiny_mel, tiny_vocoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE_ROUNDING = 1e-3  # fp32 without TF32; sums in another order over all layers and steps

versions = pytest.mark.parametrize("version", TINY)


@pytest.fixture
def no_waiting():
    """Makes a hidden wait for the device an error, once caches that are filled on first use are."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


def on_gpu(prompt: FlowPrompt) -> FlowPrompt:
    return FlowPrompt(prompt.tokens.cuda(), prompt.mel.cuda(), prompt.embedding.cuda())


@versions
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_flow_neither_waits_nor_differs(version, dtype, no_waiting):
    flow = tiny_flow(version)
    sizes = [(30, 60), (11, 83)]
    prompts = [tiny_prompt(flow, p, seed=p) for p, _ in sizes]
    tokens = [tiny_tokens(flow, t, seed=t) for _, t in sizes]
    expected = flow.whole(tokens, prompts, streaming=True)
    flow = copy.deepcopy(flow).cuda().finish_loading().set_precision(dtype)
    prompts, tokens = [on_gpu(p) for p in prompts], [t.cuda() for t in tokens]
    flow.whole(tokens, prompts)
    no_waiting()
    batch = flow.whole(tokens, prompts, streaming=True)
    state = flow.start(prompts[0]).fork()
    parts = [flow.advance(state, part) for part in tokens[0].split(7)]
    parts.append(flow.advance(state, tokens[0][:0], final=True))
    torch.cuda.set_sync_debug_mode("default")
    limit = DEVICE_ROUNDING if dtype == torch.float32 else 0.05
    for mine, theirs in zip((*batch, torch.cat(parts, dim=1)), (*expected, expected[0]), strict=True):
        error = (mine.cpu() - theirs).square().mean().sqrt() / theirs.std()
        assert error < limit


@versions
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
def test_vocoder_neither_waits_nor_differs(version, dtype, no_waiting):
    vocoder, mel = tiny_vocoder(version), tiny_mel(90)
    noise = torch.randn(480 * 90, 9, generator=torch.Generator().manual_seed(0))
    expected = vocoder.whole(mel, noise=noise)
    vocoder = copy.deepcopy(vocoder).cuda().finish_loading().set_precision(dtype)
    mel, noise = mel.cuda(), noise.cuda()
    vocoder.whole(mel)
    no_waiting()
    whole = vocoder.whole(mel, noise=noise)
    state = vocoder.start(noise=noise)
    parts = [vocoder.advance(state, part) for part in mel.split(25, dim=1)]
    parts.append(vocoder.advance(state, mel[:, :0], final=True))
    vocoder.advance(vocoder.start(seed=3), mel, final=True)
    torch.cuda.set_sync_debug_mode("default")
    limit = 0.02 if dtype == torch.float32 else 0.1
    for mine in (whole, torch.cat(parts)):
        assert (mine.cpu() - expected).square().mean().sqrt() / expected.std() < limit
