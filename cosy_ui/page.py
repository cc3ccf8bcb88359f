"""The page: tabs, and what `launch` needs. Later tabs (comparison, doctor) get their own file beside clone_tab.py."""

from __future__ import annotations

import json
import shutil
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder
from starlette.middleware import Middleware

from cosy_engine import Engine
from cosy_engine.audio.transcribe import Transcriber
from cosy_engine.text.languages import NAMES
from cosy_ui import cards
from cosy_ui.clone_tab import CloneTab
from cosy_ui.compare_handlers import SHORT_CHARS, SHORT_VARIANTS, CompareHandlers
from cosy_ui.compare_routes import add_compare_routes
from cosy_ui.compare_tab import CompareTab
from cosy_ui.doctor_cards import live
from cosy_ui.doctor_handlers import DoctorHandlers
from cosy_ui.doctor_tab import DoctorTab
from cosy_ui.doctor_words import doctor_words
from cosy_ui.endpoints import Endpoints, add_endpoints
from cosy_ui.entrance import Page, owner_of
from cosy_ui.file_routes import add_file_routes
from cosy_ui.gate import Gate
from cosy_ui.guests import Guests
from cosy_ui.handlers import Handlers
from cosy_ui.health_routes import add_health_routes
from cosy_ui.jobs import JobTable
from cosy_ui.live_route import add_live_route
from cosy_ui.messages import note_words
from cosy_ui.session_files import SessionFiles
from cosy_ui.sessions import Sessions
from cosy_ui.sound_route import add_sound_route
from cosy_ui.speech_api import add_speech_api
from cosy_ui.voice_handlers import VoiceHandlers
from cosy_ui.voices_tab import VoicesTab
from cosy_ui.words import i18n, language, say

ICON = (  # drawn here, so that the page asks for no file at the host's root
    "data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 16 16%22%3E%3Cpath "
    "d=%22M2 6v4M5 3v10M8 5v6M11 2v12M14 6v4%22 stroke=%22%236366f1%22 stroke-width=%221.6%22/%3E%3C/svg%3E"
)
ASSETS = Path(__file__).resolve().parent.parent / "assets"


def build_page(
    engine: Engine,
    jobs: JobTable,
    sessions: Sessions,
    *,
    transcriber: Transcriber | None = None,
    examples: Path = ASSETS / "voices",
    model: Path | None = None,
) -> gr.Blocks:
    """Blocks ready to launch with `launch_options()`. On a shared page (jobs.guests.shared) consent is asked before anything is
    cloned. model: the folder that the engine came from, for the doctor."""
    hls = shutil.which("ffmpeg") is not None  # Gradio's own streaming needs it
    guests, shared = jobs.guests, jobs.guests.shared
    handlers = Handlers(engine, jobs, sessions, transcriber=transcriber, hls=hls)
    voices = VoiceHandlers(engine, sessions, handlers.clips, guests)
    comparing = CompareHandlers(handlers, sessions.comparisons)
    words = i18n()
    with Page(title="Clone a voice", analytics_enabled=False) as page:
        page.files = SessionFiles(Path(get_upload_folder()), handlers.clips.forget)
        sessions.forgotten, page.is_page = page.forget, sessions.__contains__
        head = gr.HTML(apply_default_css=False, elem_id="head")
        with gr.Tabs(selected="clone") as tabs:
            with gr.Tab(words("tab_clone"), id="clone", elem_id="tab-clone"):
                clone = CloneTab(handlers, words, example_clips(examples))
            with gr.Tab(words("tab_voices"), id="voices", elem_id="tab-voices"):
                library = VoicesTab(words, shared)
            with gr.Tab(words("tab_compare"), id="compare", elem_id="tab-compare"):
                compare = CompareTab(comparing, words)
            with gr.Tab(words("tab_doctor"), id="doctor", elem_id="tab-doctor"):
                doctor = DoctorTab(words)
        clone.wire(handlers)
        library.wire(voices, clone, tabs)
        compare.wire(comparing, clone)
        examiner = DoctorHandlers(engine, sessions.comparisons, model, shared)
        doctor.wire(examiner)
        add_endpoints(Endpoints(engine, jobs, sessions, handlers.clips, examiner))

        def arrive(request: gr.Request) -> tuple[Any, ...]:
            lang, owner = language(request), owner_of(request)
            return (
                head_words(engine, lang),
                cards.marks(engine.text.marks, lang),
                f'<p class="empty">{say("clip_empty", lang)}</p>',
                cards.status(say("idle", lang), kind="idle", keys=say("keys", lang)),
                f'<p class="empty">{say("result_empty", lang)}</p>',
                handlers.history(owner, lang),
                cards.voices(sessions.voices(owner), lang),
                voices.choices(owner, lang),
                transcribe_note(handlers.transcriber, lang),
                "" if shared else unavailable_note(engine, lang),
                cards.mode_hint("zero_shot", lang),
                gr.update(info=text_hint(engine, guests.limits.text_chars, lang)),
                short_note(shared, lang),
                unavailable_note(engine, lang),
                cards.status(say("cmp_idle", lang), kind="idle"),
                f'<p class="empty">{say("cmp_empty", lang)}</p>',
                live(shared, lang),
                cards.status(say("doc_idle", lang), kind="idle"),
            )

        page.load(
            arrive,
            None,
            [head, clone.marks, clone.facts, clone.status, clone.card, clone.history, library.listed, clone.voice,
             clone.transcribe_why, clone.cannot,
                clone.mode_hint, clone.text, compare.short, compare.cannot, compare.status, compare.results,
                doctor.live, doctor.status],
            queue=False,
            api_visibility="private",
        )  # fmt: skip
        page.load(None, None, clone.player, js="() => window.cosyPlayer.kind()", api_visibility="private")
        page.unload(handlers.leave)
        page.unload(comparing.leave)
    page.queue(max_size=engine.config.queue, default_concurrency_limit=8)
    page._queue.ANALYTICS_MAX_EVENTS = 1  # Gradio would remember who called what, ten thousand times
    return page


