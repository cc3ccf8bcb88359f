"""Layout of the Voices tab and its wiring."""

from __future__ import annotations

import gradio as gr

from cosy_ui.clone_tab import QUIET, CloneTab
from cosy_ui.voice_handlers import VoiceHandlers


class VoicesTab:
    """Save the clip of the Clone tab, import a file, and the list of voices."""

    def __init__(self, words: gr.I18n, shared: bool):
        """shared: consent is asked before a voice is kept."""
        gr.Markdown(words("voices_intro"), elem_id="voices-intro")
        with gr.Column(visible=shared, elem_id="voices-consent-box"):
            gr.Markdown(words("consent_line"), elem_id="voices-consent-line")
            self.consent = gr.Checkbox(not shared, label=words("consent"), elem_id="voices-consent")
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=280):
                self.name = gr.Textbox(label=words("voice_name"), info=words("voice_name_hint"), elem_id="voice-name")
            with gr.Column(scale=1, min_width=200):
                self.save = gr.Button(words("voice_save"), variant="primary", elem_id="voice-save")
                self.file = gr.UploadButton(
                    words("voice_import"), file_types=[".safetensors"], elem_id="voice-import", variant="secondary"
                )
        self.status = gr.HTML(apply_default_css=False, elem_id="voice-status")
        self.listed = gr.HTML(apply_default_css=False, elem_id="voices")
        self.act = gr.Textbox("", visible="hidden", elem_id="act-voice")

    def wire(self, handlers: VoiceHandlers, clone: CloneTab, tabs: gr.Tabs) -> None:
        """Connect the components to the handlers."""
        shows = [self.status, self.listed, clone.voice]
        quiet = QUIET | {"queue": True}
        clip = [clone.reference, clone.window, clone.transcript]
        self.save.click(handlers.save, [self.consent, self.name, *clip], shows, **quiet)
        self.file.upload(handlers.load, [self.consent, self.file], shows, **quiet)
        self.act.change(handlers.act, [self.act, clone.voice], [*shows, clone.mode, tabs], **QUIET)
        for asked, other in ((self.consent, clone.consent), (clone.consent, self.consent)):  # given once, it is given
            asked.input(None, asked, other, js="(given) => given", api_visibility="private")
