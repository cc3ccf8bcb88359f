"""A page that strangers reach: login, limits, attacks on files and addresses, what is kept and for how long; no browser."""

import base64
import datetime
import io
import json
import os
import re
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import gradio_client
import httpx
import numpy as np
import pytest
import soundfile
from gradio_client import handle_file

from cosy_engine import Request
from cosy_engine.errors import ReferenceTooLong
from cosy_ui import gate
from cosy_ui.clips import Clips
from cosy_ui.entrance import QUIET_S
from cosy_ui.guests import PUBLIC, Guests, Limits
from cosy_ui.jobs import JobTable
from cosy_ui.login import Login
from cosy_ui.sessions import GRACE_S, SavedVoice, Sessions
from tests.test_engine import WORDS
from tests.ui.conftest import serving
from tests.ui.steps import LONG

EVIL = {"Origin": "https://evil.example"}
REST = ["", "cross_lingual", "", None, "", 1, 1.0, "", "", "wav", True]


@pytest.fixture(scope="module")
def public(engine, clip):
    """A shared page; each test calls from an address of its own, so that limits do not add up."""
    voice = SavedVoice("Narrator", "Narrator", engine.voice(str(clip)), shared=True)
    with serving(engine, shared=True, voices={"Narrator": voice}) as server:
        yield server


@pytest.fixture
def visitor(public, request):
    address = f"198.51.100.{abs(hash(request.node.name)) % 250 + 1}"
    with httpx.Client(base_url=public.url, timeout=60, headers={"X-Forwarded-For": address}, trust_env=False) as http:
        yield http


def clone(http, data):
    """(last event, its data) of a call of /clone."""
    event = http.post("gradio_api/call/clone", json={"data": data}).raise_for_status().json()["event_id"]
    lines = http.get(f"gradio_api/call/clone/{event}").text.strip().splitlines()
    return lines[-2].removeprefix("event: "), lines[-1].removeprefix("data: ")


def file_value(path, **more):
    return {"path": path, "meta": {"_type": "gradio.FileData"}} | more


def upload(http, data, name="a.wav"):
    return http.post("gradio_api/upload", files={"files": (name, data)})


def speech(http, **more):
    return http.post("v1/audio/speech", json={"input": "Hi.", "voice": "Narrator", "consent": True} | more)


# Login


def own_routes(server):
    """(method, address) of every route that this program has put before Gradio's."""
    for route in server.page.app.routes:
        if getattr(route, "endpoint", None) and route.endpoint.__module__.startswith("cosy_ui."):
            yield from ((method, re.sub(r"{\w+}", "some-id-of-8.wav", route.path)) for method in route.methods)


def test_the_login_stands_before_every_route(engine):
    with serving(engine, shared=True, auth=Login({"anna": "secret"})) as server:
        http = httpx.Client(base_url=server.url, trust_env=False)
        routes = set(own_routes(server))
        paths = {path.split("/")[1] for _, path in routes}
        assert paths >= {"pcm", "take", "takes", "voice", "v1", "compare", "live", "metrics", "healthz", "readyz"}
        for method, path in routes:
            status = http.request(method, path).status_code
            assert status == (200 if path in ("/healthz", "/readyz") else 401), (method, path, status)
        for path in ("config", "gradio_api/info", "gradio_api/file=/etc/passwd"):
            assert http.get(path).status_code == 401
        pair = "anna:secret"
        for allowed in (
            {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()},
            {"Authorization": f"Bearer {pair}"},
        ):
            assert http.get("live", headers=allowed).status_code == 200
            assert http.get("take/none.wav", headers=allowed).status_code == 404
        for wrong in (
            "Basic !!!",
            "Basic " + base64.b64encode(b"anna:secreT").decode(),
            "Bearer anna",
            "Digest x",
            "Bearer :",
        ):
            assert http.get("live", headers={"Authorization": wrong}).status_code == 401, wrong
        assert http.post("login", data={"username": "anna", "password": "secret"}).status_code == 200
        assert http.get("live").status_code == 200  # by the cookie of the page
        client = gradio_client.Client(server.url, auth=("anna", "secret"), verbose=False)
        assert client.predict(api_name="/voices") == []


