"""What the training scripts share: the clock that ends a run in time, averaged weights, checkpoints, the log."""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from cosy_engine.model_files.weights import BODY, read_checkpoint, widened


class Clock:
    """Learning rate and progress by elapsed seconds (or by steps, if given), so that a run of fixed length ends well."""

    def __init__(self, seconds: float, steps: int | None = None, warmup: int = 300):
        self.seconds, self.steps, self.warmup, self.step, self.start = seconds, steps, warmup, 0, time.time()

    def elapsed_s(self) -> float:
        return time.time() - self.start

    def progress(self) -> float:
        """0 to 1."""
        return min(1.0, max(self.elapsed_s() / self.seconds, self.step / self.steps if self.steps else 0))

    def rate(self, peak: float, floor: float = 0.01) -> float:
        """Linear warm-up, then half a cosine down to floor * peak."""
        up = min(1.0, (self.step + 1) / self.warmup)
        return peak * up * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * self.progress())))


class Average:
    """Exponential moving average of a module's parameters; buffers stay the module's."""

    def __init__(self, model: nn.Module, decay: float = 0.999):
        self.model, self.decay, self.n = model, decay, 0
        self.values = [p.detach().clone() for p in model.parameters()]

    def update(self) -> None:
        self.n += 1
        decay = min(self.decay, (1 + self.n) / (10 + self.n))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.model.parameters()], 1 - decay)

    @torch.no_grad()
    def apply(self) -> None:
        """Put the average into the module."""
        for p, value in zip(self.model.parameters(), self.values, strict=True):
            p.copy_(value)


class Log:
    """One JSON line per report, to a file and to the screen, with seconds since the start; means of what was added."""

    def __init__(self, path: str | Path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.file, self.start = open(path, "a", encoding="utf-8"), time.time()  # noqa: SIM115
        self.sums, self.counts, self.steps, self.since = {}, {}, 0, time.time()

    def __call__(self, **values) -> None:
        line = {"t": round(time.time() - self.start, 1)}
        line |= {k: v if isinstance(v, (str, list, dict, int)) else round(float(v), 4) for k, v in values.items()}
        text = json.dumps(line, ensure_ascii=False)
        self.file.write(text + "\n")
        self.file.flush()
        print(text, flush=True)

    def add(self, losses: dict[str, Tensor], prefix: str = "") -> None:
        """One step's losses; nothing is read from the device before `means`."""
        for name, value in losses.items():
            name = prefix + name
            self.sums[name] = self.sums.get(name, 0) + value.detach()
            self.counts[name] = self.counts.get(name, 0) + 1
        self.steps += 1

    def means(self, **values) -> None:
        """Report the means since the last time, and steps per second."""
        means = {name: value / self.counts[name] for name, value in self.sums.items()}
        self(**values, per_second=self.steps / (time.time() - self.since), **means)
        self.sums, self.counts, self.steps, self.since = {}, {}, 0, time.time()


def save(path: str | Path, modules: dict[str, nn.Module], half: bool = False, **facts) -> None:
    """One safetensors file, names prefixed by the module's; half where float16 loses nothing, or everywhere if asked."""
    tensors = {
        f"{name}.{key}": value.detach().float().cpu().contiguous()
        for name, module in modules.items()
        for key, value in module.state_dict().items()
        if value.is_floating_point()
    }
    small = {k: v.half() if half or torch.equal(v.half().float(), v) else v for k, v in tensors.items()}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_file(small, path, {k: json.dumps(v) for k, v in facts.items()})


PARTS = {"llm.pt": "lm", "flow.pt": "flow", "hift.pt": "vocoder"}  # of an assembled folder


def load(path: str | Path, modules: dict[str, nn.Module], strict: bool = True) -> dict:
    """Read what save wrote, or a part of an assembled folder, into the modules; returns the facts.

    A module that the file lacks is left as it is.
    """
    path = Path(path)
    if path.name in PARTS:
        state = widened(read_checkpoint(path), path.name)
        own = {f"backbone.{k.removeprefix(BODY)}" if k.startswith(BODY) else k: v.float() for k, v in state.items()}
        if PARTS[path.name] in modules:
            modules[PARTS[path.name]].load_state_dict(own)
        return {}
    with safe_open(path, "pt") as file:
        names = list(file.keys())
        for name, module in modules.items():
            state = {k[len(name) + 1 :]: file.get_tensor(k).float() for k in names if k.startswith(name + ".")}
            missing = [k for k in module.load_state_dict(state, strict=False).missing_keys if "num_batches" not in k]
            assert not missing or not strict, f"{name}: missing {missing[:5]}"
        return {k: json.loads(v) for k, v in (file.metadata() or {}).items()}


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def round_to_half(module: nn.Module) -> None:
    """Weights to values that float16 holds, so that a half-size file and the checkpoint agree exactly."""
    for p in module.parameters():
        p.copy_(p.half().float())


def arguments(description: str, seconds: float, rate: float, corpus: bool = True) -> argparse.ArgumentParser:
    """The options that every training script has. corpus: it reads corpus folders."""
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if corpus:
        ap.add_argument("--train", nargs="+", required=True, help="corpus folders")
        ap.add_argument("--dev", required=True, help="corpus folder of voices and sentences that training lacks")
    ap.add_argument("--out", required=True)
    ap.add_argument("--seconds", type=float, default=seconds, help="learning rate and end follow the clock")
    ap.add_argument("--steps", type=int, help="end after so many steps, if sooner (tests)")
    ap.add_argument("--resume", help="weights to start from; the optimiser starts anew")
    ap.add_argument("--rate", type=float, default=rate, help="highest learning rate")
    ap.add_argument("--hours", type=float, help="use only so much of the corpus")
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return ap
