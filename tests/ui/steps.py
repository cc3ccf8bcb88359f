"""What several tests do in the page."""

import io
from pathlib import Path

import numpy as np
import soundfile

from tests.test_engine import WORDS

TEXT = "Hello there, this is a test."
LONG = "This is one sentence of many, and it goes on for a while before it ends. " * 40


def upload(page, clip, box="reference"):
    page.locator(f"#{box} input[type=file]").set_input_files(str(clip))
    page.wait_for_selector(f"#{box} audio", timeout=90_000, state="attached")
    if box == "reference":
        page.wait_for_selector("#clip-facts .facts, #clip-facts .note.bad", timeout=90_000)


def fill(page, clip=None, text=TEXT, transcript=WORDS, seed="5"):
    if clip is not None:
        upload(page, clip)
    page.locator("#transcript textarea").fill(transcript)
    page.locator("#text textarea").fill(text)
    settings(page)
    page.locator("#seed input, #seed textarea").first.fill(seed)


def settings(page):
    """Open the settings."""
    if not page.locator("#seed").is_visible():
        page.locator("#settings > button, #settings .label-wrap").first.click()
        page.wait_for_selector("#seed", timeout=90_000)


def choose(page, mode):
    """Click a mode by its id."""
    old = page.locator("#mode-hint").inner_text()
    page.locator(f"#mode input[value={mode}]").click()
    page.wait_for_function(f"document.querySelector('#mode-hint').innerText !== {old!r}", timeout=90_000)
    page.wait_for_timeout(50)


def generate(page):
    """Press Generate and wait for the take that comes of it; its number."""
    before = page.locator("ol.takes:not(.voices) > li").count()
    page.locator("#generate").click()
    takes(page, before + 1)
    return before + 1


def takes(page, count):
    page.wait_for_function(
        f"document.querySelectorAll('ol.takes:not(.voices) > li').length === {count}", timeout=90_000
    )


def metric(page, name):
    return page.locator(f"[data-metric={name}] dd").text_content()


def save(page, click) -> bytes:
    with page.expect_download(timeout=90_000) as info:
        click()
    return Path(info.value.path()).read_bytes()


def wav(data: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(data), dtype="int16")


def result_wav(page) -> np.ndarray:
    """What the player's own download gives."""
    data = save(page, lambda: page.locator("#result [aria-label='Download'], #result a[download]").first.click())
    return wav(data)[0]


def player(page) -> dict:
    """The player's numbers, when it has played to the end."""
    page.wait_for_function("['done', 'failed'].includes(window.cosyPlayer.stats.state)", timeout=90_000)
    return page.evaluate("window.cosyPlayer.stats")


def idle(engine, page, seconds=3.0) -> bool:
    """Whether the engine falls idle within a time."""
    for _ in range(int(seconds / 0.05)):
        if engine.worker.load() == (0, 0):
            return True
        page.wait_for_timeout(50)
    return False
