"""The page in headless Chromium: upload, generate, hear, stop, download, and what it says when something is wrong."""

import io
import re
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.test_engine import WORDS

pytestmark = pytest.mark.browser
TEXT = "Hello there, this is a test."


def fill(page, clip, text=TEXT, transcript=WORDS, seed="5"):
    if clip is not None:
        page.locator("#reference input[type=file]").set_input_files(str(clip))
        page.wait_for_selector(
            "#reference .waveform-container, #reference audio, #reference canvas", timeout=20_000, state="attached"
        )
    page.locator("#transcript textarea").fill(transcript)
    page.locator("#text textarea").fill(text)
    page.locator("#seed input, #seed textarea").first.fill(seed)


def wait_done(page):
    page.wait_for_function("document.querySelector('#numbers').innerText.includes('RTF')", timeout=60_000)


def download(page) -> tuple[np.ndarray, int]:
    with page.expect_download(timeout=20_000) as info:
        page.locator("#result [aria-label='Download'], #result a[download]").first.click()
    data = Path(info.value.path()).read_bytes()
    return soundfile.read(io.BytesIO(data), dtype="int16")


def test_upload_generate_hear_and_download_exactly_what_was_streamed(open_page, clip):
    page = open_page()
    fill(page, clip)
    page.locator("#generate").click()
    wait_done(page)
    page.wait_for_function("window.cosyPlayer.stats.state === 'done'", timeout=60_000)
    stats = page.evaluate("window.cosyPlayer.stats")
    samples, rate = download(page)
    assert rate == 24000 and samples.any()
    assert stats["samples"] == stats["received"] == len(samples)
    assert stats["firstSoundMs"] is not None and stats["underruns"] == 0
    words = page.locator("#numbers").inner_text()
    assert "first audio" in words and "seed 5" in words and "compute / audio" in words


def test_whole_audio_equals_for_the_same_seed(open_page, clip):
    page = open_page()
    fill(page, clip)
    page.locator("#stream input").uncheck()
    takes = []
    for _ in range(2):
        page.locator("#generate").click()
        page.wait_for_function("document.querySelector('#status').innerText.includes('Speaking')", timeout=20_000)
        page.wait_for_function("!document.querySelector('#status').innerText.trim()", timeout=60_000)
        takes.append(download(page)[0])
    np.testing.assert_array_equal(*takes)
    assert page.evaluate("window.cosyPlayer.stats.samples") == 0


def test_stop_ends_the_work_at_once_and_the_next_job_runs(open_page, clip, server):
    _, engine, _ = server
    page = open_page()
    fill(page, clip, text="This is one sentence of many, and it goes on for a while before it ends. " * 40)
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('#status').innerText.includes('Stopped')", timeout=3_000)
    for _ in range(30):
        if engine.worker.load() == (0, 0):
            break
        page.wait_for_timeout(100)
    assert engine.worker.load() == (0, 0)
    assert page.evaluate("window.cosyPlayer.stats.state") == "stopped"
    page.locator("#text textarea").fill(TEXT)
    page.locator("#generate").click()
    wait_done(page)


def test_a_closed_tab_stops_its_work(open_page, clip, server):
    _, engine, _ = server
    page = open_page()
    fill(page, clip, text="This is one sentence of many, and it goes on for a while before it ends. " * 40)
    page.locator("#generate").click()
    page.wait_for_function("window.cosyPlayer.stats.state === 'playing'", timeout=60_000)
    page.close()

    deadline = time.monotonic() + 5
    while engine.worker.load() != (0, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.worker.load() == (0, 0)


@pytest.mark.parametrize(
    "text,transcript,with_clip,says",
    [
        ("", WORDS, True, "text is empty"),
        ("…!?", WORDS, True, "words"),
        (TEXT, "", True, "words spoken"),
        (TEXT, WORDS, False, "reference clip"),
    ],
)
def test_a_mistake_is_explained_in_the_page(open_page, clip, text, transcript, with_clip, says):
    page = open_page()
    fill(page, clip if with_clip else None, text, transcript)
    page.locator("#generate").click()
    page.get_by_text(re.compile(says)).first.wait_for(timeout=15_000)


def test_a_file_that_is_no_audio_is_explained(open_page, tmp_path):
    page = open_page()
    fake = tmp_path / "notes.wav"
    fake.write_text("these are only words, not sound " * 20)
    page.locator("#reference input[type=file]").set_input_files(str(fake))
    page.wait_for_timeout(1500)
    fill(page, None)
    page.locator("#generate").click()
    page.get_by_text("is a text file, not audio").first.wait_for(timeout=15_000)


def test_a_mode_shows_only_what_it_asks_for(open_page):
    page = open_page()
    for label, shown in (("Clone without transcript", {"reference", "text"}), ("Speak as instructed", {"reference", "text", "instruction"}),
                         ("Convert a recording", {"reference", "source"})):  # fmt: skip
        page.locator("#mode input").click()
        page.get_by_role("option", name=label).click()
        page.wait_for_timeout(700)
        visible = {
            n
            for n in ("reference", "transcript", "text", "instruction", "source")
            if page.locator(f"#{n}").is_visible()
        }
        assert visible == shown


def test_the_page_speaks_chinese_and_fits_a_phone(open_page):
    page = open_page(width=390, height=844, locale="zh-CN")
    assert page.get_by_text("要合成的文本").first.is_visible()
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0


def test_a_sound_id_works_once_and_only_if_it_exists(server):
    import urllib.error
    import urllib.request

    for path in ("pcm/none", "pcm/../etc/passwd", "pcm/"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(server[0] + path)
        assert refused.value.code in (403, 404)
