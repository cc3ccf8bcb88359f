"""Where does the time of each stage go? Kernels of the captured forms, by total time, and comparisons that settle choices.

    python bench/profile_kernels.py --versions v3,v2 --parts decode,prefill,flow,front,vocoder,micro --precision fp16 [--seconds 13]

Each release runs in a process of its own; a crash costs the part that crashed, a new process does the parts after it. A part is
captured as the engine captures it, in both tiers, timed as 20 replays by device events, and one eager call of the same function
is traced by torch.profiler: the same kernels, with larger gaps. The fused decode step has a bench of its own, decode_sweep. Ceiling: the copy bandwidth is printed once; a stage's floor is its bytes over it. Needs a GPU. The last
line is JSON.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import torch.nn.functional as F

from cosy_engine.accel import fused_config
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.flow_graph import FRAMES, SolverStart, SolverStep
from cosy_engine.accel.flow_lean import PlainOps as FlowOps
from cosy_engine.accel.flow_lean import channels_last, lean
from cosy_engine.accel.graphs import Graph
from cosy_engine.accel.prefill_graph import PrefillStep
from cosy_engine.accel.vocoder_graph import WindowStep
from cosy_engine.accel.vocoder_lean import LeanHift, Part
from cosy_engine.accel.vocoder_lean import PlainOps as VocoderOps
from cosy_engine.bench import random_models
from cosy_engine.build import DTYPES, ROW_DRAWS, ROW_POSITIONS, between_products
from cosy_engine.health.measure import copy_bandwidth
from cosy_engine.llm.pool import DecodePool, RowPlan
from cosy_engine.settings.published import PUBLISHED

ROOT = Path(__file__).resolve().parent.parent
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
Named = Iterator[tuple[str, Callable[[], object]]]


def tiers(options, stage: int) -> list[tuple[str, object]]:
    """(name, operations) of each tier that this machine has; stage 0 is the flow, 1 the vocoder."""
    found = [("graph", (FlowOps, VocoderOps)[stage]())]
    if fused_config.unavailable(DEVICE) is None:
        kernels = between_products(options.precision, PUBLISHED[options.version].flow)[stage]
        found += [("fused", kernels)] if kernels else []
    return found


def flow(models, spec, options) -> Named:
    """One Euler step, in the bucket of so many seconds and in a short one."""
    for frames in (next(f for f in FRAMES if f >= 50 * options.seconds), 256):
        for tier, ops in tiers(options, 0):
            estimator = lean(models.flow.decoder.estimator, ops)
            step = SolverStep(models.flow.decoder, frames, spec.flow.mel_bins, models.flow.device, estimator)
            SolverStart(models.flow, step)()
            step.see(*torch.tensor([[min(frames, 50 * options.seconds)], [frames]], device=DEVICE))
            yield f"{tier} {frames} frames", step


def front(models, spec, options) -> Named:
    """All before the first Euler step."""
    frames = next(f for f in FRAMES if f >= 50 * options.seconds)
    for tier, ops in tiers(options, 0):
        estimator = lean(models.flow.decoder.estimator, ops)
        step = SolverStep(models.flow.decoder, frames, spec.flow.mel_bins, models.flow.device, estimator)
        start = SolverStart(models.flow, step)
        start.numbers.copy_(torch.tensor([25 * options.seconds, 25 * options.seconds, 9999]))
        yield f"{tier} {frames} frames", start


def vocoder(models, spec, options) -> Named:
    """One window."""
    for frames in (512, 96):
        for tier, ops in tiers(options, 1):
            step = WindowStep(LeanHift(models.vocoder, ops), frames)
            step.mel.normal_()
            yield f"{tier} {frames} frames", step


def pool_of(models, rows: int) -> DecodePool:
    pool = DecodePool(models.lm, rows, ROW_POSITIONS, ROW_DRAWS)
    for seed in range(rows):
        draws = np.random.default_rng(seed).random((900, 2), np.float32)
        pool.admit(RowPlan(list(range(60)), torch.zeros(75, dtype=torch.int64), draws, 900, 900))
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return pool


def decode(models, spec, options) -> Named:
    """A step at position 137 and beyond; and what follows the model in it."""
    plain = TorchStep(models.lm, ROW_POSITIONS)
    for rows in (1, 8):
        pool = pool_of(models, rows)
        yield f"graph {rows} rows", lambda pool=pool, rows=rows: plain(pool.state, rows, 256)
        if rows == 1:
            x = torch.randn(1, spec.llm.width, device=DEVICE)
            yield (
                "graph head and sampling",
                lambda pool=pool, x=x: models.lm.finish_step(
                    pool.state, 1, models.lm.log_probs(models.lm.backbone.norm(x))
                ),
            )


def prefill(models, spec, options) -> Named:
    """A prompt of 137 positions with all that admits its row."""
    pool, plain = pool_of(models, 1), TorchStep(models.lm, ROW_POSITIONS)
    step = PrefillStep(plain, pool.state, 192)
    step.packed[2 * 192 :] = torch.tensor([137, 0, 900, 900, spec.llm.head_rows])
    yield "192 positions", step


def micro(models, spec, options) -> Named:
    """Alternatives at the sizes of this release: what should the engine use?"""
    half, device = DTYPES[options.precision], DEVICE
    frames = next(f for f in FRAMES if f >= 50 * options.seconds)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=half) * 0.5

    if options.version == "v3":
        heads, width, inner = 16, 1024, 2048
    else:
        heads, width, inner = 8, 256, 1024
    mixed, mask = random(2, frames, 3, heads, 64), random(1, 1, frames, frames) * 0
    query, key, value = (part.transpose(1, 2) for part in mixed.unbind(2))
    yield "attention: torch with mask", lambda: F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    yield "attention: torch without", lambda: F.scaled_dot_product_attention(query, key, value)
    if options.version == "v3" and fused_config.unavailable(DEVICE) is None:
        from cosy_engine.accel.flow_kernels import FlowKernels

        limits = torch.tensor([min(frames, 50 * options.seconds), frames], dtype=torch.int32, device=device)
        for cut in (
            (128, 64, 8, 3), (128, 64, 4, 3), (128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2),
            (64, 32, 4, 3),
        ):  # fmt: skip
            yield f"attention: kernel {cut}", lambda cut=cut: FlowKernels((cut,)).attention(mixed, limits)
    x, weight, bias = random(2 * frames, width), random(inner, width), random(inner)
    flat = random(2 * frames, inner)
    yield "wide: product, then gelu", lambda: F.gelu(F.linear(x, weight, bias), approximate="tanh")
    yield "wide: gelu in the product", lambda: torch._addmm_activation(bias, x, weight.T, use_gelu=True)
    yield "wide: product alone", lambda: F.linear(x, weight, bias)
    yield "wide: gelu alone, erf", lambda: F.gelu(flat)
    h, vector = torch.randn(2, frames, width, device=device), torch.randn(width, device=device)
    add = random(2, frames, width)
    for name, ops in tiers(options, 0):
        yield f"{name}: gate, add, norm", lambda ops=ops: ops.add_norm(h, add, vector, vector, vector, 1e-6, half)
        turn = ops.turns(*torch.randn(2, frames, 32, device=device))
        yield f"{name}: rotate", lambda ops=ops, turn=turn: ops.rotate(mixed, turn)
    if options.version == "v3":
        x1, w = random(2, frames, 1024), random(1024, 31, 64).transpose(1, 2)
        yield (
            "position conv: channels last",
            lambda: F.conv2d(
                x1.transpose(1, 2)[:, :, None], w[:, :, None], vector.to(half), padding=(0, 30), groups=16
            ),
        )
        for name, ops in tiers(options, 0):
            conv = torch.nn.Conv1d(1024, 1024, 31, groups=16, device=device, dtype=half)
            channels_last(conv)
            yield f"{name}: position conv, mish", lambda ops=ops, conv=conv: ops.position_conv(x1, conv, None)
        taps, per_group = random(16, 2 * frames, 64 * 31), random(16, 64 * 31, 64)
        yield "position conv: products alone, taps gathered before", lambda: torch.bmm(taps, per_group)
        yield (
            "position conv: depth of 4 groups",
            lambda: F.conv2d(
                x1.transpose(1, 2)[:, :, None],
                random(1024, 31, 256).transpose(1, 2)[:, :, None],
                None,
                padding=(0, 30),
                groups=4,
            ),
        )
    else:
        y, w = random(2, frames, 256), random(256, 3, 256).transpose(1, 2)
        yield (
            "conv of 3: channels last",
            lambda: F.conv2d(y.transpose(1, 2)[:, :, None], w[:, :, None], None, padding=(0, 2)),
        )
        flat_w = random(256, 768)
        yield "conv of 3: gathered taps", lambda: F.linear(F.pad(y, (0, 0, 2, 0)).unfold(1, 3, 1).flatten(2), flat_w)
        shifted = [random(256, 256).T for _ in range(3)]
        yield (
            "conv of 3: three products",
            lambda: torch.addmm(torch.addmm(y[0] @ shifted[0], y[0], shifted[1]), y[0], shifted[2]),
        )
    wide = torch.randn(512, 512 * 3, device=device, dtype=torch.float64)
    signal = torch.randn(512, 512 * 3, device=device, dtype=torch.float64)
    short = signal.float(), wide.float()
    yield "pitch conv in fp64: product", lambda: F.linear(signal, wide)
    yield "pitch conv in fp32: product", lambda: F.linear(*short)
    for channels, length, kernel in ((256, 4096, 3), (256, 4096, 11), (128, 20480, 7), (64, 61441, 3), (64, 61441, 11)):
        for dtype in (half, torch.float32):
            a = torch.randn(1, length, channels, device=device, dtype=dtype).transpose(1, 2)
            b = torch.randn(channels, kernel, channels, device=device, dtype=dtype).transpose(1, 2)
            yield (
                f"vocoder conv {channels}, {length}, {kernel}, {dtype}: channels last",
                lambda a=a, b=b, k=kernel: F.conv2d(a[:, :, None], b[:, :, None], None, padding=(0, k - 1)),
            )
        if fused_config.unavailable(DEVICE) is None:
            from cosy_engine.accel.vocoder_kernels import VocoderKernels

            one, two = torch.randn(1, length, channels, device=device), random(1, length, channels)
            alpha = torch.ones(channels, device=device)
            for block in (512, 1024, 2048):
                yield (
                    f"add and snake {channels}, {length}, block {block}",
                    lambda o=one, t=two, a=alpha, b=block: VocoderKernels(b).add_snake(Part(o), Part(t), a, half),
                )
    scores = torch.randn(1, 6761, device=device)
    keys = (scores.view(torch.int32).long() << 20) | torch.arange(6761, device=device)
    yield "top 25: topk of int64", lambda: keys.topk(25, dim=-1)
    yield "top 25: topk of fp32", lambda: scores.topk(25, dim=-1)
    yield "top 25: sort of int64", lambda: keys.sort(dim=-1)
    hidden, up = random(1, 896), random(896, 9728)
    yield "1 row: mm with fp32 result", lambda: torch.mm(hidden, up, out_dtype=torch.float32)
    yield "1 row: mm with half result", lambda: torch.mm(hidden, up)
    base, out = torch.randn(1, 896, device=device), random(4864, 896)
    inner1 = random(1, 4864)
    yield "1 row: addmm with fp32 result", lambda: torch.addmm(base, inner1, out, out_dtype=torch.float32)
    yield "1 row: mm with half result, then add", lambda: base + torch.mm(inner1, out)
    yield "1 row: rms norm, then half", lambda: F.rms_norm(base, (896,), base[0], 1e-6).to(half)


def step(models, spec, options) -> Named:
    """Alternatives inside the plain decode step, by rows."""
    llm, half = spec.llm, DTYPES[options.precision]
    heads, kv, size = llm.heads, llm.kv_heads, llm.head_dim
    outputs = {"qkv": (llm.width, (heads + 2 * kv) * size), "out": (heads * size, llm.width),
               "gate_up": (llm.width, 2 * llm.ffn_width), "down": (llm.ffn_width, llm.width)}  # fmt: skip

    def random(*shape: int, dtype: torch.dtype = half) -> torch.Tensor:
        return torch.randn(shape, device=DEVICE, dtype=torch.float32).to(dtype) * 0.1

    for rows in (1, 8):
        for name, (inputs, count) in outputs.items():
            # as many matrices as layers, so that none stays in the cache of the chip
            x = random(rows, inputs)
            for label, extra in (("", 0), (", an odd number of outputs", 1)):
                weights = [random(count + extra, inputs) for _ in range(24)]
                into = random(rows, count + extra, dtype=torch.float32)

                def each(work, weights=weights):
                    for weight in weights:
                        work(weight)

                yield (
                    f"{rows} rows, {name}: mm to fp32{label} x24",
                    lambda e=each, x=x: e(lambda w: torch.mm(x, w.T, out_dtype=torch.float32)),
                )
                yield (
                    f"{rows} rows, {name}: added in place{label} x24",
                    lambda e=each, x=x, o=into: e(lambda w: torch.addmm(o, x, w.T, out_dtype=torch.float32, out=o)),
                )
            if rows == 1:
                yield (
                    f"{rows} rows, {name}: matrix times vector x24",
                    lambda e=each, x=x: e(lambda w: torch.mv(w, x[0])),
                )
            turned = [random(inputs, count) for _ in range(24)]
            yield (
                f"{rows} rows, {name}: mm to fp32, stored turned x24",
                lambda e=each, x=x, t=turned: e(lambda w: torch.mm(x, w, out_dtype=torch.float32), t),
            )
        for context in (256, 512):
            query = random(rows, heads, size)
            cached = random(2, rows, kv, 2048, size)
            keys, values = cached[..., :context, :].unbind()
            mask = random(rows, context) * 0
            folded = query.reshape(rows, kv, -1, size)
            wide = mask[:, None, None].repeat(1, 1, heads // kv, 1)
            from torch.nn.attention import SDPBackend, sdpa_kernel

            def attend(backend=None, folded=folded, keys=keys, values=values, wide=wide):
                if backend is None:
                    return F.scaled_dot_product_attention(folded, keys, values, attn_mask=wide)
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(folded, keys, values, attn_mask=wide)

            name = f"{rows} rows, attention of {context}"
            yield f"{name}: heads as queries", attend
            yield f"{name}: heads as queries, efficient", lambda a=attend: a(SDPBackend.EFFICIENT_ATTENTION)
            yield f"{name}: heads as queries, cudnn", lambda a=attend: a(SDPBackend.CUDNN_ATTENTION)
            yield f"{name}: heads as queries, math", lambda a=attend: a(SDPBackend.MATH)
            yield (
                f"{name}: enable_gqa",
                lambda q=query[:, :, None], k=keys, v=values, m=mask[:, None, None]: F.scaled_dot_product_attention(
                    q, k, v, attn_mask=m, enable_gqa=True
                ),
            )
            flat = (
                folded.flatten(0, 1),
                keys.flatten(0, 1),
                values.flatten(0, 1),
                wide.repeat_interleave(kv, 1).flatten(0, 1),
            )

            def by_products(q=flat[0], k=flat[1], v=flat[2], m=flat[3]):
                scores = torch.baddbmm(m, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
                return torch.bmm(torch.softmax(scores, dim=-1), v)

            yield f"{name}: products", by_products
        spread, turn = (
            random(rows, heads + 2 * kv, 1, 2, size // 2, dtype=torch.float32),
            random(rows, heads + 2 * kv, 2, 2, size // 2, dtype=torch.float32),
        )

        def rotate(mixed=spread, turn=turn):
            pairs = mixed * turn
            both = torch.empty(pairs.shape[:3] + pairs.shape[4:], dtype=half, device=DEVICE)
            return torch.add(*pairs.unbind(3), out=both)

        first = turn.permute(3, 0, 1, 2, 4).contiguous()

        def rotate_apart(mixed=spread[:, :, 0], turn=first):
            pairs = mixed.permute(2, 0, 1, 3)[:, :, :, None] * turn
            return torch.add(pairs[0], pairs[1], out=torch.empty(pairs[0].shape, dtype=half, device=DEVICE))

        def rotate_cast(mixed=spread[:, :, 0], turn=first):
            pairs = mixed.permute(2, 0, 1, 3)[:, :, :, None] * turn
            return torch.add(pairs[0], pairs[1]).to(half)

        def rotate_addcmul(mixed=spread[:, :, 0], turn=first):
            left, right = mixed.permute(2, 0, 1, 3)[:, :, :, None]
            out = torch.empty(turn[0].shape, dtype=half, device=DEVICE)
            return torch.addcmul(left * turn[0], right, turn[1], out=out)

        yield f"{rows} rows, rotate: interleaved", rotate
        yield f"{rows} rows, rotate: apart", rotate_apart
        yield f"{rows} rows, rotate: apart, then half", rotate_cast
        yield f"{rows} rows, rotate: addcmul", rotate_addcmul
        wide_in = random(rows, 2 * llm.ffn_width, dtype=torch.float32)
        gate, up = wide_in.chunk(2, dim=-1)
        yield (
            f"{rows} rows, silu: product in half",
            lambda g=gate, u=up: torch.mul(F.silu(g), u, out=torch.empty(g.shape, dtype=half, device=DEVICE)),
        )
        yield f"{rows} rows, silu: product, then half", lambda g=gate, u=up: (F.silu(g) * u).to(half)
        cache = random(2, rows, kv, 2048, size)
        new, every = random(rows, 2, kv, size), torch.arange(rows, device=DEVICE)
        position = every + 300
        yield (
            f"{rows} rows, write: index_put",
            lambda c=cache, n=new, e=every, p=position: c.permute(1, 3, 0, 2, 4).index_put_((e, p), n),
        )
        at = position[None, :, None, None, None].expand(2, -1, kv, 1, size).contiguous()
        yield (
            f"{rows} rows, write: scatter",
            lambda c=cache, n=new, a=at: c.scatter_(3, a, n.permute(1, 0, 2, 3)[:, :, :, None]),
        )
        if rows == 1:
            yield (
                "1 rows, write: index_copy",
                lambda c=cache, n=new, p=position: c.index_copy_(3, p, n.permute(1, 0, 2, 3)[:, :, :, None]),
            )
        x = random(rows, llm.width, dtype=torch.float32)
        yield f"{rows} rows, norm, then half", lambda x=x: F.rms_norm(x, (llm.width,), x[0], 1e-6).to(half)
        scores = torch.randn(rows, 6761, device=DEVICE).softmax(-1)
        keys64 = (scores.view(torch.int32).long() << 20) | torch.arange(6761, device=DEVICE)
        yield f"{rows} rows, top 25", lambda k=keys64: k.topk(25, dim=-1)

        def in_two(k=keys64):
            padded = F.pad(k, (0, 6784 - 6761), value=-1).view(len(k), 32, 212)
            return padded.topk(25, dim=-1, sorted=False).values.flatten(1).topk(25, dim=-1)

        yield f"{rows} rows, top 25 in two", in_two
        yield f"{rows} rows, log_softmax", lambda s=scores: s.log_softmax(-1)


def cuts(models, spec, options) -> Named:
    """Cuts of the estimator's Triton kernels, at the utterance's frames and at 256."""
    if fused_config.unavailable(DEVICE) is not None:
        return
    from cosy_engine.accel.flow_kernels import LIBRARY, FlowKernels

    half = DTYPES[options.precision]
    heads, width, inner = (16, 1024, 2048) if options.version == "v3" else (8, 256, 1024)

    def random(*shape: int, dtype: torch.dtype = half) -> torch.Tensor:
        return (torch.randn(shape, device=DEVICE) * 0.1).to(dtype)

    def linear(inputs: int, outputs: int) -> torch.nn.Linear:
        return torch.nn.Linear(inputs, outputs, device=DEVICE, dtype=half).requires_grad_(False)

    for frames in (next(f for f in FRAMES if f >= 50 * options.seconds), 256):
        limits = torch.tensor([min(frames, 50 * options.seconds), frames], dtype=torch.int32, device=DEVICE)
        mixed = random(2, frames, 3, heads, 64)
        for cut in ((64, 64, 4, 3), (64, 64, 4, 2), (64, 128, 4, 2), (64, 128, 4, 3), (64, 128, 8, 2), (128, 128, 8, 2), (128, 64, 8, 3),
                    (64, 32, 4, 4), (32, 64, 4, 3), (32, 128, 4, 2), (64, 64, 8, 3), (32, 64, 2, 3)):  # fmt: skip
            yield (
                f"{frames} frames, attention {cut}",
                lambda c=cut, m=mixed, v=limits: FlowKernels((c,)).attention(m, v),
            )
        if options.version == "v3":
            continue
        h = random(2, frames, width, dtype=torch.float32)
        for depth in (heads * 64, inner):
            layer, x = linear(depth, width), random(2, frames, depth)
            for cut in ((64, 64, 4, 64, 4), (64, 64, 4, 128, 3), (64, 32, 4, 128, 3), (32, 64, 4, 128, 3), (32, 32, 4, 128, 4), (32, 64, 2, 64, 4),
                        (64, 32, 4, 256, 2), (32, 32, 4, 256, 2), (16, 64, 4, 128, 3), (32, 128, 4, 64, 4), (32, 64, 4, 64, 6), LIBRARY):  # fmt: skip
                yield (
                    f"{frames} frames, product add {depth} {cut}",
                    lambda c=cut, to=layer, x=x, h=h: FlowKernels(add=(c,)).product_add(h, x, to),
                )


PARTS = {part.__name__: part for part in (decode, prefill, flow, front, vocoder, micro, step, cuts)}
SMALL = ("micro", "step", "cuts")  # comparisons of single operations, which need no model


def kernels(call: Callable[[], object]) -> list[tuple[str, int, float]]:
    """(name, launches, total microseconds) of one eager call, largest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        call()
        torch.cuda.synchronize()
    rows = [(e.key[:100], e.count, e.self_device_time_total) for e in trace.key_averages()]
    return sorted(rows, key=lambda row: -row[2])


