"""The DiT's grouped convolutions (kernel 31) in the form that trains fastest on the device at hand.

The same numbers from the same parameters: libraries have slow backward passes for grouped convolutions of this shape, and
which form is fast depends on their version, so the forms are timed once before training.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.flow.layers import Conv

Form = Callable[[Conv, Tensor], Tensor]


def grouped(conv: Conv, x: Tensor) -> Tensor:
    """As the engine has it. x: (B, T + K - 1, C) -> (B, T, C')."""
    return F.conv1d(x.transpose(1, 2), conv.weight, conv.bias, groups=conv.groups).transpose(1, 2)


def gathered(conv: Conv, x: Tensor) -> Tensor:
    """One matrix product per group over gathered taps."""
    rows, frames, channels = x.shape
    groups, kernel = conv.groups, conv.kernel_size[0]
    x = x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x
    taps = x.view(rows, frames, groups, -1).unfold(1, kernel, 1)  # (B, T, G, C / G, K)
    taps = taps.permute(2, 0, 1, 3, 4).reshape(groups, -1, channels // groups * kernel)
    weight = conv.weight.view(groups, conv.out_channels // groups, -1).transpose(1, 2)
    out = torch.bmm(taps, weight)  # (G, B * T, C' / G)
    return out.transpose(0, 1).reshape(rows, frames - kernel + 1, -1) + conv.bias


def dense(conv: Conv, x: Tensor) -> Tensor:
    """One ungrouped convolution, channels last, whose weight is zero between the groups."""
    groups = conv.groups
    weight = conv.weight.unflatten(0, (groups, -1))  # (G, C' / G, C / G, K)
    eye = torch.eye(groups, device=x.device, dtype=weight.dtype)
    full = torch.einsum("goik,gh->gohik", weight, eye).flatten(2, 3).flatten(0, 1)  # (C', C, K)
    full = full[:, :, None].contiguous(memory_format=torch.channels_last)
    out = F.conv2d(x.transpose(1, 2)[:, :, None], full, conv.bias)  # a view of x that is channels last already
    return out[:, :, 0].transpose(1, 2)


FORMS: dict[str, Form] = {"grouped": grouped, "gathered": gathered, "dense": dense}


def step_seconds(form: Form, conv: Conv, rows: int, frames: int, repeats: int = 3) -> float:
    """Forward and backward under the precision of training."""
    device = conv.weight.device
    x = torch.randn(rows, frames + conv.kernel_size[0] - 1, conv.in_channels, device=device, requires_grad=True)

    def once():
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            form(conv, x).float().square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    once()
    start = time.perf_counter()
    for _ in range(repeats):
        once()
    conv.zero_grad(set_to_none=True)
    return (time.perf_counter() - start) / repeats


def choose(net: nn.Module, rows: int, frames: int) -> dict[str, float]:
    """Give every grouped convolution of `net` its fastest form for training; seconds of each form.

    Instances are changed, not the class: `restore` puts the engine's own form back.
    """
    convs = [m for m in net.modules() if isinstance(m, Conv) and m.groups > 1]
    took = {name: step_seconds(form, convs[0], rows, frames) for name, form in FORMS.items()}
    best = FORMS[min(took, key=took.get)]
    for conv in convs:
        conv.valid = partial(best, conv)
    return took


def restore(net: nn.Module) -> None:
    """Undo `choose`."""
    for module in net.modules():
        module.__dict__.pop("valid", None)
