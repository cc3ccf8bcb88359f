"""Where does the time of one stage go? Kernels of a captured or eager call, by total time.

    python bench/profile_kernels.py --part flow --version v3 --precision fp16 --frames 704

Ceiling: printed floors count only weight bytes over the measured copy bandwidth. One call after warm-up is traced by
torch.profiler, eagerly (a replayed graph runs the same kernels with smaller gaps); the same call is then captured and
timed as 20 replays. On a CPU the same is done with operators in place of kernels. The last line is JSON.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from cosy_engine.accel.flow_graph import SolverStep
from cosy_engine.accel.flow_lean import LeanDiT
from cosy_engine.accel.graphs import Graph
from cosy_engine.bench import random_models
from cosy_engine.build import make_stages, pick_device
from cosy_engine.health.measure import copy_bandwidth
from cosy_engine.settings.model_spec import DiTSpec
from cosy_engine.settings.published import PUBLISHED


def flow_step(models, spec, frames):
    """One Euler step of a bucket, as GraphFlow captures it."""
    lean = LeanDiT(models.flow.decoder.estimator) if isinstance(spec.flow.estimator, DiTSpec) else None
    return SolverStep(models.flow.decoder, frames, spec.flow.mel_bins, models.flow.device, lean)


def front(models, spec, frames):
    ids = torch.zeros(1, frames // 2, dtype=torch.int64, device=models.flow.device)
    return lambda: models.flow.condition(ids)


def vocoder(models, spec, frames):
    mel = torch.randn(spec.flow.mel_bins, frames, device=models.vocoder.device)
    return lambda: models.vocoder.whole(mel)


def decode(models, spec, frames):
    """A step of one row in few operations, as the graph tier captures it."""
    stages = make_stages(models, "fp16", "eager", 1)
    plan = stages.plan(
        text_ids=list(range(60)), speech_ids=torch.zeros(75, dtype=torch.int64), uniforms=np.zeros((900, 2), np.float32),
        min_tokens=900, max_tokens=900,
    )  # fmt: skip
    stages.pool.admit(plan)
    return lambda: models.torch_step(stages.pool.state, 1, 256)


def prefill(models, spec, frames):
    lm = models.lm
    state = lm.start(1, 512, 8)
    inputs = torch.randn(1, 137, spec.llm.width, device=lm.device)

    def run():
        state.cache.length.zero_()
        return lm.backbone(inputs, state.cache, context=192)

    return run


PARTS = {"flow": flow_step, "front": front, "vocoder": vocoder, "decode": decode, "prefill": prefill}


def kernels(call, cuda: bool) -> list[tuple[str, int, float]]:
    """(name, launches, total microseconds) of one call, largest first."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with profile(activities=[activity]) as trace:
        call()
        if cuda:
            torch.cuda.synchronize()
    rows = [
        (e.key[:90], e.count, e.self_device_time_total if cuda else e.self_cpu_time_total) for e in trace.key_averages()
    ]
    return sorted(rows, key=lambda row: -row[2])


def replay_ms(call, cuda: bool) -> float | None:
    """Milliseconds of a replay of the captured call; None on a CPU."""
    if not cuda:
        return None
    graph = Graph(call)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        graph()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="flow", help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument("--version", choices=sorted(PUBLISHED), default="v3")
    parser.add_argument("--precision", default="fp16", choices=("fp32", "fp16", "bf16"))
    parser.add_argument("--frames", type=int, default=704)
    parser.add_argument("--top", type=int, default=14)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device, spec = pick_device(arguments.device), PUBLISHED[arguments.version]
    cuda = device.type == "cuda"
    models = random_models(spec, device)
    if arguments.precision != "fp32":
        models = models.at(arguments.precision)
    found = {"copy_tb_s": round(copy_bandwidth(device) / 1e12, 3)}
    for part in arguments.part.split(","):
        with torch.inference_mode():
            call = PARTS[part](models, spec, arguments.frames)
            for _ in range(3):
                call()
            rows = kernels(call, cuda)
            try:
                replay = replay_ms(call, cuda)
            except (
                RuntimeError
            ) as error:  # a part that waits for the device cannot be captured; its kernels still count
                replay = None
                print(f"{part}: not captured: {str(error).splitlines()[0]}")
        total, count = sum(row[2] for row in rows), sum(row[1] for row in rows)
        print(f"\n{part} {arguments.version} {arguments.precision}, {arguments.frames} frames: {count} kernels, {total / 1000:.2f} ms"
              + (f", replay {replay:.2f} ms" if replay else ""))  # fmt: skip
        for name, times, micros in rows[: arguments.top]:
            print(f"{micros:9.0f} us {times:5} x  {name}")
        found[part] = {"kernels": count, "sum_ms": total / 1000, "replay_ms": replay, "top": rows[: arguments.top]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
