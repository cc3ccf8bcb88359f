"""What one open page keeps: its takes and its saved voices. Nothing is shared between pages, and all of it goes with the page."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cosy_engine import Report, Request, Voice
from cosy_engine.audio.voice import load_voice
from cosy_engine.errors import ReferenceUnreadable
from cosy_ui.audio_files import encode, safe_name

MAX_TAKES, MAX_TAKE_BYTES = 50, 128 * 2**20  # of one page; the oldest go first
MAX_VOICES = 50
GRACE_S = 600.0  # a phone that was locked finds its takes again


@dataclass(frozen=True, eq=False)
class Take:
    """One finished (or stopped) request. form: the page's inputs as they were, to be copied back. request: to speak a
    sentence of it again. report: None when it was stopped. segments: those of the report, moved where one was redone."""

    id: str
    number: int
    samples: np.ndarray
    rate_hz: int
    form: dict[str, Any]
    request: Request
    seed: int
    report: Report | None
    segments: tuple[dict, ...]
    made_at: float
    redone: int = 0  # 1-based number of the sentence that was spoken again

    @property
    def title(self) -> str:
        """Words for lists."""
        text = self.request.text if isinstance(self.request.text, str) else ""
        return " ".join(text.split())[:120]

    @property
    def file_stem(self) -> str:
        return f"take-{self.number}-{safe_name(self.title, self.request.mode)}"

    def note(self) -> str:
        """For the metadata of its files."""
        model = f"model {self.report.model}, " if self.report else ""
        return f"{model}mode {self.request.mode}, seed {self.seed}"

    def wav(self) -> bytes:
        return encode(self.samples, self.rate_hz, "wav", self.note())


@dataclass(frozen=True, eq=False)
class SavedVoice:
    """A voice by name. id: what the page and the API call it; unguessable unless it is shared by the operator."""

    id: str
    name: str
    voice: Voice
    shared: bool = False


@dataclass(eq=False)
class Session:
    """One page's things. zip_id: unguessable name of its archive."""

    takes: OrderedDict[str, Take] = field(default_factory=OrderedDict)
    voices: dict[str, SavedVoice] = field(default_factory=dict)
    zip_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    count: int = 0
    left_at: float | None = None


class Sessions:
    """All open pages. Safe to use from any thread."""

    def __init__(self, shared: dict[str, SavedVoice] | None = None, clock=time.monotonic):
        self.shared = shared or {}
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._clock = clock

    # Takes

    def keep(self, owner: str, samples: np.ndarray, rate_hz: int, form: dict, request: Request, report: Report | None,
             seed: int, segments: tuple[dict, ...] | None = None, redone: int = 0) -> Take:  # fmt: skip
        """Add a take to a page."""
        with self._lock:
            session = self._session(owner)
            session.count += 1
            if segments is None:
                segments = report.segments if report else ()
            take = Take(secrets.token_urlsafe(16), session.count, samples, rate_hz, form, request, seed, report,
                        segments, time.time(), redone)  # fmt: skip
            session.takes[take.id] = take
            while len(session.takes) > MAX_TAKES or (
                len(session.takes) > 1 and sum(t.samples.nbytes for t in session.takes.values()) > MAX_TAKE_BYTES
            ):
                session.takes.popitem(last=False)
            return take

    def takes(self, owner: str) -> list[Take]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._session(owner).takes.values()))

    def take_of(self, owner: str, take_id: str) -> Take | None:
        """A take of this page."""
        with self._lock:
            return self._session(owner).takes.get(take_id)

    def find_take(self, take_id: str) -> Take | None:
        """A take of any page, by its unguessable id."""
        with self._lock:
            return next((s.takes[take_id] for s in self._open.values() if take_id in s.takes), None)

    def zip_id(self, owner: str) -> str:
        with self._lock:
            return self._session(owner).zip_id

    def find_zip(self, zip_id: str) -> list[Take] | None:
        with self._lock:
            return next((list(s.takes.values()) for s in self._open.values() if s.zip_id == zip_id), None)

    # Voices

    def save_voice(self, owner: str, name: str, voice: Voice) -> SavedVoice:
        """Name a voice; the same name again replaces it."""
        name = " ".join(name.split())[:60]
        with self._lock:
            voices = self._session(owner).voices
            for old in [v for v in voices.values() if v.name == name]:
                del voices[old.id]
            if len(voices) >= MAX_VOICES:
                del voices[next(iter(voices))]
            saved = SavedVoice(secrets.token_urlsafe(12), name, voice)
            voices[saved.id] = saved
            return saved

    def delete_voice(self, owner: str, voice_id: str) -> None:
        with self._lock:
            self._session(owner).voices.pop(voice_id, None)

    def voices(self, owner: str) -> list[SavedVoice]:
        """The page's own and the shared ones."""
        with self._lock:
            return [*self._session(owner).voices.values(), *self.shared.values()]

    def voice_of(self, owner: str, voice_id: str | None) -> SavedVoice | None:
        with self._lock:
            return self._session(owner).voices.get(voice_id or "") or self.shared.get(voice_id or "")

    def find_voice(self, name: str) -> SavedVoice | None:
        """A shared voice by name, or any page's by its unguessable id."""
        with self._lock:
            return self.shared.get(name) or next(
                (s.voices[name] for s in self._open.values() if name in s.voices), None
            )

    # Coming and going

    def leave(self, owner: str) -> None:
        """The page was closed, or its phone locked: kept a while longer."""
        with self._lock:
            if owner in self._open:
                self._open[owner].left_at = self._clock()
            self._forget()

    def __len__(self) -> int:
        with self._lock:
            self._forget()
            return len(self._open)

    def _session(self, owner: str) -> Session:
        self._forget()
        session = self._open.setdefault(owner, Session())
        session.left_at = None
        return session

    def _forget(self) -> None:
        now = self._clock()
        for owner in [o for o, s in self._open.items() if s.left_at is not None and now - s.left_at > GRACE_S]:
            del self._open[owner]


def shared_voices(folder: Path | None, model_key: str) -> tuple[dict[str, SavedVoice], list[str]]:
    """(voices of a folder by name, what was wrong with the other files)."""
    found, wrong = {}, []
    for file in sorted(folder.glob("*.safetensors")) if folder else ():
        try:
            found[file.stem] = SavedVoice(file.stem, file.stem, load_voice(file, model_key), shared=True)
        except ReferenceUnreadable as error:
            wrong.append(str(error))
    return found, wrong
