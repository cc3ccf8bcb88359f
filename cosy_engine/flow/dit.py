"""v3 velocity estimator: a diffusion transformer whose norms are modulated by the flow time (adaLN)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.flow.layers import (
    CachePlan,
    Conv,
    Dense,
    StreamCache,
    bounded,
    cast,
    full_precision,
    merge_heads,
    split_heads,
    time_features,
)
from cosy_engine.settings.model_spec import DiTSpec

TIME_FEATURES = 256
POSITION_KERNEL, POSITION_GROUPS = 31, 16


def modulated(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Norm without weights of its own; scale and shift (B or 1, D) come from the time."""
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def rotate(x: Tensor, angles: tuple[Tensor, Tensor], width: int) -> Tensor:
    """Rotary embedding of the first `width` features of x (B, T, C), interleaved pairs, in fp32.

    The published model rotates before it splits heads, so only the first head knows where it is.
    """
    cos, sin = angles
    even, odd = x[..., :width].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([turned.to(x.dtype), x[..., width:]], dim=-1)


class Attention(nn.Module):
    def __init__(self, spec: DiTSpec, plan: CachePlan):
        super().__init__()
        inner = spec.heads * spec.head_dim
        self.heads, self.head_dim, self.slot = spec.heads, spec.head_dim, plan.attention()
        self.to_q, self.to_k, self.to_v = (Dense(spec.dim, inner) for _ in range(3))
        self.to_out = nn.ModuleList([Dense(inner, spec.dim)])

    def forward(
        self, x: Tensor, mask: Tensor | None, angles: tuple[Tensor, Tensor], cache: StreamCache | None
    ) -> Tensor:
        x = cast(x, self.to_q.weight.dtype)
        q = split_heads(rotate(self.to_q(x), angles, self.head_dim), self.heads)
        k = split_heads(rotate(self.to_k(x), angles, self.head_dim), self.heads)
        v = split_heads(self.to_v(x), self.heads)
        if cache is not None:
            k, v = cache.extend(self.slot, k, v)
        return bounded(self.to_out[0](merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))))


class Block(nn.Module):
    def __init__(self, spec: DiTSpec, plan: CachePlan):
        super().__init__()
        self.attn_norm = nn.ModuleDict({"linear": Dense(spec.dim, 6 * spec.dim)})
        self.attn = Attention(spec, plan)
        wide = nn.ModuleList([Dense(spec.dim, spec.ff_mult * spec.dim)])
        self.ff = nn.ModuleDict({"ff": nn.ModuleDict({"0": wide, "2": Dense(spec.ff_mult * spec.dim, spec.dim)})})

    def forward(
        self,
        x: Tensor,
        modulation: Tensor,
        mask: Tensor | None,
        angles: tuple[Tensor, Tensor],
        cache: StreamCache | None,
    ) -> Tensor:
        """x: (B, T, D). modulation: (B or 1, 6, D) = shift, scale, gate of attention, then of the feed-forward."""
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = modulation.unbind(1)
        x = x + gate_a[:, None] * self.attn(modulated(x, scale_a, shift_a), mask, angles, cache)
        ff = self.ff["ff"]
        hidden = F.gelu(bounded(ff["0"][0](modulated(x, scale_f, shift_f))), approximate="tanh")
        return x + gate_f[:, None] * bounded(ff["2"](hidden))


class InputEmbedding(nn.Module):
    """Joins what is known of a frame, and adds a convolutional position embedding of the 60 frames before."""

    def __init__(self, dim: int, mel_bins: int, plan: CachePlan):
        super().__init__()
        self.proj = Dense(4 * mel_bins, dim)
        convs = {
            name: nn.ModuleList([Conv(dim, dim, POSITION_KERNEL, groups=POSITION_GROUPS).planned(plan)])
            for name in ("conv1", "conv2")
        }
        self.conv_pos_embed = nn.ModuleDict(convs)

    def forward(self, x: Tensor, cache: StreamCache | None) -> Tensor:
        h = bounded(self.proj(x)).float()
        y = F.mish(self.conv_pos_embed["conv1"][0](h, cache))
        return h + F.mish(self.conv_pos_embed["conv2"][0](y, cache))


