"""What of the fused step can be tuned, the values in use, and which models and machines it fits (no Triton needed)."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from cosy_engine.flow.dit import POSITION_GROUPS
from cosy_engine.settings.model_spec import ConformerSpec, FlowSpec, LlmSpec, UNetSpec

GEMV_ROWS = 2  # up to here rows are a loop inside the matrix-vector kernels; above, tensor cores
MOST_ROWS = 32
CANDIDATES = 64  # ids that the sampler ranks; at least top_k of them


@dataclass(frozen=True)
class Gemv:
    """How a product is cut at one or two rows. rows: of the weight per program (rotary pairs in QKV, rows of each half
    in gate/up). registers: at most so many a thread, so that more programs are resident; None leaves it to the
    compiler. tile: inputs per tile. flat: the input is loaded once per program and exchanged through shared memory.
    """

    rows: int
    warps: int
    registers: int | None = None
    tile: int = 256
    flat: bool = False


@dataclass(frozen=True)
class Dot:
    """How a product is cut on tensor cores; fields as in Gemv. early: all weights of a program are loaded before the
    wait, else a loop of `stages` in flight runs after it.
    """

    rows: int
    warps: int
    registers: int | None = None
    tile: int = 128
    stages: int = 4
    early: bool = False


@dataclass(frozen=True)
class FusedConfig:
    """Shared by both paths. slices: of the earlier positions, a power of two. block: positions per iteration of
    attention. attention_early: the first block is loaded before the wait. pdl: programmatic dependent launch where the
    device has it.
    """

    slices: int
    block: int = 64
    attention_warps: int = 1
    attention_early: bool = True
    sample_warps: int = 16
    pdl: bool = True


@dataclass(frozen=True)
class GemvConfig(FusedConfig):
    """One or two rows. inner_fp32: the SwiGLU output is kept in fp32.

    gate_up, without a limit and not flat, takes 132 registers: one program fits where two must be.
    """

    slices: int = 2
    qkv: Gemv = Gemv(2, 2)
    out: Gemv = Gemv(8, 8)
    gate_up: Gemv = Gemv(16, 8, tile=1024, flat=True)
    down: Gemv = Gemv(2, 4)
    head: Gemv = Gemv(8, 4)
    inner_fp32: bool = False


@dataclass(frozen=True)
class RowsConfig(FusedConfig):
    """3 to 32 rows. down_slice: inputs per program of the down product."""

    slices: int = 1
    attention_warps: int = 2
    qkv: Dot = Dot(16, 4)
    out: Dot = Dot(32, 4)
    gate_up: Dot = Dot(16, 2)
    down: Dot = Dot(64, 4)
    head: Dot = Dot(64, 4)
    down_slice: int = 1024


def best_config(rows: int, dtype: torch.dtype = torch.float16) -> FusedConfig:
    """Block sizes of the fastest chains that bench/decode_sweep.py found on an H200 in fp16: 0.440, 0.604 and 0.729 ms a step at
    1, 8 and 32 rows, from position 150 to 450.

    fp32 takes twice the registers and shared memory: smaller blocks, so that it runs on smaller GPUs too.
    """
    if dtype == torch.float32:
        if rows <= GEMV_ROWS:
            return GemvConfig(block=32, attention_warps=4)
        cuts = (Dot(32, 4, tile=64, stages=3), Dot(64, 4, tile=64, stages=3))
        return RowsConfig(
            slices=2, block=32, attention_warps=4, qkv=cuts[0], gate_up=cuts[0], down=cuts[1], head=cuts[1]
        )
    if rows <= GEMV_ROWS:
        return GemvConfig(
            block=128,
            attention_warps=4,
            qkv=Gemv(4, 2, tile=1024, flat=True),
            out=Gemv(4, 8),
            gate_up=Gemv(8, 4, tile=1024, flat=True),
            down=Gemv(4, 4),
            head=Gemv(16, 8, tile=1024, flat=True),
        )
    if rows <= 8:
        return RowsConfig(
            slices=2,
            block=128,
            attention_warps=4,
            qkv=Dot(64, 4, early=True),
            gate_up=Dot(16, 2, stages=6, early=True),
            down=Dot(64, 4, stages=6),
            head=Dot(32, 4, stages=6, early=True),
        )
    return RowsConfig(slices=2, block=128, attention_warps=4, qkv=Dot(64, 4), out=Dot(64, 8), down=Dot(64, 4, stages=6))


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


def flow_misfit(spec: FlowSpec) -> str | None:
    """Why the flow's kernels cannot run an estimator of these sizes; None when they can. Tensor cores take 16 or more."""
    estimator = spec.estimator
    sizes = {"head_dim": estimator.head_dim}
    if isinstance(estimator, UNetSpec):
        sizes["channels"] = estimator.channels
    else:
        sizes["channels of a position group"] = estimator.dim // POSITION_GROUPS
    if isinstance(spec.front, ConformerSpec):
        sizes["head_dim of the front network"] = spec.front.width // spec.front.heads
    for name, size in sizes.items():
        if size < 16 or size & (size - 1):
            return f"{name} is {size}, not a power of two from 16 on"
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
