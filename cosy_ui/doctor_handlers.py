"""Events of the Doctor tab."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from cosy_engine import Engine
from cosy_engine.errors import Busy
from cosy_engine.examine import examine
from cosy_engine.health.cost import LAYERS
from cosy_engine.health.doctor import diagnose, public
from cosy_engine.health.facts import Facts
from cosy_ui import cards
from cosy_ui.compare_table import CompareTable
from cosy_ui.doctor_cards import examination, report_box
from cosy_ui.messages import INTERNAL
from cosy_ui.words import language, say

log = logging.getLogger(__name__)

KEEP_S = 600.0  # strangers are shown an examination of the last ten minutes instead of starting another


class DoctorHandlers:
    """Bound to one engine. shared: strangers reach the page; they see nothing private and cannot keep the machine busy."""

    def __init__(self, engine: Engine, table: CompareTable, model: Path | None, shared: bool):
        self.engine, self.table, self.model, self.shared = engine, table, model, shared
        self._last: tuple[float, Facts] | None = None
        self._lock = threading.Lock()

    def examine(self, request: gr.Request) -> Iterator[tuple[Any, Any, Any]]:
        """(status, examination, report)."""
        lang = language(request)
        if busy := self._busy():
            yield cards.status(say("doc_busy", lang, count=busy), kind="bad"), gr.skip(), gr.skip()
            return
        yield cards.status(say("doc_running", lang)), gr.skip(), gr.skip()
        began = time.monotonic()
        try:
            facts = self._facts()  # not facts(): what arrives from here on is the page's own
        except Exception:
            log.exception("the doctor failed")
            yield cards.status(INTERNAL[lang == "zh"], kind="bad"), gr.skip(), gr.skip()
            return
        verdicts = diagnose(facts)
        words = say("doc_done", lang, seconds=f"{time.monotonic() - began:.0f}", count=len(verdicts))
        yield cards.status(words, kind="idle"), examination(facts, verdicts, lang), report_box(facts, verdicts, lang)

    def facts(self) -> Facts:
        """For programs. Raises: Busy: requests are being served."""
        if busy := self._busy():
            raise Busy(say("doc_busy", "en", count=busy))
        return self._facts()

    def _busy(self) -> int:
        """Requests whose time a measurement would take; none where an earlier one is shown."""
        return 0 if self.shared and self._last else sum(self.engine.worker.load())

    def _facts(self) -> Facts:
        with self._lock:
            if self.shared and self._last and time.monotonic() - self._last[0] < KEEP_S:
                return self._last[1]
            engine = self.engine
            known = {
                "tier": engine.tier,
                "precision": engine.config.precision,
                "batch": None if engine.config.slots > 1 else 1,
            }
            if engine.spec.llm.layers == LAYERS:  # figures of a miniature say nothing about the published size
                known |= {"measured": dict(self.table.measured), "rtf": dict(self.table.rtf)}
            facts = examine(
                engine.shelf.device, self.model, encoder=engine.voices, on_device=engine.worker.call, **known
            )
            if self.shared:
                facts = public(facts)
            self._last = time.monotonic(), facts
            return facts
