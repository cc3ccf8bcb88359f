"""Why is this machine slow, and what would help? Verdicts in order of what they would save (pure; facts come in).

Each verdict names its cause, the evidence with numbers, what it would save here, and the mending command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cosy_engine.health.cost import EAGER_KERNELS_PER_LAYER, LAYERS, MachineSpeed, token_cost
from cosy_engine.health.facts import Facts

STOP, SLOW, RISK, NOTE = "stop", "slow", "risk", "note"
ORDER = {STOP: 0, SLOW: 1, RISK: 2, NOTE: 3}

# Package -> (lowest, below) that are known to work together; outside of it results were wrong or were never tried.
KNOWN_GOOD = {
    "torch": ("2.8", "2.15"),
    "transformers": ("4.53", "6"),
    "onnxruntime": ("1.20", "2"),
    "onnxruntime-gpu": ("1.20", "2"),
    "gradio": ("6.27", "7"),
}
SLOW_LAUNCH_US = 20.0  # Linux hosts take 4 to 12
WEAK_CORE = 12.0  # million turns a second; current desktops reach about 25
FULL = 0.85  # of the GPU's memory


@dataclass(frozen=True)
class Verdict:
    """level: "stop" (nothing works, or wrongly), "slow", "risk" or "note". saves_ms: per token, 0 when it is not about that."""

    code: str
    level: str
    cause: str
    evidence: str
    fix: str
    saves_ms: float = 0.0


def diagnose(facts: Facts) -> list[Verdict]:
    """All verdicts, what stops the work first, then by what each would save."""
    found = [verdict for check in CHECKS for verdict in check(facts)]
    return sorted(found, key=lambda v: (ORDER[v.level], -v.saves_ms))  # stable: equal ones keep the order of CHECKS


# ---- checks; each yields nothing where the facts do not say enough


def _no_gpu(f: Facts) -> Iterator[Verdict]:
    usable = f.gpu is not None and f.cuda_usable is not False and not f.cuda_hidden
    if usable and not (f.torch_cuda is None and "torch" in f.versions):
        return
    if f.cuda_hidden:
        why, fix = "CUDA_VISIBLE_DEVICES hides it", "unset CUDA_VISIBLE_DEVICES"
    elif f.gpu is None:
        why, fix = "no NVIDIA driver answers", "install the driver, or use a machine with a GPU"
    elif f.torch_cuda is None:
        why, fix = "this torch was built without CUDA", "pip install --force-reinstall torch==2.13.0"
    elif (least := _least_driver(f.torch_cuda)) and f.driver and _parse(f.driver) < (least,):
        why = f"driver {f.driver} is too old for CUDA {f.torch_cuda} (at least {least})"
        fix = "install a newer NVIDIA driver, or: pip install torch built for an older CUDA"
    else:
        why, fix = (
            "torch cannot use the GPU that the driver reports",
            "python -c 'import torch; torch.cuda.init()' names the cause",
        )
    yield Verdict(
        "cpu_only", STOP if f.gpu else NOTE, f"running on the CPU because {why}", f.gpu or "no GPU found", fix
    )


def _least_driver(cuda: str) -> int | None:
    """The oldest driver branch (Linux) that runs a CUDA release."""
    return {"11": 450, "12": 525, "13": 580}.get(cuda.split(".")[0])


def _kernel_image(f: Facts) -> Iterator[Verdict]:
    if f.capability is None or not f.built_for:
        return
    major, minor = f.capability
    built = [int(m.group(1)) for name in f.built_for if (m := re.match(r"(?:sm|compute)_(\d+)", name))]
    if not any(arch // 10 == major and arch % 10 <= minor for arch in built):
        yield Verdict(
            "no_kernel_image", STOP, f"this torch has no code for compute capability {major}.{minor}",
            f"built for {', '.join(f.built_for)}", "pip install --upgrade torch (a build for newer CUDA)",
        )  # fmt: skip


def _launches(f: Facts) -> Iterator[Verdict]:
    if f.gpu is None or f.launch_us is None:
        return
    eager = min((ms for (tier, _), ms in f.measured.items() if tier == "eager"), default=None)
    launched = LAYERS * EAGER_KERNELS_PER_LAYER * f.launch_us / 1000
    if f.tier not in (None, "eager") and eager is None:
        return
    saves = launched * 0.95
    of = f" of your {eager:.0f} ms per token" if eager else ""
    if f.launch_us >= SLOW_LAUNCH_US or (eager and launched > 0.3 * eager):
        slow = f" under {f.driver_model}" if f.driver_model == "WDDM" else ""
        yield Verdict(
            "launch_bound", SLOW, f"the GPU waits for the CPU to launch kernels{slow}",
            f"{LAYERS} layers x about {EAGER_KERNELS_PER_LAYER} kernels x {f.launch_us:.0f} us = {launched:.0f} ms{of}",
            "switch CUDA Graph on (--tier graph; fused where Triton is installed)"
            + ("; on Windows WSL2 or Linux launches faster" if slow else ""),
            saves,
        )  # fmt: skip


def _single_core(f: Facts) -> Iterator[Verdict]:
    if f.single_core is None or f.single_core >= WEAK_CORE:
        return
    eager = min((ms for (tier, _), ms in f.measured.items() if tier == "eager"), default=0.0)
    sockets = f", {f.sockets} sockets" if (f.sockets or 1) > 1 else ""
    yield Verdict(
        "weak_core", SLOW, "one CPU core does the launching, and it is slow",
        f"{f.single_core:.0f} million loop turns a second, current desktops reach 25 ({f.cpu or 'unknown CPU'}{sockets})",
        "CUDA Graph takes the launching off the CPU; else a CPU with faster cores, the performance power plan"
        + (", and the process pinned to the GPU's socket" if sockets else ""),
        0.2 * eager,
    )  # fmt: skip


def _front_end(f: Facts) -> Iterator[Verdict]:
    if f.gpu and f.onnx_provider and not f.onnx_provider.startswith(("CUDA", "Tensorrt")):
        yield Verdict(
            "front_end_cpu", SLOW, "the reference is analysed on the CPU",
            f"onnxruntime runs on {f.onnx_provider}", "pip uninstall -y onnxruntime && pip install onnxruntime-gpu", 0.5,
        )  # fmt: skip


def _versions(f: Facts) -> Iterator[Verdict]:
    for name, (low, below) in KNOWN_GOOD.items():
        have = f.versions.get(name)
        if have is not None and not _parse(low) <= _parse(have) < _parse(below):
            yield Verdict(
                "version", RISK, f"{name} {have} is outside of what is known to work", f"known good: {low} up to {below}",
                "pip install -r requirements.txt",
            )  # fmt: skip


def _missing(f: Facts) -> Iterator[Verdict]:
    if f.missing:
        yield Verdict(
            "missing_package", STOP, "packages that the program needs are not installed", ", ".join(f.missing),
            "pip install -r requirements.txt",
        )  # fmt: skip


def _half(f: Facts) -> Iterator[Verdict]:
    half, full = (f.rtf.get(("eager", p)) for p in ("fp16", "fp32"))
    if half and full and half > full:
        yield Verdict(
            "fp16_unstable", RISK, "fp16 is slower end to end than fp32 here, a sign that its runs do not end where they should",
            f"RTF {half:.2f} in fp16, {full:.2f} in fp32",
            "this program keeps sums, norms and logits in fp32 in every precision; compare on the same text and seed",
        )  # fmt: skip
    if f.gpu and f.precision == "fp32" and f.tier is not None and f.copy_bytes_s:
        saves = 1000 * 0.728e9 / f.copy_bytes_s
        yield Verdict(
            "full_precision", SLOW, "fp32 reads twice the bytes and fills twice the memory of half precision",
            f"{saves:.1f} ms per token go into the second half of the bytes", "choose fp16 or bf16 (--precision fp16)", saves,
        )  # fmt: skip


def _stages(f: Facts) -> Iterator[Verdict]:
    if f.gpu and f.tier == "eager" and f.rtf and max(f.rtf.values()) > 1:
        yield Verdict(
            "stages_in_series", RISK, "language model, flow and vocoder run one after another",
            "RTF above 1 with the GPU idle in between", "switch CUDA Graph on: decoding goes on while a chunk is rendered",
        )  # fmt: skip


def _latency(f: Facts) -> Iterator[Verdict]:
    if f.streaming is False and (f.first_audio_s or 0) > 1.5:
        yield Verdict(
            "not_streaming", SLOW, "the first sound waits for the whole text",
            f"first sound after {f.first_audio_s:.1f} s", "switch Streaming on: it comes after about one second of speech is known", 0.2,
        )  # fmt: skip
    if f.gpu and f.batch == 1 and f.gpu_busy is not None and f.gpu_busy < 0.6:
        yield Verdict(
            "one_at_a_time", SLOW, "one request at a time leaves the GPU idle",
            f"GPU {100 * f.gpu_busy:.0f} % busy", "raise --slots: requests are decoded together, 8 cost less than 2", 0.1,
        )  # fmt: skip


def _memory(f: Facts) -> Iterator[Verdict]:
    if (
        f.gpu_memory_gb
        and f.gpu_memory_used_gb
        and f.gpu_memory_used_gb > FULL * f.gpu_memory_gb
        and not f.allocator_set
    ):
        yield Verdict(
            "allocator", RISK, "the GPU's memory is nearly full and can splinter",
            f"{f.gpu_memory_used_gb:.1f} of {f.gpu_memory_gb:.1f} GB", "PYTORCH_ALLOC_CONF=expandable_segments:True (run.sh sets it)",
        )  # fmt: skip
    if f.memory_free_gb is not None and f.memory_free_gb < 4 and not f.model_error:
        yield Verdict(
            "little_memory", RISK, "the computer's memory is nearly used up, and loading a model needs about 4 GB",
            f"{f.memory_free_gb:.1f} GB free", "close other programs",
        )  # fmt: skip
    if f.other_gpu_programs:
        yield Verdict(
            "shared_gpu",
            RISK,
            "other programs use the GPU",
            ", ".join(f.other_gpu_programs[:4]),
            "close them, or choose another --device",
        )


def _limits(f: Facts) -> Iterator[Verdict]:
    if f.power_limit_w and f.power_most_w and f.power_limit_w < 0.8 * f.power_most_w:
        yield Verdict(
            "power_limit", NOTE, "the GPU's power is limited below what it may take",
            f"{f.power_limit_w:.0f} of {f.power_most_w:.0f} W", f"nvidia-smi -pl {f.power_most_w:.0f}",
        )  # fmt: skip
    if f.disk_bytes_s and f.disk_bytes_s < 100e6:
        yield Verdict(
            "slow_disk", NOTE, "the weights lie on a slow disk: starting takes long, speaking does not",
            f"{f.disk_bytes_s / 1e6:.0f} MB/s", "move the model folder to a local SSD and name it with --model",
        )  # fmt: skip
    if f.vector == "DEFAULT":
        yield Verdict(
            "no_vectors", NOTE, "this CPU has no AVX2, or torch does not use it", f.cpu or "unknown CPU",
            "use a newer CPU; in a virtual machine pass the host's CPU through",
        )  # fmt: skip
    if f.proxy:
        yield Verdict(
            "proxy", NOTE, "a proxy is set: downloads go through it, the page's own address must not",
            ", ".join(f.proxy), "export no_proxy=localhost,127.0.0.1 (webui.py sets it for itself)",
        )  # fmt: skip


def _reference(f: Facts) -> Iterator[Verdict]:
    wav, mp3 = f.decode_s.get("wav"), f.decode_s.get("mp3")
    if wav and mp3 and mp3 - wav > 0.1:
        yield Verdict(
            "reference_format", NOTE, "decoding an mp3 reference takes its time here",
            f"5 s of mp3 {1000 * mp3:.0f} ms, of wav {1000 * wav:.0f} ms", "use a wav or flac as reference; a voice that was used is kept",
        )  # fmt: skip
    if (f.reference_decode_s or 0) > 0.2:
        yield Verdict(
            "reference_format", RISK, f"decoding the {f.reference_format or 'reference'} takes its time",
            f"{f.reference_decode_s:.1f} s", "use a wav or flac as reference; a voice that was used is kept",
        )  # fmt: skip


def _rest(f: Facts) -> Iterator[Verdict]:
    if f.gpu and f.triton is False:
        yield Verdict(
            "no_triton", NOTE, "the fused tier is not available", "Triton is not installed",
            "Linux wheels of torch bring it; on Windows: pip install triton-windows",
        )  # fmt: skip
    if f.normaliser and not f.normaliser.startswith("wetext"):
        yield Verdict("normaliser", NOTE, "numbers are read by built-in rules", f.normaliser, "pip install wetext")
    if f.model_error:
        yield Verdict("model", STOP, "the model folder cannot be used", f.model_error, "see the message")


CHECKS: tuple[Callable[[Facts], Iterator[Verdict]], ...] = (
    _no_gpu, _kernel_image, _launches, _single_core, _front_end, _latency, _missing, _versions, _half, _stages, _memory, _reference, _limits, _rest,
)  # fmt: skip


def predictions(f: Facts) -> dict[tuple[str, str], float]:
    """(tier, precision) -> predicted ms per token, where launch time and bandwidth are known."""
    if f.launch_us is None or f.copy_bytes_s is None:
        return {}
    speed = MachineSpeed(f.launch_us, f.copy_bytes_s, f.single_core, f.product_bytes_s)
    tiers, precisions = (
        (("eager", "graph", "fused"), ("fp32", "fp16", "bf16")) if f.gpu else (("eager",), ("fp32", "bf16"))
    )
    return {(tier, precision): token_cost(speed, tier, precision).ms for tier in tiers for precision in precisions}


def public(f: Facts) -> Facts:
    """What strangers on a shared page may see: the machine's speed, and nothing of who uses it, how, or for what else."""
    return replace(f, other_gpu_programs=(), proxy=(), model_error=f.model_error and "its files are incomplete or damaged",
                   gpu_memory_used_gb=None, gpu_busy=None, memory_free_gb=None)  # fmt: skip


