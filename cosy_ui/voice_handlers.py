"""Events of the Voices tab: save, use, delete, import. Export is a link (file_routes)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from cosy_engine import CosyError, Engine
from cosy_engine.audio.voice import load_voice
from cosy_ui import cards
from cosy_ui.clips import Clips
from cosy_ui.messages import error_words
from cosy_ui.sessions import Sessions
from cosy_ui.words import language, say


class VoiceHandlers:
    """Every method that changes the list returns (status, list, choices of the Clone tab)."""

    def __init__(self, engine: Engine, sessions: Sessions, clips: Clips):
        self.engine, self.sessions, self.clips = engine, sessions, clips

    def save(
        self, name: str, reference: str | None, window: str, transcript: str, request: gr.Request
    ) -> tuple[Any, ...]:
        """Keep the clip of the Clone tab under a name."""
        lang, owner = language(request), request.session_hash or ""
        if not reference:
            return self._after(cards.note(say("voice_no_clip", lang), "bad"), owner, lang)
        if not (name or "").strip():
            return self._after(cards.note(say("voice_no_name", lang), "bad"), owner, lang)
        try:
            words = self.engine.text.transcript(transcript or "")[0] and transcript.strip()
            voice = self.engine.voice(self.clips.part(reference, window), words)
        except CosyError as error:
            return self._after(cards.note(error_words(error, lang), "bad"), owner, lang)
        saved = self.sessions.save_voice(owner, name, voice)
        return self._after(cards.note(say("voice_saved", lang, name=saved.name), "good"), owner, lang, saved.id)

    def load(self, file: str | None, request: gr.Request) -> tuple[Any, ...]:
        """Import a file that was exported before."""
        lang, owner = language(request), request.session_hash or ""
        if not file:
            return self._after("", owner, lang)
        try:
            voice = load_voice(file, self.engine.voices.model_key)
        except CosyError as error:
            return self._after(cards.note(error_words(error, lang), "bad"), owner, lang)
        saved = self.sessions.save_voice(owner, Path(file).stem, voice)
        return self._after(cards.note(say("voice_saved", lang, name=saved.name), "good"), owner, lang, saved.id)

    def act(self, act: str, request: gr.Request) -> tuple[Any, ...]:
        """Use or delete: (status, list, choices, mode, tabs)."""
        lang, owner = language(request), request.session_hash or ""
        what, voice_id, *_ = [*act.split(":"), ""]
        if what == "delete-voice":
            self.sessions.delete_voice(owner, voice_id)
            return *self._after("", owner, lang), gr.skip(), gr.skip()
        if self.sessions.voice_of(owner, voice_id) is None:
            return *self._after(cards.note(say("voice_gone", lang), "bad"), owner, lang), gr.skip(), gr.skip()
        return *self._after("", owner, lang, voice_id), "saved_voice", gr.Tabs(selected="clone")

    def choices(self, owner: str, lang: str, chosen: str | None = None) -> dict:
        """An update of the Clone tab's list of voices."""
        mine = self.sessions.voices(owner)
        options = [(f"{v.name} ({say('voice_shared', lang)})" if v.shared else v.name, v.id) for v in mine]
        update: dict[str, Any] = {"choices": options, "info": None if mine else say("voices_none", lang)}
        if chosen or not mine:
            update["value"] = chosen
        return gr.update(**update)

    def _after(self, status: str, owner: str, lang: str, chosen: str | None = None) -> tuple[Any, ...]:
        return status, cards.voices(self.sessions.voices(owner), lang), self.choices(owner, lang, chosen)
