"""Running requests of the page: one reader pumps the engine, the page's event and the sound route both follow it."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cosy_engine import CosyError, Engine, Report, Request, Speech, to_int16

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """One request. `chunks` are int16; all fields change under `changed`."""

    id: str
    owner: str
    speech: Speech
    rate_hz: int
    chunks: list[np.ndarray] = field(default_factory=list)
    segment: int = 0
    error: Exception | None = None
    done: bool = False
    taken: bool = False  # the sound route serves a job once
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def report(self) -> Report | None:
        return self.speech.report

    def samples(self) -> np.ndarray:
        """All samples so far, int16."""
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.int16)

    def cancel(self) -> None:
        """Stop the engine's work; followers see the end at once."""
        self.speech.close()
        with self.changed:
            self.changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Sleep until there are more than `seen` chunks or the job has ended; False after the timeout."""
        with self.changed:
            return self.changed.wait_for(lambda: self.done or len(self.chunks) > seen, timeout_s)

    def pcm(self) -> Iterator[bytes]:
        """Little-endian int16 as it is made. Leaving early cancels the job."""
        sent = 0
        try:
            while True:
                self.wait(sent, 60.0)
                for chunk in self.chunks[sent:]:
                    yield chunk.astype("<i2").tobytes()
                    sent += 1
                if self.done and sent == len(self.chunks):
                    return
        finally:
            if not self.done:
                self.cancel()

    def _pump(self) -> None:
        """Read the engine to the end."""
        error: Exception | None = None
        try:
            for chunk in self.speech:
                with self.changed:
                    self.chunks.append(to_int16(chunk.samples))
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

    def __init__(self, keep_s: float = 120.0, clock=time.monotonic):
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()
        self._keep_s, self._clock = keep_s, clock

    def start(self, engine: Engine, request: Request, owner: str) -> Job:
        """Begin a request for one browser session. Raises what Engine.speak raises."""
        job = Job(secrets.token_urlsafe(16), owner, engine.speak(request), engine.spec.mel.rate_hz)
        with self._lock:
            self._forget_old()
            self._jobs[job.id] = job
        threading.Thread(target=job._pump, name="cosy-page-job", daemon=True).start()
        return job

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

    def cancel_owner(self, owner: str) -> int:
        """Stop all jobs of a browser session that it has not seen the end of; how many there were."""
        with self._lock:
            mine = [job for job in self._jobs.values() if job.owner == owner and job.id not in self._ended]
        for job in mine:
            job.cancel()
        return len(mine)

    def __len__(self) -> int:
        with self._lock:
            self._forget_old()
            return len(self._jobs)

    def _forget_old(self) -> None:
        now = self._clock()
        for job_id in [i for i, at in self._ended.items() if now - at > self._keep_s]:
            self._jobs.pop(job_id, None)
            del self._ended[job_id]
