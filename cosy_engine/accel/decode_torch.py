"""One decode step in few plain torch operations, made to be captured: no Triton, no compiler, no host decision.

Same mathematics as SpeechLM.decode_step. What differs: q, k, v and gate, up are one product each; residuals are added by
the product that makes them; the rotary table is looked up; the attention mask is made once a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.accel.joined import join


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
        self.scale = lm.backbone.layers[0].mlp.scale
        self.layers = [self._fuse(layer) for layer in lm.backbone.layers]
        half = torch.arange(0, self.spec.head_dim, 2, dtype=torch.float32, device=lm.device)
        angle = torch.arange(positions + 1, dtype=torch.float32, device=lm.device)[:, None]
        angle = angle * self.spec.rope_theta ** (-half / self.spec.head_dim)
        self.rotary = torch.polar(torch.ones_like(angle), angle)[:, None]  # (S, 1, head_dim / 2) complex

    def _fuse(self, layer) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        gate_up = join([mlp.gate_proj.weight, mlp.up_proj.weight])
        qkv = join([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
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

    def through(self, x: Tensor, turn: Tensor, attend: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
        """(N, D) fp32 through all layers, the final norm not included.

        turn: (N, 1, head_dim / 2) rotations. attend: (layer, query and key (N, heads + kv, head_dim), value (N, kv, head_dim))
        -> what is heard, (N, heads * head_dim).
        """
        spec, dtype = self.spec, self.lm.dtype
        turned_heads, width = spec.heads + spec.kv_heads, spec.head_dim
        for number, layer in enumerate(self.layers):
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_in, spec.rms_eps).to(dtype)
            mixed = _addmm(layer.qkv_bias, normed, layer.qkv).view(len(x), -1, width)
            left, right = mixed[:, :turned_heads].chunk(2, dim=-1)
            turned = torch.view_as_real(torch.complex(left, right) * turn).transpose(-1, -2)
            query_key = torch.empty(len(x), turned_heads, 2, width // 2, dtype=dtype, device=x.device).copy_(turned)
            heard = attend(number, query_key.view(len(x), turned_heads, width), mixed[:, turned_heads:].to(dtype))
            x = _addmm(x, heard, layer.out)
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_mlp, spec.rms_eps).to(dtype)
            gate, up = _mm(normed, layer.gate_up).chunk(2, dim=-1)
            inner = torch.mul(F.silu(gate), up, out=torch.empty(gate.shape, dtype=dtype, device=x.device))
            x = _addmm(x, inner, layer.down, 1 / self.scale)
        return x

    def hidden(self, state, rows: int, context: int) -> Tensor:
        """Feed each row's last id -> (B, D) fp32 before the final norm; writes the cache, moves no length."""
        spec, lm = self.spec, self.lm
        position = state.cache.length[:rows]
        x = F.embedding(state.token[:rows], lm.speech_embedding.weight).float()
        seen = torch.arange(context, device=x.device) <= position[:, None]
        mask = torch.zeros(rows, 1, 1, context, dtype=lm.dtype, device=x.device)
        mask.masked_fill_(~seen[:, None, None], -torch.inf)
        index = position[:, None, None, None].expand(-1, spec.kv_heads, 1, spec.head_dim)

        def attend(number: int, query_key: Tensor, value: Tensor) -> Tensor:
            keys, values = state.cache.keys[number, :rows], state.cache.values[number, :rows]
            keys.scatter_(2, index, query_key[:, spec.heads :, None])
            values.scatter_(2, index, value[:, :, None])
            heard = F.scaled_dot_product_attention(
                query_key[:, : spec.heads, None],
                keys[:, :, :context],
                values[:, :, :context],
                attn_mask=mask,
                enable_gqa=True,
            )
            return heard.reshape(rows, -1)

        return self.through(x, self.rotary[position], attend)

    def read_prompt(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(L, D) embeddings from position 0 on -> (L, D) before the final norm; keys, values (layers, kv, L, head_dim).

        Causal, so rows behind the prompt's end change nothing before it.
        """
        heads, found = self.spec.heads, []

        def attend(number: int, query_key: Tensor, value: Tensor) -> Tensor:
            query, key = query_key[:, :heads].transpose(0, 1), query_key[:, heads:].transpose(0, 1)
            value = value.transpose(0, 1)
            found.append((key, value))
            heard = F.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, enable_gqa=True)
            return heard[0].transpose(0, 1).reshape(len(x), -1)

        hidden = self.through(x, self.rotary[: len(x)], attend)
        keys, values = zip(*found, strict=True)
        return hidden, torch.stack(keys), torch.stack(values)

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
