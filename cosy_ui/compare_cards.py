"""The HTML of the Compare tab's results."""

from __future__ import annotations

import numpy as np

from cosy_engine.compare import Outcome, Variant
from cosy_engine.compare.picture import COLORS
from cosy_ui import cards
from cosy_ui.ab_card import ab
from cosy_ui.compare_routes import longest_samples
from cosy_ui.compare_table import Kept
from cosy_ui.messages import note_words
from cosy_ui.words import say

POINTS = 240  # of a drawn waveform


def variant_name(variant: Variant, lang: str) -> str:
    comma = "，" if lang == "zh" else ", "
    return f"{variant.tier} {variant.precision}{comma}{say('way_stream' if variant.stream else 'way_whole', lang)}"


def results(kept: Kept, lang: str) -> str:
    """All results so far: exports, the bars of all, then a card for each."""
    outcomes = kept.outcomes
    finished = [o for o in outcomes if o.runs]
    if not finished and not any(o.error for o in outcomes):
        return ""
    return (
        bars(kept, lang)
        + _spread_note(finished, lang)
        + (_difference_switch(lang) if len(finished) > 1 else "")
        + f'<ol class="ways">{"".join(_card(kept, i, lang) for i in range(len(outcomes)))}</ol>'
        + (_blind(kept, lang) if len(finished) > 1 else "")
        + _exports(kept, lang)
    )


def bars(kept: Kept, lang: str) -> str:
    """Where the time of each result goes, on one scale."""
    rows = [(o, o.stages_ms()) for o in kept.outcomes if o.runs]
    if not rows:
        return ""
    longest = max(sum(stages.values()) for _, stages in rows)
    drawn = "".join(_bar(outcome, stages, longest, lang) for outcome, stages in rows)
    legend = "".join(
        f'<span><i style="background:{color}"></i>{say(f"stage_{stage}", lang)}</span>'
        for stage, color in COLORS.items()
        if any(stages[stage] >= 0.005 * longest for _, stages in rows)
    )
    return f'<section class="bars"><h3>{say("cmp_time", lang)}</h3>{drawn}<p class="legend">{legend}</p></section>'


def _bar(outcome: Outcome, stages: dict[str, float], longest: float, lang: str) -> str:
    parts = "".join(
        f'<span style="width:{100 * ms / longest:.3f}%;background:{COLORS[stage]}" title="{say(f"stage_{stage}", lang)} {ms:.0f} ms"></span>'
        for stage, ms in stages.items()
    )
    told = ", ".join(f"{say(f'stage_{stage}', lang)} {ms:.0f} ms" for stage, ms in stages.items())
    return (
        f'<div class="bar-row"><span class="bar-name">{variant_name(outcome.variant, lang)}</span>'
        f'<span class="stack" role="img" aria-label="{told}">{parts}</span>'
        f'<span class="bar-sum">{sum(stages.values()):,.0f} ms</span></div>'
    )


def _spread_note(finished: list[Outcome], lang: str) -> str:
    """What the figures are; nothing where each way ran once."""
    several = any(len(o.runs) > 1 for o in finished)
    return f'<p class="dim spread">{say("cmp_spread_is", lang)}</p>' if several else ""


def _difference_switch(lang: str) -> str:
    return f'<label class="switch"><input type="checkbox" id="cmp-difference"> {say("cmp_difference", lang)}</label>'


def _card(kept: Kept, index: int, lang: str) -> str:
    outcome = kept.outcomes[index]
    variant, is_base = outcome.variant, outcome.variant == kept.comparison.baseline
    badge = f'<span class="badge">{say("cmp_is_base", lang)}</span>' if is_base else ""
    head = f'<div class="take-head"><b>{variant_name(variant, lang)}</b>{badge}</div>'
    if not outcome.runs:
        why = note_words(outcome.error, lang)
        return f'<li data-variant="{variant.id}">{head}{cards.note(why or "…", "bad" if why else "info")}</li>'
    url = f"compare/{kept.id}.{index}"
    version = len(outcome.runs)
    return (
        f'<li data-variant="{variant.id}">{head}{_figures(kept, outcome, lang)}'
        f'<audio controls preload="none" src="{url}.wav?{version}" aria-label="{variant_name(variant, lang)}"></audio>'
        f"{_pictures(kept, outcome, f'{url}', version, is_base, lang)}"
        f"{_likeness(outcome, is_base, lang)}"
        + (cards.note(say("cmp_disturbed", lang), "warn") if any(r.disturbed for r in outcome.runs) else "")
        + (cards.note(note_words(outcome.error, lang), "bad") if outcome.error else "")
        + "</li>"
    )


