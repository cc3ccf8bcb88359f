"""The HTML of the Doctor tab."""

from __future__ import annotations

import json
import math
from html import escape

from cosy_engine.health.anchors import ANCHORS
from cosy_engine.health.doctor import Verdict, predictions, report
from cosy_engine.health.facts import Facts
from cosy_ui.doctor_words import anchor_words, command_of, doctor_words
from cosy_ui.messages import note_words
from cosy_ui.words import say

LIVE = (
    "gpu_busy",
    "gpu_memory",
    "gpu_power",
    "gpu_clock",
    "cpu_busy",
    "cpu_memory",
    "rows",
    "steps",
    "queue",
    "captures",
)


def examination(facts: Facts, verdicts: list[Verdict], lang: str) -> str:
    """Verdicts first, for they are what one came for."""
    return verdict_list(verdicts, lang) + token_table(facts, lang) + anchors(facts, lang) + fact_list(facts, lang)


def verdict_list(verdicts: list[Verdict], lang: str) -> str:
    if not verdicts:
        return f'<ol class="verdicts"><li class="level-good"><b>{say("doc_well", lang)}</b></li></ol>'
    return f'<ol class="verdicts">{"".join(_verdict(v, lang) for v in verdicts)}</ol>'


def _verdict(verdict: Verdict, lang: str) -> str:
    cause, fix, command = doctor_words(verdict.cause, lang), doctor_words(verdict.fix, lang), command_of(verdict.fix)
    saves = (
        f'<span class="saves">{say("doc_saves", lang, ms=f"{verdict.saves_ms:.1f}")}</span>'
        if verdict.saves_ms >= 0.1
        else ""
    )
    copy = _copy_button(f'data-copy="{escape(command)}"', say("doc_copy", lang), lang) if command else ""
    return (
        f'<li class="level-{verdict.level}" data-code="{verdict.code}"><div class="take-head"><b>{escape(cause[:1].upper() + cause[1:])}</b>'
        f'<span class="badge level-{verdict.level}">{say(f"level_{verdict.level}", lang)}</span></div>'
        f'<p class="dim">{escape(doctor_words(verdict.evidence, lang))} {saves}</p>'
        f'<p class="fix"><span>→ {escape(fix)}</span>{copy}</p></li>'
    )


def _copy_button(what: str, label: str, lang: str) -> str:
    return f'<button type="button" class="small" {what} data-done="{say("doc_copied", lang)}">{label}</button>'


def token_table(facts: Facts, lang: str) -> str:
    """ms per token as foretold by the cost model, by the small stand-in, and as measured in the Compare tab."""
    columns = (predictions(facts), facts.stand_in, facts.measured)
    keys = list(dict.fromkeys(key for column in columns for key in column))
    if not keys:
        return ""
    head = "".join(f"<th>{say(key, lang)}</th>" for key in ("doc_foretold", "doc_stand_in", "doc_measured"))
    rows = "".join(
        f"<tr><th>{' '.join(key)}</th>{''.join(f'<td>{column[key]:.2f}</td>' if key in column else '<td>–</td>' for column in columns)}</tr>"
        for key in keys
    )
    return (
        f'<section class="anchors"><h3>{say("doc_tokens", lang)}</h3><p class="dim">{say("doc_tokens_hint", lang)}</p>'
        f'<table class="tokens"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></section>'
    )


def anchors(facts: Facts, lang: str) -> str:
    """What others report, on a logarithmic scale, with this machine among them."""
    own_ms = [((ms, ms), _own(key, "doc_measured", lang)) for key, ms in facts.measured.items()]
    own_ms = own_ms or [((ms, ms), _own(key, "doc_stand_in", lang)) for key, ms in facts.stand_in.items()]
    own_rtf = [((value, value), _own(key, "doc_measured", lang)) for key, value in facts.rtf.items()]
    tokens = [(a.ms_per_token, a) for a in ANCHORS if a.ms_per_token]
    rtfs = [(a.rtf, a) for a in ANCHORS if a.rtf]
    return (
        f'<section class="anchors" id="doc-anchors"><h3>{say("doc_anchors", lang)}</h3><p class="dim">{say("doc_anchors_hint", lang)}</p>'
        f"{_strip(say('doc_ms', lang), [*own_ms, *tokens], ' ms', lang)}{_strip(say('doc_rtf', lang), [*own_rtf, *rtfs], '', lang)}</section>"
    )


def _own(key: tuple[str, str], how: str, lang: str) -> str:
    return f"{' '.join(key)}, {say(how, lang)}"


def _strip(title: str, rows: list, unit: str, lang: str) -> str:
    """rows: ((low, high), Anchor or the words of this machine's own point)."""
    low, high = min(r[0][0] for r in rows) / 1.2, max(r[0][1] for r in rows) * 1.2

    def at(value: float) -> float:
        return 100 * math.log(value / low) / math.log(high / low)

    drawn = []
    for (a, b), anchor in sorted(rows, key=lambda r: r[0][0]):
        own = isinstance(anchor, str)
        place = f"left:{at(a):.2f}%;width:{max(at(b) - at(a), 0):.2f}%"
        value = f"{a:g}–{b:g}{unit}" if b > a else f"{a:.3g}{unit}"
        if own:
            name, under = say("doc_this", lang), escape(anchor)
        else:
            name = anchor.card
            source = escape(anchor_words(doctor_words(anchor.source, lang), lang))
            link = f'<a href="{anchor.link}" target="_blank" rel="noopener">{source}</a>' if anchor.link else source
            host = f", {escape(anchor.host)}" if anchor.host else ""
            under = f"{escape(anchor_words(anchor.how, lang))}{host} · {link}"
        drawn.append(
            f'<li class="{"own" if own else ""}"><span class="who"><b>{escape(name)}</b> <span class="dim">{under}</span></span>'
            f'<span class="track"><i style="{place}"></i></span><span class="value">{value}</span></li>'
        )
    return f'<h4>{title}</h4><ol class="strip">{"".join(drawn)}</ol>'


