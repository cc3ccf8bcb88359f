"""Cloning in headless Chromium: upload, generate, hear, stop, download, every mode, and what the page says when it cannot."""

import io
import json
import re
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosy_engine import Request
from tests.test_engine import WORDS, speechlike
from tests.ui.conftest import serving
from tests.ui.steps import (
    LONG,
    TEXT,
    choose,
    fill,
    generate,
    idle,
    metric,
    player,
    result_wav,
    save,
    settings,
    takes,
    upload,
    wav,
)

pytestmark = pytest.mark.browser


def status(page, words, timeout=90_000):
    page.wait_for_function(
        f"document.querySelector('#status').innerText.includes({json.dumps(words)})", timeout=timeout
    )


def test_upload_generate_hear_and_download_exactly_what_was_streamed(open_page, clip):
    page = open_page()
    fill(page, clip)
    generate(page)
    stats = player(page)
    samples = result_wav(page)
    assert samples.any()
    assert stats["samples"] == stats["received"] == len(samples)
    assert stats["state"] == "done" and stats["firstSoundMs"] is not None and stats["underruns"] == 0
    assert metric(page, "first_browser") == f"{stats['firstSoundMs']} ms"
    assert metric(page, "seed") == "5" and metric(page, "rows") == "1" and "eager" in metric(page, "run")
    assert "compute / audio" in page.locator("#metrics").inner_text()
    # the downloads: exact ones hold the same samples, and every one says that it is synthetic
    for kind in ("wav", "flac", "mp3", "opus"):
        data = save(page, page.locator(f"#result-card a[data-kind={kind}]").click)
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            assert "ynthetic" in file.comment + file.title, kind
            assert "seed 5" in file.comment
        if kind in ("wav", "flac"):
            np.testing.assert_array_equal(wav(data)[0], samples)
    subtitles = save(page, page.locator("#result-card a[data-kind=srt]").click).decode()
    assert subtitles.startswith("1\n00:00:00,000 --> ") and TEXT in subtitles


def test_whole_audio_equals_for_the_same_seed_and_speed_acts_on_it(open_page, clip, server):
    page = open_page()
    settings(page)
    assert page.locator("#speed input[type=range]").is_disabled()
    fill(page, clip)
    page.locator("#stream input").uncheck()
    page.wait_for_function("!document.querySelector('#speed input[type=range]').disabled")
    generate(page)
    first = result_wav(page)
    generate(page)
    second = result_wav(page)
    np.testing.assert_array_equal(first, second)
    assert page.evaluate("window.cosyPlayer.stats.samples") == 0
    page.locator("#speed input[type=number]").fill("2")
    page.locator("#speed input[type=number]").press("Tab")
    generate(page)
    assert metric(page, "audio") != "" and len(result_wav(page)) == pytest.approx(len(first) / 2, rel=0.05)


def test_stop_ends_the_work_at_once_and_the_next_job_runs(open_page, clip, server):
    page = open_page()
    fill(page, clip, text=LONG)
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    status(page, "part")
    page.keyboard.press("Escape")
    status(page, "Stopped", 1_000)
    assert idle(server.engine, page, 1.0)
    assert page.evaluate("window.cosyPlayer.stats.state") == "stopped"
    takes(page, 1)  # what was made is kept, with its numbers and subtitles
    assert "× " in metric(page, "rtf") and float(metric(page, "audio").split()[0]) > 0.3
    assert (
        TEXT[:5] not in LONG and LONG[:20] in save(page, page.locator("#result-card a[data-kind=srt]").click).decode()
    )
    page.locator("#text textarea").fill(TEXT)
    page.keyboard.press("Control+Enter")
    takes(page, 2)
    # pressed twice: the second replaces the first
    page.locator("#text textarea").fill(LONG)
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    page.locator("#text textarea").fill("Another text.")
    page.locator("#generate").click()
    page.wait_for_function("document.querySelector('ol.takes li').innerText.includes('Another text.')", timeout=90_000)
    takes(page, 4)  # what was heard of the first is kept too
    row = page.locator("ol.takes li").nth(1)
    assert "Stopped" in row.inner_text() and "RTF" in row.inner_text()
    assert row.locator("a[data-kind]").evaluate_all("all => all.map(a => a.dataset.kind)") == [
        "wav",
        "mp3",
        "flac",
        "opus",
        "srt",
    ]
    page.wait_for_function("[...document.querySelectorAll('.takes audio')].every(a => a.duration > 0.2)")  # not 0:00
    assert idle(server.engine, page) and page.locator("#status .idle").count() == 1


