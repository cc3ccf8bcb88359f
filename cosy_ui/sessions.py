"""What one open page keeps: its takes and its saved voices. Nothing is shared between pages, and all of it goes with the page."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosy_engine import CosyError, Engine, Report, Request, Voice
from cosy_engine.audio.voice import MAX_NAME_CHARS, load_voice
from cosy_engine.errors import ReferenceUnreadable, SettingInvalid
from cosy_engine.types import Clip
from cosy_ui.audio_files import encode, safe_name
from cosy_ui.compare_table import CompareTable

MAX_TAKES, MAX_TAKE_BYTES = 50, 128 * 2**20  # of one page; the oldest go first
MAX_VOICES = 50
MAX_SESSIONS, MAX_ALL_BYTES = 1000, 2**30  # of all pages; empty ones go first, then those unused for longest
GRACE_S = 600.0  # a phone that was locked finds its takes again
IDLE_S = 6 * 3600.0  # a page that never said that it was closed


@dataclass(frozen=True, eq=False)
class Take:
    """One finished (or stopped) request. form: the page's inputs as they were, to be copied back. request: to speak a
    sentence of it again. report: None where only a sentence was redone and stopped. segments: those of the report, moved where
    one was redone."""

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
    stopped: bool = False  # before its end

    @property
    def title(self) -> str:
        """Words for lists."""
        text = self.request.text if isinstance(self.request.text, str) else ""
        return " ".join(text.split())[:120]

    @property
    def file_stem(self) -> str:
        return f"take-{self.number}-{safe_name(self.title, self.request.mode)}"

    @property
    def held_bytes(self) -> int:
        """With the clips that it can be spoken again from."""
        clips = (self.request.reference, self.request.source)
        return self.samples.nbytes + sum(clip.samples.nbytes for clip in clips if isinstance(clip, Clip))

    def note(self) -> str:
        """For the metadata of its files."""
        model = f"model {self.report.model}, " if self.report else ""
        return f"{model}mode {self.request.mode}, seed {self.seed}"

    def wav(self) -> bytes:
        return encode(self.samples, self.rate_hz, "wav", self.note())


@dataclass(frozen=True, eq=False)
class SavedVoice:
    """A voice by name. id: what the page and the API call it; unguessable unless everyone may use it."""

    id: str
    name: str
    voice: Voice
    shared: bool = False
    example: bool = False  # of a clip that the page offers


@dataclass(eq=False)
class Session:
    """One page's things. zip_id: unguessable name of its archive. deleted: the voice that was deleted last, for undo."""

    takes: OrderedDict[str, Take] = field(default_factory=OrderedDict)
    voices: dict[str, SavedVoice] = field(default_factory=dict)
    zip_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    deleted: SavedVoice | None = None
    count: int = 0
    left_at: float | None = None
    used_at: float = 0.0

    @property
    def take_bytes(self) -> int:
        return sum(take.held_bytes for take in self.takes.values())

    @property
    def held_bytes(self) -> int:
        return self.take_bytes + sum(v.voice.mel.nbytes + v.voice.tokens.nbytes for v in self.voices.values())


