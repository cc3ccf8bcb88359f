"""On a CUDA device: graph and fused tier against the eager one, stage by stage."""

import copy

import pytest
import torch

from cosy_engine.accel import fused_config
from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.flow_graph import GraphFlow
from cosy_engine.accel.prefill_graph import GraphPrefill
from cosy_engine.accel.vocoder_graph import GraphVocoder
from cosy_engine.build import between_products, exact_fp32
from cosy_engine.flow import build_flow
from cosy_engine.llm.pool import DecodePool
from cosy_engine.llm.sampling import mass_before
from cosy_engine.settings.model_spec import ConformerSpec, DiTSpec, FlowSpec, LookaheadSpec, UNetSpec
from tests.flow.models import tiny_prompt, tiny_tokens
from tests.llm.test_golden_lm import build
from tests.llm.test_pool import plan
from tests.vocoder.models import tiny_mel, tiny_vocoder

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

versions = pytest.mark.parametrize("version", ["v2", "v3"])
tiers = pytest.mark.parametrize("tier", ["graph", "fused"])

# Heads of the published width; everything else small.
FLOWS = {
    "v2": FlowSpec(
        ConformerSpec(width=64, heads=2, ffn_width=96, blocks=2, up_blocks=1),
        UNetSpec(channels=128, head_dim=64, heads=2, blocks=2, mid_blocks=2),
        speech_tokens=50, input_width=48, mel_bins=80, speaker_width=32,
    ),
    "v3": FlowSpec(
        LookaheadSpec(channels=64), DiTSpec(dim=256, depth=4, heads=4, head_dim=64),
        speech_tokens=50, input_width=80, mel_bins=80, speaker_width=32,
    ),
}  # fmt: skip
# Relative RMS of the mel after 10 steps, resp. of the wave, against the eager stage in fp32 on the same device.
FLOW_DISTANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}
WAVE_DISTANCE = {torch.float32: 2e-2, torch.float16: 0.1, torch.bfloat16: 0.3}


@pytest.fixture(autouse=True)
def needs_of_the_tier(request):
    exact_fp32()
    fused = "tier" in request.fixturenames and request.getfixturevalue("tier") == "fused"
    if fused and (reason := fused_config.unavailable(torch.device("cuda:0"))):
        pytest.skip(reason)


def operations(tier: str, dtype: torch.dtype, version: str):
    if tier == "graph":
        return None, None
    return between_products("fp32" if dtype == torch.float32 else "half", FLOWS[version])


def distance(ours, theirs) -> float:
    return ((ours - theirs).float().square().mean().sqrt() / theirs.float().std()).item()


def random_flow(version: str):
    generator = torch.Generator().manual_seed(0)
    flow = build_flow(FLOWS[version])
    with torch.no_grad():
        for name, p in flow.named_parameters():
            fan = p[0].numel() if p.dim() > 1 else 16
            p.copy_(torch.randn(p.shape, generator=generator) / fan**0.5 + ("norm" in name and p.dim() == 1))
    return flow.cuda().finish_loading()


@versions
@tiers
def test_the_same_seed_draws_the_same_ids(version, tier):
    lm = build(version).to("cuda:0")
    drawn, used = [], 1 if tier == "fused" else 3  # more rows of that tier: test_decode_fused
    for fast in (False, True):
        pool = DecodePool(lm, used, 160, 80)
        if fast:
            plain = TorchStep(lm, 160)
            pool.step, pool.prefill = GraphDecode(plain, pool.state, used), GraphPrefill(plain, pool.state, (16, 32))
            if tier == "fused":
                step = FusedStep(plain)
                pool.step = GraphDecode(step, pool.state, used, plain, any_context=True, pieces=step.pieces)
            with torch.cuda.stream(pool._stream):
                for part in (pool.prefill, pool.step):
                    for work in part.captures():
                        work()
        rows = [pool.admit(plan(seed + 1)) for seed in range(used)]
        for _ in range(40):
            pool.launch()
        progress = pool.collect()
        drawn.append([list(progress[row].tokens) for row in rows])
    assert drawn[0] == drawn[1] and max(map(len, drawn[0])) > 10
    assert pool.step.replays == 40 and pool.prefill.replays == used


def test_candidates_are_added_one_by_one():
    generator = torch.Generator().manual_seed(0)
    for rows in (1, 2, 32):
        ordered = torch.rand(rows, 25, generator=generator).sort(descending=True).values
        assert torch.equal(mass_before(ordered.cuda()).cpu(), mass_before(ordered))


@versions
@tiers
@pytest.mark.parametrize("dtype", FLOW_DISTANCE)
def test_captured_flow_gives_the_eager_mel(version, tier, dtype):
    flow = random_flow(version)
    other = copy.deepcopy(flow).drop_time_weights().set_precision(dtype)
    fast = GraphFlow(other, (152, 304), ops=operations(tier, dtype, version)[0])
    for work in fast.captures():
        work()
    for count, known, options in (
        (31, 12, {}),
        (70, 0, {"streaming": True}),
        (100, 30, {"streaming": True, "finalize": False}),
    ):
        tokens, prompt = tiny_tokens(flow, count).cuda(), tiny_prompt(flow, known)
        prompt = type(prompt)(prompt.tokens.cuda(), prompt.mel.cuda(), prompt.embedding.cuda())
        expected = flow.whole([tokens], [prompt], **options)[0]
        ours = fast.whole([tokens], [prompt], **options)[0]
        plain = distance(other.whole([tokens], [prompt], **options)[0], expected)
        print(f"flow {version} {tier} {dtype}: {distance(ours, expected):.1e}, eager {plain:.1e}")
        assert distance(ours, expected) < FLOW_DISTANCE[dtype]
    assert fast.replays == 3 * flow.spec.steps


@versions
@tiers
@pytest.mark.parametrize("dtype", WAVE_DISTANCE)
def test_captured_windows_give_the_eager_wave(version, tier, dtype):
    net, mel = tiny_vocoder(version).cuda().finish_loading(), tiny_mel(150).cuda()
    expected = net.whole(mel, seed=1)
    other = copy.deepcopy(net).set_precision(dtype)
    plain = distance(other.whole(mel, seed=1), expected)
    fast = GraphVocoder(other, (48, 64, 96, 128), ops=operations(tier, dtype, version)[1])
    for work in fast.captures():
        work()
    state = fast.start(seed=1)
    parts = [fast.advance(state, part) for part in mel.split(25, dim=1)]
    parts.append(fast.advance(state, mel[:, :0], final=True))
    for ours in (fast.whole(mel, seed=1), torch.cat(parts)):
        print(f"vocoder {version} {tier} {dtype}: {distance(ours, expected):.1e}, eager {plain:.1e}")
        assert distance(ours, expected) < WAVE_DISTANCE[dtype]
    assert fast.replays > 5
