"""Convolutions of the vocoder, channel-major (B, C, T), and the weight norm that published files carry.

A convolution works in the dtype of its weight and returns that dtype; sums and activations around it are fp32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

FP16_MAX = 65504.0


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in dtype; fp16 saturates instead of turning to infinity."""
    if x.dtype == dtype:
        return x
    return x.clamp(-FP16_MAX, FP16_MAX).to(dtype) if dtype == torch.float16 else x.to(dtype)


def bounded(x: Tensor) -> Tensor:
    """Saturate what a fp16 product overflowed (the sine of an infinity is NaN); other dtypes pass untouched."""
    return x.clamp(-FP16_MAX, FP16_MAX) if x.dtype == torch.float16 else x


class Conv(nn.Conv1d):
    """Convolution with zeros of its own choice at each side; pad = (left, right)."""

    def __init__(
        self, width_in: int, width: int, kernel: int, *, stride: int = 1, dilation: int = 1, pad: tuple[int, int]
    ):
        super().__init__(width_in, width, kernel, stride=stride, dilation=dilation)
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        x = F.pad(cast(x, weight.dtype), self.pad)
        return bounded(F.conv1d(x, weight, self.bias, self.stride, 0, self.dilation))


def by_phase(x: Tensor, phases: Tensor, bias: Tensor, rate: int, reach: tuple[int, int]) -> Tensor:
    """Upsampling with one short kernel per output phase: (B, C, T) -> (B, C', rate * T).

    phases: (rate * C', C, left + 1 + right). reach: frames that a kernel sees to the left and right of its own.
    """
    y = bounded(F.conv1d(F.pad(cast(x, phases.dtype), reach), phases, bias.repeat(rate)))
    return y.unflatten(1, (rate, -1)).permute(0, 2, 3, 1).flatten(2)


