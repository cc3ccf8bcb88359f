"""Which block sizes make a decode step of the fused tier fastest on this GPU?

    python bench/decode_sweep.py [--rows 1,8,32,2] [--precisions fp16,bf16] [--seconds 150] [--version v3]

Ceiling: a step reads all weights of the body and the head once; floor = those bytes / the copy bandwidth measured here.
Every configuration is first checked on random full-size weights: log-probs against the eager step in fp32 with the same
rounded weights, and the written record against `finish_step` on its own logits. Then it is timed: a graph of one step,
300 replays from position 150, device events, median of 3 after 50 discarded ones (a candidate that is 3 % slower in
the first series is dropped there). The sweep changes one setting at
a time, in the first precision, and keeps what is faster; the other precisions run the winners. A configuration that fails to compile or to be right is reported and passed over.
Kernels of all candidates are compiled by worker processes beforehand, into Triton's cache on disk. The last line is JSON.
"""

import argparse
import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.fused_config import GEMV_ROWS, FusedConfig, best_config, unavailable
from cosy_engine.accel.graphs import Graph
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.settings.model_spec import LlmSpec

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
POSITIONS, DRAWS = 1024, 512
REPLAYS, SERIES, WARM, FIRST_POSITION = 300, 3, 50, 150
# Largest log-prob error that is taken: seen with the prototype in fp16 1.5e-2; bf16 keeps 3 bits less, fp32 13 more.
ALLOWED = {"fp16": 3e-2, "bf16": 2.4e-1, "fp32": 1e-3}
RECORD = ("token", "step", "draw", "recent", "done", "stop_id", "finite", "out")

# One setting at a time, the most promising first: (product or None, field, values).
GEMV_SETTINGS = (
    ("gate_up", "registers", (80, None, 128)),
    (None, "slices,block,attention_warps", ((4, 128, 4), (4, 64, 2), (8, 64, 4), (8, 64, 2), (2, 128, 4), (4, 64, 1))),
    ("gate_up", "rows,warps,registers", ((8, 4, None), (8, 8, None), (32, 16, None), (16, 16, None), (8, 4, 80))),
    ("gate_up", "flat,tile", ((False, 256), (True, 256), (True, 128), (False, 128))),
    ("down", "rows,warps", ((4, 4), (2, 2), (4, 8), (1, 2), (8, 8), (1, 4))),
    ("out", "rows,warps", ((4, 4), (4, 8), (8, 4), (2, 4), (16, 8))),
    ("qkv", "rows,warps", ((4, 4), (1, 1), (2, 4), (4, 2), (1, 2))),
    ("head", "flat,tile", ((True, 256), (True, 1024))),
    ("head", "rows,warps", ((16, 8), (4, 4), (16, 4), (8, 8))),
    ("qkv", "flat,tile", ((True, 256), (True, 1024))),
    (None, "sample_warps", (8, 32)),
    (None, "inner_fp32", (True,)),
    (None, "attention_early", (False,)),
    (None, "pdl", (False,)),
)
DOT_SETTINGS = (
    ("gate_up", "rows,warps,early", ((16, 4, True), (16, 2, True), (16, 8, True))),
    ("down", "rows,warps,early", ((16, 4, True), (32, 4, True), (32, 8, True))),
    ("qkv", "rows,warps,early", ((16, 4, True), (32, 4, True), (16, 2, True))),
    ("head", "rows,warps,early", ((16, 4, True), (32, 4, True))),
    (None, "slices,block,attention_warps", ((4, 64, 4), (2, 64, 4), (2, 128, 4), (1, 128, 4), (1, 64, 4), (4, 128, 4))),
    ("out", "rows,warps", ((16, 4), (64, 4), (16, 2), (32, 2), (64, 8))),
    ("out", "tile", (64,)),
    (None, "down_slice", (512, 2048)),
    ("gate_up", "stages", (3, 4, 6)),
    ("down", "stages", (3, 4, 6)),
    ("qkv", "stages", (3, 4, 6)),
    ("gate_up", "tile", (64,)),
    ("down", "rows,warps", ((32, 4), (16, 4), (64, 8))),
    ("qkv", "rows,warps", ((16, 4), (32, 4), (16, 2), (64, 4))),
    ("gate_up", "rows,warps", ((16, 4), (32, 4), (32, 8), (16, 2))),
    ("head", "rows,warps", ((32, 4), (16, 4), (128, 8))),
    (None, "sample_warps", (8, 32)),
    (None, "attention_early", (False,)),
    (None, "pdl", (False,)),
)