def test_passwords_cannot_be_tried_for_long(engine):
    limits = Limits(logins=(3, 1))
    with serving(engine, shared=True, limits=limits, auth=Login({"anna": "secret"})) as server:
        http = httpx.Client(base_url=server.url, trust_env=False)
        wrong = {"Authorization": "Bearer anna:guess"}
        assert [http.get("live", headers=wrong).status_code for _ in range(5)] == [401] * 3 + [429] * 2
        assert http.post("login", data={"username": "anna", "password": "secret"}).status_code == 429
        right = {"Authorization": "Bearer anna:secret"}  # else it would be found by asking on
        assert http.get("live", headers=right).status_code == 429
        assert server.jobs.guests.refused["logins"] == 4


# Other sites, and parts of Gradio that are not used


def test_another_sites_page_cannot_act_here(visitor):
    for path in (
        "v1/audio/speech",
        "gradio_api/queue/join",
        "gradio_api/upload",
        "gradio_api/run/x",
        "gradio_api/cancel",
        "login",
    ):
        answer = visitor.post(path, json={}, headers=EVIL)
        assert answer.status_code == 403 and "another site" in answer.json()["detail"], path
        assert (
            visitor.post(path, json={}, headers=EVIL | {"Accept-Language": "zh"}).json()["detail"].startswith("该请求")
        )
    own = {"Origin": str(visitor.base_url).rstrip("/")}
    assert visitor.post("v1/audio/speech", json={}, headers=own).status_code == 400


def test_what_the_page_does_not_use_is_closed(visitor):
    for method, path in (
        ("GET", "gradio_api/deep_link?session_hash=x"), ("POST", "gradio_api/process_recording"), ("GET", "gradio_api/vibe-code"),
        ("GET", "gradio_api/proxy=http://127.0.0.1:1/"), ("GET", "monitoring/summary"), ("GET", "gradio_api/runs"),
        ("GET", "gradio_api/run-history/buckets"), ("GET", "gradio_api/run-history/records"),
    ):  # fmt: skip
        assert visitor.request(method, path).status_code == 404, path
        assert visitor.request(method, path, headers={"Host": "localhost"}).status_code == 404, path


# Files and addresses


class Listener:
    """A server on this machine that must not be asked."""

    def __init__(self):
        asked = self.asked = []

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret.wav"


def test_no_file_of_this_machine_is_read_through_an_input(public, visitor, clip, tmp_path):
    held = Path(upload(visitor, clip.read_bytes()).json()[0])
    link = held.parent / "link.wav"
    link.symlink_to(clip)  # nobody can make one from outside; if it were there:
    paths = [
        "/etc/passwd", str(clip), f"{held.parent}/../../../../../../etc/passwd", "../../etc/passwd", "webui.py", "./webui.py",
        str(Path("webui.py").resolve()), "file:///etc/passwd", "//etc/passwd", "/proc/self/environ", str(held.parent),
        f"{held}\0.wav", f"{held}/../link.wav/..", "~/.ssh/id_rsa", "\\\\host\\share\\a.wav", "", "C:\\Windows\\win.ini",
    ]  # fmt: skip
    for path in paths:
        event, answer = clone(visitor, ["Hi.", file_value(path), *REST])
        assert event == "error" and "root:" not in answer and answer != "null", (path, answer)
    link.unlink()
    event, _ = clone(visitor, ["Hi.", file_value(str(held)), *REST])
    assert event == "complete"  # one's own upload


