"""The page's endpoints for programs: gradio_client, the OpenAI-style call, files by id; no browser."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import gradio_client
import numpy as np
import pytest
import soundfile
from gradio_client import handle_file

from cosy_engine import Request, errors
from cosy_engine.audio.voice import save_voice
from cosy_engine.errors import UserError
from cosy_engine.types import to_int16
from cosy_ui.page import example_clips
from cosy_ui.sessions import SavedVoice, example_voices
from tests.test_engine import WORDS
from tests.ui.conftest import free_port, serving
from tests.ui.steps import LONG, TEXT


@pytest.fixture(scope="module")
def client(server):
    return gradio_client.Client(server.url, verbose=False)


def post(url, headers=None, **body):
    request = urllib.request.Request(
        f"{url}v1/audio/speech", json.dumps(body).encode(), {"Content-Type": "application/json"} | (headers or {})
    )
    return urllib.request.urlopen(request, timeout=60)


def refused(url, headers=None, **body):
    with pytest.raises(urllib.error.HTTPError) as error:
        post(url, headers, **body)
    return error.value.code, json.loads(error.value.read())["error"]


def quiet(engine, seconds=3.0):
    until = time.monotonic() + seconds
    while engine.worker.load() != (0, 0) and time.monotonic() < until:
        time.sleep(0.02)
    return engine.worker.load() == (0, 0)


def test_clone_gives_a_file_and_a_report(client, clip, server):
    audio, report = client.predict(TEXT, handle_file(str(clip)), WORDS, seed=5, api_name="/clone")
    samples, rate = soundfile.read(audio, dtype="int16")
    expected = server.engine.speak_all(Request(text=TEXT, reference=str(clip), transcript=WORDS, seed=5))
    np.testing.assert_array_equal(samples, to_int16(expected.samples))
    assert rate == 24000 and report["seed"] == 5 and report["rtf"] > 0 and report["rows"] == 1
    audio, report = client.predict(
        "Hi.", None, "", "saved_voice", "", None, "Narrator", 1, 1.5, "bf16", "eager", "flac", api_name="/clone"
    )
    assert soundfile.info(audio).format == "FLAC" and report["precision"] == "bf16" and report["mode"] == "saved_voice"


def test_clone_refuses_with_the_engines_words(client):
    for job, words in (
        ({"text": TEXT, "reference": None}, "a reference clip is missing"),
        ({"text": TEXT, "reference": None, "mode": "saved_voice", "voice": "x"}, "no saved voice is called"),
        ({"text": TEXT, "reference": None, "mode": "saved_voice"}, "choose a saved voice first: /voices lists them"),
        ({"text": TEXT, "reference": None, "file_format": "exe"}, "unknown file_format"),
    ):
        with pytest.raises(Exception, match=words):
            client.predict(**job, api_name="/clone")


def call(server, name, data):
    """What a program gets that talks to Gradio's HTTP API by itself: (last event, its data)."""
    url = f"{server.url}gradio_api/call/{name}"
    body = json.dumps({"data": data}).encode()
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    event = json.loads(urllib.request.urlopen(asked, timeout=30).read())["event_id"]
    lines = urllib.request.urlopen(f"{url}/{event}", timeout=60).read().decode().strip().splitlines()
    return lines[-2].removeprefix("event: "), json.loads(lines[-1].removeprefix("data: "))


