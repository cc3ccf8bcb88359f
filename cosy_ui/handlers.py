"""Events of the Clone tab -> Request -> what the page shows."""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from cosy_engine import MODES, CosyError, Engine, Report, Request
from cosy_engine.audio.clip_report import transcript_note
from cosy_engine.audio.transcribe import Transcriber
from cosy_engine.errors import Cancelled, InputMissing, SettingInvalid
from cosy_ui import cards
from cosy_ui.clips import LONGEST_S, WINDOW, Clips, is_whole, read_window, write_window
from cosy_ui.entrance import owner_of
from cosy_ui.guests import client_of
from cosy_ui.jobs import Job, JobTable
from cosy_ui.messages import error_words, note_words
from cosy_ui.sessions import Sessions, Take
from cosy_ui.words import language, say

log = logging.getLogger(__name__)

TICK_S = 0.5  # how often the status line moves while nothing else happens
LONGEST_SEED = 20  # characters; the largest seed has 10
KEEP_STOPPED_S = 0.3  # of a stopped take; less is nothing to listen to
# What the page sends with Generate, in this order; also what a take remembers and "copy settings" gives back.
FORM = (
    "mode", "reference", "window", "transcript", "text", "instruction", "source", "voice",
    "precision", "tier", "stream", "seed", "lock", "speed",
)  # fmt: skip
SHOWS = ("status", "job", "audio", "result", "history", "seed", "fallback")  # what a running event writes to