def test_no_file_of_this_machine_is_sent(visitor, clip):
    held = upload(visitor, clip.read_bytes()).json()[0]
    link = Path(held).parent / "link.wav"
    link.symlink_to("/etc/hostname")
    for path in (
        "/etc/passwd", f"{held}/../../../../../../../etc/passwd", "webui.py", str(Path("webui.py").resolve()), "file:///etc/passwd",
        "%2fetc%2fpasswd", "..%2f..%2fetc%2fpasswd", str(clip), "/proc/self/environ", str(Path(held).parent),
        str(Path(held).parent.parent / "in-use"), str(Path(held).parent / "link.wav"),
    ):  # fmt: skip
        for route in (f"gradio_api/file={path}", f"gradio_api/file/{path}", f"file={path}"):
            answer = visitor.get(route)
            assert answer.status_code in (403, 404), (route, answer.status_code)
    for route in (
        "static/..%2f..%2fetc/passwd",
        "assets/..%2f..%2f..%2froutes.py",
        "take/..%2f..%2fwebui.py",
        "voice/../webui.py",
    ):
        assert visitor.get(route).status_code in (403, 404), route
    link.unlink()
    assert visitor.get(f"gradio_api/file={held}").content == clip.read_bytes()


def test_nothing_is_fetched_from_an_address(visitor, clip):
    listener = Listener()
    for address in (
        listener.url,
        "http://169.254.169.254/latest/",
        "https://example.com/a.wav",
        "ftp://x/y.wav",
        "HTTP://x/y",
    ):
        event, answer = clone(visitor, ["Hi.", file_value(address, url=address), *REST])
        assert event == "error" and "nothing is fetched" in answer, (address, answer)
    held = upload(visitor, clip.read_bytes()).json()[0]
    event, _ = clone(visitor, ["Hi.", file_value(held, url=listener.url), *REST])
    assert event == "complete"  # the address beside an uploaded file is not used
    assert visitor.get(f"gradio_api/file={listener.url}").status_code in (403, 404)  # nor does a visitor get sent there
    assert listener.asked == []
    listener.server.shutdown()


def test_names_of_uploads_stay_inside_the_folder(visitor):
    root = None
    for name in (
        "../../evil.wav",
        "/etc/evil.wav",
        "..\\..\\evil.wav",
        "a/../../evil.wav",
        ".",
        "..",
        "x" * 300 + ".wav",
        "nul\0.wav",
    ):
        answer = upload(visitor, name.encode(), name)
        if answer.status_code == 200:
            path = Path(answer.json()[0])
            root = root or path.parent.parent
            assert path.resolve().parent.parent == root.resolve(), name
        else:
            assert answer.status_code in (400, 500), name
    assert root is not None


def test_a_small_file_that_holds_hours_costs_little(visitor, tmp_path):
    held = io.BytesIO()
    with soundfile.SoundFile(held, "w", 8000, 1, format="FLAC") as file:
        for _ in range(2 * 60):
            file.write(np.zeros(8000 * 60, np.int16))
    bomb = tmp_path / "hours.flac"
    bomb.write_bytes(held.getvalue())
    wide = tmp_path / "wide.wav"  # an hour of many channels at the highest rate, as its header says
    soundfile.write(wide, np.zeros((1000, 8), np.int16), 384_000)
    assert len(held.getvalue()) < 10 * 2**20
    clips = Clips(PUBLIC.clip_s)
    tracemalloc.start()
    with pytest.raises(ReferenceTooLong, match="longer than 60 s"):
        clips.read(str(bomb))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * 2**20
    path = upload(visitor, bomb.read_bytes(), "hours.flac").json()[0]
    event, answer = clone(visitor, ["Hi.", file_value(path), *REST])
    assert event == "error" and "longer than 60 s" in answer