def test_wrong_inputs_are_refused_with_their_reason(server):
    rest = ["", "cross_lingual", "", None, "", None, 1.0, "", "", "wav", False]
    for data, says in (
        ([{"a": 1}, None, *rest], "text is of type dict: give a text"),
        ([TEXT, "clip.wav", *rest], "reference is of type str: give a file"),
        ([TEXT, {"nothing": 1}, *rest], "an input cannot be used"),
        ([TEXT, {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, *rest], "an input cannot be used"),
        (
            [TEXT, None, "", "cross_lingual", "", None, "", "five", 1.0, "", "", "wav", False],
            "seed is of type str: give a number",
        ),
        ([TEXT, None, "", "saved_voice", "", None, "Narrator", -1, 1.0, "", "", "wav", False], "out of range"),
        ([TEXT, None, "", "saved_voice", "", None, "Narrator", 1.5, 1.0, "", "", "wav", False], "not a whole number"),
        ([TEXT, None, "", "saved_voice", "", None, "Narrator", 1, 0, "", "", "wav", False], "speed 0"),
        ([TEXT], "an input cannot be used"),
    ):
        event, answer = call(server, "clone", data)
        assert event == "error" and says in str(answer), (data, answer)
        assert "root:" not in str(answer)
    event, answer = call(
        server, "clone", ["Hi \ud800 there.", None, "", "saved_voice", "", None, "Narrator", 1, 1, "", "", "wav", False]
    )
    assert event == "complete" and answer[1]["seed"] == 1  # half a character is replaced
    event, answer = call(server, "clone_batch", [TEXT, None, WORDS, 5, False])
    assert event == "complete" and answer[1]["code"] == "input_missing"


def test_refusals_come_in_the_callers_language(server, clip, monkeypatch):
    chinese = {"Accept-Language": "zh-CN,zh;q=0.9"}
    client = gradio_client.Client(server.url, verbose=False, headers=chinese)
    file = handle_file(str(clip))
    for given, says in (
        ({"text": TEXT, "reference": None}, "缺少参考音频"),
        ({"text": TEXT, "reference": file, "seed": "five"}, "seed 的类型是 str：请给出数字"),
        ({"text": TEXT, "reference": None, "mode": "saved_voice", "voice": "x"}, "没有名为 'x' 的声音"),
    ):
        with pytest.raises(Exception, match=says):
            client.predict(**given, api_name="/clone")
    assert "文本为空" in client.predict("", file, WORDS, api_name="/clone_batch")[1]["message"]
    for body, says in (
        ({"input": TEXT, "voice": "nobody"}, "没有名为 'nobody' 的声音（现有：Narrator）"),
        ({"input": "", "voice": "Narrator"}, "文本为空"),
        ({"input": TEXT, "voice": "Narrator", "response_format": "exe"}, "response_format 只能是"),
        ({"voice": "Narrator"}, "input 无法使用（缺少此项）"),
        ({"input": TEXT, "voice": "Narrator", "speed": 9}, "speed 无法使用（最大为 2.0）"),
        ({"input": TEXT, "voice": "x" * 201}, "voice 无法使用（超过 200 个字符）"),
        ({"input": TEXT, "voice": "Narrator", "consent": "yes"}, "consent 无法使用（请给出 true 或 false）"),
    ):
        assert says in refused(server.url, chinese, **body)[1]["message"]
    assert (
        "no voice is called 'nobody' (there are: Narrator)"
        in refused(server.url, input=TEXT, voice="nobody")[1]["message"]
    )


def test_fairness_counts_api_callers_by_their_address(server, clip, monkeypatch):
    asked = []

    class Heard(Exception):
        pass

    def heard(request):
        asked.append(request.client)
        raise Heard

    monkeypatch.setattr(server.engine, "speak", heard)
    monkeypatch.setattr(server.engine, "speak_all", heard)
    for address in ("192.0.2.1", "192.0.2.2"):
        assert refused(server.url, {"X-Forwarded-For": address}, input=TEXT, voice="Narrator")[0] == 500
        client = gradio_client.Client(server.url, verbose=False, headers={"X-Forwarded-For": address})
        with pytest.raises(Exception, match="inside the program"):
            client.predict(TEXT, handle_file(str(clip)), api_name="/clone")
    assert asked == ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"]


def test_compare_and_doctor_answer_programs(client, clip, server):
    file = handle_file(str(clip))
    job = client.submit("Hi.", file, WORDS, "eager-bf16-whole, eager-fp32-stream", 1, 5, api_name="/compare")
    data = job.result(timeout=120)
    assert [v["id"] for v in data["variants"]] == ["eager-bf16-whole", "eager-fp32-stream"] and data["runs"] == 1
    assert data["baseline"] == "eager-bf16-whole" and data["request"]["seed"] == 5
    assert all(v["rtf"][0] > 0 and not v["error"] for v in data["variants"])
    assert {"done", "total"} == set(job.outputs()[0])
    for given, says in (
        ({"variants": "eager-fp64"}, "graph-fp16-stream"),
        ({"variants": "graph-fp16-whole"}, "not available here"),
        ({"runs": 0}, "runs 0 is out of range"),
        ({"text": ""}, "text is empty"),
    ):
        with pytest.raises(Exception, match=says):
            client.predict(**{"text": "Hi.", "reference": file, **given}, api_name="/compare")
    examined = client.predict(api_name="/doctor")
    assert examined["facts"]["cores"] and examined["predicted_ms"]["eager/fp32"] > 0
    assert {"code", "level", "cause", "evidence", "fix"} <= set(examined["verdicts"][0])
    speech = server.engine.speak(Request(text=LONG, reference=str(clip), transcript=WORDS, seed=1))
    for name, given in (("/compare", {"text": "Hi.", "reference": file}), ("/doctor", {})):
        with pytest.raises(Exception, match="being served"):
            client.predict(**given, api_name=name)
    speech.close()
    assert quiet(server.engine)


def test_strangers_compare_little(engine, clip):
    with serving(engine, shared=True) as server:
        client = gradio_client.Client(server.url, verbose=False)
        given = {"reference": handle_file(str(clip)), "consent": True}
        for more, says in (
            ({"text": "Hi.", "variants": "eager-fp32-whole, eager-bf16-whole, eager-fp32-stream"}, "at most 2 ways"),
            ({"text": LONG[:200]}, "at most 120 characters"),
            ({"text": "Hi.", "consent": False}, "consent=True"),
        ):
            with pytest.raises(Exception, match=says):
                client.predict(**given | more, api_name="/compare")


def test_nothing_is_left_in_the_temporary_folder(server, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = ["", "saved_voice", "", None, "Narrator", 1, 1.0, "", "", "mp3", False]
    event, answer = call(server, "clone", [TEXT, None, *settings])
    assert (
        event == "complete"
        and Path(answer[0]["path"]).is_file()
        and not Path(answer[0]["path"]).is_relative_to(tmp_path)
    )
    assert list(tmp_path.iterdir()) == []


def test_a_batch_answers_each_request_for_itself(client, clip):
    file = handle_file(str(clip))
    jobs = [
        client.submit(text, file, words, seed, api_name="/clone_batch")
        for text, words, seed in ((TEXT, WORDS, 5), ("", WORDS, 6), ("Hi.", "", 7), ("Hi there.", WORDS, 8))
    ]
    answers = [job.result(timeout=60) for job in jobs]
    assert [answer[1]["ok"] for answer in answers] == [True, False, True, True]
    assert answers[1][0] is None and answers[1][1]["code"] == "text_empty"
    assert [a[1]["seed"] for a in answers if a[1]["ok"]] == [5, 7, 8] and answers[2][1]["mode"] == "cross_lingual"
    assert all(soundfile.info(a[0]).frames > 0 for a in answers if a[0])


def test_voices_lists_the_shared_ones_and_the_docs_name_the_endpoints(client):
    assert [v["name"] for v in client.predict(api_name="/voices")] == ["Narrator"]
    named = client.view_api(return_format="dict")["named_endpoints"]
    assert set(named) == {"/clone", "/clone_batch", "/voices", "/compare", "/doctor"}
    assert all(endpoint.get("description") for endpoint in named.values())
    assert [p["parameter_name"] for p in named["/clone"]["parameters"]][:3] == ["text", "reference", "transcript"]


def test_openai_style_speech_in_every_format(server):
    voice = server.sessions.shared["Narrator"].voice
    expected = to_int16(
        server.engine.speak_all(Request(mode="saved_voice", text=TEXT, reference=voice, seed=3)).samples
    )
    for kind in ("wav", "flac", "mp3", "opus"):
        answer = post(server.url, model="any", input=TEXT, voice="Narrator", response_format=kind, seed=3)
        samples, rate = soundfile.read(io.BytesIO(answer.read()), dtype="int16")
        if kind in ("wav", "flac"):
            np.testing.assert_array_equal(samples, expected)
        else:
            assert len(samples) / rate == pytest.approx(len(expected) / 24000, abs=0.1)
    assert answer.headers["Content-Type"] == "audio/ogg"


def test_openai_style_pcm_comes_as_it_is_made_and_a_caller_who_leaves_stops_it(server):
    voice = server.sessions.shared["Narrator"].voice
    request = Request(mode="saved_voice", text=TEXT, reference=voice, seed=3, stream=True)
    answer = post(server.url, input=TEXT, voice="Narrator", response_format="pcm", seed=3)
    assert answer.headers["X-Rate-Hz"] == "24000"
    data = answer.read()
    np.testing.assert_array_equal(np.frombuffer(data, "<i2"), to_int16(server.engine.speak_all(request).samples))
    answer = post(server.url, input=LONG, voice="Narrator", response_format="pcm")
    assert len(answer.read(4800)) == 4800 and server.engine.worker.load() != (0, 0)
    answer.close()
    assert quiet(server.engine)


def test_openai_style_mistakes(server):
    for body, code, name in (
        ({"input": TEXT, "voice": "nobody"}, 404, "voice_unknown"),
        ({"input": "", "voice": "Narrator"}, 400, "text_empty"),
        ({"input": TEXT, "voice": "Narrator", "response_format": "exe"}, 400, "setting_invalid"),
        ({"input": TEXT, "voice": "Narrator", "response_format": "pcm", "speed": 2}, 400, "setting_invalid"),
        ({"input": TEXT, "voice": "Narrator", "speed": 4}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "speed": float("nan")}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "seed": -1}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "speed": True}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "speed": "1.5"}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "seed": True}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "consent": "yes"}, 400, "bad_input"),
        ({"input": {"a": 1}, "voice": "Narrator"}, 400, "bad_input"),
        ({"input": "half \ud800", "voice": "Narrator"}, 400, "bad_input"),
        ({"input": TEXT, "voice": "half \ud800"}, 400, "bad_input"),
        ({"input": TEXT, "voice": "x" * 201}, 400, "bad_input"),
        ({"input": TEXT, "voice": "Narrator", "instructions": "x" * 1001}, 400, "text_too_long"),
        ({"input": "x" * 5001, "voice": "Narrator"}, 400, "text_too_long"),
        ({"input": "x" * 300_000, "voice": "Narrator"}, 413, "bad_input"),
        ({"voice": "Narrator"}, 400, "bad_input"),
    ):
        status, error = refused(server.url, **body)
        assert (status, error["code"]) == (code, name), (body, error)
        assert set(error) == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
        if "\\ud800" not in json.dumps(body) and code != 413:  # those are refused before a field is known
            assert error["param"] in (
                "input",
                "voice",
                "speed",
                "seed",
                "response_format",
                "instructions",
                "consent",
            ), body
    for body in (b"", b"nonsense", b"[1]", b"\xff\xfe"):
        with pytest.raises(urllib.error.HTTPError) as wrong:
            urllib.request.urlopen(urllib.request.Request(f"{server.url}v1/audio/speech", body), timeout=10)
        assert wrong.value.code == 400 and json.loads(wrong.value.read())["error"]["param"] is None


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_openai_style_answers_other_methods_in_its_shape(server, method):
    with pytest.raises(urllib.error.HTTPError) as wrong:
        urllib.request.urlopen(urllib.request.Request(f"{server.url}v1/audio/speech", method=method), timeout=10)
    error = json.loads(wrong.value.read())["error"]
    assert wrong.value.code == 405 and wrong.value.headers["Allow"] == "POST"
    assert error["type"] == "invalid_request_error" and "POST" in error["message"]


