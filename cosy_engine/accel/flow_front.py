"""v2's front network in fewer operations, for capture: the same numbers to rounding, whole utterances only.

What differs from flow.encoder: one product makes q with each of its two biases (scaled for attention), k and v; what the layers
make of distances is a table, made once for the longest bucket; the scores of distances are moved to their keys by strides.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.flow.encoder import ConformerFront, relative_positions


class PlainFront:
    """The front network as it is. Callable: (ids (1, n), tokens there, tokens that are keys, tokens of a block; (1,) each) -> (1, F, M)."""

    def __init__(self, flow):
        self.flow = flow

    def __call__(self, ids: Tensor, there: Tensor, ready: Tensor, block: Tensor) -> Tensor:
        mu = self.flow.condition(ids, there, streaming=block, finalize=False, ready=ready)
        return mu.transpose(1, 2)


class LeanConformer:
    """Callable like PlainFront. frames: of the longest bucket."""

    def __init__(self, flow, ops, frames: int):
        self.flow, self.ops, self.front = flow, ops, flow.encoder
        self.lower = [LeanLayer(layer, frames // 2) for layer in self.front.encoders]
        self.upper = [LeanLayer(layer, frames) for layer in self.front.up_encoders]

    def __call__(self, ids: Tensor, there: Tensor, ready: Tensor, block: Tensor) -> Tensor:
        front = self.front
        x = front.embed(self.flow.input_embedding(ids.clamp(min=0)))
        x = x * (torch.arange(x.shape[1], device=x.device)[None, :, None] < there)
        x = self._layers(self.lower, front.pre_lookahead_layer(x), ready, block)
        x = front.up_layer["conv"](x.repeat_interleave(2, dim=1))
        x = self._layers(self.upper, front.up_embed(x), 2 * ready, 2 * block, front.after_norm)
        return self.flow.encoder_proj(x).float()

    def _layers(self, layers: list[LeanLayer], h: Tensor, ready: Tensor, block: Tensor, last=None) -> Tensor:
        """h: (1, F, C) fp32, may be changed in place; through all layers, and the norm `last` if there is one."""
        ops, dtype, add = self.ops, self.flow.encoder_proj.weight.dtype, None
        visible = ops.limits(ready, block, h.shape[1], h.device)
        for layer in layers:
            norm = layer.norm_mha
            h, normed = ops.add_norm(h, add, None, norm.weight, norm.bias, norm.eps, dtype)
            heard = layer.out(ops.attention_by_distance(layer.mix(normed), layer.distances(h.shape[1]), visible))
            norm = layer.norm_ff
            h, normed = ops.add_norm(h, heard, None, norm.weight, norm.bias, norm.eps, dtype)
            add = layer.narrow(F.silu(layer.wide(normed)))
        if last is None:
            return h + add
        return ops.add_norm(h, add, None, last.weight, last.bias, last.eps, dtype)[1]


class LeanLayer:
    """Weights of a conformer layer as its products take them, and its table of distances."""

    def __init__(self, layer, frames: int):
        attention, feed = layer.self_attn, layer.feed_forward
        self.norm_mha, self.norm_ff = layer.norm_mha, layer.norm_ff
        self.out, self.wide, self.narrow = attention.linear_out, feed["w_1"], feed["w_2"]
        self.heads, self.frames = attention.heads, frames
        q, k, v = attention.linear_q, attention.linear_k, attention.linear_v
        scale = 1 / math.sqrt(q.out_features // self.heads)
        with torch.no_grad():
            self.weight = torch.cat([q.weight * scale, q.weight * scale, k.weight, v.weight])
            biases = [q.bias.float() + bias.flatten() for bias in (attention.pos_bias_u, attention.pos_bias_v)]
            biases = [*(bias * scale for bias in biases), k.bias.float(), v.bias.float()]
            self.bias = torch.cat(biases).to(self.weight.dtype)
            # distances from `frames` down to -frames: one more on each side than the longest bucket has
            far = relative_positions(frames + 1, frames + 1, q.in_features, q.weight.device)
            self.table = attention.linear_pos(far).unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def mix(self, x: Tensor) -> Tensor:
        """(1, F, C) -> (1, F, 4, H, D): q for keys, q for distances, k, v."""
        return F.linear(x, self.weight, self.bias).unflatten(-1, (4, self.heads, -1))

    def distances(self, frames: int) -> Tensor:
        """(H, 2F, D), of the distances F - 1 down to -F."""
        return self.table[:, self.frames + 1 - frames :][:, : 2 * frames]


def lean_front(flow, ops, frames: int) -> PlainFront | LeanConformer:
    """The form of the front network that is captured; frames: of the longest bucket."""
    return (
        LeanConformer(flow, ops, frames)
        if isinstance(getattr(flow, "encoder", None), ConformerFront)
        else PlainFront(flow)
    )
