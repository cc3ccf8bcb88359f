"""One decode step in few plain torch operations, made to be captured: no Triton, no compiler, no host decision.

Same mathematics as SpeechLM.decode_step. What differs: q, k, v and gate, up are one product each; biases and residuals are added by
the product that makes them; q, k, v are turned together, v by nothing, with rotations that are looked up; keys and values are
written by one operation; the attention mask is looked up once a step.
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
    qkv_bias: Tensor  # (heads + 2 kv) * head_dim, fp32
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
        # (2 from, S, heads + 2 kv, 2 to, head_dim / 2), halves of a head: q and k turn, v stays
        turning, staying = self.spec.heads + self.spec.kv_heads, self.spec.kv_heads
        turned = _rotation(angle)[:, :, None].expand(-1, -1, turning, -1, -1)
        stayed = _rotation(torch.zeros_like(angle))[:, :, None].expand(-1, -1, staying, -1, -1)
        self.turns = torch.cat([turned, stayed], dim=2)
        self.biases = torch.stack([layer.qkv_bias for layer in self.layers])[:, None]  # (layers, 1, ...)
        hidden = torch.full((positions + 1, positions + 1), -torch.inf, dtype=lm.dtype, device=lm.device)
        self.masks = hidden.triu_(1)  # (S, S): a query at a row's position sees keys up to itself

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

        turn: (2, N, heads + 2 kv, 2, head_dim / 2) of `turns`. attend: (layer, query (N, heads, head_dim), key and value
        (N, 2, kv, head_dim)) -> what is heard, (N, heads * head_dim).
        """
        spec, dtype, width = self.spec, self.lm.dtype, self.spec.head_dim
        mixed = self.biases.repeat(1, len(x), 1)  # (layers, N, ...), to which the products add
        for number, layer in enumerate(self.layers):
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_in, spec.rms_eps).to(dtype)
            _add(mixed[number], normed, layer.qkv)
            # feature j of a head pairs with j + head_dim / 2
            pairs = mixed[number].view(len(x), -1, 2, 1, width // 2).permute(2, 0, 1, 3, 4) * turn
            both = (pairs[0] + pairs[1]).to(dtype).view(len(x), -1, width)
            query, key_value = both[:, : spec.heads], both[:, spec.heads :].view(len(x), 2, spec.kv_heads, width)
            heard = attend(number, query, key_value)
            _add(x, heard, layer.out)
            normed = F.rms_norm(x, x.shape[-1:], layer.norm_mlp, spec.rms_eps).to(dtype)
            gate, up = _mm(normed, layer.gate_up).chunk(2, dim=-1)
            inner = torch.mul(F.silu(gate), up, out=torch.empty(gate.shape, dtype=dtype, device=x.device))
            _add(x, inner, layer.down, 1 / self.scale)
        return x

    def hidden(self, state, rows: int, context: int) -> Tensor:
        """Feed each row's last id -> (B, D) fp32 before the final norm; writes the cache, moves no length."""
        lm = self.lm
        position = state.cache.length[:rows]
        x = F.embedding(state.token[:rows], lm.speech_embedding.weight).float()
        mask = self.masks[:, :context][position][:, None, None]
        every = torch.arange(rows, device=x.device)

        def attend(number: int, query: Tensor, key_value: Tensor) -> Tensor:
            cached = state.cache.both[:, number, :rows]
            if rows == 1:
                cached.index_copy_(3, position, key_value.transpose(0, 1)[:, :, :, None])
            else:
                cached.permute(1, 3, 0, 2, 4).index_put_((every, position), key_value)
            keys, values = cached[..., :context, :].unbind()
            heard = F.scaled_dot_product_attention(query[:, :, None], keys, values, attn_mask=mask, enable_gqa=True)
            return heard.reshape(rows, -1)

        return self.through(x, self.turns[:, position], attend)

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

        return self.through(x, self.turns[:, : len(x)], attend), found

    @torch.inference_mode()
    def __call__(self, state, rows: int, context: int) -> None:
        lm = self.lm
        x = self.hidden(state, rows, context)
        logits = lm.log_probs(lm.backbone.norm(x))
        lm.finish_step(state, rows, logits)


def _rotation(angle: Tensor) -> Tensor:
    """(S, n) -> (2, S, 2, n), what the left and the right feature of a pair give to each of both."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, sin], dim=1), torch.stack([-sin, cos], dim=1)])


def _mm(x: Tensor, weight: Tensor) -> Tensor:
    """(B, K) x (K, N) -> (B, N) fp32, accumulated and written in fp32."""
    if x.dtype == torch.float32:
        return x @ weight
    return torch.mm(x, weight, out_dtype=torch.float32) if x.is_cuda else (x @ weight).float()


def _add(total: Tensor, x: Tensor, weight: Tensor, alpha: float = 1.0) -> None:
    """total += alpha * (x @ weight), fp32 and in place, in one kernel where the device allows."""
    if x.dtype == torch.float32:
        total.addmm_(x, weight, alpha=alpha)
    elif x.is_cuda:
        torch.addmm(total, x, weight, out_dtype=torch.float32, alpha=alpha, out=total)
    else:
        total.add_((x @ weight).float(), alpha=alpha)
