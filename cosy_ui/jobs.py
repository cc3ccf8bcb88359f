"""Running requests of the page: one reader pumps the engine, the page's event and the sound route both follow it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np

from cosy_engine import CosyError, Engine, Report, Request, Speech, to_int16
from cosy_ui.guests import Guests, Ticket
from cosy_ui.ledger import Ledger

log = logging.getLogger(__name__)

FOLLOW_S = 0.25  # how soon a listener who has gone is noticed while no sound comes


@dataclass(eq=False)
class Job:
    """One request. `chunks` are int16; all fields change under `changed`. speech: None until the checks have passed."""

    id: str
    owner: str
    request: Request
    rate_hz: int
    speech: Speech | None = None
    chunks: list[np.ndarray] = field(default_factory=list)
    came_s: list[float] = field(default_factory=list)  # when each chunk was made
    segment: int = 0
    error: Exception | None = None
    done: bool = False
    cancelled: bool = False
    replaced: bool = False  # the same page has begun another one: nobody waits for news of this one
    taken: bool = False  # the sound route serves a job once
    began_s: float = field(default_factory=time.monotonic)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def report(self) -> Report | None:
        return self.speech.report if self.speech else None

    @property
    def notes(self) -> tuple[str, ...]:
        return self.speech.notes if self.speech else ()

    @property
    def segments(self) -> int:
        return self.speech.segments if self.speech else 1

    def position(self) -> int:
        """0 when running, else the place in the queue."""
        return self.speech.position() if self.speech else 0

    def expected_wait_s(self) -> float | None:
        """Seconds until it runs, where that can be told."""
        return self.speech.expected_wait_s() if self.speech else None

    def samples(self) -> np.ndarray:
        """All samples so far, int16."""
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.int16)

    def needed_lead_s(self) -> float:
        """How long after its first chunk playing had to start so as never to wait for a later one."""
        heard_s, late_s = 0.0, 0.0
        for came_s, chunk in zip(self.came_s, self.chunks, strict=True):
            late_s = max(late_s, came_s - self.came_s[0] - heard_s)
            heard_s += len(chunk) / self.rate_hz
        return late_s

    def cancel(self) -> None:
        """Stop the engine's work; followers see the end at once."""
        with self.changed:
            self.cancelled = True
            speech = self.speech
            self.changed.notify_all()
        if speech:
            speech.close()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Sleep until there are more than `seen` chunks or the job has ended; False after the timeout."""
        with self.changed:
            return self.changed.wait_for(lambda: self.done or len(self.chunks) > seen, timeout_s)

    async def pcm(self) -> AsyncIterator[bytes]:
        """Little-endian int16 as it is made. Leaving early cancels the job."""
        sent = 0
        try:
            while not (self.done and sent == len(self.chunks)):
                await asyncio.to_thread(self.wait, sent, FOLLOW_S)
                for chunk in self.chunks[sent:]:
                    sent += 1
                    yield chunk.astype("<i2").tobytes()
        finally:
            if not self.done:
                self.cancel()

    def pump(self, engine: Engine) -> None:
        """Start the request and read it to the end."""
        error: Exception | None = None
        try:
            speech = engine.speak(self.request)
            with self.changed:
                self.speech = speech
                if self.cancelled:
                    speech.close()
            for chunk in speech:
                with self.changed:
                    self.chunks.append(to_int16(chunk.samples))
                    self.came_s.append(time.monotonic())
                    self.segment = chunk.segment + 1
                    self.changed.notify_all()
        except CosyError as caught:
            error = caught
        except Exception as caught:
            log.exception("a request failed")
            error = caught
        with self.changed:
            self.error, self.done = error, True
            self.changed.notify_all()


class JobTable:
    """Jobs by unguessable id. A finished job is kept for `keep_s` so that its sound can still be fetched."""

    def __init__(
        self, guests: Guests | None = None, ledger: Ledger | None = None, keep_s: float = 120.0, clock=time.monotonic
    ):
        """guests: who may begin how many; one's own page without limits when not given. ledger: where what became of them is
        counted."""
        self.guests, self.ledger = guests or Guests(), ledger or Ledger()
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()
        self._keep_s, self._clock = keep_s, clock
        self.lead_s = 0.0  # how long listeners should wait with their first chunk, by what streams needed of late

    def start(self, engine: Engine, request: Request, owner: str, client: str = "", source: str = "page") -> Job:
        """Begin a request for one browser session, at once; what is wrong with its inputs becomes its error.

        client: as of client_of. source: for the figures.
        Raises: Busy, TextTooLong, ModeUnavailable: the client may not begin it.
        """
        ticket = self.guests.begin(client or owner, request, (engine.config.precision, engine.tier))
        job = Job(secrets.token_urlsafe(16), owner, request, engine.spec.mel.rate_hz)
        with self._lock:
            self._forget_old()
            self._jobs[job.id] = job
        threading.Thread(
            target=self._run, args=(engine, job, ticket, source), name="cosy-page-job", daemon=True
        ).start()
        return job

    def _run(self, engine: Engine, job: Job, ticket: Ticket, source: str) -> None:
        with ticket:
            job.pump(engine)
        if job.request.stream and job.chunks:
            self.lead_s = max(job.needed_lead_s(), self.lead_s / 2)
        self.ledger.ended(source, job.request.mode, job.report, job.error)

    def take(self, job_id: str) -> Job | None:
        """The job of an id, once; None for an unknown or used id."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.taken:
                return None
            job.taken = True
            return job

    def finish(self, job: Job) -> None:
        """The page has what it needs; the id stays valid for a while for its sound."""
        with self._lock:
            self._ended[job.id] = self._clock()

    def cancel_owner(self, owner: str, replaced: bool = False) -> int:
        """Stop all jobs of a browser session that it has not seen the end of; how many there were."""
        with self._lock:
            mine = [job for job in self._jobs.values() if job.owner == owner and job.id not in self._ended]
        for job in mine:
            job.replaced = job.replaced or replaced
            job.cancel()
        return len(mine)

    def cancel_all(self) -> None:
        """The program ends."""
        with self._lock:
            running = [job for job in self._jobs.values() if not job.done]
        for job in running:
            job.cancel()

    def sweep(self) -> None:
        """Forget the jobs whose time is over, also while nobody calls."""
        with self._lock:
            self._forget_old()

    def __len__(self) -> int:
        with self._lock:
            self._forget_old()
            return len(self._jobs)

    def _forget_old(self) -> None:
        now = self._clock()
        for job_id in [i for i, at in self._ended.items() if now - at > self._keep_s]:
            self._jobs.pop(job_id, None)
            del self._ended[job_id]