def test_a_take_is_heard_on_while_the_next_is_made_and_only_one_sounds(open_page, clip):
    page = open_page()
    fill(page, clip, text=LONG[:500])
    generate(page)
    page.evaluate("window.cosyPlayer.stop()")
    page.locator("#text textarea").fill(LONG[:700])
    page.locator("#generate").click()
    page.locator("ol.takes audio").first.evaluate("audio => { audio.loop = true; return audio.play() }")
    takes(page, 2)
    playing = "[...document.querySelectorAll('audio')].filter(a => !a.paused && a.currentTime > 0.2)"
    page.wait_for_function(
        f"{playing}.length === 1 && {playing}[0].closest('ol.takes > li:nth-child(2)')", timeout=90_000
    )
    page.locator("ol.takes audio").first.evaluate("audio => audio.play()")
    page.wait_for_function(
        f"{playing}.length === 1 && {playing}[0].closest('ol.takes > li:nth-child(1)')", timeout=90_000
    )
    page.locator("#generate").click()
    page.wait_for_function("[...document.querySelectorAll('audio')].every(a => a.paused)", timeout=90_000)
    takes(page, 3)


def test_an_aborted_fetch_and_a_closed_tab_stop_the_engine(open_page, clip, server):
    page = open_page()
    fill(page, clip, text=LONG)
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    page.evaluate("window.cosyPlayer.abort.abort()")
    assert idle(server.engine, page, 1.5)
    status(page, "Stopped")
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    other = open_page()
    page.close()
    assert idle(server.engine, other, 3.0)


def test_every_mode_speaks_and_shows_only_what_it_asks_for(open_page, clip, server):
    page = open_page()
    upload(page, clip)
    boxes = ("reference", "transcript", "text", "instruction", "source", "voice")
    asks = {
        "zero_shot": {"reference", "transcript", "text"},
        "cross_lingual": {"reference", "text"},
        "instruct": {"reference", "text", "instruction"},
        "saved_voice": {"voice", "text", "instruction"},
        "voice_conversion": {"reference", "source"},
    }
    for number, (mode, shown) in enumerate(asks.items(), 1):
        if mode != "zero_shot":
            choose(page, mode)
        assert {name for name in boxes if page.locator(f"#{name}").is_visible()} == shown, mode
        for name, words in (("transcript", WORDS), ("text", "Hi there."), ("instruction", "speak softly")):
            if name in shown and mode != "saved_voice":
                page.locator(f"#{name} :is(textarea, input)").first.fill(words)
        if "source" in shown:
            upload(page, clip, "source")
        if "voice" in shown:
            page.locator("#voice input").click()
            page.get_by_role("option", name=re.compile("Narrator")).click()
        generate(page)
        assert page.locator("ol.takes li").count() == number
        assert (
            server.sessions.find_take(page.locator("ol.takes li").first.get_attribute("data-take")).request.mode == mode
        )
    assert page.locator("#result-card .sentences").count() == 0  # a conversion has no text


