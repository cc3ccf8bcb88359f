"""Layout of the Doctor tab and its wiring."""

from __future__ import annotations

import gradio as gr

from cosy_ui.doctor_handlers import DoctorHandlers


class DoctorTab:
    """The live panel, a button, and what the examination found."""

    def __init__(self, words: gr.I18n):
        gr.Markdown(words("doc_intro"), elem_id="doc-intro")
        self.live = gr.HTML(apply_default_css=False, elem_id="doc-live")
        with gr.Row(elem_id="doc-actions"):
            self.start = gr.Button(words("doc_start"), variant="primary", elem_id="doc-start", min_width=160)
        self.status = gr.HTML(apply_default_css=False, elem_id="doc-status")
        self.report = gr.HTML(apply_default_css=False, elem_id="doc-report")
        self.copy = gr.HTML(apply_default_css=False, elem_id="doc-copy")

    def wire(self, handlers: DoctorHandlers) -> None:
        """Connect the components to the handlers."""
        self.start.click(
            handlers.examine, None, [self.status, self.report, self.copy], concurrency_limit=1, concurrency_id="doctor",
            show_progress="hidden", api_visibility="private",
        )  # fmt: skip
