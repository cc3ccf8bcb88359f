"""Who comes next, and how long the others wait (pure: no torch, no clock, no threads). Times are seconds of one clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALIKE = 0.75  # renderings padded by more than a third are better made alone
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
    playing: whether somebody hears the stream already. first: whether it is the first sound of a stream. prefill: whether it is
    one. order: of a rendering, what the flow is to solve, where it can solve several at once (stages.GroupingFlow).
    """

    due_s: float
    playing: bool = False
    first: bool = False
    prefill: bool = False
    order: Any = None


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


def ranked(pieces: Sequence[Piece], urgent_s: float) -> list[int]:
    """Indices of pieces in the order in which the device does them: a listener who would run dry before `urgent_s`; then
    prefills, which are short and after which a request is decoded together with the others; then what is due first."""

    def key(i: int) -> tuple[bool, bool, float]:
        piece = pieces[i]
        return not (piece.playing and piece.due_s < urgent_s), not piece.prefill, piece.due_s

    return sorted(range(len(pieces)), key=key)


def together(sizes: Sequence[int | None], groups: Callable[[int], Sequence[int]], most: int) -> int:
    """How many of ranked renderings are made at once, the first with those next to it, up to `most`. sizes: to what each is padded,
    None where it must be alone. groups: largest size -> numbers that can be made at once."""
    for count in range(min(most, len(sizes)), 1, -1):
        if None not in sizes[:count] and count in groups(max(sizes[:count])):
            return count
    return 1


def most_together(first: bool, running: int) -> int:
    """Renderings made at once: any number of first sounds, for which all wait anyway; else an eighth of those who have slots, and
    two at least. More save time, but whoever comes meanwhile waits for all of them."""
    return running if first else max(2, running // 8)


def near(size: int | None, first: int | None) -> bool:
    """Whether renderings of these sizes are alike enough to be padded to the larger one."""
    return size is not None and first is not None and min(size, first) >= ALIKE * max(size, first)


def launches(piece_s: float, launch_s: float, sounds: int = 0, tokens: int = 0) -> int:
    """How many decode launches go before a piece, while more pieces wait: a quarter of its time, or decoding starves.

    sounds: first sounds that are being rendered and near which nobody runs dry: none, for their tokens are there. tokens: launches
    that somebody's first sound still needs: all of them, so that it waits for this piece only.
    """
    if sounds:
        return 0
    share = max(1, min(4, int(0.25 * piece_s / launch_s))) if launch_s > 0 else 1
    return max(share, tokens)


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
