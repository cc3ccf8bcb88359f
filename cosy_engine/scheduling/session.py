"""One request from token ids to audio, cut into steps that the worker interleaves with those of other requests.

A session owns all that its request remembers; when its generator ends or is closed, nothing of it is left. It draws
from tables made from its own seed, so neighbours, order and batch size cannot change a sample. What was computed can so
be computed again: when memory is short a session gives up all that it holds and goes on later where it was.
"""

from __future__ import annotations

import enum
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosy_engine.errors import GenerationFailed, NotFinite
from cosy_engine.scheduling.finish import Finish
from cosy_engine.scheduling.guard import EMPTY, LOOP, NOISE, SILENT, TOO_LONG, TOO_SHORT, Guard, SilenceLimiter
from cosy_engine.scheduling.hop import HopPolicy
from cosy_engine.scheduling.level import changed_by, level_change_db
from cosy_engine.scheduling.policy import SECONDS_PER_TEXT_ID, Piece
from cosy_engine.stages import DecodePool, FlowPrompt, GroupingFlow, Stages
from cosy_engine.types import AudioChunk, Voice, cpu_float

TOKEN_RATE_HZ = 25
TEXT_PIECES = 64  # of a text in pieces, how many may wait to be spoken

REMEDY = {
    EMPTY: "the model produced no speech",
    LOOP: "the model repeated itself",
    TOO_LONG: "the model did not come to an end within the length that the text allows",
    TOO_SHORT: "the audio is too short for the text",
    SILENT: "the audio is silent",
    NOISE: "the audio is noise",
}
AFTER = {LOOP: "the end was cut, listen before you use it", TOO_LONG: "the end was cut, listen before you use it"}
LISTEN = "listen before you use it"  # said of every other verdict that stands


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a session yields to sleep until its row of a pool has been decoded further; it is sent the row's Progress."""

    pool: DecodePool
    row: int


class Pause(enum.Enum):
    """Where a session may be made to wait for a slot again. BORDER: between two segments, others may go first. SHORT: memory
    ran out, and what the session held is given up."""

    BORDER = enum.auto()
    SHORT = enum.auto()


class GiveWay(Exception):
    """Thrown into a session whose memory others need; it answers with Pause.SHORT."""


class DecodeFailed(Exception):
    """Thrown into every session of a decode batch that failed; error: what failed it."""

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


# A session's work. It yields Tokens, a Piece that it wants to do now, a Pause, or None where it must look again in the next
# turn; it returns what its caller needs.
Steps = Generator[Tokens | Piece | Pause | None, Any, Any]


@dataclass(frozen=True)
class SegmentJob:
    """One unit of text (or, in voice conversion, of source tokens). prompt_ids ++ text_ids go to the LLM; the length
    limits count `limit_ids` ids. pause_s of silence follow the segment, except after the last. fixed_tokens: speak exactly
    so many tokens, for measuring speed."""

    text: str
    prompt_ids: tuple[int, ...] = ()
    text_ids: tuple[int, ...] = ()
    limit_ids: int = 0
    pause_s: float = 0.0
    source_tokens: tuple[int, ...] | None = None
    fixed_tokens: int | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """All a session needs; made by the engine after every check has passed.

    seed: all draws follow from it. bistream: the ids of the text come through Session.push_text; the one segment then
    holds the prompt, and its limit_ids says how many of prompt_ids are the instruction (up to <|endofprompt|>).
    """

    segments: tuple[SegmentJob, ...]
    voice: Voice
    llm_hears_reference: bool
    seed: int
    rate_hz: int
    speed: float = 1.0
    stream: bool = False
    strict_min: bool = True
    bistream: bool = False
    client: str = ""


@dataclass(slots=True)
class Cost:
    """What a session has used so far, for the report. stages_s: seconds per stage."""

    stages_s: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    retries: int = 0
    notes: list[str] = field(default_factory=list)
    segments: list[dict] = field(default_factory=list)
    samples: int = 0
    rows: int = 0  # most rows that were decoded together with this request's own
    queue_s: float = 0.0  # until its first step

    def add(self, stage: str, seconds: float) -> None:
        self.stages_s[stage] = self.stages_s.get(stage, 0.0) + seconds


