"""Small vocoders for the tests: those of the golden data, and random ones."""

import torch

from cosy_engine.settings.model_spec import HiftSpec
from cosy_engine.vocoder import Hift, build_vocoder
from tests import golden_data

TINY = {version: HiftSpec(causal=version == "v3", base_channels=16, f0_channels=8) for version in ("v2", "v3")}


def golden_spec(version: str) -> HiftSpec:
    facts = golden_data.facts(f"hift_{version}")

    def nested(key: str) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(row) for row in facts[key])

    return HiftSpec(
        causal="conv_pre_look_right" in facts,
        base_channels=facts["base_channels"],
        f0_channels=facts["f0_predictor"]["cond_channels"],
        mel_bins=facts["in_channels"],
        rate_hz=facts["sampling_rate"],
        harmonics=facts["nb_harmonics"],
        sine_amplitude=facts["nsf_alpha"],
        noise_sigma=facts["nsf_sigma"],
        voiced_threshold_hz=facts["nsf_voiced_threshold"],
        upsample_rates=tuple(facts["upsample_rates"]),
        upsample_kernels=tuple(facts["upsample_kernel_sizes"]),
        istft_n_fft=facts["istft_params"]["n_fft"],
        istft_hop=facts["istft_params"]["hop_len"],
        resblock_kernels=tuple(facts["resblock_kernel_sizes"]),
        resblock_dilations=nested("resblock_dilation_sizes"),
        source_kernels=tuple(facts["source_resblock_kernel_sizes"]),
        source_dilations=nested("source_resblock_dilation_sizes"),
        lrelu_slope=facts["lrelu_slope"],
        audio_limit=facts["audio_limit"],
        lookahead_frames=facts.get("conv_pre_look_right", 4),
    )


def golden_vocoder(version: str) -> Hift:
    vocoder = build_vocoder(golden_spec(version))
    vocoder.load_published(golden_data.weights(f"hift_{version}"))
    return vocoder.finish_loading()


def random_state(version: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """A published state dict (weight norm and all) of a tiny vocoder that is voiced and not silent."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, p in build_vocoder(TINY[version], weight_norm=True).state_dict().items():
        fan = p[0].numel() if p.dim() > 1 else 16
        state[name] = torch.randn(p.shape, generator=generator) / fan**0.5
        if name.endswith("alpha"):
            state[name] = 0.5 + torch.rand(p.shape, generator=generator)
        elif name.endswith("original0"):
            # gentle gains: 40 layers and an exponential would make any rounding as loud as the signal
            state[name] = 0.2 + 0.2 * torch.rand(p.shape, generator=generator)
    state["f0_predictor.classifier.bias"].fill_(180.0)
    state["f0_predictor.classifier.weight"].mul_(60.0)
    return state


def tiny_vocoder(version: str, seed: int = 0) -> Hift:
    vocoder = build_vocoder(TINY[version])
    vocoder.load_published(random_state(version, seed))
    return vocoder.finish_loading()


def tiny_mel(frames: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(80, frames, generator=torch.Generator().manual_seed(seed))


def stream(vocoder, mel, pieces, **options):
    """The wave of a mel that comes in pieces of so many frames, the rest at the end."""
    state, parts = vocoder.start(**options), []
    for count in pieces:
        parts.append(vocoder.advance(state, mel[:, :count]))
        mel = mel[:, count:]
    parts.append(vocoder.advance(state, mel, final=True))
    return torch.cat(parts)
