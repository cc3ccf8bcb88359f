"""Limits, the login and the door's parts on their own: no server."""

import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.requests import Request as HttpRequest

from cosy_engine import Request, errors
from cosy_ui import guests as guests_module
from cosy_ui.door_words import DOOR_WORDS
from cosy_ui.gate import is_foreign
from cosy_ui.guests import CLOSING, PUBLIC, Guests, Limits, client_of
from cosy_ui.login import Login
from cosy_ui.logs import JsonLines, Lines
from cosy_ui.messages import error_words
from cosy_ui.private_folder import MARK, PREFIX, NoFolder, private_folder
from cosy_ui.session_files import AGE_S, BROKEN_S, SessionFiles, file_paths
from cosy_ui.share import link_words, no_link_words


def test_a_client_gets_a_burst_and_then_its_rate_and_others_are_not_touched():
    now = [0.0]
    guests = Guests(True, Limits(calls=(3, 60)), clock=lambda: now[0])
    assert [guests.take("a", "calls") for _ in range(5)] == [0, 0, 0, 1, 1]
    assert guests.take("b", "calls") == 0 and guests.refused["calls"] == 2
    now[0] = 1.0
    assert [guests.take("a", "calls") for _ in range(2)] == [0, 1]
    now[0] = 1e6  # never more than the burst
    assert [guests.take("a", "calls") for _ in range(4)] == [0, 0, 0, 1]
    assert [Guests().take("a", "calls") for _ in range(1000)] == [0] * 1000  # one's own page


def test_work_at_once_is_bounded_until_it_ends():
    guests = Guests(True, Limits(jobs_at_once=2))
    first, second = guests.begin("a"), guests.begin("a")
    with pytest.raises(errors.Busy, match="2 of your requests"):
        guests.begin("a")
    guests.begin("b").end()
    first.end()
    first.end()  # twice counts once
    with guests.begin("a"), pytest.raises(errors.Busy):
        guests.begin("a")
    second.end()
    guests.closing = True
    with pytest.raises(errors.Busy, match="stopping"):
        guests.begin("b")


def test_strangers_speak_short_texts_with_the_model_as_it_is():
    own = ("fp16", "graph")
    guests = Guests(True)
    guests.begin("a", Request(text="x" * PUBLIC.text_chars, precision="fp16"), own).end()
    with pytest.raises(errors.TextTooLong, match="601 characters, at most 600"):
        guests.begin("a", Request(text="x" * 601), own)
    for switched in ({"precision": "fp32"}, {"tier": "eager"}):
        with pytest.raises(errors.ModeUnavailable, match="one model"):
            guests.begin("a", Request(text="x", **switched), own)
    Guests().begin("a", Request(text="x" * 5000, precision="fp32"), own).end()


def test_clients_are_forgotten_but_not_while_they_have_work(monkeypatch):
    monkeypatch.setattr(guests_module, "MOST_CLIENTS", 3)
    guests = Guests(True)
    ticket = guests.begin("busy")
    for i in range(10):
        guests.take(f"c{i}", "calls")
    assert len(guests._clients) == 3 and "busy" in guests._clients
    ticket.end()


def test_what_the_door_says_exists_in_chinese():
    assert all(
        any("\u4e00" <= c <= "\u9fff" for c in chinese) and english.isascii()
        for english, chinese in DOOR_WORDS.values()
    )
    guests = Guests(True, Limits(jobs=(1, 60), text_chars=3, one_model=True))
    said = [errors.Busy(CLOSING), errors.Busy("2 of your requests are running or waiting already: wait for one to end")]
    for asked in (Request(text="four"), Request(text="x", precision="bf16"), None, None):
        try:
            guests.begin("a", asked, ("fp32", "eager"))
        except errors.CosyError as error:
            said.append(error)
    assert len(said) == 5
    for error in said:
        words = error_words(error, "zh")
        assert str(error) not in words and any("\u4e00" <= c <= "\u9fff" for c in words), words


