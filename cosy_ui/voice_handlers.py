"""Events of the Voices tab: save, use, delete, undo, import. Export is a link (file_routes)."""

from __future__ import annotations

from typing import Any

import gradio as gr

from cosy_engine import CosyError, Engine
from cosy_engine.audio.voice import load_voice, voice_name
from cosy_ui import cards
from cosy_ui.clips import Clips
from cosy_ui.entrance import owner_of
from cosy_ui.guests import Guests, client_of
from cosy_ui.messages import error_words
from cosy_ui.sessions import Sessions
from cosy_ui.words import language, say


class VoiceHandlers:
    """Every method that changes the list returns (status, list, choices of the Clone tab)."""

    def __init__(self, engine: Engine, sessions: Sessions, clips: Clips, guests: Guests):
        """guests.shared: others than the owner reach the page, so consent is asked before a voice is kept."""
        self.engine, self.sessions, self.clips = engine, sessions, clips
        self.guests, self.shared = guests, guests.shared

    def save(
        self, consent: bool, name: str, reference: str | None, window: str, transcript: str, request: gr.Request
    ) -> tuple[Any, ...]:
        """Keep the clip of the Clone tab under a name."""
        lang, owner = language(request), owner_of(request)
        if self.shared and consent is not True:
            return self._refusal(say("consent_missing", lang), owner, lang)
        if not reference:
            return self._refusal(say("voice_no_clip", lang), owner, lang)
        if not (name or "").strip():
            return self._refusal(say("voice_no_name", lang), owner, lang)
        try:
            words = self.engine.text.transcript(transcript or "")[0] and transcript.strip()
            with self.guests.begin(client_of(request)):
                voice = self.engine.voice(self.clips.part(reference, window), words)
            saved = self.sessions.save_voice(owner, name, voice)
        except CosyError as error:
            return self._refusal(error_words(error, lang), owner, lang)
        return self._kept("voice_saved", name, saved, owner, lang)

    def load(self, consent: bool, file: str | None, request: gr.Request) -> tuple[Any, ...]:
        """Import a file that was exported before."""
        lang, owner = language(request), owner_of(request)
        if not file:
            return self._after("", owner, lang)
        if self.shared and consent is not True:
            return self._refusal(say("consent_missing", lang), owner, lang)
        try:
            voice = load_voice(file, self.engine.voices.model_key)
            name = voice_name(file)
            saved = self.sessions.save_voice(owner, name, voice)
        except CosyError as error:
            return self._refusal(error_words(error, lang), owner, lang)
        return self._kept("voice_imported", name, saved, owner, lang)

    def act(self, act: str, chosen: str | None, request: gr.Request) -> tuple[Any, ...]:
        """Use, delete, or undo a deletion: (status, list, choices, mode, tabs). chosen: in the Clone tab."""
        lang, owner = language(request), owner_of(request)
        what, voice_id, *_ = [*(act or "").split(":"), ""]
        stay = gr.skip(), gr.skip()
        if what == "delete-voice" and (gone := self.sessions.delete_voice(owner, voice_id)):
            listed = *self._after(cards.voice_deleted(gone, lang), owner, lang)[:-1], self.choices(owner, lang, chosen)
            return *listed, *stay
        if what == "undo-voice" and (back := self.sessions.restore_voice(owner, voice_id)):
            return *self._after(cards.note(say("voice_back", lang, name=back.name), "good"), owner, lang), *stay
        if what == "use-voice" and self.sessions.voice_of(owner, voice_id):
            return *self._after("", owner, lang, voice_id), "saved_voice", gr.Tabs(selected="clone")
        return *self._refusal(say("voice_gone", lang), owner, lang), *stay

    def choices(self, owner: str, lang: str, chosen: str | None = None) -> dict:
        """An update of the Clone tab's list of voices."""
        mine = self.sessions.voices(owner)
        options = [
            (
                f"{cards.voice_title(v, lang)} ({say('voice_shared', lang)})"
                if v.shared and not v.example
                else cards.voice_title(v, lang),
                v.id,
            )
            for v in mine
        ]
        update: dict[str, Any] = {"choices": options, "info": say("voices_choose" if mine else "voices_none", lang)}
        if chosen or not mine:
            update["value"] = chosen if any(v.id == chosen for v in mine) else None
        return gr.update(**update)

    def _kept(self, key: str, asked: str, saved: Any, owner: str, lang: str) -> tuple[Any, ...]:
        words = say(key, lang, name=saved.name)
        if saved.name != " ".join(asked.split()):
            words += " " + say("voice_renamed", lang, name=" ".join(asked.split()))
        return self._after(cards.note(words, "good"), owner, lang, saved.id)

    def _refusal(self, words: str, owner: str, lang: str) -> tuple[Any, ...]:
        return self._after(cards.note(words, "bad"), owner, lang)

    def _after(self, status: str, owner: str, lang: str, chosen: str | None = None) -> tuple[Any, ...]:
        return status, cards.voices(self.sessions.voices(owner), lang), self.choices(owner, lang, chosen)
