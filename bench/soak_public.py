"""Does a public page hold: memory, threads, files, latency, and an answer for everyone?

    python -m bench.soak_public [--minutes 120] [--warm-up 35] [--clients 8] [--pause 6] [--model DIR]

Starts `webui.py --public` and uses it as visitors do, each with an address of its own: pages that generate in every mode, hear
the sound route, stop, or close mid-stream; programs that call /clone, wait or leave; the OpenAI-style route; switches of
precision, which a public page refuses; bad inputs; people who ask too often. A call with a fixed clip and seed must give the
same samples whenever it is made.
Every minute a JSON line says what the program holds and what was answered. Its caches are full and closed pages forgotten
after half an hour: of what follows the warm-up, the first and the last fifth are compared. Flat means at most 5 % more memory,
first sound at most 25 % later (it waits for the machine's other work, too), and after the load no thread and open file more
than in that first fifth. Files of programs are kept for an hour, so their number is told and not judged. SIGTERM ends it,
and no temporary file may be left. Exit status 1 when something was not as it should be. Linux only. The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parent.parent
WORDS = "the quick brown fox jumps over the lazy dog"
TEXTS = ("Hi.", "It is so.", "So be it, and let us see what comes of it.", "One. Two, and then three. Four.")
SETTLED_S = 20.0  # for the last streams after the load has ended


def clip(seconds: float, pitch_hz: float, rate_hz: int = 24000) -> bytes:
    """A buzz with syllables, as wav."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 20))
    held = io.BytesIO()
    soundfile.write(
        held, 0.1 * wave * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * t)), rate_hz, format="WAV", subtype="PCM_16"
    )
    return held.getvalue()


