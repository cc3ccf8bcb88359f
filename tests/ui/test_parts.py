"""What the page is made of, without a browser: words, messages, files, sessions, windows."""

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest

import webui
from cosy_engine import Request, errors
from cosy_engine.audio.clip_report import WARNINGS, transcript_note
from cosy_engine.audio.clip_report import WORDS as VERDICTS
from cosy_engine.audio.voice import save_voice
from cosy_engine.settings.engine_config import TIERS
from cosy_engine.settings.modes import MODES
from cosy_engine.text.languages import NAMES
from cosy_engine.text.tokenizer import special_tokens
from cosy_engine.types import Clip
from cosy_ui import cards
from cosy_ui.audio_files import safe_name, srt
from cosy_ui.clips import read_window, write_window
from cosy_ui.doctor_words import PATTERNS as DOCTOR_PATTERNS
from cosy_ui.entrance import owner_of, whole
from cosy_ui.handlers import Handlers
from cosy_ui.jobs import Job, JobTable
from cosy_ui.messages import CODES, INTERNAL, PATTERNS, error_words, note_words
from cosy_ui.page import example_clips, head_words, text_hint, unavailable_note
from cosy_ui.sessions import GRACE_S, IDLE_S, MAX_TAKES, MAX_VOICES, Sessions, example_voices, shared_voices
from cosy_ui.words import WORDS, language, say
from tests.test_engine import speechlike
from tests.ui.engine_words import sentences

CHINESE = re.compile("[\u4e00-\u9fff]")
MADE = {*MODES, *TIERS, *(f"hint_{mode}" for mode in MODES), *(f"v_{code}" for code in VERDICTS)}  # keys put together
MADE |= {f"example_{text.stem}" for text in Path("assets/voices").glob("*.txt")}  # every clip that we ship has its name


def test_every_word_has_both_languages_with_the_same_values():
    for key, (english, chinese) in WORDS.items():
        assert key.isascii() and english and chinese
        assert set(re.findall(r"{(\w+)}", english)) == set(re.findall(r"{(\w+)}", chinese)), key
    assert set(WORDS) >= MADE


def test_chinese_sentences_have_chinese_punctuation_and_known_things_have_chinese_names(engine):
    written = [chinese for _, chinese in WORDS.values()]
    written += [chinese for _, chinese in PATTERNS] + [chinese for _, chinese in DOCTOR_PATTERNS] + [*CODES.values()]
    assert [words for words in written if re.search("[\u4e00-\u9fff][:,;!?]", words)] == []
    assert "fp16：" in unavailable_note(engine, "zh") and "迷你模型" in head_words(engine, "zh")
    assert "小型英文演示声音" in note_words("small English demo voice", "zh")


def test_the_hint_at_the_text_says_which_languages_the_model_speaks(engine):
    assert text_hint(engine, None, "en") == "Up to 5,000 characters; in any language that the model speaks"
    english = SimpleNamespace(text=SimpleNamespace(languages=("en",), max_chars=5000))
    assert text_hint(english, 600, "en") == "Up to 600 characters on this shared page; this model speaks English only"
    assert text_hint(english, None, "zh") == "最多 5,000 字；此模型只会说英文"
    every = SimpleNamespace(text=SimpleNamespace(languages=tuple(NAMES), max_chars=5000))
    assert not re.search("[A-Za-z]", text_hint(every, None, "zh"))


def test_every_used_word_exists():
    for file in Path("cosy_ui").glob("*.py"):
        for key in re.findall(r"""\b(?:say|words)\(["'](\w+)["']""", file.read_text(encoding="utf-8")):
            assert key in WORDS, f"{file}: {key}"


def test_no_word_is_left_over():
    used = "".join(file.read_text(encoding="utf-8") for file in Path("cosy_ui").glob("*.py") if file.name != "words.py")
    assert [key for key in WORDS if key not in MADE and f'"{key}"' not in used and f"'{key}'" not in used] == []


def test_every_sentence_of_the_engine_reaches_the_page_in_chinese():
    """Read out of its source, so that a new message without its Chinese fails here."""

    def chinese(kind, words):
        if kind is None:
            return note_words(words, "zh")
        return error_words(kind(words, "reference") if kind is errors.InputMissing else kind(words), "zh")

    def known(kind, words):  # a sentence that no pattern knows comes back in brackets
        return CHINESE.search(chinese(kind, words)) and f"（{words}）" not in chinese(kind, words)

    said = list(sentences())
    missing = [
        (where, samples[0]) for where, kind, samples in said if not any(all(known(kind, w) for w in ways) for ways in samples if ways)
    ]  # fmt: skip
    assert len(said) > 80 and missing == []