def changed(config: FusedConfig, product: str | None, fields: str, value) -> FusedConfig:
    """One setting of a configuration replaced."""
    names = fields.split(",")
    values = dict(zip(names, value if len(names) > 1 else (value,), strict=True))
    if product is None:
        return replace(config, **values)
    return replace(config, **{product: replace(getattr(config, product), **values)})


def steps_of_sweep(rows: int) -> Iterator[tuple[str, Callable[[FusedConfig], FusedConfig]]]:
    """(name, change) for each candidate."""
    for product, fields, values in GEMV_SETTINGS if rows <= GEMV_ROWS else DOT_SETTINGS:
        for value in values:
            name = f"{product + '.' if product else ''}{fields}={value}"
            yield name, lambda c, p=product, f=fields, v=value: changed(c, p, f, v)


def published(version: str, layers: int) -> LlmSpec:
    """Published sizes; the text table is never read here."""
    make = LlmSpec.v2 if version == "v2" else LlmSpec.v3
    return make(
        text_vocab=16, width=896, layers=layers, heads=14, kv_heads=2, head_dim=64, ffn_width=4864, speech_tokens=6561
    )


@torch.inference_mode()
def random_lm(spec: LlmSpec, dtype: torch.dtype, device: torch.device) -> SpeechLM:
    """Random weights, scaled so that activations stay sane and logits spread like a trained model's."""
    with torch.device("meta"):
        lm = SpeechLM(spec)
    lm.to_empty(device=device).requires_grad_(False).eval()
    draw = torch.Generator(device).manual_seed(0)
    for name, weight in lm.named_parameters():
        weight.normal_(generator=draw)
        if name.endswith("norm.weight"):
            weight.mul_(0.2).add_(1.0)
        elif name.endswith("bias"):
            weight.mul_(0.3)
        elif "embed" not in name:
            weight.mul_((2.5 if name.startswith("llm_decoder") else 1.0) * weight.shape[1] ** -0.5)
    return lm.set_precision(dtype)


class Trial:
    """One precision and number of rows: a state to start from, what the step should give, and the clock."""

    def __init__(self, lm: SpeechLM, plain: TorchStep, rows: int, precision: str):
        self.lm, self.plain, self.rows, self.precision = lm, plain, rows, precision
        device, draw = lm.device, torch.Generator(lm.device).manual_seed(rows)
        with torch.inference_mode():
            self.state = state = lm.start(rows, POSITIONS, DRAWS)
            for cached in (state.cache.keys, state.cache.values):
                cached.copy_(torch.randn(cached.shape, generator=draw, device=device, dtype=torch.float32))
            state.uniforms.copy_(torch.rand(state.uniforms.shape, generator=draw, device=device))
            state.forbid[:, lm.spec.speech_tokens :] = True  # no row ends
            state.cache.length.copy_(300 - 7 * torch.arange(rows, device=device))
            state.token.copy_(torch.arange(rows, device=device) + 5)
            self.start = copy.deepcopy(state)

    def reset(self, cache: bool = False) -> None:
        """Back to the start; cached keys and values only where they are compared."""
        with torch.inference_mode():
            if cache:
                self.state.cache.both.copy_(self.start.cache.both)
            for name in RECORD:
                getattr(self.state, name).copy_(getattr(self.start, name))
            self.state.cache.length.copy_(self.start.cache.length)

    @torch.inference_mode()
    def expect(self, exact: SpeechLM) -> None:
        """Log-probs of the eager step in fp32 for the first step; then the torch step's ids in this precision."""
        start = self.start
        cache = replace(start.cache, both=start.cache.both.float())
        cache.length = start.cache.length.clone()
        hidden = exact.backbone(exact.embed_speech(start.token)[:, None], cache, context=320)
        self.expected = exact.log_probs(hidden[:, 0])
        self.reset(cache=True)
        self.plain(self.state, self.rows, 320)
        self.torch_ids = self.state.token.clone()

    @torch.inference_mode()
    def check(self, step: FusedStep, run: Callable[[], object]) -> dict:
        """error: largest of all log-probs. wrong: rows whose record is not finish_step's. same_ids: as the torch step."""
        self.reset(cache=True)
        twin = copy.deepcopy(self.state)
        step.scratch(self.rows).logits.fill_(torch.nan)
        run()
        logits = step.logits(self.rows).clone()
        error = (logits.log_softmax(-1) - self.expected).abs().nan_to_num(nan=torch.inf).max().item()
        self.lm.finish_step(twin, self.rows, logits.log_softmax(-1))
        differ = torch.zeros(self.rows, dtype=torch.bool, device=logits.device)
        for name in RECORD:
            differ |= (getattr(self.state, name) != getattr(twin, name)).reshape(self.rows, -1).any(1)
        differ |= self.state.cache.length != twin.cache.length
        same = (self.state.token == self.torch_ids).sum().item()
        return dict(error=error, wrong=int(differ.sum()), same_ids=f"{same}/{self.rows}")

    def milliseconds(self, run: Callable[[], object], beat: float = float("inf")) -> float:
        times = []
        for series in range(SERIES + 1):
            self.reset()
            with torch.inference_mode():
                self.state.cache.length.fill_(FIRST_POSITION)
            count = REPLAYS if series else WARM
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / count)
            if series == 1 and times[-1] > 1.03 * beat:
                break
        return median(times[1:])

    def measure(self, config: FusedConfig, beat: float = float("inf")) -> dict:
        """Check and time one configuration; a failure becomes its `failed`."""
        try:
            step = FusedStep(self.plain, lambda rows: config)
            graph = Graph(lambda: step(self.state, self.rows, 0))
            result = self.check(step, graph)
            if result["wrong"] or not result["error"] < ALLOWED[self.precision]:
                return result | dict(failed="wrong result")
            return result | dict(ms=self.milliseconds(graph, beat))
        except Exception as error:  # one configuration must not end the sweep
            torch.cuda.synchronize()  # raises if the device itself is lost
            return dict(failed=f"{type(error).__name__}: {str(error)[:120]}")