def test_an_upload_that_broke_off_goes_and_one_that_still_comes_stays(tmp_path):
    now = [0.0]
    broken, coming = tmp_path / "tmpa", tmp_path / "tmpb"
    files = SessionFiles(tmp_path, clock=lambda: now[0])
    for file in (broken, coming):
        file.write_bytes(b"x")
    files.sweep(set())
    now[0] = BROKEN_S + 1
    os.utime(coming, ns=(1, 1))  # it grew
    files.sweep(set())
    assert not broken.exists() and coming.exists()
    now[0] = 2 * BROKEN_S + 3
    files.sweep(set())
    assert not coming.exists() and tmp_path.exists()


def test_passwords_come_from_the_line_or_a_file_and_are_kept_nowhere(tmp_path):
    login = Login.read("anna:se:cret")
    assert login("anna", "se:cret") and not login("anna", "se") and not login("bob", "se:cret") and not login("", "")
    assert "cret" not in repr(vars(login))
    file = tmp_path / "logins"
    file.write_text("# who may come in\nanna:one\n\nbob:two\n")
    login = Login.read(str(file))
    assert login("anna", "one") and login("bob", "two") and not login("# who may come in", "")
    file.write_text("nothing\n")
    for wrong in (str(file), "nocolon", ":x", "x:"):
        with pytest.raises(errors.SettingInvalid, match="--auth takes") as refused:
            Login.read(wrong)
        assert "nocolon" not in str(refused.value)


def http(method="POST", **headers):
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HttpRequest({"type": "http", "method": method, "path": "/", "query_string": b"", "headers": lines})


def test_only_the_page_itself_and_programs_may_call():
    for own in (
        http(host="a.example"), http(host="a.example", origin="https://a.example"),
        http(host="10.0.0.1:7860", x_forwarded_host="a.example", origin="https://a.example"),
        http(host="inner", origin="https://a.example", sec_fetch_site="same-origin"),  # a proxy that renames the host
        http("GET", host="a.example", sec_fetch_site="cross-site", sec_fetch_mode="navigate"),  # a link that is followed
        http("GET", host="a.example", sec_fetch_site="none"),
    ):  # fmt: skip
        assert not is_foreign(own), own.headers
    for other in (
        http(host="a.example", origin="https://evil.example"), http(host="a.example", origin="null"),
        http(host="a.example", origin="https://a.example.evil.example"), http(host="a.example:7860", origin="https://a.example"),
        http(host="a.example", sec_fetch_site="cross-site", sec_fetch_mode="navigate"),  # a form that is posted
        http("GET", host="a.example", sec_fetch_site="cross-site", sec_fetch_mode="no-cors"),
        http("GET", host="a.example", sec_fetch_site="same-site", sec_fetch_mode="cors"),
    ):  # fmt: skip
        assert is_foreign(other), other.headers


def test_clients_are_counted_by_login_else_by_address():
    client = SimpleNamespace(host="192.0.2.1")
    assert client_of(SimpleNamespace(client=client)) == "192.0.2.1"
    assert client_of(SimpleNamespace(client=client, username="anna")) == "user:anna"
    assert client_of(SimpleNamespace(client=None, username=None)) == "unknown"