class Session:
    """Consumer's side: `audio()`, `cancel()`. Worker's side: `steps()`, `emit`, `fail`, `end`."""

    def __init__(
        self,
        job: Job,
        stages: Stages,
        clock: Callable[[], float],
        guard: Guard | None = None,
        hop: HopPolicy | None = None,
        full_precision: Callable[[], Stages] | None = None,
        settle: Callable[[], None] = lambda: None,
    ):
        """full_precision: gives the stages in fp32 when half precision fails; None where that is what runs already.
        settle: waits for the device after a prefill, so that its time can be told from decoding; for measuring only."""
        self.job, self.stages, self.clock, self.settle = job, stages, clock, settle
        self.ran_as = stages.precision, stages.tier
        self.spoken: list[list[int]] = []  # ids of each finished segment
        self.guard, self.hop = guard or Guard(), hop or stages.hop
        self.full_precision = full_precision
        self.cost = Cost()
        self.cancelled = threading.Event()
        self.started = threading.Event()
        self.finished = threading.Event()
        self.wake: Callable[[], None] = lambda: None  # set by the worker: tells it that waiting() may have changed
        self.asked_s = clock()
        self.dry_s: float | None = None  # when the listener of a stream has heard all; None before the first sound
        self.lacking = 0  # tokens that the next chunk of a stream still needs
        self._hungry = False
        self._louder_db = level_change_db(job.voice.mel)
        self._prompt: FlowPrompt | None = None
        self._after_prompt: Any = None  # flow state that has seen the prompt; forked by every segment
        self._out: queue.SimpleQueue[AudioChunk | Exception | None] = queue.SimpleQueue()
        self._text: queue.Queue[list[int] | None] = queue.Queue(TEXT_PIECES)

    # Consumer's side

    def audio(self) -> Iterator[AudioChunk]:
        """Chunks in order; the request's own error is raised here. Closing the iterator cancels the request."""
        try:
            while (item := self._out.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop at the next step; what is held on the device is freed by the worker."""
        self.cancelled.set()
        self.wake()

    def push_text(self, ids: list[int] | None) -> None:
        """More text of a bistream job; None ends it. Waits while much is still unspoken, unless nobody listens any more."""
        while not (self.finished.is_set() or self.cancelled.is_set()):
            try:
                self._text.put(ids, timeout=1.0)
            except queue.Full:
                continue
            self.wake()
            return

    # Worker's side

    def emit(self, samples: np.ndarray, segment: int) -> None:
        if len(samples):
            self.cost.samples += len(samples)
            if self.job.stream:
                now = self.clock()
                self.dry_s = max(now, self.dry_s or now) + len(samples) / self.job.rate_hz
            self._out.put(AudioChunk(samples, self.job.rate_hz, segment, len(self.job.segments)))

    def fail(self, error: Exception) -> None:
        self.finished.set()
        self._out.put(error)

    def end(self) -> None:
        self.finished.set()
        self._out.put(None)

    def let_go(self) -> None:
        """Who keeps a finished request, for its report or its sound, keeps no networks alive. Called when no step will follow."""
        self.stages = self.full_precision = None

    def waiting(self) -> bool:
        """Whether a step would only wait for text."""
        return self.job.bistream and self._hungry and self._text.empty()

    def remaining_s(self) -> float:
        """Seconds of audio still to be made, as far as one can tell from the text."""
        total = 0.0
        for segment in self.job.segments[len(self.cost.segments) :]:
            if segment.fixed_tokens or segment.source_tokens is not None:
                total += (segment.fixed_tokens or len(segment.source_tokens)) / TOKEN_RATE_HZ
            else:
                total += segment.limit_ids * SECONDS_PER_TEXT_ID
        return total

    @torch.inference_mode()
    def steps(self) -> Steps:
        """The work itself; yields wherever another request may take its turn."""
        self.started.set()
        self.cost.queue_s = self.clock() - self.asked_s
        self._prompt = self._flow_prompt()
        if self._louder_db:
            self.cost.notes.append(
                f"the reference is {'quiet' if self._louder_db > 0 else 'loud'}: its level was changed by {self._louder_db:+.0f} dB"
            )
        try:
            if self.job.bistream:
                yield from self._bistream()
                return
            for index, segment in enumerate(self.job.segments):
                finish = yield from self._segment(index, segment)
                if index + 1 < len(self.job.segments):
                    self.emit(finish.pause(), index)
                    yield Pause.BORDER
        finally:
            self._prompt = self._after_prompt = None

    def _flow_prompt(self) -> FlowPrompt:
        """What the flow hears of the voice. In a stream it ends on a block border, so that the first chunk waits for one block
        of new tokens and not for the rest of a block that the prompt began: up to 24 of its first tokens are left out."""
        voice, device = self.job.voice, self.stages.lm.device
        block = self.stages.flow.spec.block_tokens
        skip = len(voice.tokens) % block if self.job.stream and len(voice.tokens) >= 2 * block else 0
        mel = changed_by(voice.mel[skip * len(voice.mel) // max(1, len(voice.tokens)) :], self._louder_db)
        return FlowPrompt(voice.tokens[skip:].to(device), mel.to(device), voice.embedding.to(device))

    def flow_state(self) -> Any:
        """A stream of the flow that stands after the prompt, which is computed once for all segments."""
        flow = self.stages.flow
        if len(self.job.segments) == 1:
            return flow.start(self._prompt)
        if self._after_prompt is None:
            self._after_prompt = flow.start(self._prompt)
        return self._after_prompt.fork()

    def _piece(
        self,
        work: Callable[[], Any],
        seconds: float,
        render: _Renderer,
        row_held: bool = False,
        order: Callable[[], Any] | None = None,
    ) -> Steps:
        """Do device work for so many seconds of audio in its turn, again when memory was short; returns its result. row_held:
        GiveWay is the caller's, who has a row to give back first. order: what the flow has to solve for it; None for a prefill."""
        while True:
            try:
                wanted = order and order()
                if self.job.stream:
                    heard = self.dry_s is not None
                    due_s = self.dry_s if heard else self.asked_s
                    yield Piece(due_s, heard, not heard and order is not None, order is None, wanted)
                else:
                    yield Piece(self.clock() + seconds, prefill=order is None, order=wanted)
                return work()
            except torch.OutOfMemoryError:
                self._give_up(render)
            except GiveWay:
                self._give_up(render)
                if row_held:
                    raise
            yield from self._short(row_held)

    def _short(self, row_held: bool = False) -> Steps:
        while True:
            try:
                yield Pause.SHORT
                return
            except GiveWay:
                if row_held:
                    raise

    def _rendered(self, render: _Renderer, row_held: bool = False) -> Steps:
        """Give out what can be rendered of a stream."""
        while render.due():
            yield from self._piece(render.give, len(render.tokens) / TOKEN_RATE_HZ, render, row_held, render.order)

    def _rest(self, render: _Renderer) -> Steps:
        """Render what is left of a segment."""
        seconds = len(render.tokens) / TOKEN_RATE_HZ
        yield from self._piece(render.render_rest, seconds, render, order=render.order_of_rest)

    def _give_up(self, render: _Renderer) -> None:
        """Forget what can be computed again."""
        render.forget()
        self._after_prompt = None

    def _segment(self, index: int, segment: SegmentJob) -> Steps:
        """Returns the segment's Finish, which knows how much of the pause is still to be made."""
        start = self.cost.samples
        if segment.source_tokens is not None:
            render = self._renderer(index, 0)
            for at in range(0, len(segment.source_tokens), 25):
                render.take(list(segment.source_tokens[at : at + 25]))
                yield from self._rendered(render)
            yield from self._rest(render)
            render.release()
            tokens = len(segment.source_tokens)
        else:
            tokens, render = yield from self._spoken(index, segment)
        rate = self.job.rate_hz
        self.cost.tokens += tokens
        self.cost.segments.append(
            {"text": segment.text, "start_s": start / rate, "end_s": self.cost.samples / rate, "tokens": tokens}
        )
        return render.out

    def _spoken(self, index: int, segment: SegmentJob) -> Steps:
        """Decode and render; one retry with another draw as long as nothing of the segment has been heard."""
        for attempt in (0, 1):
            try:
                render = self._renderer(index, attempt)
                tokens, verdict = yield from self._decode(index, segment, attempt, render)
                final = attempt == 1 or render.heard  # what was heard cannot be taken back
                if tokens and (verdict is None or final):
                    if verdict == LOOP:
                        render.drop(self.guard.loop_tokens)
                    yield from self._rendered(render)
                    final = final or render.heard
                    yield from self._rest(render)
                    if not segment.fixed_tokens:
                        verdict = self._judged(verdict, render)
            except NotFinite:
                if self.full_precision is None or render.heard:
                    raise
                self._to_full_precision(index)
                return (yield from self._spoken(index, segment))
            if verdict is not None and not final:
                self.cost.retries += 1
                self.cost.notes.append(f"segment {index + 1}: {REMEDY[verdict]}; spoken again with another draw")
                continue
            if verdict in (EMPTY, SILENT) and not render.heard:
                raise GenerationFailed(
                    f"segment {index + 1} ({segment.text[:40]!r}): {REMEDY[verdict]}, twice. Change the text or the seed."
                )
            if verdict is not None:
                self.cost.notes.append(f"segment {index + 1}: {REMEDY[verdict]}; {AFTER.get(verdict, LISTEN)}")
            render.release()
            self.spoken.append(tokens)
            return len(tokens), render
        raise AssertionError("unreachable")

    def _judged(self, verdict: str | None, render: _Renderer) -> str | None:
        """The verdict on a rendered attempt: that on its tokens, but that on its sound where they are well or nothing is heard."""
        sound = self.guard.sound(render.out.heard, self.job.rate_hz)
        return sound if verdict is None or sound == SILENT else verdict

    def _to_full_precision(self, index: int) -> None:
        """The rest of the request runs in fp32; once, for fp32 itself has nowhere to go."""
        self.cost.retries += 1
        self.cost.notes.append(
            f"segment {index + 1}: {self.stages.precision} gave values that are no numbers; spoken in fp32 from here"
        )
        self.stages, self.full_precision = self.full_precision(), None
        self.ran_as = self.stages.precision, self.stages.tier
        self._prompt, self._after_prompt = self._flow_prompt(), None

    def _decode(self, index: int, segment: SegmentJob, attempt: int, render: _Renderer) -> Steps:
        """Tokens of one attempt and what the guard says of them."""
        spec, job, stages = self.stages.lm.spec, self.job, self.stages
        limit = segment.fixed_tokens or int(spec.max_ratio * segment.limit_ids)
        plan = stages.plan(
            text_ids=[*segment.prompt_ids, *segment.text_ids],
            speech_ids=job.voice.tokens if job.llm_hears_reference else job.voice.tokens[:0],
            uniforms=np.random.default_rng(_seed(job.seed, index, attempt)).random((limit, 2), np.float32),
            min_tokens=segment.fixed_tokens or int(spec.min_ratio * segment.limit_ids),
            max_tokens=limit,
            stops_early_forbidden=job.strict_min,
        )
        seen, lone = 0, not stages.pool.fits(plan)
        while True:
            pool, row = yield from self._row(plan, segment, render, lone)
            try:
                began = self.clock()
                while True:
                    self.lacking = render.lacking()
                    progress = yield Tokens(pool, row)
                    self.cost.add("decode", self.clock() - began)
                    self.cost.rows = max(self.cost.rows, pool.active)
                    if not progress.finite:
                        raise NotFinite("the language model gave values that are no numbers: try precision fp32")
                    tokens, fault = progress.tokens, None
                    if not segment.fixed_tokens:
                        tokens, fault = self.guard.first_fault(tokens, seen, segment.limit_ids)
                    render.take(tokens[seen:])
                    seen = max(seen, len(tokens))  # a row that is decoded again has to catch up
                    if fault is not None or (progress.done and segment.fixed_tokens):
                        return tokens, fault
                    if progress.done:
                        ended = progress.stop_id >= 0
                        return tokens, self.guard.verdict(tokens, ended, segment.limit_ids, spec.silent_ids)
                    yield from self._rendered(render, row_held=True)
                    began = self.clock()
            except (torch.OutOfMemoryError, GiveWay):
                self._give_up(render)
            except DecodeFailed as failed:  # nobody knows by whose row: each goes on alone, and the guilty fails again
                if lone:
                    raise failed.error from failed
                lone = True
                continue
            finally:
                pool.release(row)
            yield from self._short()

    def _row(self, plan: Any, segment: SegmentJob, render: _Renderer, lone: bool) -> Steps:
        """Prefill a row for a plan, in a pool of its own if `lone`; returns its pool and its number."""
        stages = self.stages

        def admit() -> tuple[DecodePool, int | None]:
            began = self.clock()
            pool = stages.lone_pool(plan) if lone else stages.pool
            row = pool.admit(plan)
            if row is not None:
                self.settle()
                self.cost.add("prefill", self.clock() - began)
            return pool, row

        seconds = (segment.fixed_tokens or 0) / TOKEN_RATE_HZ or segment.limit_ids * SECONDS_PER_TEXT_ID
        while True:
            pool, row = yield from self._piece(admit, seconds, render)
            if row is not None:
                return pool, row
            yield None

    def _bistream(self) -> Steps:
        """Text in pieces: one segment whose ids come from `push_text`."""
        lm, job = self.stages.lm, self.job
        segment = job.segments[0]
        state = lm.start(1, 256, 128)
        draws = np.random.default_rng(_seed(job.seed, 0, 0))

        def uniforms(count: int) -> Tensor:
            return torch.from_numpy(draws.random((1, count, 2), np.float32)).to(lm.device)

        state.uniforms.copy_(uniforms(128))
        prompt = list(segment.prompt_ids)
        split = segment.limit_ids  # how many of prompt_ids are the instruction, up to and including <|endofprompt|>
        speech = job.voice.tokens if job.llm_hears_reference else job.voice.tokens[:0]
        driver = self.stages.bistream(
            lm,
            state,
            0,
            prompt[:split],
            prompt[split:],
            speech,
            more_uniforms=uniforms,
            read_every=self.stages.read_every,
        )
        render = self._renderer(0, 0)
        heard: list[int] = []
        said: list[int] = []  # ids of the text so far
        fault, ended = None, False
        while not ended and not fault:
            self._hungry = True
            while self._text.empty():
                yield
            self._hungry = False
            ids = self._text.get()
            ended = ids is None
            said += ids or ()
            pieces = driver.finish(max(25, int(lm.spec.max_ratio * len(said)))) if ended else driver.push(ids)
            for new in self._timed("decode", pieces):
                heard += new
                render.take(new)
                if self.guard.looping(heard):
                    fault = LOOP
                elif self.guard.endless(len(heard), len(said)):
                    fault = TOO_LONG
                if fault:
                    break
                yield from self._rendered(render)
                yield
        verdict = fault or self.guard.verdict(heard, True, len(said), lm.spec.silent_ids)
        if verdict == LOOP:
            render.drop(self.guard.loop_tokens)
        if heard:
            yield from self._rest(render)
            verdict = self._judged(verdict, render)
        tokens = len(heard)
        if (
            verdict and not render.heard and not fault
        ):  # all of the text is there now, so it can be spoken again as any text
            self.cost.retries += 1
            self.cost.notes.append(f"segment 1: {REMEDY[verdict]}; spoken again with another draw")
            tokens, render = yield from self._spoken(0, replace(segment, text_ids=tuple(said), limit_ids=len(said)))
        else:
            if verdict in (EMPTY, SILENT) and not render.heard:
                raise GenerationFailed(f"{REMEDY[verdict]}: change the text or the seed")
            if verdict:
                self.cost.notes.append(f"segment 1: {REMEDY[verdict]}; {AFTER.get(verdict, LISTEN)}")
            render.release()
        self.cost.tokens += tokens
        self.cost.segments.append(
            {"text": "", "start_s": 0.0, "end_s": self.cost.samples / job.rate_hz, "tokens": tokens}
        )

    def _timed(self, stage: str, pieces: Iterator) -> Iterator:
        while True:
            began = self.clock()
            item = next(pieces, None)
            self.cost.add(stage, self.clock() - began)
            if item is None:
                return
            yield item

    def _renderer(self, index: int, attempt: int) -> _Renderer:
        return (_Stream if self.job.stream else _Whole)(self, index, _seed(self.job.seed, index, attempt))


def _seed(*parts: int) -> int:
    """One number from (seed, segment, attempt); neighbouring seeds give unrelated draws."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint32)[0])


class _Renderer:
    """Tokens of one attempt at a segment to its finished audio. heard: whether any of it has been given out.

    `take` tokens, and `give` a chunk while one is `due`; `render_rest` once they are complete, which fills out.heard for the
    guard; `release` gives the rest out. When memory runs out in `give` or `render_rest`, or at any time before, `forget` frees
    what is held on the device, and the call can be made again.
    """

    def __init__(self, session: Session, index: int, seed: int):
        self.session, self.index, self.seed = session, index, seed
        spec, segment = session.stages.lm.spec, session.job.segments[index]
        self.limiter = SilenceLimiter(frozenset(spec.silent_ids), spec.max_silent_run)
        self.tokens: list[int] = []  # not rendered yet
        own_timing = segment.source_tokens is not None or segment.fixed_tokens is not None
        pause_s = segment.pause_s if index + 1 < len(session.job.segments) else 0.0
        self.out = Finish(session.job.rate_hz, index == 0, pause_s, trim=not own_timing)
        self.rest = np.zeros(0, np.float32)
        self.heard = False

    def _on_device(self, tokens: list[int]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.int64, device=self.session.stages.lm.device)

    def take(self, tokens: list[int]) -> None:
        self.tokens += self.limiter.keep(tokens)

    def due(self) -> bool:
        """Whether there is a chunk to give."""
        return False

    def lacking(self) -> int:
        """How many more tokens make a chunk of a stream due."""
        return 0

    def order(self) -> Any:
        """What the flow has to solve for `give`, where it can do so for several at once; None where it cannot, or needs not."""
        return None

    def order_of_rest(self) -> Any:
        """The same for `render_rest`."""
        return None

    def forget(self) -> None:
        """Nothing is held between two calls."""

    def release(self) -> None:
        self.session.emit(self.rest, self.index)


class _Whole(_Renderer):
    """Renders a segment in one piece when its tokens are complete."""

    asked = None

    def drop(self, count: int) -> None:
        """Forget the last `count` tokens, but not all."""
        del self.tokens[max(1, len(self.tokens) - count) :]

    def order_of_rest(self) -> Any:
        self.asked, flow = None, self.session.stages.flow
        if isinstance(flow, GroupingFlow):
            self.asked = flow.order(self._on_device(self.tokens), self.session._prompt)
        return self.asked

    def forget(self) -> None:
        self.asked = None

    def render_rest(self) -> None:
        session, stages = self.session, self.session.stages
        began = session.clock()
        if self.asked is not None and self.asked.mel is not None:
            mel = self.asked.mel
        else:
            mel = stages.flow.whole([self._on_device(self.tokens)], [session._prompt])[0]
        self.asked = None
        if session.job.speed != 1.0:
            mel = stages.stretch(mel, session.job.speed)
        mel = _finite(mel)
        middle = session.clock()
        samples = cpu_float(_finite(stages.vocoder.whole(mel, seed=self.seed)))
        session.cost.add("flow", middle - began)
        session.cost.add("vocoder", session.clock() - middle)
        self.rest = np.concatenate([self.out.take(samples), self.out.end()])


class _Stream(_Renderer):
    """Renders block by block while tokens arrive."""

    chunk = 0
    flow_state = None
    vocoder_state = None

    def __init__(self, session: Session, index: int, seed: int):
        super().__init__(session, index, seed)
        self.block = session.stages.flow.spec.block_tokens
        self.fed: list[int] = []  # tokens that the states have seen

    def due(self) -> bool:
        return self.flow_state is None or len(self.tokens) >= self._needed()

    def lacking(self) -> int:
        needed = self.block if self.flow_state is None else self._needed()
        return max(0, needed - len(self.tokens))

    def _needed(self) -> int:
        """Tokens of the next chunk: no more, however many are there, or the load would move the borders of chunks."""
        needed = self.session.stages.flow.tokens_to_next(self.flow_state)
        return needed + (self.session.hop.blocks(self.chunk) - 1) * self.block

    def order(self) -> Any:
        return self._ordered(self._needed(), final=False) if self.flow_state is not None else None

    def order_of_rest(self) -> Any:
        return self._ordered(len(self.tokens), final=True) if self.flow_state is not None else None

    def _ordered(self, count: int, final: bool) -> Any:
        flow = self.session.stages.flow
        if not isinstance(flow, GroupingFlow):
            return None
        return flow.next_order(self.flow_state, self._on_device(self.tokens[:count]), final=final)

    def give(self) -> None:
        """What is heard makes the next hop longer; silence that is held back does not."""
        if self.flow_state is None:
            return self._begin()
        samples = self._render(self._needed(), final=False)
        if len(samples):
            self.heard = True
            self.chunk += 1
            self.session.emit(samples, self.index)

    def drop(self, count: int) -> None:
        """Forget the last `count` tokens as far as they have not been rendered."""
        del self.tokens[max(0, len(self.tokens) - count) :]

    def render_rest(self) -> None:
        if self.flow_state is None:
            self._begin()
        self.rest = np.concatenate([self._render(len(self.tokens), final=True), self.out.end()])
        self.forget()

    def forget(self) -> None:
        self.flow_state = self.vocoder_state = None

    def _begin(self) -> None:
        """States that have seen what was fed before; block by block, which takes the least memory."""
        session, began = self.session, self.session.clock()
        flow_state = session.flow_state()  # the prompt's own pass
        vocoder_state = session.stages.vocoder.start(seed=self.seed)
        for at in range(0, len(self.fed), self.block):
            mel = session.stages.flow.advance(flow_state, self._on_device(self.fed[at : at + self.block]))
            session.stages.vocoder.advance(vocoder_state, mel)
        self.flow_state, self.vocoder_state = flow_state, vocoder_state
        session.cost.add("flow", session.clock() - began)

    def _render(self, count: int, final: bool) -> np.ndarray:
        session, stages = self.session, self.session.stages
        began, tokens = session.clock(), self.tokens[:count]
        mel = _finite(stages.flow.advance(self.flow_state, self._on_device(tokens), final=final))
        middle = session.clock()
        samples = cpu_float(_finite(stages.vocoder.advance(self.vocoder_state, mel, final=final)))
        self.fed += tokens
        del self.tokens[:count]
        session.cost.add("flow", middle - began)
        session.cost.add("vocoder", session.clock() - middle)
        return self.out.take(samples)


def _finite(x: Tensor) -> Tensor:
    """One reduction per chunk, on values that go to the host anyway."""
    if not bool(torch.isfinite(x).all()):
        raise NotFinite("the sound model gave values that are no numbers: try precision fp32")
    return x
