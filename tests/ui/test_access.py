"""The same page for other people and places: phones, Chinese, keyboards, old browsers, proxies, shared links, no network."""

import base64
import re
import shutil

import pytest

from tests.test_engine import WORDS
from tests.ui.conftest import serving
from tests.ui.proxy import behind_prefix
from tests.ui.steps import LONG, choose, fill, generate, idle, metric, player, result_wav, settings, upload

pytestmark = pytest.mark.browser


class FakeTranscriber:
    """Hears the same words in every clip."""

    unavailable = ""

    def words(self, clip):
        return f"{clip.seconds:.1f} seconds"


@pytest.fixture(scope="module")
def shared_server(engine, clip, tmp_path_factory):
    """A page as on a shared link, with Whisper, an example voice and a path prefix."""
    folder = tmp_path_factory.mktemp("voices")
    (folder / "anna.wav").write_bytes(clip.read_bytes())
    (folder / "anna.txt").write_text(WORDS)
    (folder / "no-clip.txt").write_text("left out")
    with serving(engine, shared=True, transcriber=FakeTranscriber(), examples=folder, root_path="/voice") as server:
        yield server


def test_chinese_dark_phone_one_column_and_server_messages_in_chinese(open_page, long_clip):
    page = open_page(width=390, height=844, locale="zh-CN", color_scheme="dark")
    assert page.get_by_text("要合成的文本").first.is_visible()
    page.locator("#generate").click()
    page.get_by_text("缺少参考音频").first.wait_for(timeout=90_000)
    fill(page, long_clip, text=LONG[:200] + "<break>")
    assert "只使用音频的" in page.locator("#transcript-note").inner_text()
    generate(page)
    assert (
        "不会朗读" in page.locator("#result-card").inner_text() and "开始发声" in page.locator("#metrics").inner_text()
    )
    width = page.evaluate("document.documentElement.scrollWidth")
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.gradio-container *')].map(e => e.getBoundingClientRect().right))"
    )
    assert width <= 390 and widest <= 391
    for thing in ("#generate", "#stop", "#result-card a[data-kind=wav]", "ol.takes [data-act=copy]"):
        assert page.locator(thing).first.bounding_box()["height"] >= 44, thing
    settings(page)
    small = page.evaluate("""[...document.querySelectorAll('button, a, summary, select, [role=tab], label:has([type=radio], [type=checkbox])')]
        .filter(e => e.offsetParent && e.textContent.trim() && !e.closest('footer, #speed, [aria-hidden], .tab-container.visually-hidden'))
        .map(e => [e.getBoundingClientRect().height, e.outerHTML.slice(0, 120)]).filter(([h]) => h > 1 && h < 40)""")
    assert not small
    assert page.locator("#generate").bounding_box()["y"] < 844  # in reach wherever the page is scrolled
    left, right = page.locator("#reference").bounding_box(), page.locator("#result").bounding_box()
    assert abs(left["x"] - right["x"]) < 4 and left["width"] == pytest.approx(right["width"], abs=4)
    page.get_by_role("tab").nth(1).click()
    assert page.get_by_text("不含录音").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_asks_nothing_of_the_network_and_needs_no_mouse(browser, server):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    asked, page = [], context.new_page()
    page.on("request", lambda r: asked.append(r.url))
    page.goto(server.url)
    page.wait_for_selector("#generate")
    page.get_by_text("untrained").first.wait_for()
    assert page.evaluate("window.gradio_config.run_history") is False  # inputs are not kept in the browser
    outside = [url for url in asked if not re.match(r"(http|ws)://127\.0\.0\.1[:/]|data:|blob:", url)]
    assert asked and not outside
    assert page.locator("#result-card").bounding_box()["y"] < 750  # above the fold on a desk
    wide = page.locator("#head").bounding_box()
    page.get_by_role("tab", name="Voices").click()
    page.wait_for_selector("#voice-save")
    assert page.locator("#head").bounding_box() == wide  # nothing shifts between tabs
    page.get_by_role("tab", name="Clone").click()
    settings(page)
    reached, rings = set(), True
    page.locator("body").click(position={"x": 2, "y": 2})
    for _ in range(60):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "(() => {const e = document.activeElement, s = getComputedStyle(e), b = e.closest('[id]');"
            "return [b?.id.replace(/^component.*/, ''), s.outlineStyle !== 'none' || s.boxShadow !== 'none']})()"
        )
        reached.add(here[0])
        rings &= here[1] or not here[0]
    assert {
        "mode",
        "reference",
        "transcript",
        "text",
        "generate",
        "stop",
        "stream",
        "precision",
        "dice",
        "lock",
    } <= reached
    assert rings
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, input, textarea, [role=slider]')].filter(e => e.offsetParent && !("
        "e.textContent.trim() || e.ariaLabel || e.title || e.labels?.length || e.closest('label'))).map(e => e.outerHTML.slice(0, 200))"
    )
    assert not nameless
    assert page.locator("#status [role=status]").count() == 1
    context.close()


