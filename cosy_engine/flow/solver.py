"""Noise to mel: Euler steps along the velocity, with classifier-free guidance, from a fixed noise table."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from cosy_engine.errors import TextTooLong
from cosy_engine.flow.dit import DiT
from cosy_engine.flow.layers import StreamCache
from cosy_engine.flow.unet import UNet
from cosy_engine.settings.model_spec import FlowSpec, UNetSpec

NOISE_FRAMES = 15000  # columns of the published table: 300 s, prompt included
FRAMES_PER_S = 50


@cache
def noise_table(mel_bins: int, device: torch.device) -> Tensor:
    """The start values of every frame, (15000, M) fp32, one copy per device.

    Frame t always starts from row t, so chunks of one utterance and rows of one batch agree. The published models draw
    it as (1, M, 15000) after seeding with 0; a private generator gives the same numbers and leaves the global one alone.
    """
    with torch.inference_mode(False):  # a cached inference tensor could not be used in training later
        draw = torch.randn(
            1,
            mel_bins,
            NOISE_FRAMES,
            generator=torch.Generator("cpu").manual_seed(0),
            device="cpu",
            dtype=torch.float32,
        )
        return draw[0].T.contiguous().to(device)


def start_noise(mel_bins: int, start: int, frames: int, device: torch.device) -> Tensor:
    """(frames, M) start values of frames start .. start+frames-1.

    Raises: TextTooLong: the table ends before.
    """
    if start + frames > NOISE_FRAMES:
        raise TextTooLong(
            f"reference and speech together need {(start + frames) / FRAMES_PER_S:.0f} s, at most "
            f"{NOISE_FRAMES // FRAMES_PER_S} s can be made in one piece: split the text or use a shorter reference"
        )
    return noise_table(mel_bins, device)[start : start + frames]


def cosine_schedule(steps: int) -> tuple[list[float], list[float]]:
    """Times of the evaluations and the step sizes, as fp32 values: t_k = 1 - cos(pi/2 k/steps).

    t is accumulated like in the published solver, so it equals t_k only to rounding.
    """
    span = 1 - torch.cos(torch.linspace(0, 1, steps + 1, device="cpu", dtype=torch.float32) * 0.5 * torch.pi)
    t, dt = span[0], span[1] - span[0]
    times, sizes = [], []
    for k in range(1, steps + 1):
        times.append(t.item())
        sizes.append(dt.item())
        t = t + dt
        dt = span[min(k + 1, steps)] - t
    return times, sizes


def euler(x: Tensor, velocity: Callable[[int, Tensor], Tensor], sizes: list[float], cfg_rate: float) -> Tensor:
    """Integrate x (B, T, M), fp32.

    velocity(k, xx) gets the state twice, (2B, T, M), and returns conditional rows first, then unconditional ones.
    """
    for k, dt in enumerate(sizes):
        given, free = velocity(k, torch.cat([x, x])).chunk(2)
        x = x + dt * ((1.0 + cfg_rate) * given - cfg_rate * free)
    return x


class FlowSolver(nn.Module):
    """The velocity estimator and its integration; published under the name `decoder`."""

    table: Tensor | None

    def __init__(self, spec: FlowSpec):
        super().__init__()
        kind = UNet if isinstance(spec.estimator, UNetSpec) else DiT
        self.estimator = kind(spec.estimator, spec.mel_bins)
        self.cfg_rate = spec.cfg_rate
        self.times, self.sizes = cosine_schedule(spec.steps)
        self.register_buffer("table", None, persistent=False)

    def time_table(self) -> Tensor:
        """What the estimator makes of the solver's fixed times, (steps, slots, width) fp32.

        Built once by Flow.finish_loading; before that (and in training, where weights move) computed anew.
        """
        if self.table is not None:
            return self.table
        device = next(self.estimator.parameters()).device
        return self.estimator.modulation(torch.tensor(self.times, device=device))

    def init_caches(self, capacity: int) -> list[StreamCache]:
        """One cache per solver step for one stream; two rows, conditional and unconditional."""
        like = self.estimator.final_proj.weight if isinstance(self.estimator, UNet) else self.estimator.proj_out.weight
        return [self.estimator.plan.new(2, capacity, like) for _ in self.times]

    def forward(
        self,
        noise: Tensor,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        mask: Tensor | None = None,
        *,
        start: int = 0,
        caches: list[StreamCache] | None = None,
    ) -> Tensor:
        """Mel of B rows.

        Args: noise: (B, T, M) fp32. mu, cond: (B, T, M). speaker: (B, M). mask: attention_mask for B or 1 rows.
            start: frame index of the first frame. caches: of the frames before (init_caches), moved on.
        Returns: (B, T, M) fp32.
        """
        mu, cond, speaker = (torch.cat([c, torch.zeros_like(c)]) for c in (mu, cond, speaker))
        if mask is not None and mask.shape[0] > 1:
            mask = torch.cat([mask, mask])
        table = self.time_table()
        positions = self.estimator.positions(start, noise.shape[1])

        def velocity(k: int, x: Tensor) -> Tensor:
            return self.estimator(
                x,
                mu,
                speaker,
                cond,
                table[k : k + 1],
                mask=mask,
                positions=positions,
                cache=caches[k] if caches else None,
            )

        return euler(noise, velocity, self.sizes, self.cfg_rate)
