"""A running page on the built-in miniature, and a headless browser."""

import os
import shutil
import socket

import numpy as np
import pytest
import soundfile

from cosy_engine import load
from tests.test_engine import speechlike


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="package")
def server(miniature_folder):
    """(url, engine, jobs) of a page with three slots."""
    from cosy_ui.jobs import JobTable
    from cosy_ui.page import build_page, launch_options
    from cosy_ui.sound_route import add_sound_route

    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    engine, jobs = load(miniature_folder, device="cpu", slots=3), JobTable()
    page = build_page(engine, jobs)
    app, url, _ = page.launch(
        server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True, **launch_options()
    )
    add_sound_route(app, jobs)
    yield url, engine, jobs
    page.close(verbose=False)
    engine.close()


@pytest.fixture(scope="package")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    assert chromium, "the page's tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=[
                "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-quic",
                "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--autoplay-policy=user-gesture-required",
            ],
        )  # fmt: skip
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def clip(tmp_path_factory):
    """A reference clip on disk."""
    path = tmp_path_factory.mktemp("clips") / "voice one.wav"
    rate, samples = speechlike(4.0)
    soundfile.write(path, (samples * 32767).astype(np.int16), rate)
    return path


@pytest.fixture
def open_page(browser, server):
    """Open the page; fails the test when the browser's console had an error."""
    contexts, errors = [], []

    def open(width=1280, height=900, locale="en-US"):
        context = browser.new_context(viewport={"width": width, "height": height}, locale=locale, accept_downloads=True)
        page = context.new_page()
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.goto(server[0])
        page.wait_for_selector("#generate", timeout=30_000)
        contexts.append(context)
        return page

    yield open
    for context in contexts:
        context.close()
    assert not errors, errors
