"""What the doctor measures with the program's own parts, besides what health.gather asks of the machine."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.build import STEPS_PER_LAUNCH
from cosy_engine.errors import CosyError
from cosy_engine.health.cost import LAYERS
from cosy_engine.health.facts import Facts
from cosy_engine.health.gather import gather
from cosy_engine.health.measure import wait
from cosy_engine.llm.pool import DecodePool, RowPlan
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.model_files.layout import find_release
from cosy_engine.settings.published import PUBLISHED

log = logging.getLogger(__name__)

FEW, MORE = 2, 6  # layers of the two stand-ins; what more layers cost is a layer's time
POSITIONS, TOKENS = 255, 150  # of the row that is timed; one bucket of a graph holds them
CLIP_S = 5.0
LARGEST_ONNX_BYTES = 700 * 2**20  # a second session of a larger file would take longer than the doctor may
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def examine(
    device: torch.device,
    model: Path | None,
    *,
    encoder: Any = None,
    on_device: Callable[[Callable[[], Any]], Any] = lambda work: work(),
    **known: Any,
) -> Facts:
    """All facts of this machine, in less than 20 s. encoder: the loaded audio.voice.VoiceEncoder, so that its networks are
    not read again. on_device: does work on the thread that owns the device (a capture bears no other beside it). known:
    facts that the caller has. What cannot be measured stays unknown; nothing is raised."""
    facts = gather(device, model, **known)
    found: dict[str, Any] = {}
    for name, question in (
        ("stand_in", lambda: stand_in(device, on_device)),
        ("decode_s", decode_seconds),
        ("front_end_s", lambda: front_end_seconds(device, model, encoder)),
    ):
        try:
            found[name] = question()
        except Exception as error:  # any library may fail in any way on a broken machine; that is what is examined
            log.info("the doctor could not measure %s: %s", name, error)
    return replace(facts, **found)


def stand_in(
    device: torch.device, on_device: Callable[[Callable[[], Any]], Any] = lambda work: work()
) -> dict[tuple[str, str], float]:
    """(tier, precision) -> ms per token of the published size, from two models of few layers of that size: the step's
    fixed part, and a layer's time, times the layers."""
    found = {}
    for precision in ("fp32", "fp16") if device.type == "cuda" else ("fp32", "bf16"):
        times = [
            on_device(lambda layers=layers, precision=precision: _step_ms(device, layers, precision))
            for layers in (FEW, MORE)
        ]
        for tier in times[0]:
            layer = (times[1][tier] - times[0][tier]) / (MORE - FEW)
            found[tier, precision] = times[0][tier] + (LAYERS - FEW) * layer
    return found


@torch.inference_mode()
def _step_ms(device: torch.device, layers: int, precision: str) -> dict[str, float]:
    """Tier -> milliseconds of a decode step of one row, sampling included; fused kernels take too long to compile here."""
    spec = replace(PUBLISHED["v3"].llm, layers=layers, text_vocab=64)
    with torch.device("meta"):
        lm = SpeechLM(spec)
    lm.to_empty(device=device).requires_grad_(False)
    for value in lm.parameters():
        value.normal_(0, value.shape[-1] ** -0.5)
    lm.set_precision(DTYPES[precision])
    pool = DecodePool(lm, 1, POSITIONS, TOKENS, steps=STEPS_PER_LAUNCH if device.type == "cuda" else 1)
    draws = np.random.default_rng(0).random((TOKENS, 2), np.float32)
    pool.admit(RowPlan(list(range(32)), torch.arange(32), draws, TOKENS, TOKENS))  # one that has ended costs the same
    times = {"eager": _best_ms(device, pool)}
    if device.type == "cuda":
        step = GraphDecode(TorchStep(lm, POSITIONS), pool.state, 1)
        for capture in step.captures():
            capture()
        pool.step = step
        times["graph"] = _best_ms(device, pool)
    return times


def _best_ms(device: torch.device, pool: DecodePool) -> float:
    """Milliseconds of a step, the best of many: other programs can only add to it, and the difference of two times
    carries the noise of both. On a GPU some launches are sent at once, as decoding does."""
    count, runs = (5, 12) if device.type == "cuda" else (1, 30)
    for _ in range(5):
        pool.launch()
    best = float("inf")
    for _ in range(runs):
        wait(device)
        began = time.perf_counter()
        for _ in range(count):
            pool.launch()
        wait(device)
        best = min(best, 1000 * (time.perf_counter() - began) / (count * pool.steps))
    return best


def _clip() -> np.ndarray:
    """(N,) float32 at 24 kHz: noise with syllables, which no encoder can shorten away."""
    t = np.arange(int(CLIP_S * 24000)) / 24000
    noise = np.random.default_rng(0).standard_normal(len(t))
    return (0.1 * noise * (0.5 + 0.4 * np.sin(2 * np.pi * 4 * t))).astype(np.float32)


def decode_seconds() -> dict[str, float]:
    """Format -> seconds to decode 5 s of it; the first file of a format also loads its library, as a user's first does."""
    import soundfile

    from cosy_engine.audio.decode import decode

    found = {}
    for kind in ("wav", "mp3"):
        held = io.BytesIO()
        soundfile.write(held, _clip(), 24000, format=kind)
        began = time.perf_counter()
        decode(held.getvalue(), f"clip.{kind}")
        found[kind] = time.perf_counter() - began
    return found


def front_end_seconds(device: torch.device, model: Path | None, encoder: Any = None) -> dict[str, float]:
    """Provider -> seconds to analyse 5 s of reference with both networks, warm: what is used, and the CPU beside a GPU."""
    from cosy_engine.audio.speaker_encoder import SpeakerEncoder
    from cosy_engine.audio.speech_tokenizer import SpeechTokenizer

    wave = torch.from_numpy(_clip()[::3].repeat(2)[: int(CLIP_S * 16000)].copy())
    found = {}
    pairs = [lambda: (encoder.tokenizer, encoder.speaker)] if encoder is not None else []
    if model is not None:
        with contextlib.suppress(CosyError):
            files = find_release(model)
            small = files.speech_tokenizer.stat().st_size < LARGEST_ONNX_BYTES
            kinds = ["cpu"] if encoder is not None else [str(device), "cpu"]
            pairs += [
                lambda kind=kind: (
                    SpeechTokenizer(files.speech_tokenizer, device=kind, threads=1),
                    SpeakerEncoder(files.speaker_encoder, device=kind, threads=1),
                )
                for kind in dict.fromkeys(kinds if small else kinds[:1])
            ]
    for make in pairs:
        tokenizer, speaker = make()
        if tokenizer.provider in found:
            continue
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            tokenizer(wave)
            speaker(wave)
            seconds.append(time.perf_counter() - began)
        found[tokenizer.provider] = seconds[-1]
    return found
