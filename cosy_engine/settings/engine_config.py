"""What the user chooses about the engine; unknown keys are refused by the dataclass itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosy_engine.errors import SettingInvalid

PRECISIONS = ("fp32", "fp16", "bf16")
TIERS = ("eager", "graph", "fused")  # how the same model is run; "auto" is the last that this machine can


@dataclass(frozen=True)
class EngineConfig:
    """device: "auto", "cpu", "cuda" or "cuda:N". precision, tier: defaults of requests that name none.

    slots: requests that run at once; more wait in order, at most `queue` of them. None follows the device's free memory
        (slots_for). max_batch: rows decoded together, which are what takes memory; None is one for each slot. With fewer, some
        requests render while others decode.
    max_text_chars: refused above. max_reference_s: longer clips are cut to their best window.
    llm_weights: file in the model folder, None picks llm.pt, else llm.rl.pt.
    strict_min: forbid every stop id before the minimum length; False reproduces upstream (one id only).
    warm_up: capture graphs in the background after loading; requests that come earlier run eagerly.
    onnx_threads: intra-op threads of the reference networks.
    unload_after_s: idle seconds after which the networks' memory is given back; the next request loads them again. None: never.
    """

    device: str = "auto"
    precision: str = "fp32"
    tier: str = "auto"
    slots: int | None = None
    max_batch: int | None = None
    queue: int = 64
    max_text_chars: int = 5000
    max_reference_s: float = 10.0
    llm_weights: str | None = None
    strict_min: bool = True
    warm_up: bool = True
    onnx_threads: int = 1
    voice_cache_bytes: int = 64 * 2**20
    unload_after_s: int | None = None

    def __post_init__(self) -> None:
        """Raises: SettingInvalid: a value of another type or outside its range."""
        for name, low, high in RANGES:
            value = getattr(self, name)
            if value is None and name in FOLLOW:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise SettingInvalid(f"{name} is {value!r}: give a whole number from {low} to {high}")
        seconds = self.max_reference_s
        if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or not 1 <= seconds <= 30:
            raise SettingInvalid(f"max_reference_s is {seconds!r}: give 1 to 30")
        for name, known in (("precision", PRECISIONS), ("tier", ("auto", *TIERS))):
            if getattr(self, name) not in known:
                raise SettingInvalid(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(known)}")
        for name, optional in (("device", False), ("llm_weights", True)):
            value = getattr(self, name)
            if not isinstance(value, str) and not (optional and value is None):
                raise SettingInvalid(f"{name} is {value!r}: give a text")


FOLLOW = ("slots", "max_batch", "unload_after_s")  # None: made from the device, or never
SLOTS_ON_CPU = 4  # more only share two to sixteen cores; they cost no first audio in turns, and memory for each
# Free bytes of a GPU -> slots. Networks and their graphs take 3 to 4 GB, a row of the decode batch 25 to 50 MB, a request that
# is rendered up to 0.7 GB, one at a time.
SLOTS_BY_MEMORY = ((16 * 10**9, 32), (10 * 10**9, 16), (6 * 10**9, 8), (0, 4))


def slots_for(free_bytes: int | None) -> int:
    """Requests at once by the free memory of a GPU; None is a CPU."""
    if free_bytes is None:
        return SLOTS_ON_CPU
    return next(slots for least, slots in SLOTS_BY_MEMORY if free_bytes >= least)


# Field, lowest, highest. 32 rows are the largest decode batch that is worth capturing.
RANGES = (
    ("slots", 1, 32),
    ("max_batch", 1, 32),
    ("queue", 0, 10_000),
    ("max_text_chars", 1, 100_000),
    ("onnx_threads", 1, 256),
    ("voice_cache_bytes", 0, 2**40),
    ("unload_after_s", 1, 10**7),
)
