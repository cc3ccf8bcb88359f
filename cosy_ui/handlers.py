"""Events of the page -> Request -> what the page shows. Errors are worded by the engine and shown as they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from cosy_engine import CosyError, Engine, Report, Request
from cosy_engine.errors import Cancelled
from cosy_ui.jobs import Job, JobTable

log = logging.getLogger(__name__)

TICK_S = 0.5  # how often the status line moves while nothing else happens


class Handlers:
    """Bound to one engine; the page wires these methods to its components."""

    def __init__(self, engine: Engine, jobs: JobTable):
        self.engine, self.jobs = engine, jobs

    def generate(
        self,
        mode: str,
        reference: str | None,
        transcript: str,
        text: str,
        instruction: str,
        source: str | None,
        precision: str,
        stream: bool,
        seed: str,
        speed: float,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """Yields (status, job id for the player, audio, numbers); a generator, so that Stop can end it."""
        asked = Request(
            mode=mode,
            text=text or "",
            reference=reference,
            transcript=transcript if mode == "zero_shot" else "",
            instruction=instruction if mode == "instruct" else "",
            source=source if mode == "voice_conversion" else None,
            seed=whole_number(seed),
            speed=speed or 1.0,
            stream=bool(stream),
            precision=precision,
            client=request.session_hash or "",
        )
        began = time.monotonic()
        try:
            job = self.jobs.start(self.engine, asked, request.session_hash or "")
        except CosyError as error:
            raise gr.Error(str(error), title="Please check", duration=12, print_exception=False) from error
        try:
            yield status(job, began), job.id if stream else "", None, ""
            seen = 0
            while not job.done:
                job.wait(seen, TICK_S)
                seen = len(job.chunks)
                yield status(job, began), gr.skip(), gr.skip(), gr.skip()
            if isinstance(job.error, Cancelled):
                yield "Stopped.", gr.skip(), gr.skip(), gr.skip()
                return
            if job.error is not None:
                raise gr.Error(
                    message(job.error), title="Not finished", duration=12, print_exception=False
                ) from job.error
            yield "", gr.skip(), (job.rate_hz, job.samples()), numbers(job.report)
        finally:
            if not job.done:
                job.cancel()
            self.jobs.finish(job)

    def stop(self, request: gr.Request) -> None:
        """Stop this browser session's work; its running event says so."""
        self.jobs.cancel_owner(request.session_hash or "")

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.jobs.cancel_owner(request.session_hash or "")


def message(error: Exception) -> str:
    """What the page may say of an error; internals stay in the log."""
    return (
        str(error) if isinstance(error, CosyError) else "something failed inside the program: the cause is in its log"
    )


def status(job: Job, began: float) -> str:
    """One line: place in the queue, or how far it is."""
    place = job.speech.position()
    elapsed = time.monotonic() - began
    if place:
        return f"Waiting: place {place} in the queue · {elapsed:.0f} s"
    seconds = sum(map(len, job.chunks)) / job.rate_hz
    part = (
        f" · sentence group {min(job.segment + 1, job.speech.segments)} of {job.speech.segments}"
        if job.speech.segments > 1
        else ""
    )
    notes = "".join(f"\n\n*{note}*" for note in job.speech.notes)
    return f"Speaking{part} · {seconds:.1f} s of audio after {elapsed:.1f} s{notes}"


def numbers(report: Report) -> str:
    """The strip under the player. RTF is compute time / audio time, everywhere."""
    parts = [
        f"**{report.audio_s:.2f} s** of audio",
        f"first audio **{report.first_audio_s * 1000:.0f} ms** (server)",
        f"RTF **{report.rtf:.3f}** (compute / audio, lower is better)",
    ]
    if report.ms_per_token:
        parts.append(f"{report.ms_per_token:.1f} ms per token × {report.tokens}")
    parts += [
        f"seed {report.seed}",
        f"{report.tier} · {report.precision} · {report.device}",
        f"front end on {report.provider.removesuffix('ExecutionProvider')}",
    ]
    if report.retries:
        parts.append(f"retries {report.retries}")
    stages = ", ".join(f"{name.replace('_', ' ')} {seconds:.2f} s" for name, seconds in report.stages_s.items())
    notes = "".join(f"\n- {note}" for note in report.notes)
    return " · ".join(parts) + f"\n\n<small>{stages}</small>" + (f"\n{notes}" if notes else "")


def whole_number(text: str | None) -> int | str | None:
    """A typed seed; anything that is no whole number is left for the engine to refuse."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and text.isascii() else text or None


def model_line(engine: Engine) -> str:
    """What is loaded and on what it runs, for the top of the page."""
    warn = f"\n\n> {engine.card['note']}" if engine.card.get("note") else ""
    return (
        f"**{engine.name}** on {engine.device} · reference front end on "
        f"{engine.voices.provider.removesuffix('ExecutionProvider')} · numbers read by {engine.text.backend}{warn}"
    )
