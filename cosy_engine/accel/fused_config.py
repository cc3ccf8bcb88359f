"""What of the fused step can be tuned, the values in use, and which models and machines it fits (no Triton needed)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from cosy_engine.settings.model_spec import LlmSpec

GEMV_ROWS = 2  # up to here rows are a loop inside the matrix-vector kernels; above, tensor cores
MOST_ROWS = 32
CANDIDATES = 64  # ids that the sampler ranks; at least top_k of them


@dataclass(frozen=True)
class FusedConfig:
    """Shared by both paths. A pair is (rows of the weight per program, warps).

    pdl: programmatic dependent launch, None where the device has it. slices: of the earlier positions, a power of two.
    block: positions per iteration of attention. attention_early: the first block is loaded before the wait.
    """

    qkv: tuple[int, int]
    out: tuple[int, int]
    gate_up: tuple[int, int]
    down: tuple[int, int]
    head: tuple[int, int]
    slices: int
    block: int = 64
    attention_warps: int = 1
    attention_early: bool = True
    sample_warps: int = 16
    pdl: bool | None = None


@dataclass(frozen=True)
class GemvConfig(FusedConfig):
    """One or two rows. qkv counts rotary pairs, gate_up rows of each half.

    tile: inputs per tile. flat: stages whose input is loaded once per program and exchanged through shared memory.
    inner_fp32: the SwiGLU output is kept in fp32.
    """

    qkv: tuple[int, int] = (2, 2)
    out: tuple[int, int] = (8, 8)
    gate_up: tuple[int, int] = (16, 8)
    down: tuple[int, int] = (2, 4)
    head: tuple[int, int] = (8, 4)
    slices: int = 2
    tile: int = 256
    flat: tuple[str, ...] = ()
    inner_fp32: bool = False


@dataclass(frozen=True)
class RowsConfig(FusedConfig):
    """3 to 32 rows. down_slice: inputs per program of the down product. depth: K step. stages: of the pipelined loops.

    early: products whose weights are all loaded before the wait, instead of in a loop after it.
    """

    qkv: tuple[int, int] = (16, 4)
    out: tuple[int, int] = (32, 4)
    gate_up: tuple[int, int] = (16, 2)
    down: tuple[int, int] = (64, 4)
    head: tuple[int, int] = (64, 4)
    slices: int = 1
    attention_warps: int = 2
    down_slice: int = 1024
    depth: int = 128
    stages: int = 4
    early: tuple[str, ...] = ()


def best_config(rows: int) -> FusedConfig:
    """Block sizes of the fastest measured chains of the prototype (H200); bench/decode_sweep.py looks for better."""
    if rows <= GEMV_ROWS:
        return GemvConfig()
    if rows <= 8:
        return RowsConfig(slices=4, qkv=(32, 4), gate_up=(32, 4), stages=6)
    return RowsConfig()


def misfit(spec: LlmSpec) -> str | None:
    """Why the kernels cannot run a model of these sizes; None when they can."""
    group = spec.heads // spec.kv_heads
    sampling = spec.sampling
    for fits, reason in (
        (spec.head_dim in (16, 32, 64, 128), f"head_dim {spec.head_dim} is not 16, 32, 64 or 128"),
        (spec.heads % spec.kv_heads == 0, f"{spec.heads} query heads do not share {spec.kv_heads} KV heads evenly"),
        (group <= 16, f"{group} query heads share a KV head, at most 16 can"),
        (spec.width % 16 == 0 and spec.ffn_width % 16 == 0, "width and ffn_width are not multiples of 16"),
        (spec.ffn_width >= 16 and spec.width <= 4096, f"width {spec.width} is above 4096"),
        (spec.head_rows <= 32768, f"the head has {spec.head_rows} ids, at most 32768 can be sampled"),
        (sampling.top_k < CANDIDATES, f"top_k {sampling.top_k} is not below {CANDIDATES}"),
        (0 < sampling.top_p < 1, f"top_p {sampling.top_p} is not between 0 and 1"),
    ):
        if not fits:
            return f"the fused kernels do not fit this model: {reason}"
    return None


def unavailable(device: torch.device) -> str | None:
    """Why no fused step can run on this device; None when one can."""
    if device.type != "cuda":
        return "fused decode kernels need a CUDA GPU; this machine runs on its CPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (Linux wheels of torch bring it; on Windows: pip install triton-windows)"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"this GPU has compute capability {major}.{minor}; the fused decode kernels need 8.0 or later"
    try:
        from triton.language.extra.cuda import gdc_wait  # noqa: F401
    except ImportError:
        return "this Triton is too old for the fused decode kernels: 3.4 or later is needed"
    return None