def test_a_wide_file_may_hold_no_more_values_than_a_narrow_one(tmp_path):
    path = tmp_path / "wide.flac"
    with soundfile.SoundFile(path, "w", 192_000, 8, format="FLAC") as file:
        for _ in range(20):
            file.write(np.zeros((192_000, 8), np.int16))
    with pytest.raises(ReferenceTooLong, match="longer than 8 s"):
        Clips(PUBLIC.clip_s).read(str(path))


# Limits


def test_bodies_are_bounded_whether_they_tell_their_size_or_not(visitor, monkeypatch):
    large = b"x" * (gate.STRANGERS_BODY_BYTES + 1)
    assert visitor.post("gradio_api/queue/join", content=large).status_code == 413
    assert (
        visitor.post(
            "gradio_api/queue/join", content=(large[i : i + 2**16] for i in range(0, len(large), 2**16))
        ).status_code
        == 413
    )
    answer = upload(visitor, b"x" * (PUBLIC.upload_mb * 2**20 + gate.UPLOAD_SLACK_BYTES + 1))
    assert answer.status_code == 413 and "15 MB" in answer.json()["error"]

    def endless():
        while True:
            yield b"x" * 2**16

    with pytest.raises(httpx.HTTPError):  # the server answers and hangs up while the caller still sends
        visitor.post(
            "gradio_api/upload", content=endless(), headers={"Content-Type": "multipart/form-data; boundary=x"}
        ).raise_for_status()

    monkeypatch.setattr(gate, "BODY_S", 0.5)

    def slow():
        yield b"{"
        time.sleep(1.5)
        yield b"}"

    began = time.monotonic()
    assert visitor.post("v1/audio/speech", content=slow()).status_code == 408
    assert time.monotonic() - began < 5


def test_files_are_refused_where_there_is_no_room(visitor, monkeypatch, tmp_path):
    (tmp_path / "held").write_bytes(b"x" * 2**20)
    door = gate.Gate(None, Guests(True, Limits(folder_mb=1)), tmp_path)
    assert door._room()
    (tmp_path / "more").write_bytes(b"x")
    assert door._room()  # not measured again at once
    monkeypatch.setattr(gate, "FOLDER_S", -1.0)
    assert not door._room() and not gate.Gate(None, Guests(), tmp_path / "held" / "no")._room()
    monkeypatch.setattr(gate, "FREE_BYTES", 2**60)
    answer = upload(visitor, b"x")
    assert answer.status_code == 507 and "no room" in answer.json()["error"]


def test_one_who_asks_too_often_waits_and_others_do_not(engine, clip):
    limits = Limits(jobs=(2, 6), uploads=(2, 6), calls=(20, 60), jobs_at_once=5)
    voice = SavedVoice("Narrator", "Narrator", engine.voice(str(clip)), shared=True)
    with serving(engine, shared=True, limits=limits, voices={"Narrator": voice}) as server:
        one, other = (
            httpx.Client(base_url=server.url, headers={"X-Forwarded-For": a}, timeout=60, trust_env=False) for a in ("192.0.2.1", "192.0.2.2")
        )  # fmt: skip
        assert [upload(one, b"x").status_code for _ in range(3)] == [200, 200, 429] and upload(
            other, b"x"
        ).status_code == 200
        answers = [speech(one, response_format="wav") for _ in range(3)]
        assert [a.status_code for a in answers] == [200, 200, 503]
        assert re.search("try again in [0-9]+ s", answers[2].json()["error"]["message"])
        assert (
            clone(one, ["Hi.", None, "", "saved_voice", "", None, "Narrator", 1, 1.0, "", "", "wav", True])[0]
            == "error"
        )
        assert speech(other, response_format="wav").status_code == 200
        codes = [one.get("take/none.wav").status_code for _ in range(25)]
        assert codes[-1] == 429 and 404 in codes
        many = one.get("take/none.wav")
        assert int(many.headers["Retry-After"]) >= 1 and other.get("take/none.wav").status_code == 404


