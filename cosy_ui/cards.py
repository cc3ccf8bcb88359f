"""Pieces of the page that the server draws: strings of HTML with every given word escaped. Buttons in them act through
page.js, by their data- attributes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from cosy_engine import Report
from cosy_engine.audio.clip_report import WARNINGS, ClipReport
from cosy_engine.text.frontend import TextPlan
from cosy_engine.text.tokenizer import special_tokens
from cosy_engine.types import Clip
from cosy_ui.ab_card import ab
from cosy_ui.audio_files import kinds_here
from cosy_ui.messages import note_words
from cosy_ui.sessions import SavedVoice, Take
from cosy_ui.words import WORDS, say

COMMON_MARKS = ("[laughter]", "[breath]", "[sigh]", "[cough]")  # shown first; the rest behind a fold
WIDE = ("m_mode", "m_run", "m_rtf")  # cells of the strip that hold words
PEAKS = 240  # columns of the drawn waveform


def note(text: str, kind: str = "info") -> str:
    """One line with a mark before it; kind: info, warn or bad. Read out when it appears."""
    return f'<p class="note {kind}" role="{"alert" if kind == "bad" else "status"}">{escape(text)}</p>' if text else ""


def notes(texts: Iterable[str], lang: str, kind: str = "info") -> str:
    return "".join(note(note_words(text, lang), kind) for text in texts)


def mode_hint(mode: str, lang: str) -> str:
    """When to choose a mode."""
    return f'<p class="dim hint">{say(f"hint_{mode}", lang)}</p>'


# The reference clip


def waveform(clip: Clip, window: tuple[float, float], longest_s: float, url: str, lang: str, found: bool = True) -> str:
    """The clip drawn, with the part that is used lit; page.js moves it within longest_s seconds."""
    path = _peaks_path(clip.samples)
    start, end = window
    seconds = clip.seconds
    shortest = min(3.0, seconds)
    fixed = seconds <= shortest + 0.05
    handles = "".join(
        f'<span class="handle {side}" role="slider" tabindex="0" data-handle="{side}" aria-label="{say(key, lang)}" '
        f'aria-valuemin="0" aria-valuemax="{seconds:.2f}" aria-valuenow="{at:.2f}" aria-valuetext="{at:.1f} s"></span>'
        for side, key, at in (("left", "clip_start", start), ("right", "clip_end", end))
    )
    hint = say("clip_move", lang, seconds=f"{seconds:.1f}") if seconds > longest_s else ""
    if not found:
        hint = say("clip_none", lang)
    return (
        f'<div class="clip" data-seconds="{seconds:.4f}" data-shortest="{shortest:.3f}" data-longest="{longest_s}" '
        f'data-start="{start:.3f}" data-end="{end:.3f}" data-tag="{clip.digest[:8]}" data-url="{escape(url)}">'
        f'<div class="clip-wave"><svg viewBox="0 0 {PEAKS} 40" preserveAspectRatio="none" aria-hidden="true">{path}</svg>'
        f'<div class="clip-window{" fixed" if fixed else ""}" style="left:{100 * start / seconds:.2f}%;'
        f'width:{100 * (end - start) / seconds:.2f}%">{"" if fixed else handles}</div></div>'
        f'<div class="clip-row"><button type="button" class="small" data-act="play-part">▶ {say("clip_play", lang)}</button>'
        f'<span class="clip-range"><span class="dim">{say("clip_part", lang)}</span> <output>{start:.1f}–{end:.1f} s</output></span></div>'
        + note(hint)
        + "</div>"
    )


def clip_facts(report: ClipReport, lang: str, clip_notes: Sequence[str] = ()) -> str:
    """Numbers and verdicts of the part that is used."""
    facts = (
        ("fact_length", f"{report.seconds:.1f} s"),
        ("fact_rate", f"{report.rate_hz / 1000:g} kHz"),
        ("fact_level", f"{report.level_dbfs:.0f} dBFS"),
        ("fact_speech", f"{report.speech_share:.0%}"),
        ("fact_clipping", f"{report.clipping_share:.1%}" if report.clipping_share else "0 %"),
        ("fact_noise", f"{report.noise_dbfs:.0f} dBFS"),
    )
    rows = "".join(f"<div><dt>{say(key, lang)}</dt><dd>{value}</dd></div>" for key, value in facts)
    verdicts = "".join(
        note(say(f"v_{code}", lang), "good" if code == "good" else "warn" if code in WARNINGS else "info")
        for code in report.verdicts
    )
    return f'<dl class="facts">{rows}</dl>{verdicts}{notes(clip_notes, lang)}'


def words_gone(words: str, lang: str) -> str:
    """Says that the transcript went with its clip, with a way back."""
    back = (
        f'<button type="button" class="small" data-act="words-back" data-words="{escape(words)}">'
        f"{say('undo', lang)}</button>"
    )
    return f'<p class="note info undo" role="status">{say("words_gone", lang)} {back}</p>'


def _peaks_path(samples: np.ndarray) -> str:
    edges = np.linspace(0, len(samples), PEAKS + 1).astype(int)
    peaks = [float(np.abs(samples[a:b]).max()) if b > a else 0.0 for a, b in pairwise(edges)]
    top = max(*peaks, 1e-3)
    heights = [max(0.4, 19 * peak / top) for peak in peaks]
    bars = "".join(f"M{i + 0.5:.1f} {20 - h:.1f}V{20 + h:.1f}" for i, h in enumerate(heights))
    return f'<path d="{bars}"/>'


# The text


def parts(plan: TextPlan, lang: str) -> str:
    """How a long text will be cut, and what will not be spoken."""
    if len(plan.segments) == 1:
        return notes(plan.notes, lang)
    rows = "".join(
        f'<li>{escape(s.text)}{_pause(s.pause_s, lang)}</li>' for s in plan.segments
    )  # fmt: skip
    return (
        f'<details class="parts"><summary>{say("parts", lang, count=len(plan.segments))}</summary><ol>{rows}</ol></details>'
        + notes(plan.notes, lang)
    )


def _pause(seconds: float, lang: str) -> str:
    return f' <span class="dim">{say("part_pause", lang, seconds=f"{seconds:g}")}</span>' if seconds else ""


def marks(known: Iterable[str], lang: str) -> str:
    """Buttons that put an event mark into the text; pronunciation marks behind a fold."""
    known = set(known)
    events = [m for m in special_tokens("v2") if m in known and m.startswith("[")]  # what v3 adds are phones
    pairs = [m for m in special_tokens("v2") if m in known and f"</{m[1:]}" in known]
    phones = sorted(m for m in known if m.startswith("[") and m not in events)
    first = [_chip(m, m) for m in COMMON_MARKS if m in events]
    around = [_chip(f"{m}…</{m[1:]}", m, f"</{m[1:]}") for m in pairs]
    first += around[:1]
    folds = ((say("marks_other", lang), "", around[1:] + [_chip(m, m) for m in events if m not in COMMON_MARKS]),
             (say("marks_more", lang), say("marks_more_hint", lang), [_chip(m, m) for m in phones]))  # fmt: skip
    more = "".join(
        f'<details class="phones"><summary>{name}</summary>{f"<p class=dim>{hint}</p>" if hint else ""}'
        f'<div class="chips">{"".join(held)}</div></details>'
        for name, hint, held in folds
        if held
    )
    if not first and not more:
        return ""
    label = say("marks", lang)
    return (
        f'<div class="chips" role="group" aria-label="{label}"><span class="dim">{label}</span>{"".join(first)}</div>'
        f'<div class="folds">{more}</div>'
    )


def _chip(label: str, before: str, after: str = "") -> str:
    return (
        f'<button type="button" class="chip" data-act="mark" data-before="{escape(before)}" data-after="{escape(after)}">'
        f"{escape(label)}</button>"
    )


# While it runs, and after


def status(words: str, share: float | None = None, kind: str = "run", keys: str = "") -> str:
    """The line under the buttons; share in 0..1 draws a bar, None while the end is not known. keys: said where there are some."""
    bar = ""
    if kind == "run":
        style = f' style="width:{100 * share:.0f}%"' if share is not None else ""
        bar = f'<div class="bar{"" if share is not None else " unknown"}"><span{style}></span></div>'
    more = f' <span class="keys">{escape(keys)}</span>' if keys else ""
    return f'<div class="status {kind}" role="status" aria-live="polite"><span>{escape(words)}{more}</span>{bar}</div>'


def result(take: Take, lang: str, job_id: str = "") -> str:
    """Numbers, downloads and sentences of a take. job_id: of the stream, whose first sound the browser fills in."""
    report = take.report
    number = say("take", lang, number=take.number)
    return "".join(
        (
            f'<p class="take-head"><b>{number}</b><span class="earlier">{say("earlier", lang)}</span></p>',
            metrics(report, take, lang, job_id) if report else "",
            notes(report.notes, lang, "warn") if report else "",
            downloads(take, lang),
            sentences(take, lang),
        )
    )


def metrics(report: Report, take: Take, lang: str, job_id: str) -> str:
    """The strip. RTF is compute / audio everywhere, and it says so."""
    browser = (
        f'<span id="first-browser" data-job="{job_id}">…</span>'
        if job_id
        else f"<small>{say('m_not_played', lang)}</small>"
    )
    times = f"{1 / report.rtf if 0 < report.rtf <= 1 else report.rtf:.1f}"
    pace = "even" if times == "1.0" else "faster" if report.rtf <= 1 else "slower"
    first = [
        ("m_first_browser", browser),
        ("m_audio", f"{len(take.samples) / take.rate_hz:.2f} s"),
        (
            "m_rtf",
            f"{say(pace, lang, times=times)} <small>{say('rtf', lang, rtf=f'{report.rtf:.3f}')}</small>",
        ),
    ]
    more = [
        ("m_first_server", f"{report.first_audio_s * 1000:.0f} ms"),
        ("m_token", f"{report.ms_per_token:.1f} ms" if report.ms_per_token else "–"),
        ("m_rows", str(report.rows or "–")),
        ("m_retries", str(report.retries)),
        ("m_mode", say(report.mode, lang)),
        ("m_run", f"{report.tier} · {report.precision} <small>{escape(report.device)}</small>"),
        ("m_seed", str(take.seed)),
    ]
    once, often = ("paused_once", "paused_often") if pace == "slower" else ("late_once", "late_often")
    paused = (  # filled in by the player, which alone knows
        f'<p class="note info" id="pauses" role="status" hidden data-once="{say(once, lang)}" '
        f'data-often="{say(often, lang, count="{count}")}"></p>'
    )
    return (
        f'<div id="metrics"><dl class="metrics">{_cells(first, lang)}</dl>{paused if job_id else ""}<details class="more"><summary>{say("m_more", lang)}'
        f'</summary><dl class="metrics">{_cells(more, lang)}</dl></details></div>'
    )


def _cells(items: Iterable[tuple[str, str]], lang: str) -> str:
    return "".join(
        f'<div data-metric="{key[2:]}"{" class=wide" if key in WIDE else ""}><dt>{say(key, lang)}</dt><dd>{value}</dd></div>'
        for key, value in items
    )


def downloads(take: Take, lang: str, short: bool = False) -> str:
    """Every kind of file that a take can be had as. short: for a row of the history."""
    links = "".join(
        f'<a class="small" download data-kind="{kind}" href="take/{take.id}.{kind}">{kind}</a>' for kind in kinds_here()
    )
    if take.segments and any(s["text"] for s in take.segments):
        links += f'<a class="small" download data-kind="srt" href="take/{take.id}.srt">{"srt" if short else say("srt", lang)}</a>'
    lead = "" if short else f'<span class="dim">{say("save_as", lang)}</span>'
    return f'<div class="links" role="group" aria-label="{say("save_as", lang)}">{lead}{links}</div>'


def sentences(take: Take, lang: str) -> str:
    """The parts of a take, each with a button that speaks it once more; open when there are several."""
    spoken = [(i, s) for i, s in enumerate(take.segments) if s["text"]]
    if not spoken:
        return ""
    rows = "".join(
        f'<li><span class="time">{_minutes(s["start_s"])}</span><span class="words">{escape(s["text"])}</span>'
        f'<button type="button" class="small" data-act="redo" data-take="{take.id}" data-part="{i}" '
        f'aria-label="{say("redo_label", lang, part=i + 1)}">{say("redo", lang)}</button></li>'
        for i, s in spoken
    )
    is_open = " open" if len(spoken) > 1 else ""
    return f'<details class="sentences"{is_open}><summary>{say("sentences", lang)} ({len(spoken)})</summary><ol>{rows}</ol></details>'


def history(takes: Sequence[Take], zip_id: str, lang: str) -> str:
    """Every take of the session, newest first."""
    if not takes:
        return f'<p class="empty">{say("history_empty", lang)}</p>'
    rows = "".join(_history_row(take, lang) for take in takes)
    link = f'<a class="small" download id="zip" href="takes/{zip_id}.zip">{say("history_zip", lang)}</a>'
    heard = [(f"take/{take.id}.wav", _take_name(take, lang)) for take in takes]
    pair = ab("takes", heard, say("ab_title", lang), say("ab_hint", lang), lang, pick=True) if len(takes) > 1 else ""
    return f'{pair}<div class="links end">{link}</div><ol class="takes">{rows}</ol>'


def _take_name(take: Take, lang: str) -> str:
    title = take.title or say(take.request.mode, lang)
    short = title if len(title) <= 40 else f"{title[:39]}…"
    return f"{say('take', lang, number=take.number)} · {short}"


def _history_row(take: Take, lang: str) -> str:
    facts = [
        say(take.request.mode, lang),
        f"{len(take.samples) / take.rate_hz:.1f} s",
        f"{say('m_seed', lang)} {take.seed}",
    ]
    if take.report and not take.redone:
        facts.append(f"RTF {take.report.rtf:.2f}")
    if take.redone:
        facts.append(say("redo_of", lang, part=take.redone))
    if take.stopped:
        facts.append(say("stopped", lang).rstrip(".。"))
    told = [f'<span class="fact">{escape(fact)}</span>' for fact in facts]
    title = take.title or say(take.request.mode, lang)
    clock = time.strftime("%H:%M:%S", time.localtime(take.made_at))
    return (
        f'<li data-take="{take.id}"><div class="take-head"><b>{say("take", lang, number=take.number)}</b>'
        f'<span class="dim">{clock}</span></div><p class="take-text">{escape(title)}</p>'
        f'<p class="dim">{" · ".join(told)}</p>'
        f'<audio controls preload="metadata" src="take/{take.id}.wav" aria-label="{say("take", lang, number=take.number)}"></audio>'
        f"{downloads(take, lang, short=True)}"
        f'<div class="links"><button type="button" class="small" data-act="copy" data-take="{take.id}">'
        f"{say('use_settings', lang)}</button></div></li>"
    )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{seconds % 60:04.1f}"


# Voices


def voice_deleted(gone: SavedVoice, lang: str) -> str:
    """Says so, with a way back."""
    words = escape(say("voice_deleted", lang, name=gone.name))
    return f'<p class="note info undo" role="status">{words} {_voice_button("undo-voice", gone, say("undo", lang))}</p>'


def voice_title(v: SavedVoice, lang: str) -> str:
    """Its name; those of the clips that come with the program are words."""
    return say(f"example_{v.name}", lang) if v.example and f"example_{v.name}" in WORDS else v.name


def voices(saved: Sequence[SavedVoice], lang: str) -> str:
    if not saved:
        return f'<p class="empty">{say("voices_empty", lang)}</p>'
    rows = []
    for v in saved:
        facts = [
            say("voice_example" if v.example else "voice_shared" if v.shared else "voice_mine", lang),
            say("voice_seconds", lang, seconds=f"{v.voice.seconds:.1f}"),
            say("voice_words" if v.voice.transcript else "voice_no_words", lang),
        ]
        delete = "" if v.shared else _voice_button("delete-voice", v, say("voice_delete", lang))
        rows.append(
            f'<li><div class="take-head"><b>{escape(voice_title(v, lang))}</b><span class="dim">{" · ".join(facts)}</span></div>'
            f'<p class="take-text dim">{escape(v.voice.transcript[:160])}</p><div class="links">'
            f"{_voice_button('use-voice', v, say('voice_use', lang))}"
            f'<a class="small" download href="voice/{escape(v.id)}.safetensors">{say("voice_export", lang)}</a>{delete}'
            f'<span class="dim api-id">{say("voice_api", lang)} <code>{escape(v.id)}</code></span></div></li>'
        )
    return f'<ol class="takes voices">{"".join(rows)}</ol>'


def _voice_button(act: str, v: SavedVoice, label: str) -> str:
    return f'<button type="button" class="small" data-act="{act}" data-voice="{escape(v.id)}">{label}</button>'
