"""The vocoder network: mel and excitation to waveform (stages.Vocoder), causal or not by a field of the spec."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.settings.model_spec import HiftSpec
from cosy_engine.vocoder.f0 import F0Predictor
from cosy_engine.vocoder.layers import (
    DIRECTION,
    GAIN,
    Conv,
    RepeatUp,
    Resblock,
    TransposedUp,
    current_names,
    drop_weight_norm,
    fold_state,
    with_weight_norm,
)
from cosy_engine.vocoder.source import FIRST_ROWS, DrawnNoise, Source, fixed_noise, frame_samples
from cosy_engine.vocoder.spectrum import istft, stft
from cosy_engine.vocoder.stream import OverlapState, WindowState


class Hift(nn.Module):
    """Weights of the vocoder under their published names.

    Inference: `load_published`, move to the device, `finish_loading()`, then `set_precision(dtype)`.
    Training: build with weight_norm=True; `forward` has gradients, `state_dict()` the published 328 entries, and
    `finish_loading()` (or `fold_weight_norm()` alone) turns a trained model into a fast one.
    """

    def __init__(self, spec: HiftSpec, weight_norm: bool = False):
        super().__init__()
        self.spec, self.causal = spec, spec.causal
        self.frame_samples = frame_samples(spec)
        causal, base, stages = spec.causal, spec.base_channels, len(spec.upsample_rates)
        spectrum = spec.istft_n_fft + 2
        widths = [base // 2 ** (i + 1) for i in range(stages)]

        self.m_source = Source(spec)
        ahead = spec.lookahead_frames
        # v3: kernel 5 that looks 4 frames ahead; v2: kernel 7, symmetric
        self.conv_pre = (
            Conv(spec.mel_bins, base, ahead + 1, pad=(0, 0)) if causal else Conv(spec.mel_bins, base, 7, pad=(3, 3))
        )
        up = RepeatUp if causal else TransposedUp
        self.ups = nn.ModuleList(
            up(base // 2**i, widths[i], kernel, rate)
            for i, (rate, kernel) in enumerate(zip(spec.upsample_rates, spec.upsample_kernels, strict=True))
        )
        self.source_downs, self.source_resblocks = nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate(widths):
            rate = 1  # from the spectrum's frame rate to this stage's
            for later in spec.upsample_rates[i + 1 :]:
                rate *= later
            pad = (0, 0) if rate == 1 else (rate - 1, 0) if causal else (rate // 2, rate // 2)
            self.source_downs.append(Conv(spectrum, width, 2 * rate if rate > 1 else 1, stride=rate, pad=pad))
            self.source_resblocks.append(Resblock(width, spec.source_kernels[i], spec.source_dilations[i], causal))
        self.resblocks = nn.ModuleList(
            Resblock(width, kernel, dilations, causal)
            for width in widths
            for kernel, dilations in zip(spec.resblock_kernels, spec.resblock_dilations, strict=True)
        )
        self.conv_post = Conv(widths[-1], spectrum, 7, pad=(6, 0) if causal else (3, 3))
        self.f0_predictor = F0Predictor(spec)
        if weight_norm:
            for name, part in self.named_children():
                if name != "source_downs":  # the only convolutions published without
                    with_weight_norm(part)
        self.weight_norm = weight_norm

    # ---- weights

    def load_published(self, state: dict[str, Tensor]) -> None:
        """Take a published state dict, with new or old names of the weight norm; strict.

        Without weight norm in this module it is folded here, in fp64; the F0 predictor keeps that precision.
        Works on the meta device too: tensors are taken over, and then lie where `state` lies.
        """
        state = current_names(state)
        if not self.weight_norm:
            known = self.state_dict().keys()
            if wrong := [key for key in state if key.replace(GAIN, "weight").replace(DIRECTION, "weight") not in known]:
                raise KeyError(f"unexpected {', '.join(wrong[:4])}")  # before anything is computed of them
            state = fold_state(state)
            state = {k: v.double() if k.startswith("f0_predictor.") else v.float() for k, v in state.items()}
        device = self.conv_pre.bias.device
        if device.type != "meta":
            state = {k: v.to(device) for k, v in state.items()}
        # assign, or fp64 would be copied into fp32; in training a copy, for the optimiser must not write into `state`
        self.load_state_dict(state, assign=not self.weight_norm or device.type == "meta")
        if not self.weight_norm:
            for up in self.ups:
                up.prepare()

    def fold_weight_norm(self) -> Hift:
        """Replace weight norm by plain weights (fp64 in the F0 predictor). Changes nothing when there is none."""
        drop_weight_norm(self.f0_predictor, torch.float64)
        drop_weight_norm(self)
        self.weight_norm = False
        return self

    def finish_loading(self) -> Hift:
        """Fold weight norm, put the F0 predictor into fp64, sum the upsampling kernels, draw the noise table."""
        self.fold_weight_norm().eval()
        self.f0_predictor.double()
        if self.causal:
            fixed_noise(self.m_source.harmonics).rows(0, FIRST_ROWS, self.device)
        for up in self.ups:
            up.prepare()
        return self

    def train(self, mode: bool = True) -> Hift:
        if mode:
            for up in self.ups:
                up.phases = None  # weights move; the plain form follows them
        return super().train(mode)

    def set_precision(self, dtype: torch.dtype, *, exact_f0: bool = True) -> Hift:
        """Decoder convolutions in dtype; activations, sums, excitation and transforms stay fp32.

        exact_f0=False puts the F0 predictor into fp32, for devices where fp64 is slow. A stream computes each frame's
        f0 once, so it stays seamless; samples then depend a little on how a stream was cut.
        """
        for name, part in self.named_children():
            if name not in ("f0_predictor", "m_source"):
                for conv in part.modules():
                    if isinstance(conv, Conv | TransposedUp | RepeatUp):
                        conv.to(dtype)
        self.f0_predictor.to(torch.float64 if exact_f0 else torch.float32)
        return self

    @property
    def device(self) -> torch.device:
        return self.conv_pre.bias.device

    # ---- networks, for B rows of equal length, with gradients

    def decode(self, mel: Tensor, source: Tensor, *, finalize: bool = True) -> Tensor:
        """(B, M, F) mel and (B, 480 F) excitation -> (B, 480 F) fp32 in [-0.99, 0.99].

        finalize=False (causal only): the last 4 frames are context and one more is dropped, for the transforms reflect
        at the right edge: 480 (F - 5) samples, all of them final.
        """
        spec = self.spec
        held = spec.lookahead_frames if self.causal and not finalize else 0
        spectrum = stft(source, spec.istft_n_fft, spec.istft_hop)
        if held:
            spectrum = spectrum[..., : -held * self.frame_samples // spec.istft_hop]
        if self.causal and finalize:
            mel = F.pad(mel, (0, spec.lookahead_frames))
        x = self.conv_pre(mel).float()
        last, kernels = len(self.ups) - 1, len(spec.resblock_kernels)
        for i, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, spec.lrelu_slope)).float()
            if i == last:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x + self.source_resblocks[i](self.source_downs[i](spectrum).float())
            x = sum(block(x) for block in self.resblocks[kernels * i : kernels * (i + 1)]) / kernels
        x = self.conv_post(F.leaky_relu(x, 0.01)).float()
        bins = spec.istft_n_fft // 2 + 1
        magnitude = torch.exp(x[:, :bins]).clamp(max=100.0)
        y = istft(magnitude, torch.sin(x[:, bins:]), spec.istft_n_fft, spec.istft_hop)
        if held:
            y = y[:, : -self.frame_samples]
        return y.clamp(-spec.audio_limit, spec.audio_limit)

    def forward(
        self, mel: Tensor, *, noise: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Training pass: (B, M, F) -> waveform (B, 480 F) and f0 (B, F) Hz.

        noise: (B, 480 F, 9); else standard normal is drawn from `generator`, for both releases as in their training.
        No gradient flows from the waveform into f0: the excitation is made without, as published.
        """
        f0 = self.f0_predictor(mel)
        if noise is None:
            assert generator is not None, "pass noise or a generator"
            shape = (mel.shape[0], mel.shape[2] * self.frame_samples, self.m_source.harmonics)
            noise = torch.randn(shape, generator=generator, device=generator.device).to(mel.device)
        return self.decode(mel, self.m_source(f0.detach(), noise)), f0

    # ---- inference

    def noise(self, seed: int) -> DrawnNoise | None:
        """The noise of one request; None where it is a fixed table."""
        return None if self.causal else DrawnNoise(self.m_source.harmonics, seed, self.device)

    def noise_rows(self, own: DrawnNoise | None, start: int, stop: int, forget: bool = False) -> Tensor:
        """(1, stop - start, 9) noise of samples start .. stop-1."""
        if own is None:
            return fixed_noise(self.m_source.harmonics).rows(start, stop, self.device)
        return own.rows(start, stop, forget)

    @torch.inference_mode()
    def whole(
        self, mel: Tensor, *, seed: int = 0, noise: Tensor | None = None, source: Tensor | None = None,
        finalize: bool = True,
    ) -> Tensor:  # fmt: skip
        """See stages.Vocoder.whole.

        noise (480 F, 9) or source (480 F,) replace what would be made here (v3 without finalize: of F - 3 frames).
        finalize=False (v3): 480 (F - 8) samples that more frames would not change.
        Raises: TextTooLong: more than 300 s (v3).
        """
        frames = mel.shape[1]
        ahead = 0 if finalize or not self.causal else mel.shape[1] - self.known_f0(frames, False)
        if frames - ahead <= (self.spec.lookahead_frames + 1 if ahead else 0):
            return torch.zeros(0, device=self.device)
        mel = mel[None].float()
        if source is None:
            f0 = self.f0_predictor(mel, finalize=finalize)
            samples = f0.shape[1] * self.frame_samples
            rows = noise[None, :samples].float() if noise is not None else None
            rows = self.noise_rows(self.noise(seed), 0, samples) if rows is None else rows
            source = self.m_source(f0, rows)[0]
        return self.decode(mel[..., : frames - ahead], source[None], finalize=finalize)[0]

    def known_f0(self, frames: int, final: bool) -> int:
        """Of how many leading frames f0 is final once `frames` are there."""
        return frames if final else max(0, frames - (3 if self.causal else 5))

    @torch.inference_mode()
    def start(
        self, *, seed: int = 0, compatible: bool = False, noise: Tensor | None = None
    ) -> WindowState | OverlapState:
        """See stages.Vocoder.start.

        compatible: v2 chunks joined like the published stream (see OverlapState); v3's published stream is exact
        already and has no such mode. noise: (N, 9) used instead of drawn or tabled rows.
        """
        drawn = self.noise(seed)
        if compatible and not self.causal:
            return OverlapState(drawn, noise)
        return WindowState(drawn, noise)

    @torch.inference_mode()
    def advance(self, state: WindowState | OverlapState, mel: Tensor, *, final: bool = False) -> Tensor:
        """See stages.Vocoder.advance."""
        return state.advance(self, mel.to(self.device, torch.float32), final)


def stretch(mel: Tensor, speed: float) -> Tensor:
    """Faster or slower speech: (M, F) -> (M, int(F / speed)), linear between frames. Whole audio only, before `whole`."""
    if speed == 1.0:
        return mel
    return F.interpolate(mel[None], size=int(mel.shape[1] / speed), mode="linear")[0]


def build_vocoder(spec: HiftSpec, weight_norm: bool = False) -> Hift:
    """The vocoder of a release, with random weights. weight_norm: keep gains and directions, for training."""
    return Hift(spec, weight_norm)
