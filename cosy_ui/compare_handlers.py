"""Events of the Compare tab."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from cosy_engine import CosyError
from cosy_engine.compare import Comparison, EngineSubject, Step, Variant
from cosy_engine.compare.command import machine_facts, versions
from cosy_engine.errors import Cancelled
from cosy_ui import cards
from cosy_ui.compare_cards import results, variant_name
from cosy_ui.compare_table import CompareTable, Kept
from cosy_ui.entrance import owner_of
from cosy_ui.guests import client_of
from cosy_ui.handlers import FORM, Handlers
from cosy_ui.messages import error_words
from cosy_ui.words import language, say

log = logging.getLogger(__name__)

SHORT_VARIANTS, SHORT_CHARS = 2, 120  # of a comparison that a stranger may start
MOST_RUNS = 9


class CompareHandlers:
    """Bound to the Clone tab's handlers, which read its form."""

    def __init__(self, handlers: Handlers, table: CompareTable):
        self.handlers, self.engine, self.table = handlers, handlers.engine, table
        self.shared = handlers.shared

    def compare(
        self, request: gr.Request, consent: bool, whole: list[str], streamed: list[str], baseline: str | None, runs: float, anyway: bool,
        *values: Any,
    ) -> Iterator[tuple[Any, Any]]:  # fmt: skip
        """(status, results) as they come. values: those of the Clone tab's FORM."""
        form, lang, owner = dict(zip(FORM, values, strict=True)), language(request), owner_of(request)
        began = time.monotonic()
        refusal = self._refusal(consent, [*(whole or []), *(streamed or [])], form, lang)
        if refusal:
            yield cards.status(refusal, kind="bad"), gr.skip()
            return
        yield cards.status(say("cmp_machine", lang)), gr.skip()
        kept = ticket = None
        try:
            ticket = self.handlers.guests.begin(client_of(request))
            subject = EngineSubject(self.engine, self.handlers.request(form, owner))
            comparison = Comparison(
                subject,
                [Variant.parse(text) for text in (*(whole or ()), *(streamed or ()))],
                baseline=Variant.parse(baseline) if baseline else None,
                runs=1 if self.shared else max(1, min(MOST_RUNS, int(runs or 1))),
                anyway=anyway is True and not self.shared,
            )
            machine, predicted = machine_facts(subject)
            kept = Kept(owner, comparison, machine, versions(), predicted)
            self.table.keep(kept)
            shown = 0
            for step in comparison.steps():
                done = sum(len(o.runs) + bool(o.error) for o in kept.outcomes)
                new = done > shown or step.doing == "done"
                shown = done
                yield self._progress(step, lang), results(kept, lang) if new else gr.skip()
            self.table.learn(comparison)
            words = say("cmp_done", lang, runs=comparison.runs, seconds=f"{time.monotonic() - began:.0f}")
            yield cards.status(words, kind="idle"), results(kept, lang)
        except Cancelled:
            yield cards.status(say("cmp_stopped", lang), kind="idle"), results(kept, lang) if kept else gr.skip()
        except Exception as error:
            if not isinstance(error, CosyError):
                log.exception("a comparison failed")
            yield cards.status(error_words(error, lang), kind="bad"), gr.skip()
        finally:
            if kept:
                kept.comparison.stop()
            if ticket:
                ticket.end()

    def stop(self, request: gr.Request) -> None:
        self.table.stop(owner_of(request))

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.table.leave(owner_of(request))

    def _refusal(self, consent: bool, chosen: list[str], form: dict[str, Any], lang: str) -> str:
        if self.shared and consent is not True:
            return say("consent_missing", lang)
        if not chosen:
            return say("cmp_none", lang)
        if self.shared and len(chosen) > SHORT_VARIANTS:
            return say("cmp_short_variants", lang, variants=SHORT_VARIANTS)
        if self.shared and len(form["text"] or "") > SHORT_CHARS:
            return say("cmp_short_text", lang, chars=SHORT_CHARS)
        return ""

    def _progress(self, step: Step, lang: str) -> str:
        if step.doing == "waiting":
            return cards.status(say("cmp_waiting", lang))
        key = "cmp_running" if step.doing == "done" else f"cmp_{step.doing}"
        words = say(key, lang, variant=variant_name(step.variant, lang)) if step.variant else ""
        of = say("cmp_of", lang, done=min(step.done + 1, step.total), total=step.total)
        return cards.status(" · ".join(filter(None, (words, of))), step.done / step.total)
