"""Two sounds as A and B, for the session's takes and for the Compare tab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from cosy_ui.words import say


def ab(place: str, sounds: Sequence[tuple[str, str]], title: str, hint: str, lang: str, pick: bool) -> str:
    """Two of the sounds (url, name), to be switched between while they play; page script ab.js runs it.

    pick: the listener chooses the two and may hide which is which; else two are drawn by chance and their names come with
    the answer.
    """
    told = {
        "play": say("ab_play", lang), "pause": say("ab_pause", lang), "same": say("ab_same", lang),
        "is": say("ab_is", lang, a="{a}", b="{b}"), "score": say("ab_score", lang, score="{score}"),
    }  # fmt: skip
    choose, answers = "", "answers links"
    if pick:
        options = "".join(f'<option value="{escape(url)}">{escape(name)}</option>' for url, name in sounds)
        choose = "".join(
            f'<label class="pick"><b>{side}</b><select data-pick="{side}" aria-label="{say("ab_take", lang, side=side)}">'
            f'<option value="" hidden>?</option>{options}</select></label>'
            for side in "AB"
        )
        choose = f'<div class="picks">{choose}</div>'
    hide = (
        f'<label class="switch"><input type="checkbox" data-ab="hide"> {say("ab_hide", lang)}</label>' if pick else ""
    )
    return (
        f'<section class="ab" data-place="{place}" data-sounds="{escape(json.dumps([{"url": u, "name": n} for u, n in sounds]))}" '
        f'data-words="{escape(json.dumps(told))}"><h3>{title}</h3><p class="dim">{hint}</p>{choose}<div class="links">'
        f'<button type="button" class="small" data-ab="play">{say("ab_play", lang)}</button>'
        f'<span class="sides" role="group" aria-label="{say("ab_heard", lang)}">'
        '<button type="button" class="small" data-ab="A" aria-pressed="true">A</button>'
        '<button type="button" class="small" data-ab="B" aria-pressed="false">B</button></span>'
        f'<input type="range" data-ab="seek" min="0" max="1" step="any" value="0" aria-label="{say("ab_place", lang)}"><output>0.0 s</output>'
        f'{hide}</div><div class="{answers}"{" hidden" if pick else ""}>'
        f'<button type="button" class="small" data-ab="prefer-A">{say("ab_prefer", lang, name="A")}</button>'
        f'<button type="button" class="small" data-ab="prefer-B">{say("ab_prefer", lang, name="B")}</button>'
        f'<button type="button" class="small" data-ab="same">{say("ab_same", lang)}</button>'
        f'<button type="button" class="small" data-ab="new">{say("ab_new", lang)}</button></div>'
        '<p class="answer" role="status" aria-live="polite"></p></section>'
    )
