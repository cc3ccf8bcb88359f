"""A running page on the built-in miniature, and a headless browser."""

import os
import shutil
import socket
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosy_engine import Engine, load
from cosy_ui.entrance import Page
from cosy_ui.guests import Guests
from cosy_ui.jobs import JobTable
from cosy_ui.page import add_routes, build_page, launch_options
from cosy_ui.sessions import SavedVoice, Sessions
from tests.test_engine import WORDS, speechlike

UPLOADS = tempfile.TemporaryDirectory(prefix="cosy-tests-")  # of every page here, and gone with the tests


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="package", autouse=True)
def temporary(tmp_path_factory):
    """Gradio's client leaves an empty folder for each file that it fetches: here, and not among everybody's."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    yield
    tempfile.tempdir = before


@dataclass(frozen=True, eq=False)
class Server:
    """A running page."""

    url: str
    engine: Engine
    jobs: JobTable
    sessions: Sessions
    page: Page


@contextmanager
def serving(engine, *, root_path=None, shared=False, limits=None, auth=None, **options):
    """A page on an engine; options as for build_page, limits as for Guests, auth as for launch."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("GRADIO_TEMP_DIR", UPLOADS.name)
    jobs, sessions = JobTable(Guests(shared, limits)), Sessions(options.pop("voices", None))
    page = build_page(engine, jobs, sessions, **options)
    app, url, _ = page.launch(
        server_name="127.0.0.1", server_port=free_port(), prevent_thread_lock=True, quiet=True, root_path=root_path,
        auth=auth, **launch_options(engine, jobs.guests),
    )  # fmt: skip
    add_routes(app, engine, jobs, sessions)
    yield Server(url, engine, jobs, sessions, page)
    page.close(verbose=False)


@pytest.fixture(scope="package")
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=3)
    yield engine
    engine.close()


@pytest.fixture(scope="package")
def server(engine):
    """The page as a user starts it, with one shared voice."""
    voice = engine.voice(speechlike(3.0), WORDS)
    with serving(engine, voices={"Narrator": SavedVoice("Narrator", "Narrator", voice, shared=True)}) as server:
        yield server


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


@pytest.fixture(scope="package")
def long_clip(tmp_path_factory):
    """18 s of three speakers' sentences with pauses, as a recording that nobody has cut."""
    folder = Path(__file__).resolve().parent.parent / "audio"
    parts = [soundfile.read(folder / f"speech_{i}.opus", dtype="float32") for i in range(3)]
    rate = parts[0][1]
    pause = np.zeros(rate * 3 // 5, np.float32)
    path = tmp_path_factory.mktemp("clips") / "我的 声音（最终版）#1.wav"
    soundfile.write(path, np.concatenate([x for samples, _ in parts for x in (samples, pause)]), rate)
    return path


def icon(message) -> bool:
    """Gradio asks for its icon at the host's root, which another site may own."""
    return "favicon.ico" in message.location.get("url", "")


@pytest.fixture(scope="package")
def desk(browser):
    """A browser profile that pages share, so that the scripts are fetched once."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US", permissions=["microphone"])
    yield context
    context.close()


@pytest.fixture
def open_page(browser, server, desk):
    """Open the page; fails the test when the browser's console had an error. Without options: in the shared profile."""
    opened, errors = [], []

    def open(url="", script="", **options):
        viewport = {"width": options.pop("width", 1280), "height": options.pop("height", 900)}
        context = browser.new_context(viewport=viewport, **options) if script or options else desk
        page = context.new_page()
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on(
            "console", lambda m: errors.append(f"{m.text} {m.location}") if m.type == "error" and not icon(m) else None
        )
        if script:
            page.add_init_script(script)
        page.goto(url or server.url)
        page.wait_for_selector("#generate", timeout=90_000)
        opened.append(page if context is desk else context)
        return page

    yield open
    for thing in opened:
        thing.close()
    assert not errors, errors
