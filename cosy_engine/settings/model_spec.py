"""Facts of a checkpoint: sizes, rates, ids. One `ModelSpec` per release, read from its yaml (model_files.layout).

Every default is the published value of both releases unless a comment says otherwise. A class name in a yaml only
chooses which of these records is filled; after that no code asks "which version is this?", it asks for a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class MelSpec:
    """The mel that the flow produces and the vocoder reads. fmax_hz None means Nyquist (v3); v2 has 8000."""

    rate_hz: int = 24000
    n_fft: int = 1920
    hop_samples: int = 480
    win_samples: int = 1920
    bins: int = 80
    fmin_hz: float = 0.0
    fmax_hz: float | None = None


@dataclass(frozen=True)
class SamplingSpec:
    """Repetition-aware sampling: nucleus top_p/top_k, and a second draw when the id is among the last `window`."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau: float = 0.1


@dataclass(frozen=True)
class LlmSpec:
    """Qwen2 body, speech embedding and speech head.

    Ids: speech codes are 0 .. speech_tokens-1; every id >= speech_tokens in the head stops generation (fill pauses it
    in bistream). sos and task are rows of `llm_embedding` when `separate_prompt_table` (v2), else of the speech
    embedding (v3).
    """

    text_vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    speech_tokens: int
    head_rows: int
    head_bias: bool
    separate_prompt_table: bool
    sos_row: int
    task_row: int
    eos_id: int
    fill_id: int
    rms_eps: float = 1e-6
    rope_theta: float = 1e6
    mix_text: int = 5
    mix_speech: int = 15
    sampling: SamplingSpec = field(default_factory=SamplingSpec)
    silent_ids: tuple[int, ...] = ()
    max_silent_run: int = 5
    min_ratio: float = 2.0
    max_ratio: float = 20.0

    @classmethod
    def v2(cls, **sizes) -> LlmSpec:
        """ids of CosyVoice2: head of S+3 rows with bias, sos/task in their own two-row table."""
        s = sizes["speech_tokens"]
        return cls(
            head_rows=s + 3, head_bias=True, separate_prompt_table=True,
            sos_row=0, task_row=1, eos_id=s, fill_id=s + 2, **sizes,
        )  # fmt: skip

    @classmethod
    def v3(cls, **sizes) -> LlmSpec:
        """ids of Fun-CosyVoice3: head of S+200 rows without bias, sos/task inside the speech embedding."""
        s = sizes["speech_tokens"]
        sizes.setdefault("silent_ids", (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
        return cls(
            head_rows=s + 200, head_bias=False, separate_prompt_table=False,
            sos_row=s, task_row=s + 2, eos_id=s + 1, fill_id=s + 3, **sizes,
        )  # fmt: skip


@dataclass(frozen=True)
class ConformerSpec:
    """v2 front network: conformer at 25 Hz, 2x upsampling, conformer at 50 Hz. The 4 upper blocks are fixed upstream."""

    width: int = 512
    heads: int = 8
    ffn_width: int = 2048
    blocks: int = 6
    up_blocks: int = 4


@dataclass(frozen=True)
class LookaheadSpec:
    """v3 front network: the look-ahead layer on 80-wide embeddings, then every frame twice."""

    channels: int = 1024


@dataclass(frozen=True)
class UNetSpec:
    """v2 velocity estimator; one width, no resampling."""

    channels: int = 256
    head_dim: int = 64
    heads: int = 8
    blocks: int = 4
    mid_blocks: int = 12


@dataclass(frozen=True)
class DiTSpec:
    """v3 velocity estimator."""

    dim: int = 1024
    depth: int = 22
    heads: int = 16
    head_dim: int = 64
    ff_mult: int = 2


@dataclass(frozen=True)
class FlowSpec:
    """Speech tokens to mel. `front` and `estimator` choose the maths; the rest is shared."""

    front: ConformerSpec | LookaheadSpec
    estimator: UNetSpec | DiTSpec
    speech_tokens: int = 6561
    input_width: int = 512  # width of input_embedding: 512 in v2, 80 in v3
    mel_bins: int = 80
    speaker_width: int = 192
    lookahead_tokens: int = 3
    block_tokens: int = 25  # streaming attention block; twice as many mel frames
    steps: int = 10
    cfg_rate: float = 0.7


@dataclass(frozen=True)
class HiftSpec:
    """Vocoder. causal: v3's one-sided convolutions and staircase phase; else v2's symmetric ones."""

    causal: bool
    base_channels: int = 512
    f0_channels: int = 512
    mel_bins: int = 80
    rate_hz: int = 24000
    harmonics: int = 8
    sine_amplitude: float = 0.1
    noise_sigma: float = 0.003
    voiced_threshold_hz: float = 10.0
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    istft_n_fft: int = 16
    istft_hop: int = 4
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    resblock_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    lrelu_slope: float = 0.1
    audio_limit: float = 0.99
    lookahead_frames: int = 4  # right context of conv_pre, causal only (yaml conv_pre_look_right)


@dataclass(frozen=True)
class ModelSpec:
    """All of one release. name is shown to people; `needs_prefix` is v3's rule that <|endofprompt|> must be present."""

    name: str
    llm: LlmSpec
    flow: FlowSpec
    vocoder: HiftSpec
    mel: MelSpec
    text_tokens: str  # which special-token list the tokenizer gets: "v2" or "v3"
    needs_prefix: bool
    token_rate_hz: int = 25
    frames_per_token: int = 2
