"""The velocity estimators in fewer operations, for capture: the same numbers to rounding, whole utterances only.

What differs from flow.dit and flow.unet: q, k, v are one product; the modulation `1 + scale` comes from a table made once and
enters as the norm's own weight; convolutions keep the time-major layout, which is their channels-last one; GELU is part of
the product before it where cuBLAS has that. Between products either plain torch (PlainOps) or Triton
(flow_kernels.FlowKernels).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.accel.joined import join
from cosy_engine.flow.dit import DiT


class PlainOps:
    """Operations between products in torch.

    `visible` says which keys a query sees: here the mask that attention adds, (1 or B, 1, F, F) with 0 or -inf; in FlowKernels two
    numbers for each request, (B / 2, 2): the valid frames and the frames of a block.
    """

    fused = False

    def add_norm(
        self,
        h: Tensor,
        add: Tensor | None,
        gate: Tensor | None,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """h + gate * add, (B, F, D) fp32, and its norm times scale plus shift in dtype. May change h in place."""
        if add is not None:
            h = h + add if gate is None else torch.addcmul(h, gate, add)
        return h, F.layer_norm(h, h.shape[-1:], scale, shift, eps).to(dtype)

    def carried(self, h: Tensor, dtype: torch.dtype) -> Tensor:
        """h (B, F, C) fp32 as `conv` takes it."""
        return h.to(dtype)

    def conv(self, x: Tensor, layer) -> Tensor:
        """Causal convolution of (B, F, C) as `carried` -> (B, F, C') in the weight's dtype. One of one tap is a linear layer."""
        if layer.kernel_size[0] == 1:
            return F.linear(x, layer.weight[..., 0], layer.bias)
        return causal(x, layer)

    def conv_mish(self, x: Tensor, layer, norm, add: Tensor, dtype: torch.dtype) -> Tensor:
        """mish(LN(conv(x))) + add in dtype. norm: its weight, bias and eps. add: (C',) or (B, F, C')."""
        y = self.conv(x, layer).float()
        return (F.mish(F.layer_norm(y, y.shape[-1:], norm.weight, norm.bias, norm.eps)) + add).to(dtype)

    def turns(self, cos: Tensor, sin: Tensor) -> Tensor:
        """The form in which `rotate` wants the angles of (F, D / 2) pairs."""
        return torch.complex(cos, sin)[:, None]

    def rotate(self, mixed: Tensor, turns: Tensor) -> None:
        """Turn the first head of q and k in mixed (B, F, 3, H, D), in place."""
        first = mixed[:, :, :2, 0]
        turned = torch.view_as_complex(first.float().unflatten(-1, (-1, 2))) * turns
        first.copy_(torch.view_as_real(turned).flatten(-2))

    def position_conv(self, x: Tensor, conv, add: Tensor | None) -> Tensor:
        """mish of a causal grouped convolution of (B, F, C), and add to it, in fp32 then."""
        y = F.mish(causal(x, conv))
        return y if add is None else add.float() + y

    def product_add(self, h: Tensor, x: Tensor, layer) -> Tensor:
        """h + a linear layer of x; may change h in place."""
        return h + layer(x)

    def attention(self, mixed: Tensor, visible: Tensor) -> Tensor:
        """(B, F, 3, H, D) q, k, v -> (B, F, H * D)."""
        query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible).transpose(1, 2).flatten(2)

    def limits(self, valid: Tensor, block: Tensor, frames: int, device: torch.device) -> Tensor:
        """`visible` of attention_by_distance: keys below `valid`, up to the end of the query's block; (1,) int64 each."""
        return torch.zeros(frames, frames, device=device).masked_fill_(hidden(valid, block, frames, device), -torch.inf)

    def attention_by_distance(self, mixed: Tensor, distances: Tensor, visible: Tensor) -> Tensor:
        """(1, F, 4, H, D) q for keys, q for distances, k, v, and (H, 2F, D) -> (1, F, H * D). Scores are fp32."""
        query, towards, key, value = (part[0].transpose(0, 1) for part in mixed.unbind(2))
        scores = scores_fp32(query, key)
        scores += by_distance(scores_fp32(towards, distances))
        scores += visible
        return (torch.softmax(scores, dim=-1).to(value.dtype) @ value).transpose(0, 1).flatten(1)[None]


def hidden(valid: Tensor, block: Tensor, frames: int, device: torch.device) -> Tensor:
    """(F, F), which keys a query must not see: from `valid` on, and beyond the end of its block of `block` frames."""
    keys = torch.arange(frames, device=device)
    return (keys >= valid)[None] | (keys[None] >= (keys[:, None] // block + 1) * block)


def scores_fp32(a: Tensor, b: Tensor) -> Tensor:
    """(H, N, D), (H, K, D) -> (H, N, K), products of half precision written in fp32."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.bmm(a, b.transpose(1, 2), out_dtype=torch.float32)
    return a.float() @ b.float().transpose(1, 2)


def by_distance(scores: Tensor) -> Tensor:
    """(H, F, 2F), column c of the distance F - 1 - c -> (H, F, F) of keys, a view: row i is moved left by F - 1 - i."""
    heads, frames, span = scores.shape
    return scores.as_strided(
        (heads, frames, frames), (frames * span, span - 1, 1), scores.storage_offset() + frames - 1
    )


def lean(estimator, ops) -> LeanDiT | LeanUNet:
    """The lean form of a velocity estimator. Fuses its weights in place: no second copy."""
    return (LeanDiT if isinstance(estimator, DiT) else LeanUNet)(estimator, ops)


def fuse_qkv(attention) -> tuple[Tensor, Tensor | None]:
    """One weight and bias for the three products; the layers' own become views of it."""
    parts = (attention.to_q, attention.to_k, attention.to_v)
    weight = join([part.weight for part in parts])
    return weight, None if parts[0].bias is None else join([part.bias for part in parts])


def channels_last(conv) -> None:
    """Lay a convolution's weight (O, I, K) out as O, K, I in memory, in place."""
    conv.weight.data = conv.weight.data.transpose(1, 2).contiguous().transpose(1, 2)


def causal(x: Tensor, conv) -> Tensor:
    """Causal convolution of (B, T, C) in the weight's dtype, without a copy into another layout -> (B, T, C').

    The convolution pads both sides; the frames that it makes beyond the end are cut off as a view.
    """
    frames, reach = x.shape[1], conv.kernel_size[0] - 1
    y = F.conv2d(
        x.transpose(1, 2)[:, :, None], conv.weight[:, :, None], conv.bias, padding=(0, reach), groups=conv.groups
    )
    return y[:, :, 0, :frames].transpose(1, 2)


def gelu_tanh(x: Tensor, layer) -> Tensor:
    """GELU in its tanh form of a linear layer; on a GPU inside the product."""
    if not x.is_cuda:
        return F.gelu(F.linear(x, layer.weight, layer.bias), approximate="tanh")
    flat = torch._addmm_activation(layer.bias, x.flatten(0, 1), layer.weight.T, use_gelu=True)
    return flat.view(*x.shape[:2], -1)


class LeanDiT:
    """Callable like flow.dit.DiT without its cache."""

    def __init__(self, dit, ops):
        self.dit, self.ops, self.dim, self.heads = dit, ops, dit.dim, dit.plan.heads
        self.qkv = [fuse_qkv(block.attn) for block in dit.transformer_blocks]
        self.convs = [dit.input_embed.conv_pos_embed[name][0] for name in ("conv1", "conv2")]
        for conv in self.convs:
            channels_last(conv)
        self._turns: dict[int, Tensor] = {}

    def modulation_table(self, table: Tensor) -> Tensor:
        """(steps, 6 depth + 2, D) as flow.dit makes it, with 1 added to every scale."""
        table = table.clone()
        scales = [i for i in range(table.shape[1] - 2) if i % 6 in (1, 4)] + [table.shape[1] - 2]
        table[:, scales] += 1
        return table

    def turns(self, frames: int) -> Tensor:
        """Rotations of frames 0 .. F-1."""
        if frames not in self._turns:
            self._turns[frames] = self.ops.turns(*self.dit.positions(0, frames))
        return self._turns[frames]

    def _embed(self, x: Tensor) -> Tensor:
        """See flow.dit.InputEmbedding."""
        h = F.linear(x, self.dit.input_embed.proj.weight, self.dit.input_embed.proj.bias)
        return self.ops.position_conv(self.ops.position_conv(h, self.convs[0], None), self.convs[1], h)

    def __call__(
        self, x: Tensor, mu: Tensor, speaker: Tensor, cond: Tensor, modulation: Tensor, visible: Tensor
    ) -> Tensor:
        """x, mu, cond: (B, F, M) fp32. speaker: (B, M). modulation: (1, 6 depth + 2, D) of modulation_table. -> (B, F, M)."""
        ops, rows, frames = self.ops, x.shape[0], x.shape[1]
        turn, dtype = self.turns(frames), self.dit.proj_out.weight.dtype
        h = self._embed(torch.cat([x, cond, mu, speaker[:, None].expand_as(x)], dim=-1).to(dtype))
        add = gate = None
        vectors = modulation[0]
        for i, (block, (weight, bias)) in enumerate(zip(self.dit.transformer_blocks, self.qkv, strict=True)):
            shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = vectors[6 * i : 6 * i + 6].unbind()
            h, normed = ops.add_norm(h, add, gate, scale_a, shift_a, 1e-6, dtype)
            mixed = F.linear(normed, weight, bias).view(rows, frames, 3, self.heads, -1)
            ops.rotate(mixed, turn)
            heard = block.attn.to_out[0](ops.attention(mixed, visible))
            h, normed = ops.add_norm(h, heard, gate_a, scale_f, shift_f, 1e-6, dtype)
            ff = block.ff["ff"]
            add, gate = ff["2"](gelu_tanh(normed, ff["0"][0])), gate_f
        h, normed = ops.add_norm(h, add, gate, vectors[-2], vectors[-1], 1e-6, dtype)
        return self.dit.proj_out(normed).float()


class LeanUNet:
    """Callable like flow.unet.UNet without its cache."""

    def __init__(self, unet, ops):
        self.unet, self.ops, self.heads = unet, ops, unet.plan.heads
        self.stages = unet._stages()
        self.qkv = [[fuse_qkv(block.attn1)[0] for block in stage[1]] for stage in self.stages]
        for stage in self.stages:
            for conv in (stage[0].block1.block["0"], stage[0].block2.block["0"], *stage[2:]):
                channels_last(conv)
        channels_last(unet.final_block.block["0"])

    def modulation_table(self, table: Tensor) -> Tensor:
        """(steps, stages, width), as flow.unet makes it."""
        return table

    def _resnet(self, x: Tensor, part, time_bias: Tensor, dtype: torch.dtype) -> Tensor:
        """x: (B, F, C) in dtype or as `carried` -> (B, F, width) fp32."""
        ops, one, two = self.ops, part.block1.block, part.block2.block
        y = ops.conv_mish(x, one["0"], one["2"], time_bias, dtype)
        return ops.conv_mish(y, two["0"], two["2"], ops.conv(x, part.res_conv), torch.float32)

    def __call__(
        self, x: Tensor, mu: Tensor, speaker: Tensor, cond: Tensor, modulation: Tensor, visible: Tensor
    ) -> Tensor:
        """x, mu, cond: (B, F, M) fp32. speaker: (B, M). modulation: (1, stages, width). -> (B, F, M)."""
        ops, rows, frames = self.ops, x.shape[0], x.shape[1]
        dtype = self.unet.final_proj.weight.dtype
        half = torch.cat([x, mu, speaker[:, None].expand_as(x), cond], dim=-1).to(dtype)
        skip = None
        for i, stage in enumerate(self.stages):
            if i == len(self.stages) - 1:
                half = torch.cat([half, skip], dim=-1)
            h = self._resnet(half, stage[0], modulation[0, i], dtype)
            for block, weight in zip(stage[1], self.qkv[i], strict=True):
                net, norm = block.ff["net"], block.norm1
                normed = ops.add_norm(h, None, None, norm.weight, norm.bias, norm.eps, dtype)[1]
                mixed = F.linear(normed, weight).view(rows, frames, 3, self.heads, -1)
                h, norm = ops.product_add(h, ops.attention(mixed, visible), block.attn1.to_out[0]), block.norm3
                normed = ops.add_norm(h, None, None, norm.weight, norm.bias, norm.eps, dtype)[1]
                h = ops.product_add(h, F.gelu(net["0"]["proj"](normed)), net["2"])
            half = ops.carried(h, dtype)
            if i == 0:
                skip = half
            if len(stage) == 3:
                half = ops.conv(half, stage[2]).contiguous()
        final, last = self.unet.final_block.block, self.unet.final_proj
        y = ops.conv_mish(half, final["0"], final["2"], torch.zeros_like(final["2"].bias), dtype)
        return ops.conv(y, last).float()
