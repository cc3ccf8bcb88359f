"""Front networks: embedded speech tokens (25 Hz) to what the velocity estimator is conditioned on (50 Hz).

Two ways, one call: `ConformerFront` (v2) and `LookaheadFront` (v3) both take (B, n, C) and give twice as many frames.
Both look 3 tokens ahead; with finalize=False the last 3 tokens are only looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosy_engine.flow.layers import (
    CachePlan,
    Conv,
    Dense,
    Norm,
    StreamCache,
    attention_mask,
    bounded,
    merge_heads,
    split_heads,
)
from cosy_engine.settings.model_spec import ConformerSpec, FlowSpec, LookaheadSpec


@dataclass(slots=True)
class FrontState:
    """Memory of a front network in one stream. lower: at 25 Hz, upper: at 50 Hz (v2 only)."""

    lower: StreamCache
    upper: StreamCache | None = None

    def fork(self) -> FrontState:
        return FrontState(self.lower.fork(), self.upper.fork() if self.upper else None)

    @property
    def nbytes(self) -> int:
        return self.lower.nbytes + (self.upper.nbytes if self.upper else 0)


class Lookahead(nn.Module):
    """Two convolutions that show each token the next 3. Output has `lookahead` frames less than the input."""

    def __init__(self, width: int, channels: int, lookahead: int, plan: CachePlan):
        super().__init__()
        self.lookahead = lookahead
        self.conv1 = Conv(width, channels, lookahead + 1)
        self.conv2 = Conv(channels, width, 3).planned(plan)

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        """x: (B, n + lookahead, C), the last `lookahead` rows are context (zeros at the end of speech)."""
        y = F.leaky_relu(self.conv1.valid(x), 0.01)
        return self.conv2(y, cache).float() + x[:, : x.shape[1] - self.lookahead]


class LookaheadFront(Lookahead):
    """v3: the look-ahead layer on the embeddings themselves, then every frame twice."""

    def __init__(self, spec: FlowSpec):
        assert isinstance(spec.front, LookaheadSpec)
        plan = CachePlan(heads=1, head_dim=1)
        super().__init__(spec.input_width, spec.front.channels, spec.lookahead_tokens, plan)
        self.plan = plan

    def init_state(self, capacity_tokens: int) -> FrontState:
        return FrontState(self.plan.new(1, 0, self.conv2.weight))

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        *,
        finalize: bool = True,
        streaming: bool | Tensor = False,
        state: FrontState | None = None,
        ready: Tensor | None = None,
    ) -> Tensor:
        """Embeddings (B, n, C) to (B, 2n, C), or 2(n - 3) frames when not finalize.

        lengths: (B,) valid tokens of right-padded rows. state: earlier blocks of one stream (B = 1).
        streaming: block masks; a (1,) tensor gives the tokens of a block. ready: (B,) tokens that are keys, where `lengths` and
        finalize do not say it. Attention alone needs both; this front has none.
        """
        if lengths is not None:
            x = x * (torch.arange(x.shape[1], device=x.device)[None, :, None] < lengths[:, None, None])
        if finalize:
            x = F.pad(x, (0, 0, 0, self.lookahead))
        return super().forward(x, state.lower if state else None).repeat_interleave(2, dim=1)


class EmbedStage(nn.Module):
    """Linear, norm, times sqrt(width)."""

    def __init__(self, width_in: int, width: int):
        super().__init__()
        self.scale = math.sqrt(width)
        self.out = nn.ModuleList([Dense(width_in, width), Norm(width, eps=1e-5)])

    def forward(self, x: Tensor) -> Tensor:
        return self.out[1](bounded(self.out[0](x))) * self.scale


def relative_positions(queries: int, keys: int, width: int, device: torch.device) -> Tensor:
    """Sinusoids R(r) of the distances r = i - j, from the largest (keys - 1) down to -(queries - 1).

    Returns: (queries + keys - 1, width), sine and cosine interleaved. The last query is aligned with the last key.
    """
    rates = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float32) * -(math.log(10000.0) / width))
    distance = torch.arange(keys - 1, -queries, -1, device=device, dtype=torch.float32)
    angles = distance[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def by_distance(scores: Tensor, keys: int) -> Tensor:
    """(B, H, Q, Q + K - 1) scores per distance -> (B, H, Q, K) scores per key: row a is moved left by Q - 1 - a."""
    queries, span = scores.shape[-2:]
    flat = scores.flatten(-2)[..., queries - 1 : queries - 1 + queries * (span - 1)]
    return flat.unflatten(-1, (queries, span - 1))[..., :keys]


class RelativeAttention(nn.Module):
    """Attention whose scores add a learned function of the distance between query and key.

    Scores are fp32 in every precision: they are a few per cent of the work, and the distance term is large.
    """

    def __init__(self, width: int, heads: int, plan: CachePlan):
        super().__init__()
        self.heads, self.slot = heads, plan.attention()
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (Dense(width, width) for _ in range(4))
        self.linear_pos = Dense(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, width // heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, width // heads))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None, cache: StreamCache | None) -> Tensor:
        """x: (B, Q, C). positions: relative_positions(Q, K, C). mask: broadcasts to (B, 1, Q, K)."""
        q = split_heads(self.linear_q(x).float(), self.heads)
        k, v = (split_heads(layer(x), self.heads) for layer in (self.linear_k, self.linear_v))
        if cache is not None:
            k, v = cache.extend(self.slot, k, v)
        p = split_heads(self.linear_pos(positions).float()[None], self.heads)  # (1, H, Q+K-1, D)
        bias = by_distance((q + self.pos_bias_v[:, None]) @ p.transpose(-1, -2), k.shape[2]) / math.sqrt(q.shape[-1])
        if mask is not None:
            bias = bias.masked_fill(~mask, -math.inf)
        y = F.scaled_dot_product_attention(q + self.pos_bias_u[:, None], k.float(), v.float(), attn_mask=bias)
        return bounded(self.linear_out(merge_heads(y)))


class ConformerLayer(nn.Module):
    """Pre-norm attention and feed-forward; the published model has no convolution module."""

    def __init__(self, spec: ConformerSpec, plan: CachePlan):
        super().__init__()
        self.self_attn = RelativeAttention(spec.width, spec.heads, plan)
        self.feed_forward = nn.ModuleDict(
            {"w_1": Dense(spec.width, spec.ffn_width), "w_2": Dense(spec.ffn_width, spec.width)}
        )
        self.norm_mha = Norm(spec.width, eps=1e-12)
        self.norm_ff = Norm(spec.width, eps=1e-12)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None, cache: StreamCache | None) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), positions, mask, cache)
        hidden = F.silu(bounded(self.feed_forward["w_1"](self.norm_ff(x))))
        return x + bounded(self.feed_forward["w_2"](hidden))


class ConformerFront(nn.Module):
    """v2: conformer at 25 Hz, doubling, conformer at 50 Hz. Output width is the encoder's; `encoder_proj` follows."""

    def __init__(self, spec: FlowSpec):
        super().__init__()
        front = spec.front
        assert isinstance(front, ConformerSpec)
        self.width, self.block = front.width, spec.block_tokens
        self.lower_plan = CachePlan(front.heads, front.width // front.heads)
        self.upper_plan = CachePlan(front.heads, front.width // front.heads)
        self.embed = EmbedStage(spec.input_width, front.width)
        self.pre_lookahead_layer = Lookahead(front.width, front.width, spec.lookahead_tokens, self.lower_plan)
        self.encoders = nn.ModuleList(ConformerLayer(front, self.lower_plan) for _ in range(front.blocks))
        self.up_layer = nn.ModuleDict({"conv": Conv(front.width, front.width, 5).planned(self.upper_plan)})
        self.up_embed = EmbedStage(front.width, front.width)
        self.up_encoders = nn.ModuleList(ConformerLayer(front, self.upper_plan) for _ in range(front.up_blocks))
        self.after_norm = Norm(front.width, eps=1e-5)

    def init_state(self, capacity_tokens: int) -> FrontState:
        like = self.up_layer["conv"].weight
        return FrontState(
            self.lower_plan.new(1, capacity_tokens, like), self.upper_plan.new(1, 2 * capacity_tokens, like)
        )

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        *,
        finalize: bool = True,
        streaming: bool | Tensor = False,
        state: FrontState | None = None,
        ready: Tensor | None = None,
    ) -> Tensor:
        """Embeddings (B, n, C) to (B, 2n, width), or 2(n - 3) frames when not finalize; see LookaheadFront.forward."""
        ahead = self.pre_lookahead_layer.lookahead
        x = self.embed(x)
        if lengths is not None:
            # after the stage, not before: its bias and norm make something of a zero row, and the layer looks right
            x = x * (torch.arange(x.shape[1], device=x.device)[None, :, None] < lengths[:, None, None])
            lengths = ready if ready is not None else lengths if finalize else lengths - ahead
        if finalize:
            x = F.pad(x, (0, 0, 0, ahead))
        lower, upper = (state.lower, state.upper) if state else (None, None)
        block = streaming if isinstance(streaming, Tensor) else self.block if streaming else None
        x = self.pre_lookahead_layer(x, lower)
        x = self._layers(self.encoders, x, block, lengths, lower)
        x = self.up_layer["conv"](x.repeat_interleave(2, dim=1), upper)
        x = self.up_embed(x)
        lengths = None if lengths is None else 2 * lengths
        x = self._layers(self.up_encoders, x, None if block is None else 2 * block, lengths, upper)
        return self.after_norm(x)

    def _layers(
        self,
        layers: nn.ModuleList,
        x: Tensor,
        block: int | Tensor | None,
        lengths: Tensor | None,
        cache: StreamCache | None,
    ) -> Tensor:
        frames, start = x.shape[1], cache.length if cache else 0
        mask = attention_mask(frames, block, lengths, x.device, start)
        positions = relative_positions(frames, start + frames, self.width, x.device)
        if cache:
            cache.reserve(frames)
        for layer in layers:
            x = layer(x, positions, mask, cache)
        if cache:
            cache.length += frames
        return x
