"""Who comes next, and how long the others wait (pure: no torch, no clock, no threads). Times are seconds of one clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS_PER_TEXT_ID = 0.2  # what reading takes: 5 speech tokens of 25 a second


@dataclass(frozen=True)
class Waiting:
    """A request that wants a slot. dry_s: of a stream between two segments, when its listener has nothing left to hear."""

    client: str
    dry_s: float = math.inf


@dataclass(frozen=True)
class Piece:
    """Device work of a request that has a slot: a prefill or a rendering.

    due_s: of a stream, when its listener has nothing left to hear, and before its first sound when it was asked for; else
    now and the seconds of audio that the piece is for, so that a word goes before a page and the page still has its turn.
    playing: whether somebody hears the stream already.
    """

    due_s: float
    playing: bool = False


def line(waiting: Sequence[Waiting], running: Sequence[str], served: Mapping[str, int], urgent_s: float) -> list[int]:
    """Indices of `waiting` in the order in which they get slots.

    First streams that run dry before `urgent_s`. Then fair over clients, not over requests: whoever has the fewest running,
    then whoever was served longest ago (served: client -> number of its last slot), in order of arrival within a client. So
    a client with a hundred requests delays another's only request by one segment. Requests without a client name share
    the name "".
    """
    busy = Counter(running)
    keys = []
    for i, one in enumerate(waiting):
        keys.append((one.dry_s >= urgent_s, busy[one.client], served.get(one.client, -1), i))
        busy[one.client] += 1
    return sorted(range(len(waiting)), key=keys.__getitem__)


def next_piece(pieces: Sequence[Piece], urgent_s: float) -> int:
    """Index of the piece that the device does now: a listener who would run dry before `urgent_s`, else what is due first."""
    return min(
        range(len(pieces)), key=lambda i: (not (pieces[i].playing and pieces[i].due_s < urgent_s), pieces[i].due_s)
    )


def launches(piece_s: float, launch_s: float) -> int:
    """How many decode launches go before a piece, while more pieces wait: a quarter of its time, or decoding starves."""
    return max(1, min(4, int(0.25 * piece_s / launch_s))) if launch_s > 0 else 1


@dataclass(slots=True)
class Rate:
    """Seconds of audio that the device makes in a second of work; what is older than some half-lives is forgotten."""

    half_life_s: float = 20.0
    made_s: float = 0.0
    busy_s: float = 0.0

    def add(self, made_s: float, busy_s: float) -> None:
        keep = 0.5 ** (busy_s / self.half_life_s)
        self.made_s, self.busy_s = self.made_s * keep + made_s, self.busy_s * keep + busy_s

    @property
    def per_s(self) -> float | None:
        """None before anything was made."""
        return self.made_s / self.busy_s if self.made_s > 0 and self.busy_s > 0 else None


def starts_s(running: Sequence[float], waiting: Sequence[float], slots: int, per_s: float) -> list[float]:
    """Seconds until each of the waiting gets a slot. Requests are told by the seconds of audio they still need, waiting ones
    in their order; those in slots share the device equally, which makes `per_s` seconds of audio a second."""
    left, now, found = sorted(running), 0.0, []
    for need in waiting:
        while len(left) >= max(1, slots):
            first = left.pop(0)
            now += first * (len(left) + 1) / per_s
            left = [one - first for one in left]
        found.append(now)
        left = sorted([*left, need])
    return found