def test_every_mistake_is_explained_in_the_page(open_page, clip):
    page = open_page()
    for text, transcript, with_clip, seed, says in (
        (TEXT, WORDS, False, "", "reference clip"),
        ("", WORDS, True, "", "text is empty"),
        ("…!?", WORDS, True, "", "only punctuation"),
        (TEXT, "", True, "", "words spoken in the reference"),
        (TEXT, WORDS, True, "99999999999"[:10], "out of range"),
        (TEXT, WORDS, True, "9" * 5000, "the seed has 5,000 characters"),
        ("word " * 1200, WORDS, True, "5", "the text has 6,000 characters, at most 5,000"),
        (TEXT, "word " * 500, True, "5", "the transcript has 2,500 characters, at most 2,000"),
        (TEXT, WORDS, True, "abc", "whole number"),
    ):
        fill(page, None, text, transcript, seed)
        if with_clip and not page.locator("#clip-facts .facts").count():
            upload(page, clip)
        page.locator("#generate").click()
        page.get_by_text(re.compile(says)).last.wait_for(timeout=90_000)
    fill(page, None, TEXT, WORDS, "5")
    for mode, says in (
        ("instruct", "instruction is missing"),
        ("voice_conversion", "source clip is missing"),
        ("saved_voice", "choose a saved voice"),
    ):
        choose(page, mode)
        page.locator("#generate").click()
        page.get_by_text(re.compile(says)).last.wait_for(timeout=90_000)
    assert (
        page.locator("#precision input[value=fp16]").is_disabled()
        and page.locator("#tier input[value=graph]").is_disabled()
    )
    assert "CUDA GPU" in page.locator("#cannot").inner_text()


def test_a_file_that_cannot_be_used_is_explained_on_its_card(open_page, tmp_path, clip):
    page = open_page()
    (tmp_path / "notes.wav").write_text("these are only words, not sound " * 20)
    soundfile.write(tmp_path / "silent.wav", np.zeros(48000), 24000)
    soundfile.write(tmp_path / "short.wav", speechlike(0.2)[1], 24000)
    for name, says in (("notes", "is a text file"), ("silent", "silent"), ("short", "at least 0.5 s")):
        page.locator("#reference input[type=file]").set_input_files(str(tmp_path / f"{name}.wav"))
        page.get_by_text(re.compile(says)).first.wait_for(timeout=90_000)
        page.wait_for_selector("#reference audio", state="detached", timeout=90_000)  # no dead player is left
        page.wait_for_timeout(300)
        assert page.get_by_text(re.compile(says)).first.is_visible() and not page.locator("#clip-wave .clip").count()
    choose(page, "voice_conversion")
    page.locator("#source input[type=file]").set_input_files(str(tmp_path / "notes.wav"))
    page.locator("#source-note").get_by_text("is a text file").wait_for(timeout=90_000)
    page.wait_for_selector("#source audio", state="detached", timeout=90_000)
    upload(page, clip, "source")
    page.locator("#source-note").get_by_text("4.0 s of sound").wait_for(timeout=90_000)
    upload(page, clip)
    page.wait_for_selector("#clip-facts .facts", timeout=90_000)


def test_the_words_of_a_clip_go_with_it_and_come_back(open_page, clip, tmp_path):
    page = open_page()
    box = page.locator("#transcript textarea")

    def holds(words):
        page.wait_for_function(f"document.querySelector('#transcript textarea').value === {words!r}", timeout=90_000)

    def take_away():
        page.locator("#reference [aria-label='Clear'], #reference [aria-label='Remove']").first.click()

    box.fill("typed before its clip")
    upload(page, clip)
    page.locator("#text textarea").fill(TEXT)
    page.wait_for_timeout(300)
    holds("typed before its clip")
    generate(page)
    take_away()
    holds("")
    page.locator("#clip-facts").get_by_text("Drop a file above").wait_for(timeout=90_000)
    page.locator("#words-gone").get_by_text("words of the earlier clip").wait_for(timeout=90_000)
    page.locator("[data-act=words-back]").click()
    holds("typed before its clip")
    upload(page, clip)  # they were put back while there was no clip: they are the next one's
    page.wait_for_timeout(300)
    holds("typed before its clip")
    take_away()
    holds("")
    box.fill("of the next one")
    assert not page.locator("#words-gone .note").is_visible()
    soundfile.write(tmp_path / "other.wav", speechlike(3.0)[1], 24000)
    upload(page, tmp_path / "other.wav")
    page.wait_for_timeout(300)
    holds("of the next one")
    page.locator("ol.takes [data-act=copy]").first.click()  # clip and words of a take come together
    holds("typed before its clip")
    page.wait_for_selector("#clip-facts .facts", timeout=90_000)
    page.wait_for_timeout(300)
    holds("typed before its clip")
    page.locator("#examples button").first.click()
    page.wait_for_function("document.querySelector('.clip')?.dataset.seconds !== '4.0000'", timeout=90_000)
    page.wait_for_timeout(300)
    assert box.input_value() == Path("assets/voices/bright.txt").read_text().strip()


