"""Layout of the Compare tab and its wiring."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosy_engine.compare import Variant
from cosy_engine.compare.outcome import ALL_VARIANTS
from cosy_engine.settings.engine_config import TIERS
from cosy_ui.clone_tab import QUIET, CloneTab
from cosy_ui.compare_handlers import MOST_RUNS, CompareHandlers
from cosy_ui.handlers import FORM


class CompareTab:
    """Which variants, how often, against what; then the results. What cannot run here is shown greyed by page script."""

    def __init__(self, handlers: CompareHandlers, words: gr.I18n):
        engine, shared = handlers.engine, handlers.shared
        here = [v for v in ALL_VARIANTS if not {v.tier, v.precision} & set(engine.unavailable)]
        gr.Markdown(words("cmp_intro"), elem_id="cmp-intro")
        self.short = gr.HTML(apply_default_css=False, elem_id="cmp-short")
        with gr.Row(equal_height=False):
            self.whole = self._choice(
                "cmp_whole", "cmp-whole", False, self._first(here, engine.config.precision), words
            )
            self.streamed = self._choice("cmp_streamed", "cmp-streamed", True, [], words)
        self.cannot = gr.HTML(apply_default_css=False, elem_id="cmp-cannot")
        with gr.Row(equal_height=True):
            self.baseline = gr.Dropdown(
                [(f"{v.tier} {v.precision}{' stream' if v.stream else ''}", v.id) for v in here], value=here[0].id,
                label=words("cmp_baseline"), elem_id="cmp-baseline", min_width=200,
            )  # fmt: skip
            self.runs = gr.Slider(1, MOST_RUNS, 1 if shared else 3, step=1, label=words("cmp_runs"), elem_id="cmp-runs",
                                  visible=not shared, min_width=200)  # fmt: skip
        self.anyway = gr.Checkbox(False, label=words("cmp_anyway"), elem_id="cmp-anyway", visible=not shared)
        with gr.Row(elem_id="cmp-actions"):
            self.start = gr.Button(words("cmp_start"), variant="primary", elem_id="cmp-start", min_width=120, scale=2)
            self.stop = gr.Button(words("stop"), elem_id="cmp-stop", min_width=100, scale=1)
        self.status = gr.HTML(apply_default_css=False, elem_id="cmp-status")
        self.results = gr.HTML(apply_default_css=False, elem_id="cmp-results")

    @staticmethod
    def _first(here: list[Variant], precision: str) -> list[str]:
        """Chosen to begin with: the plainest variant and every tier in the engine's own precision."""
        return list(dict.fromkeys([here[0].id, *(v.id for v in here if v.precision == precision and not v.stream)]))

    @staticmethod
    def _choice(key: str, elem_id: str, stream: bool, chosen: list[str], words: gr.I18n) -> gr.CheckboxGroup:
        ways = [v for tier in TIERS for v in ALL_VARIANTS if v.tier == tier and v.stream == stream]
        return gr.CheckboxGroup(
            [(f"{v.tier} {v.precision}", v.id) for v in ways],
            value=chosen,
            label=words(key),
            elem_id=elem_id,
            min_width=280,
        )

    def wire(self, handlers: CompareHandlers, clone: CloneTab) -> None:
        """Connect the components to the handlers."""
        form: list[Any] = clone.components(FORM)
        self.start.click(
            handlers.compare,
            [clone.consent, self.whole, self.streamed, self.baseline, self.runs, self.anyway, *form],
            [self.status, self.results],
            concurrency_limit=1, concurrency_id="compare", show_progress="hidden", api_visibility="private",
            api_name="page_compare",  # the plain name is the programs'
        )  # fmt: skip
        self.stop.click(handlers.stop, None, None, **QUIET)
