"""The program as its operator sees it: how it starts, what it writes, how it ends. Each test is one run of webui.py."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from gradio_client import Client, handle_file

from cosy_engine.audio.voice import save_voice
from tests.test_engine import WORDS
from tests.ui.conftest import free_port
from tests.ui.steps import LONG
from tests.ui.test_public import REST, answer_of, clone, file_value, speech, upload

SECRET = "zanzibar"  # in every text and name that is sent; nowhere in what is written


@contextlib.contextmanager
def running(folder: Path, *flags: str, before: tuple[str, ...] = ()):
    """(program, http, everything that it has written so far); killed at the end if it still runs."""
    port = free_port()
    (folder / "temporary").mkdir(exist_ok=True)
    with open(folder / "written", "w") as file:
        program = subprocess.Popen(
            [*before, sys.executable, "webui.py", "--port", str(port), "--device", "cpu", *flags], stdout=file, stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(folder / "temporary")},
        )  # fmt: skip

    def written() -> str:
        return (folder / "written").read_text()

    try:
        until = time.monotonic() + 60
        while "Stop with" not in written():
            assert program.poll() is None and time.monotonic() < until, written()
            time.sleep(0.1)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/", timeout=60, trust_env=False) as http:
            yield program, http, written
    finally:
        program.kill()
        program.wait()


@pytest.fixture(scope="module")
def voices(engine, clip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("voices")
    save_voice(folder / "Narrator.safetensors", engine.voice(str(clip), WORDS), engine.voices.model_key)
    return folder


@pytest.mark.parametrize("flags", [(), ("--log-json",)])
def test_nothing_of_sound_text_or_names_is_logged(tmp_path, voices, clip, miniature_folder, flags):
    flags = (
        "--public",
        "--model",
        str(miniature_folder),
        "--voices",
        str(voices),
        "--auth",
        f"anna:{SECRET}-word",
        *flags,
    )
    with running(tmp_path, *flags) as (program, http, written):
        assert http.get("live").status_code == 401
        http.headers["Authorization"] = f"Bearer anna:{SECRET}-wrong"
        assert http.get("live").status_code == 401
        http.headers["Authorization"] = f"Bearer anna:{SECRET}-word"
        http.post("login", data={"username": "anna", "password": f"{SECRET}-guess"})
        assert http.post("login", data={"username": "anna", "password": f"{SECRET}-word"}).status_code == 200
        held = upload(http, clip.read_bytes(), f"{SECRET}.wav").json()[0]
        assert clone(http, [f"Hello {SECRET}.", file_value(held), *REST])[0] == "complete"
        noise = upload(http, os.urandom(5000), f"{SECRET}-noise.wav").json()[0]
        for data in ([f"{SECRET}" * 300, file_value(held), *REST], ["Hi.", file_value(noise), *REST], [{SECRET: 1}, None, *REST],
                     ["Hi.", file_value(f"/{SECRET}"), *REST]):  # fmt: skip
            assert clone(http, data)[0] == "error"
        assert speech(http, input=f"Say {SECRET}.", response_format="wav").status_code == 200
        assert speech(http, input=f"Say {SECRET}.", voice=SECRET).status_code == 404
        assert (
            http.get(f"take/{SECRET}.wav").status_code == 404
            and http.post("v1/audio/speech", content=SECRET).status_code == 400
        )
        folder = next((tmp_path / "temporary").glob("cosy-studio-*"))
        assert {p.parent.parent for p in folder.rglob("*.wav")} == {folder / "gradio"}
        assert list((tmp_path / "temporary").iterdir()) == [folder]  # nothing lies beside our own folder
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0
    said = written()
    assert SECRET not in said and "Traceback" not in said
    after = said.partition("Stop with Ctrl+C\n")[2].splitlines()
    if "--log-json" in flags:
        lines = [json.loads(line) for line in after]
        ended = [line for line in lines if line["message"] == "request"]
        assert {line["outcome"] for line in ended} == {"done", "refused"} and ended[0]["rtf"] > 0
    else:
        assert after == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_the_program_made_can_be_fetched(tmp_path, clip, miniature_folder):
    """Gradio copies a result into its folder, or it would be gone when the player or the caller asks for it."""
    with running(tmp_path, "--model", str(miniature_folder)) as (_, http, _):
        client = Client(str(http.base_url), verbose=False, download_files=tmp_path)
        audio, report = client.predict("Hello.", handle_file(str(clip)), WORDS, seed=5, api_name="/clone")
        samples, rate_hz = soundfile.read(audio)
        assert len(samples) == round(report["audio_s"] * rate_hz)


def streaming(http, got: list):
    body = {"input": (LONG * 20)[:580], "voice": "Narrator", "consent": True, "response_format": "pcm", "seed": 4}
    with http.stream("POST", "v1/audio/speech", json=body) as answer:
        got.append(answer.status_code)
        for part in answer.iter_raw():
            got.append(part)
    got.append("end")


def test_sigterm_lets_what_runs_end_and_takes_nothing_new(tmp_path, voices, miniature_folder):
    flags = ("--public", "--model", str(miniature_folder), "--voices", str(voices), "--slots", "1")
    with running(tmp_path, *flags) as (program, http, written):
        beat = http.send(http.build_request("GET", "gradio_api/heartbeat/open-page"), stream=True)  # a tab that stays
        got: list = []
        listener = threading.Thread(target=streaming, args=(http, got))
        listener.start()
        while len(got) < 2:
            time.sleep(0.01)
        program.send_signal(signal.SIGTERM)
        time.sleep(0.7)  # the main thread looks every half second
        if listener.is_alive():
            refused = speech(http)
            assert refused.status_code == 503 and "stopping" in refused.json()["error"]["message"]
            assert http.get("readyz").json()["stopping"]
        listener.join(40)
        assert program.wait(30) == 0
        beat.close()
    assert got[0] == 200 and got[-1] == "end"
    samples = np.frombuffer(b"".join(got[1:-1]), "<i2")
    with running(tmp_path, *flags) as (program, http, written):
        whole: list = []
        streaming(http, whole)
        np.testing.assert_array_equal(samples, np.frombuffer(b"".join(whole[1:-1]), "<i2"))  # to its very end
        stopped: list = []
        listener = threading.Thread(target=streaming, args=(http, stopped))
        listener.start()
        while len(stopped) < 2:
            time.sleep(0.01)
        began = time.monotonic()
        program.send_signal(signal.SIGINT)  # at once
        assert program.wait(40) == 0 and time.monotonic() - began < 15  # a drain would take 20 s
        listener.join(15)
    assert "Traceback" not in written()


def test_a_killed_program_leaves_nothing_that_blocks_the_next(tmp_path, voices, clip, miniature_folder):
    flags = ("--model", str(miniature_folder))
    with running(tmp_path, *flags) as (program, http, _):
        held = Path(upload(http, clip.read_bytes()).json()[0])
        program.kill()
        program.wait()
    assert held.exists()
    with running(tmp_path, *flags) as (_, http, _written):
        assert not held.exists() and http.get("healthz").status_code == 200


def test_a_model_folder_that_vanishes_while_it_runs_harms_nobody(tmp_path, clip, miniature_folder):
    copy = tmp_path / "model"
    shutil.copytree(miniature_folder, copy)
    with running(tmp_path, "--model", str(copy)) as (_, http, written):
        shutil.rmtree(copy)
        held = upload(http, clip.read_bytes()).json()[0]
        assert clone(http, ["Hi.", file_value(held), *REST])[0] == "complete"
        event, answer = clone(
            http, ["Hi.", file_value(held), "", "cross_lingual", "", None, "", 1, 1.0, "bf16", "", "wav", True]
        )
        assert event == "complete" or "model" in answer, answer  # read again, or said
        assert http.get("healthz").status_code == 200 and "Traceback" not in written()


@pytest.mark.parametrize(
    "flags,environment,says",
    [
        (("--model", "no/such/folder"), {}, "Cannot start: "),
        (("--auth", "nocolon"), {}, "--auth takes NAME:PASSWORD, or a file"),
        ((), {"TMPDIR": "UNWRITABLE", "TEMP": "", "TMP": ""}, "Cannot start: "),
        (("--port", "TAKEN"), {}, "cannot be used"),
    ],
)
def test_what_prevents_a_start_is_said_in_a_line(tmp_path, miniature_folder, flags, environment, says):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        flags = [str(taken.getsockname()[1]) if flag == "TAKEN" else flag for flag in flags]
        if "--model" not in flags:
            flags += ["--model", str(miniature_folder)]
        code = "import sys, tempfile; sys.argv[0] = 'webui.py'\n"
        if environment:  # a read-only place also for the superuser, who may write everywhere
            code += f"tempfile._candidate_tempdir_list = lambda: [{str(tmp_path / 'missing')!r}]\n"
        code += "import webui; sys.exit(webui.main(sys.argv[1:]))"
        done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done
    assert "nocolon" not in done.stderr


def test_without_network_or_helper_the_page_goes_on_locally_and_says_why(tmp_path, miniature_folder):
    proxy = {name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (proxy | {"HF_HOME": str(tmp_path / "hub")}).items():
            patched.setenv(name, value)
        with running(tmp_path, "--share", "--model", str(miniature_folder)) as (_, http, written):
            assert http.get("healthz").status_code == 200
            assert "No share link: its helper program is not here" in written() and "local address" in written()
            shown = {
                c["props"].get("elem_id"): c["props"].get("visible") for c in http.get("config").json()["components"]
            }
            assert shown["consent-box"] is True  # what is meant for others is guarded from the first moment


def test_a_full_disk_is_said_and_what_needs_no_disk_goes_on(tmp_path, voices, clip, miniature_folder):
    """The system's own limit on file sizes stands for the full disk: every larger write fails."""
    full = ("bash", "-c", 'ulimit -f 20; exec "$@"', "-")  # kB; Python itself ignores the signal
    flags = ("--model", str(miniature_folder), "--voices", str(voices))
    with running(tmp_path, *flags, before=full) as (_, http, written):
        answer = upload(http, clip.read_bytes())
        assert answer.status_code == 507 and "could not be written" in answer.json()["detail"], answer.text
        text = "Hello there, this is a test."
        by_voice = [text, None, "", "saved_voice", "", None, "Narrator", 1, 1.0, "", "", "wav", True]
        event, told = clone(http, by_voice)
        assert event == "error" and "could not be written" in told and "not_written" in told
        config = http.get("config").json()
        names = {c["id"]: c["props"].get("elem_id") for c in config["components"]}
        own = [(d, t) for d in config["dependencies"] for t in d["targets"] if d["backend_fn"]]
        press = next(d for d, t in own if t[1] == "click" and names.get(t[0]) == "generate")
        assert answer_of(http, next(d for d, t in own if t[1] == "load"), [], "page") == (True, None)
        form = ["saved_voice", None, "", "", text, "", None, "Narrator", "fp32", "eager", False, "", False, 1.0]
        good, told = answer_of(http, press, [False, "worklet", *form], "page")
        assert not good and "could not be written" in told
        assert speech(http, input=text, response_format="pcm").status_code == 200
        assert upload(http, b"x" * 100).status_code == 200 and http.get("healthz").status_code == 200
        assert "Traceback" not in written() and written().count("could not be written: File too large") == 3


