"""The one thread that drives the device: sessions take turns step by step, an error goes to its own session.

It sleeps on a condition while nothing can run; there is no polling.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator

from cosy_engine.errors import Busy, Cancelled, CosyError, GenerationFailed
from cosy_engine.scheduling.session import Session

log = logging.getLogger(__name__)


class Worker:
    """Runs up to `slots` sessions in turn; at most `queue` more wait in order of arrival."""

    def __init__(self, slots: int, queue: int):
        self.slots, self.queue = slots, queue
        self._changed = threading.Condition()
        self._waiting: deque[Session] = deque()
        self._running: dict[Session, Iterator[None]] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="cosy-worker", daemon=True)
        self._thread.start()

    def submit(self, session: Session) -> None:
        """Queue a session.

        Raises: Busy: the queue is full or the engine is closing.
        """
        session.wake = self._notify
        with self._changed:
            if self._closing:
                raise Busy("the engine is closing: no new requests are taken")
            if len(self._waiting) >= self.queue:
                raise Busy(f"{len(self._waiting)} requests are waiting already: try again in a moment")
            self._waiting.append(session)
            self._changed.notify()

    def position(self, session: Session) -> int:
        """0 when running or finished, else the place in the queue counted from 1."""
        with self._changed:
            return self._waiting.index(session) + 1 if session in self._waiting else 0

    def load(self) -> tuple[int, int]:
        """(running, waiting)."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancel everything and end the thread."""
        with self._changed:
            self._closing = True
            for session in (*self._waiting, *self._running):
                session.cancelled.set()
            self._changed.notify()
        self._thread.join(timeout_s)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not (ready := self._admit()):
                    if self._closing and not self._running and not self._waiting:
                        return
                    self._changed.wait()
            for session in ready:
                self._step(session)
            del session, ready  # while sleeping, this thread keeps no finished request alive

    def _admit(self) -> list[Session]:
        """Fill free slots and name the sessions that can take a step. Called with the lock held."""
        for session in [s for s in self._waiting if s.cancelled.is_set()]:
            self._waiting.remove(session)
            session.fail(Cancelled("stopped while waiting"))
        while self._waiting and len(self._running) < self.slots:
            session = self._waiting.popleft()
            self._running[session] = session.steps()
        return [s for s in self._running if s.cancelled.is_set() or not s.waiting()]

    def _step(self, session: Session) -> None:
        steps = self._running[session]
        try:
            if session.cancelled.is_set():
                raise Cancelled("stopped")
            next(steps)
        except StopIteration:
            self._leave(session)
            session.end()
        except CosyError as error:
            self._leave(session)
            session.fail(error)
        except Exception as error:
            log.exception("a request failed inside the model")
            self._leave(session)
            session.fail(
                GenerationFailed(f"the model failed ({type(error).__name__}): see the log; other requests go on")
            )

    def _leave(self, session: Session) -> None:
        """Close the session's generator, which drops every tensor it holds."""
        with self._changed:
            steps = self._running.pop(session)
        steps.close()