def test_a_take_below_a_refusal_is_marked_as_the_one_before(open_page, clip):
    page = open_page()
    fill(page, clip)
    generate(page)
    assert page.locator("#result").get_by_text("Take 1 (16-bit wav)").is_visible()
    earlier = page.locator("#result-card .earlier")
    assert not earlier.is_visible()
    page.locator("#text textarea").fill("")
    page.locator("#generate").click()
    status(page, "text is empty")
    assert earlier.is_visible() and earlier.inner_text() == "The take before"
    assert float(page.locator("#result").evaluate("e => getComputedStyle(e).opacity")) < 1
    page.locator("#text textarea").fill(TEXT)
    generate(page)
    assert not earlier.is_visible() and page.locator("#result").get_by_text("Take 2 (16-bit wav)").is_visible()


def test_an_internal_error_is_owned_without_its_secrets(open_page, clip, server, monkeypatch):
    def broken(request):
        raise RuntimeError("secret detail")

    page = open_page()
    fill(page, clip)
    with monkeypatch.context() as patch:
        patch.setattr(server.engine, "speak", broken)
        page.locator("#generate").click()
        page.get_by_text("something failed inside the program").first.wait_for(timeout=90_000)
    assert "secret detail" not in page.content()
    generate(page)


def test_a_long_clip_gets_a_window_that_moves_and_the_transcript_follows(open_page, long_clip, server):
    page = open_page()
    page.locator("#transcript textarea").fill("He hoped there would be stew for dinner.")
    upload(page, long_clip)
    facts, lit = page.locator("#clip-facts"), page.locator(".clip")
    before = [float(lit.get_attribute(f"data-{end}")) for end in ("start", "end")]
    assert 3 <= before[1] - before[0] <= 10
    assert f"{before[0]:.1f}–{before[1]:.1f} s of the clip" in page.locator("#transcript-note").inner_text()
    length = facts.locator("dd").first.inner_text()
    handle = page.locator(".handle.left")
    handle.focus()
    page.keyboard.press("PageUp")
    page.wait_for_function(f"document.querySelector('#clip-facts dd').innerText !== {length!r}", timeout=90_000)
    after = [float(lit.get_attribute(f"data-{end}")) for end in ("start", "end")]
    assert after == [pytest.approx(before[0] + 1, abs=0.01), before[1]]
    assert handle.get_attribute("aria-valuenow") == f"{after[0]:.2f}"
    box = page.locator(".clip-wave").bounding_box()  # and by the pointer: all of it, to the very beginning
    middle = box["x"] + box["width"] * (after[0] + after[1]) / 2 / float(lit.get_attribute("data-seconds"))
    page.mouse.move(middle, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] - 50, box["y"] + 30, steps=4)
    page.mouse.up()
    page.wait_for_function("document.querySelector('#transcript-note').innerText.includes('Only 0.0')", timeout=90_000)
    page.mouse.click(box["x"] + box["width"] - 2, box["y"] + 30)  # a click elsewhere brings the part there
    seconds = float(lit.get_attribute("data-seconds"))
    page.wait_for_function(
        f"document.querySelector('#transcript-note').innerText.includes('–{seconds:.1f} s')", timeout=90_000
    )
    assert float(lit.get_attribute("data-end")) == pytest.approx(seconds, abs=0.01)
    page.mouse.click(box["x"] + 2, box["y"] + 30)
    page.wait_for_function("document.querySelector('#transcript-note').innerText.includes('Only 0.0')", timeout=90_000)
    page.locator("#text textarea").fill(TEXT)
    generate(page)
    take = server.sessions.find_take(page.locator("ol.takes li").first.get_attribute("data-take"))
    assert take.request.reference.seconds == pytest.approx(after[1] - after[0], abs=0.02)
    # a transcript that cannot be what was said
    page.locator("#transcript textarea").fill("word " * 200)
    page.locator("#transcript textarea").press("Tab")
    page.get_by_text("does not seem to belong").first.wait_for(timeout=90_000)