def sweep(trial: Trial, until: float, start: FusedConfig) -> tuple[dict, FusedConfig]:
    """Coordinate-wise from `start`, pass after pass until none helps or the clock says `until`; `start` is always timed."""
    config, best = start, trial.measure(start)
    first, tried, failures, gains = best, 1, [], []
    if "failed" in best:
        failures.append(f"start: {best['failed']}")
    steps, passes, complete = list(steps_of_sweep(trial.rows)), 0, False
    while not complete:
        passes, gained = passes + 1, False
        for name, change in steps:
            if time.perf_counter() > until:
                break
            candidate = change(config)
            if candidate == config:
                continue
            result = trial.measure(candidate, best.get("ms", float("inf")))
            tried += 1
            if "failed" in result:
                failures.append(f"{name}: {result['failed']}")
            elif result["ms"] < best.get("ms", float("inf")) * 0.998:  # less is noise
                gains.append(f"{name}: {result['ms']:.4f}")
                config, best, gained = candidate, result, True
        else:
            complete = not gained
            continue
        break
    return dict(
        first=first, best=best, config=asdict(config), tried=tried, passes=passes, complete=complete, gains=gains,
        failures=sorted(set(failures)),
    ), config  # fmt: skip


Job = tuple[str, int, FusedConfig]  # precision, rows, what to compile


def compile_share(jobs: list[Job], version: str, until: float) -> None:
    """Run each configuration once with two layers: its kernels land in the cache on disk."""
    device, made = torch.device("cuda:0"), {}
    for precision, rows, config in jobs:
        if time.perf_counter() > until:
            return
        try:
            if precision not in made:
                lm = random_lm(published(version, 2), DTYPES[precision], device)
                made[precision] = lm, TorchStep(lm, POSITIONS)
            lm, plain = made[precision]
            FusedStep(plain, lambda rows, config=config: config)(lm.start(rows, POSITIONS, DRAWS), rows, 0)
        except Exception as error:
            print(f"   ! compile {rows} rows: {type(error).__name__}: {str(error)[:100]}", flush=True)


def compile_all(jobs: list[Job], version: str, seconds: float) -> float:
    """Compile in worker processes; returns the seconds that they took."""
    began = time.perf_counter()
    shares = max(1, min(14, (os.cpu_count() or 2) - 1, len(jobs)))
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for share in range(shares):
            path = Path(folder, str(share))
            mine = jobs[share::shares]
            first = mine[share % len(mine)][1]  # workers begin with different rows: they share what is common to them
            path.write_bytes(pickle.dumps((sorted(mine, key=lambda job: job[1] != first), version, seconds)))
            command = [sys.executable, __file__, "--compile", str(path)]
            workers.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        for worker in workers:
            try:
                worker.wait(max(1.0, seconds + 25 - (time.perf_counter() - began)))
            except subprocess.TimeoutExpired:
                worker.kill()
    return time.perf_counter() - began