def replay_us(call: Callable[[], object], calls: int = 1, replays: int = 20) -> tuple[float, float]:
    """(microseconds of a call in a captured graph of so many, seconds that capturing took)."""
    began = time.perf_counter()

    def repeated() -> None:
        for _ in range(calls):
            call()

    graph = Graph(repeated)
    took = time.perf_counter() - began
    graph()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(replays):
        graph()
    last.record()
    torch.cuda.synchronize()
    return 1000 * first.elapsed_time(last) / replays / calls, took


def measure(options) -> None:
    """Parts of one release, in this process."""
    spec, models = PUBLISHED[options.version], None
    for part in options.parts.split(","):
        print(f"PART {part}", flush=True)
        if part not in SMALL and models is None:
            models = random_models(spec, DEVICE)
            models = models if options.precision == "fp32" else models.at(options.precision)
        with torch.inference_mode():
            for name, call in PARTS[part](models, spec, options):
                label = f"{part} {options.version} {options.precision}, {name}"
                try:
                    one(call, label, part in SMALL, options.top)
                except Exception as error:  # one alternative that cannot run must not lose the others
                    print(
                        f"   failed     {label}: {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True
                    )
                    if isinstance(error, torch.AcceleratorError):  # the device is lost to this process
                        raise


def one(call: Callable[[], object], label: str, small: bool, top: int) -> None:
    """Time one call, and name its kernels unless it is small."""
    call()
    torch.cuda.synchronize()
    if small:
        micros, _ = replay_us(call, calls=10, replays=3)
        print(f"{micros:9.1f} us  {label}", flush=True)
        print("JSON" + json.dumps({"name": label, "us": round(micros, 1)}), flush=True)
        return
    micros, took = replay_us(call)
    print(f"\n{label}: {micros:.0f} us a replay; captured in {took:.2f} s", flush=True)
    rows = kernels(call)
    total, count = sum(row[2] for row in rows), sum(row[1] for row in rows)
    print(f"{total:9.0f} us {count:5} x  all kernels", flush=True)
    for kernel, times, us in rows[:top]:
        print(f"{us:9.0f} us {times:5} x  {kernel}", flush=True)
    found = {
        "name": label,
        "us": round(micros, 1),
        "kernels": count,
        "sum_us": round(total),
        "capture_s": round(took, 2),
    }
    print("JSON" + json.dumps(found), flush=True)


