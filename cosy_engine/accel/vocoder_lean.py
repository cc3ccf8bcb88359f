"""The vocoder in fewer operations, for capture: a window of mel to waveform, the same samples to rounding.

What differs from vocoder.hift: signals are time-major, (1, T, C), the channels-last layout of cuDNN's convolutions, so nothing is
copied between layouts and an upsampled frame lies where it belongs; convolutions pad by themselves; the F0 predictor's convolutions are fp64
matrix products, for cuDNN's fp64 convolution takes many times as long. Between convolutions either plain torch (PlainOps)
or Triton (vocoder_kernels.VocoderKernels).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.vocoder.hift import Hift
from cosy_engine.vocoder.layers import Conv, Resblock, bounded, cast
from cosy_engine.vocoder.spectrum import envelope, laid_down, stft


class Part(NamedTuple):
    """(1, T, C), and a bias (C,) that whoever reads it still has to add, before the sum is bounded; None when it is complete."""

    value: Tensor
    bias: Tensor | None = None


class PlainOps:
    """Operations between convolutions in torch."""

    def conv2d(self, x: Tensor, weight: Tensor, bias: Tensor, *how) -> tuple[Tensor, Tensor | None]:
        """A convolution, and the bias if it is left to the reader."""
        return bounded(F.conv2d(x, weight, bias, *how)), None

    def snake(self, x: Part, alpha: Tensor, dtype: torch.dtype) -> Tensor:
        """x + sin^2(alpha x) / alpha, computed in fp32, in dtype."""
        x = x.value.float()
        return cast(x + torch.sin(x * alpha).square() * (1.0 / (alpha + 1e-9)), dtype)

    def add_snake(self, x: Part, d: Part, alpha: Tensor, dtype: torch.dtype) -> tuple[Part, Tensor]:
        """x + d in fp32, and its snake in dtype."""
        total = Part(x.value + d.value)
        return total, self.snake(total, alpha, dtype)

    def sum_of_three(self, up: Part, x: Part, d: Part, reflect: bool) -> Part:
        """up + x + d in fp32. reflect: `up` has a frame less; its second frame is put before the first."""
        raised = torch.cat([up.value[:, 1:2], up.value], dim=1) if reflect else up.value
        return Part(raised.float() + (x.value + d.value))

    def mean_leaky(self, pairs: list[tuple[Part, Part]], slope: float, dtype: torch.dtype) -> Tensor:
        """Leaky ReLU of the mean of all x + d, in dtype."""
        return cast(F.leaky_relu(sum(x.value + d.value for x, d in pairs) / len(pairs), slope), dtype)


PLAIN = PlainOps()


class LeanHift:
    """Decoder, F0 predictor and excitation of one network. Lays the network's weights out anew, in place: no second copy."""

    def __init__(self, net: Hift, ops):
        self.net, self.ops, self.spec = net, ops, net.spec
        self.numbers = torch.arange(1, net.m_source.harmonics + 1, device=net.device, dtype=torch.float32)[:, None]
        for name, part in net.named_children():
            if name not in ("f0_predictor", "m_source"):
                for conv in part.modules():
                    if isinstance(conv, Conv):
                        conv.weight.data = time_last_but_one(conv.weight.data)
        for up in net.ups:
            up.phases = time_last_but_one(up.phases)
        self.up_bias = [up.bias.data.repeat(up.rate) for up in net.ups]
        self._envelopes: dict[int, Tensor] = {}

    def render(self, mel: Tensor, noise: Tensor, known: Tensor, carry: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """A window as if it were all of speech, but for its phases.

        Args: mel: (1, W, M) fp32. noise: (1, 480 W, 9). known: (W,) fp64, 0 for leading frames whose pitch is wrong because the
            window cuts off what is left of them, else 1. carry: (9, 1) fp64, the phase sums at the last of these frames, 0 without.
            start: (1,) int64, frames of speech before the window.
        Returns: (480 W,) samples and (9, W) phase sums.
        """
        f0 = self.pitch(mel)
        turns = (f0[:, None] * self.numbers / self.spec.rate_hz) % 1
        sums = (turns.double() * known).cumsum(dim=2) + carry
        before = torch.where(start == 0, sums[..., :1], carry)
        source = self.net.m_source(f0, noise, sums, before=before, start=start)
        return self.decode(mel, source)[0], sums[0]

    def pitch(self, mel: Tensor) -> Tensor:
        """(1, W, M) -> (1, W) Hz, as vocoder.f0 at the end of speech."""
        net = self.net.f0_predictor
        x = mel.to(net.classifier.weight.dtype)
        for number, conv in enumerate(net.condnet.values()):
            left, right = (0, conv.kernel_size[0] - 1) if net.causal and number == 0 else conv.pad
            taps = F.pad(x, (0, 0, left, right)).unfold(1, conv.kernel_size[0], 1).flatten(2)
            x = F.elu(F.linear(taps, conv.weight.flatten(1), conv.bias))
        return net.classifier(x)[..., 0].abs().float()

    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """(1, W, M) and (1, 480 W) excitation -> (1, 480 W), as Hift.decode at the end of speech."""
        net, ops, spec = self.net, self.ops, self.spec
        dtype = net.conv_pre.weight.dtype
        spectrum = cast(stft(source, spec.istft_n_fft, spec.istft_hop).transpose(1, 2), dtype)
        ahead = (0, spec.lookahead_frames) if net.causal else net.conv_pre.pad
        x = F.leaky_relu(convolve(PLAIN, cast(mel, dtype), net.conv_pre, ahead).value, spec.lrelu_slope)
        last, kernels = len(net.ups) - 1, len(spec.resblock_kernels)
        for i, up in enumerate(net.ups):
            phases, bias = apply(ops, x, up.phases, self.up_bias[i], up.reach)
            raised = Part(
                phases.reshape(1, x.shape[1] * up.rate, -1), bias
            )  # the bias is repeated: its first C are all
            own = self._resblock(self._down(spectrum, net.source_downs[i]), net.source_resblocks[i], dtype)
            x = ops.sum_of_three(raised, *own, i == last)
            pairs = [self._resblock(x, block, dtype) for block in net.resblocks[kernels * i : kernels * (i + 1)]]
            x = ops.mean_leaky(pairs, 0.01 if i == last else spec.lrelu_slope, dtype)
        return self._waveform(convolve(PLAIN, x, net.conv_post, net.conv_post.pad).value.float())

    def _down(self, spectrum: Tensor, conv: Conv) -> Part:
        if conv.stride[0] == 1:
            return convolve(self.ops, spectrum, conv, conv.pad)
        padded = F.pad(spectrum, (0, 0, *conv.pad)).transpose(1, 2)[:, :, None]
        y, bias = self.ops.conv2d(padded, conv.weight[:, :, None], conv.bias, (1, conv.stride[0]))
        return Part(y[:, :, 0].transpose(1, 2), bias)

    def _resblock(self, x: Part, block: Resblock, dtype: torch.dtype) -> tuple[Part, Part]:
        """(1, T, C) -> what is to be added for the result: x after two pairs, and the last pair's output."""
        ops = self.ops
        first, second = [[a.alpha for a in part] for part in (block.activations1, block.activations2)]
        d = None
        for i, (one, two) in enumerate(zip(block.convs1, block.convs2, strict=True)):
            if d is None:
                active = ops.snake(x, first[i], dtype)
            else:
                x, active = ops.add_snake(x, d, first[i], dtype)
            d = convolve(ops, ops.snake(convolve(ops, active, one, one.pad), second[i], dtype), two, two.pad)
        return x, d

    def _waveform(self, x: Tensor) -> Tensor:
        """(1, T, 2 bins) fp32 -> (1, 4 (T - 1))."""
        n_fft, hop, bins = self.spec.istft_n_fft, self.spec.istft_hop, self.spec.istft_n_fft // 2 + 1
        frames = x.shape[1]
        if frames not in self._envelopes:
            self._envelopes[frames] = envelope(frames, n_fft, hop, x.device)
        magnitude, phase = torch.exp(x[..., :bins]).clamp(max=100.0), torch.sin(x[..., bins:])
        parts = torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], dim=-1)
        y = laid_down(parts, n_fft, hop) / self._envelopes[frames]
        return y.clamp(-self.spec.audio_limit, self.spec.audio_limit)


def time_last_but_one(weight: Tensor) -> Tensor:
    """(O, I, K) with O, K, I in memory, the channels-last layout."""
    return weight.transpose(1, 2).contiguous().transpose(1, 2)


def convolve(ops, x: Tensor, conv: Conv, pad: tuple[int, int]) -> Part:
    """Stride 1, as many frames as before: (1, T, C) -> (1, T, C')."""
    return apply(ops, x, conv.weight, conv.bias, pad, conv.dilation[0])


def apply(ops, x: Tensor, weight: Tensor, bias: Tensor, pad: tuple[int, int], dilation: int = 1) -> Part:
    """The convolution pads both sides alike; what is too much is cut off as a view."""
    wide = max(pad)
    y, left = ops.conv2d(x.transpose(1, 2)[:, :, None], weight[:, :, None], bias, 1, (0, wide), (1, dilation))
    start = wide - pad[0]
    return Part(y[:, :, 0].transpose(1, 2)[:, start : start + x.shape[1]], left)
