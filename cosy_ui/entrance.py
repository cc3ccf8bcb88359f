"""What every event of the page passes first: who asks, and whether the inputs are what they claim to be."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import gradio as gr

from cosy_ui.messages import error_words
from cosy_ui.private_folder import FULL, NotWritten, writing
from cosy_ui.session_files import SessionFiles, file_paths
from cosy_ui.words import language, say

OWNER = re.compile(r"[\w-]{1,64}", re.ASCII)
QUIET_S = 120.0  # for an answer that a program fetches late
SHOWN_CHARS = 200  # of a reason that Gradio gives
SPOKEN: ContextVar[str] = ContextVar("language of the caller whose inputs are looked at", default="en")


def owner_of(request: gr.Request) -> str:
    """The open page that asks; all it keeps hangs on this name.

    Raises: gr.Error: no name, which all nameless callers would share, or one that no page has.
    """
    owner = request.session_hash
    if not isinstance(owner, str) or not OWNER.fullmatch(owner):
        raise _bad_input(say("no_session", language(request)), say("please_check", language(request)))
    return owner


def whole(value: Any) -> Any:
    """The value with every lone surrogate in its texts replaced: no page, file or log takes half a character."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


class _Nothing(dict):
    """Takes all and holds nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __contains__(self, key: Any) -> bool:
        return True

    def __missing__(self, key: Any) -> dict:
        return {}


NOTHING = (
    _Nothing()
)  # for Gradio's copy of every page's settings and values, 0.3 MB each, which only its deep links read


class Page(gr.Blocks):
    """Blocks whose events are given texts where they ask for texts; a wrong input is refused with its reason, where Gradio
    would answer a program with {"error": null} or speak a dict as Python writes it."""

    files: SessionFiles | None = None
    is_page: Callable[[str], bool] = staticmethod(
        lambda owner: False
    )  # whether an owner is a page that has not left for good
    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *rest: Any, **options: Any):
        super().__init__(*rest, **options)
        self._heard: dict[str, float] = {}  # page or program -> when it called last

    async def process_api(self, block_fn: Any, inputs: list[Any], *rest: Any, **options: Any) -> dict[str, Any]:
        """What goes in and comes out, with the files noted as the page's own."""
        owner = options.get("session_hash")
        SPOKEN.set(language(options.get("request")))
        if isinstance(owner, str):
            self._heard[owner] = self.clock()
        if state := options.get("state"):
            state.config_values = NOTHING
        try:
            with writing():
                answer = await super().process_api(block_fn, inputs, *rest, **options)
        except NotWritten as error:
            raise _bad_input(error_words(error, SPOKEN.get()), error.code) from error
        if self.files and isinstance(owner, str):
            paths = {*file_paths(inputs), *file_paths(answer.get("data"))}
            if paths:
                self.files.note(owner, paths - self.everybodys())
        return answer

    def forget(self, owner: str) -> None:
        """A page is gone: its files, and what Gradio would hold of it for good (its state has a copy of every component's
        settings, and messages that nobody fetched wait for ever)."""
        if self.files:
            self.files.drop(owner)
        self._forget_state(owner)

    def sweep(self) -> None:
        """Forget the same of programs, which say no goodbye and have no page: their state, not their files, which go by age."""
        now, busy = self.clock(), {event.session_hash for event in list(self._queue.event_ids_to_events.values())}
        for owner, at in list(self._heard.items()):
            if now - at > QUIET_S and owner not in busy and not self.is_page(owner):
                self._forget_state(owner)

    def _forget_state(self, owner: str) -> None:
        self._heard.pop(owner, None)
        self.state_holder.session_data.pop(owner, None)
        self.state_holder.time_last_used.pop(owner, None)
        self._queue.pending_messages_per_session.pop(owner, None)
        self._queue.pending_event_ids_session.pop(owner, None)

    def everybodys(self) -> set[str]:
        """Files that Gradio keeps for good: the example clips."""
        return {str(path) for block in self.blocks.values() for path in getattr(block, "keep_in_cache", ())}

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False) -> Any:
        inputs = whole(inputs)
        for path in file_paths(inputs):
            if "://" in path:  # Gradio would fetch it
                raise _bad_input(say("no_address", SPOKEN.get()))
        for i, (block, value) in enumerate(zip(block_fn.inputs, inputs, strict=False)):
            if value is None and isinstance(block, gr.Textbox):
                inputs[i] = value = ""
            wanted = _wanted(block)
            nothing = value is None and not isinstance(block, gr.Radio)  # one of its choices is always chosen
            if wanted and not (nothing or (isinstance(value, wanted[0]) and type(value) is not bool)):
                name, kind, lang = block.elem_id or block.label, type(value).__name__, SPOKEN.get()
                raise _bad_input(say("bad_type", lang, name=name, kind=kind, wanted=say(wanted[1], lang)))
        try:
            return await super().preprocess_data(block_fn, inputs, state, explicit_call)
        except Exception as error:  # one that Gradio shows to the user would be logged with the value that it was given
            cause = error.__cause__ or error  # Gradio wraps it in the list of all components
            if isinstance(cause, OSError) and cause.errno in FULL:
                raise cause from None
            told = cause.message if isinstance(cause, gr.Error) else f"{type(cause).__name__}: {cause}"
            reason = next(iter(told.splitlines()), "")[:SHOWN_CHARS]
            raise _bad_input(say("bad_any", SPOKEN.get(), why=reason)) from error


def _wanted(block: Any) -> tuple[type | tuple[type, ...], str] | None:
    if isinstance(block, gr.Textbox):
        return str, "a_text"
    if isinstance(block, gr.Radio):
        return str, "a_choice"
    if isinstance(block, gr.Number):
        return (int, float), "a_number"
    if isinstance(block, gr.Audio):
        return dict, "a_file"
    return None


def _bad_input(words: str, title: str = "bad_input") -> gr.Error:
    return gr.Error(words, title=title, print_exception=False)