def run_parts(version: str, parts: list[str], options, found: dict) -> list[str]:
    """Measure in a new process, pass its output on as it comes; returns the parts after one that crashed."""
    command = [sys.executable, __file__, "--version", version, "--parts", ",".join(parts), "--precision", options.precision,
               "--seconds", str(options.seconds), "--top", str(options.top)]  # fmt: skip
    began, now = time.perf_counter(), parts[0]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        for line in process.stdout:
            if line.startswith("JSON"):
                found["parts"].append(json.loads(line[4:]))
            elif line.startswith("PART"):
                now = line.split()[1]
            elif "Assertion" not in line:  # the device prints one for each thread
                print(line, end="", flush=True)
    print(f"[{version}: {time.perf_counter() - began:.1f} s]", flush=True)
    if process.returncode == 0:
        return []
    found["failed"].append(f"{now} {version}: exit status {process.returncode}")
    print(found["failed"][-1], flush=True)
    return parts[parts.index(now) + 1 :]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated, of %(default)s")
    parser.add_argument("--versions", default="v3,v2")
    parser.add_argument("--precision", default="fp16", choices=sorted(DTYPES))
    parser.add_argument("--seconds", type=int, default=13, help="of prompt and speech together")
    parser.add_argument("--top", type=int, default=16)
    parser.add_argument("--version", help=argparse.SUPPRESS)  # set in the process that measures
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("this profile counts CUDA kernels: it needs a CUDA GPU; try `python -m cosy_engine bench` on a CPU")
        return 1
    if options.version:
        measure(options)
        return 0
    found = {"copy_tb_s": round(copy_bandwidth(DEVICE) / 1e12, 3), "parts": [], "failed": []}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {found['copy_tb_s']} TB/s", flush=True)
    for version in options.versions.split(","):
        parts = options.parts.split(",")
        while parts:
            parts = run_parts(version, parts, options, found)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
