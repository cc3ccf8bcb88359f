"""What became of the requests: counted for `/metrics`, and one log line each, without a word of what was said."""

from __future__ import annotations

import logging
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from cosy_engine import CosyError, Engine, Report
from cosy_engine.errors import Busy, Cancelled, UserError
from cosy_ui.guests import Guests

log = logging.getLogger(__name__)

FIRST_AUDIO_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
RTF = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 5)


class Ledger:
    """One for each program. registry: its figures only, so that two pages in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._ended = Counter("cosy_requests", "requests that ended", ("source", "outcome"), registry=self.registry)
        self._audio = Counter("cosy_audio_seconds", "seconds of speech made", registry=self.registry)
        self._compute = Counter("cosy_compute_seconds", "seconds of computing for it", registry=self.registry)
        self._first = Histogram(
            "cosy_first_audio_seconds", "request in to first audio out", buckets=FIRST_AUDIO_S, registry=self.registry
        )
        self._rtf = Histogram("cosy_rtf", "compute seconds / audio seconds", buckets=RTF, registry=self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def ended(self, source: str, mode: str, report: Report | None, error: Exception | None) -> None:
        """source: page, api or speech. report: of what was heard, also of a stopped request."""
        outcome = outcome_of(error)
        self._ended.labels(source, outcome).inc()
        fields: dict[str, Any] = {"source": source, "mode": mode, "outcome": outcome}
        if isinstance(error, CosyError):
            fields["code"] = error.code
        if report is not None and report.audio_s:
            rtf = report.compute_s / report.audio_s
            self._audio.inc(report.audio_s)
            self._compute.inc(report.compute_s)
            self._first.observe(report.first_audio_s)
            self._rtf.observe(rtf)
            fields |= {
                "audio_s": round(report.audio_s, 2),
                "first_audio_s": round(report.first_audio_s, 3),
                "rtf": round(rtf, 3),
            }
        log.info("request", extra={"fields": fields})


def outcome_of(error: Exception | None) -> str:
    if error is None:
        return "done"
    if isinstance(error, Cancelled):
        return "stopped"
    return "refused" if isinstance(error, (UserError, Busy)) else "failed"


class Now:
    """A collector: what the engine and the page hold at this moment."""

    def __init__(self, engine: Engine, guests: Guests, sessions: Any, jobs: Any):
        self.engine, self.guests, self.sessions, self.jobs = engine, guests, sessions, jobs

    def collect(self):
        snapshot = self.engine.snapshot()
        for name, words, value in (
            ("cosy_running", "requests in a slot", snapshot.running),
            ("cosy_waiting", "requests in the queue", snapshot.waiting),
            ("cosy_rows", "rows being decoded", snapshot.rows),
            ("cosy_rows_total", "rows that the pools have", snapshot.rows_total),
            (
                "cosy_warm_up_left",
                "pieces of warming up that are left",
                snapshot.captures_total - snapshot.captures_done,
            ),
            ("cosy_pages", "open pages", len(self.sessions)),
            ("cosy_jobs", "jobs that are remembered", len(self.jobs)),
        ):
            yield GaugeMetricFamily(name, words, value)
        yield CounterMetricFamily("cosy_decode_steps", "decode steps sent", snapshot.steps)
        refused = CounterMetricFamily("cosy_refused", "calls that were refused at the door", labels=("reason",))
        for reason, count in sorted(self.guests.refused.items()):
            refused.add_metric((reason,), count)
        yield refused