def test_every_error_of_the_engine_speaks_chinese():
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.CosyError)]
    for kind in kinds:
        assert kind.code in CODES
        error = kind("some words", "text") if kind is errors.InputMissing else kind("some words")
        assert CHINESE.search(error_words(error, "zh")) and error_words(error, "en") == "some words"
    assert error_words(ValueError("secret"), "en") == INTERNAL[0] and "secret" not in error_words(
        ValueError("secret"), "zh"
    )


@pytest.mark.parametrize(
    "words",
    [
        transcript_note("word " * 200, 2.0),
        "the text is much shorter than the words of the reference clip, which often sounds worse: use a shorter clip, or a longer text",
        "segment 3: the model repeated itself; spoken again with another draw",
        "segment 3: the model repeated itself; the end was cut, listen before you use it",
        "not spoken, because the model has no such tag in a text: <break>",
        "the clip is 45 s long: the part from 1.2 s to 9.8 s is used as reference",
        "only the left channel has sound; it alone is used",
        *(f"reference clip: {words}" for code, words in VERDICTS.items() if code in WARNINGS | {"short"}),
        "CUDA Graphs need a CUDA GPU; this machine runs on its CPU",
        "no Whisper model was given: start with --whisper FOLDER",
    ],
)  # fmt: skip
def test_notes_of_the_engine_speak_chinese(words):
    assert CHINESE.search(note_words(words, "zh")) and note_words(words, "en") == words


def test_a_reason_inside_a_message_is_translated_too():
    error = errors.ModeUnavailable(
        "precision fp16 is not available here: CPUs compute half precision slower than fp32; a CUDA GPU is needed"
    )
    assert error_words(error, "zh") == "fp16 在此不可用：CPU 的半精度比 fp32 更慢，需要 CUDA 显卡"
    off = errors.ModeUnavailable("transcription is off: no Whisper model was given: start with --whisper FOLDER")
    assert "--whisper" in error_words(off, "zh") and "given" not in error_words(off, "zh")


def test_the_language_follows_the_request():
    class Asked:
        def __init__(self, accepts):
            self.headers = {"accept-language": accepts} if accepts else {}

    assert [language(Asked(a)) for a in ("zh-CN,zh;q=0.9", "en-US,zh;q=0.5", "de", None)] == ["zh", "en", "en", "en"]
    assert language(None) == "en" and say("take", "zh", number=3) == "第 3 次"


def test_what_users_write_is_never_html():
    clip = Clip(speechlike(3.0)[1], 24000, "ab" * 32)
    assert "<script" not in cards.waveform(clip, (0.0, 3.0), 10.0, '"><script>', "en")
    sessions = Sessions()
    take = sessions.keep("me", np.zeros(10, np.int16), 24000, {}, Request(text="<script>x</script>"), None, 1,
                         ({"text": "<img src=x>", "start_s": 0.0, "end_s": 1.0},))  # fmt: skip
    shown = cards.history([take], "z", "en") + cards.result(take, "en")
    assert "<script" not in shown and "<img" not in shown and "&lt;script" in shown


def test_speed_is_told_in_words(engine):
    report = engine.speak_all(Request(text="Hi.", reference=speechlike(3.0), seed=1)).report
    take = Sessions().keep("me", np.zeros(10, np.int16), 24000, {}, Request(text="x"), report, 1)
    for compute, words in ((0.25, "4.0× faster"), (0.98, "As fast as"), (1.02, "As fast as"), (2.0, "2.0× slower")):
        told = cards.metrics(replace(report, compute_s=compute, audio_s=1.0), take, "en", "")
        paused = cards.metrics(replace(report, compute_s=compute, audio_s=1.0), take, "en", "job")
        assert ("made here more slowly" in paused) is ("slower than real time" in told)
        assert ("arrived late" in paused) is ("slower than real time" not in told)
        assert words in told and f"RTF {compute:.3f}" in told


def test_offered_marks_are_those_of_the_model():
    v2 = cards.marks([t for t in special_tokens("v2") if not t.startswith("<|")], "en")
    v3 = cards.marks([t for t in special_tokens("v3") if not t.startswith("<|")], "en")
    assert 'data-before="[laughter]"' in v2 and "[ǐ]" not in v2
    assert 'data-before="[ǐ]"' in v3 and 'data-after="&lt;/strong&gt;"' in v3
    assert v3.count('data-before="[laughter]"') == 1


