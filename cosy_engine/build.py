"""Puts the rooms together from a model folder and a config; the one file that knows them all."""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cosy_engine.accel import fused_config
from cosy_engine.accel.buckets import ROWS, round_up
from cosy_engine.accel.decode_fused import FusedStep
from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.accel.decode_torch import TorchStep
from cosy_engine.accel.flow_graph import GraphFlow
from cosy_engine.accel.graphs import Captured, Pool
from cosy_engine.accel.prefill_graph import GraphPrefill
from cosy_engine.accel.vocoder_graph import GraphVocoder
from cosy_engine.audio.speaker_encoder import SpeakerEncoder
from cosy_engine.audio.speech_tokenizer import SpeechTokenizer
from cosy_engine.audio.voice import VoiceEncoder
from cosy_engine.engine import Engine
from cosy_engine.errors import ModelFilesError, ModeUnavailable, ReferenceUnreadable
from cosy_engine.flow import build_flow
from cosy_engine.llm.bistream import Bistream
from cosy_engine.llm.pool import DecodePool, RowPlan
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.model_files.layout import Release, find_release
from cosy_engine.model_files.stored_voices import read_stored_voices
from cosy_engine.model_files.weights import (
    check_finite,
    load_llm,
    load_strict,
    misfit,
    read_checkpoint,
    without_training_prefix,
)
from cosy_engine.scheduling.hop import HopPolicy
from cosy_engine.settings.engine_config import PRECISIONS, TIERS, EngineConfig, slots_for
from cosy_engine.settings.model_spec import FlowSpec, LlmSpec
from cosy_engine.stages import Stages
from cosy_engine.text.clean import strip_prefix
from cosy_engine.text.frontend import TextFrontend
from cosy_engine.text.languages import NAMES
from cosy_engine.text.tokenizer import TextTokenizer
from cosy_engine.types import Voice
from cosy_engine.vocoder import build_vocoder, stretch

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
DEMO_VOICE = ROOT / "assets" / "demo_voice"
ROW_POSITIONS, ROW_DRAWS = 2048, 1024
STEPS_PER_LAUNCH = 4  # on a GPU: results travel once for so many tokens; a row that ends wastes as many steps at most
# Captured tiers compute a stream's earlier frames again for every chunk, and make seconds of speech in a tenth of their time.
LONG_HOPS = HopPolicy(largest_blocks=6, growth=3)
LAUNCHES_AHEAD = 1  # on a GPU: what it does while the host reads results and sends the next launch
ROOM_BYTES = 700 * 10**6  # device memory that captures leave to requests: the longest text needs about so much
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def load(model: str | Path | None = None, config: EngineConfig | None = None, **options) -> Engine:
    """A ready engine.

    Args: model: a model folder; None takes a release found under pretrained_models/ (v3 before v2), else the built-in
    demo voice. options: fields of EngineConfig, for example device="cpu", precision="bf16".
    Raises: ModelFilesError: the folder cannot be used. ModeUnavailable: the device or precision is not there.
    """
    config = config or EngineConfig(**options)
    device = pick_device(config.device)
    slots = config.slots or slots_for(free_bytes(device))
    config = replace(config, slots=slots, max_batch=min(slots, config.max_batch or slots))
    release = find_release(Path(model) if model else default_folder(), config.llm_weights, NAMES)
    missing = unavailable_here(device, release.spec.llm)
    for name in (config.precision, config.tier):
        if name in missing:
            raise ModeUnavailable(f"{name} is not available here: {missing[name]}")
    # oneDNN keeps code for the last 1024 shapes; every text has new ones, and on a CPU the process grew by 0.3 MB a request.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    exact_fp32()
    tokenizer = TextTokenizer(release.text_tokenizer, release.spec.text_tokens)
    if tokenizer.size > release.spec.llm.text_vocab:
        raise ModelFilesError(
            f"{release.text_tokenizer.name} has {tokenizer.size} ids, the language model {release.spec.llm.text_vocab} rows: "
            "files of two releases are mixed; download one release into an empty folder"
        )
    speech_tokenizer = SpeechTokenizer(release.speech_tokenizer, device=device, threads=config.onnx_threads)
    speaker_encoder = SpeakerEncoder(release.speaker_encoder, device=device, threads=config.onnx_threads)
    voices = VoiceEncoder(
        speech_tokenizer,
        speaker_encoder,
        release.spec.mel,
        model_key(release),
        cache_bytes=config.voice_cache_bytes,
        speech_tokens=release.spec.llm.speech_tokens,
    )
    tiers = available_tiers(device, release.spec.llm)
    read = functools.partial(load_models, release, torch.device("cpu"))
    shelf = StageShelf(read(), row_bucket(config.max_batch), tiers, device, again=read)
    engine = Engine(
        spec=release.spec,
        name=release.name,
        text=TextFrontend(
            tokenizer,
            release.spec,
            max_chars=config.max_text_chars,
            languages=tuple(release.card.get("languages", ())),
            knows_tags=release.card.get("tags", True),
            knows_capitals=release.card.get("capitals", True),
            joins_sentences=release.card.get("joins_sentences", True),
            short_texts=release.card.get("short_texts", False),
        ),
        voices=voices,
        shelf=shelf,
        config=config,
        device=describe_device(device),
        card=release.card,
        unavailable=missing,
        stored_voices=stored_voices(release, tokenizer, voices),
    )
    log.info(
        "%s from %s on %s, front end on %s, text by %s",
        release.name,
        release.folder.name,
        engine.device,
        voices.provider,
        engine.text.backend,
    )
    return engine