class TransposedUp(nn.ConvTranspose1d):
    """v2 upsampling: T frames to rate * T.

    After `prepare` it runs as an ordinary convolution per output phase: the same products, summed in fp32 on every
    device (some sum a transposed fp16 convolution in fp16).
    """

    phases: Tensor | None

    def __init__(self, width_in: int, width: int, kernel: int, rate: int):
        super().__init__(width_in, width, kernel, stride=rate, padding=(kernel - rate) // 2)
        self.rate, self.trim = rate, (kernel - rate) // 2
        self.reach = ((kernel - 1 - self.trim) // rate, (rate - 1 + self.trim) // rate)
        self.register_buffer("phases", None, persistent=False)

    @torch.no_grad()
    def prepare(self) -> None:
        """Sort the taps by output phase: tap j of frame i lands on sample rate * i + j - trim."""
        left, right = self.reach
        phases = self.weight.new_zeros(self.rate, self.out_channels, self.in_channels, left + 1 + right)
        for phase in range(self.rate):
            for frame in range(-left, right + 1):
                tap = phase + self.trim - self.rate * frame
                if 0 <= tap < self.kernel_size[0]:
                    phases[phase, :, :, frame + left] = self.weight[:, :, tap].T
        self.phases = phases.flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.phases is not None:
            return by_phase(x, self.phases, self.bias, self.rate, self.reach)
        weight = self.weight
        return bounded(F.conv_transpose1d(cast(x, weight.dtype), weight, self.bias, self.stride, self.padding))


class RepeatUp(nn.Conv1d):
    """v3 upsampling: every frame `rate` times, then a causal convolution.

    The repeated input is piecewise constant, so for each output phase the taps that fall on one frame can be summed
    beforehand: `rate` kernels of 3 frames instead of one of 16 taps, a third of the multiplications. `prepare` builds
    them from the finished weight; without it (training) the plain form runs.
    """

    phases: Tensor | None

    def __init__(self, width_in: int, width: int, kernel: int, rate: int):
        super().__init__(width_in, width, kernel)
        self.rate = rate
        self.reach = (-(-(kernel - 1) // rate), 0)
        self.register_buffer("phases", None, persistent=False)

    @torch.no_grad()
    def prepare(self) -> None:
        """Sum the taps that fall on one frame, per output phase, in fp64."""
        kernel, left = self.kernel_size[0], self.reach[0]
        weight = self.weight.double()
        phases = weight.new_zeros(self.rate, self.out_channels, self.in_channels, left + 1)
        for phase in range(self.rate):
            for tap in range(kernel):
                frame = (phase - (kernel - 1) + tap) // self.rate  # 0 is the current frame
                phases[phase, :, :, frame + left] += weight[:, :, tap]
        self.phases = phases.flatten(0, 1).to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.phases is not None:
            return by_phase(x, self.phases, self.bias, self.rate, self.reach)
        weight = self.weight
        x = F.pad(cast(x, weight.dtype).repeat_interleave(self.rate, dim=2), (self.kernel_size[0] - 1, 0))
        return bounded(F.conv1d(x, weight, self.bias))


class Snake(nn.Module):
    """x + sin^2(alpha x) / alpha, alpha per channel; always fp32, its sine would lose the phase in half."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        x = x.float()
        return x + torch.sin(x * alpha).square() * (1.0 / (alpha + 1e-9))


class Resblock(nn.Module):
    """Three residual pairs of convolutions; the first of each pair is dilated."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...], causal: bool):
        super().__init__()

        def conv(dilation: int) -> Conv:
            reach = (kernel - 1) * dilation
            pad = (reach, 0) if causal else (reach // 2, reach // 2)
            return Conv(channels, channels, kernel, dilation=dilation, pad=pad)

        self.convs1 = nn.ModuleList(conv(d) for d in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        for act1, conv1, act2, conv2 in zip(
            self.activations1, self.convs1, self.activations2, self.convs2, strict=True
        ):
            x = x + conv2(act2(conv1(act1(x))))
        return x


# ---- weight norm: weight = gain * direction / |direction|, norm over all axes but the first

GAIN, DIRECTION = "parametrizations.weight.original0", "parametrizations.weight.original1"


def with_weight_norm(module: nn.Module) -> None:
    """Put torch's weight norm on every convolution of `module` that has it in the published files."""
    for part in module.modules():
        if isinstance(part, Conv | TransposedUp | RepeatUp) and not parametrize.is_parametrized(part):
            parametrizations.weight_norm(part)


def folded(gain: Tensor, direction: Tensor) -> Tensor:
    """The effective weight in fp64. For a transposed convolution axis 0 is the input channel."""
    gain, direction = gain.double(), direction.double()
    return gain * direction / direction.flatten(1).norm(dim=1).reshape(gain.shape)


@torch.no_grad()
def drop_weight_norm(module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Replace every weight-normed weight by its value in dtype."""
    for part in module.modules():
        if parametrize.is_parametrized(part, "weight"):
            originals = part.parametrizations["weight"]
            weight = folded(originals.original0, originals.original1).to(dtype)
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)
            part.weight = nn.Parameter(weight, requires_grad=part.weight.requires_grad)


def current_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A published state dict with torch's present names of gain and direction, and without `generator.`."""
    renamed = {}
    for key, value in state.items():
        key = key.replace("generator.", "")
        if key.endswith(".weight_g"):
            key = f"{key[: -len('weight_g')]}{GAIN}"
        elif key.endswith(".weight_v"):
            key = f"{key[: -len('weight_v')]}{DIRECTION}"
        renamed[key] = value
    return renamed


def fold_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gains and directions of a state dict (present names) replaced by weights, fp64 for these."""
    result = {}
    for key, value in state.items():
        if key.endswith(GAIN):
            stem = key[: -len(GAIN)]
            result[f"{stem}weight"] = folded(value, state[stem + DIRECTION])
        elif not key.endswith(DIRECTION):
            result[key] = value
    return result
