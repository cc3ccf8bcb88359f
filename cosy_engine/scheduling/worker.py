"""The one thread that drives the device: rows of all requests are decoded together, rendering takes turns.

One turn: read what the last launch decoded, send the next launch, give each session its new tokens, then do one piece
of work (a prefill, a rendering), that which scheduling.policy names, while the device decodes on. The thread sleeps on a
condition while nothing can run. An error goes to the session it belongs to; when memory runs out the newest request gives
way.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from cosy_engine.errors import Busy, Cancelled, CosyError, GenerationFailed, MemoryShort
from cosy_engine.scheduling import policy
from cosy_engine.scheduling.session import DecodeFailed, GiveWay, Pause, Session, Steps, Tokens

log = logging.getLogger(__name__)

SHORT_PIECE_S = 0.002  # pieces that take less together do not wait for another look at the decode batch
SPARE_S = 0.25  # what a listener has in hand beyond the margin while no tokens are decoded for others' first sounds
PREFILLS_S = 0.02  # nor do prefills: what comes at once is decoded, and then rendered, together
REMEDY = "shorten the text or the reference, or start with fewer --slots"
RECENT = 0.1  # weight of the newest piece or launch in their mean times


class Worker:
    """Runs up to `slots` sessions in turn; at most `queue` more wait (scheduling.policy says who is next).

    clock: that of the sessions.
    """

    def __init__(
        self,
        slots: int,
        queue: int,
        clock: Callable[[], float] = time.perf_counter,
        inside: Callable[[], AbstractContextManager] = nullcontext,
        idle_s: float | None = None,
        on_idle: Callable[[], None] = lambda: None,
    ):
        """inside: makes the context in which all of the worker's work is done, such as a CUDA device being the current one.
        on_idle: done once when idle_s have passed in which nobody asked for anything; again only after a request."""
        self._inside = inside
        self._idle_s, self._on_idle, self._resting = idle_s, on_idle, False
        self.slots, self.queue, self.clock = slots, queue, clock
        self._changed = threading.Condition()
        self._waiting: deque[Session] = deque()
        self._running: dict[Session, _Turn] = {}
        self._paused: dict[Session, _Turn] = {}  # of those that wait, the ones that had a slot already
        self._served: dict[str, int] = {}  # client -> number of the last slot it got
        self._slot_number = itertools.count()
        self._room = slots  # fewer than slots after memory ran out
        self._rate = policy.Rate()
        self._piece_s = self._launch_s = 0.0  # means
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
            new = len(self._waiting) - len(self._paused)
            if new >= self.queue + max(0, free):
                about = self._starts_s([*self._waiting, session])
                when = f"about {max(1, round(about))} s" if about is not None else "a moment"
                raise Busy(f"{new} requests are waiting already: try again in {when}")
            self._waiting.append(session)
            self._resting = False
            self._changed.notify()

    def position(self, session: Session) -> int:
        """0 when running, begun or finished, else the place in the queue counted from 1, in the order of getting a slot."""
        with self._changed:
            if session not in self._waiting or session in self._paused:
                return 0
            return 1 + self._line().index(session)

    def expected_wait_s(self, session: Session) -> float | None:
        """Seconds until a waiting session is likely to get a slot, by the rate at which audio was made of late; 0 when it has
        one, None before anything was made."""
        with self._changed:
            if session not in self._waiting:
                return 0.0
            line = self._line()
            return self._starts_s(line[: line.index(session) + 1])

    def _line(self) -> list[Session]:
        """Those who wait in the order in which they get slots. Called with the lock held."""
        waiting = list(self._waiting)
        order = policy.line(
            [policy.Waiting(s.job.client, s.dry_s or math.inf) if s in self._paused else policy.Waiting(s.job.client) for s in waiting],
            [s.job.client for s in self._running],
            self._served,
            self.clock() + self._margin_s,
        )  # fmt: skip
        return [waiting[i] for i in order]

    def _starts_s(self, line: list[Session]) -> float | None:
        """Seconds until the last of a line gets a slot. Called with the lock held."""
        if (rate := self._rate.per_s) is None:
            return None
        running = [s.remaining_s() for s in self._running]
        return policy.starts_s(running, [s.remaining_s() for s in line], self.slots, rate)[-1]

    @property
    def _margin_s(self) -> float:
        """A listener with less than this left is served first: all others may run dry with it, and each takes a piece."""
        return (1 + len(self._running)) * self._piece_s

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
        """(begun, waiting for their first slot)."""
        with self._changed:
            return len(self._running) + len(self._paused), len(self._waiting) - len(self._paused)

    def alive(self) -> bool:
        """Whether requests are taken: neither closed nor broken."""
        return self._thread.is_alive() and not self._closing

    def rows(self) -> int:
        """Rows being decoded at this moment."""
        with self._changed:
            return sum(pool.active for pool in {turn.pool for turn in self._running.values() if turn.pool is not None})

    def audio_per_s(self) -> float | None:
        """Seconds of audio made in a second of work of late; None before anything was made."""
        return self._rate.per_s

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
            with self._inside():
                self._turns()
        except BaseException:
            log.exception("the engine's worker broke; the program must be started again")
            with self._changed:
                self._closing = True
                left = [*self._waiting, *self._running]
                self._waiting.clear()
                self._running.clear()
                self._paused.clear()
            for session in left:
                session.let_go()
                session.fail(GenerationFailed("the engine broke down: see the log, and start the program again"))

    def _turns(self) -> None:
        while True:
            with self._changed:
                while not (ready := self._admit()) and not self._chores and not self._calls:
                    if self._closing and not self._running and not self._waiting:
                        return
                    self._sleep()
                if self._closing:
                    self._chores.clear()
            began, made = self.clock(), self._made_s(ready)
            self._turn(ready)
            self._rate.add(self._made_s(ready) - made, self.clock() - began)
            del ready  # while sleeping, this thread keeps no finished request alive
            if self._calls:
                self._calls.popleft()()
            elif self._chores:
                self._chore()

    def _sleep(self) -> None:
        """Until something changes, or has not for long enough to rest. Called with the lock held."""
        awake = self._idle_s is not None and not self._resting and not self._running and not self._waiting
        if not self._changed.wait(self._idle_s if awake else None):
            self._resting = True
            self._calls.append(self._rest)

    def _rest(self) -> None:
        try:
            self._on_idle()
        except Exception:
            log.exception("resting failed; requests go on without it")

    @staticmethod
    def _made_s(sessions: list[Session]) -> float:
        return sum(s.cost.samples / s.job.rate_hz for s in sessions)

    def _admit(self) -> list[Session]:
        """Fill free slots and name the sessions that have something to do. Called with the lock held."""
        for session in [s for s in self._waiting if s.cancelled.is_set()]:
            self._waiting.remove(session)
            if turn := self._paused.pop(session, None):
                self._running[session] = turn  # the next turn puts it away
            else:
                session.let_go()
                session.fail(Cancelled("stopped while waiting"))
        # A request that waits for its own text holds no place of others.
        busy = sum(not session.waiting() for session in self._running)
        while self._waiting and busy < min(self.slots, self._room):
            busy += 1
            session = self._line()[0]
            self._waiting.remove(session)
            self._running[session] = self._paused.pop(session, None) or _Turn(session.steps(), next(self._slot_number))
            self._served[session.job.client] = next(self._slot_number)
        if not self._waiting and len(self._served) > len(self._running):  # nobody else has a claim
            clients = {session.job.client for session in self._running}
            self._served = {client: at for client, at in self._served.items() if client in clients}
        return [s for s in self._running if s.cancelled.is_set() or not s.waiting()]

    def _turn(self, ready: list[Session]) -> None:
        pieces = [turn.wants for s in ready if isinstance((turn := self._running[s]).wants, policy.Piece)]
        count = 1
        if any(not piece.prefill for piece in pieces):
            near_s = self.clock() + self._margin_s + SPARE_S
            dry = any(s.dry_s is not None and s.dry_s < near_s for s in ready)
            sounds = 0 if dry else sum(piece.first for piece in pieces)
            count = policy.launches(self._piece_s, self._launch_s, sounds, self._launches_to_first_sounds())
        pools = {self._running[session].pool: None for session in ready}  # in order
        news = {pool: self._advance(pool, count) for pool in pools if pool is not None and pool.active}
        for session in ready:
            turn = self._running[session]
            if session.cancelled.is_set() or turn.wants is None:
                self._step(session, None)
            elif isinstance(turn.wants, Tokens):
                results = news.get(turn.pool, {})
                if isinstance(results, Exception):
                    self._step(session, results)
                elif turn.wants.row in results:
                    self._step(session, results[turn.wants.row])
        self._pieces()
        self._relieve()

    def _pieces(self) -> None:
        """One piece of work, a few that take no time, or renderings that take less together."""
        began = now = self.clock()
        while True:
            wanting = [(s, t.wants) for s, t in self._running.items() if isinstance(t.wants, policy.Piece)]
            if not wanting:
                return
            urgent_s = now + self._margin_s
            ranked = [wanting[i] for i in policy.ranked([piece for _, piece in wanting], urgent_s)]
            if now > began and now - began >= (PREFILLS_S if ranked[0][1].prefill else SHORT_PIECE_S):
                return
            group = self._solved([ranked[0], *(one for one in ranked[1:] if _alike(one[1].order, ranked[0][1].order))])
            for session in group:
                self._step(session, None)
            before, now = now, self.clock()
            took = (now - before) / len(group)
            if took >= SHORT_PIECE_S:
                self._piece_s += RECENT * (took - self._piece_s) if self._piece_s else took

    def _launches_to_first_sounds(self) -> int:
        """Decode launches after which the tokens of all first sounds are there that are being decoded now."""
        steps = [
            math.ceil(s.lacking / t.pool.steps)
            for s, t in self._running.items()
            if isinstance(t.wants, Tokens) and s.dry_s is None
        ]
        return max(steps, default=0)

    def _solved(self, ranked: list[tuple[Session, policy.Piece]]) -> list[Session]:
        """Whose pieces are done now: the first's, and those whose flow was solved together with it. What fails here is tried again
        by each alone, and fails alone."""
        orders = [piece.order for _, piece in ranked]
        flow = orders[0] and orders[0].flow
        count = 1
        if flow and len(orders) > 1:
            most = policy.most_together(ranked[0][1].first, len(self._running))
            count = policy.together([order.size for order in orders], flow.groups, most)
        if count > 1:
            began = self.clock()
            try:
                flow.solve(orders[:count])
            except torch.OutOfMemoryError:
                log.warning("memory ran out for %d renderings at once: they are made one by one", count)
                count = 1
            except Exception:
                log.exception("%d renderings at once failed: they are made one by one", count)
                count = 1
            for session, _ in ranked[:count] if count > 1 else ():
                session.cost.add("flow", (self.clock() - began) / count)
        return [session for session, _ in ranked[:count]]

    def _relieve(self) -> None:
        """Memory ran out for some: the newest request that can gives way, and waits for a slot that others leave."""
        short = [session for session, turn in self._running.items() if turn.wants is Pause.SHORT]
        if not short:
            return
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        able = [s for s, t in self._running.items() if t.wants is not None and not s.job.bistream]
        alone = len(self._running) == 1 or not able
        if not alone:
            newest = max(able, key=lambda s: self._running[s].number)
            log.warning("memory ran out: one of %d requests waits until another is done", len(self._running))
            self._step(newest, GiveWay())
            if newest in self._running:
                self._park(newest, first=True)
            with self._changed:
                self._room = max(1, len(self._running))
        for session in short:
            if turn := self._running.get(session):
                if alone and turn.short_at == session.cost.samples:
                    self._step(session, MemoryShort("the device's memory is too small for this request: " + REMEDY))
                else:
                    turn.wants, turn.short_at = None, session.cost.samples if alone else None

    def _park(self, session: Session, first: bool = False) -> None:
        """Take a begun session's slot; it goes on when it gets another."""
        with self._changed:
            turn = self._running.pop(session)
            turn.wants = None
            self._paused[session] = turn
            (self._waiting.appendleft if first else self._waiting.append)(session)

    def _chore(self) -> None:
        try:
            self._chores[0]()
        except Exception:
            log.exception("a piece of background work failed; requests go on without it")
        with self._changed:
            if self._chores:  # close() may have cleared them
                self._chores.popleft()

    def _advance(self, pool: Any, count: int) -> dict[int, Any] | Exception:
        """Results of the last launch, with `count` more on their way; none of either for 0. A failure is told to every row's session."""
        if not count:
            return {}
        began = self.clock()
        try:
            results = pool.collect()
            for _ in range(count):
                pool.launch()
            self.steps += count * pool.steps
            self._launch_s += RECENT * ((self.clock() - began) / count - self._launch_s)
            return results
        except torch.OutOfMemoryError as error:
            return error
        except Exception as error:
            log.exception("the decode batch failed")
            return DecodeFailed(error)

    def _step(self, session: Session, news: Any) -> None:
        turn = self._running[session]
        if session.finished.is_set():  # whoever gives it its text has failed it
            self._leave(session)
            return
        try:
            if session.cancelled.is_set():
                raise Cancelled("stopped")
            turn.wants = turn.steps.throw(news) if isinstance(news, Exception) else turn.steps.send(news)
            if isinstance(turn.wants, Tokens):
                turn.pool = turn.wants.pool
        except StopIteration:
            self._leave(session)
            session.end()
        except CosyError as error:
            self._leave(session)
            session.fail(error)
        except torch.OutOfMemoryError:  # where it cannot be tried again
            log.exception("a request ran out of memory")
            self._leave(session)
            session.fail(MemoryShort("the device's memory ran out: " + REMEDY))
        except (Exception, SystemExit) as error:  # a library that wants to exit ends its request, not the program
            log.exception("a request failed inside the model")
            self._leave(session)
            session.fail(
                GenerationFailed(f"the model failed ({type(error).__name__}): see the log; other requests go on")
            )
        else:
            if turn.wants is Pause.BORDER:
                turn.wants = None
                if self._waiting:
                    self._park(session)

    def _leave(self, session: Session) -> None:
        """Close the session's generator, which drops every tensor it holds and gives its row back."""
        with self._changed:
            turn = self._running.pop(session)
            self._room = min(self.slots, self._room + 1)
        try:
            turn.steps.close()
        except Exception:  # the device may be in any state; the request is over either way
            log.exception("a request could not be put away cleanly")
        session.let_go()


@dataclass(slots=True)
class _Turn:
    """A running session. number: grows with the time of its first slot. wants: what it waits for; None when it can go on.
    pool: where its row is or was. short_at: samples it had given when memory ran out for it alone."""

    steps: Steps
    number: int
    wants: Tokens | policy.Piece | Pause | None = None
    pool: Any = None
    short_at: int | None = None


def _alike(order: Any, first: Any) -> bool:
    """Whether what the flow is to solve for two renderings can be solved at once."""
    return order is not None and first is not None and order.flow is first.flow and policy.near(order.size, first.size)