class Sessions:
    """All open pages. Safe to use from any thread."""

    def __init__(self, shared: dict[str, SavedVoice] | None = None, clock=time.monotonic):
        self.shared = shared or {}
        self._open: OrderedDict[str, Session] = OrderedDict()  # used last comes last
        self._lock = threading.Lock()
        self._clock = clock
        self.comparisons = CompareTable()
        self.forgotten: Callable[[str], None] = lambda owner: None  # told of each page whose things are gone

    # Takes

    def keep(self, owner: str, samples: np.ndarray, rate_hz: int, form: dict, request: Request, report: Report | None,
             seed: int, segments: tuple[dict, ...] | None = None, redone: int = 0, stopped: bool = False) -> Take:  # fmt: skip
        """Add a take to a page."""
        with self._lock:
            session = self._session(owner)
            session.count += 1
            if segments is None:
                segments = report.segments if report else ()
            take = Take(secrets.token_urlsafe(16), session.count, samples, rate_hz, form, request, seed, report,
                        segments, time.time(), redone, stopped)  # fmt: skip
            session.takes[take.id] = take
            while len(session.takes) > MAX_TAKES or (len(session.takes) > 1 and session.take_bytes > MAX_TAKE_BYTES):
                session.takes.popitem(last=False)
            self._make_room()
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
        """Keep a voice under a name. Nothing is replaced: a name that is taken gets a number.

        Raises: SettingInvalid: the name is too long, or as many voices as fit are kept already.
        """
        name = " ".join(name.split())
        if len(name) > MAX_NAME_CHARS:
            raise SettingInvalid(f"the name has {len(name):,} characters, at most {MAX_NAME_CHARS} fit: shorten it")
        with self._lock:
            session = self._session(owner)
            if len(session.voices) >= MAX_VOICES:
                raise SettingInvalid(f"{MAX_VOICES} voices are kept already: delete one first")
            saved = SavedVoice(secrets.token_urlsafe(12), self._free_name(session, name), voice)
            session.voices[saved.id] = saved
            self._make_room()
            return saved

    def _free_name(self, session: Session, name: str) -> str:
        taken = {v.name.casefold() for v in (*session.voices.values(), *self.shared.values())}
        numbered = (f"{name[: MAX_NAME_CHARS - 5]} ({i})" for i in range(2, MAX_VOICES + len(self.shared) + 3))
        return name if name.casefold() not in taken else next(n for n in numbered if n.casefold() not in taken)

    def delete_voice(self, owner: str, voice_id: str) -> SavedVoice | None:
        """Take a voice out of the list; the last one that was taken out can be put back."""
        with self._lock:
            session = self._session(owner)
            if gone := session.voices.pop(voice_id, None):
                session.deleted = gone
            return gone

    def restore_voice(self, owner: str, voice_id: str) -> SavedVoice | None:
        """Put back the voice that was deleted last, if it is the one that is meant and there is room."""
        with self._lock:
            session = self._session(owner)
            back = session.deleted
            if back is None or back.id != voice_id or len(session.voices) >= MAX_VOICES:
                return None
            session.deleted = None
            session.voices[back.id] = back = replace(back, name=self._free_name(session, back.name))
            return back

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

    def sweep(self) -> None:
        """Forget the pages whose time is over, also while nobody calls."""
        with self._lock:
            self._forget()

    def __contains__(self, owner: str) -> bool:
        """Whether something is kept for this page; it does not count as use."""
        with self._lock:
            return owner in self._open

    def __len__(self) -> int:
        with self._lock:
            self._forget()
            return len(self._open)

    def _session(self, owner: str) -> Session:
        assert owner, "every page has a name of its own"
        self._forget()
        session = self._open.setdefault(owner, Session())
        session.left_at, session.used_at = None, self._clock()
        self._open.move_to_end(owner)
        while len(self._open) > MAX_SESSIONS:  # who opens a thousand pages drives nobody's takes out
            empty = (name for name, s in self._open.items() if not s.takes and not s.voices and name != owner)
            self._drop(next(empty, next(iter(self._open))))
        return session

    def _make_room(self) -> None:
        while len(self._open) > 1 and sum(s.held_bytes for s in self._open.values()) > MAX_ALL_BYTES:
            self._drop(next(iter(self._open)))

    def _drop(self, owner: str) -> None:
        del self._open[owner]
        self.forgotten(owner)

    def _forget(self) -> None:
        now = self._clock()
        for owner, session in list(self._open.items()):
            left = session.left_at is not None and now - session.left_at > GRACE_S
            if left or now - session.used_at > IDLE_S:
                self._drop(owner)


def example_voices(engine: Engine, clips: Iterable[tuple[str, str]]) -> tuple[dict[str, SavedVoice], list[str]]:
    """(the example clips (path, transcript) as voices that everyone may use, by the clip's name; what was wrong with others)."""
    found, wrong = {}, []
    for path, spoken in clips:
        name = Path(path).stem
        try:
            found[name] = SavedVoice(name, name, engine.voice(path, spoken), shared=True, example=True)
        except CosyError as error:
            wrong.append(str(error))
    return found, wrong


def stored_voices(engine: Engine) -> dict[str, SavedVoice]:
    """Voices of the model folder, for everyone."""
    return {name: SavedVoice(name, name, voice, shared=True) for name, voice in engine.stored_voices.items()}


def shared_voices(folder: Path | None, model_key: str) -> tuple[dict[str, SavedVoice], list[str]]:
    """(voices of a folder by name, what was wrong with the other files)."""
    found, wrong = {}, []
    for file in sorted(folder.glob("*.safetensors")) if folder else ():
        try:
            found[file.stem] = SavedVoice(file.stem, file.stem, load_voice(file, model_key), shared=True)
        except ReferenceUnreadable as error:
            wrong.append(str(error))
    return found, wrong
