"""How fast is this machine? `python -m cosy_engine bench`: decode step, flow, vocoder, first audio, RTF, memory.

One configuration is one precision and tier. Times are medians of several runs after discarded warm-ups, with the spread
(largest minus smallest); the device is waited for before a clock is read. A decode step is set against its floor:
the bytes of weights that it must read over the measured copy bandwidth.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch

from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.build import (
    Models,
    StageShelf,
    available_tiers,
    describe_device,
    exact_fp32,
    make_stages,
    row_bucket,
    unavailable_here,
    warm_up_report,
)
from cosy_engine.flow import build_flow
from cosy_engine.health.measure import copy_bandwidth, launch_microseconds, wait
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.scheduling.session import Job, SegmentJob, Session
from cosy_engine.scheduling.worker import Worker
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.stages import FlowPrompt, Stages
from cosy_engine.types import Voice
from cosy_engine.vocoder import build_vocoder

PROMPT_TOKENS, TOKENS = 75, 250  # 3 s of reference, 10 s of speech
TEXT_IDS = 60
PARTS = ("decode", "flow", "vocoder", "request")


@dataclass(frozen=True)
class Timing:
    """Milliseconds: median and spread of `runs` runs."""

    ms: float
    spread: float
    runs: int


@dataclass
class Result:
    """One configuration. decode: rows -> a step. flow, vocoder: seconds of speech -> time. error: why it did not run.

    warm_up: what the graphs of each stage cost. left_out: what memory had no room for. choices: what accel.fastest chose. weights_gb: allocated before anything runs, decode batch included. peak_gb: allocated
    at most. taken_gb: of the device, by all that runs on it, driver and libraries included.
    """

    precision: str
    tier: str
    decode: dict[int, Timing] = field(default_factory=dict)
    floor_ms: float = 0.0
    flow: dict[int, Timing] = field(default_factory=dict)
    vocoder: dict[int, Timing] = field(default_factory=dict)
    first_audio: Timing | None = None
    whole: Timing | None = None
    rtf: float = 0.0
    warm_up_s: float = 0.0
    graphs: int = 0
    warm_up: str = ""
    left_out: str = ""
    choices: dict[str, str] = field(default_factory=dict)
    weights_gb: float = 0.0
    peak_gb: float = 0.0
    taken_gb: float = 0.0
    error: str = ""


def random_models(spec: ModelSpec, device: torch.device, seed: int = 0) -> Models:
    """The networks of a release with random weights, made on the device, scaled so that activations stay sane."""
    exact_fp32()
    with torch.device("meta"):
        nets = [SpeechLM(spec.llm), build_flow(spec.flow), build_vocoder(spec.vocoder)]
    generator = torch.Generator(device).manual_seed(seed)
    for net in nets:
        net.to_empty(device=device)
        with torch.no_grad():
            for name, value in [*net.named_parameters(), *net.named_buffers()]:
                _fill(name, value, generator)
    return Models.ready(*nets, device)


def _fill(name: str, value: torch.Tensor, generator: torch.Generator) -> None:
    if name.endswith("inv_freq"):
        steps = torch.arange(len(value), device=value.device) / len(value)
        value.copy_(10000.0**-steps)
    elif value.dim() > 1:
        value.normal_(generator=generator).mul_(value[0].numel() ** -0.5)
    elif "norm" in name or "alpha" in name:
        value.fill_(1.0)
    else:
        value.normal_(generator=generator).mul_(0.02)


class Bench:
    """Measures configurations of one set of models, as an engine with so many slots captures them.

    rows: sizes of the decode batch to time; those above the slots are captured apart, after memory was measured.
    say: told of each part as it begins.
    """

    def __init__(
        self, spec: ModelSpec, models: Models, rows: Iterable[int], runs: int = 5, slots: int = 8,
        say: Callable[[str], None] = lambda words: None,
    ):  # fmt: skip
        self.spec, self.device, self.runs, self.say = spec, models.lm.device, runs, say
        slots = row_bucket(min(slots, max(rows)))
        self.rows = sorted(count for count in set(rows) if count <= slots)
        self.more_rows = sorted(set(rows) - set(self.rows))
        if self.device.type == "cuda":  # as an engine keeps them
            models = models.to(torch.device("cpu"))
            torch.cuda.empty_cache()
        self.shelf = StageShelf(models, slots, available_tiers(self.device), self.device)
        draw = torch.Generator().manual_seed(1)
        codes = spec.llm.speech_tokens
        self.voice = Voice(
            tokens=torch.randint(0, codes, (PROMPT_TOKENS,), generator=draw),
            mel=torch.randn(2 * PROMPT_TOKENS, spec.flow.mel_bins, generator=draw),
            embedding=torch.randn(spec.flow.speaker_width, generator=draw),
            transcript="bench",
        )
        self.text = torch.randint(0, spec.llm.text_vocab, (TEXT_IDS,), generator=draw).tolist()
        self.tokens = torch.randint(0, codes, (TOKENS,), generator=draw)
        self.bandwidth = copy_bandwidth(self.device)  # its copies are larger than all else: before memory is measured

    def run(self, precision: str, tier: str, parts: Iterable[str] = PARTS) -> Result:
        """All parts of one configuration; a failure is recorded, not raised."""
        result = Result(precision, tier)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            self.say(f"{tier} {precision}: warming up ...")
            stages = self.shelf.at(precision, tier)
            if self.device.type == "cuda":
                result.weights_gb = torch.cuda.memory_allocated() / 1e9
            began = time.perf_counter()
            for chore in self.shelf.chores(precision, tier):
                chore()
            result.warm_up_s = time.perf_counter() - began
            captured = self.shelf.captured(precision, tier)
            result.graphs, result.warm_up = len(captured), warm_up_report(captured)
            result.left_out, result.choices = self.shelf.left_out(precision, tier), self.shelf.choices(precision, tier)
            for part in parts:
                self.say(f"{tier} {precision}: {part} ...")
                getattr(self, f"_{part}")(stages, result)
            self._measure_memory(result)
            if "decode" in parts:
                for rows in self.more_rows:
                    self.say(f"{tier} {precision}: decode of {rows} rows ...")
                    self._decode_apart(precision, tier, rows, result)
        except Exception as error:  # one configuration that cannot run must not lose the others' figures
            result.error = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self._measure_memory(result)
        return result

    def _measure_memory(self, result: Result) -> None:
        if self.device.type == "cuda":
            result.peak_gb = max(result.peak_gb, torch.cuda.max_memory_allocated() / 1e9)
            free, total = torch.cuda.mem_get_info(self.device)
            result.taken_gb = max(result.taken_gb, (total - free) / 1e9)

    # ---- parts

    @torch.inference_mode()
    def _decode(self, stages: Stages, result: Result) -> None:
        lm = stages.lm
        read = [p for name, p in lm.named_parameters() if "embed" not in name]
        result.floor_ms = 1000 * sum(p.numel() * p.element_size() for p in read) / self.bandwidth
        for rows in self.rows:
            result.decode[rows] = self._decode_rows(stages, rows)

    @torch.inference_mode()
    def _decode_apart(self, precision: str, tier: str, rows: int, result: Result) -> None:
        """More rows than the engine has slots for, in a batch of their own."""
        stages = make_stages(self.shelf.models(precision), precision, tier, rows)
        step = stages.pool.step
        if isinstance(step, GraphDecode):
            for work in step.pieces(stages.pool.state, rows):
                work()
            for context in step.contexts:
                step.capture(rows, context)
        result.decode[rows] = self._decode_rows(stages, rows)

    def _decode_rows(self, stages: Stages, rows: int) -> Timing:
        """Steps of a reading of 10 s behind its prompt, begun anew for every run; of the first 0.8 s where launches are slow."""
        launches = (TOKENS if stages.tier != "eager" and self.device.type == "cuda" else 20) // stages.read_every
        times = []
        for run in range(self.runs + 2):
            owned = [stages.pool.admit(self._plan(stages, seed)) for seed in range(rows)]

            def steps() -> None:
                for _ in range(launches):
                    stages.pool.collect()
                    stages.pool.launch()

            ms = self._milliseconds(steps) / (launches * stages.read_every)
            stages.pool.collect()
            for row in owned:
                stages.pool.release(row)
            if run >= 2:
                times.append(ms)
        return _timing(times)

    def _plan(self, stages: Stages, seed: int) -> Any:
        """A row that never stops by itself: every stop id is held back to the end."""
        draws = 1000
        return stages.plan(
            text_ids=self.text,
            speech_ids=self.voice.tokens,
            uniforms=np.random.default_rng(seed).random((draws, 2), np.float32),
            min_tokens=draws,
            max_tokens=draws,
        )

    def _flow(self, stages: Stages, result: Result) -> None:
        prompt = FlowPrompt(
            self.voice.tokens.to(self.device), self.voice.mel.to(self.device), self.voice.embedding.to(self.device)
        )
        for seconds in (1, 10):
            tokens = self.tokens[: 25 * seconds].to(self.device)
            result.flow[seconds] = self._time(lambda tokens=tokens: stages.flow.whole([tokens], [prompt]))

    def _vocoder(self, stages: Stages, result: Result) -> None:
        draw = torch.Generator().manual_seed(2)
        for seconds in (1, 10):
            mel = torch.randn(self.spec.flow.mel_bins, 50 * seconds, generator=draw).to(self.device)
            result.vocoder[seconds] = self._time(lambda mel=mel: stages.vocoder.whole(mel))

    def _request(self, stages: Stages, result: Result) -> None:
        """10 s of speech through the real worker, voice known: streamed for the first audio, whole for the RTF."""
        worker = Worker(slots=1, queue=1)
        try:
            firsts, wholes = [], []
            for run in range(self.runs + 2):
                first = self._speak(worker, stages, run, stream=True)[0]
                seconds = self._speak(worker, stages, run, stream=False)[1]
                if run >= 2:
                    firsts.append(1000 * first)
                    wholes.append(1000 * seconds)
        finally:
            worker.close()
        result.first_audio, result.whole = _timing(firsts), _timing(wholes)
        result.rtf = result.whole.ms / 1000 / (TOKENS / self.spec.token_rate_hz)

    def _speak(self, worker: Worker, stages: Stages, seed: int, stream: bool) -> tuple[float, float]:
        """Seconds to the first chunk and to the end."""
        segment = SegmentJob("bench", (), tuple(self.text), fixed_tokens=TOKENS)
        job = Job((segment,), self.voice, True, seed, self.spec.mel.rate_hz, stream=stream)
        session = Session(job, stages, time.perf_counter)
        began = time.perf_counter()
        worker.submit(session)
        first = 0.0
        for _ in session.audio():
            first = first or time.perf_counter() - began
        return first, time.perf_counter() - began

    # ---- clocks

    def _time(self, work: Callable[[], object]) -> Timing:
        """Milliseconds of `work`, after two runs that do not count."""
        return _timing([self._milliseconds(work) for _ in range(self.runs + 2)][2:])

    def _milliseconds(self, work: Callable[[], object]) -> float:
        wait(self.device)
        began = time.perf_counter()
        work()
        wait(self.device)
        return 1000 * (time.perf_counter() - began)


def _timing(ms: list[float]) -> Timing:
    return Timing(median(ms), max(ms) - min(ms), len(ms))


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    facts = {
        "device": describe_device(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "launch_us": round(launch_microseconds(device), 2),
        "copy_tb_s": round(copy_bandwidth(device) / 1e12, 3),
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        facts |= {
            "capability": ".".join(map(str, torch.cuda.get_device_capability(device))),
            "cuda": torch.version.cuda,
            "memory_gb": round(total / 1e9, 1),
            "free_gb": round(free / 1e9, 1),
        }
        try:
            import pynvml

            pynvml.nvmlInit()
            facts["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        except Exception:  # optional package, or no access to the driver's library: the figure is left out
            facts["driver"] = "unknown"
    return facts


def table(results: list[Result]) -> str:
    """For people: one line a configuration."""
    lines = []
    for r in results:
        name = f"{r.tier:6} {r.precision}"
        if r.error:
            lines.append(f"{name}: did not finish: {r.error}")
        parts = [
            f"step {rows} rows {t.ms:.3f} ms (x{t.ms / r.floor_ms:.1f} of the floor, ±{t.spread:.3f})"
            for rows, t in r.decode.items()
        ]
        parts += [f"flow {s} s {t.ms:.1f} ms" for s, t in r.flow.items()]
        parts += [f"vocoder {s} s {t.ms:.1f} ms" for s, t in r.vocoder.items()]
        if r.first_audio:
            parts.append(f"first audio {r.first_audio.ms:.0f} ms (±{r.first_audio.spread:.0f})")
        if r.whole:
            parts.append(f"RTF of 10 s {r.rtf:.4f}")
        if r.peak_gb:
            parts.append(f"weights {r.weights_gb:.2f} GB, peak {r.peak_gb:.2f} GB, taken {r.taken_gb:.2f} GB")
        if r.graphs:
            parts.append(f"{r.graphs} graphs in {r.warm_up_s:.1f} s ({r.warm_up})")
        lines.append(f"{name}: " + "; ".join(parts))
    return "\n".join(lines)


def as_data(results: list[Result], facts: dict[str, Any], what: str) -> dict[str, Any]:
    """The JSON form."""
    return {"what": what, "machine": facts, "results": [asdict(r) for r in results]}


def runnable(device: torch.device, precisions: Iterable[str], tiers: Iterable[str]) -> list[tuple[str, str]]:
    """The configurations that this machine has."""
    missing = unavailable_here(device)
    return [(p, t) for t in tiers for p in precisions if p not in missing and t not in missing]