def test_a_window_is_kept_inside_its_clip_whatever_the_page_sends():
    clip = Clip(np.zeros(20 * 8000, np.float32), 8000, "cd" * 32)
    tag = "@cdcdcdcd"
    for sent, span in (
        ("2,8", (2, 8)), ("-5,4", (0, 4)), ("18,50", (17, 20)), ("3,19", (3, 13)), ("5,5.5", (5, 8)),
    ):  # fmt: skip
        assert read_window(clip, sent + tag)[0] == pytest.approx(span)
    for nonsense in ("", None, "x", "nan,nan" + tag, "9,2" + tag, "2,8@other", "1,2,3" + tag):
        (start, end), found = read_window(clip, nonsense)
        assert 0 <= start < end <= 10 and not found
    assert read_window(clip, write_window(clip, (2.5, 7.25)))[0] == (2.5, 7.25)


def test_subtitles_and_names():
    lines = srt([{"text": " 你好 ", "start_s": 0.0, "end_s": 3661.5}, {"text": "", "start_s": 0, "end_s": 1}])
    assert lines == "1\n00:00:00,000 --> 01:01:01,500\n你好\n"
    assert (
        safe_name("../我的 声音（最终版）#1 😀.wav", "x") == "我的-声音-最终版-1-wav" and safe_name("///", "x") == "x"
    )


def test_takes_are_bounded_and_outlive_a_locked_phone_but_not_for_ever():
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    for _ in range(MAX_TAKES + 5):
        last = sessions.keep("me", np.zeros(10, np.int16), 24000, {}, Request(text="x"), None, 1)
    assert len(sessions.takes("me")) == MAX_TAKES and sessions.takes("me")[0] is last
    sessions.leave("me")
    now[0] = GRACE_S - 1
    assert sessions.find_take(last.id) is last
    now[0] = GRACE_S + 1
    assert len(sessions) == 0 and sessions.find_take(last.id) is None


def test_a_page_that_never_says_goodbye_is_forgotten_and_pages_are_bounded(engine, monkeypatch):
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    sessions.takes("silent")
    now[0] = IDLE_S - 1
    sessions.takes("busy")
    now[0] = IDLE_S + 1
    assert len(sessions) == 1
    monkeypatch.setattr("cosy_ui.sessions.MAX_SESSIONS", 3)
    for name in ("a", "b", "busy", "c"):
        sessions.takes(name)
    assert list(sessions._open) == ["b", "busy", "c"]  # those used last
    monkeypatch.setattr("cosy_ui.sessions.MAX_ALL_BYTES", 100)
    for name in ("b", "c"):
        sessions.keep(name, np.zeros(40, np.int16), 24000, {}, Request(text="x"), None, 1)
    assert not sessions.takes("b") and sessions.takes("c")
    sessions.save_voice("d", "Anna", engine.voice(speechlike(3.0)))  # voices count too
    assert list(sessions._open) == ["d"]


def test_a_caller_without_a_name_of_its_own_is_refused():
    for name in (None, "", "a b", "../x", "x" * 65, "half \ud800", 5):
        with pytest.raises(gr.Error, match="no open page"):
            owner_of(SimpleNamespace(session_hash=name, headers={}))
    assert owner_of(SimpleNamespace(session_hash="4x9-_a", headers={})) == "4x9-_a"
    assert whole(["a\ud800b", {"k\udfff": 1}, 5, "好😀"]) == ["a?b", {"k?": 1}, 5, "好😀"]


def test_a_voice_is_never_replaced_and_comes_back_once(engine):
    sessions, voice = Sessions(), engine.voice(speechlike(3.0))
    names = [sessions.save_voice("me", name, voice).name for name in ("Anna", "anna", "Anna", "x" * 60, "x" * 60)]
    assert names[:3] == ["Anna", "anna (2)", "Anna (3)"] and names[4] == "x" * 55 + " (2)"
    for i in range(MAX_VOICES - len(names)):
        last = sessions.save_voice("me", str(i), voice)
    with pytest.raises(errors.SettingInvalid, match="delete one first"):
        sessions.save_voice("me", "one more", voice)
    assert sessions.delete_voice("me", last.id) is last and sessions.delete_voice("me", last.id) is None
    assert sessions.restore_voice("me", "other") is None
    assert sessions.restore_voice("me", last.id).id == last.id and sessions.restore_voice("me", last.id) is None