def test_long_text_is_previewed_marks_are_offered_and_unknown_ones_hinted(open_page):
    page = open_page()
    page.locator("#text textarea").fill("Say it ")
    page.locator("#marks [data-before='[laughter]']").click()
    page.locator("#text textarea").press("End")
    page.locator("#text textarea").press_sequentially(" now. <break> " + LONG[:300])
    assert "Say it [laughter] now." in page.locator("#text textarea").input_value()
    page.get_by_text("spoken one after another").wait_for(timeout=90_000)
    page.locator("#parts summary").click()
    assert page.locator("#parts li").count() >= 2
    assert "no such tag" in page.locator("#parts").inner_text()
    page.locator("#text textarea").fill("word")
    page.locator("#text textarea").select_text()
    page.locator("#marks [data-before='<strong>']").click()
    assert page.locator("#text textarea").input_value() == "<strong>word</strong>"


def test_a_sentence_is_redone_settings_are_copied_back_and_all_is_zipped(open_page, clip, server):
    page = open_page()
    fill(
        page,
        clip,
        text="The first sentence is here and it is long enough to stand alone, as they say, in one part of the text. "
        * 3,
    )
    generate(page)
    take_id = page.locator("ol.takes li").first.get_attribute("data-take")
    first = server.sessions.find_take(take_id)
    assert len(first.segments) >= 2
    page.locator("#result-card [data-act=redo]").nth(1).click()
    takes(page, 2)
    second = server.sessions.find_take(page.locator("ol.takes li").first.get_attribute("data-take"))
    old, new = first.segments[1], second.segments[1]
    begin, end = round(old["start_s"] * 24000), round(old["end_s"] * 24000)
    np.testing.assert_array_equal(second.samples[:begin], first.samples[:begin])
    np.testing.assert_array_equal(second.samples[round(new["end_s"] * 24000) :], first.samples[end:])
    assert not np.array_equal(second.samples[begin : begin + 9600], first.samples[begin : begin + 9600])
    page.locator("#text textarea").fill("Something else.")
    choose(page, "cross_lingual")
    page.locator("ol.takes li").nth(1).locator("[data-act=copy]").click()
    status(page, "Settings of take 1")
    assert page.locator("#text textarea").input_value() == first.request.text
    assert page.locator("#mode input[value=zero_shot]").is_checked() and page.locator("#lock input").is_checked()
    assert page.locator("#seed :is(input, textarea)").first.input_value() == "5"
    archive = zipfile.ZipFile(io.BytesIO(save(page, page.locator("#zip").click)))
    names = archive.namelist()
    assert len([n for n in names if n.endswith(".wav")]) == 2 and len([n for n in names if n.endswith(".srt")]) == 2
    np.testing.assert_array_equal(
        wav(archive.read(next(n for n in names if n.startswith("take-1") and n.endswith("wav"))))[0], first.samples
    )


