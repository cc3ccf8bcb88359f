"""The DiT's evaluation in fewer plain operations, for capture: the same numbers to rounding, whole utterances only.

What differs from flow.dit: q, k, v are one product; the modulation `1 + scale` comes from a table made once; modulation, gate
and the way into half precision are one operation each; rotary turns the first head in place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class LeanDiT:
    """Callable like flow.dit.DiT without its cache. Fuses the model's weights in place: no second copy."""

    def __init__(self, dit):
        self.dit, self.dim, self.head_dim = dit, dit.dim, dit.head_dim
        self.heads = dit.plan.heads
        self.blocks = [self._fuse(block) for block in dit.transformer_blocks]
        self._turns: dict[int, Tensor] = {}

    @staticmethod
    def _fuse(block) -> tuple[Tensor, ...]:
        attention, ff = block.attn, block.ff["ff"]
        parts = (attention.to_q, attention.to_k, attention.to_v)
        weight = torch.cat([part.weight.data for part in parts])
        bias = torch.cat([part.bias.data for part in parts])
        for i, part in enumerate(parts):
            size = len(part.weight)
            part.weight.data = weight[i * size : (i + 1) * size]
            part.bias.data = bias[i * size : (i + 1) * size]
        wide, narrow, out = ff["0"][0], ff["2"], attention.to_out[0]
        return (
            weight,
            bias,
            out.weight.data,
            out.bias.data,
            wide.weight.data,
            wide.bias.data,
            narrow.weight.data,
            narrow.bias.data,
        )

    def modulation_table(self, table: Tensor) -> Tensor:
        """(steps, 6 depth + 2, D) as flow.dit makes it, with 1 added to every scale."""
        table = table.clone()
        scales = [i for i in range(table.shape[1] - 2) if i % 6 in (1, 4)] + [table.shape[1] - 2]
        table[:, scales] += 1
        return table

    def turns(self, frames: int) -> Tensor:
        """(F, 1, head_dim / 2) complex rotations of frames 0 .. F-1."""
        if frames not in self._turns:
            cos, sin = self.dit.positions(0, frames)
            self._turns[frames] = torch.complex(cos, sin)[:, None]
        return self._turns[frames]

    def __call__(
        self, x: Tensor, mu: Tensor, speaker: Tensor, cond: Tensor, modulation: Tensor, mask: Tensor | None
    ) -> Tensor:
        """x, mu, cond: (B, F, M) fp32. speaker: (B, M). modulation: (1, 6 depth + 2, D) of modulation_table. -> (B, F, M)."""
        rows, frames, _ = x.shape
        turn = self.turns(frames)
        h = self.dit.input_embed(torch.cat([x, cond, mu, speaker[:, None].expand_as(x)], dim=-1), None)
        dtype = self.blocks[0][0].dtype
        for i, (qkv, qkv_bias, out, out_bias, wide, wide_bias, narrow, narrow_bias) in enumerate(self.blocks):
            shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = modulation[:, 6 * i : 6 * i + 6].unbind(1)
            mixed = F.linear(_modulated(h, scale_a, shift_a, dtype), qkv, qkv_bias)
            mixed = mixed.view(rows, frames, 3, self.heads, self.head_dim)
            first = mixed[:, :, :2, 0]  # only the first head of q and k knows where it is
            turned = torch.view_as_complex(first.float().unflatten(-1, (-1, 2))) * turn
            first.copy_(torch.view_as_real(turned).flatten(-2))
            query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
            heard = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            heard = F.linear(heard.transpose(1, 2).reshape(rows, frames, -1), out, out_bias)
            h = torch.addcmul(h, gate_a[:, None], heard)
            hidden = F.linear(_modulated(h, scale_f, shift_f, dtype), wide, wide_bias)
            hidden = F.linear(F.gelu(hidden, approximate="tanh"), narrow, narrow_bias)
            h = torch.addcmul(h, gate_f[:, None], hidden)
        scale, shift = modulation[:, -2:].unbind(1)
        return self.dit.proj_out(_modulated(h, scale, shift, dtype)).float()


def _modulated(h: Tensor, scale: Tensor, shift: Tensor, dtype: torch.dtype) -> Tensor:
    """(LN(h) * scale + shift) in `dtype`; scale already holds its 1."""
    normed = F.layer_norm(h, h.shape[-1:], eps=1e-6)
    return torch.addcmul(shift[:, None], normed, scale[:, None], out=torch.empty_like(normed, dtype=dtype))