def test_work_at_once_is_counted_until_the_stream_ends(engine, clip):
    voice = SavedVoice("Narrator", "Narrator", engine.voice(str(clip)), shared=True)
    with serving(engine, shared=True, limits=Limits(jobs_at_once=1), voices={"Narrator": voice}) as server:
        http = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
        body = {"input": (LONG * 20)[:4900], "voice": "Narrator", "consent": True, "response_format": "pcm"}
        with http.stream("POST", "v1/audio/speech", json=body) as running:
            chunks = running.iter_bytes()  # kept: an iterator that is thrown away closes its connection
            assert next(chunks)
            second = speech(http)
            assert second.status_code == 503 and "1 of your requests" in second.json()["error"]["message"]
        until = time.monotonic() + 10
        while (third := speech(http)).status_code != 200 and time.monotonic() < until:
            time.sleep(0.1)
        assert third.status_code == 200


def test_connections_are_bounded(engine):
    with serving(engine, shared=True, limits=Limits(connections=2)) as server:
        http = httpx.Client(base_url=server.url, timeout=10, trust_env=False)
        beats = [http.send(http.build_request("GET", f"gradio_api/heartbeat/s{i}"), stream=True) for i in range(2)]
        assert http.get("live").status_code == 429
        beats[0].close()
        until = time.monotonic() + 30  # Gradio notices at its next beat
        while (status := http.get("live").status_code) == 429 and time.monotonic() < until:
            time.sleep(0.2)
        assert status == 200
        beats[1].close()


def test_strangers_cannot_switch_the_model_or_speak_for_long(visitor):
    def asked(text="Hi.", precision="", tier=""):
        return clone(
            visitor, [text, None, "", "saved_voice", "", None, "Narrator", 1, 1.0, precision, tier, "wav", True]
        )

    assert "keeps one model" in asked(precision="bf16")[1]
    assert "at most 600" in asked("x" * 601)[1]
    assert asked(precision="fp32", tier="eager")[0] == "complete"
    assert speech(visitor, input="x" * 601).json()["error"]["code"] == "text_too_long"
    config = visitor.get("config").json()["components"]
    shown = {c["props"].get("elem_id"): c["props"].get("visible") for c in config}
    assert shown["precision"] is False and shown["tier"] is False and shown["consent-box"] is True


NONSENSE = ("zanzibar", ["zanzibar"], {"zanzibar": "zanzibar"}, {"value": "zanzibar"}, 1e300, -1, True, None, [["zanzibar"]],
            {"path": "zanzibar", "meta": {"_type": "gradio.FileData"}})  # fmt: skip


def answer_of(http, fn, data, session):
    """(whether it went well, error) of one event of the page."""
    body = {"data": data, "fn_index": fn["id"], "session_hash": session}
    if fn["queue"] is False:
        answer = http.post("gradio_api/run/predict", json=body)
        return answer.status_code == 200, answer.json().get("error")
    http.post("gradio_api/queue/join", json=body).raise_for_status()
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            if line.startswith("data: ") and (message := json.loads(line[6:]))["msg"] == "process_completed":
                return message["success"], message["output"].get("error")


def test_nonsense_in_any_input_of_any_event_is_refused_with_a_reason_and_nothing_is_logged(
    public, visitor, capfd, caplog
):
    config = visitor.get("config").json()
    values = {c["id"]: c["props"].get("value") for c in config["components"]}
    capfd.readouterr()
    refused = 0
    for fn in (d for d in config["dependencies"] if d["backend_fn"]):
        usual = [values[i] for i in fn["inputs"]]
        cases = [[*usual[:i], bad, *usual[i + 1 :]] for i in range(len(usual)) for bad in NONSENSE]
        for number, data in enumerate([*cases, [], ["zanzibar"] * 50]):
            visitor.headers["X-Forwarded-For"] = f"198.18.{fn['id']}.{number % 250}"  # limits are another matter
            good, error = answer_of(visitor, fn, data, f"nonsense{fn['id']}-{number}")
            assert good or error, f"{fn['api_name']} {data}: no reason"
            refused += not good
    said = capfd.readouterr()
    assert refused > 500 and "zanzibar" not in said.err + said.out + caplog.text and "Traceback" not in said.err


