"""Named endpoints for programs: /clone, /clone_batch, /voices, /compare, /doctor. Plain and stateless; they share the engine's
queue with the page."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from cosy_engine import CosyError, Engine, Request
from cosy_engine.__main__ import report_line
from cosy_engine.compare import Comparison, EngineSubject, Variant, as_data
from cosy_engine.compare.command import machine_facts, versions
from cosy_engine.compare.outcome import ALL_VARIANTS
from cosy_engine.errors import InputMissing, SettingInvalid, TextTooLong
from cosy_engine.health.doctor import as_record, diagnose
from cosy_engine.types import to_int16
from cosy_ui.audio_files import encode, kinds_here
from cosy_ui.clips import Clips
from cosy_ui.compare_handlers import MOST_RUNS, SHORT_CHARS, SHORT_VARIANTS
from cosy_ui.doctor_handlers import DoctorHandlers
from cosy_ui.guests import client_of
from cosy_ui.jobs import JobTable
from cosy_ui.messages import error_words
from cosy_ui.private_folder import writing
from cosy_ui.sessions import Sessions
from cosy_ui.words import language, say

log = logging.getLogger(__name__)


class Endpoints:
    """The page's work for programs. Those that make sound are generators: Gradio has taken its copy of the file when it asks
    for more, and the file goes."""

    def __init__(self, engine: Engine, jobs: JobTable, sessions: Sessions, clips: Clips, doctor: DoctorHandlers):
        self.engine, self.sessions, self.clips, self.examiner = engine, sessions, clips, doctor
        self.guests, self.ledger = jobs.guests, jobs.ledger

    def clone(
        self, request: gr.Request, text: str, reference: str | None = None, transcript: str = "", mode: str = "", instruction: str = "",
        source: str | None = None, voice: str = "", seed: float | None = None, speed: float = 1.0, precision: str = "",
        tier: str = "", file_format: str = "wav", consent: bool = False,
    ) -> Iterator[tuple[str, dict]]:  # fmt: skip
        """Speak a text in the voice of a reference clip and return (audio file, report).

        mode: zero_shot (reference and transcript), cross_lingual (reference), instruct (reference and instruction),
        saved_voice (voice: a name that /voices lists), voice_conversion (reference and source); by itself the one that what is
        given is for. seed: same seed, same audio.
        file_format: wav, mp3, flac or opus. consent: on a shared page, "I may use this voice".
        """
        try:
            if file_format not in kinds_here():
                raise SettingInvalid(f"unknown file_format {file_format!r}: choose one of {', '.join(kinds_here())}")
            job = self._request(text, reference, transcript, mode, instruction, source, voice, seed, speed, precision,
                                tier, consent, client_of(request))  # fmt: skip
            yield from self._made(job, file_format)
        except CosyError as error:
            raise _refusal(error, request) from error
        except Exception as error:
            log.exception("a call of /clone failed")
            raise _refusal(error, request) from error

    def clone_batch(
        self, request: gr.Request, text: str, reference: str | None = None, transcript: str = "", seed: float | None = None,
        consent: bool = False,
    ) -> Iterator[tuple[str | None, dict]]:  # fmt: skip
        """One of many requests that are sent together and decoded side by side: with a transcript zero_shot, else
        cross_lingual. Returns (audio file or nothing, {"ok": true, ...report} or {"ok": false, "code", "message"}), so a bad
        request is an answer like the others."""
        try:
            job = self._request(
                text, reference, transcript, "", "", None, "", seed, 1.0, "", "", consent, client_of(request)
            )
            for path, report in self._made(job, "wav"):
                yield path, {"ok": True} | report
        except CosyError as error:
            yield None, {"ok": False, "code": error.code, "message": error_words(error, language(request))}
        except Exception as error:
            log.exception("a call of /clone_batch failed")
            yield None, {"ok": False, "code": "internal", "message": error_words(error, language(request))}

    def voices(self) -> list:
        """Voices that everyone may use, as [{"name", "seconds", "transcript"}]; mode saved_voice takes the name."""
        return [
            {"name": v.name, "seconds": round(v.voice.seconds, 2), "transcript": v.voice.transcript}
            for v in self.sessions.shared.values()
        ]

    def compare(
        self, request: gr.Request, text: str, reference: str | None = None, transcript: str = "", variants: str = "",
        runs: float = 3, seed: float | None = None, consent: bool = False,
    ) -> Iterator[dict]:  # fmt: skip
        """Run one request in several variants, in turns, and return the comparison as data, as the Compare tab saves it.

        variants: ids such as "eager-fp32-whole, graph-fp16-stream", the first is the baseline; by themselves all that run here,
        whole. runs: of each, 1 to 9, after one that is discarded. On the way {"done": steps, "total": steps}.
        Refused while other requests are served.
        """
        comparison = None
        try:
            asked = self._request(
                text, reference, transcript, "", "", None, "", seed, 1.0, "", "", consent, client_of(request)
            )
            with self.guests.begin(asked.client, asked, (self.engine.config.precision, self.engine.tier)):
                subject = EngineSubject(self.engine, asked)
                comparison = Comparison(subject, self._variants(variants, asked), runs=self._runs(runs))
                machine, predicted = machine_facts(subject)
                for step in comparison.steps():
                    yield {"done": step.done, "total": step.total}
                self.sessions.comparisons.learn(comparison)
                yield as_data(comparison, machine, versions(), predicted)
        except CosyError as error:
            raise _refusal(error, request) from error
        except Exception as error:
            log.exception("a call of /compare failed")
            raise _refusal(error, request) from error
        finally:
            if comparison:
                comparison.stop()

    def _variants(self, ids: str, asked: Request) -> list[Variant]:
        """Raises: SettingInvalid: no such variant; TextTooLong, SettingInvalid: more than a shared page compares."""
        chosen = [Variant.parse(one.strip()) for one in (ids or "").split(",") if one.strip()]
        chosen = chosen or [
            v for v in ALL_VARIANTS if not v.stream and not {v.tier, v.precision} & set(self.engine.unavailable)
        ]
        if self.guests.shared and len(chosen) > SHORT_VARIANTS:
            raise SettingInvalid(say("cmp_short_variants", "en", variants=SHORT_VARIANTS))
        if self.guests.shared and len(asked.text) > SHORT_CHARS:
            raise TextTooLong(say("cmp_short_text", "en", chars=SHORT_CHARS))
        return chosen

    def _runs(self, runs: float) -> int:
        if not isinstance(runs, (int, float)) or not 1 <= runs <= MOST_RUNS:
            raise SettingInvalid(f"runs {runs} is out of range: choose 1 to {MOST_RUNS}")
        return 1 if self.guests.shared else int(runs)

    def doctor(self, request: gr.Request) -> dict:
        """Examine and measure this machine for about ten seconds: {"facts", "verdicts" in order of expected gain,
        "predicted_ms" per token}. Refused while requests are served."""
        try:
            facts = self.examiner.facts()
            return as_record(facts, diagnose(facts))
        except CosyError as error:
            raise _refusal(error, request) from error
        except Exception as error:
            log.exception("a call of /doctor failed")
            raise _refusal(error, request) from error

    def _request(
        self, text: str, reference: str | None, transcript: str, mode: str, instruction: str, source: str | None,
        voice: str, seed: float | None, speed: float, precision: str, tier: str, consent: bool, client: str,
    ) -> Request:  # fmt: skip
        if self.guests.shared and consent is not True:
            raise InputMissing("this page is shared: confirm with consent=True that you may use this voice", "consent")
        chosen: Any = self.clips.read(reference) if reference else None
        if mode == "saved_voice" or (voice and not mode):
            if not voice:
                raise InputMissing("choose a saved voice first: /voices lists them", "voice")
            found = self.sessions.find_voice(voice)
            if found is None:
                raise InputMissing(f"no saved voice is called {voice!r}: /voices lists them", "voice")
            chosen = found.voice
        return Request(
            mode=mode or "",
            text=text or "",
            reference=chosen,
            transcript=(transcript or "") if mode in ("", None, "zero_shot") else "",
            instruction=instruction or "",
            source=self.clips.read(source) if source else None,
            seed=int(seed) if isinstance(seed, float) and seed.is_integer() else seed,
            speed=1.0 if speed is None else speed,
            precision=precision or None,
            tier=tier or None,
            client=client,
        )

    def _made(self, job: Request, kind: str) -> Iterator[tuple[str, dict]]:
        try:
            with self.guests.begin(job.client, job, (self.engine.config.precision, self.engine.tier)):
                result = self.engine.speak_all(job)
        except Exception as error:
            self.ledger.ended("api", job.mode, None, error)
            raise
        self.ledger.ended("api", job.mode, result.report, None)
        note = f"model {result.report.model}, mode {job.mode}, seed {result.report.seed}"
        with contextlib.ExitStack() as until_taken:
            with writing():
                folder = until_taken.enter_context(tempfile.TemporaryDirectory())
                file = Path(folder, f"clone.{kind}")
                file.write_bytes(encode(to_int16(result.samples), result.rate_hz, kind, note))
            yield str(file), report_line(result.report)


def _refusal(error: Exception, request: gr.Request) -> gr.Error:
    """Titled with the code that programs read, in the caller's language."""
    return gr.Error(
        error_words(error, language(request)), title=getattr(error, "code", "internal"), print_exception=False
    )