def fact_list(facts: Facts, lang: str) -> str:
    """What is known of the machine; unknowns are left out."""
    f = facts

    def gb(value: float | None) -> str:
        return f"{value:.1f} GB" if value is not None else ""

    rows = (
        ("f_gpu", f.gpu or say("doc_none", lang)),
        ("f_driver", f"{f.driver} ({f.driver_model})" if f.driver else ""),
        ("f_capability", f"{'.'.join(map(str, f.capability))} · {', '.join(f.built_for)}" if f.capability else ""),
        ("f_gpu_memory", f"{gb(f.gpu_memory_used_gb)} / {gb(f.gpu_memory_gb)}" if f.gpu_memory_used_gb is not None else gb(f.gpu_memory_gb)),
        ("f_power", f"{f.power_limit_w:.0f} / {f.power_most_w:.0f} W" if f.power_limit_w and f.power_most_w else ""),
        ("f_clock", f"{f.clock_mhz:.0f} / {f.clock_most_mhz:.0f} MHz" if f.clock_mhz and f.clock_most_mhz else ""),
        ("f_others", ", ".join(f.other_gpu_programs)),
        ("f_cpu", f"{f.cpu or '?'}, {say('doc_cores', lang, cores=f.cores or '?')}{f', {f.vector}' if f.vector else ''}"),
        ("f_numa", f"{f.sockets or '?'} / {f.numa_nodes or '?'}" if f.sockets or f.numa_nodes else ""),
        ("f_memory", f"{gb(f.memory_free_gb)} / {gb(f.memory_gb)}" if f.memory_free_gb is not None else gb(f.memory_gb)),
        ("f_versions", ", ".join(f"{name} {version}" for name, version in f.versions.items())),
        ("f_cuda", ", ".join(filter(None, (f.torch_cuda and f"CUDA {f.torch_cuda}", f.cudnn and f"cuDNN {f.cudnn}")))),
        ("f_onnx", f.onnx_provider or ""),
        ("f_tools", ", ".join(say("doc_yes" if there else "doc_no", lang, name=name) for name, there in
                              (("Triton", f.triton), (say("doc_compiler", lang), f.compiler), ("ffmpeg", f.ffmpeg)) if there is not None)),
        ("f_text", doctor_words(f.normaliser or "", lang)),
        ("f_proxy", ", ".join(f.proxy)),
        ("f_model", note_words(f.model or "", lang) or doctor_words(f.model_error or "", lang)),
        ("f_launch", f"{f.launch_us:.1f} µs" if f.launch_us else ""),
        ("f_sync", f"{f.sync_us:.1f} µs" if f.sync_us else ""),
        ("f_copy", f"{f.copy_bytes_s / 1e9:,.0f} GB/s" if f.copy_bytes_s else ""),
        ("f_product", ", ".join(f"{name} {speed / 1e9:.1f} GB/s" for name, speed in f.product_bytes_s.items())),
        ("f_core", say("doc_turns", lang, turns=f"{f.single_core:.0f}") if f.single_core else ""),
        ("f_disk", f"{f.disk_bytes_s / 1e6:,.0f} MB/s" if f.disk_bytes_s else ""),
        ("f_front", ", ".join(f"{name.removesuffix('ExecutionProvider')} {1000 * s:.0f} ms" for name, s in f.front_end_s.items())),
        ("f_decode", ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in f.decode_s.items())),
    )  # fmt: skip
    drawn = "".join(
        f'<div data-fact="{key[2:]}"><dt>{say(key, lang)}</dt><dd>{escape(value)}</dd></div>'
        for key, value in rows
        if value
    )
    return f'<details class="machine" open><summary>{say("doc_facts", lang)}</summary><dl class="facts">{drawn}</dl></details>'


def report_box(facts: Facts, verdicts: list[Verdict], lang: str) -> str:
    """The report for an issue tracker, in English, with a button that copies it."""
    button = _copy_button('data-from="#doc-text"', say("doc_copy_report", lang), lang)
    return (
        f'<div class="links">{button}</div><details class="machine"><summary>{say("doc_report", lang)}</summary>'
        f'<pre id="doc-text">{escape(report(facts, verdicts))}</pre></details>'
    )


def live(shared: bool, lang: str) -> str:
    """The live panel; page script live.js fills it while somebody looks."""
    words = {key: say(f"live_{key}", lang) for key in LIVE}
    note = say("live_shared", lang) if shared else ""
    return (
        f'<section class="live" id="live" data-words="{escape(json.dumps(words))}"><h3>{say("live_title", lang)}</h3>'
        f'<p class="dim live-note">{note}</p><div class="tiles"></div></section>'
    )