@pytest.mark.parametrize(
    "script,kind", [("delete window.AudioWorkletNode", "buffers"), ("delete window.ReadableStream", "none")]
)
def test_a_browser_without_worklets_plays_too(open_page, clip, script, kind):
    page = open_page(script=script)
    assert page.evaluate("window.cosyPlayer.kind()") == kind
    fill(page, clip)
    generate(page)
    samples = result_wav(page)
    if kind == "buffers":
        stats = player(page)
        assert stats["samples"] == stats["received"] == len(samples) and stats["underruns"] == 0
        assert stats["firstSoundMs"] > 0 and metric(page, "first_browser").endswith("ms")
    else:  # the page's own audio component plays the whole
        assert metric(page, "first_browser") == "not streamed"
        assert page.evaluate("window.cosyPlayer.stats.state") == "waiting" and samples.any()


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="Gradio streams through ffmpeg; without it the whole is played")
def test_with_ffmpeg_gradios_own_stream_is_the_last_fallback(open_page, engine, clip):
    with serving(engine) as server:
        page = open_page(server.url, script="delete window.ReadableStream")
        fill(page, clip, text=LONG[:300])
        page.evaluate(
            "document.addEventListener('playing', e => { window.heard = e.target.closest('.block')?.id }, true)"
        )
        page.locator("#generate").click()
        page.wait_for_function("window.heard === 'fallback'", timeout=90_000)
        page.wait_for_selector("#metrics", timeout=90_000)
        assert result_wav(page).any()
        page.goto("about:blank")  # its player asks for more until it goes, and the server ends first


def test_behind_a_path_prefix_with_consent_examples_and_transcription(open_page, shared_server):
    with behind_prefix(shared_server.url, "/voice") as url:
        page = open_page(url)
        page.locator("#examples").get_by_text("anna").first.click()
        page.wait_for_function("document.querySelector('#transcript textarea').value !== ''", timeout=90_000)
        page.wait_for_selector("#clip-facts .facts", timeout=90_000)
        assert page.locator("#transcript textarea").input_value() == WORDS
        page.locator("#transcribe").click()
        page.wait_for_function("document.querySelector('#transcript textarea').value === '4.0 seconds'", timeout=90_000)
        page.locator("#text textarea").fill(LONG[:100])
        page.locator("#generate").click()
        page.get_by_text("tick the box above the button").first.wait_for(timeout=90_000)
        assert shared_server.engine.worker.load() == (0, 0)
        page.get_by_role("tab", name="Voices").click()
        page.locator("#voice-name :is(input, textarea)").first.fill("Anna")
        page.locator("#voice-save").click()
        page.get_by_text("tick the box above the button").last.wait_for(timeout=90_000)
        assert page.locator("#voices li").count() == 0
        broken = {"name": "x.safetensors", "mimeType": "application/octet-stream", "buffer": b"nothing"}
        page.locator("#voice-import input[type=file], input[type=file][accept*=safetensors]").first.set_input_files(
            broken
        )
        page.wait_for_timeout(1000)  # not even looked at
        assert "tick the box" in page.locator("#voice-status").inner_text()
        page.locator("#voices-consent input").check()  # given once, it is given
        page.locator("#voice-save").click()
        page.get_by_text("“Anna” is saved").wait_for(timeout=90_000)
        page.get_by_role("tab", name="Clone").click()
        page.wait_for_function("document.querySelector('#consent input').checked")
        generate(page)
        stats = player(page)
        assert stats["samples"] == len(result_wav(page)) and stats["underruns"] == 0
        href = page.locator("#result-card a[data-kind=wav]").evaluate("a => a.href")
        assert href.startswith(url + "/take/") or href.startswith(url + "take/")
        with page.expect_download() as info:
            page.locator("#result-card a[data-kind=wav]").click()
        assert info.value.suggested_filename.endswith(".wav")