def stored_voices(release: Release, tokenizer: TextTokenizer, encoder: VoiceEncoder) -> dict[str, Voice]:
    """Voices in the model folder by name; those that cannot be used are logged."""
    if release.stored_voices is None:
        return {}
    found, wrong = read_stored_voices(release.stored_voices, lambda ids: strip_prefix(tokenizer.decode(ids)))
    for name, voice in list(found.items()):
        try:
            encoder.check(voice, name)
        except ReferenceUnreadable as error:
            del found[name]
            wrong.append(str(error))
    for words in wrong:
        log.warning("left out: %s", words)
    return found


def exact_fp32() -> None:
    """TF32 would round fp32 products and convolutions to 10 bits; "fp32" here means fp32. Who wants speed takes fp16."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def available_tiers(device: torch.device, llm: LlmSpec | None = None) -> tuple[str, ...]:
    """Tiers that this device can run, plainest first; None is a model of the published sizes."""
    missing = unavailable_here(device, llm)
    return tuple(tier for tier in TIERS if tier not in missing)


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a GPU; None for a CPU."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def row_bucket(slots: int) -> int:
    """Rows of the decode batch: the next size that is worth capturing."""
    return round_up(slots, ROWS) or slots


def model_key(release: Release) -> str:
    """Names the networks that make a voice: voices made by one pair of files mean nothing to another."""
    digest = hashlib.sha256()
    for path in (release.speech_tokenizer, release.speaker_encoder):
        with path.open("rb") as file:  # both ends and the size: a GB is not read for a name
            digest.update(file.read(2**16))
            file.seek(max(0, path.stat().st_size - 2**16))
            digest.update(file.read())
        digest.update(str(path.stat().st_size).encode())
    return f"{release.spec.text_tokens}-{digest.hexdigest()[:16]}"


class StageShelf:
    """The model at each precision and tier, made when first asked for from the fp32 networks that were read from the files.

    Those stay where they are (on the CPU, for an engine), so that a GPU holds only precisions in use. Tiers of one precision
    share its weights; each has its own decode batch.
    """

    def __init__(
        self,
        models: Models,
        rows: int,
        tiers: tuple[str, ...],
        device: torch.device | None = None,
        again: Callable[[], Models] | None = None,
    ):
        """again: reads the files once more, after `unload`."""
        self.rows, self.tiers = rows, tiers
        self._lock = threading.RLock()
        self._read: Models | None = models
        self._again, self.device = again, device or models.lm.device
        self._models: dict[str, Models] = {}
        self._ready: dict[tuple[str, str], Stages] = {}
        self._left_out: dict[tuple[str, str], list[str]] = {}

    def inside(self) -> AbstractContextManager:
        """The device is the current one in here: streams, graphs and Triton's kernels go to the current device, not to that of
        their tensors, and a thread begins with the first."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    @property
    def unloaded(self) -> bool:
        """Whether the next `models` or `at` reads the files first."""
        return self._read is None

    def unload(self) -> None:
        """Give back the memory of networks, decode batches and graphs. Nobody may be using them."""
        assert self._again is not None, "a shelf that cannot read its files again keeps them"
        with self._lock, self.inside():
            self._read = None
            self._models.clear()
            self._ready.clear()
            self._left_out.clear()
            gc.collect()  # networks and their graphs refer to each other
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def models(self, precision: str) -> Models:
        with self._lock, self.inside():
            if self._read is None:
                self._read = self._again()
            if precision not in self._models:
                as_read = precision == "fp32" and self.device == self._read.lm.device
                self._models[precision] = self._read if as_read else self._read.at(precision, self.device)
            return self._models[precision]

    def at(self, precision: str, tier: str) -> Stages:
        with self._lock, self.inside():
            key = precision, tier
            if key not in self._ready:
                self._ready[key] = make_stages(self.models(precision), precision, tier, self.rows)
            return self._ready[key]

    def chores(self, precision: str, tier: str) -> Iterator[Callable[[], None]]:
        """The work of warming up, in pieces that the worker does between requests; the last one logs what it cost, and what was
        left out because the device's memory is short. What is not captured runs as the plain tier does."""
        captured = self._captured_parts(precision, tier)
        left_out = self._left_out.setdefault((precision, tier), [])
        left_out.clear()
        for part in captured:
            for work in part.captures():
                yield functools.partial(
                    self._capture, type(part).__name__.removeprefix("Graph").lower(), work, left_out
                )
        if captured:
            yield lambda: self._log_warm_up(precision, tier)

    def _capture(self, stage: str, work: Callable[[], object], left_out: list[str]) -> None:
        if room(self.device) < ROOM_BYTES:
            left_out.append(stage)
            return
        try:
            work()
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            left_out.append(stage)

    def _log_warm_up(self, precision: str, tier: str) -> None:
        log.info("warm (%s, %s): %s", precision, tier, warm_up_report(self.captured(precision, tier)))
        if left_out := self.left_out(precision, tier):
            log.warning(
                "memory of the device is short: %s left out; those sizes run slower. Fewer --slots help.", left_out
            )

    def left_out(self, precision: str, tier: str) -> str:
        """Which stages have sizes that were not captured for want of memory, such as "flow 3, vocoder 1"; empty when none."""
        counts = Counter(self._left_out.get((precision, tier), ()))
        return ", ".join(f"{stage} {count}" for stage, count in counts.items())

    def captured(self, precision: str, tier: str) -> list[Captured]:
        """What each graph cost that is there."""
        return [cost for part in self._captured_parts(precision, tier) for cost in part.captured]

    def choices(self, precision: str, tier: str) -> dict[str, str]:
        """Operation and size -> the way of making it that was fastest here; empty where there was nothing to choose."""
        ops = getattr(self.at(precision, tier).flow, "ops", None)
        return {str(key): str(way) for key, way in ops.fastest.chosen.items()} if ops and ops.fused else {}

    def _captured_parts(self, precision: str, tier: str) -> list[GraphDecode | GraphPrefill | GraphFlow | GraphVocoder]:
        stages = self.at(precision, tier)
        parts = (stages.pool.step, stages.pool.prefill, stages.flow, stages.vocoder)
        return [part for part in parts if isinstance(part, GraphDecode | GraphPrefill | GraphFlow | GraphVocoder)]


