"""Do requests rendered together by the flow cost less than one after another?

    python bench/flow_rows.py [--version v3] [--device auto] [--frames 104,200,400,704] [--rows 1,2,4,8] [--runs 10]

The velocity estimator takes nearly all of a rendering; a request has two rows in it, with and without guidance. This times
one evaluation for 1, 2, 4 ... requests of a bucket, random weights of the published sizes: on a GPU captured as the fused tier
runs it, in fp16; on a CPU eagerly, in fp32. What grouping can gain at most is the time of one request over the time for each
of the group. Median of --runs after two discarded; the last line is JSON.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from cosy_engine.accel.flow_lean import PlainOps, lean
from cosy_engine.accel.graphs import Graph
from cosy_engine.bench import random_models
from cosy_engine.build import Models, describe_device, pick_device
from cosy_engine.health.measure import wait
from cosy_engine.settings.published import PUBLISHED

STEPS = 10  # evaluations of a rendering


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def evaluation(estimator, modulation, frames: int, requests: int, bins: int, device: torch.device, dtype: torch.dtype):
    """One call of the estimator for `requests` requests of `frames` frames, on tensors of its own."""
    rows = 2 * requests
    x, mu, cond = (torch.randn(rows, frames, bins, device=device) for _ in range(3))
    speaker = torch.randn(rows, bins, device=device)
    if estimator.ops.fused:
        visible = torch.full((requests, 2), frames, dtype=torch.int32, device=device)
    else:
        visible = torch.zeros(1, 1, frames, frames, dtype=dtype, device=device)
    return lambda: estimator(x, mu, speaker, cond, modulation, visible)


@torch.inference_mode()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=sorted(PUBLISHED), default="v3")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--frames", type=numbers, default=[104, 200, 400, 704])
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    device = pick_device(options.device)
    cuda = device.type == "cuda"
    spec = PUBLISHED[options.version]
    models: Models = random_models(spec, device).at("fp16" if cuda else "fp32")
    decoder, ops = models.flow.decoder, PlainOps()
    if cuda:
        from cosy_engine.accel.flow_kernels import FlowKernels

        ops = FlowKernels()
    estimator = lean(decoder.estimator, ops)
    modulation = estimator.modulation_table(decoder.time_table())[:1]
    dtype = torch.float16 if cuda else torch.float32
    found: dict[int, dict[int, float]] = {}
    for frames in options.frames:
        for requests in options.rows:
            work = evaluation(estimator, modulation, frames, requests, spec.flow.mel_bins, device, dtype)
            work = Graph(work) if cuda else work
            times = []
            for _ in range(options.runs + 2):
                wait(device)
                began = time.perf_counter()
                for _ in range(STEPS if cuda else 1):
                    work()
                wait(device)
                times.append(1000 * (time.perf_counter() - began) / (1 if cuda else 1 / STEPS))
            found.setdefault(frames, {})[requests] = median(times[2:])
        alone = found[frames][options.rows[0]]
        each = ", ".join(f"{n}: {ms / n:.2f} ms each (x{alone / (ms / n):.2f})" for n, ms in found[frames].items())
        print(f"{frames} frames, {STEPS} evaluations, requests together: {each}", flush=True)
    print(
        json.dumps(
            {"device": describe_device(device), "torch": torch.__version__, "version": options.version, "ms": found}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
