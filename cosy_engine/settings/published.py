"""The two published releases at their true sizes: for comparing key names, and for measuring speed with random weights."""

from __future__ import annotations

from cosy_engine.settings.model_spec import (
    ConformerSpec,
    DiTSpec,
    FlowSpec,
    HiftSpec,
    LlmSpec,
    LookaheadSpec,
    MelSpec,
    ModelSpec,
    UNetSpec,
)

_QWEN2 = {
    "text_vocab": 151936,
    "width": 896,
    "layers": 24,
    "heads": 14,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn_width": 4864,
    "speech_tokens": 6561,
}

PUBLISHED = {
    "v2": ModelSpec(
        name="CosyVoice2",
        llm=LlmSpec.v2(**_QWEN2),
        flow=FlowSpec(ConformerSpec(), UNetSpec()),
        vocoder=HiftSpec(causal=False),
        mel=MelSpec(fmax_hz=8000.0),
        text_tokens="v2",
        needs_prefix=False,
    ),
    "v3": ModelSpec(
        name="Fun-CosyVoice3",
        llm=LlmSpec.v3(**_QWEN2),
        flow=FlowSpec(LookaheadSpec(), DiTSpec(), input_width=80),
        vocoder=HiftSpec(causal=True),
        mel=MelSpec(),
        text_tokens="v3",
        needs_prefix=True,
    ),
}
