"""Comparisons that open pages have made, and what the doctor may learn from the last one."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from cosy_engine.compare import Comparison, Outcome
from cosy_engine.compare.record import as_data

MOST_KEPT = 8  # of all pages; each holds some MB of sound


@dataclass(eq=False)
class Kept:
    """One comparison of one page. id: unguessable name of its files. machine, versions, predicted: as in record.as_data."""

    owner: str
    comparison: Comparison
    machine: dict[str, Any]
    versions: dict[str, str]
    predicted: dict[tuple[str, str], float]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self.comparison.outcomes.values())

    def data(self) -> dict[str, Any]:
        return as_data(self.comparison, self.machine, self.versions, self.predicted)


class CompareTable:
    """Comparisons by owner and id; a page keeps its last one. Safe to use from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()
        self.measured: dict[
            tuple[str, str], float
        ] = {}  # (tier, precision) -> ms per token, of the last one that ended
        self.rtf: dict[tuple[str, str], float] = {}

    def keep(self, kept: Kept) -> None:
        with self._lock:
            for name in [name for name, old in self._kept.items() if old.owner == kept.owner]:
                del self._kept[name]
            self._kept[kept.id] = kept
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)

    def find(self, name: str) -> Kept | None:
        with self._lock:
            return self._kept.get(name)

    def learn(self, comparison: Comparison) -> None:
        """Keep what whole-audio variants took, for the doctor."""
        for outcome in comparison.finished:
            variant = outcome.variant
            if not variant.stream and outcome.token_ms is not None:
                self.measured[variant.tier, variant.precision] = outcome.token_ms[0]
                self.rtf[variant.tier, variant.precision] = outcome.rtf[0]

    def stop(self, owner: str) -> None:
        """Stop what a page is comparing."""
        with self._lock:
            mine = [kept for kept in self._kept.values() if kept.owner == owner]
        for kept in mine:
            kept.comparison.stop()

    def leave(self, owner: str) -> None:
        """The page was closed: its comparison stops and is forgotten."""
        self.stop(owner)
        with self._lock:
            for name in [name for name, kept in self._kept.items() if kept.owner == owner]:
                del self._kept[name]
