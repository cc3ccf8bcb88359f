"""The main path: Request -> checks -> text segments and voice -> session -> audio chunks."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosy_engine.audio.clip_report import clip_notes, describe, transcript_note
from cosy_engine.audio.voice import VoiceEncoder
from cosy_engine.audio.waveform import read_clip
from cosy_engine.audio.window import best_window
from cosy_engine.errors import (
    FETCH,
    Cancelled,
    CosyError,
    InputMissing,
    ModeUnavailable,
    ReferenceTooLong,
    SettingInvalid,
    TextEmpty,
    TextTooLong,
)
from cosy_engine.scheduling.guard import Guard
from cosy_engine.scheduling.session import Job, SegmentJob, Session
from cosy_engine.scheduling.worker import Worker
from cosy_engine.settings.engine_config import PRECISIONS, TIERS, EngineConfig
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.settings.modes import MODES, OPTIONAL_INPUTS, Mode
from cosy_engine.text.frontend import TextFrontend
from cosy_engine.types import AudioChunk, Clip, Report, Request, Voice

log = logging.getLogger(__name__)

# The prompt is read in one piece, and everybody waits for it: no clip of 30 s has more words, no instruction needs more.
LONGEST_CHARS = {"transcript": 2000, "instruction": 1000}
LONGEST_REFERENCE_S = 30.0  # limit of the speech tokenizer


@dataclass(frozen=True, eq=False)
class Result:
    """Whole audio of a request. samples: (N,) float32 at rate_hz."""

    samples: np.ndarray
    rate_hz: int
    report: Report


class Speech:
    """Audio of one running request: iterate for chunks, close to stop, read `report` at the end. A stopped one has a report
    too, of what was heard of it.

    seed: the one in use, drawn if the request had none. notes: what the user should know, known before the first sound.
    """

    def __init__(
        self, engine: Engine, session: Session, request: Request, notes: tuple[str, ...], began_s: float, load_s: float
    ):
        self._engine, self._session, self.request, self.notes = engine, session, request, notes
        self.seed = session.job.seed
        self.segments = len(session.job.segments)
        self.report: Report | None = None
        self._began_s, self._front_s = began_s, engine.clock() - began_s - load_s
        self._first_s: float | None = None
        self._audio = self._chunks()

    def __iter__(self) -> Iterator[AudioChunk]:
        return self

    def __next__(self) -> AudioChunk:
        return next(self._audio)

    def close(self) -> None:
        """Stop and free everything the request holds; safe to call at any time and from any thread."""
        self._session.cancel()

    def position(self) -> int:
        """0 when running, else the place in the queue."""
        return self._engine.worker.position(self._session)

    def expected_wait_s(self) -> float | None:
        """Seconds until a place in the queue is likely to run; 0 when running, None before anything was made."""
        return self._engine.worker.expected_wait_s(self._session)

    def _chunks(self) -> Iterator[AudioChunk]:
        try:
            for chunk in self._session.audio():
                if self._first_s is None:
                    self._first_s = self._engine.clock() - self._began_s
                yield chunk
        except Cancelled:
            if self._first_s is not None:
                self._session.cost.segments += self._broken_off()
                self._make_report()
            raise
        self._make_report()

    def _make_report(self) -> None:
        self.report = self._engine._report(self._session, self.request, self.notes, self._front_s, self._first_s or 0.0)

    def _broken_off(self) -> list[dict]:
        """The segment during which a request was stopped, if some of it was heard."""
        cost, job = self._session.cost, self._session.job
        begun, heard_s = len(cost.segments), cost.samples / job.rate_hz
        start_s = cost.segments[-1]["end_s"] if cost.segments else 0.0
        if begun == len(job.segments) or heard_s <= start_s:
            return []
        return [{"text": job.segments[begun].text, "start_s": start_s, "end_s": heard_s, "tokens": 0}]


@dataclass(frozen=True)
class Snapshot:
    """What an engine is doing. steps: decode steps sent since it was loaded; captures_*: pieces of warming up. audio_per_s:
    seconds of audio made in a second of work of late, None before anything was made."""

    running: int
    waiting: int
    rows: int
    rows_total: int
    steps: int
    captures_done: int
    captures_total: int
    audio_per_s: float | None = None


class Engine:
    """A loaded model behind one worker. Made by `load`; safe to call from any number of threads."""

    def __init__(
        self,
        spec: ModelSpec,
        name: str,
        text: TextFrontend,
        voices: VoiceEncoder,
        shelf: Any,
        config: EngineConfig,
        device: str,
        card: dict[str, Any],
        unavailable: dict[str, str],
        stored_voices: dict[str, Voice] | None = None,
    ):
        self.spec, self.name, self.card = spec, name, card
        self.text, self.voices, self.config, self.device = text, voices, config, device
        self.unavailable = unavailable  # precision or tier -> why it cannot run here
        self.stored_voices = stored_voices or {}  # of the model folder, by name
        self.tier = shelf.tiers[-1] if config.tier == "auto" else config.tier
        self.shelf = shelf
        # Random weights make noise, which is no fault of theirs.
        self.guard = Guard(noise_crossings=1.0) if card.get("trained") is False else Guard()
        self.clock = time.perf_counter
        self.loading = False  # again, after it had been unloaded
        self._load_lock = threading.Lock()
        self.worker = Worker(config.slots, config.queue, self.clock, shelf.inside, config.unload_after_s, self._unload)
        if config.warm_up:
            self.worker.add_chores(shelf.chores(config.precision, self.tier))

    @property
    def modes(self) -> tuple[str, ...]:
        """Ids of the modes that this model was taught."""
        return tuple(name for name in MODES if name != "instruct" or self.card.get("instructions", True))

    def warm_up_progress(self) -> tuple[int, int]:
        """(pieces done, pieces in all); equal when warm, also where there was nothing to do."""
        return self.worker.chores_total - self.worker.chores_left, self.worker.chores_total

    def snapshot(self) -> Snapshot:
        """A few counters, cheap enough to be asked every second."""
        running, waiting = self.worker.load()
        return Snapshot(
            running,
            waiting,
            self.worker.rows(),
            self.shelf.rows,
            self.worker.steps,
            *self.warm_up_progress(),
            self.worker.audio_per_s(),
        )

    # What callers use

    def speak(self, request: Request) -> Speech:
        """Start a request; its audio comes by iterating the result. Closing it cancels the request.

        Raises: UserError: an input cannot be used; Busy: the queue is full; ModeUnavailable: not on this machine.
        """
        began = self.clock()
        job, notes = self.job(request)
        precision, tier = request.precision or self.config.precision, request.tier or self.tier
        load_s = self._load_again(precision, tier)
        if load_s:
            notes += (f"the model had been unloaded while nobody used it, and was loaded again in {load_s:.1f} s",)
        exact = None if precision == "fp32" else lambda: self.shelf.at("fp32", tier)
        session = Session(job, self.shelf.at(precision, tier), self.clock, self.guard, full_precision=exact)
        if load_s:
            session.cost.add("load", load_s)
        speech = Speech(self, session, request, notes, began, load_s)
        self.worker.submit(session)
        if job.bistream:
            threading.Thread(target=self._feed, args=(session, request.text), name="cosy-text", daemon=True).start()
        return speech

    def speak_all(self, request: Request) -> Result:
        """The whole audio of a request: the chunks of `speak`, joined."""
        speech = self.speak(request)
        chunks = [chunk.samples for chunk in speech]
        samples = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
        return Result(samples, self.spec.mel.rate_hz, speech.report)

    def voice(self, reference: Any, transcript: str = "") -> Voice:
        """Features of a reference clip (path, bytes, (rate, array), Clip or Voice), cut to its best part when long."""
        return self._voice(reference, transcript)[0]

    def close(self) -> None:
        """Cancel what runs and end the worker."""
        self.worker.close()

    def _unload(self) -> None:
        self.shelf.unload()
        log.info(
            "idle for %d s: the model is unloaded, and the next request loads it again", self.config.unload_after_s
        )

    def _load_again(self, precision: str, tier: str) -> float:
        """Seconds that it took to load the model, where it had been unloaded; 0 where it had not."""
        if not self.shelf.unloaded and not self.loading:
            return 0.0
        began = self.clock()
        with self._load_lock:
            if self.shelf.unloaded:
                self.loading = True
                try:
                    self.shelf.at(precision, tier)
                finally:
                    self.loading = False
                if self.config.warm_up:
                    self.worker.add_chores(self.shelf.chores(self.config.precision, self.tier))
        log.info("the model was loaded again in %.1f s", self.clock() - began)
        return self.clock() - began

    # Checks, in the order in which a user would want to hear of them

    def job(self, request: Request) -> tuple[Job, tuple[str, ...]]:
        """All that comes before the model: a request's job, and notes for the user."""
        mode = check_request(request)
        self._check_available(request)
        if "instruct" not in self.modes and self.text.has_instruction(mode, request.instruction):
            raise ModeUnavailable(
                f"mode instruct is not available here: this model was not taught instructions; get a full one with {FETCH} v3"
            )
        pieces = mode.speaks_text and not isinstance(request.text, str)
        notes: list[str] = []
        plan = None
        if mode.speaks_text and not pieces:
            plan = self.text.plan(request.text)
            notes += plan.notes
        voice, voice_notes, speech_s = self._voice(
            request.reference, request.transcript, keep_whole="transcript" in mode.asks
        )
        notes += voice_notes
        hears = self.text.hears_reference(mode, voice.transcript, request.instruction)
        if "transcript" in mode.asks and not hears:
            raise InputMissing(MISSING["transcript"], "transcript")
        if hears:
            notes += filter(None, [transcript_note(voice.transcript, speech_s or voice.seconds, pauses=not speech_s)])
        if hears and plan is not None:
            notes += filter(None, [self.text.short_text_note(plan, voice.transcript)])
            notes += filter(None, [self.text.accent_note(plan, voice.transcript)])
        segments = self._source_segments(request, notes) if plan is None and not pieces else []
        if mode.speaks_text:
            prompt = self.text.prompt_ids(mode, voice.transcript, request.instruction)
            if plan is None:
                segments = [self._bistream_prompt(prompt)]
            else:
                for segment in plan.segments:
                    ids = self.text.segment_ids(segment, prompt)
                    segments.append(
                        SegmentJob(segment.text, tuple(prompt), tuple(ids.ids), ids.n_target, segment.pause_s)
                    )
        job = Job(
            segments=tuple(segments),
            voice=voice,
            llm_hears_reference=hears,
            seed=secrets.randbelow(2**31) if request.seed is None else request.seed,
            rate_hz=self.spec.mel.rate_hz,
            speed=request.speed,
            stream=request.stream or pieces,
            strict_min=self.config.strict_min,
            bistream=pieces,
            client=request.client,
        )
        return job, tuple(notes)

    def _check_available(self, request: Request) -> None:
        """What this machine cannot do."""
        for name, chosen in (
            ("precision", request.precision or self.config.precision),
            ("tier", request.tier or self.tier),
        ):
            if chosen in self.unavailable:
                raise ModeUnavailable(f"{name} {chosen} is not available here: {self.unavailable[chosen]}")

    def _voice(self, reference: Any, transcript: str, keep_whole: bool = False) -> tuple[Voice, list[str], float]:
        """(voice, notes, seconds of speech in the clip, 0 where they are unknown). keep_whole: the transcript describes the
        whole clip, so it must not be cut."""
        if isinstance(reference, Voice):
            self.voices.check(reference, "the saved voice")
            return (replace(reference, transcript=transcript) if transcript else reference), [], 0.0
        clip = reference if isinstance(reference, Clip) else read_clip(reference)
        notes = list(clip.notes)
        if keep_whole:
            if clip.seconds > LONGEST_REFERENCE_S:
                raise ReferenceTooLong(
                    f"the reference is {clip.seconds:.1f} s long, at most {LONGEST_REFERENCE_S:.0f} s can be used with a "
                    "transcript, because the two must match: cut it to 3-10 s and write only the words of that part"
                )
            if clip.seconds > self.config.max_reference_s:
                notes.append(f"the reference is {clip.seconds:.0f} s long: 3-10 s usually sound better")
        elif clip.seconds > self.config.max_reference_s:
            clip, more = best_window(clip, max_s=self.config.max_reference_s)
            notes += more
        voice = self.voices.encode(clip, transcript.strip())
        report = describe(clip)
        return voice, notes + clip_notes(report), report.speech_s

    def _source_segments(self, request: Request, notes: list[str]) -> list[SegmentJob]:
        """Voice conversion: the tokens of the source clip take the place of the language model's."""
        clip = request.source if isinstance(request.source, Clip) else read_clip(request.source)
        notes += clip.notes
        return [SegmentJob("", source_tokens=tuple(self.voices.source_tokens(clip).tolist()))]

    def _bistream_prompt(self, prompt: list[int]) -> SegmentJob:
        """Prompt ids; limit_ids counts those of the instruction, which the model hears before any text."""
        prompt = [*self.text.segment_ids("", prompt).ids, *prompt]
        end = self.text.tokenizer.endofprompt_id
        return SegmentJob("", tuple(prompt), limit_ids=prompt.index(end) + 1 if end in prompt else 0)

    def _feed(self, session: Session, pieces: Iterable[str]) -> None:
        """Pump a user's text iterator into its session; the worker never waits for it."""
        try:
            for ids in self.text.pieces(self._checked(session, pieces)):
                session.push_text(ids)
            session.push_text(None)
        except Exception as error:  # the iterator is the caller's code: whatever it raises ends this request
            session.fail(error)
            session.cancel()
        except BaseException as error:  # asyncio's CancelledError, GeneratorExit, SystemExit: the text will not go on
            session.fail(Cancelled(f"the text ended early ({type(error).__name__})"))
            session.cancel()

    def _checked(self, session: Session, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces while somebody listens; text only, and no more of it than a whole text may have."""
        count, words = 0, False
        for piece in pieces:
            if session.finished.is_set() or session.cancelled.is_set():
                return
            if not isinstance(piece, str):
                raise SettingInvalid(f"the text iterator gave a {type(piece).__name__}: give pieces of text")
            count += len(piece)
            if count > self.config.max_text_chars:
                raise TextTooLong(
                    f"more than {self.config.max_text_chars:,} characters came: end the text, and start another request"
                )
            words = words or any(c.isalnum() for c in piece)
            yield piece
        if not words:
            raise TextEmpty("the text iterator ended without a word that can be spoken: give it some text")

    def _report(
        self, session: Session, request: Request, notes: tuple[str, ...], front_s: float, first_s: float
    ) -> Report:
        cost = session.cost
        stages = {"front_end": front_s, **cost.stages_s}
        decode = cost.stages_s.get("decode", 0.0) + cost.stages_s.get("prefill", 0.0)
        return Report(
            audio_s=cost.samples / session.job.rate_hz,
            compute_s=sum(stages.values()),
            first_audio_s=first_s,
            tokens=cost.tokens,
            ms_per_token=1000 * decode / cost.tokens if cost.tokens and decode else 0.0,
            stages_s=stages,
            seed=session.job.seed,
            retries=cost.retries,
            notes=(*notes, *cost.notes),
            model=self.name,
            mode=request.mode,
            precision=session.ran_as[0],
            tier=session.ran_as[1],
            device=self.device,
            provider=self.voices.provider,
            segments=tuple(cost.segments),
            rows=cost.rows,
            queue_s=cost.queue_s,
        )


def check_request(request: Request) -> Mode:
    """Everything about a request that can be known without a model; returns its mode.

    Raises: InputMissing, SettingInvalid: what to give or to change.
    """
    for name in ("mode", "transcript", "instruction", "client"):
        if not isinstance(getattr(request, name), str):
            raise SettingInvalid(f"{name} is of type {type(getattr(request, name)).__name__}: give a text")
    if not isinstance(request.text, str) and (
        isinstance(request.text, (bytes, list, dict)) or not isinstance(request.text, Iterable)
    ):
        raise SettingInvalid(
            f"text is of type {type(request.text).__name__}: give a text, or an iterator of pieces of text"
        )
    if not isinstance(request.stream, bool):
        raise SettingInvalid(f"stream is {request.stream!r}: give True or False")
    for name, limit in LONGEST_CHARS.items():
        if len(getattr(request, name)) > limit:
            raise TextTooLong(
                f"the {name} has {len(getattr(request, name)):,} characters, at most {limit:,} can be used: shorten it"
            )
    mode = MODES.get(request.mode)
    if mode is None:
        raise SettingInvalid(f"unknown mode {request.mode!r}: choose one of {', '.join(MODES)}")
    for name in OPTIONAL_INPUTS:
        given = _given(getattr(request, name)) or (name == "transcript" and isinstance(request.reference, Voice))
        if name in mode.asks and not given and name != "text":  # an empty text has its own, better message
            raise InputMissing(MISSING[name], name)
        if given and name not in mode.asks + mode.accepts and name in ("instruction", "source"):
            raise SettingInvalid(f"mode {mode.id} does not use {name}: leave it empty, or choose another mode")
    if mode.id == "saved_voice" and not isinstance(request.reference, Voice):
        raise InputMissing("choose a saved voice first", "reference")
    if not isinstance(request.speed, (int, float)) or not 0.5 <= request.speed <= 2:  # NaN fails too
        raise SettingInvalid(f"speed {request.speed} is out of range: choose 0.5 to 2")
    if request.speed != 1 and (request.stream or not isinstance(request.text, str)):
        raise SettingInvalid("speed is not available in streaming: set it to 1, or switch streaming off")
    if request.seed is not None and not isinstance(request.seed, int):
        raise SettingInvalid(f"seed {request.seed!r} is not a whole number: choose one from 0 to {2**32 - 1}")
    if request.seed is not None and not 0 <= request.seed < 2**32:
        raise SettingInvalid(f"seed {request.seed} is out of range: choose a whole number from 0 to {2**32 - 1}")
    for name, chosen, known in (("precision", request.precision, PRECISIONS), ("tier", request.tier, TIERS)):
        if chosen is not None and (not isinstance(chosen, str) or chosen not in known):
            raise SettingInvalid(f"unknown {name} {chosen!r}: choose one of {', '.join(known)}")
    return mode


MISSING = {
    "reference": "a reference clip is missing: upload or record 3-10 s of the voice",
    "transcript": "the words spoken in the reference clip are missing: type them, or clone without a transcript",
    "instruction": "the instruction is missing, for example: speak softly",
    "source": "the source clip is missing: the recording whose words are to be kept",
}


def _given(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value is not None


def save(result: Result, path: str | Path) -> Path:
    """Write a result as 16-bit wav (also .flac, .ogg, .mp3 by the name)."""
    from cosy_engine.audio.waveform import write_wav

    return write_wav(path, result.samples, result.rate_hz)


__all__ = ["Cancelled", "CosyError", "Engine", "Result", "Speech", "save"]