def test_files_go_with_the_last_page_that_uses_them_and_nothing_else_goes(tmp_path):
    folder, outside, gone = tmp_path / "cache", tmp_path / "secret.wav", []
    outside.write_bytes(b"x")
    for name in ("one", "both"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.wav").write_bytes(b"x")
    (folder / "link").symlink_to(outside)
    one, both = str(folder / "one" / "a.wav"), str(folder / "both" / "a.wav")
    files = SessionFiles(folder, gone.append)
    climbing = f"{folder}/one/../../secret.wav"
    files.note("a", [one, both, str(outside), climbing, str(folder / "link"), "relative", "nul\0", "http://x/y"])
    files.note("b", [both])
    files.drop("a")
    assert outside.exists() and not Path(one).parent.exists() and Path(both).exists() and gone == [one]
    files.drop("b")
    files.drop("nobody")
    assert not Path(both).exists() and gone == [one, both]


def test_old_files_go_whoever_they_belong_to_and_whatever_the_clock_says(tmp_path):
    gone, now = [], [0.0]
    (tmp_path / "x").mkdir()
    path, kept = tmp_path / "x" / "a.wav", tmp_path / "x" / "example.wav"
    for file in (path, kept):
        file.write_bytes(b"x")
        os.utime(file, (1e12, 1e12))  # a clock that has jumped
    files = SessionFiles(tmp_path, gone.append, clock=lambda: now[0])
    files.note("a", [str(path)])
    files.sweep({str(kept)})
    now[0] = AGE_S
    files.sweep({str(kept)})
    assert gone == [] and files._owned
    now[0] = AGE_S + 1
    os.utime(path)  # uploaded once more
    files.sweep({str(kept)})
    assert gone == []
    now[0] = 2 * AGE_S + 2
    (tmp_path / "folder-as-upload" / "x").mkdir(parents=True)
    files.sweep({str(kept)})
    assert gone == [str(path)] and not files._owned and not path.exists() and kept.exists()


def test_paths_are_found_at_any_depth():
    nested = [{"a": [{"path": "one", "url": "u"}]}, "text", None, ({"path": "two"},), {"path": 5}]
    assert list(file_paths(nested)) == ["one", "two"]


def test_the_private_folder_is_private_and_a_killed_programs_folder_goes_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("GRADIO_TEMP_DIR", "elsewhere")
    hold = (
        f"import tempfile, time; tempfile.tempdir = {str(tmp_path)!r}\n"
        "from cosy_ui.private_folder import private_folder\n"
        "with private_folder() as folder: print(folder, flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    theirs = Path(other.stdout.readline().strip())
    (tmp_path / f"{PREFIX}without-mark").mkdir()  # not ours to judge
    with private_folder() as mine:
        assert mine.stat().st_mode & 0o077 == 0 and tempfile.gettempdir() == str(mine)
        assert Path(os.environ["GRADIO_TEMP_DIR"]).parent == mine
        assert theirs.exists()  # its program lives
    assert not mine.exists() and tempfile.gettempdir() == str(tmp_path)
    other.kill()
    other.wait()
    assert (theirs / MARK).exists()
    with private_folder():
        assert not theirs.exists() and (tmp_path / f"{PREFIX}without-mark").exists()


def test_no_place_for_temporary_files_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(NoFolder, match=r"cannot be written \(No such file.*TMPDIR"), private_folder():
        pass


def test_logs_are_lines_or_json_objects():
    for formatter in (JsonLines(), Lines()):
        held = io.StringIO()
        handler = logging.StreamHandler(held)
        handler.setFormatter(formatter)
        log = logging.Logger("x")
        log.addHandler(handler)
        log.info("request", extra={"fields": {"outcome": "done", "audio_s": 1.5}})
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("it broke")
        if isinstance(formatter, Lines):
            assert held.getvalue().startswith("INFO x: request outcome=done audio_s=1.5\nERROR x: it broke\nTraceback")
        else:
            first, second = map(json.loads, held.getvalue().splitlines())
            assert (first["level"], first["message"], first["outcome"]) == ("info", "request", "done")
            assert second["traceback"].endswith("ValueError: why") and second["time"].endswith("Z")


def test_a_link_is_told_with_its_end_and_a_code_to_photograph(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    words = link_words("https://abc123.gradio.live", 0.0)
    assert "Shared at https://abc123.gradio.live" in words and "1970-01-08 00:00" in words
    code = words.splitlines()[:-2]
    assert len(code) >= 12 and len({len(line) for line in code}) == 1 and "\u2580" in words


def test_no_link_says_why(tmp_path):
    assert "could not be fetched" in no_link_words(tmp_path / "frpc") and "local address" in no_link_words(
        tmp_path / "frpc"
    )
    (tmp_path / "frpc").touch()
    assert "share server could not be reached" in no_link_words(tmp_path / "frpc")