class DiT(nn.Module):
    """velocity = f(x, mu, speaker, cond, time)."""

    def __init__(self, spec: DiTSpec, mel_bins: int):
        super().__init__()
        self.dim, self.head_dim = spec.dim, spec.head_dim
        self.plan = plan = CachePlan(spec.heads, spec.head_dim)
        mlp = {"0": Dense(TIME_FEATURES, spec.dim), "2": Dense(spec.dim, spec.dim)}
        self.time_embed = nn.ModuleDict({"time_mlp": nn.ModuleDict(mlp)})
        self.input_embed = InputEmbedding(spec.dim, mel_bins, plan)
        self.rotary_embed = nn.Module()
        # persistent, because the published file holds it; made with the formula so that a random model works too
        rates = 1.0 / 10000.0 ** (torch.arange(0, spec.head_dim, 2).float() / spec.head_dim)
        self.rotary_embed.register_buffer("inv_freq", rates)
        self.transformer_blocks = nn.ModuleList(Block(spec, plan) for _ in range(spec.depth))
        self.norm_out = nn.ModuleDict({"linear": Dense(spec.dim, 2 * spec.dim)})
        self.proj_out = Dense(spec.dim, mel_bins)

    def time_layers(self) -> list[Dense]:
        """The layers that only `modulation` needs: the time's own two, then one for each norm."""
        mlp = self.time_embed["time_mlp"]
        norms = [*(block.attn_norm["linear"] for block in self.transformer_blocks), self.norm_out["linear"]]
        return [mlp["0"], mlp["2"], *norms]

    def modulation(self, t: Tensor) -> Tensor:
        """All that depends on the time alone: (B,) -> (B, 6 * depth + 2, D) fp32.

        Six vectors per block (see Block), then scale and shift of the output norm, in this order.
        """
        first, second, *layers = self.time_layers()
        tau = full_precision(second, F.silu(full_precision(first, time_features(t, TIME_FEATURES))))
        tau = F.silu(tau)
        return torch.cat([full_precision(layer, tau).unflatten(-1, (-1, self.dim)) for layer in layers], dim=1)

    def positions(self, start: int, frames: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine, (T, head_dim / 2) each, of frames start .. start+frames-1 counted from the prompt's first."""
        rates = self.rotary_embed.inv_freq.float()
        angles = torch.arange(start, start + frames, device=rates.device, dtype=torch.float32)[:, None] * rates
        return angles.cos(), angles.sin()

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        modulation: Tensor,
        *,
        mask: Tensor | None = None,
        positions: tuple[Tensor, Tensor] | None = None,
        cache: StreamCache | None = None,
    ) -> Tensor:
        """Velocity of B rows, fp32.

        Args: x, mu, cond: (B, T, M). speaker: (B, M). modulation: (B or 1, 6 * depth + 2, D).
            mask: see layers.attention_mask. positions: `positions(start, T)`, None for start 0.
            cache: earlier frames of the stream at this solver step, moved on by T.
        Returns: (B, T, M); padded frames hold garbage.
        """
        if cache is not None:
            cache.reserve(x.shape[1])
        if positions is None:
            positions = self.positions(cache.length if cache else 0, x.shape[1])
        h = self.input_embed(torch.cat([x, cond, mu, speaker[:, None].expand_as(x)], dim=-1), cache)
        for i, block in enumerate(self.transformer_blocks):
            h = block(h, modulation[:, 6 * i : 6 * i + 6], mask, positions, cache)
        scale, shift = modulation[:, -2:].unbind(1)
        v = self.proj_out(modulated(h, scale, shift)).float()
        if cache is not None:
            cache.length += x.shape[1]
        return v