def test_sigterm_ends_what_takes_longer_at_the_bound(tmp_path, voices, miniature_folder):
    flags = ("--model", str(miniature_folder), "--voices", str(voices), "--slots", "1", "--drain", "1")
    with running(tmp_path, *flags) as (program, http, written):
        body = {"input": LONG, "voice": "Narrator", "response_format": "pcm", "seed": 4}
        got: list = []

        def listen() -> None:
            with http.stream("POST", "v1/audio/speech", json=body) as answer:
                got.extend(answer.iter_raw())  # raises where the end of the body is missing
            got.append("end")

        listener = threading.Thread(target=listen)
        listener.start()
        while not got:
            time.sleep(0.01)
        began = time.monotonic()
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0 and 1 < time.monotonic() - began < 8
        listener.join(5)
        assert got[-1] == "end" and sum(map(len, got[:-1])) > 24_000 and "Traceback" not in written()


def test_a_folder_for_temporary_files_that_somebody_tidies_away_comes_back(tmp_path, clip, miniature_folder):
    with running(tmp_path, "--model", str(miniature_folder)) as (_, http, written):
        (folder,) = (tmp_path / "temporary").glob("cosy-studio-*")
        shutil.rmtree(folder)
        held = upload(http, clip.read_bytes())
        assert held.status_code == 200, held.text
        assert clone(http, ["Hi.", file_value(held.json()[0]), *REST])[0] == "complete"
        assert folder.stat().st_mode & 0o077 == 0 and "Traceback" not in written()


def test_idle_connections_of_a_stranger_stop_nobody(tmp_path, miniature_folder):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"this machine gives a program only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    limited = ("bash", "-c", 'ulimit -Sn 256; exec "$@"', "-")
    try:
        with running(tmp_path, "--public", "--model", str(miniature_folder), before=limited) as (_, http, _written):
            address = (http.base_url.host, http.base_url.port)
            idle = [socket.create_connection(address) for _ in range(1000)]
            for one in idle[:500]:
                one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")  # and never the end
            assert http.get("healthz").status_code == 200 and http.get("config").status_code == 200
            for one in idle:
                one.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_fault_in_the_readme_names_tests_that_exist():
    table = Path("README.md").read_text(encoding="utf-8").partition("| fault |")[2].partition("\n\n")[0]
    named = re.findall(r"`(test_\w+)`", table)
    there = {
        name
        for file in Path("tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert len(named) >= table.count("\n") - 1 and set(named) <= there, set(named) - there
