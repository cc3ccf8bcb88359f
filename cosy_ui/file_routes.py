"""`GET take/<id>.wav` and its kin: what a page offers for download, made when it is asked for.

Ids are unguessable and known only to the page they belong to.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from cosy_engine.audio.voice import save_voice
from cosy_ui.audio_files import KINDS, encode, kinds_here, safe_name, srt, zipped
from cosy_ui.guests import Guests
from cosy_ui.login import guarded
from cosy_ui.sessions import Sessions

GONE = {"error": "this file is no longer kept: generate it again"}


def add_file_routes(app: FastAPI, sessions: Sessions, guests: Guests, model_key: str) -> None:

    def take(name: str, request: Request):
        take_id, _, kind = name.rpartition(".")
        found = sessions.find_take(take_id)
        if found is None or kind not in (*kinds_here(), "srt"):
            return JSONResponse(GONE, status_code=404)
        if kind == "srt":
            return _file(srt(found.segments).encode(), f"{found.file_stem}.srt", "application/x-subrip; charset=utf-8")
        data = encode(found.samples, found.rate_hz, kind, found.note())
        return _part(_file(data, f"{found.file_stem}.{kind}", KINDS[kind][2]), request.headers.get("range", ""))

    def archive(name: str):
        takes = sessions.find_zip(name.removesuffix(".zip"))
        if not takes:
            return JSONResponse(GONE, status_code=404)
        files = [(f"{t.file_stem}.wav", t.wav()) for t in takes]
        files += [(f"{t.file_stem}.srt", srt(t.segments).encode()) for t in takes if srt(t.segments)]
        return _file(zipped(files), "takes.zip", "application/zip")

    def voice(name: str):
        found = sessions.find_voice(name.removesuffix(".safetensors"))
        if found is None:
            return JSONResponse(GONE, status_code=404)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "voice.safetensors")
            save_voice(file, found.voice, model_key, found.name)
            return _file(file.read_bytes(), f"{safe_name(found.name, 'voice')}.safetensors", "application/octet-stream")

    for path, answer in (("take", take), ("takes", archive), ("voice", voice)):
        guarded(app, guests, f"/{path}/{{name}}", answer, ("GET", "HEAD"))


def _file(data: bytes, name: str, media_type: str) -> Response:
    plain = name.encode("ascii", "ignore").decode() or "file"
    headers = {
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}",
        "Cache-Control": "no-store",
    }
    return Response(data, media_type=media_type, headers=headers)


def _part(whole: Response, wanted: str) -> Response:
    """The bytes that a player asks for when it seeks; the whole when it asks for none, for several parts, or in another
    unit, as RFC 9110 allows."""
    whole.headers["Accept-Ranges"] = "bytes"
    size = len(whole.body)
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", wanted.strip())
    if not match or match[0] == "bytes=-" or (match[1] and match[2] and int(match[1]) > int(match[2])):
        return whole
    first = int(match[1]) if match[1] else max(0, size - int(match[2]))  # "-5": the last five
    last = min(int(match[2]), size - 1) if match[1] and match[2] else size - 1
    headers = {k: v for k, v in whole.headers.items() if k != "content-length"}
    if first >= size:
        return Response(status_code=416, headers={"Accept-Ranges": "bytes", "Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Response(whole.body[first : last + 1], 206, headers)
