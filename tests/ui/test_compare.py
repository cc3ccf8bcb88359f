"""The Compare tab in a browser: results, files, blind listening, stop, refusals; and the short version for strangers."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from cosy_engine import Request, to_int16
from cosy_engine.compare.picture import COLORS
from cosy_engine.health.doctor import ORDER
from cosy_ui.doctor_cards import LIVE
from cosy_ui.lab_words import LAB_WORDS
from tests.test_engine import WORDS, speechlike
from tests.ui.conftest import serving
from tests.ui.steps import LONG, TEXT, fill, idle, save, wav

pytestmark = pytest.mark.browser


def compare_tab(page, clip=None, **more):
    if clip:
        fill(page, clip, **more)
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector("#cmp-start", state="visible")


def tick(page, box, way):
    page.locator(f"#{box} label", has_text=way).locator("input").click()


def ended(page, kind="idle", words="Done"):
    page.wait_for_selector(f"#cmp-status .status.{kind}:has-text('{words}')", timeout=60_000)


def test_results_come_side_by_side_with_figures_sound_and_files(open_page, clip, server):
    page = open_page()
    compare_tab(page, clip)
    tick(page, "cmp-whole", "eager bf16")
    tick(page, "cmp-streamed", "eager fp32")
    page.locator("#cmp-start").click()
    ended(page)
    ways = page.locator("ol.ways > li")
    assert [ways.nth(i).get_attribute("data-variant") for i in range(3)] == [
        "eager-fp32-whole",
        "eager-bf16-whole",
        "eager-fp32-stream",
    ]
    kept = next(iter(server.sessions.comparisons._kept.values()))
    for i, outcome in enumerate(kept.outcomes):
        shown = ways.nth(i).locator("[data-figure=token] dd").inner_text()
        assert shown.startswith(f"{outcome.token_ms[0]:.2f} ms")
        source = ways.nth(i).locator("audio").get_attribute("src")
        heard, rate = wav(page.request.get(f"{server.url}{source}").body())
        assert rate == 24000 and np.array_equal(heard, to_int16(outcome.samples))  # level-true: not a sample is changed
        assert ways.nth(i).locator("figure.own img").evaluate("i => i.decode().then(() => i.naturalWidth)") == 480
    assert "All" in ways.nth(2).inner_text() and "equal the baseline" in ways.nth(2).inner_text()
    files = {
        kind: save(page, lambda kind=kind: page.locator(f"[data-export={kind}]").click())
        for kind in ("json", "csv", "png")
    }
    data = json.loads(files["json"])
    assert [v["id"] for v in data["variants"]] == [o.variant.id for o in kept.outcomes] and TEXT not in str(data)
    assert len(list(csv.DictReader(io.StringIO(files["csv"].decode())))) == 3 and files["png"].startswith(b"\x89PNG")
    assert not ways.nth(2).locator("figure.diff").is_visible()
    page.locator("#cmp-difference").click()
    assert ways.nth(2).locator("figure.diff").is_visible() and ways.nth(0).locator("figure.own").is_visible()
    assert page.request.get(f"{server.url}compare/{kept.id}.7.wav").status == 404
    assert page.request.get(f"{server.url}compare/nothing-here.json").status == 404
    assert server.sessions.comparisons.measured["eager", "fp32"] == kept.outcomes[0].token_ms[0]


def test_blind_listening_hides_the_names_until_one_has_answered(open_page, clip):
    page = open_page()
    compare_tab(page, clip)
    tick(page, "cmp-whole", "eager bf16")
    page.locator("#cmp-runs input[type=number]").fill("1")
    page.locator("#cmp-start").click()
    ended(page)
    box = page.locator("#cmp-results .ab")
    assert "eager" not in box.inner_text()
    box.locator("[data-ab=play]").click()
    page.wait_for_function("document.querySelector('#cmp-results [data-ab=play]').textContent === 'Pause'")
    box.locator("[data-ab=B]").click()
    assert box.locator("[data-ab=B]").get_attribute("aria-pressed") == "true"
    box.locator("[data-ab=prefer-B]").click()
    answer = box.locator(".answer").inner_text()
    assert "A is eager" in answer and "fp32" in answer and "bf16" in answer and "× 1" in answer
    box.locator("[data-ab=new]").click()
    assert box.locator(".answer").inner_text() == ""


def test_what_cannot_run_here_is_greyed_with_the_reason(open_page, server):
    page = open_page()
    compare_tab(page)
    label = page.locator("#cmp-whole label", has_text="graph fp32")
    page.wait_for_function("document.querySelectorAll('#cmp-whole label.cannot').length === 7")
    assert label.locator("input").is_disabled() and "CUDA" in label.get_attribute("title")
    assert "CUDA Graphs need a CUDA GPU" in page.locator("#cmp-cannot").inner_text()
    assert page.locator("#cmp-whole input:not([disabled])").count() == 2


def test_missing_inputs_are_named(open_page, clip):
    page = open_page()
    compare_tab(page)
    page.locator("#cmp-start").click()
    ended(page, "bad", "")
    tick(page, "cmp-whole", "eager fp32")
    page.locator("#cmp-start").click()
    ended(page, "bad", "Choose at least one way")


def test_it_refuses_while_others_are_served_and_stop_keeps_what_was_measured(open_page, clip, server):
    page = open_page()
    compare_tab(page, clip)
    other = server.engine.speak(Request(text=LONG, reference=speechlike(4.0), transcript=WORDS, seed=1))
    page.locator("#cmp-start").click()
    ended(page, "bad", "being served")
    other.close()
    assert idle(server.engine, page)
    page.locator("#cmp-runs input[type=number]").fill("9")
    page.locator("#cmp-runs input[type=number]").press("Enter")
    page.locator("#cmp-start").click()
    page.wait_for_selector("ol.ways audio", timeout=90_000)
    page.locator("#cmp-stop").click()
    ended(page, "idle", "Stopped")
    assert page.locator("ol.ways audio").count() == 1 and idle(server.engine, page)


def test_strangers_get_a_short_version(open_page, clip, engine):
    with serving(engine, shared=True) as server:
        page = open_page(server.url)
        assert not page.locator("#cmp-runs").is_visible()
        fill(page, clip)
        page.get_by_role("tab", name="Compare").click()
        assert "short version" in page.locator("#cmp-short").inner_text()
        page.locator("#cmp-start").click()
        ended(page, "bad", "confirm")
        page.get_by_role("tab", name="Clone").click()
        page.locator("#consent input").click()
        page.get_by_role("tab", name="Compare").click()
        tick(page, "cmp-whole", "eager bf16")
        tick(page, "cmp-streamed", "eager fp32")
        page.locator("#cmp-start").click()
        ended(page, "bad", "at most 2")
        tick(page, "cmp-streamed", "eager fp32")
        page.locator("#cmp-start").click()
        ended(page, "idle", "Done")
        page.get_by_role("tab", name="Clone").click()
        page.locator("#text textarea").fill(LONG)
        page.get_by_role("tab", name="Compare").click()
        page.locator("#cmp-start").click()
        ended(page, "bad", "120 characters")


def test_every_word_of_the_tabs_is_used():
    files = [f for f in Path("cosy_ui").glob("*.py") if f.name not in ("lab_words.py", "words.py")]
    used = "".join(file.read_text(encoding="utf-8") for file in files)
    made = {f"stage_{s}" for s in COLORS} | {f"cmp_{d}" for d in ("capturing", "warming", "running", "judging")}
    made |= {f"live_{name}" for name in LIVE} | {f"level_{level}" for level in ORDER}
    assert [key for key in LAB_WORDS if key not in made and not re.search(rf"""["']{key}["']""", used)] == []