@pytest.mark.parametrize("start", ["generate", "cmp-start"])
@pytest.mark.parametrize(
    "changes, says",
    [
        ({11: "1e99"}, "is not a whole number"),
        ({11: "1e99", 12: True}, "is not a whole number"),
        ({11: "9" * 21}, "has 21 characters"),
        ({2: "zz"}, "choose it anew"),
        ({2: "nan,1@00000000"}, "choose it anew"),
        ({0: "saved_voice"}, "choose a saved voice"),
    ],
)
def test_the_page_refuses_what_it_cannot_have_sent(public, visitor, clip, start, changes, says):
    reference = file_value(upload(visitor, clip.read_bytes()).json()[0])
    form = ["zero_shot", reference, "", WORDS, "Hi.", "", None, None, "fp32", "eager", False, "", False, 1.0]
    for place, value in changes.items():
        form[place] = value
    before = ["worklet"] if start == "generate" else [["eager-fp32-whole"], [], "eager-fp32-whole", 1, False]
    page = OpenPage(public, "cannot")
    page.http.headers["X-Forwarded-For"] = visitor.headers["X-Forwarded-For"]
    shown = page.fire(start, "click", True, *before, *form)
    page.leave()
    assert says in shown[0] and "bad" in shown[0]


# What is kept


class OpenPage:
    """A page as a browser opens it."""

    def __init__(self, server, session):
        self.http, self.session = httpx.Client(base_url=server.url, timeout=60, trust_env=False), session
        self.beat = self.http.send(self.http.build_request("GET", f"gradio_api/heartbeat/{session}"), stream=True)
        config = self.http.get("config").json()
        self.names = {c["id"]: c["props"].get("elem_id") for c in config["components"]}
        self.fns = config["dependencies"]
        self.fire(None, "load")

    def fire(self, name, kind, *data):
        fn = next(
            d["id"]
            for d in self.fns
            for t in d["targets"]
            if t[1] == kind and d["backend_fn"] and (not name or self.names.get(t[0]) == name)
        )
        body = {"data": list(data), "fn_index": fn, "session_hash": self.session}
        joined = self.http.post("gradio_api/queue/join", json=body).raise_for_status()
        assert joined
        with self.http.stream("GET", "gradio_api/queue/data", params={"session_hash": self.session}) as events:
            for line in events.iter_lines():
                if line.startswith("data: ") and (message := json.loads(line[6:]))["msg"] == "process_completed":
                    assert message["success"], message
                    return message["output"]["data"]

    def leave(self):
        self.beat.close()
        self.http.close()


