"""Who may do how much: limits of a page that strangers reach, counted by client. One's own page has none."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

from cosy_engine import Request
from cosy_engine.audio.decode import MAX_S
from cosy_engine.errors import Busy, ModeUnavailable, TextTooLong

MOST_CLIENTS = 10_000  # remembered; those heard of least recently are forgotten first
CLOSING = "the program is stopping: try again in a minute"


@dataclass(frozen=True)
class Limits:
    """What one client may do. Rates are (at once, then per minute); None: no limit.

    text_chars: of one request. clip_s: of one upload. jobs: requests, saved voices, transcriptions, comparisons.
    jobs_at_once: running or waiting. calls: everything that is no page asset. connections: open at once. folder_mb: all
    uploads and results together. one_model: precision and tier stay as the operator chose them.
    """

    text_chars: int | None = None
    clip_s: float = MAX_S
    upload_mb: int = 50
    jobs: tuple[float, float] | None = None
    jobs_at_once: int | None = None
    uploads: tuple[float, float] | None = None
    calls: tuple[float, float] | None = None
    logins: tuple[float, float] = (10, 10)
    connections: int | None = None
    folder_mb: int | None = None
    one_model: bool = False


PUBLIC = Limits(
    text_chars=600, clip_s=60.0, upload_mb=15, jobs=(8, 12), jobs_at_once=3, uploads=(12, 12), calls=(300, 600),
    connections=64, folder_mb=2048, one_model=True,
)  # fmt: skip


@dataclass(slots=True)
class _Client:
    """tokens: what is left of each rate, and when that was counted."""

    tokens: dict[str, tuple[float, float]]
    running: int = 0


class Guests:
    """Counts by client. Safe to use from any thread.

    shared: others than the owner reach the page. closing: nothing new is begun. refused: how often, by reason.
    """

    def __init__(self, shared: bool = False, limits: Limits | None = None, clock=time.monotonic):
        self.shared = shared
        self.limits = limits or (PUBLIC if shared else Limits())
        self.closing = False
        self.refused: Counter[str] = Counter()
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._lock = threading.Lock()
        self._clock = clock

    def wait_s(self, client: str, what: str) -> int:
        """Seconds until one of `what` (a rate of Limits) may be counted, 0 for now; counts a refusal, nothing else."""
        return self._counted(client, what, 0)

    def take(self, client: str, what: str) -> int:
        """Count one of `what`; seconds to wait when there were too many, else 0."""
        return self._counted(client, what, 1)

    def _counted(self, client: str, what: str, count: int) -> int:
        rate = getattr(self.limits, what)
        if rate is None:
            return 0
        burst, per_minute = rate
        with self._lock:
            tokens = self._client(client).tokens
            left, at = tokens.get(what, (burst, self._clock()))
            now = self._clock()
            left = min(burst, left + (now - at) * per_minute / 60)
            enough = left >= 1
            tokens[what] = (left - count * enough, now)
            if enough:
                return 0
            self.refused[what] += 1
            return math.ceil((1 - left) * 60 / per_minute)

    def begin(self, client: str, request: Request | None = None, own: tuple[str, str] = ("", "")) -> Ticket:
        """Admit work that costs the device something; end the ticket when it is over. own: precision and tier of the engine.

        Raises: Busy: the client has as much as it may have, or the program is stopping. TextTooLong, ModeUnavailable: more
        than a shared page gives.
        """
        limits = self.limits
        if self.closing:
            self.refused["closing"] += 1
            raise Busy(CLOSING)
        if request is not None:
            if limits.text_chars and isinstance(request.text, str) and len(request.text) > limits.text_chars:
                self.refused["text"] += 1
                raise TextTooLong(
                    f"the text has {len(request.text):,} characters, at most {limits.text_chars:,} are spoken on a shared page: shorten it"
                )
            for name, asked, kept in zip(("precision", "tier"), (request.precision, request.tier), own, strict=True):
                if limits.one_model and asked not in (None, kept):
                    self.refused["model"] += 1
                    raise ModeUnavailable(f"{name} {asked} is not available here: a shared page keeps one model loaded")
        if wait := self.take(client, "jobs"):
            raise Busy(f"too many requests in a short time: try again in {wait} s")
        with self._lock:
            found = self._client(client)
            if limits.jobs_at_once and found.running >= limits.jobs_at_once:
                self.refused["jobs_at_once"] += 1
                raise Busy(f"{found.running} of your requests are running or waiting already: wait for one to end")
            found.running += 1
        return Ticket(self, client)

    def _client(self, name: str) -> _Client:
        found = self._clients.setdefault(name, _Client({}))
        self._clients.move_to_end(name)
        if len(self._clients) > MOST_CLIENTS:
            oldest = next((n for n, c in self._clients.items() if not c.running and n != name), None)
            if oldest:
                del self._clients[oldest]
        return found

    def _end(self, name: str) -> None:
        with self._lock:
            self._clients[name].running -= 1


class Ticket:
    """Work of a client that was admitted; a context manager. Ending it twice is harmless."""

    def __init__(self, guests: Guests, client: str):
        self._guests, self._client = guests, client

    def end(self) -> None:
        guests, self._guests = self._guests, None
        if guests:
            guests._end(self._client)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def client_of(request: Any) -> str:
    """Whose calls are counted together: a name that has logged in, else the address (behind a tunnel or proxy on this machine,
    the one that it reports; the server has put it there). request: Gradio's or FastAPI's."""
    username = getattr(request, "username", None)
    if username:
        return f"user:{username}"
    return request.client.host if getattr(request, "client", None) else "unknown"
