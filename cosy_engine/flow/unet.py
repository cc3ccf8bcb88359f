"""v2 velocity estimator: causal convolutions and transformer blocks at one width and one rate (50 Hz)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.flow.layers import (
    CachePlan,
    Conv,
    Dense,
    Norm,
    StreamCache,
    bounded,
    full_precision,
    merge_heads,
    split_heads,
    time_features,
)
from cosy_engine.settings.model_spec import UNetSpec


class CausalBlock(nn.Module):
    """Causal convolution of kernel 3, norm over channels, Mish."""

    def __init__(self, width_in: int, width: int, plan: CachePlan):
        super().__init__()
        self.block = nn.ModuleDict({"0": Conv(width_in, width, 3).planned(plan), "2": Norm(width)})

    def forward(self, x: Tensor, cache: StreamCache | None) -> Tensor:
        return F.mish(self.block["2"](self.block["0"](x, cache)))


class Resnet(nn.Module):
    """Two causal blocks with the time's bias between them, and a shortcut."""

    def __init__(self, width_in: int, width: int, time_width: int, plan: CachePlan):
        super().__init__()
        self.mlp = nn.ModuleDict({"1": Dense(time_width, width)})
        self.block1 = CausalBlock(width_in, width, plan)
        self.block2 = CausalBlock(width, width, plan)
        self.res_conv = Conv(width_in, width, 1)

    def forward(self, x: Tensor, time_bias: Tensor, cache: StreamCache | None) -> Tensor:
        """x: (B, T, C). time_bias: (B or 1, width), what `mlp` makes of the flow time."""
        y = self.block1(x, cache) + time_bias[:, None]
        return self.block2(y, cache) + self.res_conv(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, head_dim: int, plan: CachePlan):
        super().__init__()
        self.heads, self.slot = heads, plan.attention()
        self.to_q, self.to_k, self.to_v = (Dense(width, heads * head_dim, bias=False) for _ in range(3))
        self.to_out = nn.ModuleList([Dense(heads * head_dim, width)])

    def forward(self, x: Tensor, mask: Tensor | None, cache: StreamCache | None) -> Tensor:
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.to_q, self.to_k, self.to_v))
        if cache is not None:
            k, v = cache.extend(self.slot, k, v)
        return bounded(self.to_out[0](merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))))


class TransformerBlock(nn.Module):
    """Pre-norm attention without positions, and a feed-forward four times as wide."""

    def __init__(self, width: int, heads: int, head_dim: int, plan: CachePlan):
        super().__init__()
        self.norm1, self.norm3 = Norm(width), Norm(width)
        self.attn1 = Attention(width, heads, head_dim, plan)
        wide = nn.ModuleDict({"proj": Dense(width, 4 * width)})
        self.ff = nn.ModuleDict({"net": nn.ModuleDict({"0": wide, "2": Dense(4 * width, width)})})

    def forward(self, x: Tensor, mask: Tensor | None, cache: StreamCache | None) -> Tensor:
        x = x + self.attn1(self.norm1(x), mask, cache)
        net = self.ff["net"]
        return x + bounded(net["2"](F.gelu(bounded(net["0"]["proj"](self.norm3(x))))))


class UNet(nn.Module):
    """velocity = f(x, mu, speaker, cond, time). The published "down" and "up" slots are plain convolutions."""

    def __init__(self, spec: UNetSpec, mel_bins: int):
        super().__init__()
        width, self.time_features = spec.channels, 4 * mel_bins
        time_width = 4 * width
        self.plan = plan = CachePlan(spec.heads, spec.head_dim)
        self.time_mlp = nn.ModuleDict(
            {"linear_1": Dense(self.time_features, time_width), "linear_2": Dense(time_width, time_width)}
        )

        def stage(width_in: int, conv: bool) -> nn.ModuleList:
            blocks = nn.ModuleList(TransformerBlock(width, spec.heads, spec.head_dim, plan) for _ in range(spec.blocks))
            parts = [Resnet(width_in, width, time_width, plan), blocks]
            return nn.ModuleList([*parts, Conv(width, width, 3).planned(plan)] if conv else parts)

        self.down_blocks = nn.ModuleList([stage(4 * mel_bins, True)])
        self.mid_blocks = nn.ModuleList(stage(width, False) for _ in range(spec.mid_blocks))
        self.up_blocks = nn.ModuleList([stage(2 * width, True)])
        self.final_block = CausalBlock(width, width, plan)
        self.final_proj = Conv(width, mel_bins, 1)

    def _stages(self) -> list[nn.ModuleList]:
        return [*self.down_blocks, *self.mid_blocks, *self.up_blocks]

    def time_layers(self) -> list[Dense]:
        """The layers that only `modulation` needs: the time's own two, then one for each resnet."""
        return [self.time_mlp["linear_1"], self.time_mlp["linear_2"], *(stage[0].mlp["1"] for stage in self._stages())]

    def modulation(self, t: Tensor) -> Tensor:
        """All that depends on the time alone: (B,) -> (B, stages, width), the bias of each resnet. fp32."""
        first, second, *layers = self.time_layers()
        tau = full_precision(first, time_features(t, self.time_features))
        tau = F.mish(full_precision(second, F.silu(tau)))
        return torch.stack([full_precision(layer, tau) for layer in layers], dim=1)

    def positions(self, start: int, frames: int) -> None:
        """This estimator has no positional encoding; the call is there for its sibling."""
        return None

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        modulation: Tensor,
        *,
        mask: Tensor | None = None,
        positions: None = None,
        cache: StreamCache | None = None,
    ) -> Tensor:
        """Velocity of B rows, fp32.

        Args: x, mu, cond: (B, T, M). speaker: (B, M). modulation: (B or 1, stages, width).
            mask: see layers.attention_mask. cache: earlier frames of the stream at this solver step, moved on by T.
        Returns: (B, T, M); padded frames hold garbage (causal convolutions: they reach no valid frame).
        """
        if cache is not None:
            cache.reserve(x.shape[1])
        h = torch.cat([x, mu, speaker[:, None].expand_as(x), cond], dim=-1)
        skip = None
        last = len(self.mid_blocks) + 1
        for i, stage in enumerate(self._stages()):
            if i == last:
                h = torch.cat([h, skip], dim=-1)
            h = stage[0](h, modulation[:, i], cache)
            for block in stage[1]:
                h = block(h, mask, cache)
            if i == 0:
                skip = h
            if len(stage) == 3:
                h = stage[2](h, cache).float()
        v = self.final_proj(self.final_block(h, cache)).float()
        if cache is not None:
            cache.length += x.shape[1]
        return v
