"""Asks the machine what the doctor wants to know. Whatever cannot be asked stays unknown; nothing here raises."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cosy_engine.errors import CosyError
from cosy_engine.health import measure
from cosy_engine.health.facts import Facts
from cosy_engine.model_files.layout import find_release

log = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "onnxruntime", "onnxruntime-gpu", "gradio", "wetext", "av", "librosa", "soundfile")
NEEDED = ("torch", "transformers", "gradio", "soundfile", "av")  # onnxruntime comes under two names
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def gather(device: torch.device, model: Path | None, **known: Any) -> Facts:
    """Facts of this machine, measured in a few seconds. known: fields that the caller knows, such as tier or rtf."""
    found: dict[str, Any] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            found[name] = question()
        except Exception as error:  # any library may fail in any way on a broken machine; that is what is examined
            log.info("the doctor could not learn %s: %s", name, error)

    cuda = device.type == "cuda"
    ask("versions", _versions)
    ask("torch_cuda", lambda: torch.version.cuda)
    ask("cuda_hidden", lambda: os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"))
    ask("cpu", cpu_name)
    ask("sockets", _sockets)
    ask("cores", os.cpu_count)
    ask("numa_nodes", _numa_nodes)
    ask("vector", torch.backends.cpu.get_cpu_capability)
    ask("memory_gb", lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9)
    ask("memory_free_gb", _memory_free)
    ask("single_core", measure.single_core)
    ask("launch_us", lambda: measure.launch_microseconds(device))
    ask("sync_us", lambda: measure.sync_microseconds(device))
    ask("copy_bytes_s", lambda: measure.copy_bandwidth(device))
    if not cuda:
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
        ask("product_bytes_s", lambda: {name: measure.product_bandwidth(device, kind) for name, kind in kinds.items()})
    ask("cuda_usable", torch.cuda.is_available)
    ask("cudnn", _cudnn)
    ask("missing", lambda: missing_packages(found["versions"]))
    ask("ffmpeg", lambda: shutil.which("ffmpeg") is not None)
    ask("onnx_provider", lambda: onnx_provider(cuda))
    ask("triton", lambda: importlib.util.find_spec("triton") is not None)
    ask("compiler", lambda: any(shutil.which(name) for name in ("gcc", "cc", "clang", "cl")))
    ask("normaliser", _normaliser)
    ask("proxy", lambda: tuple(name for name in PROXIES if os.environ.get(name) or os.environ.get(name.upper())))
    ask(
        "allocator_set", lambda: bool(os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
    )
    if cuda:
        ask("gpu", lambda: torch.cuda.get_device_name(device))
        ask("capability", lambda: torch.cuda.get_device_capability(device))
        ask("built_for", lambda: tuple(torch.cuda.get_arch_list()))
        ask("gpu_memory_gb", lambda: torch.cuda.mem_get_info(device)[1] / 1e9)
        ask(
            "gpu_memory_used_gb",
            lambda: (torch.cuda.mem_get_info(device)[1] - torch.cuda.mem_get_info(device)[0]) / 1e9,
        )
    with contextlib.suppress(Exception):  # no driver library, or no access to it
        found |= _driver_facts(device.index or 0)
    if model is not None:
        try:
            release = find_release(model)
            found["model"] = release.name
            ask("disk_bytes_s", lambda: measure.disk_read(release.llm))
        except CosyError as error:
            found["model_error"] = str(error).replace(str(model), model.name)
        except OSError as error:  # no right to read it, a network drive that is gone
            found["model_error"] = f"{model.name} cannot be read ({error.strerror or type(error).__name__})"
        except Exception as error:  # damaged beyond what the reader of folders foresees
            log.info("the model folder could not be examined: %s", error)
            found["model_error"] = f"{model.name} cannot be understood ({type(error).__name__})"
    return Facts(**(found | known))


def _versions() -> dict[str, str]:
    have = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            have[name] = importlib.metadata.version(name)
    return have


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _sockets() -> int | None:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return None
    return (
        len({line for line in info.read_text(errors="replace").splitlines() if line.startswith("physical id")}) or None
    )


def _numa_nodes() -> int | None:
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def _memory_free() -> float | None:
    info = Path("/proc/meminfo").read_text()
    return next(int(line.split()[1]) * 1024 / 1e9 for line in info.splitlines() if line.startswith("MemAvailable"))


def _cudnn() -> str | None:
    number = torch.backends.cudnn.version()
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}" if number else None


def missing_packages(have: dict[str, str]) -> tuple[str, ...]:
    """Of those that the program cannot do without."""
    missing = [name for name in NEEDED if name not in have]
    if not {"onnxruntime", "onnxruntime-gpu"} & set(have):
        missing.append("onnxruntime")
    return tuple(missing)


def _normaliser() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"wetext {importlib.metadata.version('wetext')}"
    return "built-in rules"


def onnx_provider(cuda: bool) -> str:
    """What a session really gets; the list of providers names CUDA also where it cannot work.

    The smallest valid model, one Identity node, is written byte by byte, so that no other package is needed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as in audio.onnx_session
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = (
        ["CUDAExecutionProvider"] if cuda and "CUDAExecutionProvider" in onnxruntime.get_available_providers() else []
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "identity.onnx"
        path.write_bytes(IDENTITY)
        session = onnxruntime.InferenceSession(str(path), options, providers=[*wanted, "CPUExecutionProvider"])
        return session.get_providers()[0]


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field; payloads here are shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def _value(name: bytes) -> bytes:
    """A ValueInfoProto: a float tensor of shape (1)."""
    shape = _field(2, _field(1, b"\x08\x01"))
    return _field(1, name) + _field(2, _field(1, b"\x08\x01" + shape))


_NODE = _field(1, b"x") + _field(2, b"y") + _field(4, b"Identity")
_GRAPH = _field(1, _NODE) + _field(2, b"g") + _field(11, _value(b"x")) + _field(12, _value(b"y"))
IDENTITY = b"\x08\x08" + _field(7, _GRAPH) + _field(8, b"\x0a\x00\x10\x0d")  # ir_version 8, opset 13


def _driver_facts(index: int) -> dict[str, Any]:
    """What the NVIDIA management library knows; raises when there is none."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        facts: dict[str, Any] = {
            "gpu": str(pynvml.nvmlDeviceGetName(handle)),
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "driver_model": _driver_model(pynvml, handle),
            "gpu_memory_gb": memory.total / 1e9,
            "gpu_memory_used_gb": memory.used / 1e9,
            "gpu_busy": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        }
        for name, question in (
            ("power_limit_w", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            ("power_most_w", lambda: pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[1] / 1000),
            ("clock_mhz", lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
            ("clock_most_mhz", lambda: float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))),
        ):
            with contextlib.suppress(pynvml.NVMLError):  # laptops and virtual machines do not tell everything
                facts[name] = question()
        own = os.getpid()
        programs = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != own]
        facts["other_gpu_programs"] = tuple(f"process {pid}" for pid in programs)
        return facts
    finally:
        pynvml.nvmlShutdown()


def _driver_model(pynvml: Any, handle: Any) -> str:
    if platform.system() == "Windows":
        current = pynvml.nvmlDeviceGetCurrentDriverModel(handle)
        return {0: "WDDM", 1: "TCC", 2: "MCDM"}.get(current, "WDDM")
    return "WSL" if "microsoft" in platform.release().lower() else "Linux"