class Handlers:
    """Bound to one engine; the page wires these methods to its components."""

    def __init__(self, engine: Engine, jobs: JobTable, sessions: Sessions, *, transcriber: Transcriber | None = None,
                 hls: bool = False):  # fmt: skip
        """shared (of jobs.guests): others than the owner reach the page, so consent is asked. hls: the page has a fallback
        player."""
        self.engine, self.jobs, self.sessions = engine, jobs, sessions
        self.transcriber = transcriber or Transcriber(None)
        self.guests, self.shared, self.hls = jobs.guests, jobs.guests.shared, hls
        self.shows = SHOWS if hls else SHOWS[:-1]
        self.clips = Clips(self.guests.limits.clip_s)

    # The reference clip

    def hear(
        self, reference: str | None, window: str, transcript: str, mode: str, was_refused: bool, words_of: str,
        request: gr.Request,
    ) -> tuple[Any, ...]:  # fmt: skip
        """A clip was loaded or taken away: (waveform, facts, window, transcript's note, the clip, whether it was refused, the
        transcript, whose words it is, what became of the old ones). One that cannot be used is taken away again, and the reason stays.

        words_of: the clip that the transcript belongs to; "" where it was written for the next one. With its clip it goes,
        and can be put back."""
        lang, stay = language(request), gr.skip()
        if was_refused and not reference:
            return stay, stay, stay, stay, stay, False, stay, stay, stay
        stale = bool(words_of) and words_of != reference and bool((transcript or "").strip())
        put_back = cards.words_gone(transcript, lang) if stale else ""
        kept = "" if stale else stay
        if not reference:
            return "", f'<p class="empty">{say("clip_empty", lang)}</p>', "", "", stay, False, kept, "", put_back
        try:
            clip = self.clips.read(reference)
            span, found = read_window(clip, window)
        except CosyError as error:
            return "", cards.note(error_words(error, lang), "bad"), "", "", None, True, kept, "", put_back
        window = write_window(clip, span)
        url = "gradio_api/file=" + reference
        drawn = cards.waveform(clip, span, LONGEST_S, url, lang, found)
        return (
            drawn,
            self._facts(reference, window, lang),
            window,
            self._transcript_notes(reference, window, "" if stale else transcript, mode, lang),
            stay,
            False,
            kept,
            reference,
            put_back,
        )

    def hear_source(self, source: str | None, was_refused: bool, request: gr.Request) -> tuple[Any, ...]:
        """The same for a recording that is to be converted: (note, the recording, whether it was refused)."""
        lang = language(request)
        if not source:
            return gr.skip() if was_refused else "", gr.skip(), False
        try:
            seconds = self.clips.read(source).seconds
        except CosyError as error:
            return cards.note(error_words(error, lang), "bad"), None, True
        return cards.note(say("source_heard", lang, seconds=f"{seconds:.1f}"), "good"), gr.skip(), False

    def part_moved(
        self, reference: str | None, window: str, transcript: str, mode: str, request: gr.Request
    ) -> tuple[Any, Any]:
        """The user chose another part: (facts, transcript's note)."""
        lang = language(request)
        if not reference:  # the clip was taken away, and what that means is said already
            return gr.skip(), gr.skip()
        return self._facts(reference, window, lang), self._transcript_notes(reference, window, transcript, mode, lang)

    def check_transcript(
        self, reference: str | None, window: str, transcript: str, mode: str, request: gr.Request
    ) -> str:
        return self._transcript_notes(reference, window, transcript, mode, language(request))

    def transcribe(
        self, reference: str | None, window: str, transcript: str, mode: str, request: gr.Request
    ) -> tuple[Any, str]:
        """The words of the chosen part, and the note under them."""
        lang = language(request)
        if not reference:
            return gr.skip(), cards.note(say("transcribe_no_clip", lang), "bad")
        try:
            with self.guests.begin(client_of(request)):
                words = self.transcriber.words(self.clips.part(reference, window))
        except CosyError as error:
            return gr.skip(), cards.note(error_words(error, lang), "bad")
        return words, self._transcript_notes(reference, window, words, mode, lang)

    def _facts(self, reference: str, window: str, lang: str) -> str:
        try:
            return cards.clip_facts(self.clips.report(reference, window), lang, self.clips.read(reference).notes)
        except CosyError as error:
            return cards.note(error_words(error, lang), "bad")

    def _transcript_notes(self, reference: str | None, window: str, transcript: str, mode: str, lang: str) -> str:
        if not reference or "transcript" not in MODES[mode].asks:
            return ""
        try:
            clip = self.clips.read(reference)
            report = self.clips.report(reference, window)
        except CosyError:
            return ""  # the card says it
        span, _ = read_window(clip, window)
        shown = []
        if not is_whole(clip, span):
            shown.append(cards.note(say("part_words", lang, start=f"{span[0]:.1f}", end=f"{span[1]:.1f}"), "warn"))
        if warning := transcript_note(transcript or "", report.speech_s or report.seconds):
            shown.append(cards.note(note_words(warning, lang), "warn"))
        return "".join(shown)

    # The text

    def preview(self, text: str, mode: str, request: gr.Request) -> str:
        """How the text will be cut; silent about an empty box."""
        if not (text or "").strip() or not MODES[mode].speaks_text:
            return ""
        lang = language(request)
        try:
            return cards.parts(self.engine.text.plan(text), lang)
        except CosyError as error:
            return cards.note(error_words(error, lang), "warn")

    # Generating

    def generate(self, request: gr.Request, consent: bool, player: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """values: those of FORM. A generator, so that a closed page ends it."""
        form, lang, owner = dict(zip(FORM, values, strict=True)), language(request), owner_of(request)
        if self.shared and consent is not True:
            yield self._refusal(say("consent_missing", lang))
            return
        self.jobs.cancel_owner(owner, replaced=True)
        try:
            asked = self.request(form, owner)
            job = self.jobs.start(self.engine, asked, owner, client_of(request))
        except CosyError as error:
            yield self._refusal(error_words(error, lang))
            return
        streamed = asked.stream and player != "none"
        live = self.hls and asked.stream and not streamed
        try:
            yield self._show(
                status=self._status(job, lang), job=job.id if streamed else "",
                **({"fallback": gr.Audio(visible=True)} if live else {}),
            )  # fmt: skip
            yield from self._follow(job, lang, live)
            if job.replaced:  # its successor has the page; what was heard of this one stays
                if self._worth_keeping(job):
                    self._keep(job, form, asked, owner)
                    yield self._show(history=self.history(owner, lang))
                return
            seed = str(job.speech.seed) if job.speech else gr.skip()
            yield from self._finish(job, form, asked, lang, owner, streamed, live, seed=seed)
        finally:
            if not job.done:
                job.cancel()
            self.jobs.finish(job)

    def redo(self, act: str, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        """Speak one sentence of a take again, with another seed, and put it in its place: a new take."""
        lang, owner = language(request), owner_of(request)
        _, take_id, part, *_ = [*act.split(":"), "", ""]
        take = self.sessions.take_of(owner, take_id)
        if take is None or part not in map(str, range(len(take.segments))):
            yield self._refusal(say("take_gone", lang))
            return
        self.jobs.cancel_owner(owner, replaced=True)
        asked = replace(take.request, text=take.segments[int(part)]["text"], seed=None, stream=False)
        try:
            job = self.jobs.start(self.engine, asked, owner, client_of(request))
        except CosyError as error:
            yield self._refusal(error_words(error, lang))
            return
        try:
            yield self._show(status=self._status(job, lang), job="")
            yield from self._follow(job, lang)
            if job.replaced:
                return
            yield from self._finish(job, take.form, take.request, lang, owner, redone=(take, int(part)))
        finally:
            if not job.done:
                job.cancel()
            self.jobs.finish(job)

    def stop(self, request: gr.Request) -> None:
        """Stop this browser session's work; its running event says so."""
        self.jobs.cancel_owner(owner_of(request))

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        owner = owner_of(request)
        self.jobs.cancel_owner(owner)
        self.sessions.leave(owner)

    def copy(self, act: str, request: gr.Request) -> tuple[Any, ...]:
        """(status, the clip whose words the transcript is, then the values of FORM) of a take."""
        lang, owner = language(request), owner_of(request)
        take = self.sessions.take_of(owner, act.split(":")[1] if ":" in act else "")
        if take is None:
            return (cards.status(say("take_gone", lang), kind="bad"), gr.skip(), *(gr.skip() for _ in FORM))
        form = dict(take.form) | {"seed": str(take.seed), "lock": True}
        gone = [name for name in ("reference", "source") if form[name] and not Path(form[name]).is_file()]
        form |= dict.fromkeys(gone)
        words = say("copied_no_clip" if gone else "copied", lang, number=take.number)
        return (cards.status(words, kind="idle"), form["reference"] or "", *(form[name] for name in FORM))

    def request(self, form: dict[str, Any], owner: str) -> Request:
        """The engine's request for a form; only what the mode uses is passed on.

        Raises: what reading the clip raises; SettingInvalid: mode, seed or part are none. InputMissing and its kin come from the
        engine itself.
        """
        mode = MODES.get(form["mode"])
        if mode is None:
            raise SettingInvalid(f"unknown mode {form['mode']!r}: choose one of {', '.join(MODES)}")
        uses = mode.asks + mode.accepts
        reference: Any = None
        if mode.id == "saved_voice":
            saved = self.sessions.voice_of(owner, form["voice"])
            if saved is None:
                raise InputMissing("choose a saved voice first", "reference")
            reference = saved.voice
        elif form["reference"]:
            if form["window"] and not WINDOW.fullmatch(form["window"]):
                raise SettingInvalid("the part of the clip cannot be read: choose it anew in the waveform")
            reference = self.clips.part(form["reference"], form["window"])
        stream, seed = bool(form["stream"]), whole_number(form["seed"])
        return Request(
            mode=mode.id,
            text=(form["text"] or "") if mode.speaks_text else "",
            reference=reference,
            transcript=(form["transcript"] or "") if "transcript" in uses else "",
            instruction=(form["instruction"] or "") if "instruction" in uses else "",
            source=self.clips.read(form["source"]) if "source" in uses and form["source"] else None,
            seed=seed if form["lock"] else None,
            speed=1.0 if stream else form["speed"] or 1.0,
            stream=stream,
            precision=form["precision"] or None,
            tier=form["tier"] or None,
            client=owner,
        )

    def _follow(self, job: Job, lang: str, live: bool = False) -> Iterator[tuple[Any, ...]]:
        """Status until the job has ended; live: its sound too, for the fallback player."""
        seen = 0
        while not job.done:
            job.wait(seen, TICK_S)
            new, seen = job.chunks[seen:], len(job.chunks)
            if live and new:
                yield self._show(status=self._status(job, lang), fallback=(job.rate_hz, np.concatenate(new)))
            elif not job.done:
                yield self._show(status=self._status(job, lang))
        if live and (rest := job.chunks[seen:]):
            yield self._show(fallback=(job.rate_hz, np.concatenate(rest)))

    def _finish(
        self, job: Job, form: dict, asked: Request, lang: str, owner: str, streamed: bool = False, live: bool = False, seed: Any = None,
        redone: tuple[Take, int] | None = None,
    ) -> Iterator[tuple[Any, ...]]:  # fmt: skip
        """What the page shows at the end, whatever it was."""
        stopped = isinstance(job.error, Cancelled)
        if job.error is not None and not stopped:
            yield self._refusal(error_words(job.error, lang))
            return
        if stopped and (redone or not self._worth_keeping(job)):
            yield self._show(status=cards.status(say("stopped", lang), kind="idle"))
            return
        if redone:
            take = self._spliced(*redone, job.samples(), job.report, owner)
        else:
            take = self._keep(job, form, asked, owner)
        words = (
            say("stopped_kept", lang, seconds=f"{len(take.samples) / take.rate_hz:.1f}")
            if stopped
            else say("done", lang, seconds=f"{time.monotonic() - job.began_s:.1f}")
        )
        with tempfile.TemporaryDirectory() as folder:  # Gradio takes a copy
            file = Path(folder, f"{take.file_stem}.wav")
            file.write_bytes(take.wav())
            yield self._show(
                status=cards.status(words, kind="idle"),
                audio=gr.Audio(
                    value=self._playable(take, file),
                    label=say("result_of", lang, number=take.number),
                    visible=True,
                    autoplay=not (streamed or live),
                ),
                result=cards.result(take, lang, job.id if streamed else ""),
                history=self.history(owner, lang),
                **({"seed": seed} if seed else {}),
            )

    @staticmethod
    def _worth_keeping(job: Job) -> bool:
        return sum(map(len, job.chunks)) >= KEEP_STOPPED_S * job.rate_hz and not (
            job.error is not None and not isinstance(job.error, Cancelled)
        )

    def _keep(self, job: Job, form: dict, asked: Request, owner: str) -> Take:
        """What a job has made so far, as a take of its page."""
        stopped = isinstance(job.error, Cancelled)
        return self.sessions.keep(
            owner, job.samples(), job.rate_hz, form, asked, job.report, job.speech.seed, stopped=stopped
        )

    @staticmethod
    def _playable(take: Take, file: Path) -> Any:
        """What Gradio's player is given: the file; where ffmpeg lacks its ffprobe Gradio would fail on that, so the same
        samples, as int16."""
        if shutil.which("ffmpeg") and not shutil.which("ffprobe"):
            return take.rate_hz, take.samples
        return str(file)

    def _spliced(self, take: Take, part: int, new: np.ndarray, report: Report | None, owner: str) -> Take:
        """A take with one sentence replaced; what follows moves."""
        old = take.segments[part]
        first, last = (round(old[key] * take.rate_hz) for key in ("start_s", "end_s"))
        samples = np.concatenate([take.samples[:first], new, take.samples[last:]])
        shift = len(new) / take.rate_hz - (old["end_s"] - old["start_s"])
        segments = []
        for i, segment in enumerate(take.segments):
            moved = dict(segment)
            moved["start_s"] += shift if i > part else 0
            moved["end_s"] += shift if i >= part else 0
            segments.append(moved)
        return self.sessions.keep(
            owner,
            samples,
            take.rate_hz,
            take.form,
            take.request,
            report,
            take.seed,
            tuple(segments),
            part + 1,
            take.stopped,
        )

    def history(self, owner: str, lang: str) -> str:
        return cards.history(self.sessions.takes(owner), self.sessions.zip_id(owner), lang)

    def _status(self, job: Job, lang: str) -> str:
        """Place in the queue, or how far it is."""
        elapsed = time.monotonic() - job.began_s
        place = job.position()
        if place:
            words = say("waiting", lang, place=place)
            if (wait := job.expected_wait_s()) is not None:
                words += " · " + say("waiting_about", lang, seconds=f"{max(1, wait):.0f}")
            return cards.status(words)
        if not job.chunks:
            begun = "loading_again" if self.engine.loading else "starting"
            words = say(begun if job.speech is None else "speaking", lang)
            done, total = self.engine.warm_up_progress()
            if done < total:
                words += " · " + say("warming", lang, done=done, total=total)
            return cards.status(words) + cards.notes(job.notes, lang)
        seconds = sum(map(len, job.chunks)) / job.rate_hz
        words, share = say("speaking", lang), None
        if job.segments > 1:
            words += " · " + say("segment_of", lang, part=min(job.segment, job.segments), parts=job.segments)
            share = max(0, job.segment - 1) / job.segments
        words += " · " + say("audio_after", lang, audio=f"{seconds:.1f}", elapsed=f"{elapsed:.1f}")
        return cards.status(words, share) + cards.notes(job.notes, lang)

    def _refusal(self, words: str) -> tuple[Any, ...]:
        """Why there is no take: under the buttons, where one looks, and until the next try."""
        return self._show(status=cards.status(words, kind="bad"), job="")

    def _show(self, **values: Any) -> tuple[Any, ...]:
        return tuple(values.get(name, gr.skip()) for name in self.shows)


def drawn_seed() -> str:
    """For the dice."""
    return str(secrets.randbelow(2**31))


def whole_number(text: str | None) -> int | None:
    """A seed in the digits of any script; None when there is none.

    Raises: SettingInvalid: it is no whole number, or has more digits than any seed.
    """
    text = (text or "").strip()
    if len(text) > LONGEST_SEED:
        raise SettingInvalid(f"the seed has {len(text):,} characters: choose a whole number from 0 to {2**32 - 1}")
    if text and not text.isdecimal():
        raise SettingInvalid(f"seed {text!r} is not a whole number: choose one from 0 to {2**32 - 1}")
    return int(text) if text else None