class Visitor(threading.Thread):
    """One who comes again and again. seen: what became of each call; odd: answers that should not be."""

    fixed: ClassVar[set[str]] = set()  # digests of the samples that the fixed call gave, to all visitors

    def __init__(self, url: str, number: int, until: float, pause_s: float, config: dict):
        super().__init__(name=f"visitor-{number}")
        self.draw = random.Random(number)
        self.until, self.pause_s, self.config, self.began = until, pause_s, config, time.monotonic()
        self.http = httpx.Client(
            base_url=url,
            timeout=120,
            headers={"X-Forwarded-For": f"203.0.113.{number + 1}"},
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=2),  # less than the server's, which may hang up as we call
        )
        self.seen: Counter[str] = Counter()
        self.odd: list[str] = []
        self.first_s: list[tuple[float, float]] = []  # (when, seconds to the first sound)

    def run(self) -> None:
        acts = (
            self.page,
            self.page,
            self.leave,
            self.stop,
            self.program,
            self.program_leaves,
            self.same,
            self.bad,
            self.speech,
        )
        while time.monotonic() < self.until:
            act = self.draw.choice(acts)
            try:
                self.seen[f"{act.__name__}: {act()}"] += 1
            except httpx.HTTPStatusError as error:
                if error.response.status_code == 429 and "try again" in error.response.text:
                    self.seen[f"{act.__name__}: refused: too often"] += 1
                else:
                    self.odd.append(f"{act.__name__}: {error}")
            except Exception as error:
                self.odd.append(f"{act.__name__}: {type(error).__name__} {str(error)[:200]}")
            time.sleep(self.draw.uniform(0.5, 1.5) * self.pause_s)

    def upload(self) -> dict:
        data = clip(self.draw.choice((2.5, 3.5, 5.0)), self.draw.uniform(90, 240))
        path = self.http.post("gradio_api/upload", files={"files": ("a.wav", data)}).raise_for_status().json()[0]
        return {"path": path, "meta": {"_type": "gradio.FileData"}}

    def enqueue(self, name: str, data: list, session: str) -> None:
        event = self.config["events"][name]
        body = {"data": data, "fn_index": event, "session_hash": session}
        self.http.post("gradio_api/queue/join", json=body).raise_for_status()

    def form(self, reference: dict) -> list:
        stream = self.draw.random() < 0.6
        mode = self.draw.choice(("zero_shot", "cross_lingual", "instruct", "voice_conversion"))
        instruction = "Speak slowly." if mode == "instruct" else ""
        source = self.upload() if mode == "voice_conversion" else None
        return [True, "worklet", mode, reference, "", WORDS, self.draw.choice(TEXTS), instruction, source, None,
                self.config["precision"], self.config["tier"], stream, "", False, 1.0]  # fmt: skip

    def events(self, session: str):
        with self.http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

    def open_page(self) -> tuple[str, httpx.Response]:
        session = f"s{self.draw.getrandbits(48):x}"
        beat = self.http.send(self.http.build_request("GET", f"gradio_api/heartbeat/{session}"), stream=True)
        self.http.post(
            "gradio_api/run/predict",
            json={"data": [], "fn_index": self.config["events"]["load"], "session_hash": session},
        )
        return session, beat

    def page(self, ends: str = "") -> str:
        """A page that generates and hears the sound route. ends: "leave" or "stop" after the first sound."""
        session, beat = self.open_page()
        try:
            asked, words = time.monotonic(), ""
            self.enqueue("generate", self.form(self.upload()), session)
            for message in self.events(session):
                status, job = shown(message)
                words = status or words
                if job:
                    with self.http.stream("GET", f"pcm/{job}") as sound:
                        for part in sound.iter_bytes():
                            if part and asked:
                                self.first_s.append((time.monotonic() - self.began, time.monotonic() - asked))
                                asked = 0.0
                            if ends == "leave":
                                return "left"
                            if ends == "stop":
                                self.http.post("gradio_api/run/predict", json={
                                    "data": [], "fn_index": self.config["events"]["stop"], "session_hash": session})  # fmt: skip
                                ends = ""
                if message["msg"] == "process_completed":
                    if not message["success"]:
                        raise AssertionError(f"failed: {message['output']}")
                    break
            for good in ("Done in", "Stopped"):
                if good in words:
                    return good
            if "try again" in words or "already" in words:
                return "refused: busy"
            raise AssertionError(f"neither an end nor a reason: {words}")
        finally:
            beat.close()

    def leave(self) -> str:
        return self.page("leave")

    def stop(self) -> str:
        return self.page("stop")

    def call(self, data: list) -> str:
        """The events of a call of /clone."""
        event = self.http.post("gradio_api/call/clone", json={"data": data}).raise_for_status().json()["event_id"]
        return self.http.get(f"gradio_api/call/clone/{event}").text

    def program(self) -> str:
        kind = self.draw.choice(("mp3", "wav", "flac", "opus"))
        answer = self.call(["It is so.", self.upload(), WORDS, "zero_shot", "", None, "", 5, 1.0, "", "", kind, True])
        return "file" if "event: complete" in answer else refused(answer)

    def program_leaves(self) -> str:
        data = [TEXTS[-1], self.upload(), WORDS, "zero_shot", "", None, "", 5, 1.0, "", "", "wav", True]
        event = self.http.post("gradio_api/call/clone", json={"data": data}).raise_for_status().json()["event_id"]
        with self.http.stream("GET", f"gradio_api/call/clone/{event}"):
            time.sleep(self.draw.uniform(0.0, 0.5))
        return "left"

    def same(self) -> str:
        """Same clip, text and seed: the same samples, beside whatever else runs."""
        held = io.BytesIO(clip(3.0, 120.0))
        path = self.http.post("gradio_api/upload", files={"files": ("a.wav", held)}).raise_for_status().json()[0]
        reference = {"path": path, "meta": {"_type": "gradio.FileData"}}
        answer = self.call(["So be it.", reference, WORDS, "zero_shot", "", None, "", 7, 1.0, "", "", "wav", True])
        if "event: complete" not in answer:
            return refused(answer)
        made = json.loads(answer.rsplit("data: ", 1)[1])[0]["path"]
        samples, _ = soundfile.read(io.BytesIO(self.http.get(f"gradio_api/file={made}").raise_for_status().content))
        self.fixed.add(hashlib.sha256(samples.tobytes()).hexdigest())
        assert len(self.fixed) == 1, "the same call gave other samples than before"
        return "same samples"

    def bad(self) -> str:
        """Inputs that have to be refused with a reason."""
        data = ["It is so.", {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, WORDS, "zero_shot", "", None, "", 5,
                1.0, "", "", "wav", True]  # fmt: skip
        kind = self.draw.choice(("path", "url", "text", "noise", "foreign", "precision", "nonsense"))
        if kind == "url":
            data[1] = {"path": "http://169.254.169.254/latest/meta-data", "meta": {"_type": "gradio.FileData"}}
        elif kind == "text":
            data[0], data[1] = "x" * 601, self.upload()
        elif kind == "precision":
            data[1], data[9] = self.upload(), "bf16"
        elif kind == "nonsense":
            data[1], data[3] = self.upload(), {"mode": 1}
        elif kind == "noise":
            noise = self.http.post("gradio_api/upload", files={"files": ("a.wav", os.urandom(20_000))}).json()[0]
            data[1] = {"path": noise, "meta": {"_type": "gradio.FileData"}}
        elif kind == "foreign":
            answer = self.http.post("v1/audio/speech", json={}, headers={"Origin": "https://evil.example"})
            assert answer.status_code == 403, answer.text
            return "refused: foreign"
        answer = self.call(data)
        assert "event: error" in answer and "null" not in answer, answer
        return f"refused: {kind}"

    def speech(self) -> str:
        """More calls than one may make, of a voice that nobody has."""
        answers = [
            self.http.post("v1/audio/speech", json={"input": "x", "voice": "no", "consent": True}) for _ in range(5)
        ]
        codes = {answer.status_code for answer in answers}
        assert codes <= {404, 429}, codes
        return "refused: unknown voice"


def refused(answer: str) -> str:
    """Raises: AssertionError: neither a result nor one of the reasons that a visitor may be given."""
    if "busy" in answer or "try again" in answer:
        return "refused: busy"
    raise AssertionError(answer[-300:])


def shown(message: dict) -> tuple[str, str]:
    """(status line, job id) of an event's news, where it has them. Gradio sends only what has changed after the first."""
    data = (message.get("output") or {}).get("data") or []
    status = data[0] if data and isinstance(data[0], str) else ""
    job = data[1] if len(data) > 1 and isinstance(data[1], str) and len(data[1]) > 15 else ""
    for change in data[:2] if message["msg"] == "process_generating" else ():
        if isinstance(change, list):
            for _, _, value in change:
                status = value if isinstance(value, str) and "<" in value else status
                job = value if isinstance(value, str) and len(value) > 15 and "<" not in value else job
    return status, job


def held(pid: int, folder: Path, http: httpx.Client) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    told = {
        line.split(" ")[0]: float(line.split(" ")[1])
        for line in http.get("metrics").text.splitlines()
        if line[:5] == "cosy_" and "{" not in line
    }
    return {
        "megabytes": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "open_files": len(os.listdir(f"/proc/{pid}/fd")),
        "temporary_files": sum(len(names) for _, _, names in os.walk(folder)),
        "pages": told.get("cosy_pages", -1),
        "running": told.get("cosy_running", -1),
        "waiting": told.get("cosy_waiting", -1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--warm-up", type=float, default=35.0, help="minutes that are not judged, at most half of all")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds, in the mean, between a visitor's acts")
    parser.add_argument("--model", help="default: as webui.py chooses")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--public", "--port", str(port), *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "log"), "w+", encoding="utf-8") as log:
        program = subprocess.Popen(
            [sys.executable, "webui.py", *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
            env=os.environ | {"TMPDIR": folder},
        )  # fmt: skip
        try:
            for line in program.stdout:
                print(line, end="", flush=True)
                if line.startswith("Stop with"):
                    break
            figures = soak(program, f"http://127.0.0.1:{port}/", Path(folder), options)
            log.seek(0)
            figures["log"] = log.read()[-2000:]
        finally:
            program.kill()
    print(json.dumps(figures))
    return 0 if figures["good"] else 1


def soak(program: subprocess.Popen, url: str, folder: Path, options: argparse.Namespace) -> dict:
    http = httpx.Client(base_url=url, timeout=60, trust_env=False)
    told = http.get("config").json()
    names = {c["id"]: c["props"].get("elem_id") for c in told["components"]}
    events = {
        names.get(t[0]): d["id"]
        for d in told["dependencies"]
        for t in d["targets"]
        if t[1] == "click" and d["backend_fn"]
    }
    events["load"] = next(
        d["id"] for d in told["dependencies"] for t in d["targets"] if t[1] == "load" and d["backend_fn"]
    )
    own = {
        names[c["id"]]: c["props"].get("value") for c in told["components"] if names[c["id"]] in ("precision", "tier")
    }
    config = {"events": events, **own}
    began = time.monotonic()
    until = began + 60 * options.minutes
    visitors = [Visitor(url, i, until, options.pause, config) for i in range(options.clients)]
    for visitor in visitors:
        visitor.start()
    lines: list[dict[str, float]] = []
    while time.monotonic() < until:
        time.sleep(min(options.every, max(0.0, until - time.monotonic())))
        line = held(program.pid, folder, http)
        line["minute"] = round((time.monotonic() - began) / 60, 1)
        line["calls"] = sum(sum(v.seen.values()) for v in visitors)
        line["odd"] = sum(len(v.odd) for v in visitors)
        lines.append(line)
        print(json.dumps(line), flush=True)
    for visitor in visitors:
        visitor.join(120)
    time.sleep(SETTLED_S)
    last = held(program.pid, folder, http)
    seen = sum((v.seen for v in visitors), Counter())
    odd = [words for v in visitors for words in v.odd]
    warm_s = 60 * min(options.warm_up, options.minutes / 2)
    settled = [line for line in lines if 60 * line["minute"] > warm_s]
    fifth = max(1, len(settled) // 5)
    first, end = (
        {k: round(statistics.mean(line[k] for line in part), 1) for k in last}
        for part in (settled[:fifth], settled[-fifth:])
    )
    heard = sorted(pair for v in visitors for pair in v.first_s if pair[0] > warm_s)
    part = max(1, len(heard) // 5)
    latency = [round(statistics.median(s for _, s in piece), 3) for piece in (heard[:part], heard[-part:])]
    asked = time.monotonic()
    program.send_signal(signal.SIGTERM)
    code = program.wait(60)
    ended_s = time.monotonic() - asked
    flat = (
        end["megabytes"] < 1.05 * first["megabytes"]
        and latency[1] < 1.25 * latency[0]
        and all(last[k] <= first[k] for k in ("threads", "open_files"))
    )
    left = [name for _, _, names in os.walk(folder) for name in names if name != "log"]
    good = not odd and not left and code == 0 and last["running"] == last["waiting"] == 0 and flat
    return {
        "good": good, "minutes": options.minutes, "warm_up": warm_s / 60, "clients": options.clients, "calls": sum(seen.values()),
        "seen": dict(seen), "odd": odd[:20], "first": first, "end": end, "settled": last, "first_sound_s": latency,
        "left": left[:20], "exit": code, "exit_s": round(ended_s, 1),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
