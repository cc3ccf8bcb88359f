"""One decode step in hand-fused Triton kernels: five launches a layer for one or two rows, seven for up to 32.

Same mathematics and same record as SpeechLM.decode_step, made to be captured by GraphDecode. Uses TorchStep's weights
and rotary table, so both tiers together hold the weights once. Norm gains are not folded into weights, which stay as
published and are rounded once: a gain is one more load beside the input's, of values that every program shares.

On a CPU it runs with TRITON_INTERPRET=1, which is how its tests run without a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cosy_engine.accel.fused_config import (
    CANDIDATES,
    GEMV_ROWS,
    MOST_ROWS,
    Dot,
    FusedConfig,
    Gemv,
    GemvConfig,
    RowsConfig,
    best_config,
    misfit,
)


@dataclass(frozen=True, eq=False)
class Scratch:
    """What kernels of one step hand on; addresses stay, so that graphs may hold them. MP: rows rounded up.

    x (MP, D) fp32 residual. logits (MP, V). q (MP, heads, head_dim). h (MP, inner). top, total (MP, slices, heads) and
    mixed (MP, slices, heads, head_dim): attention partials. xn (MP, D), parts: tensor-core path only.
    """

    x: Tensor
    logits: Tensor
    q: Tensor
    h: Tensor
    top: Tensor
    total: Tensor
    mixed: Tensor
    xn: Tensor | None
    out_parts: Tensor | None
    down_parts: Tensor | None
    found_id: Tensor
    found_p: Tensor
    sorted_id: Tensor
    sorted_p: Tensor


class FusedStep:
    """Callable like DecodePool's `step`: (state, rows, context); context is not needed, lengths are read on the device.

    plain: the TorchStep whose weights are used. config: rows -> block sizes, None takes the best known.
    `logits(rows)` are those of the last step, overwritten by the next. The first call for a number of rows compiles
    (seconds) and allocates.
    """

    def __init__(self, plain, config: Callable[[int], FusedConfig] | None = None):
        reason = misfit(plain.spec)
        assert reason is None, reason  # callers ask `misfit` first
        import triton  # not on every machine: `unavailable` says so before

        from cosy_engine.accel import fused_kernels, fused_rows, fused_sampler

        self.gemv, self.dot, self.sampler = fused_kernels, fused_rows, fused_sampler
        self.pow2 = triton.next_power_of_2
        self.plain, self.lm, self.spec = plain, plain.lm, plain.spec
        self.config = config or (lambda rows: best_config(rows, plain.lm.dtype))
        self.layers = [
            (layer.norm_in, layer.qkv.T, layer.qkv_bias, layer.out.T, layer.norm_mlp, layer.gate_up.T, layer.down.T)
            for layer in plain.layers
        ]
        for layer in self.layers:
            assert all(tensor.is_contiguous() for tensor in layer)
        self.norm = self.lm.backbone.norm.weight.data.float()
        self.rotary = torch.view_as_real(plain.rotary)
        device = self.lm.device
        self.has_pdl = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
        self._scratch: dict[int, Scratch] = {}

    def logits(self, rows: int) -> Tensor:
        return self.scratch(rows).logits[:rows]

    def scratch(self, rows: int) -> Scratch:
        if rows not in self._scratch:
            self._scratch[rows] = self._allocate(rows)
        return self._scratch[rows]

    def _allocate(self, rows: int) -> Scratch:
        spec, config, lm = self.spec, self.config(rows), self.lm
        wide = rows > GEMV_ROWS
        padded = padded_rows(rows)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=lm.device)

        attention = padded, config.slices, spec.heads
        inner = torch.float32 if isinstance(config, GemvConfig) and config.inner_fp32 else lm.dtype
        return Scratch(
            x=zeros(padded, spec.width),
            logits=zeros(padded, spec.head_rows),
            q=zeros(padded, spec.heads, spec.head_dim, dtype=lm.dtype),
            h=zeros(padded, spec.ffn_width, dtype=inner),
            top=zeros(*attention),
            total=zeros(*attention) + 1,  # padded rows divide by it
            mixed=zeros(*attention, spec.head_dim),
            xn=zeros(padded, spec.width, dtype=lm.dtype) if wide else None,
            out_parts=zeros(self._out_slices(config), padded, spec.width) if wide else None,
            down_parts=zeros(-(-spec.ffn_width // config.down_slice), padded, spec.width) if wide else None,
            found_id=zeros(rows, CANDIDATES, dtype=torch.int32),
            found_p=zeros(rows, CANDIDATES),
            sorted_id=zeros(rows, CANDIDATES, dtype=torch.int32),
            sorted_p=zeros(rows, CANDIDATES),
        )

    def _out_depth(self, config: RowsConfig) -> int:
        """Inputs per program of the output product: whole heads, a power of two that divides all of them."""
        all_heads = self.spec.heads * self.spec.head_dim
        return max(min(config.out.tile, all_heads & -all_heads), self.spec.head_dim)

    def _out_slices(self, config: RowsConfig) -> int:
        return self.spec.heads * self.spec.head_dim // self._out_depth(config)

    @torch.inference_mode()
    def __call__(self, state, rows: int, context: int) -> None:
        self._each_kernel(state, rows, lambda kernel, grid, args, meta: kernel[grid](*args, **meta))

    def pieces(self, state, rows: int) -> list[Callable[[], object]]:
        """The kernels of a step, to be compiled one at a time: seconds each the first time, then from Triton's cache.

        Nothing is launched. Without it the first call compiles all of them at once.
        """
        found = {}

        def note(kernel, grid: tuple[int, ...], args: tuple, meta: dict) -> None:
            key = kernel, *sorted(meta.items())
            found.setdefault(key, functools.partial(kernel.warmup, *args, grid=grid, **meta))

        self._each_kernel(state, rows, note)
        return list(found.values())

    def _each_kernel(self, state, rows: int, launch: Callable[[object, tuple, tuple, dict], object]) -> None:
        assert rows <= MOST_ROWS
        config, scratch = self.config(rows), self.scratch(rows)
        pdl = config.pdl and self.has_pdl

        def go(kernel, grid: tuple[int, ...], *args, warps: int = 4, cut=None, first: bool = False, **meta) -> None:
            meta["num_warps"] = warps if cut is None else cut.warps
            if cut is not None and cut.registers:
                meta["maxnreg"] = cut.registers
            # The first kernel of a step waits for all before it: PDL orders neighbours only.
            launch(kernel, grid, args, meta | dict(launch_pdl=pdl and not first, PDL=pdl))

        if isinstance(config, GemvConfig):
            self._by_gemv(state, rows, config, scratch, go)
        else:
            self._by_dot(state, rows, config, scratch, go)
        self._sample(state, rows, config, scratch, go)

    def _attend(self, state, number: int, rows: int, config: FusedConfig, scratch: Scratch, go) -> None:
        spec, cache = self.spec, state.cache
        go(
            self.gemv.attention, (rows * spec.kv_heads, config.slices),
            scratch.q, cache.keys[number], cache.values[number], cache.length, _bytes(state.done),
            scratch.top, scratch.total, scratch.mixed, spec.head_dim**-0.5,
            warps=config.attention_warps, NQ=spec.heads, NKV=spec.kv_heads, HD=spec.head_dim, CAP=cache.capacity,
            S=config.slices, BT=config.block, EARLY=config.attention_early,
        )  # fmt: skip

    def _by_gemv(self, state, rows: int, config: GemvConfig, scratch: Scratch, go) -> None:
        spec, lm, kernels, cache = self.spec, self.lm, self.gemv, state.cache
        width, inner, half = spec.width, spec.ffn_width, spec.head_dim // 2
        wide = self.pow2(width)
        sizes = dict(M=rows, H=width)
        heads = dict(NQ=spec.heads, HD=spec.head_dim)
        power = 1 << (inner.bit_length() - 1)
        rest = self.pow2(max(inner - power, 16)) if inner > power else 0

        def tiles(cut: Gemv) -> dict:
            return dict(cut=cut, BK=min(cut.tile, wide), FLAT=cut.flat)

        for number, (norm_in, qkv, bias, out, norm_mlp, gate_up, down) in enumerate(self.layers):
            first = number == 0
            block = min(config.qkv.rows, half)
            go(
                kernels.qkv_gemv, ((spec.heads + 2 * spec.kv_heads) * (half // block),),
                scratch.x, lm.speech_embedding.weight.data if first else scratch.x, state.token, norm_in, qkv, bias,
                self.rotary, cache.length, scratch.q, cache.keys[number], cache.values[number], spec.rms_eps,
                first=first, HP=wide, NKV=spec.kv_heads, CAP=cache.capacity, BN=block, FIRST=first,
                **sizes, **heads, **tiles(config.qkv),
            )  # fmt: skip
            self._attend(state, number, rows, config, scratch, go)
            block = config.out.rows
            go(
                kernels.out_gemv, (-(-width // block),),
                scratch.top, scratch.total, scratch.mixed, out, scratch.x,
                cut=config.out, NQP=self.pow2(spec.heads), S=config.slices, BN=block, **sizes, **heads,
            )  # fmt: skip
            block = config.gate_up.rows
            go(
                kernels.gate_up_gemv, (-(-inner // block),), scratch.x, norm_mlp, gate_up, scratch.h, spec.rms_eps,
                FFN=inner, BN=block, **sizes, **tiles(config.gate_up),
            )  # fmt: skip
            block = config.down.rows
            go(
                kernels.down_gemv, (-(-width // block),), scratch.h, down, scratch.x, 1 / self.plain.scale,
                cut=config.down, FFN=inner, KA=power, KB=rest, BN=block, **sizes,
            )  # fmt: skip
        block = config.head.rows
        head = lm.llm_decoder
        go(
            kernels.head_gemv, (-(-spec.head_rows // block),),
            scratch.x, self.norm, head.weight.data, head.weight.data if head.bias is None else head.bias.data,
            scratch.logits, spec.rms_eps, spec.head_rows,
            BN=block, BIAS=head.bias is not None, **sizes, **tiles(config.head),
        )  # fmt: skip

    def _by_dot(self, state, rows: int, config: RowsConfig, scratch: Scratch, go) -> None:
        spec, lm, kernels, cache = self.spec, self.lm, self.dot, state.cache
        width, inner, head_dim = spec.width, spec.ffn_width, spec.head_dim
        wide = self.pow2(width)
        sizes = dict(MP=padded_rows(rows), H=width)
        part = min(config.down_slice, self.pow2(inner))
        out_parts, down_parts = len(scratch.out_parts), len(scratch.down_parts)

        def loop(cut: Dot, size: int, most: int) -> dict:
            depth = min(cut.tile, most)
            return dict(cut=cut, num_stages=cut.stages, BK=depth, EARLY=cut.early, EVEN=size % depth == 0)

        def norm(partial: Tensor, parts: int, gain: Tensor, scale: float, first: bool = False) -> None:
            go(
                kernels.norm_rows, (rows,), scratch.x, lm.speech_embedding.weight.data, state.token, partial, gain,
                scratch.xn, spec.rms_eps, scale, first=first, P=parts, HP=wide, FIRST=first, **sizes,
            )  # fmt: skip

        for number, (norm_in, qkv, bias, out, norm_mlp, gate_up, down) in enumerate(self.layers):
            norm(scratch.down_parts, down_parts, norm_in, 1 / self.plain.scale, first=number == 0)
            block = min(config.qkv.rows, head_dim)
            go(
                kernels.qkv_dot, ((spec.heads + 2 * spec.kv_heads) * (head_dim // block),),
                scratch.xn, qkv, bias, self.rotary, cache.length, scratch.q, cache.keys[number], cache.values[number],
                M=rows, NQ=spec.heads, NKV=spec.kv_heads, HD=head_dim, CAP=cache.capacity, BN=block,
                **sizes, **loop(config.qkv, width, wide),
            )  # fmt: skip
            self._attend(state, number, rows, config, scratch, go)
            block = config.out.rows
            go(
                kernels.out_dot, (-(-width // block), out_parts),
                scratch.top, scratch.total, scratch.mixed, out, scratch.out_parts,
                cut=config.out, NQ=spec.heads, HD=head_dim, S=config.slices, BN=block, BK=self._out_depth(config), **sizes,
            )  # fmt: skip
            norm(scratch.out_parts, out_parts, norm_mlp, 1.0)
            block = config.gate_up.rows
            go(
                kernels.gate_up_dot, (-(-inner // block),), scratch.xn, gate_up, scratch.h,
                FFN=inner, BN=block, **sizes, **loop(config.gate_up, width, wide),
            )  # fmt: skip
            block = config.down.rows
            go(
                kernels.down_dot, (-(-width // block), down_parts), scratch.h, down, scratch.down_parts,
                FFN=inner, KS=part, BN=block, **sizes, **loop(config.down, inner % part or part, part),
            )  # fmt: skip
        norm(scratch.down_parts, down_parts, self.norm, 1 / self.plain.scale)
        block = config.head.rows
        head = lm.llm_decoder
        go(
            kernels.head_dot, (-(-spec.head_rows // block),),
            scratch.xn, head.weight.data, head.weight.data if head.bias is None else head.bias.data, scratch.logits,
            spec.head_rows, BN=block, BIAS=head.bias is not None, **sizes, **loop(config.head, width, wide),
        )  # fmt: skip

    def _sample(self, state, rows: int, config: FusedConfig, scratch: Scratch, go) -> None:
        spec, rules = self.spec, self.spec.sampling
        floor = torch.tensor(0.99 * (1 - rules.top_p) / spec.head_rows).view(torch.int32).item()
        go(
            self.sampler.sample, (rows,),
            scratch.logits, state.uniforms, _bytes(state.forbid), _bytes(state.forbid_early), state.token, state.step,
            state.draw, state.recent, state.min_tokens, state.max_tokens, _bytes(state.done), state.stop_id,
            _bytes(state.finite), state.out, state.cache.length, scratch.found_id, scratch.found_p, scratch.sorted_id,
            scratch.sorted_p, spec.head_rows, spec.speech_tokens, state.uniforms.shape[1], state.out.shape[1],
            warps=config.sample_warps, VP=self.pow2(spec.head_rows), WINDOW=rules.window, WP=self.pow2(rules.window),
            TOP_P=rules.top_p, TOP_K=rules.top_k, REPEATS=rules.window * rules.tau, FLOOR=floor, C=CANDIDATES,
        )  # fmt: skip


def padded_rows(rows: int) -> int:
    """Rows of the scratch tensors: tensor cores take at least 8."""
    return rows if rows <= GEMV_ROWS else max(8, 1 << (rows - 1).bit_length())


def _bytes(flags: Tensor) -> Tensor:
    """Bools as the bytes that they are."""
    return flags.view(torch.uint8)