def _figures(kept: Kept, outcome: Outcome, lang: str) -> str:
    def spread(value: str) -> str:
        return say("cmp_spread", lang, spread=value) if len(outcome.runs) > 1 else ""

    first, rtf, token = outcome.first_ms, outcome.rtf, outcome.token_ms
    cells = [
        ("cmp_first", f"{first[0]:,.0f} ms", spread(f"{first[1]:,.0f}")),
        ("cmp_rtf", f"{rtf[0]:.3f}", spread(f"{rtf[1]:.3f}")),
    ]
    if token is not None:
        under = (
            say("cmp_floor", lang, ratio=f"{outcome.floor_ratio:.1f}")
            if outcome.floor_ratio
            else say("cmp_hidden", lang)
        )
        if told := kept.predicted.get((outcome.variant.tier, outcome.variant.precision)):
            under += ", " + say("cmp_predicted", lang, ms=f"{told:.1f}")
        cells.append(("cmp_token", f"{token[0]:.2f} ms", under))
    if outcome.memory_gb is not None:
        cells.append(("cmp_memory", f"{outcome.memory_gb:.2f} GB", ""))
    drawn = "".join(
        f'<div data-figure="{key[4:]}"><dt>{say(key, lang)}</dt><dd>{value}<small>{under}</small></dd></div>'
        for key, value, under in cells
    )
    return f'<dl class="figures">{drawn}</dl>'


def _pictures(kept: Kept, outcome: Outcome, url: str, version: int, is_base: bool, lang: str) -> str:
    """Waveform over mel, and both as differences from the baseline; the switch above chooses."""
    longest = longest_samples(kept)
    top = max(
        float(np.abs(o.samples).max(initial=0.0)) for o in kept.outcomes
    )  # one height for all: levels can be seen
    name = variant_name(outcome.variant, lang)
    seconds = longest / outcome.rate_hz
    axis = f'<p class="axis"><span>0</span><span>{seconds / 2:.1f}</span><span>{seconds:.1f} s</span></p>'
    base = kept.comparison.outcomes[kept.comparison.baseline].samples
    own = (
        f'<figure class="own" role="img" aria-label="{say("cmp_picture_own", lang, variant=name)}">'
        f'{_wave(outcome.samples, longest, top)}<img alt="" src="{url}.mel.png?{version}" loading="lazy">{axis}</figure>'
    )
    if is_base or not len(base):
        return f'<div class="pictures base">{own}</div>'
    gap = np.zeros(longest, np.float32)
    gap[: len(outcome.samples)] += outcome.samples
    gap[: len(base)] -= base
    diff = (
        f'<figure class="diff" role="img" aria-label="{say("cmp_picture_diff", lang, variant=name)}">'
        f'{_wave(gap, longest, top)}<img alt="" src="{url}.diff.png?{version}" loading="lazy">{axis}</figure>'
    )
    return f'<div class="pictures">{own}{diff}</div>'


def _wave(samples: np.ndarray, longest: int, top: float) -> str:
    """Peaks of (N,) samples on an axis of `longest` samples; `top` fills the height."""
    padded = np.zeros(max(longest, POINTS), np.float32)
    padded[: len(samples)] = np.abs(samples)
    edges = np.linspace(0, len(padded), POINTS + 1).astype(int)
    peaks = np.maximum.reduceat(padded, edges[:-1])
    lines = "".join(
        f"M{i + 0.5:.1f} {20 - h:.1f}V{20 + h:.1f}"
        for i, h in enumerate(np.maximum(0.3, 20 * np.clip(peaks / max(top, 1e-6), 0, 1)))
    )
    return f'<svg viewBox="0 0 {POINTS} 40" preserveAspectRatio="none" aria-hidden="true"><path d="{lines}"/></svg>'


def _likeness(outcome: Outcome, is_base: bool, lang: str) -> str:
    like = outcome.likeness
    if like is None or is_base:
        return ""
    lines = []
    if like.base_tokens:
        lines.append(
            say("cmp_same_all", lang, tokens=like.tokens)
            if like.same_tokens
            else say("cmp_same_part", lang, equal=like.tokens_equal, tokens=like.base_tokens)
        )
    if like.log_prob is not None:
        lines.append(say("cmp_log_prob", lang, mean=f"{like.log_prob:.2g}", worst=f"{like.log_prob_worst:.2g}"))
    if like.mel_db is not None:
        lines.append(say("cmp_mel", lang, db=f"{like.mel_db:.2f}"))
    return cards.note("；".join(lines) if lang == "zh" else "; ".join(lines), "good" if like.same_tokens else "info")


def _blind(kept: Kept, lang: str) -> str:
    """Two results under false names; page script ab.js draws them and keeps count."""
    sounds = [
        (f"compare/{kept.id}.{i}.wav?{len(o.runs)}", variant_name(o.variant, lang))
        for i, o in enumerate(kept.outcomes)
        if o.runs
    ]
    return ab("compare", sounds, say("cmp_blind", lang), say("cmp_blind_hint", lang), lang, pick=False)


def _exports(kept: Kept, lang: str) -> str:
    links = "".join(
        f'<a class="small" download data-export="{kind}" href="compare/{kept.id}.{kind}">{say("cmp_png", lang) if kind == "png" else kind.upper()}</a>'
        for kind in ("png", "csv", "json")
    )
    return f'<div class="links"><span class="dim">{say("cmp_export", lang)}</span>{links}</div>'