def test_voices_of_a_folder_are_shared_and_bad_files_are_named(engine, tmp_path):
    save_voice(tmp_path / "Anna.safetensors", engine.voice(speechlike(3.0)), engine.voices.model_key)
    (tmp_path / "broken.safetensors").write_bytes(b"x")
    found, wrong = shared_voices(tmp_path, engine.voices.model_key)
    assert list(found) == ["Anna"] and found["Anna"].shared and "broken" in wrong[0]
    assert shared_voices(None, "") == ({}, [])


def test_example_clips_are_voices_by_name_and_a_bad_one_is_left_out(engine, tmp_path):
    clips = example_clips(Path("assets/voices"))
    (tmp_path / "broken.wav").write_bytes(b"x")
    found, wrong = example_voices(engine, [*clips, (str(tmp_path / "broken.wav"), "Hi.")])
    assert list(found) == ["bright", "low", "middle", "soft"] and "broken.wav" in wrong[0]
    assert all(v.shared and v.id == name and v.voice.transcript for name, v in found.items())
    assert "明亮 (bright)" in cards.voices(list(found.values()), "zh") and "示例" in cards.voices(
        list(found.values()), "zh"
    )


def test_what_listeners_wait_for_follows_from_what_streams_needed(engine):
    def job(*chunks):  # (when it came, seconds of sound)
        made = Job("id", "me", Request(text="x", stream=True), 100)
        for came_s, seconds in chunks:
            made.came_s.append(came_s)
            made.chunks.append(np.zeros(int(100 * seconds), np.int16))
        return made

    assert job().needed_lead_s() == 0 and job((5, 1)).needed_lead_s() == 0
    assert job((5, 1), (5.5, 2), (7, 2)).needed_lead_s() == 0  # always something in hand
    assert job((5, 1), (6.25, 2), (8.5, 2)).needed_lead_s() == pytest.approx(0.5)  # 3 s of sound in hand, 3.5 s to fill
    assert job((5, 1), (7, 4), (8, 1)).needed_lead_s() == pytest.approx(1)
    jobs = JobTable()
    jobs.lead_s = 2.0
    stream = jobs.start(engine, Request(text="Hi.", reference=speechlike(3.0), mode="cross_lingual", stream=True), "me")
    assert stream.wait(10**6, 30.0)
    for _ in range(100):
        if jobs.lead_s != 2.0:
            break
        time.sleep(0.02)
    assert jobs.lead_s == 1.0  # one chunk needed nothing: what was needed before counts half


def test_a_finished_job_is_forgotten_after_a_while(engine):
    now = [0.0]
    jobs = JobTable(keep_s=10.0, clock=lambda: now[0])
    job = jobs.start(engine, Request(text="Hi.", reference=speechlike(3.0), mode="cross_lingual"), "me")
    assert job.wait(10**6, 30.0)
    jobs.finish(job)
    assert job.expected_wait_s() == 0 and len(jobs) == 1
    now[0] = 11.0
    assert len(jobs) == 0


def test_the_page_says_when_a_model_is_loaded_again(engine, monkeypatch):
    handlers = Handlers(engine, JobTable(), Sessions(), transcriber=None, hls=False)
    job = Job("id", "me", Request(), 24000)
    assert "Starting" in handlers._status(job, "en")
    monkeypatch.setattr(engine, "loading", True)
    assert "Loading the model again" in handlers._status(job, "en") and "重新加载模型" in handlers._status(job, "zh")


def test_the_page_says_how_far_warming_up_is(engine, monkeypatch):
    handlers = Handlers(engine, JobTable(), Sessions(), transcriber=None, hls=False)
    job = Job("id", "me", Request(), 24000)
    assert "warming" not in handlers._status(job, "en")
    monkeypatch.setattr(engine, "warm_up_progress", lambda: (3, 10))
    assert "warming up (3 of 10)" in handlers._status(job, "en") and "预热中（3/10）" in handlers._status(job, "zh")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.5"])
def test_the_printed_address_can_be_clicked(engine, capsys, host):
    arguments = SimpleNamespace(voices=None, share=False, public=False, auth=None)
    webui._say_where(arguments, engine, [], f"http://{host}:7860/", None)
    shown = "localhost" if host in ("0.0.0.0", "[::]") else host
    assert f"Open http://{shown}:7860/" in capsys.readouterr().out