def test_two_takes_are_switched_at_the_same_place_and_compared_blind(open_page, clip):
    page = open_page()
    fill(page, clip, text=LONG[:300])
    generate(page)
    box = page.locator("#history .ab")
    assert box.count() == 0  # one take has nothing beside it
    page.evaluate("""() => { window.sounds = []; const Real = window.Audio;
        window.Audio = class extends Real { constructor(url) { super(url); window.sounds.push(this); } }; }""")
    page.locator("#text textarea").fill("A second take, with other words.")
    generate(page)
    a, b = (box.locator(f"[data-pick={side}]") for side in "AB")
    assert a.locator("option:checked").inner_text().startswith("Take 2 · A second")
    assert b.locator("option:checked").inner_text().startswith("Take 1 · This is one")
    page.evaluate("window.cosyPlayer.stop()")
    page.locator("ol.takes audio").first.evaluate("audio => audio.play()")
    box.locator("[data-ab=B]").click()
    box.locator("[data-ab=play]").click()
    page.wait_for_function("window.sounds.slice(-2).every(s => !s.paused && s.currentTime > 0.1)", timeout=90_000)
    assert page.evaluate("document.querySelector('ol.takes audio').paused")  # one sound at a time
    assert page.evaluate("window.sounds.slice(-2).map(s => s.muted)") == [True, False]
    box.locator("[data-ab=A]").click()
    assert page.evaluate("window.sounds.slice(-2).map(s => s.muted)") == [False, True]
    first, second = page.evaluate("window.sounds.slice(-2).map(s => s.currentTime)")
    assert first == pytest.approx(second, abs=0.15)  # both go on, so a switch keeps the place
    page.locator("#text textarea").fill("And a third.")
    page.locator("#stream input").uncheck()
    page.locator("#generate").click()
    page.wait_for_function("window.sounds.slice(-2).every(s => s.paused)", timeout=90_000)
    takes(page, 3)
    page.wait_for_function(
        "document.querySelector('#history [data-pick=A]').selectedOptions[0].text.startsWith('Take 3')", timeout=90_000
    )
    a.select_option(label=next(t for t in a.locator("option").all_inner_texts() if t.startswith("Take 1")))
    assert not box.locator(".answers").is_visible()
    box.locator("[data-ab=hide]").check()
    assert a.is_disabled() and a.locator("option:checked").inner_text() == "?"
    assert "Take" not in box.locator(".links").first.inner_text() + box.locator(".answer").inner_text()
    box.locator("[data-ab=prefer-B]").click()
    answer = box.locator(".answer").inner_text()
    assert "Take 1" in answer and "Take 2" in answer and "Take 3" not in answer and "× 1" in answer
    assert a.locator("option:checked").inner_text()[:6] in answer.split(", B is")[0]
    box.locator("[data-ab=hide]").uncheck()
    assert a.locator("option:checked").inner_text().startswith("Take 1") and a.is_enabled()


def test_seeds_are_drawn_kept_and_shown(open_page, clip):
    page = open_page()
    settings(page)
    assert "Drawn anew for every take" in page.locator("#seed").inner_text()
    box, lock = page.locator("#seed :is(input, textarea)").first, page.locator("#lock input")
    page.locator("#dice").click()
    page.wait_for_function("document.querySelector('#seed input, #seed textarea').value !== ''")
    assert lock.is_checked()
    page.get_by_text("Kept: the same inputs give the same audio").wait_for(timeout=90_000)
    page.locator("#lock input").uncheck()
    page.get_by_text("Drawn anew for every take").wait_for(timeout=90_000)
    upload(page, clip)
    page.locator("#transcript textarea").fill(WORDS)
    page.locator("#text textarea").fill("Hi.")
    drawn = set()
    for _ in range(2):
        generate(page)
        drawn.add(box.input_value())
        assert box.input_value() == metric(page, "seed")
    assert len(drawn) == 2 and not lock.is_checked()
    box.fill("7")
    page.wait_for_function("document.querySelector('#lock input').checked")


