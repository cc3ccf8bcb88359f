"""The flow against the official modules at small size. Tolerances are those of the golden data's README."""

import hashlib

import pytest
import torch

from cosy_engine.flow.solver import NOISE_FRAMES, euler, noise_table, start_noise
from cosy_engine.stages import FlowPrompt
from tests import golden_data
from tests.flow.models import golden_flow

VERSIONS = ("v2", "v3")
TAGS = {"s0f1": (False, True), "s1f0": (True, False), "s1f1": (True, True)}
MU = 2e-5  # floor 2.3e-6
ESTIMATOR = 1e-4  # one call, floor 1.3e-5
MEL = 1e-4  # after ten steps, floor 1.1e-5


@pytest.fixture(scope="module", params=VERSIONS)
def golden(request):
    return golden_flow(request.param), golden_data.tensors(f"flow_{request.param}"), f"flow_{request.param}"


def prompt_of(data, case: str) -> FlowPrompt:
    return FlowPrompt(
        data[f"{case}.prompt_token"][0].long(), data[f"{case}.prompt_feat"][0], data[f"{case}.embedding"][0]
    )


def recorded(name: str, needs: str) -> list[str]:
    """Cases of something that trimmed sets leave out."""
    if not any(key.endswith("." + needs) for key in golden_data.tensors(name)):
        pytest.skip(f"this set has no {needs}")
    return golden_data.cases(name, needs)


def test_speaker_vector_is_the_official_one(golden):
    flow, data, name = golden
    for case in golden_data.cases(name, "embedding"):
        golden_data.near(flow.speaker(data[f"{case}.embedding"])[0], data[f"{case}.spks"], 1e-6)


@pytest.mark.parametrize("tag", TAGS)
def test_mu_and_mel_are_the_official_ones(golden, tag):
    flow, data, name = golden
    streaming, finalize = TAGS[tag]
    for case in golden_data.cases(name, f"{tag}.mel"):
        prompt, tokens = prompt_of(data, case), data[f"{case}.token"][0].long()
        mel = flow.whole([tokens], [prompt], streaming=streaming, finalize=finalize)[0]
        golden_data.near(mel, data[f"{case}.{tag}.mel"], MEL)
        if f"{case}.{tag}.mu" in data:
            ids = torch.cat([prompt.tokens, tokens])[None]
            with torch.no_grad():
                mu = flow.condition(ids, streaming=streaming, finalize=finalize)[0]
            golden_data.near(mu, data[f"{case}.{tag}.mu"], MU)


def test_a_batch_of_all_cases_gives_each_its_official_mel(golden):
    flow, data, name = golden
    for tag, (streaming, finalize) in TAGS.items():
        cases = golden_data.cases(name, f"{tag}.mel")
        mels = flow.whole(
            [data[f"{case}.token"][0].long() for case in cases],
            [prompt_of(data, case) for case in cases],
            streaming=streaming,
            finalize=finalize,
        )
        for case, mel in zip(cases, mels, strict=True):
            golden_data.near(mel, data[f"{case}.{tag}.mel"], MEL)


@pytest.mark.parametrize("pieces", ([1] * 200, [7, 1, 0, 25, 3], [60]), ids=("single", "ragged", "large"))
def test_a_stream_gives_the_official_masked_mel(golden, pieces):
    flow, data, name = golden
    for case in golden_data.cases(name, "s1f1.mel"):
        tokens, state, parts = data[f"{case}.token"][0].long(), flow.start(prompt_of(data, case)), []
        for count in pieces:
            parts.append(flow.advance(state, tokens[:count]))
            tokens = tokens[count:]
        parts.append(flow.advance(state, tokens, final=True))
        golden_data.near(torch.cat(parts, dim=1), data[f"{case}.s1f1.mel"], MEL)


@torch.no_grad()
def test_every_solver_step_is_the_official_one(golden):
    flow, data, name = golden
    solver = flow.decoder
    for tag in ("s0f1", "s1f0"):
        for case in recorded(name, f"{tag}.step_x"):
            streaming, finalize = TAGS[tag]
            prompt, tokens = prompt_of(data, case), data[f"{case}.token"][0].long()
            mu = flow.condition(torch.cat([prompt.tokens, tokens])[None], streaming=streaming, finalize=finalize)
            cond = torch.zeros_like(mu)
            cond[:, :, : prompt.mel.shape[0]] = prompt.mel.T
            speaker = flow.speaker(prompt.embedding[None])
            mu, cond, speaker = (torch.cat([c, torch.zeros_like(c)]) for c in (mu, cond, speaker))
            states, velocities = [], []

            def watched(k, x, given=(mu, cond, speaker), streaming=streaming, states=states, velocities=velocities):
                mu, cond, speaker = given
                t = torch.full((2,), solver.times[k])
                v = flow.velocity(x.transpose(1, 2), mu, t, speaker, cond, streaming=streaming)
                states.append(x[0].T)
                velocities.append(v)
                return v.transpose(1, 2)

            noise = start_noise(flow.mel_bins, 0, mu.shape[2], mu.device)[None]
            euler(noise, watched, solver.sizes, solver.cfg_rate)
            assert torch.equal(torch.tensor(solver.times), data[f"{case}.{tag}.step_t"])
            golden_data.near(torch.stack(states), data[f"{case}.{tag}.step_x"], MEL)
            theirs = data[f"{case}.{tag}.step_v"]
            golden_data.near(torch.stack(velocities[: len(theirs)]), theirs, ESTIMATOR)


@torch.no_grad()
@pytest.mark.parametrize("masks", (0, 1))
def test_one_estimator_call_is_the_official_one(golden, masks):
    flow, data, _ = golden
    inputs = [data[f"estimator.{key}"] for key in ("x", "mu", "t", "spks", "cond")]
    golden_data.near(flow.velocity(*inputs, streaming=bool(masks)), data[f"estimator.out_s{masks}"], ESTIMATOR)


@torch.no_grad()
@pytest.mark.parametrize("masks", (0, 1))
@pytest.mark.parametrize("kind", ("full", "ctx"))
def test_v2_encoder_is_the_official_one_with_and_without_context(kind, masks):
    flow, data = golden_flow("v2"), golden_data.tensors("flow_v2")
    recorded("flow_v2", f"out_{kind}_s{masks}")
    out = flow.encoder(data["encoder.x"][None], finalize=kind == "full", streaming=bool(masks))[0]
    golden_data.near(out, data[f"encoder.out_{kind}_s{masks}"], MU)


@torch.no_grad()
@pytest.mark.parametrize("kind", ("full", "ctx"))
def test_v3_lookahead_is_the_official_one_with_and_without_context(kind):
    flow, data = golden_flow("v3"), golden_data.tensors("flow_v3")
    recorded("flow_v3", f"out_{kind}")
    out = flow.pre_lookahead_layer(data["prelookahead.x"][None], finalize=kind == "full")[0, ::2]
    golden_data.near(out, data[f"prelookahead.out_{kind}"], MU)


def test_noise_table_is_the_published_one():
    facts, data = golden_data.facts("rand_noise"), golden_data.tensors("rand_noise")
    table = noise_table(facts["shape"][1], torch.device("cpu")).T.contiguous()
    assert table.shape == (facts["shape"][1], NOISE_FRAMES)
    for key, part in data.items():
        count = part.shape[2]
        assert torch.equal(table[:, :count] if key.startswith("first") else table[:, -count:], part[0])
    assert hashlib.sha256(table.numpy().tobytes()).hexdigest() == facts["sha256_of_little_endian_bytes"]
