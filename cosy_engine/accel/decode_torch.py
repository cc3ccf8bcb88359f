"""One decode step in few plain torch operations, made to be captured: no Triton, no compiler, no host decision.

Same mathematics as SpeechLM.decode_step. What differs: q, k, v and gate, up are one product each; residuals are added in place by
the product that makes them; q, k, v are turned together, v by nothing, with rotations that are looked up and biases that are
turned for all layers at once; keys and values are written by one operation; the query heads of a KV head are read as
queries of one head; the attention mask is made once a step.
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
        turned = self.rotary.expand(-1, self.spec.heads + self.spec.kv_heads, -1)
        # (S, heads + 2 kv, head_dim / 2) complex: q and k turn, v stays
        self.turns = torch.cat([turned, torch.ones_like(turned[:, : self.spec.kv_heads])], dim=1)
        biases = torch.stack([layer.qkv_bias for layer in self.layers])
        self.biases = _pairs(biases, self.spec.head_dim)[:, None]  # (layers, 1, ...) of the same form

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
        """(N, D) fp32 through all layers, in place, the final norm not included.

        turn: (N, heads + 2 kv, head_dim / 2) of `turns`. attend: (layer, query (N, heads, head_dim), key and value (N, 2, kv, head_dim))
        -> what is heard, (N, heads * head_dim).
        """
        spec, dtype, width = self.spec, self.lm.dtype, self.spec.head_dim
        biases = torch.view_as_real(self.biases * turn).transpose(-1, -2)
        for number, layer in enumerate(self.layers):
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_in, spec.rms_eps).to(dtype)
            turned = torch.view_as_real(_pairs(_mm(normed, layer.qkv), width) * turn).transpose(-1, -2)
            mixed = torch.empty(turned.shape, dtype=dtype, device=x.device)
            mixed = torch.add(turned, biases[number], out=mixed).view(len(x), -1, width)
            heard = attend(number, mixed[:, : spec.heads], mixed[:, spec.heads :].view(len(x), 2, spec.kv_heads, width))
            _add(x, heard, layer.out)
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_mlp, spec.rms_eps).to(dtype)
            gate, up = _mm(normed, layer.gate_up).chunk(2, dim=-1)
            inner = torch.mul(F.silu(gate), up, out=torch.empty(gate.shape, dtype=dtype, device=x.device))
            _add(x, inner, layer.down, 1 / self.scale)
        return x

    def hidden(self, state, rows: int, context: int) -> Tensor:
        """Feed each row's last id -> (B, D) fp32 before the final norm; writes the cache, moves no length."""
        spec, lm = self.spec, self.lm
        position = state.cache.length[:rows]
        x = F.embedding(state.token[:rows], lm.speech_embedding.weight).float()
        seen = torch.arange(context, device=x.device) <= position[:, None]
        mask = torch.zeros(rows, 1, spec.heads // spec.kv_heads, context, dtype=lm.dtype, device=x.device)
        mask.masked_fill_(~seen[:, None, None], -torch.inf)
        every = torch.arange(rows, device=x.device)

        def attend(number: int, query: Tensor, key_value: Tensor) -> Tensor:
            cached = state.cache.both[:, number, :rows]
            cached.permute(1, 3, 0, 2, 4).index_put_((every, position), key_value)
            keys, values = cached[..., :context, :].unbind()
            query = query.reshape(rows, spec.kv_heads, -1, spec.head_dim)
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask).reshape(rows, -1)

        return self.through(x, self.turns[position], attend)

    def read_prompt(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(L, D) embeddings from position 0 on, changed -> (L, D) before the final norm; keys, values (2, layers, kv, L, head_dim).

        Causal, so rows behind the prompt's end change nothing before it.
        """
        spec = self.spec
        found = torch.empty(2, spec.layers, spec.kv_heads, len(x), spec.head_dim, dtype=self.lm.dtype, device=x.device)

        def attend(number: int, query: Tensor, key_value: Tensor) -> Tensor:
            found[:, number] = key_value.permute(1, 2, 0, 3)
            key, value = found[:, number, None].unbind()
            heard = F.scaled_dot_product_attention(
                query.transpose(0, 1)[None], key, value, is_causal=True, enable_gqa=True
            )
            return heard[0].transpose(0, 1).reshape(len(x), -1)

        return self.through(x, self.turns[: len(x)], attend), found

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


def _pairs(x: Tensor, width: int) -> Tensor:
    """(N, heads * width) -> (N, heads, width / 2) complex: feature j of a head pairs with j + width / 2."""
    left, right = x.unflatten(-1, (-1, 2, width // 2)).unbind(-2)
    return torch.complex(left, right)


def _add(total: Tensor, x: Tensor, weight: Tensor, alpha: float = 1.0) -> None:
    """total += alpha * (x @ weight), fp32 and in place, in one kernel where the device allows."""
    if x.dtype == torch.float32:
        total.addmm_(x, weight, alpha=alpha)
    elif x.is_cuda:
        torch.addmm(total, x, weight, out_dtype=torch.float32, alpha=alpha, out=total)
    else:
        total.add_((x @ weight).float(), alpha=alpha)
