"""Layout of the Clone tab and its wiring. Which inputs a mode shows is drawn from the engine's mode table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import soundfile

from cosy_engine import MODES
from cosy_engine.settings.engine_config import PRECISIONS, TIERS
from cosy_ui import cards
from cosy_ui.handlers import FORM, Handlers, drawn_seed
from cosy_ui.words import WORDS, language, say

EMPTY_LINE = "\u00a0"  # keeps the place of a line that comes later
QUIET = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def _example(path: str, spoken: str) -> tuple[tuple[int, np.ndarray], str, str]:
    """An example's sound and words, which are those of the clip that comes; as samples, for Gradio serves no file that lies outside its own folders."""
    samples, rate_hz = soundfile.read(path, dtype="int16")
    return (rate_hz, samples), spoken, ""


def _example_name(stem: str, words: gr.I18n) -> Any:
    """In the reader's language for those that come with the program; an operator's own keep their name."""
    return words(f"example_{stem}") if f"example_{stem}" in WORDS else stem


class CloneTab:
    """Components by the names of handlers.FORM and handlers.SHOWS, and a few more."""

    def __init__(self, handlers: Handlers, words: gr.I18n, examples: list[list[str]]):
        engine, self.shared = handlers.engine, handlers.shared
        self.mode = gr.Radio(
            [(words(name), name) for name in engine.modes], value="zero_shot", label=words("mode"), elem_id="mode"
        )
        self.mode_hint = gr.HTML(apply_default_css=False, elem_id="mode-hint")
        with gr.Row(equal_height=False):
            with gr.Column(scale=1, min_width=320):
                self._reference(words, handlers, examples)
            with gr.Column(scale=1, min_width=320):
                self._words(words)
                with gr.Accordion(words("settings"), open=False, elem_id="settings"):
                    self._settings(words, engine)
                self._run(words, handlers)
        with gr.Accordion(words("history"), open=True, elem_id="history-box"):
            self.history = gr.HTML(apply_default_css=False, elem_id="history")
        self.clip_refused, self.source_refused, self.words_of = gr.State(False), gr.State(False), gr.State("")
        self.window = gr.Textbox("", visible="hidden", elem_id="window")
        self.player = gr.Textbox("", visible="hidden", elem_id="player")
        self.job = gr.Textbox("", visible="hidden", elem_id="job")
        self.act_redo = gr.Textbox("", visible="hidden", elem_id="act-redo")
        self.act_copy = gr.Textbox("", visible="hidden", elem_id="act-copy")

    def _reference(self, words: gr.I18n, handlers: Handlers, examples: list[list[str]]) -> None:
        compact = gr.WaveformOptions(show_recording_waveform=False)  # the card below draws the clip
        with gr.Column(elem_id="source-box", visible=False) as self.source_box:
            self.source = gr.Audio(
                sources=["upload", "microphone"], type="filepath", label=words("source"), buttons=[], elem_id="source",
                waveform_options=compact,
            )  # fmt: skip
            self.source_note = gr.HTML(apply_default_css=False, elem_id="source-note")
        with gr.Column(elem_id="reference-box") as self.reference_box:
            self.reference = gr.Audio(
                sources=["upload", "microphone"], type="filepath", label=words("reference"), buttons=[],
                elem_id="reference", waveform_options=compact,
            )  # fmt: skip
            with gr.Row(elem_id="examples", visible=bool(examples)):
                gr.Markdown(words("examples"), elem_id="examples-label")
                self.examples = [
                    (gr.Button(_example_name(Path(clip).stem, words), size="sm", scale=0, min_width=64), clip, spoken)
                    for clip, spoken in examples
                ]
            self.wave = gr.HTML(apply_default_css=False, elem_id="clip-wave")
            self.facts = gr.HTML(apply_default_css=False, elem_id="clip-facts")
        with gr.Column(visible=False, elem_id="voice-box") as self.voice_box:
            self.voice = gr.Dropdown([], label=words("voice"), elem_id="voice")
        with gr.Column(elem_id="transcript-box") as self.transcript_box:
            self.transcript = gr.Textbox(
                label=words("transcript"), info=words("transcript_hint"), lines=2, elem_id="transcript"
            )
            self.words_gone = gr.HTML(apply_default_css=False, elem_id="words-gone")
            with gr.Row(elem_id="transcribe-row"):
                self.transcribe = gr.Button(
                    words("transcribe"), size="sm", scale=0, min_width=130, elem_id="transcribe",
                    interactive=not handlers.transcriber.unavailable,
                )  # fmt: skip
                self.transcribe_why = gr.HTML(apply_default_css=False, elem_id="transcribe-why")
            self.transcript_note = gr.HTML(apply_default_css=False, elem_id="transcript-note")

    def _words(self, words: gr.I18n) -> None:
        with gr.Column(elem_id="text-box") as self.text_box:
            self.text = gr.Textbox(
                label=words("text"), info=EMPTY_LINE, lines=4, max_lines=14, elem_id="text"
            )  # what the model speaks is said on arrival
            self.marks = gr.HTML(apply_default_css=False, elem_id="marks")
            self.parts = gr.HTML(apply_default_css=False, elem_id="parts")
        with gr.Column(visible=False, elem_id="instruction-box") as self.instruction_box:
            self.instruction = gr.Textbox(
                label=words("instruction"), info=words("instruction_hint"), elem_id="instruction"
            )

    def _run(self, words: gr.I18n, handlers: Handlers) -> None:
        with gr.Column(visible=handlers.shared, elem_id="consent-box"):
            gr.Markdown(words("consent_line"), elem_id="consent-line")
            self.consent = gr.Checkbox(not handlers.shared, label=words("consent"), elem_id="consent")
        with gr.Row(elem_id="actions"):
            self.generate = gr.Button(words("generate"), variant="primary", elem_id="generate", min_width=120, scale=2)
            self.stop = gr.Button(words("stop"), variant="stop", elem_id="stop", min_width=100, scale=1)
        self.status = gr.HTML(apply_default_css=False, elem_id="status")
        self.audio = gr.Audio(
            label=words("result"),
            format="wav",
            interactive=False,
            buttons=["download"],
            elem_id="result",
            visible=False,
        )
        self.fallback = (
            gr.Audio(
                label=words("fallback"), streaming=True, autoplay=True, interactive=False, buttons=[], elem_id="fallback",
                visible=False,
            )
            if handlers.hls
            else None
        )  # fmt: skip
        self.card = gr.HTML(apply_default_css=False, elem_id="result-card")

    def _settings(self, words: gr.I18n, engine: Any) -> None:
        self.stream = gr.Checkbox(True, label=words("stream"), info=words("stream_hint"), elem_id="stream")
        self.speed = gr.Slider(
            0.5, 2.0, 1.0, step=0.05, label=words("speed"), info=words("speed_hint"), interactive=False, elem_id="speed"
        )
        with gr.Row(equal_height=True, elem_id="seed-row"):
            self.seed = gr.Textbox(
                "", label=words("seed"), info=words("seed_drawn"), elem_id="seed", min_width=120, scale=2
            )
            with gr.Column(min_width=140, scale=1):
                self.dice = gr.Button(words("dice"), size="sm", elem_id="dice", min_width=100)
                self.lock = gr.Checkbox(False, label=words("lock"), elem_id="lock", min_width=100, container=False)
        self.precision = gr.Radio(
            [(name, name) for name in PRECISIONS],
            value=engine.config.precision,
            label=words("precision"),
            elem_id="precision",
            visible=not self.shared,  # strangers switch no models
        )
        self.tier = gr.Radio(
            [(words(name), name) for name in TIERS], value=engine.tier, label=words("tier"), elem_id="tier",
            visible=not self.shared,
        )  # fmt: skip
        self.cannot = gr.HTML(apply_default_css=False, elem_id="cannot")

    def components(self, names: tuple[str, ...]) -> list[Any]:
        """By name; "result" is the card under the player."""
        return [self.card if name == "result" else getattr(self, name) for name in names]

    def wire(self, handlers: Handlers) -> None:
        """Connect the components to the handlers."""
        engine = handlers.engine
        form, shows = self.components(FORM), self.components(handlers.shows)
        clip = [self.reference, self.window, self.transcript, self.mode]
        rate = engine.spec.mel.rate_hz

        boxes = {
            name: getattr(self, f"{name}_box")
            for name in ("reference", "transcript", "text", "instruction", "source", "voice")
        }

        def shown(mode: str, request: gr.Request) -> list[Any]:
            """Its hint, and which boxes a mode asks for; a saved voice takes the place of the clip."""
            row = MODES[mode]
            uses = {*row.asks, *row.accepts}
            if mode == "saved_voice":
                uses = uses - {"reference"} | {"voice"}
            if "instruct" not in engine.modes:
                uses -= {"instruction"}
            return [cards.mode_hint(mode, language(request)), *(gr.update(visible=name in uses) for name in boxes)]

        for button, path, spoken in self.examples:
            button.click(
                partial(_example, path, spoken), None, [self.reference, self.transcript, self.words_of], **QUIET
            )
        self.mode.change(shown, self.mode, [self.mode_hint, *boxes.values()], **QUIET)
        queued = QUIET | {"queue": True, "concurrency_limit": 4}
        self.reference.change(
            handlers.hear, [*clip, self.clip_refused, self.words_of],
            [self.wave, self.facts, self.window, self.transcript_note, self.reference, self.clip_refused, self.transcript,
             self.words_of, self.words_gone], **queued,
        )  # fmt: skip
        self.source.change(
            handlers.hear_source, [self.source, self.source_refused], [self.source_note, self.source, self.source_refused],
            **queued,
        )  # fmt: skip
        self.window.change(
            handlers.part_moved, clip, [self.facts, self.transcript_note], trigger_mode="always_last", **QUIET
        )
        self.transcript.blur(handlers.check_transcript, clip, self.transcript_note, **QUIET)
        self.transcribe.click(
            handlers.transcribe, clip, [self.transcript, self.transcript_note], api_visibility="private",
            show_progress_on=self.transcript, concurrency_limit=1,
        )  # fmt: skip
        self.text.change(handlers.preview, [self.text, self.mode], self.parts, trigger_mode="always_last", **QUIET)

        def speed_for(stream: bool, request: gr.Request) -> Any:
            hint = say("speed_hint" if stream else "speed_hint_on", language(request))
            return gr.update(interactive=not stream, info=hint, **({"value": 1.0} if stream else {}))

        self.stream.change(speed_for, self.stream, self.speed, **QUIET)

        def seed_for(lock: bool, request: gr.Request) -> Any:
            return gr.update(info=say("seed_kept" if lock else "seed_drawn", language(request)))

        self.lock.change(seed_for, self.lock, self.seed, **QUIET)
        self.dice.click(lambda: (drawn_seed(), True), None, [self.seed, self.lock], **QUIET)

        running = {"concurrency_limit": engine.config.slots + engine.config.queue, "concurrency_id": "speak",
                   "show_progress": "hidden", "trigger_mode": "multiple", "api_visibility": "private"}  # fmt: skip
        stamp = "() => window.cosyPlayer.stamp()"
        self.generate.click(
            handlers.generate, [self.consent, self.player, *form], shows,
            js=f"(...values) => {{ window.cosyPlayer.click({rate}); return values; }}", **running,
        ).then(None, None, None, js=stamp)  # fmt: skip
        self.job.change(None, self.job, None, js="(id) => { window.cosyPlayer.play(id); }")
        # Stop only raises a flag: the running event itself says "Stopped." last, so no late progress can hide it.
        self.stop.click(handlers.stop, None, None, js="() => window.cosyPlayer.stop()", **QUIET)
        self.act_redo.change(handlers.redo, self.act_redo, shows, **running)
        self.act_copy.change(handlers.copy, self.act_copy, [self.status, self.words_of, *form], **QUIET)
