"""Qwen2 decoder over a given KV cache, in plain torch operations.

Weights may be fp32, fp16 or bf16; the residual stream, norms, rotary and SiLU stay fp32, so half precision rounds only
what enters a matrix product. State-dict names are those of the published `llm.model.model.` tree without that prefix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosy_engine.llm.kv_cache import KVCache
from cosy_engine.settings.model_spec import LlmSpec


def matmul(x: Tensor, layer: nn.Linear) -> Tensor:
    """x (..., D) fp32 through a linear layer of any precision -> fp32.

    On a GPU half-precision products are also written in fp32, so that a large sum does not overflow fp16.
    """
    weight, bias = layer.weight, layer.bias
    if weight.dtype == torch.float32 or not weight.is_cuda:
        return F.linear(x.to(weight.dtype), weight, bias).float()
    flat = torch.mm(x.reshape(-1, x.shape[-1]).to(weight.dtype), weight.T, out_dtype=torch.float32)
    if bias is not None:
        flat = flat + bias
    return flat.view(*x.shape[:-1], -1)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, in fp32 whatever the precision of the rest."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.float(), self.eps)


class Attention(nn.Module):
    """Grouped-query attention; query head i reads kv head i // (heads / kv_heads)."""

    def __init__(self, spec: LlmSpec):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = spec.heads, spec.kv_heads, spec.head_dim
        self.q_proj = nn.Linear(spec.width, spec.heads * spec.head_dim)
        self.k_proj = nn.Linear(spec.width, spec.kv_heads * spec.head_dim)
        self.v_proj = nn.Linear(spec.width, spec.kv_heads * spec.head_dim)
        self.o_proj = nn.Linear(spec.heads * spec.head_dim, spec.width, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], past: Past) -> Tensor:
        """x (B, T, D), rotary (B, 1, T, head_dim) each -> (B, T, D); writes this call's keys and values to `past`."""
        rows, steps, _ = x.shape
        dtype = self.q_proj.weight.dtype
        split = (rows, steps, -1, self.head_dim)
        query = rotate(matmul(x, self.q_proj).view(split).transpose(1, 2), rotary)
        key = rotate(matmul(x, self.k_proj).view(split).transpose(1, 2), rotary)
        value = matmul(x, self.v_proj).view(split).transpose(1, 2).to(dtype)
        keys, values = past.append(key.to(dtype), value)
        mixed = F.scaled_dot_product_attention(
            query.to(value.dtype), keys, values, attn_mask=past.mask, is_causal=past.causal, enable_gqa=True
        )
        return matmul(mixed.transpose(1, 2).reshape(rows, steps, -1), self.o_proj)


SWIGLU_SCALE = 1 / 16  # fp16 only: gate * up leaves fp16's range first


class MLP(nn.Module):
    """SwiGLU. In fp16 the weight of `up` holds its values times `scale`, and what `down` makes is divided by it in fp32."""

    def __init__(self, spec: LlmSpec):
        super().__init__()
        self.gate_proj = nn.Linear(spec.width, spec.ffn_width, bias=False)
        self.up_proj = nn.Linear(spec.width, spec.ffn_width, bias=False)
        self.down_proj = nn.Linear(spec.ffn_width, spec.width, bias=False)
        self.scale = 1.0

    @torch.no_grad()
    def set_precision(self, dtype: torch.dtype) -> None:
        """Weights to dtype; a power of two moves in or out of `up` where the range asks for it."""
        scale = SWIGLU_SCALE if dtype == torch.float16 else 1.0
        if scale != self.scale:
            self.up_proj.weight.data = self.up_proj.weight.data * (scale / self.scale)  # not in place: it may be shared
            self.scale = scale
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        y = matmul(F.silu(matmul(x, self.gate_proj)) * matmul(x, self.up_proj), self.down_proj)
        return y if self.scale == 1.0 else y / self.scale


class Layer(nn.Module):
    """Pre-norm decoder layer."""

    def __init__(self, spec: LlmSpec):
        super().__init__()
        self.self_attn = Attention(spec)
        self.mlp = MLP(spec)
        self.input_layernorm = RMSNorm(spec.width, spec.rms_eps)
        self.post_attention_layernorm = RMSNorm(spec.width, spec.rms_eps)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], past: Past) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, past)
        return x + self.mlp(self.post_attention_layernorm(x))


class Past:
    """One layer's view of the cache for one call. Without a cache the call is its own whole past (training)."""

    def __init__(self, mask: Tensor | None, causal: bool):
        self.mask, self.causal = mask, causal

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value


class CachedPast(Past):
    """Writes (B, kv_heads, T, head_dim) at `positions` (B, T) of one layer and returns the first `context` of it."""

    def __init__(self, cache: KVCache, layer: int, positions: Tensor, context: int, mask: Tensor):
        super().__init__(mask, causal=False)
        self.keys, self.values = cache.keys[layer], cache.values[layer]
        self.positions, self.context = positions, context

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        index = self.positions[:, None, :, None].expand_as(key)
        self.keys.scatter_(2, index, key)
        self.values.scatter_(2, index, value)
        return self.keys[:, :, : self.context], self.values[:, :, : self.context]


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, half-split layout: feature j pairs with j + head_dim/2."""
    cos, sin = rotary
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class Backbone(nn.Module):
    """The decoder body; fed with embeddings, gives hidden states after the final norm."""

    def __init__(self, spec: LlmSpec):
        super().__init__()
        self.spec = spec
        self.embed_tokens = nn.Embedding(spec.text_vocab, spec.width)
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec.layers))
        self.norm = RMSNorm(spec.width, spec.rms_eps)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin (B, 1, T, head_dim) for integer positions (B, T); angles in fp32."""
        half = torch.arange(0, self.spec.head_dim, 2, device=positions.device, dtype=torch.float32)
        angle = positions[..., None].float() * self.spec.rope_theta ** (-half / self.spec.head_dim)
        angle = torch.cat([angle, angle], dim=-1)[:, None]
        return angle.cos(), angle.sin()

    def forward(
        self, x: Tensor, cache: KVCache | None = None, advance: Tensor | None = None, context: int | None = None
    ) -> Tensor:
        """x (B, T, D) fp32 at the next positions of each row -> (B, T, D) fp32.

        With a cache, row b continues at position cache.length[b], which then grows by T, or by T * advance[b] when a
        (B,) tensor of 0/1 is given: a row that has ended keeps writing over one spare position and does not move.
        context: how many positions to look at, at least the longest row after this call; None takes the cache's own
        count. Without a cache, x is the whole sequence (causal), which is what training needs.
        """
        rows, steps, _ = x.shape
        ahead = torch.arange(steps, device=x.device)
        if cache is None:
            rotary = self.rotary(ahead[None].expand(rows, -1))
            for layer in self.layers:
                x = layer(x, rotary, Past(None, causal=True))
            return self.norm(x)
        positions = cache.length[:, None] + ahead
        if context is None:
            cache.used += steps
            context = min(cache.capacity, -(-cache.used // 64) * 64)  # steps of 64: few shapes, little masked work
        mask = torch.arange(context, device=x.device) <= positions[..., None]  # (B, T, S)
        mask = mask[:, None]
        rotary = self.rotary(positions)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotary, CachedPast(cache, index, positions, context, mask))
        cache.length += steps if advance is None else steps * advance
        return self.norm(x)
