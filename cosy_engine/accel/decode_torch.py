"""One decode step in few plain torch operations, made to be captured: no Triton, no compiler, no host decision.

Same mathematics as SpeechLM.decode_step. What differs: q, k, v and gate, up are one product each; residuals are added by
the product that makes them; the rotary table is looked up; the attention mask is made once a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SWIGLU_SCALE = 1 / 16  # fp16 only: gate*up leaves fp16's range first; the down product multiplies it back in fp32


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of a layer as the step multiplies them: (in, out) views, so that a product needs no transpose."""

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor  # fp32
    out: Tensor
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor


class TorchStep:
    """Callable like DecodePool's `step`: (state, rows, context). Fuses the model's weights in place: no second copy."""

    def __init__(self, lm, positions: int):
        self.lm, self.spec = lm, lm.spec
        self.scale = SWIGLU_SCALE if lm.dtype == torch.float16 else 1.0
        self.layers = [self._fuse(layer) for layer in lm.backbone.layers]
        half = torch.arange(0, self.spec.head_dim, 2, dtype=torch.float32, device=lm.device)
        angle = torch.arange(positions + 1, dtype=torch.float32, device=lm.device)[:, None]
        angle = angle * self.spec.rope_theta ** (-half / self.spec.head_dim)
        self.rotary = torch.polar(torch.ones_like(angle), angle)[:, None]  # (S, 1, head_dim / 2) complex

    def _fuse(self, layer) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        up = mlp.up_proj.weight.data if self.scale == 1.0 else mlp.up_proj.weight.data * self.scale
        gate_up = torch.cat([mlp.gate_proj.weight.data, up])
        qkv = torch.cat([part.weight.data for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
        at = 0
        for part in (attention.q_proj, attention.k_proj, attention.v_proj):
            size = len(part.weight)
            part.weight.data = qkv[at : at + size]
            at += size
        inner = len(mlp.gate_proj.weight)
        mlp.gate_proj.weight.data = gate_up[:inner]
        if self.scale == 1.0:
            mlp.up_proj.weight.data = gate_up[inner:]
        bias = torch.cat([part.bias.data for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
        return LayerWeights(
            norm_in=layer.input_layernorm.weight.data.float(),
            qkv=qkv.T,
            qkv_bias=bias.float(),
            out=attention.o_proj.weight.data.T,
            norm_mlp=layer.post_attention_layernorm.weight.data.float(),
            gate_up=gate_up.T,
            down=mlp.down_proj.weight.data.T,
        )

    def hidden(self, state, rows: int, context: int) -> Tensor:
        """Feed each row's last id -> (B, D) fp32 before the final norm; writes the cache, moves no length."""
        spec, lm = self.spec, self.lm
        heads, kv, width = spec.heads, spec.kv_heads, spec.head_dim
        position = state.cache.length[:rows]
        x = F.embedding(state.token[:rows], lm.speech_embedding.weight).float()
        dtype = lm.dtype
        turn = self.rotary[position]
        seen = torch.arange(context, device=x.device) <= position[:, None]
        mask = torch.zeros(rows, 1, 1, context, dtype=dtype, device=x.device).masked_fill_(
            ~seen[:, None, None], -torch.inf
        )
        index = position[:, None, None, None].expand(-1, kv, 1, width)
        for number, layer in enumerate(self.layers):
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_in, spec.rms_eps).to(dtype)
            mixed = _addmm(layer.qkv_bias, normed, layer.qkv).view(rows, -1, width)
            left, right = mixed[:, : heads + kv].chunk(2, dim=-1)
            turned = torch.view_as_real(torch.complex(left, right) * turn).transpose(-1, -2)
            query_key = torch.empty(rows, heads + kv, 2, width // 2, dtype=dtype, device=x.device).copy_(turned)
            query_key = query_key.view(rows, heads + kv, 1, width)
            keys, values = state.cache.keys[number, :rows], state.cache.values[number, :rows]
            keys.scatter_(2, index, query_key[:, heads:])
            values.scatter_(2, index, mixed[:, heads + kv :, None].to(dtype))
            heard = F.scaled_dot_product_attention(
                query_key[:, :heads], keys[:, :, :context], values[:, :, :context], attn_mask=mask, enable_gqa=True
            )
            x = _addmm(x, heard.reshape(rows, -1), layer.out)
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_mlp, spec.rms_eps).to(dtype)
            gate, up = _mm(normed, layer.gate_up).chunk(2, dim=-1)
            x = _addmm(x, (F.silu(gate) * up).to(dtype), layer.down, 1 / self.scale)
        return x

    @torch.inference_mode()
    def __call__(self, state, rows: int, context: int) -> None:
        lm = self.lm
        x = self.hidden(state, rows, context)
        logits = lm.log_probs(lm.backbone.norm(x))
        lm.finish_step(state, rows, logits)


def _mm(x: Tensor, weight: Tensor) -> Tensor:
    """(B, K) x (K, N) -> (B, N) fp32, accumulated and written in fp32."""
    if x.dtype == torch.float32:
        return x @ weight
    return torch.mm(x, weight, out_dtype=torch.float32) if x.is_cuda else (x @ weight).float()


def _addmm(base: Tensor, x: Tensor, weight: Tensor, alpha: float = 1.0) -> Tensor:
    """base + alpha * (x @ weight) in fp32, in one kernel where the device allows."""
    if x.dtype == torch.float32:
        return torch.addmm(base, x, weight, alpha=alpha)
    if x.is_cuda:
        return torch.addmm(base, x, weight, out_dtype=torch.float32, alpha=alpha)
    return base + alpha * (x @ weight).float()
