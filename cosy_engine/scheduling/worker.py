"""The one thread that drives the device: rows of all requests are decoded together, rendering takes turns.

One turn: read what the last launch decoded, send the next launch, then let each session work on its new tokens, so
that the device decodes while chunks are rendered. The thread sleeps on a condition while nothing can run. An error goes
to the session it belongs to.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from cosy_engine.errors import Busy, Cancelled, CosyError, GenerationFailed
from cosy_engine.scheduling.policy import next_in_queue
from cosy_engine.scheduling.session import Session, Steps, Tokens

log = logging.getLogger(__name__)


class Worker:
    """Runs up to `slots` sessions in turn; at most `queue` more wait (scheduling.policy says who is next)."""

    def __init__(self, slots: int, queue: int):
        self.slots, self.queue = slots, queue
        self._changed = threading.Condition()
        self._waiting: deque[Session] = deque()
        self._running: dict[Session, _Turn] = {}
        self._chores: deque[Callable[[], None]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self.chores_total = 0
        self.steps = 0  # decode steps sent so far, of all pools
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
            free = self.slots - sum(not s.waiting() for s in self._running)
            if len(self._waiting) >= self.queue + max(0, free):
                raise Busy(f"{len(self._waiting)} requests are waiting already: try again in a moment")
            self._waiting.append(session)
            self._changed.notify()

    def position(self, session: Session) -> int:
        """0 when running or finished, else the place in the queue counted from 1."""
        with self._changed:
            return self._waiting.index(session) + 1 if session in self._waiting else 0

    def add_chores(self, chores: Iterable[Callable[[], None]]) -> None:
        """Work for the device's own thread that may wait: one piece between two turns. A piece that fails is logged."""
        chores = list(chores)
        with self._changed:
            self._chores.extend(chores)
            self.chores_total += len(chores)
            self._changed.notify()

    def call(self, work: Callable[[], Any]) -> Any:
        """Do something on the device's own thread, between two turns; its result or error comes back.

        Raises: Busy: the engine is closing.
        """
        ready: Future = Future()

        def piece() -> None:
            try:
                ready.set_result(work())
            except Exception as error:
                ready.set_exception(error)

        with self._changed:
            self._calls.append(piece)
            self._changed.notify()
        while True:
            try:
                return ready.result(timeout=0.5)
            except FutureTimeout:
                if self._closing:
                    raise Busy("the engine is closing: no new work is taken") from None

    @property
    def chores_left(self) -> int:
        """Pieces of work not yet done."""
        return len(self._chores)

    def load(self) -> tuple[int, int]:
        """(running, waiting)."""
        with self._changed:
            return len(self._running), len(self._waiting)

    def alive(self) -> bool:
        """Whether requests are taken: neither closed nor broken."""
        return self._thread.is_alive() and not self._closing

    def rows(self) -> int:
        """Rows being decoded at this moment."""
        with self._changed:
            pools = {turn.wants.pool for turn in self._running.values() if turn.wants is not None}
            return sum(pool.active for pool in pools)

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
        """Until closed. If this very loop breaks, nobody is left waiting: all sessions fail and no more are taken."""
        try:
            self._turns()
        except BaseException:
            log.exception("the engine's worker broke; the program must be started again")
            with self._changed:
                self._closing = True
                left = [*self._waiting, *self._running]
                self._waiting.clear()
                self._running.clear()
            for session in left:
                session.fail(GenerationFailed("the engine broke down: see the log, and start the program again"))

    def _turns(self) -> None:
        while True:
            with self._changed:
                while not (ready := self._admit()) and not self._chores and not self._calls:
                    if self._closing and not self._running and not self._waiting:
                        return
                    self._changed.wait()
                if self._closing:
                    self._chores.clear()
            self._turn(ready)
            del ready  # while sleeping, this thread keeps no finished request alive
            if self._calls:
                self._calls.popleft()()
            elif self._chores:
                self._chore()

    def _admit(self) -> list[Session]:
        """Fill free slots and name the sessions that have something to do. Called with the lock held."""
        for session in [s for s in self._waiting if s.cancelled.is_set()]:
            self._waiting.remove(session)
            session.fail(Cancelled("stopped while waiting"))
        # A request that waits for its own text holds no place of others.
        busy = sum(not session.waiting() for session in self._running)
        while self._waiting and busy < self.slots:
            busy += 1
            place = next_in_queue([s.job.client for s in self._waiting], [s.job.client for s in self._running])
            session = self._waiting[place]
            del self._waiting[place]
            self._running[session] = _Turn(session.steps())
        return [s for s in self._running if s.cancelled.is_set() or not s.waiting()]

    def _turn(self, ready: list[Session]) -> None:
        pools: dict[Any, dict[int, Any]] = {}
        for session in ready:
            wants = self._running[session].wants
            if wants is not None and wants.pool not in pools:
                pools[wants.pool] = self._advance(wants.pool)
        for session in ready:
            wants = self._running[session].wants
            if session.cancelled.is_set() or wants is None:
                self._step(session, None)
            elif isinstance(results := pools[wants.pool], Exception):
                self._step(session, results)
            elif wants.row in results:
                self._step(session, results[wants.row])

    def _chore(self) -> None:
        try:
            self._chores[0]()
        except Exception:
            log.exception("a piece of background work failed; requests go on without it")
        with self._changed:
            if self._chores:  # close() may have cleared them
                self._chores.popleft()

    def _advance(self, pool: Any) -> dict[int, Any] | Exception:
        """Results of the last launch, with the next one on its way. A failure is every row's."""
        try:
            results = pool.collect()
            pool.launch()
            self.steps += pool.steps if pool.active else 0
            return results
        except Exception as error:
            log.exception("the decode batch failed")
            return error

    def _step(self, session: Session, news: Any) -> None:
        turn = self._running[session]
        try:
            if session.cancelled.is_set():
                raise Cancelled("stopped")
            turn.wants = turn.steps.throw(news) if isinstance(news, Exception) else turn.steps.send(news)
        except StopIteration:
            self._leave(session)
            session.end()
        except CosyError as error:
            self._leave(session)
            session.fail(error)
        except (Exception, SystemExit) as error:  # a library that wants to exit ends its request, not the program
            log.exception("a request failed inside the model")
            self._leave(session)
            session.fail(
                GenerationFailed(f"the model failed ({type(error).__name__}): see the log; other requests go on")
            )

    def _leave(self, session: Session) -> None:
        """Close the session's generator, which drops every tensor it holds and gives its row back."""
        with self._changed:
            turn = self._running.pop(session)
        try:
            turn.steps.close()
        except Exception:  # the device may be in any state; the request is over either way
            log.exception("a request could not be put away cleanly")


@dataclass(slots=True)
class _Turn:
    """A running session. wants: the row it waits for; None when it can go on."""

    steps: Steps
    wants: Tokens | None = None