def add_endpoints(endpoints: Endpoints) -> None:
    """Put the endpoints into the page that is being built; nothing of them is drawn."""
    with gr.Row(visible=False):
        text, transcript, mode = (
            gr.Textbox(label="text"),
            gr.Textbox("", label="transcript"),
            gr.Textbox("", label="mode"),
        )
        reference = gr.Audio(type="filepath", label="reference")
        source = gr.Audio(type="filepath", label="source")
        instruction, voice = gr.Textbox("", label="instruction"), gr.Textbox("", label="voice")
        seed, speed = gr.Number(None, label="seed"), gr.Number(1.0, label="speed")
        precision, tier = gr.Textbox("", label="precision"), gr.Textbox("", label="tier")
        file_format, consent = gr.Textbox("wav", label="file_format"), gr.Checkbox(False, label="consent")
        variants, runs = gr.Textbox("", label="variants"), gr.Number(3, label="runs")
        audio, report = gr.File(label="audio"), gr.JSON(label="report")
        comparison, examination = gr.JSON(label="comparison"), gr.JSON(label="examination")
        listed = gr.JSON(label="voices")
        call = gr.Button()
    config = endpoints.engine.config
    together = {"concurrency_limit": config.slots + config.queue, "concurrency_id": "clone"}  # the engine has the queue
    call.click(
        endpoints.clone,
        [text, reference, transcript, mode, instruction, source, voice, seed, speed, precision, tier, file_format, consent],
        [audio, report], api_name="clone", **together,
    )  # fmt: skip
    call.click(
        endpoints.clone_batch, [text, reference, transcript, seed, consent], [audio, report], api_name="clone_batch", **together
    )  # fmt: skip
    call.click(
        endpoints.compare, [text, reference, transcript, variants, runs, seed, consent], comparison, api_name="compare",
        concurrency_limit=1, concurrency_id="compare",
    )  # fmt: skip
    call.click(
        endpoints.doctor, None, examination, api_name="doctor", concurrency_limit=1, concurrency_id="doctor"
    )  # fmt: skip
    call.click(endpoints.voices, None, listed, api_name="voices", queue=False)
