"""Writes a model folder in the published layout from small specs: yaml, body config, checkpoints.

Used for the demo voice and by tests; sizes are plain values of the files, as in a real release.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from cosy_engine.settings.model_spec import ConformerSpec, DiTSpec, ModelSpec

YAML = """\
# Sizes of this model, in the layout of the published releases. Tags are names; the loader treats them as data.
sample_rate: {rate}
llm_input_size: {llm.width}
llm_output_size: {llm.width}
spk_embed_dim: {flow.speaker_width}
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: {flow.block_tokens}
num_decoding_left_chunks: -1
silent_tokens: {silent}

llm: !new:{llm_class}
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: {llm.speech_tokens}
    length_normalized_loss: True
    mix_ratio: [{llm.mix_text}, {llm.mix_speech}]
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: CosyVoice-BlankEN
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: {llm.sampling.top_p}
        top_k: {llm.sampling.top_k}
        win_size: {llm.sampling.window}
        tau_r: {llm.sampling.tau}

flow: !new:{flow_class}
    input_size: {flow.input_width}
    output_size: {flow.mel_bins}
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: mel
    vocab_size: {flow.speech_tokens}
    input_frame_rate: !ref <token_frame_rate>
    only_mask_loss: True
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: {flow.lookahead_tokens}
{front}
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: 240
        n_spks: 1
        spk_emb_dim: 80
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                solver: euler
                t_scheduler: cosine
                training_cfg_rate: 0.2
                inference_cfg_rate: {flow.cfg_rate}
                reg_loss_type: l1
{estimator}

hift: !new:{hift_class}
    in_channels: {hift.mel_bins}
    base_channels: {hift.base_channels}
    nb_harmonics: {hift.harmonics}
    sampling_rate: !ref <sample_rate>
    nsf_alpha: {hift.sine_amplitude}
    nsf_sigma: {hift.noise_sigma}
    nsf_voiced_threshold: {hift.voiced_threshold_hz}
    upsample_rates: {upsample_rates}
    upsample_kernel_sizes: {upsample_kernels}
    istft_params:
        n_fft: {hift.istft_n_fft}
        hop_len: {hift.istft_hop}
    resblock_kernel_sizes: {resblock_kernels}
    resblock_dilation_sizes: {resblock_dilations}
    source_resblock_kernel_sizes: {source_kernels}
    source_resblock_dilation_sizes: {source_dilations}
    lrelu_slope: {hift.lrelu_slope}
    audio_limit: {hift.audio_limit}
{look_right}    f0_predictor: !new:{f0_class}
        num_class: 1
        in_channels: {hift.mel_bins}
        cond_channels: {hift.f0_channels}

feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: {mel.n_fft}
    num_mels: {mel.bins}
    sampling_rate: !ref <sample_rate>
    hop_size: {mel.hop_samples}
    win_size: {mel.win_samples}
    fmin: {fmin}
    fmax: {fmax}
    center: False
"""

CONFORMER = """\
    encoder: !new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder
        output_size: {front.width}
        attention_heads: {front.heads}
        linear_units: {front.ffn_width}
        num_blocks: {front.blocks}
        input_size: {front.width}
        static_chunk_size: !ref <chunk_size>"""

LOOKAHEAD = """\
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: {flow.input_width}
        channels: {front.channels}
        pre_lookahead_len: {flow.lookahead_tokens}"""

UNET = """\
        estimator: !new:cosyvoice.flow.decoder.CausalConditionalDecoder
            in_channels: 320
            out_channels: {flow.mel_bins}
            channels: [{estimator.channels}]
            dropout: 0.0
            attention_head_dim: {estimator.head_dim}
            n_blocks: {estimator.blocks}
            num_mid_blocks: {estimator.mid_blocks}
            num_heads: {estimator.heads}
            act_fn: gelu
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>"""

DIT = """\
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {estimator.dim}
            depth: {estimator.depth}
            heads: {estimator.heads}
            dim_head: {estimator.head_dim}
            ff_mult: {estimator.ff_mult}
            mel_dim: {flow.mel_bins}
            mu_dim: {flow.mel_bins}
            spk_dim: {flow.mel_bins}
            out_channels: {flow.mel_bins}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>"""


def yaml_text(spec: ModelSpec) -> str:
    """The release yaml of a spec; reading it back gives the spec."""
    flow, hift, mel = spec.flow, spec.vocoder, spec.mel
    front = CONFORMER if isinstance(flow.front, ConformerSpec) else LOOKAHEAD
    dit = isinstance(flow.estimator, DiTSpec)
    return YAML.format(
        rate=mel.rate_hz,
        llm=spec.llm,
        flow=flow,
        hift=hift,
        mel=mel,
        llm_class="cosyvoice.llm.llm." + ("CosyVoice3LM" if spec.text_tokens == "v3" else "Qwen2LM"),
        flow_class="cosyvoice.flow.flow.CausalMaskedDiffWith" + ("DiT" if dit else "Xvec"),
        hift_class="cosyvoice.hifigan.generator." + ("CausalHiFTGenerator" if hift.causal else "HiFTGenerator"),
        f0_class="cosyvoice.hifigan.f0_predictor." + ("CausalConvRNNF0Predictor" if hift.causal else "ConvRNNF0Predictor"),
        silent=json.dumps(spec.llm.silent_ids),
        front=front.format(front=flow.front, flow=flow),
        estimator=(DIT if dit else UNET).format(estimator=flow.estimator, flow=flow),
        look_right=f"    conv_pre_look_right: {hift.lookahead_frames}\n" if hift.causal else "",
        fmin=int(mel.fmin_hz),
        fmax="null" if mel.fmax_hz is None else int(mel.fmax_hz),
        **{
            name: json.dumps(getattr(hift, name))
            for name in (
                "upsample_rates", "upsample_kernels", "resblock_kernels", "resblock_dilations", "source_kernels", "source_dilations",
            )
        },
    )  # fmt: skip


def body_config(spec: ModelSpec) -> dict:
    """CosyVoice-BlankEN/config.json."""
    llm = spec.llm
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": llm.width,
        "head_dim": llm.head_dim,
        "intermediate_size": llm.ffn_width,
        "max_position_embeddings": 32768,
        "num_attention_heads": llm.heads,
        "num_hidden_layers": llm.layers,
        "num_key_value_heads": llm.kv_heads,
        "rms_norm_eps": llm.rms_eps,
        "rope_theta": llm.rope_theta,
        "tie_word_embeddings": True,
        "vocab_size": llm.text_vocab,
    }


def write_config(folder: Path, spec: ModelSpec) -> None:
    """The yaml and the body's config; the tokenizer's files are another's business."""
    body = folder / "CosyVoice-BlankEN"
    body.mkdir(parents=True, exist_ok=True)
    name = "cosyvoice3.yaml" if spec.text_tokens == "v3" else "cosyvoice2.yaml"
    (folder / name).write_text(yaml_text(spec), encoding="utf-8")
    (body / "config.json").write_text(json.dumps(body_config(spec), indent=2) + "\n", encoding="utf-8")


def llm_state(lm: nn.Module) -> dict[str, Tensor]:
    """The published names; the tied text head is left out, as the loader never uses it."""
    return {
        "llm.model.model." + name.removeprefix("backbone.") if name.startswith("backbone.") else name: value
        for name, value in lm.state_dict().items()
    }


def save_state(state: dict, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """A state dict on the CPU; floating tensors in `dtype`."""
    torch.save(
        {
            name: (value.to(dtype) if value.is_floating_point() else value).detach().cpu().clone()
            for name, value in state.items()
        },
        path,
    )