def room(device: torch.device) -> float:
    """Bytes that a capture could take: free on the device, or held by torch and not in use. No limit on a CPU."""
    if device.type != "cuda":
        return float("inf")
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def warm_up_report(captured: list[Captured]) -> str:
    """One line: graphs, seconds and bytes of each stage."""
    lines = []
    for stage in dict.fromkeys(cost.name.split()[0] for cost in captured):
        own = [cost for cost in captured if cost.name.split()[0] == stage]
        seconds, size = sum(cost.seconds for cost in own), sum(cost.bytes for cost in own)
        lines.append(f"{stage} {len(own)} graphs, {seconds:.1f} s, {size / 1e6:.0f} MB")
    return "; ".join(lines)


def copied(net: nn.Module, device: torch.device) -> nn.Module:
    """A copy on a device; nothing is copied where it is first."""
    tensors = [*net.parameters(), *net.buffers()]
    if tensors[0].device == device:
        return copy.deepcopy(net)
    moved = {id(t): nn.Parameter(t.to(device), False) if isinstance(t, nn.Parameter) else t.to(device) for t in tensors}
    return copy.deepcopy(net, moved)


@dataclass(frozen=True, eq=False)
class Models:
    """The three networks at one precision, on their device, ready for inference."""

    lm: SpeechLM
    flow: Any
    vocoder: Any

    @functools.cached_property
    def torch_step(self) -> TorchStep:
        """Fuses weights in place: once for all tiers."""
        return TorchStep(self.lm, ROW_POSITIONS)

    def at(self, precision: str, device: torch.device | None = None) -> Models:
        """A copy for inference with matrix weights in another precision, on another device if one is given."""
        device = device or self.lm.device

        def settled(net: Any) -> Any:
            net.set_precision(DTYPES[precision])
            if device.type == "cuda":
                torch.cuda.empty_cache()  # what the fp32 weights took on their way: one network at a time
            return net

        lm = settled(copied(self.lm, device))
        flow = settled(copied(self.flow, device).drop_time_weights())
        vocoder = settled(copied(self.vocoder, device))
        flow.noise(0, 1)  # the first request does not wait for these tables
        if vocoder.causal:
            vocoder.noise_rows(None, 0, 1)
        return Models(lm, flow, vocoder)

    def to(self, device: torch.device) -> Models:
        """The same networks, moved."""
        for net in (self.lm, self.flow, self.vocoder):
            net.to(device)
        return self

    @classmethod
    def ready(cls, lm: SpeechLM, flow: Any, vocoder: Any, device: torch.device) -> Models:
        """To the device and out of training."""
        for module in (lm, flow, vocoder):
            module.requires_grad_(False).eval().to(device)
        flow.finish_loading()
        vocoder.finish_loading()
        return cls(lm, flow, vocoder)


