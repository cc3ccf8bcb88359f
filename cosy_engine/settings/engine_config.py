"""What the user chooses about the engine; unknown keys are refused by the dataclass itself."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("fp32", "fp16", "bf16")
TIERS = ("eager", "graph", "fused")  # how the same model is run; "auto" is the last that this machine can


@dataclass(frozen=True)
class EngineConfig:
    """device: "auto", "cpu", "cuda" or "cuda:N". precision, tier: defaults of requests that name none.

    slots: requests that run at once; more wait in order, at most `queue` of them.
    max_text_chars: refused above. max_reference_s: longer clips are cut to their best window.
    llm_weights: file in the model folder, None picks llm.pt, else llm.rl.pt.
    strict_min: forbid every stop id before the minimum length; False reproduces upstream (one id only).
    warm_up: capture graphs in the background after loading; requests that come earlier run eagerly.
    onnx_threads: intra-op threads of the reference networks.
    """

    device: str = "auto"
    precision: str = "fp32"
    tier: str = "auto"
    slots: int = 4
    queue: int = 64
    max_text_chars: int = 5000
    max_reference_s: float = 10.0
    llm_weights: str | None = None
    strict_min: bool = True
    warm_up: bool = True
    onnx_threads: int = 1
    voice_cache_bytes: int = 64 * 2**20