KINDS_OF_ERROR = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CosyError)
]


@pytest.mark.parametrize("kind", KINDS_OF_ERROR, ids=lambda kind: kind.__name__)
def test_only_faults_of_the_program_are_server_errors(server, monkeypatch, kind):
    def refuses(request):
        raise kind("a reason", "text") if kind is errors.InputMissing else kind("a reason")

    monkeypatch.setattr(server.engine, "speak", refuses)
    status, error = refused(server.url, input=TEXT, voice="Narrator")
    asked = issubclass(kind, (errors.UserError, errors.ModeUnavailable))
    assert (status == 400) is asked and error["type"] == ("invalid_request_error" if asked else "server_error")
    assert (error["message"], error["code"]) == ("a reason", kind.code)


def test_an_instruction_that_a_model_does_not_know_is_the_callers_mistake(server, monkeypatch):
    taught = tuple(mode for mode in server.engine.modes if mode != "instruct")
    monkeypatch.setattr(type(server.engine), "modes", taught)
    status, error = refused(server.url, input=TEXT, voice="Narrator", instructions="Speak softly.")
    assert (status, error["code"], error["param"]) == (400, "mode_unavailable", "instructions")
    assert "was not taught instructions" in error["message"]


def test_a_shared_page_wants_consent_of_programs_too(engine, clip):
    with serving(engine, shared=True) as server:
        client = gradio_client.Client(server.url, verbose=False)
        with pytest.raises(Exception, match="consent=True"):
            client.predict("Hi.", handle_file(str(clip)), WORDS, api_name="/clone")
        assert client.predict("Hi.", handle_file(str(clip)), WORDS, consent=True, api_name="/clone")[1]["rtf"] > 0
        assert (
            client.predict("Hi.", handle_file(str(clip)), WORDS, api_name="/clone_batch")[1]["code"] == "input_missing"
        )
    voice = SavedVoice("Narrator", "Narrator", engine.voice(str(clip)), shared=True)
    with serving(engine, shared=True, voices={"Narrator": voice}) as server:
        assert refused(server.url, input="Hi.", voice="Narrator")[1]["param"] == "consent"
        assert post(server.url, input="Hi.", voice="Narrator", consent=True, response_format="wav").read(4) == b"RIFF"


