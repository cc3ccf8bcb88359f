"""The demo voice in numbers: the published v3 layout at 1/18 of its size, with the v2 vocoder.

The v3 excitation holds its phase for 20 ms, which gives a network this small almost no harmonics; the layout's yaml says
which vocoder a folder has, so the mixture is a legitimate folder.
"""

from cosy_engine.settings.model_spec import (
    DiTSpec,
    FlowSpec,
    HiftSpec,
    LlmSpec,
    LookaheadSpec,
    MelSpec,
    ModelSpec,
    SamplingSpec,
)
from tools.demo_model.front_end import CODES

LM = {"width": 320, "layers": 7, "heads": 5, "kv_heads": 1, "head_dim": 64, "ffn_width": 896}
# The releases redraw an id that was among the last ten (tau 0.1). 10-12 % of our codes really are, and half a per cent
# four times: tau 0.4 catches loops and leaves speech alone.
SAMPLING = SamplingSpec(tau=0.4)
DIT = DiTSpec(dim=256, depth=9, heads=4, head_dim=64, ff_mult=2)


def lm_spec(text_vocab: int, **other) -> LlmSpec:
    """12.6 M parameters. No code is called silent: these codes are not the release's."""
    fixed = {"text_vocab": text_vocab, "speech_tokens": CODES, "silent_ids": (), "sampling": SAMPLING}
    return LlmSpec.v3(**fixed, **(LM | other))


def flow_spec(estimator: DiTSpec = DIT, channels: int = 256) -> FlowSpec:
    """9.2 M parameters."""
    return FlowSpec(LookaheadSpec(channels), estimator, speech_tokens=CODES, input_width=80)


def vocoder_spec(base: int = 192) -> HiftSpec:
    """3.1 M parameters."""
    return HiftSpec(causal=False, base_channels=base, f0_channels=base)


def model_spec(text_vocab: int) -> ModelSpec:
    """All of it; the mel is v3's (no upper limit)."""
    name, mel = "Fun-CosyVoice3", MelSpec()
    return ModelSpec(name, lm_spec(text_vocab), flow_spec(), vocoder_spec(), mel, text_tokens="v3", needs_prefix=True)