def add_routes(app: Any, engine: Engine, jobs: JobTable, sessions: Sessions) -> None:
    """What the page needs beside Gradio, the OpenAI-style call, and what operators ask."""
    add_sound_route(app, jobs)
    add_file_routes(app, sessions, jobs.guests, engine.voices.model_key)
    add_speech_api(app, engine, jobs, sessions)
    add_compare_routes(app, sessions.comparisons, jobs.guests)
    add_live_route(app, engine, jobs.guests)
    add_health_routes(app, engine, jobs, sessions)


def launch_options(engine: Engine, guests: Guests) -> dict:
    """What `Blocks.launch` needs for this page."""
    upload_mb = guests.limits.upload_mb
    cannot = {name: [why, note_words(why, "zh")] for name, why in engine.unavailable.items()}
    upload = {"mb": upload_mb, "words": [say("file_large", lang, name="{name}", mb=upload_mb) for lang in ("en", "zh")]}
    facts = f"window.cosyRate = {engine.spec.mel.rate_hz}; window.cosyCannot = {json.dumps(cannot)}; window.cosyUpload = {json.dumps(upload)};"
    scripts = "".join(
        (ASSETS / "page" / name).read_text(encoding="utf-8")
        for name in ("player.js", "page.js", "ab.js", "compare.js", "live.js")
    )
    style = "".join((ASSETS / "page" / name).read_text(encoding="utf-8") for name in ("page.css", "compare.css"))
    return {
        "head": f"<link rel='icon' href='{ICON}'><style>{style}</style><script>{facts}\n{scripts}</script>",  # css= would rewrite every selector
        "theme": gr.themes.Default(
            primary_hue="indigo", secondary_hue="indigo", neutral_hue="slate", font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "Consolas", "monospace"],
        ),
        "i18n": i18n(),
        "max_file_size": f"{upload_mb}mb",
        "app_kwargs": {"middleware": [Middleware(Gate, guests=guests, folder=Path(get_upload_folder()))]},
        "max_threads": engine.config.slots + engine.config.queue + 16,  # a waiting request holds a thread
        "state_session_capacity": 500,  # Gradio keeps 0.1 MB of every page that ever was, of 10 000 if not told
        "show_error": False,
        "ssr_mode": False,  # a second server that would make every call look like one from this machine
        "run_history": False,  # Gradio would keep every input in the browser, for whoever sits there next
        "enable_monitoring": False,
        "footer_links": ["api"],
    }  # fmt: skip


def short_note(shared: bool, lang: str) -> str:
    """What strangers may compare."""
    return cards.note(say("cmp_short", lang, variants=SHORT_VARIANTS, chars=SHORT_CHARS)) if shared else ""


def example_clips(folder: Path) -> list[list[str]]:
    """[clip, transcript] for every clip of a folder that has a text of the same name."""
    found = []
    for text in sorted(folder.glob("*.txt")) if folder.is_dir() else ():
        for kind in ("wav", "flac", "mp3", "ogg", "opus"):
            if (clip := text.with_suffix(f".{kind}")).is_file():
                found.append([str(clip), text.read_text(encoding="utf-8").strip()])
                break
    return found


def head_words(engine: Engine, lang: str) -> str:
    """Title, and what is loaded in one line."""
    line = say("loaded", lang, name=note_words(engine.name, lang), device=engine.device)
    line += " · " + say("numbers_by", lang, backend=doctor_words(engine.text.backend, lang))
    note = engine.card.get("note") or ""
    return (
        f'<div class="line"><h1>{say("title", lang)}</h1><span class="dim" id="model">{escape(line)}</span></div>'
        + cards.note(note_words(note, lang), "warn")
    )


def transcribe_note(transcriber: Transcriber, lang: str) -> str:
    """Why the button is off; nothing when it works."""
    if not transcriber.unavailable:
        return ""
    words = escape(say("transcribe_off", lang, why=note_words(transcriber.unavailable, lang)))
    return f'<span class="dim">{words.replace("--whisper", "<code>--whisper</code>")}</span>'


def unavailable_note(engine: Engine, lang: str) -> str:
    """Why some choices are greyed, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in engine.unavailable.items():
        by_reason.setdefault(why, []).append(name)
    comma, colon = ("、", "：") if lang == "zh" else (", ", ": ")
    return "".join(cards.note(f"{comma.join(names)}{colon}{note_words(why, lang)}") for why, names in by_reason.items())


def text_hint(engine: Engine, shared_chars: int | None, lang: str) -> str:
    """How long a text may be and in which languages. shared_chars: the limit of a shared page."""
    spoken = ("、" if lang == "zh" else ", ").join(note_words(NAMES[code], lang) for code in engine.text.languages)
    about = say("text_hint_only", lang, languages=spoken) if spoken else say("text_hint_any", lang)
    key, chars = ("text_hint_shared", shared_chars) if shared_chars else ("text_hint", engine.text.max_chars)
    return f"{say(key, lang, chars=f'{chars:,}')}{'；' if lang == 'zh' else '; '}{about}"