def test_the_readmes_examples_run(engine, clip, tmp_path):
    with serving(engine, voices=example_voices(engine, example_clips(Path("assets/voices")))[0]) as server:
        _readme_examples(server, clip, tmp_path)


def _readme_examples(server, clip, tmp_path):
    section = Path("README.md").read_text(encoding="utf-8").partition("## API\n")[2].partition("\n## ")[0]
    python, curl = re.findall(r"```(?:python)?\n(.*?)```", section, re.S)
    python, curl = (
        code.replace("http://127.0.0.1:7860/", server.url)
        .replace("http://127.0.0.1:7860", server.url)
        .replace('"clip.wav"', repr(str(clip)))
        for code in (python, curl)
    )
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "bright" in done.stdout
    if shutil.which("curl"):
        subprocess.run(["bash", "-c", curl], check=True, cwd=tmp_path, capture_output=True)
        assert soundfile.info(tmp_path / "out.mp3").frames > 0


def test_the_program_starts_with_its_flags_and_says_where_it_is(server, tmp_path):
    save_voice(tmp_path / "Anna.safetensors", server.sessions.shared["Narrator"].voice, server.engine.voices.model_key)
    (tmp_path / "broken.safetensors").write_bytes(b"x")
    port = free_port()
    flags = ["--port", str(port), "--voices", str(tmp_path), "--public", "--whisper", "nowhere", "--device", "cpu"]
    (tmp_path / "temporary").mkdir()
    program = subprocess.Popen(
        [sys.executable, "webui.py", *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
    )  # fmt: skip
    try:
        said = []
        while not said or not said[-1].startswith("Stop with"):
            said.append(program.stdout.readline())
            assert said[-1], said
        words = "".join(said)
        assert (
            f"Open http://127.0.0.1:{port}" in words and "Shared voices: Anna" in words and "Left out: broken" in words
        )
        client = gradio_client.Client(f"http://127.0.0.1:{port}", verbose=False)
        assert [voice["name"] for voice in client.predict(api_name="/voices")] == [
            "bright",
            "low",
            "middle",
            "soft",
            "Anna",
        ]  # the examples, then the folder's
        settings = ["", "saved_voice", "", None, "Anna", 1, 1.0, "", "", "wav", True]
        answer = call(SimpleNamespace(url=f"http://127.0.0.1:{port}/"), "clone", ["Hi.", None, *settings])[1]
        (private,) = (tmp_path / "temporary").glob("cosy-studio-*")
        assert private.stat().st_mode & 0o077 == 0 and Path(answer[0]["path"]).is_relative_to(private)
    finally:
        program.terminate()
        program.wait(20)
    assert not private.exists()  # what was made goes with the program


def test_ids_work_once_and_only_if_they_exist(server, clip):
    for path in (
        "pcm/none",
        "pcm/../etc/passwd",
        "pcm/",
        "take/none.wav",
        "take/.srt",
        "takes/none.zip",
        "voice/none.safetensors",
    ):
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(server.url + path)
        assert missing.value.code in (403, 404), path
    job = server.jobs.start(
        server.engine, Request(text="Hi.", reference=str(clip), transcript=WORDS, seed=1, stream=True), "me"
    )
    data = urllib.request.urlopen(server.url + f"pcm/{job.id}").read()
    assert len(data) == 2 * len(job.samples()) > 0
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(server.url + f"pcm/{job.id}")


def test_a_listener_who_goes_stops_the_engine(server, clip):
    job = server.jobs.start(server.engine, Request(text=LONG, reference=str(clip), transcript=WORDS, stream=True), "me")
    answer = urllib.request.urlopen(server.url + f"pcm/{job.id}")
    answer.read(1000)
    answer.close()
    assert quiet(server.engine, 2.0)
    assert not isinstance(job.error, UserError)


def test_a_take_can_be_fetched_in_parts(server):
    take = server.sessions.keep("someone", np.arange(4000, dtype=np.int16), 24000, {}, Request(text="x"), None, 1)
    whole = urllib.request.urlopen(server.url + f"take/{take.id}.wav").read()
    size = len(whole)

    def get(wanted, method="GET", kind="wav"):
        asked = urllib.request.Request(f"{server.url}take/{take.id}.{kind}", headers={"Range": wanted}, method=method)
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, b"", error.headers

    for wanted, part in (
        ("bytes=100-199", whole[100:200]), ("bytes=0-0", whole[:1]), ("bytes=100-", whole[100:]), ("bytes=-7", whole[-7:]),
        (f"bytes=-{size * 2}", whole), (f"bytes=0-{10**17}", whole), ("bytes=0-", whole),
    ):  # fmt: skip
        status, data, headers = get(wanted)
        assert (status, data) == (206, part), wanted
        assert headers["Content-Range"].endswith(f"/{size}") and int(headers["Content-Length"]) == len(part)
    for wanted in (f"bytes={size}-", "bytes=-0", f"bytes={10**17}-"):
        status, _, headers = get(wanted)
        assert status == 416 and headers["Content-Range"] == f"bytes */{size}"
    for wanted in ("", "bytes=-", "bytes=9-2", "bytes=0-1,5-6", "lines=0-5", "bytes=x-y", "bytes=" + "9" * 5000 + "-"):
        assert get(wanted)[:2] == (200, whole), wanted[:20]
    for method in ("GET", "HEAD"):
        status, data, headers = get("", method)
        assert status == 200 and int(headers["Content-Length"]) == size and (data == whole) is (method == "GET")