def load_models(release: Release, device: torch.device) -> Models:
    """The three models of a folder in fp32 on `device`, built without random initialisation."""
    spec = release.spec
    with torch.device("meta"):
        lm, flow, vocoder = SpeechLM(spec.llm), build_flow(spec.flow), build_vocoder(spec.vocoder)
    load_llm(lm, read_checkpoint(release.llm), release.llm.name)
    load_strict(flow, read_checkpoint(release.flow), release.flow.name)
    state = without_training_prefix(read_checkpoint(release.hift))
    try:
        vocoder.load_published(state)
    except (RuntimeError, KeyError) as error:
        raise ModelFilesError(misfit(release.hift.name, str(error))) from error
    check_finite(vocoder.state_dict(), release.hift.name)  # folded: a weight norm of zero length shows only here
    return Models.ready(lm, flow, vocoder, device)


def make_stages(models: Models, precision: str, tier: str, rows: int) -> Stages:
    """Models with a decode batch of `rows` rows. A row has room for a reference of 30 s and 40 s of speech."""
    lm = models.lm
    steps = 1 if lm.device.type == "cpu" else STEPS_PER_LAUNCH
    ahead = 0 if lm.device.type == "cpu" else LAUNCHES_AHEAD
    pool = DecodePool(lm, rows, ROW_POSITIONS, ROW_DRAWS, steps=steps, ahead=ahead)
    flow, vocoder = models.flow, models.vocoder
    if tier != "eager":
        plain = models.torch_step
        # Decoding overlaps with rendering, for which somebody waits; within each nothing overlaps.
        speech, sound = Pool(), Pool(first=True)
        pool.step = GraphDecode(plain, pool.state, rows, pool=speech)
        pool.prefill = GraphPrefill(plain, pool.state, pool=speech)
        flow_ops = vocoder_ops = None
        if tier == "fused":
            step = FusedStep(plain)
            pool.step = GraphDecode(step, pool.state, rows, plain, any_context=True, pieces=step.pieces, pool=speech)
            flow_ops, vocoder_ops = between_products(precision, models.flow.spec)
        flow = GraphFlow(flow, ops=flow_ops, pool=sound)
        vocoder = GraphVocoder(vocoder, ops=vocoder_ops, pool=sound)
    return Stages(
        lm=lm,
        pool=pool,
        lone_pool=lambda plan: DecodePool(lm, 1, plan.positions, plan.max_tokens, steps=steps),
        plan=RowPlan,
        flow=flow,
        vocoder=vocoder,
        bistream=Bistream,
        stretch=stretch,
        precision=precision,
        tier=tier,
        read_every=steps,
        hop=HopPolicy() if tier == "eager" else LONG_HOPS,
    )


