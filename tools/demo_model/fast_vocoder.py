"""The engine's vocoder made fast for training on a GPU: the same modules and parameters, other kernels.

Convolutions run in bfloat16 with their zeros padded by the convolution itself, and Snake is one Triton kernel each way.
The first and the last convolution, the pitch predictor, the excitation and the transforms stay float32: the last
convolution gives logarithms of magnitudes, for which bfloat16 is too coarse.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.vocoder import Hift
from cosy_engine.vocoder.layers import Conv, Snake, TransposedUp


def _conv(conv: Conv, dtype: torch.dtype, x: Tensor) -> Tensor:
    left, right = conv.pad
    if left != right:
        x, left = F.pad(x, conv.pad), 0
    bias = conv.bias.to(dtype)
    return F.conv1d(x.to(dtype), conv.weight.to(dtype), bias, conv.stride, left, conv.dilation)


def _up(up: TransposedUp, dtype: torch.dtype, x: Tensor) -> Tensor:
    weight, bias = up.weight.to(dtype), up.bias.to(dtype)
    return F.conv_transpose1d(x.to(dtype), weight, bias, up.stride, up.padding)


def speed_up(net: Hift, dtype: torch.dtype = torch.bfloat16, fused_snake: bool = True) -> Hift:
    """Replace the forward of the decoder's layers in place. `slow_down` takes it back."""
    for name, part in net.named_children():
        if name in ("conv_pre", "conv_post", "f0_predictor", "m_source"):
            continue
        for layer in part.modules():
            if isinstance(layer, Snake) and fused_snake:
                from tools.demo_model.snake_kernel import snake

                layer.forward = partial(snake, alpha=layer.alpha, dtype=dtype)
            elif isinstance(layer, Conv):
                layer.forward = partial(_conv, layer, dtype)
            elif isinstance(layer, TransposedUp):
                layer.forward = partial(_up, layer, dtype)
    return net


def slow_down(net: Hift) -> Hift:
    """The engine's own forward again, for gates."""
    for layer in net.modules():
        layer.__dict__.pop("forward", None)
    return net
