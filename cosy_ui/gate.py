"""What every HTTP call passes before Gradio or a route of ours sees it: where it comes from, how many, how large, how slow."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse

from cosy_ui.guests import Guests, client_of
from cosy_ui.messages import error_words
from cosy_ui.private_folder import NotWritten, writing
from cosy_ui.words import language, say

BODY_BYTES = 2 * 2**20  # of a call that is no upload: a form with the longest text, every character escaped
STRANGERS_BODY_BYTES = 2**18  # the same where texts are short: reading JSON of two megabytes holds everyone up for seconds
UPLOAD_SLACK_BYTES = 64 * 1024  # of a multipart body, besides its file
BODY_S = 120.0  # for the whole body; slower is somebody who holds connections
FREE_BYTES = 512 * 2**20  # of the disk stay free
FOLDER_S = 10.0  # how long a measured size of the folder is believed
ALL_CONNECTIONS = 1000
# Parts of Gradio that this page does not use: they write to disk, run ffmpeg, or fetch addresses that the caller names.
UNUSED = (
    "/file=http:",
    "/file=https:",
    "/file/http:",
    "/file/https:",
    "/deep_link",
    "/process_recording",
    "/proxy=",
    "/dev/reload",
    "vibe-",
    "/run-history",
    "/monitoring",
    "/runs",
)


class Gate:
    """ASGI middleware. folder: where uploads and results lie."""

    def __init__(self, app: Any, guests: Guests, folder: Path):
        self.app, self.guests, self.folder = app, guests, folder
        self._open: Counter[str] = Counter()
        self._measured = (-FOLDER_S, 0)

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        client = client_of(request)
        if refusal := self._refusal(request, client):
            return await self._answer(*refusal, scope, receive, send)
        self._open[client] += 1
        try:
            await self._limited(request, receive, send)
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    def _refusal(self, request: Request, client: str) -> tuple[int, str, int] | None:
        """(status, words, seconds to wait) of a call that goes no further."""
        lang, limits, path = language(request), self.guests.limits, request.url.path.rstrip("/")
        if is_foreign(request):
            return self._count("foreign", 403, say("foreign", lang))
        if any(part in path for part in UNUSED):
            return self._count("unused", 404, say("not_here", lang))
        if limits.connections and (
            self._open[client] >= limits.connections or sum(self._open.values()) >= ALL_CONNECTIONS
        ):
            return self._count("connections", 429, say("connections_many", lang), 5)
        if request.method != "POST":
            return None
        kind = "logins" if path.endswith("/login") else "uploads" if path.endswith("/upload") else "calls"
        if wait := self.guests.take(client, kind):
            return 429, say("calls_many", lang, seconds=wait), wait
        if int_or(request.headers.get("content-length"), 0) > self._body_bytes(path):
            return self._count("size", 413, say("body_large", lang, mb=self._body_bytes(path) // 2**20))
        if kind == "uploads" and not self._room():
            return self._count("room", 507, say("no_room", lang), 60)
        return None

    def _count(self, reason: str, status: int, words: str, wait: int = 0) -> tuple[int, str, int]:
        self.guests.refused[reason] += 1
        return status, words, wait

    def _body_bytes(self, path: str) -> int:
        upload = path.rstrip("/").endswith("/upload")
        if upload:
            return self.guests.limits.upload_mb * 2**20 + UPLOAD_SLACK_BYTES
        return STRANGERS_BODY_BYTES if self.guests.limits.text_chars else BODY_BYTES

    async def _limited(self, request: Request, receive: Any, send: Any) -> None:
        """Run the application on a body that may not be larger or slower than allowed."""
        most, deadline = self._body_bytes(request.url.path), time.monotonic() + BODY_S
        read, whole, started, broken = 0, False, False, ""
        sends_body = {"content-length", "transfer-encoding"} & set(request.headers)

        async def counted() -> dict:
            nonlocal read, whole, broken
            if whole:  # what comes now is the end of the connection
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                broken = "body_slow"
                return {"type": "http.disconnect"}
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > most:
                broken = "body_large"
                return {"type": "http.disconnect"}
            return message

        async def watched(message: dict) -> None:
            nonlocal started
            if broken and not started:
                return
            if message["type"] == "http.response.start":
                started = True
                if sends_body and not whole:  # refused unread: the server would take the rest of it, however long it is
                    message = message | {"headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        try:
            with writing():
                await self.app(request.scope, counted, watched)
        except NotWritten as error:
            if started:
                raise
            refusal = self._count("disk", 507, error_words(error, language(request)), 60)
            await self._answer(*refusal, request.scope, receive, send)
        except Exception:
            if not broken:
                raise
        if broken and not started:
            status, words = (413, say(broken, language(request), mb=most // 2**20)) if broken == "body_large" else (
                408, say(broken, language(request), seconds=f"{BODY_S:.0f}"))  # fmt: skip
            self.guests.refused[broken] += 1
            await self._answer(status, words, 0, request.scope, receive, send)

    def _room(self) -> bool:
        """Whether the folder and its disk take one more upload."""
        limit_mb = self.guests.limits.folder_mb
        now = time.monotonic()
        if now - self._measured[0] > FOLDER_S:
            self._measured = now, held_bytes(self.folder) if limit_mb else 0
        if limit_mb and self._measured[1] > limit_mb * 2**20:
            return False
        try:
            for place in (self.folder.parent, self.folder):  # somebody may tidy up where temporary files lie
                place.mkdir(0o700, exist_ok=True)
            return shutil.disk_usage(self.folder).free > FREE_BYTES
        except OSError:
            return False

    @staticmethod
    async def _answer(status: int, words: str, wait: int, scope: dict, receive: Any, send: Any) -> None:
        # error: what programs read; detail: what Gradio's page shows. The body was not read, so the connection ends.
        headers = {"Connection": "close", "Cache-Control": "no-store"} | ({"Retry-After": str(wait)} if wait else {})
        await JSONResponse({"error": words, "detail": words}, status, headers)(scope, receive, send)


def is_foreign(request: Request) -> bool:
    """Whether another site's page makes this call with its visitor's browser. Following a link to the page is none.

    Browsers say so in Sec-Fetch-Site on https and localhost, whatever proxies do to the host's name; elsewhere the origin
    is compared with the host. Programs send neither.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        visits = request.method in ("GET", "HEAD") and request.headers.get("sec-fetch-mode") == "navigate"
        return site not in ("same-origin", "none") and not visits
    origin = request.headers.get("origin")
    if origin is None:
        return False
    hosts = {request.headers.get(name, "").lower() for name in ("host", "x-forwarded-host")} - {""}
    return urlsplit(origin).netloc.lower() not in hosts


def held_bytes(folder: Path) -> int:
    """Of all files in a folder."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                total += os.lstat(os.path.join(here, name)).st_size
    return total


def int_or(text: str | None, other: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 19 else other