def _parse(version: str) -> tuple[int, ...]:
    """Leading numbers of a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def as_record(f: Facts, verdicts: list[Verdict]) -> dict[str, Any]:
    """Plain data for JSON, which has no tuples as keys: tier/precision."""

    def plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        return {key: _text_keys(value) if isinstance(value, dict) else value for key, value in items}

    return {
        "facts": asdict(f, dict_factory=plain),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "predicted_ms": _text_keys(predictions(f)),
    }


def _text_keys(table: dict) -> dict[str, Any]:
    return {"/".join(key) if isinstance(key, tuple) else key: value for key, value in table.items()}


def report(f: Facts, verdicts: list[Verdict]) -> str:
    """For people and issue trackers: no paths, no names of users."""
    device = f.gpu or "CPU only"
    lines = [
        f"{device}"
        + (
            f", {f.gpu_memory_gb:.0f} GB, driver {f.driver or 'unknown'} ({f.driver_model or 'unknown'})"
            if f.gpu
            else ""
        )
        + f"; {f.cpu or 'unknown CPU'}, {f.cores or '?'} cores",
        ", ".join(f"{name} {version}" for name, version in f.versions.items()),
        f"reference front end on {f.onnx_provider or 'unknown'}; numbers read by {f.normaliser or 'unknown'}; model: {f.model or 'none'}",
    ]
    measured = (
        ("launch", f.launch_us, "us"),
        ("wait", f.sync_us, "us"),
        ("copy", f.copy_bytes_s and f.copy_bytes_s / 1e12, "TB/s"),
        ("one core", f.single_core, "M turns/s"),
        ("disk", f.disk_bytes_s and f.disk_bytes_s / 1e9, "GB/s"),
        *((f"product {name}", speed / 1e9, "GB/s") for name, speed in f.product_bytes_s.items()),
        *((f"front end of 5 s on {name}", 1000 * seconds, "ms") for name, seconds in f.front_end_s.items()),
        *((f"5 s of {name} decoded in", 1000 * seconds, "ms") for name, seconds in f.decode_s.items()),
    )
    lines.append("; ".join(f"{name} {value:.3g} {unit}" for name, value, unit in measured if value))
    for title, table in (
        ("ms per token, predicted for the published sizes", predictions(f)),
        ("ms per token, small stand-in", f.stand_in),
        ("ms per token, measured", f.measured),
    ):
        if table:
            lines.append(f"{title}: " + ", ".join(f"{' '.join(key)} {ms:.2f}" for key, ms in table.items()))
    lines.append("")
    for number, verdict in enumerate(verdicts, 1):
        saves = f" (saves about {verdict.saves_ms:.1f} ms per token)" if verdict.saves_ms >= 0.1 else ""
        lines.append(f"{number}. [{verdict.level}] {verdict.cause}{saves}\n   {verdict.evidence}\n   -> {verdict.fix}")
    if not verdicts:
        lines.append("Nothing to mend was found.")
    return "\n".join(lines)
