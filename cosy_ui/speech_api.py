"""`POST v1/audio/speech` as OpenAI's clients call it: a text in a saved voice, through the same engine queue as the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from cosy_engine import CosyError, Engine, Request
from cosy_engine.errors import Busy, MemoryShort, ModeUnavailable, UserError
from cosy_ui.audio_files import KINDS, encode, kinds_here
from cosy_ui.guests import client_of
from cosy_ui.jobs import Job, JobTable
from cosy_ui.login import guarded
from cosy_ui.messages import error_words
from cosy_ui.sessions import Sessions
from cosy_ui.words import WORDS, language, say

MAX_BODY_BYTES = 256 * 1024  # a text of the greatest length, every character escaped, is a quarter of it
PARAMETERS = {"instruction": "instructions", "speed": "speed", "seed": "seed"}  # word of a refusal -> field of the body


class SpeechRequest(BaseModel):
    """Body of the call. voice: a shared voice's name, or the API id of a voice saved in an open page. speed: 0.5 to 2, less
    than OpenAI's range, as the models follow no further; 1 for pcm, which comes as it is made: int16, little-endian, mono, at
    the rate in the header X-Rate-Hz. consent: on a shared page, "I may use this voice". Unknown fields are ignored, as
    clients send many; a known one has its own type, as true is no speed."""

    model_config = ConfigDict(extra="ignore", strict=True)
    input: str
    voice: str = Field(min_length=1, max_length=200)
    model: str = ""
    response_format: str = Field("mp3", max_length=20)
    speed: float = Field(1.0, ge=0.5, le=2.0, allow_inf_nan=False)
    instructions: str = ""
    seed: int | None = Field(None, ge=0, lt=2**32)
    consent: bool = False


def add_speech_api(app: FastAPI, engine: Engine, jobs: JobTable, sessions: Sessions) -> None:
    """On a shared page (jobs.guests.shared) consent is asked."""

    async def speech(http: HttpRequest):
        lang = language(http)
        if (sent := await _body(http)) is None:
            return _refusal(413, "bad_input", say("body_long", lang, bytes=f"{MAX_BODY_BYTES:,}"))
        try:
            body = SpeechRequest.model_validate_json(sent)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            words = say("body_field" if field else "body_whole", lang, **{"field": field, "why": _why(first, lang)})
            return _refusal(400, "bad_input", words, field)
        kinds = (*kinds_here(), "pcm")
        if body.response_format not in kinds:
            words = say("format_unknown", lang, kinds=", ".join(kinds))
            return _refusal(400, "setting_invalid", words, "response_format")
        if jobs.guests.shared and not body.consent:
            return _refusal(400, "input_missing", say("consent_body", lang), "consent")
        found = sessions.find_voice(body.voice)
        if found is None:
            words = say("voice_unknown", lang, name=repr(body.voice), names=", ".join(sessions.shared) or "–")
            return _refusal(404, "voice_unknown", words, "voice")
        streamed = body.response_format == "pcm"
        asked = Request(
            mode="saved_voice", text=body.input, reference=found.voice, instruction=body.instructions, seed=body.seed,
            speed=body.speed, stream=streamed, client=client_of(http),
        )  # fmt: skip
        try:
            job = jobs.start(engine, asked, f"api:{id(http)}", client_of(http), "speech")
        except CosyError as error:
            return _failed(error, lang)
        try:
            await _until(http, job, first=streamed)
            if not job.chunks and job.error is not None:
                return _failed(job.error, lang)
            if streamed:
                headers = {"X-Rate-Hz": str(job.rate_hz), "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
                return StreamingResponse(_finishing(jobs, job), media_type="audio/pcm", headers=headers)
            if job.error is not None:
                return _failed(job.error, lang)
            note = f"model {engine.name}, seed {job.report.seed}"
            data = await asyncio.to_thread(encode, job.samples(), job.rate_hz, body.response_format, note)
            return Response(data, media_type=KINDS[body.response_format][2])
        finally:
            if not streamed or (job.done and not job.chunks):
                job.cancel()
                jobs.finish(job)

    async def other(http: HttpRequest):
        refused = _refusal(405, "method_not_allowed", say("post_only", language(http)))
        refused.headers["Allow"] = "POST"
        return refused

    guarded(app, jobs.guests, "/v1/audio/speech", speech, ("POST",))
    guarded(app, jobs.guests, "/v1/audio/speech", other, ("GET", "PUT", "PATCH", "DELETE"))


def _why(wrong: ErrorDetails, lang: str) -> str:
    """What is wrong with a field, in our own words."""
    key = f"why_{wrong['type']}"
    return say(key if key in WORDS else "why_other", lang, **wrong.get("ctx", {}))


async def _body(http: HttpRequest) -> bytes | None:
    """The whole body; None as soon as it is too large."""
    sent = bytearray()
    async for part in http.stream():
        sent += part
        if len(sent) > MAX_BODY_BYTES:
            return None
    return bytes(sent)


async def _until(http: HttpRequest, job: Job, first: bool) -> None:
    """Wait for the end, or for the first sound; a caller who has gone ends the work."""
    while not (job.done or (first and job.chunks)):
        await asyncio.to_thread(job.wait, len(job.chunks), 0.25)
        if await http.is_disconnected():
            job.cancel()


async def _finishing(jobs: JobTable, job: Job) -> AsyncIterator[bytes]:
    try:
        async for data in job.pcm():
            yield data
    finally:
        job.cancel()
        jobs.finish(job)


def _failed(error: Exception, lang: str) -> JSONResponse:
    if not isinstance(error, CosyError):
        return _refusal(500, "internal", error_words(error, lang))
    asked_wrong, full = isinstance(error, (UserError, ModeUnavailable)), isinstance(error, (Busy, MemoryShort))
    status = 400 if asked_wrong else 503 if full else 500
    field = next((name for word, name in PARAMETERS.items() if word in str(error)), None)
    if error.code.startswith("text_") and field is None:
        field = "input"
    return _refusal(status, error.code, error_words(error, lang), field)


def _refusal(status: int, code: str, message: str, param: str | None = None) -> JSONResponse:
    """OpenAI's shape of an error."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status_code=status)