def copy_tb_s(device: torch.device) -> float:
    """Bytes read plus written per second of a 1 GiB device copy."""
    source = torch.empty(2**28, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return 2 * source.numel() * 4 / median(times[1:]) / 1e9


def line(name: str, result: dict) -> str:
    best, first, none = result["best"], result["first"], float("nan")
    return (
        f"{name:8s} first {first.get('ms', none):.4f} best {best.get('ms', none):.4f} ms, "
        f"{best.get('ms', none) / result['floor_ms']:.2f} x floor {result['floor_ms']:.4f}; torch graph "
        f"{result.get('torch_ms', none):.4f}; error {best.get('error', none):.1e}, wrong records {best.get('wrong')}, "
        f"ids as torch step {best.get('same_ids')}; {result['tried']} tried"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=lambda s: [int(x) for x in s.split(",")], default=[1, 8, 32, 2])
    parser.add_argument("--precisions", type=lambda s: s.split(","), default=["fp16", "bf16"])
    parser.add_argument("--seconds", type=float, default=150, help="of the whole run, compiling included")
    parser.add_argument("--compile-seconds", type=float, default=45, help="of it, for compiling candidates")
    parser.add_argument("--version", choices=("v2", "v3"), default="v3")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    began = time.perf_counter()
    if arguments.compile:
        jobs, version, seconds = pickle.loads(Path(arguments.compile).read_bytes())
        compile_share(jobs, version, began + seconds)
        return
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if reason := unavailable(device):
        sys.exit(reason)
    import triton

    facts = dict(
        gpu=torch.cuda.get_device_name(device), torch=torch.__version__, triton=triton.__version__,
        version=arguments.version, copy_tb_s=round(copy_tb_s(device), 3),
    )  # fmt: skip
    print(facts, flush=True)
    lead, *others = arguments.precisions
    jobs = []
    for rows in arguments.rows:
        start = best_config(rows, DTYPES[lead])
        # two rows start from the winner of one row
        changes = [] if rows == 2 and 1 in arguments.rows else [change for _, change in steps_of_sweep(rows)]
        jobs += [(lead, rows, start)] + [(lead, rows, change(start)) for change in changes]
    print(f"{len(jobs)} candidates compiled in {compile_all(jobs, arguments.version, arguments.compile_seconds):.0f} s")
    results, winners = {}, {}
    sweep_until = began + arguments.seconds - 40 * bool(others)
    try:
        for precision in arguments.precisions:
            if precision != lead:
                compile_all([(precision, *winner) for winner in winners.items()], arguments.version, 30)
            lm = random_lm(published(arguments.version, 24), DTYPES[precision], device)
            exact = copy.deepcopy(lm).set_precision(torch.float32)
            plain = TorchStep(lm, POSITIONS)
            read = [w for layer in plain.layers for w in (layer.qkv, layer.out, layer.gate_up, layer.down)]
            read.append(lm.llm_decoder.weight)
            floor = sum(w.numel() * w.element_size() for w in read) / facts["copy_tb_s"] / 1e9
            for place, rows in enumerate(arguments.rows):
                now = time.perf_counter()
                share = max(0.0, sweep_until - now) / (len(arguments.rows) - place) if precision == lead else 0.0
                trial = Trial(lm, plain, rows, precision)
                trial.expect(exact)
                start = winners.get(rows) or (winners.get(1) if rows <= GEMV_ROWS else None)
                result, winner = sweep(trial, now + share, start or best_config(rows, DTYPES[precision]))
                winners.setdefault(rows, winner)
                torch_graph = Graph(lambda trial=trial: trial.plain(trial.state, trial.rows, 512))
                result |= dict(floor_ms=floor, torch_ms=trial.milliseconds(torch_graph))
                results[f"{precision} {rows}"] = result
                print(line(f"{precision} {rows}", result), flush=True)
                for gain in result["gains"]:
                    print("   +", gain)
                for failure in result["failures"]:
                    print("   !", failure)
                print("   ", winner, flush=True)
                del trial, torch_graph
            del lm, exact, plain, read
            torch.cuda.empty_cache()
    except Exception as error:  # the device is lost, or its memory is full: what was measured still counts
        print(f"   ! stopped: {type(error).__name__}: {str(error)[:300]}", flush=True)
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps(dict(machine=facts, seconds=seconds, steps_of_a_series=REPLAYS, results=results)))


if __name__ == "__main__":
    main()
