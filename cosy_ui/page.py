"""The page: which inputs a mode shows is drawn from the engine's mode table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gradio as gr

from cosy_engine import MODES, Engine
from cosy_engine.settings.engine_config import PRECISIONS
from cosy_ui.handlers import Handlers, model_line
from cosy_ui.jobs import JobTable
from cosy_ui.words import i18n

ASSETS = Path(__file__).resolve().parent.parent / "assets" / "page"
PAGE_MODES = [name for name in MODES if name != "saved_voice"]  # saved voices have no shelf on this page yet
INPUTS = ("reference", "transcript", "text", "instruction", "source")


def build_page(engine: Engine, jobs: JobTable) -> gr.Blocks:
    """Blocks ready to launch with `launch_options()`."""
    handlers = Handlers(engine, jobs)
    say = i18n()
    rate = engine.spec.mel.rate_hz
    with gr.Blocks(title="Voice cloning", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.Markdown("# Voice cloning", elem_id="title")
        gr.Markdown(model_line(engine), elem_id="model")
        with gr.Row(equal_height=False):
            with gr.Column(scale=1, min_width=320):
                mode = gr.Dropdown(
                    [(say(name), name) for name in PAGE_MODES], value="zero_shot", label=say("mode"), elem_id="mode"
                )
                reference = gr.Audio(
                    sources=["upload", "microphone"],
                    type="filepath",
                    label=say("reference"),
                    buttons=[],
                    elem_id="reference",
                )
                transcript = gr.Textbox(
                    label=say("transcript"), info=say("transcript_hint"), lines=2, max_length=2000, elem_id="transcript"
                )
                text = gr.Textbox(label=say("text"), info=say("text_hint"), lines=4, max_length=5000, elem_id="text")
                instruction = gr.Textbox(
                    label=say("instruction"),
                    info=say("instruction_hint"),
                    visible=False,
                    max_length=500,
                    elem_id="instruction",
                )
                source = gr.Audio(
                    sources=["upload", "microphone"],
                    type="filepath",
                    label=say("source"),
                    buttons=[],
                    visible=False,
                    elem_id="source",
                )
            with gr.Column(scale=1, min_width=320):
                with gr.Row():
                    generate = gr.Button(say("generate"), variant="primary", elem_id="generate", min_width=120)
                    stop = gr.Button(say("stop"), variant="stop", elem_id="stop", min_width=120)
                status = gr.Markdown("", elem_id="status", min_height=28)
                audio = gr.Audio(
                    label=say("result"), format="wav", interactive=False, buttons=["download"], elem_id="result"
                )
                numbers = gr.Markdown("", elem_id="numbers")
                with gr.Accordion(say("settings"), open=True):
                    stream = gr.Checkbox(True, label=say("stream"), elem_id="stream")
                    precision = gr.Radio(
                        [(name, name) for name in PRECISIONS if name not in engine.unavailable],
                        value=engine.config.precision,
                        label=say("precision"),
                        info="; ".join(f"{name}: {why}" for name, why in engine.unavailable.items()) or None,
                        elem_id="precision",
                    )
                    with gr.Row():
                        seed = gr.Textbox("", label=say("seed"), info=say("seed_hint"), max_length=10, elem_id="seed")
                        speed = gr.Slider(
                            0.5,
                            2.0,
                            1.0,
                            step=0.05,
                            label=say("speed"),
                            info=say("speed_hint"),
                            interactive=False,
                            elem_id="speed",
                        )
        job_id = gr.Textbox("", visible="hidden", elem_id="job")

        fields = {
            "reference": reference,
            "transcript": transcript,
            "text": text,
            "instruction": instruction,
            "source": source,
        }
        mode.change(partial(_shown, tuple(fields)), mode, list(fields.values()), queue=False, api_visibility="private")
        stream.change(
            lambda on: gr.Slider(value=1.0, interactive=not on), stream, speed, queue=False, api_visibility="private"
        )
        generate.click(None, None, None, js=f"() => window.cosyPlayer.click({rate})").then(
            handlers.generate,
            [mode, reference, transcript, text, instruction, source, precision, stream, seed, speed],
            [status, job_id, audio, numbers],
            concurrency_limit=engine.config.slots + engine.config.queue,
            concurrency_id="speak",
            show_progress="minimal",
            show_progress_on=status,
            api_name="clone",
        )
        job_id.change(None, job_id, None, js="(id) => { window.cosyPlayer.play(id); }")
        # Stop only raises a flag: the running event itself says "Stopped." last, so no late progress can hide it.
        stop.click(
            handlers.stop, None, None, queue=False, js="() => window.cosyPlayer.stop()", api_visibility="private"
        )
        page.unload(handlers.leave)
    page.queue(max_size=engine.config.queue, default_concurrency_limit=8)
    return page


def launch_options() -> dict:
    """What `Blocks.launch` needs for this page."""
    return {
        "head": f"<script>{(ASSETS / 'player.js').read_text(encoding='utf-8')}</script>",
        "css": (ASSETS / "page.css").read_text(encoding="utf-8"),
        "i18n": i18n(),
        "max_file_size": "50mb",
        "show_error": False,
        "footer_links": [],
    }


def _shown(names: tuple[str, ...], mode: str) -> list[dict]:
    return [gr.update(visible=name in MODES[mode].asks) for name in names]
