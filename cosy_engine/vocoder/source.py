"""The excitation: nine harmonics of the pitch plus noise, at sample rate; and where that noise comes from."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn

from cosy_engine.errors import TextTooLong
from cosy_engine.settings.model_spec import HiftSpec

MAX_SAMPLES = 7_200_000  # rows of the published noise table: 300 s
FIRST_ROWS = 30 * 24_000
BLOCK_ROWS = 24_000


class Source(nn.Module):
    """f0 to excitation. Phases are sums over all frames since the start, so a stream carries them in fp64."""

    def __init__(self, spec: HiftSpec):
        super().__init__()
        self.spec, self.harmonics = spec, spec.harmonics + 1
        self.frame_samples = frame_samples(spec)
        self.l_linear = nn.Linear(self.harmonics, 1)

    def phase_sums(self, f0: Tensor, before: Tensor | None = None) -> Tensor:
        """Turns per sample, summed over frames: (B, F) Hz -> (B, 9, F) fp64, inclusive.

        before: (B, 9, 1) fp64, the sum after the frame before the first.
        The terms are fp32 like in the published model, only their sum is not.
        """
        numbers = torch.arange(1, self.harmonics + 1, device=f0.device, dtype=torch.float32)
        turns = (f0[:, None] * numbers[:, None] / self.spec.rate_hz) % 1
        sums = turns.double().cumsum(dim=2)
        return sums if before is None else sums + before

    @torch.no_grad()
    def excite(
        self,
        f0: Tensor,
        sums: Tensor,
        noise: Tensor,
        before: Tensor | None = None,
        after: Tensor | None = None,
        start: int | Tensor = 0,
    ) -> Tensor:
        """Harmonics with noise: (B, N, 9) fp32, N = 480 F.

        Args: f0: (B, F) Hz. sums: (B, 9, F) phase_sums. noise: (B, N, 9). start: frames of the utterance before these
            (a (1,) int64 tensor in a captured graph).
            before, after: (B, 9, 1) sums of the neighbouring frames; None at the ends of speech. v3 needs neither.
        Phases are rounded to fp32 in the published order: after some seconds that rounding is larger than anything
        else that separates two implementations (0.01 rad at 1e5 rad), and parity is worth more than its absence.
        """
        spec, n = self.spec, self.frame_samples

        def phase(turns: Tensor) -> Tensor:
            return turns.float() * 2 * torch.pi * n

        if spec.causal:
            # v3: the phase stands still within a frame; the network was trained with this staircase
            sine = torch.sin(phase(sums)).repeat_interleave(n, dim=2)
        else:
            # v2: linear between frame centres. The place of a sample counts from the start of speech, also in a chunk,
            # for its rounding is part of the published phase
            before = sums[..., :1] if before is None else before
            after = sums[..., -1:] if after is None else after
            around = phase(torch.cat([before, sums, after], dim=2))
            sample = (torch.arange(f0.shape[1] * n, device=f0.device) + start * n).float()
            place = ((sample + 0.5) * (1 / n) - 0.5).clamp(min=0)
            frame = place.floor()
            share, index = place - frame, (frame - (start - 1)).long()
            sine = torch.sin((1 - share) * around[..., index] + share * around[..., index + 1])
        sine = sine.transpose(1, 2)
        voiced = (f0 > spec.voiced_threshold_hz).float().repeat_interleave(n, dim=1)[..., None]
        loudness = voiced * spec.noise_sigma + (1 - voiced) * spec.sine_amplitude / 3
        return sine * spec.sine_amplitude * voiced + loudness * noise

    def forward(self, f0: Tensor, noise: Tensor, sums: Tensor | None = None, **place) -> Tensor:
        """(B, F) Hz and (B, N, 9) noise -> (B, N) in (-1, 1). place: before, after, start of excite, for chunks."""
        sums = self.phase_sums(f0) if sums is None else sums
        return torch.tanh(self.l_linear(self.excite(f0, sums, noise, **place)))[..., 0]


def frame_samples(spec: HiftSpec) -> int:
    """Samples that one mel frame becomes (480)."""
    total = spec.istft_hop
    for rate in spec.upsample_rates:
        total *= rate
    return total


class FixedNoise:
    """v3's noise table: uniform in [0, 1), row n for sample n of every utterance. Not in the checkpoint.

    Its numbers follow from the order in which the published configuration draws from the CPU generator after seeding
    with 0: the flow's noise, flow embedding and speaker layer, the F0 predictor's layers, nine phases, then the table.
    Uniform draws have the prefix property, so only as many rows are made as were asked for. All of it: 259 MB.
    """

    def __init__(self, harmonics: int):
        self.harmonics = harmonics
        self.lock = threading.Lock()
        self.generator = torch.Generator("cpu").manual_seed(0)
        self.tables: dict[torch.device, Tensor] = {}
        self.drawn: list[Tensor] = []
        # sizes of the published configuration, whatever the size of the model at hand
        self._normal(80 * 15000)
        self._normal(6561 * 80)
        self._uniform(80 * 192 + 80)
        self._uniform(512 * 80 * 4 + 512)
        for _ in range(4):
            self._uniform(512 * 512 * 3 + 512)
        self._uniform(512 + 1)
        self.first_phases = self._uniform(harmonics)

    def _normal(self, count: int) -> Tensor:
        return torch.empty(count, device="cpu", dtype=torch.float32).normal_(generator=self.generator)

    def _uniform(self, count: int) -> Tensor:
        return torch.empty(count, device="cpu", dtype=torch.float32).uniform_(generator=self.generator)

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """(1, stop - start, 9) fp32 on device.

        Raises: TextTooLong: beyond 300 s.
        """
        if stop > MAX_SAMPLES:
            raise TextTooLong(
                f"{stop / 24000:.0f} s of speech in one piece, at most {MAX_SAMPLES // 24000} s are possible: split the text"
            )
        table = self.tables.get(device)
        if table is None or table.shape[0] < stop:
            table = self._grow(stop, device)
        return table[None, start:stop]

    def _grow(self, stop: int, device: torch.device) -> Tensor:
        with self.lock, torch.inference_mode(False):
            have = sum(part.shape[0] for part in self.drawn)
            if have < stop:
                more = min(max(stop, 2 * have, FIRST_ROWS), MAX_SAMPLES) - have
                self.drawn.append(self._uniform(more * self.harmonics).reshape(more, self.harmonics))
            self.drawn = [torch.cat(self.drawn)] if len(self.drawn) > 1 else self.drawn
            self.tables[device] = self.drawn[0].to(device)
            return self.tables[device]


@cache
def fixed_noise(harmonics: int) -> FixedNoise:
    """The table is the same for every model and stream of the process."""
    return FixedNoise(harmonics)


@dataclass(slots=True)
class DrawnNoise:
    """v2's noise: standard normal from a generator of its own, addressed by sample.

    Drawn in blocks of one second, so what sample n gets does not depend on how a stream is cut. Reproducible per
    device kind, not across kinds.
    """

    harmonics: int
    seed: int
    device: torch.device
    generator: torch.Generator = field(init=False)
    first: int = 0  # sample of the first row kept
    kept: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        self.kept = torch.empty(0, self.harmonics, device=self.device)

    def rows(self, start: int, stop: int, forget: bool = False) -> Tensor:
        """(1, stop - start, 9). forget: rows before `start` will not be asked for again."""
        missing = stop - (self.first + self.kept.shape[0])
        if missing > 0:
            blocks = [
                torch.randn(BLOCK_ROWS, self.harmonics, generator=self.generator, device=self.device)
                for _ in range(-(-missing // BLOCK_ROWS))
            ]
            self.kept = torch.cat([self.kept, *blocks])
        rows = self.kept[start - self.first : stop - self.first]
        if forget:
            self.kept, self.first = self.kept[start - self.first :], start
        return rows[None]