def test_transcription_that_is_off_says_why(open_page):
    page = open_page()
    assert page.locator("#transcribe").is_disabled()
    page.get_by_text("start with --whisper").wait_for(timeout=90_000)
    choose(page, "cross_lingual")
    assert not page.locator("#transcribe").is_visible()


def test_the_microphone_gives_a_reference(open_page, server):
    page = open_page()
    page.locator("#reference [aria-label='Record audio']").click()
    page.locator("#reference .record-button").first.click()
    page.wait_for_timeout(1500)
    page.locator("#reference .stop-button").first.click()
    page.wait_for_selector("#clip-facts .facts, #clip-facts .note.bad", timeout=90_000)
    assert idle(server.engine, page)


@pytest.mark.parametrize(
    "name,codec", [("memo.m4a", "aac"), ("memo.mp4", "aac"), ("memo.webm", "libopus"), ("memo.aac", "aac")]
)
def test_what_phones_and_browsers_record_is_heard(open_page, clip, tmp_path, name, codec):
    import av
    import soundfile

    samples, rate = soundfile.read(clip, dtype="int16")
    path = tmp_path / name
    with av.open(str(path), "w", format="adts" if name.endswith("aac") else None) as out:
        stream = out.add_stream(codec, rate=rate)
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            out.mux(packet)
    page = open_page()
    upload(page, path)
    assert re.match(r"[34]\.", page.locator("#clip-facts dd").first.inner_text())


def test_a_file_of_another_kind_or_size_is_refused_in_words_and_the_next_one_works(open_page, clip, tmp_path):
    page = open_page(locale="zh-CN")
    (tmp_path / "notes.txt").write_text("only words " * 50)
    with open(tmp_path / "huge.wav", "wb") as huge:
        huge.truncate(51_000_000)
    page.locator("#reference input[type=file]").set_input_files(str(tmp_path / "notes.txt"))
    page.locator("#clip-facts").get_by_text("notes.txt 是文本文件").wait_for(timeout=90_000)
    page.wait_for_selector("#reference audio", state="detached", timeout=90_000)
    page.locator("#reference input[type=file]").set_input_files(str(tmp_path / "huge.wav"))
    page.get_by_text("huge.wav 超过 50 MB").wait_for(timeout=90_000)
    assert page.locator(".toast-body").count() == 0
    drop = """async (data) => {
      const held = new DataTransfer();
      held.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], "dropped.mp4", {type: "video/mp4"}));
      const zone = document.querySelector("#reference input[type=file]").parentElement;
      zone.dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
    }"""
    page.evaluate(drop, base64.b64encode(clip.read_bytes()).decode())
    page.wait_for_selector("#clip-facts .facts", timeout=90_000)
    assert page.get_by_text("超过 50 MB").count() == 0
