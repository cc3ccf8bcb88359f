"""Small flows for the tests: those of the golden data, and random ones with no weight at a special value."""

import torch

from cosy_engine.flow import Flow, build_flow
from cosy_engine.settings.model_spec import ConformerSpec, DiTSpec, FlowSpec, LookaheadSpec, UNetSpec
from cosy_engine.stages import FlowPrompt
from tests import golden_data

TINY = {
    "v2": FlowSpec(
        ConformerSpec(width=32, heads=2, ffn_width=48, blocks=2, up_blocks=1),
        UNetSpec(channels=32, head_dim=8, heads=2, blocks=1, mid_blocks=1),
        speech_tokens=50,
        input_width=24,
        mel_bins=16,
        speaker_width=12,
        steps=4,
    ),
    "v3": FlowSpec(
        LookaheadSpec(channels=24),
        DiTSpec(dim=32, depth=2, heads=4, head_dim=8),
        speech_tokens=50,
        input_width=16,
        mel_bins=16,
        speaker_width=12,
        steps=4,
    ),
}


def golden_spec(version: str) -> FlowSpec:
    facts = golden_data.facts(f"flow_{version}")
    sizes = facts["estimator"]
    if "encoder" in facts:
        encoder = facts["encoder"]
        front = ConformerSpec(
            width=encoder["output_size"],
            heads=encoder["attention_heads"],
            ffn_width=encoder["linear_units"],
            blocks=encoder["num_blocks"],
            up_blocks=encoder["num_up_blocks"],
        )
        estimator = UNetSpec(
            channels=sizes["channels"][0],
            head_dim=sizes["attention_head_dim"],
            heads=sizes["num_heads"],
            blocks=sizes["n_blocks"],
            mid_blocks=sizes["num_mid_blocks"],
        )
    else:
        front = LookaheadSpec(channels=facts["pre_lookahead_layer"]["channels"])
        estimator = DiTSpec(
            dim=sizes["dim"],
            depth=sizes["depth"],
            heads=sizes["heads"],
            head_dim=sizes["dim_head"],
            ff_mult=sizes["ff_mult"],
        )
    return FlowSpec(
        front,
        estimator,
        speech_tokens=facts["vocab_size"],
        input_width=facts["input_size"],
        mel_bins=facts["output_size"],
        speaker_width=facts["spk_embed_dim"],
        lookahead_tokens=facts["pre_lookahead_len"],
        block_tokens=sizes["static_chunk_size"] // facts["token_mel_ratio"],
        steps=facts["n_timesteps"],
        cfg_rate=facts["cfm"]["inference_cfg_rate"],
    )


def golden_flow(version: str) -> Flow:
    flow = build_flow(golden_spec(version))
    flow.load_state_dict(golden_data.weights(f"flow_{version}"))
    return flow.finish_loading()


def tiny_flow(version: str, seed: int = 0) -> Flow:
    """Every parameter random, so that a forgotten one shows."""
    generator = torch.Generator().manual_seed(seed)
    flow = build_flow(TINY[version])
    with torch.no_grad():
        for name, p in flow.named_parameters():
            fan = p[0].numel() if p.dim() > 1 else 16
            p.copy_(torch.randn(p.shape, generator=generator) / fan**0.5 + ("norm" in name and p.dim() == 1))
    return flow.finish_loading()


def tiny_prompt(flow: Flow, tokens: int, frames: int | None = None, seed: int = 0) -> FlowPrompt:
    generator = torch.Generator().manual_seed(seed)
    return FlowPrompt(
        tokens=torch.randint(0, flow.spec.speech_tokens, (tokens,), generator=generator),
        mel=torch.randn(2 * tokens if frames is None else frames, flow.spec.mel_bins, generator=generator),
        embedding=torch.randn(flow.spec.speaker_width, generator=generator),
    )


def tiny_tokens(flow: Flow, count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, flow.spec.speech_tokens, (count,), generator=torch.Generator().manual_seed(seed))
