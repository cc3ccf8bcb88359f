"""Named endpoints for programs: /clone, /clone_batch, /voices. Plain and stateless; they share the engine's queue with the page."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradio as gr

from cosy_engine import CosyError, Engine, Request
from cosy_engine.__main__ import report_line
from cosy_engine.errors import InputMissing, SettingInvalid
from cosy_engine.types import to_int16
from cosy_ui.audio_files import encode, kinds_here
from cosy_ui.sessions import Sessions

BATCH = 8  # most requests that one call of /clone_batch gathers


class Endpoints:
    """folder: results lie here until Gradio has taken its copy."""

    def __init__(self, engine: Engine, sessions: Sessions, shared: bool):
        self.engine, self.sessions, self.shared = engine, sessions, shared

    def clone(
        self, text: str, reference: str | None = None, transcript: str = "", mode: str = "zero_shot", instruction: str = "",
        source: str | None = None, voice: str = "", seed: float | None = None, speed: float = 1.0, precision: str = "",
        tier: str = "", file_format: str = "wav", consent: bool = False,
    ) -> tuple[str, dict]:  # fmt: skip
        """Speak a text in the voice of a reference clip and return (audio file, report).

        mode: zero_shot (reference and transcript), cross_lingual (reference), instruct (reference and instruction),
        saved_voice (voice: a name that /voices lists), voice_conversion (reference and source). seed: same seed, same audio.
        file_format: wav, mp3, flac or opus. consent: on a shared page, "I may use this voice".
        """
        try:
            if file_format not in kinds_here():
                raise SettingInvalid(f"unknown file_format {file_format!r}: choose one of {', '.join(kinds_here())}")
            job = self._request(text, reference, transcript, mode, instruction, source, voice, seed, speed, precision,
                                tier, consent)  # fmt: skip
            return self._made(job, file_format)
        except CosyError as error:
            raise gr.Error(str(error), title=error.code, print_exception=False) from error

    def clone_batch(self, texts: list, references: list, transcripts: list, seeds: list, consents: list) -> list[list]:
        """Several requests in one go, spoken side by side: with a transcript zero_shot, else cross_lingual. Each gives
        (audio file or nothing, {"ok": true, ...report} or {"ok": false, "code", "message"}), so one bad request
        harms no other."""

        def one(text, reference, transcript, seed, consent) -> tuple[str | None, dict]:
            try:
                mode = "zero_shot" if (transcript or "").strip() else "cross_lingual"
                job = self._request(text, reference, transcript, mode, "", None, "", seed, 1.0, "", "", consent)
                path, report = self._made(job, "wav")
                return path, {"ok": True} | report
            except CosyError as error:
                return None, {"ok": False, "code": error.code, "message": str(error)}
            except Exception as error:  # an answer for every request, or its client waits for ever
                return None, {
                    "ok": False,
                    "code": "internal",
                    "message": f"failed inside the program ({type(error).__name__})",
                }

        with ThreadPoolExecutor(max(1, len(texts))) as threads:
            done = list(threads.map(one, texts, references, transcripts, seeds, consents))
        assert len(done) == len(texts)
        return [[path for path, _ in done], [status for _, status in done]]

    def voices(self) -> list:
        """Voices that everyone may use, as [{"name", "seconds", "transcript"}]; mode saved_voice takes the name."""
        return [
            {"name": v.name, "seconds": round(v.voice.seconds, 2), "transcript": v.voice.transcript}
            for v in self.sessions.shared.values()
        ]

    def _request(
        self, text: str, reference: str | None, transcript: str, mode: str, instruction: str, source: str | None,
        voice: str, seed: float | None, speed: float, precision: str, tier: str, consent: bool,
    ) -> Request:  # fmt: skip
        if self.shared and not consent:
            raise InputMissing("this page is shared: confirm with consent=True that you may use this voice", "consent")
        chosen: Any = reference
        if mode == "saved_voice":
            found = self.sessions.find_voice(voice or "")
            if found is None:
                raise InputMissing(f"no saved voice is called {voice!r}: /voices lists them", "voice")
            chosen = found.voice
        return Request(
            mode=mode,
            text=text or "",
            reference=chosen,
            transcript=transcript if mode == "zero_shot" else "",
            instruction=instruction or "",
            source=source,
            seed=None if seed is None or seed < 0 else int(seed),
            speed=speed or 1.0,
            precision=precision or None,
            tier=tier or None,
            client="api",
        )

    def _made(self, job: Request, kind: str) -> tuple[str, dict]:
        result = self.engine.speak_all(job)
        note = f"model {result.report.model}, mode {job.mode}, seed {result.report.seed}"
        with tempfile.NamedTemporaryFile(suffix=f".{kind}", prefix="clone-", delete=False) as file:
            file.write(encode(to_int16(result.samples), result.rate_hz, kind, note))
        return file.name, report_line(result.report)


def add_endpoints(endpoints: Endpoints) -> None:
    """Put the endpoints into the page that is being built; nothing of them is drawn."""
    with gr.Row(visible=False):
        text, transcript, mode = (
            gr.Textbox(label="text"),
            gr.Textbox("", label="transcript"),
            gr.Textbox("zero_shot", label="mode"),
        )
        reference = gr.Audio(type="filepath", label="reference")
        source = gr.Audio(type="filepath", label="source")
        instruction, voice = gr.Textbox("", label="instruction"), gr.Textbox("", label="voice")
        seed, speed = gr.Number(None, label="seed", precision=0), gr.Number(1.0, label="speed")
        precision, tier = gr.Textbox("", label="precision"), gr.Textbox("", label="tier")
        file_format, consent = gr.Textbox("wav", label="file_format"), gr.Checkbox(False, label="consent")
        audio, report = gr.File(label="audio"), gr.JSON(label="report")
        listed = gr.JSON(label="voices")
        call = gr.Button()
    slots = endpoints.engine.config.slots
    call.click(
        endpoints.clone,
        [
            text,
            reference,
            transcript,
            mode,
            instruction,
            source,
            voice,
            seed,
            speed,
            precision,
            tier,
            file_format,
            consent,
        ],
        [audio, report],
        api_name="clone",
        concurrency_limit=slots + endpoints.engine.config.queue,
        concurrency_id="clone",
    )
    call.click(
        endpoints.clone_batch,
        [text, reference, transcript, seed, consent],
        [audio, report],
        batch=True,
        max_batch_size=BATCH,
        api_name="clone_batch",
        concurrency_limit=1,
        concurrency_id="clone_batch",
    )
    call.click(endpoints.voices, None, listed, api_name="voices", queue=False)