def left(sessions: Sessions, owner, within_s=20.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if (page := sessions._open.get(owner)) and page.left_at is not None:
            return True
        time.sleep(0.05)
    return False


def test_uploads_and_results_go_with_their_page_and_no_sooner(engine, clip, monkeypatch, tmp_path):
    folder = tmp_path / "voices"
    folder.mkdir()
    (folder / "anna.wav").write_bytes(clip.read_bytes())
    (folder / "anna.txt").write_text(WORDS)
    with serving(engine, examples=folder) as server:
        mine, other = OpenPage(server, "mine"), OpenPage(server, "other")
        samples, rate = soundfile.read(clip, dtype="int16")
        held = io.BytesIO()
        soundfile.write(held, samples[1000:], rate, format="WAV")
        path = upload(mine.http, held.getvalue(), "private.wav").json()[0]
        mine.fire("reference", "change", file_value(path), "", "", "zero_shot", False, "")
        form = ["zero_shot", file_value(path), "", WORDS, "Hi.", "", None, None, "fp32", "eager", False, "", False, 1.0]
        shown = mine.fire("generate", "click", True, "worklet", *form)
        result = next(v["value"]["path"] for v in shown if isinstance(v, dict) and isinstance(v.get("value"), dict))
        example = clone(mine.http, ["Hi.", file_value(upload(mine.http, clip.read_bytes()).json()[0]), *REST])
        assert example[0] == "complete"
        clips = next(v for k, v in vars(server.page.files).items() if k == "_gone").__self__
        assert Path(path).exists() and Path(result).exists() and any(key[0] == path for key in clips._kept)
        assert Path(path).stat().st_mode & 0o077 == 0 or Path(path).parent.parent.stat().st_mode & 0o077 == 0
        other.fire(
            "reference", "change", file_value(path), "", "", "zero_shot", False, ""
        )  # as if it had the same recording
        mine.leave()
        assert left(server.sessions, "mine")
        server.sessions.sweep()
        assert Path(path).exists()  # a phone that was locked
        begin = time.monotonic
        server.sessions._clock = lambda: begin() + GRACE_S + 1
        server.sessions._open["other"].used_at += GRACE_S
        server.sessions.sweep()
        assert not Path(result).exists() and Path(path).exists() and "mine" not in server.sessions._open
        states, waiting = server.page.state_holder.session_data, server.page._queue.pending_messages_per_session
        assert (
            "mine" not in states and "mine" not in waiting and "other" in states
        )  # nothing of it is left in Gradio either
        other.leave()
        assert left(server.sessions, "other")
        server.sessions._open["other"].left_at = -1e9
        server.sessions.sweep()
        assert not Path(path).exists() and not any(key[0] == path for key in clips._kept)


@pytest.mark.parametrize("jump_s", [400 * 86400, -400 * 86400])
def test_a_clock_that_jumps_ends_nothing(public, visitor, clip, monkeypatch, jump_s):
    held = upload(visitor, clip.read_bytes()).json()[0]
    take = public.sessions.keep("clock", np.zeros(10, np.int16), 24000, {}, Request(text="x"), None, 1)
    public.page.files.sweep(set())
    true, date = time.time, datetime.datetime

    class Jumped(date):
        @classmethod
        def now(cls, tz=None):
            return date.now(tz) + datetime.timedelta(seconds=jump_s)

    monkeypatch.setattr(time, "time", lambda: true() + jump_s)
    monkeypatch.setattr(datetime, "datetime", Jumped)
    for _ in range(2):
        assert clone(visitor, ["Hi.", file_value(held), *REST])[0] == "complete"
        public.sessions.sweep()
        public.jobs.sweep()
        public.page.sweep()
        public.page.files.sweep(set())
    assert public.sessions.find_take(take.id) is take and Path(held).exists()


def test_a_thousand_empty_pages_drive_out_nobodys_takes(monkeypatch):
    monkeypatch.setattr("cosy_ui.sessions.MAX_SESSIONS", 5)
    sessions = Sessions()
    gone = []
    sessions.forgotten = gone.append
    take = sessions.keep("mine", np.zeros(10, np.int16), 24000, {}, Request(text="x"), None, 1)
    for i in range(20):
        sessions.takes(f"flood{i}")
    assert sessions.find_take(take.id) is take and gone == [f"flood{i}" for i in range(16)]


def test_calls_leave_no_growing_state_behind(public, visitor, monkeypatch):
    held = len(public.page.state_holder.session_data)
    monkeypatch.setattr(public.page.state_holder, "capacity", held)
    for _ in range(3):
        assert clone(visitor, ["", None, *REST])[0] == "error"
    assert len(public.page.state_holder.session_data) == held and public.page.state_session_capacity <= 500


def test_what_gradio_holds_of_a_program_goes_soon_and_of_a_page_when_it_is_gone(engine):
    with serving(engine, shared=True) as server:
        here = OpenPage(server, "here")
        assert clone(here.http, ["", None, *REST])[0] == "error"
        event = here.http.post("gradio_api/call/clone", json={"data": ["", None, *REST]}).json()["event_id"]  # and left
        until = time.monotonic() + 20
        while server.page._queue.event_ids_to_events and time.monotonic() < until:
            time.sleep(0.05)
        states, queue = server.page.state_holder.session_data, server.page._queue
        places = (states, server.page.state_holder.time_last_used, queue.pending_messages_per_session,
                  queue.pending_event_ids_session, server.page._heard)  # fmt: skip
        assert len(states) == 3 and event in queue.pending_event_ids_session and not any(states["here"].components)
        server.page.sweep()  # the answer may still be fetched
        assert len(states) == 3
        begin = time.monotonic
        server.page.clock = lambda: begin() + QUIET_S + 1
        server.page.sweep()
        assert list(states) == ["here"] and not any(event in place for place in places)
        here.leave()
        assert left(server.sessions, "here")
        server.sessions._open["here"].left_at = -1e9
        server.sessions.sweep()
        assert not any(places) and len(queue.event_analytics) <= 1


def test_one_page_cannot_see_or_change_anothers_things(public, engine):
    take = public.sessions.keep("victim", np.zeros(10, np.int16), 24000, {}, Request(text="x"), None, 1)
    voice = public.sessions.save_voice("victim", "Mine", engine.voice(public.sessions.shared["Narrator"].voice))
    assert public.sessions.take_of("thief", take.id) is None and public.sessions.voice_of("thief", voice.id) is None
    assert public.sessions.delete_voice("thief", voice.id) is None and public.sessions.voices("thief")[0].shared
    assert (
        len(take.id) >= 22 and len(voice.id) >= 16 and len(public.sessions.zip_id("victim")) >= 22
    )  # 128, 96, 128 bits
    ids = {JobTable().start(engine, Request(text=""), "x").id for _ in range(50)}
    assert len(ids) == 50 and all(len(i) >= 22 for i in ids)


# For the operator


def test_health_and_figures(public, visitor, monkeypatch):
    speech(visitor, response_format="wav")
    assert visitor.get("healthz").json() == {"status": "ok"}
    ready = visitor.get("readyz")
    assert ready.status_code == 200 and ready.json()["ready"] and not ready.json()["stopping"]
    here = httpx.Client(base_url=public.url, trust_env=False)
    lines = here.get("metrics").text.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures['cosy_requests_total{outcome="done",source="speech"}']) >= 1
    assert float(figures["cosy_first_audio_seconds_count"]) >= 1 and float(figures["cosy_decode_steps_total"]) > 0
    assert float(figures["process_resident_memory_bytes"]) > 1e6 and "cosy_running" in figures
    assert visitor.get("metrics").status_code == 403  # through a tunnel or proxy
    assert here.get("metrics", headers={"Host": "abc.gradio.live"}).status_code == 403
    monkeypatch.setattr(public.jobs.guests, "closing", True)
    assert visitor.get("readyz").status_code == 503
    assert "stopping" in speech(visitor).json()["error"]["message"]
    monkeypatch.setattr(public.jobs.guests, "closing", False)
    monkeypatch.setattr(public.engine.worker, "alive", lambda: False)
    assert visitor.get("healthz").status_code == 503 and visitor.get("readyz").status_code == 503


def test_nothing_listens_to_environment_that_opens_paths(public):
    assert not os.environ.get("GRADIO_ALLOWED_PATHS")
    assert public.page.allowed_paths == [] and public.page.app.get_blocks().run_history is False


def test_the_python_client_can_use_a_public_page(public, clip):
    client = gradio_client.Client(public.url, verbose=False)
    audio, report = client.predict("Hi.", handle_file(str(clip)), WORDS, consent=True, api_name="/clone")
    assert soundfile.info(audio).frames > 0 and report["rtf"] > 0