def between_products(precision: str, flow: FlowSpec) -> tuple[Any, Any]:
    """Triton's operations of the flow and of the vocoder; None where plain torch stays.

    In fp32 the flow stays with torch: on tensor cores it would not be fp32.
    """
    from cosy_engine.accel.flow_kernels import FlowKernels  # they need Triton, which is not on every machine
    from cosy_engine.accel.vocoder_kernels import VocoderKernels

    plain = precision == "fp32" or fused_config.flow_misfit(flow)
    return None if plain else FlowKernels(), VocoderKernels()


def default_folder() -> Path:
    """A published release under pretrained_models/, v3 before v2, else the demo voice."""
    base = Path(os.environ.get("COSY_MODELS") or ROOT / "pretrained_models")
    for name in ("cosyvoice3.yaml", "cosyvoice2.yaml", "cosyvoice.yaml"):
        for yaml in sorted(base.glob(f"*/{name}")):
            return yaml.parent
    return DEMO_VOICE


def pick_device(wanted: str) -> torch.device:
    """ "auto" is the first CUDA device that works, else the CPU.

    Raises: ModeUnavailable: a CUDA device was asked for by name and is not there.
    """
    if wanted == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind, _, index = wanted.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()) or (kind == "cpu" and index):
        raise ModeUnavailable(f"unknown device {wanted!r}: choose auto, cpu, cuda or cuda:N")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            raise ModeUnavailable(f"{wanted} is not there: {count} CUDA devices can be used; choose auto or cpu")
        return torch.device("cuda", int(index or 0))
    return torch.device("cpu")


def unavailable_here(device: torch.device, llm: LlmSpec | None = None) -> dict[str, str]:
    """Precision or tier -> why it cannot be used on this device; None is a model of the published sizes."""
    missing = {}
    if device.type != "cuda":
        missing["fp16"] = "CPUs compute half precision slower than fp32; a CUDA GPU is needed"
        missing["graph"] = "CUDA Graphs need a CUDA GPU; this machine runs on its CPU"
    elif not torch.cuda.is_bf16_supported(including_emulation=False):
        missing["bf16"] = "this GPU has no bfloat16 arithmetic (compute capability 8.0 or later is needed)"
    if reason := fused_config.unavailable(device) or (llm and fused_config.misfit(llm)):
        missing["fused"] = reason
    return missing


def describe_device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


assert set(DTYPES) == set(PRECISIONS)
