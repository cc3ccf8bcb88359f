"""How many listeners does this machine serve at once? `python -m cosy_engine bench --load 1,8,32 --seconds 20 [--stream]`.

N listeners each ask for texts of about 10 s, one after another, through the real scheduler, until `seconds` have passed; those that
are being spoken then are heard to the end. Every listener has a seed and a client name of its own. Playback is simulated
from the times at which chunks come: it starts with the first, and runs dry when the next one comes too late.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cosy_engine.bench import TOKENS, Bench
from cosy_engine.scheduling.session import Job, SegmentJob, Session
from cosy_engine.scheduling.worker import Worker
from cosy_engine.stages import Stages

SAMPLE_S = 0.02  # how often the rows in use are looked at


@dataclass(frozen=True)
class Heard:
    """One request as its listener has it. first_s: to the first chunk. dry_s: silence in mid-playback; underruns: how often."""

    first_s: float
    audio_s: float
    underruns: int
    dry_s: float


@dataclass
class Load:
    """One number of listeners. first_ms: first audio, which is all of it where nothing is streamed. rtf: wall time over the
    audio of all; least_share: audio of the listener who got least over the mean. rows: mean number of rows in use."""

    precision: str
    tier: str
    listeners: int
    stream: bool
    requests: int = 0
    first_ms_p50: float = 0.0
    first_ms_p95: float = 0.0
    rtf: float = 0.0
    underruns: int = 0
    dry_s: float = 0.0
    rows: float = 0.0
    least_share: float = 0.0
    audio_s: float = 0.0
    seconds: float = 0.0
    steps: int = 0
    error: str = ""


@dataclass
class Playback:
    """A listener's player (pure): `chunk` at the time it comes."""

    asked_s: float
    first_s: float | None = None
    ends_s: float = 0.0
    audio_s: float = 0.0
    underruns: int = 0
    dry_s: float = 0.0

    def chunk(self, now_s: float, seconds: float) -> None:
        if self.first_s is None:
            self.first_s, self.ends_s = now_s - self.asked_s, now_s
        elif now_s > self.ends_s:
            self.underruns += 1
            self.dry_s += now_s - self.ends_s
            self.ends_s = now_s
        self.ends_s += seconds
        self.audio_s += seconds

    def heard(self) -> Heard:
        return Heard(self.first_s or 0.0, self.audio_s, self.underruns, self.dry_s)


@dataclass
class _Crowd:
    """What all listeners share."""

    worker: Worker
    stages: Stages
    bench: Bench
    stream: bool
    until_s: float
    heard: dict[int, list[Heard]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def listen(self, number: int) -> None:
        mine = self.heard.setdefault(number, [])
        try:
            while not mine or time.perf_counter() < self.until_s:
                mine.append(self._request(number, len(mine)))
        except Exception as error:  # one listener's failure must not hide the others' figures
            self.errors.append(f"{type(error).__name__}: {error}")

    def _request(self, number: int, turn: int) -> Heard:
        bench = self.bench
        segment = SegmentJob("bench", (), tuple(bench.text), fixed_tokens=TOKENS)
        job = Job(
            (segment,),
            bench.voice,
            True,
            1000 * number + turn,
            bench.spec.mel.rate_hz,
            stream=self.stream,
            client=str(number),
        )
        player = Playback(time.perf_counter())
        session = Session(job, self.stages, time.perf_counter)
        self.worker.submit(session)
        for chunk in session.audio():
            player.chunk(time.perf_counter(), len(chunk.samples) / chunk.rate_hz)
        return player.heard()


def measure(bench: Bench, precision: str, tier: str, listeners: int, seconds: float, stream: bool) -> Load:
    """Serve `listeners` at once for `seconds`, after one request has warmed everything up."""
    load = Load(precision, tier, listeners, stream)
    stages = bench.shelf.at(precision, tier)
    for chore in bench.shelf.chores(precision, tier):
        chore()
    worker = Worker(listeners, listeners)
    try:
        warm = _Crowd(worker, stages, bench, stream, 0.0)
        warm.listen(listeners)
        began, steps = time.perf_counter(), worker.steps
        crowd = _Crowd(worker, stages, bench, stream, began + seconds)
        threads = [threading.Thread(target=crowd.listen, args=(i,)) for i in range(listeners)]
        for thread in threads:
            thread.start()
        rows = []
        while any(thread.is_alive() for thread in threads):
            rows.append(worker.rows())
            time.sleep(SAMPLE_S)
        load.seconds, load.steps = time.perf_counter() - began, worker.steps - steps
    finally:
        worker.close()
    load.error = (warm.errors + crowd.errors + [""])[0]
    shares = [sum(one.audio_s for one in mine) for mine in crowd.heard.values()]
    heard = [one for mine in crowd.heard.values() for one in mine]
    if heard:
        firsts = [1000 * one.first_s for one in heard]
        load.requests, load.audio_s = len(heard), sum(shares)
        load.first_ms_p50, load.first_ms_p95 = (float(np.percentile(firsts, at)) for at in (50, 95))
        load.rtf = load.seconds / load.audio_s
        load.underruns, load.dry_s = sum(one.underruns for one in heard), sum(one.dry_s for one in heard)
        load.rows, load.least_share = float(np.mean(rows)), min(shares) / (sum(shares) / len(shares))
    return load


def line(load: Load) -> str:
    """For people."""
    if load.error:
        return f"{load.tier:6} {load.precision}, {load.listeners} at once: did not finish: {load.error}"
    return (
        f"{load.tier:6} {load.precision}, {load.listeners} at once{', streamed' if load.stream else ''}: first audio "
        f"{load.first_ms_p50:.0f} ms (p95 {load.first_ms_p95:.0f}), RTF of all {load.rtf:.4f}, {load.underruns} underruns "
        f"({load.dry_s:.1f} s), {load.rows:.1f} rows, least share {load.least_share:.2f}, {load.requests} requests in {load.seconds:.1f} s"
    )


def as_data(loads: list[Load], facts: dict[str, Any], what: str) -> dict[str, Any]:
    """The JSON form."""
    return {"what": what, "machine": facts, "loads": [asdict(load) for load in loads]}