def test_a_voice_is_saved_used_exported_and_imported_and_stays_private(open_page, clip, tmp_path, server):
    page = open_page()
    fill(page, clip)
    page.get_by_role("tab", name="Voices").click()
    assert "Narrator" in page.locator("#voices").inner_text()
    page.locator("#voice-save").click()
    page.get_by_text("Give the voice a name first").wait_for(timeout=90_000)
    page.locator("#voice-name :is(input, textarea)").first.fill("爷爷 <b>")
    page.locator("#voice-save").click()
    page.get_by_text("is saved; press Use").wait_for(timeout=90_000)
    assert page.locator("#voices li").count() == 2 and "爷爷 <b>" in page.locator("#voices").inner_text()
    page.locator("#voice-save").click()  # once more: nothing is replaced
    page.get_by_text("“爷爷 <b> (2)” is saved").wait_for(timeout=90_000)
    page.locator("#voice-name :is(input, textarea)").first.fill("x" * 61)
    page.locator("#voice-save").click()
    page.get_by_text("the name has 61 characters, at most 60").wait_for(timeout=90_000)
    page.locator("#voices li").nth(1).locator("[data-act=delete-voice]").click()
    page.get_by_text("“爷爷 <b> (2)” is deleted.").wait_for(timeout=90_000)
    assert page.locator("#voices li").count() == 2
    page.locator("[data-act=undo-voice]").click()
    page.get_by_text("“爷爷 <b> (2)” is back.").wait_for(timeout=90_000)
    page.locator("#voices li").nth(1).locator("[data-act=delete-voice]").click()
    page.get_by_text("“爷爷 <b> (2)” is deleted.").wait_for(timeout=90_000)
    data = save(page, page.locator("#voices li").first.locator("a").click)
    page.locator("#voices [data-act=use-voice]").first.click()
    page.wait_for_selector("#voice input", timeout=90_000)
    assert "No voice is saved" not in page.locator("#voice").inner_text()
    page.locator("#text textarea").fill("Hi.")
    generate(page)
    other = open_page()
    other.get_by_role("tab", name="Voices").click()
    assert other.locator("#voices li").count() == 1
    (tmp_path / "grandpa.safetensors").write_bytes(data)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    other.locator("#voice-import input[type=file], input[type=file][accept*=safetensors]").first.set_input_files(
        str(tmp_path / "grandpa.safetensors")
    )
    other.get_by_text("“爷爷 <b>” is imported").wait_for(timeout=90_000)  # its name, not the file's
    assert other.locator("#voices li").count() == 2
    other.locator("#voice-import input[type=file], input[type=file][accept*=safetensors]").first.set_input_files(
        str(tmp_path / "broken.safetensors")
    )
    other.get_by_text("is not a usable voice file").wait_for(timeout=90_000)
    other.locator("#voices [data-act=delete-voice]").first.click()
    other.wait_for_function("document.querySelectorAll('#voices li').length === 1", timeout=90_000)


def test_the_hint_that_no_voice_is_saved_goes_with_the_first_voice(open_page, clip, engine):
    with serving(engine) as server:
        page = open_page(server.url)
        choose(page, "saved_voice")
        page.locator("#voice").get_by_text("No voice is saved yet").wait_for(timeout=90_000)
        choose(page, "zero_shot")
        fill(page, clip)
        page.get_by_role("tab", name="Voices").click()
        page.locator("#voice-name :is(input, textarea)").first.fill("Anna")
        page.locator("#voice-save").click()
        page.locator("#voices [data-act=use-voice]").first.click(timeout=90_000)
        page.wait_for_selector("#voice input", timeout=90_000)
        assert "No voice is saved yet" not in page.locator("#voice").inner_text()
        page.get_by_role("tab", name="Voices").click()
        page.locator("#voices [data-act=delete-voice]").first.click()
        page.get_by_text("is deleted").wait_for(timeout=90_000)
        page.get_by_role("tab", name="Clone").click()
        page.locator("#voice").get_by_text("No voice is saved yet").wait_for(timeout=90_000)
        page.locator("#generate").click()
        status(page, "a saved voice first")


def test_two_users_at_once_each_get_their_own(open_page, clip, server):
    pages = [open_page(), open_page()]
    for seed, page in zip("12", pages, strict=True):
        fill(page, clip, seed=seed)
    for page in pages:
        page.locator("#generate").click()
    for seed, page in zip("12", pages, strict=True):
        takes(page, 1)
        assert metric(page, "seed") == seed
        alone = server.engine.speak_all(
            Request(text=TEXT, reference=str(clip), transcript=WORDS, seed=int(seed), stream=True)
        )
        assert len(result_wav(page)) == len(alone.samples) == player(page)["samples"]


def test_a_full_house_shows_the_place_in_the_queue(open_page, clip, server):
    page = open_page()
    fill(page, clip)
    worker, seen = server.engine.worker, threading.Event()
    busy = [server.engine.speak(Request(text=LONG, reference=str(clip), transcript=WORDS, seed=i)) for i in range(3)]
    while worker.load()[0] < 3:
        time.sleep(0.01)
    holder = threading.Thread(target=worker.call, args=(seen.wait,))  # so that none ends before the page has asked
    holder.start()
    try:
        page.locator("#generate").click()
        status(page, "place 1 in the queue")
    finally:
        seen.set()
        holder.join()
    page.locator("#stop").click()
    status(page, "Stopped", 1_500)
    for speech in busy:
        speech.close()
    assert idle(server.engine, page)
