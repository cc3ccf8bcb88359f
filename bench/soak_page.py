"""Do memory, threads or slots stay behind when many people use the page, stop it, leave it and give it nonsense?

    python bench/soak_page.py [--model DIR] [--requests 300] [--users 6] [--device cpu] [--tier auto]

The real Gradio app on a free port, with `users` threads that draw what they do next from a fixed seed, over HTTP as a browser
or a program does: Generate in a page that listens to the end, presses Stop, loads its sound and hangs up, or is closed;
/clone and /clone_batch, waited for or left; the OpenAI-style call, read to the end or left after the first bytes; and bad
inputs, which must be refused. Times in which things are kept for a page that comes back are made short. Every sixth of the requests a line says what is held once all is quiet. Flat means: from the
second line on (the first warms caches up; what the C library keeps of freed memory is given back first) no more tensors (5 allowed) and program threads, less than 50 MB more memory,
nothing running, waiting or in a row, every good request served and every bad one refused, and a job with a fixed seed gives
at the end what it gave at the start. Exit status 1 when it is not flat. The last line is JSON.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np
import soundfile

from bench.soak import FLAT_MB, WORDS, clip, held
from cosy_engine import Request, load
from cosy_ui.heap import few_arenas, give_back
from cosy_ui.sessions import GRACE_S

TEXTS = (
    "Hi.",
    "It is so.",
    "Hello there, this is a test.",
    "One sentence is here. And here is another one, a bit longer. " * 3,
)
SOUND_KEPT_S = 2.0  # of a finished job; the page's two minutes would only blur the lines
PAGES_KEPT = 20  # what Gradio remembers of closed pages; the page's own limit would be reached after an hour
ACTIONS = {  # what a user does -> how often
    "page_listens": 5, "page_stops": 4, "page_sound_hangs_up": 3, "page_closes": 4,
    "clone": 4, "clone_leaves": 3, "batch": 3, "speech": 3, "speech_leaves": 4, "bad": 5,
}  # fmt: skip


class App:
    """The page, served by this process, and where its events are."""

    def __init__(self, engine):
        os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
        from cosy_ui.jobs import JobTable
        from cosy_ui.page import add_routes, build_page, launch_options
        from cosy_ui.sessions import SavedVoice, Sessions

        voice = engine.voice(clip(3.0, 150.0), WORDS)
        self.engine, self.jobs = engine, JobTable(keep_s=SOUND_KEPT_S)
        self.later_s = 0.0
        shared = {"Narrator": SavedVoice("Narrator", "Narrator", voice, shared=True)}
        self.sessions = Sessions(shared, clock=lambda: time.monotonic() + self.later_s)
        self.page = build_page(engine, self.jobs, self.sessions)
        options = launch_options(engine, self.jobs.guests) | {"state_session_capacity": PAGES_KEPT}
        app, self.url, _ = self.page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, **options)
        add_routes(app, engine, self.jobs, self.sessions)
        events = {
            fn.fn.__name__: i for i, fn in self.page.fns.items() if fn.fn is not None and hasattr(fn.fn, "__name__")
        }
        self.generate, self.stop = events["generate"], events["stop"]

    def much_later(self) -> None:
        """The time is over in which a page that was closed finds its takes again."""
        self.later_s += 10 * GRACE_S
        self.sessions.takes("nobody")

    def quiet(self, seconds: float = 60.0) -> bool:
        """Whether everything ends by itself within so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.engine.worker.load() == (0, 0) and self.engine.worker.rows() == 0:
                return True
            time.sleep(0.05)
        return False


class User:
    """One person or program. did: what was done; wrong: what did not go as it must."""

    def __init__(self, app: App, seed: int, clip_file: Path):
        self.app, self.draw, self.clip_file = app, np.random.default_rng(seed), clip_file
        self.http = httpx.Client(base_url=app.url, timeout=120.0)
        self.did: Counter[str] = Counter()
        self.wrong: list[str] = []

    def act(self) -> None:
        name = str(self.draw.choice(list(ACTIONS), p=np.array(list(ACTIONS.values())) / sum(ACTIONS.values())))
        self.did[name] += 1
        try:
            getattr(self, name)()
        except Exception as error:
            self.wrong.append(f"{name}: {type(error).__name__}: {error}")

    def text(self) -> str:
        return str(self.draw.choice(TEXTS))

    def while_it_runs(self) -> None:
        """Some moment before, during or after the work."""
        time.sleep(float(self.draw.choice([0.0, 0.05, 0.2, 0.6])))

    # ---- as the page does

    def _page(self, leave) -> None:
        """Open a page, press Generate, and let `leave` do what it does with (session, job id -> None, read the rest)."""
        session = f"soak{self.draw.integers(2**60):x}"
        form = {
            "mode": "zero_shot", "reference": self._upload(self.clip_file.read_bytes()), "window": "", "transcript": WORDS,
            "text": self.text(), "instruction": "", "source": None, "voice": None, "precision": "fp32",
            "tier": self.app.engine.tier, "stream": True, "seed": str(self.draw.integers(99)), "lock": True, "speed": 1.0,
        }  # fmt: skip
        with self.http.stream("GET", f"gradio_api/heartbeat/{session}") as open_page:
            self._event(session, self.app.generate, [True, "worklet", *form.values()])
            with self.http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as answers:
                leave(session, answers.iter_lines())
            open_page.close()

    def _event(self, session: str, index: int, data: list) -> None:
        body = {"data": data, "fn_index": index, "session_hash": session, "event_data": None, "trigger_id": None}
        self.http.post("gradio_api/queue/join", json=body).raise_for_status()

    @staticmethod
    def _messages(lines):
        for line in lines:
            if line.startswith("data:"):
                yield json.loads(line[5:])

    def page_listens(self) -> None:
        def leave(session, lines):
            last = [m for m in self._messages(lines) if m["msg"] == "process_completed"][-1]
            if not last["success"] or "bad" in str(last["output"].get("data", [""])[0]):
                raise AssertionError(str(last)[:300])

        self._page(leave)

    def page_stops(self) -> None:
        def leave(session, lines):
            self.while_it_runs()
            body = {"data": [], "fn_index": self.app.stop, "session_hash": session}
            self.http.post("gradio_api/run/predict", json=body)
            for message in self._messages(lines):
                if message["msg"] == "process_completed":
                    return

        self._page(leave)

    def page_sound_hangs_up(self) -> None:
        def leave(session, lines):
            for message in self._messages(lines):
                job = next((j.id for j in list(self.app.jobs._jobs.values()) if j.owner == session), None)
                if job:
                    with self.http.stream("GET", f"pcm/{job}") as sound:
                        next(sound.iter_bytes(4800), b"")
                    return
                if message["msg"] == "process_completed":
                    return

        self._page(leave)

    def page_closes(self) -> None:
        self._page(lambda session, lines: self.while_it_runs())

    # ---- as a program does

    def _call(self, name: str, data: list, leave: bool = False) -> str:
        event = self.http.post(f"gradio_api/call/{name}", json={"data": data}).raise_for_status().json()["event_id"]
        with self.http.stream("GET", f"gradio_api/call/{name}/{event}") as answer:
            if leave:
                self.while_it_runs()
                return ""
            return answer.read().decode()

    def _clone(self, leave: bool = False, **changes) -> str:
        values = {
            "text": self.text(), "reference": None, "transcript": "", "mode": "saved_voice", "instruction": "", "source": None,
            "voice": "Narrator", "seed": int(self.draw.integers(99)), "speed": 1.0, "precision": "", "tier": "",
            "file_format": "wav", "consent": False,
        }  # fmt: skip
        if self.draw.random() < 0.5:
            values |= {"mode": "zero_shot", "reference": self._upload(self.clip_file.read_bytes()), "transcript": WORDS}
        return self._call("clone", list((values | changes).values()), leave)

    def _upload(self, content: bytes) -> dict:
        path = self.http.post("gradio_api/upload", files={"files": ("clip.wav", content)}).raise_for_status().json()[0]
        return {"path": path, "meta": {"_type": "gradio.FileData"}}

    def clone(self) -> None:
        answer = self._clone()
        assert "event: complete" in answer, answer[-300:]

    def clone_leaves(self) -> None:
        self._clone(leave=True)

    def batch(self) -> None:
        answer = self._call("clone_batch", [self.text(), self._upload(self.clip_file.read_bytes()), WORDS, 5, False])
        assert '"ok": true' in answer, answer[-300:]

    def speech(self) -> None:
        body = {"input": self.text(), "voice": "Narrator", "response_format": "pcm"}
        assert len(self.http.post("v1/audio/speech", json=body).raise_for_status().content) > 1000

    def speech_leaves(self) -> None:
        body = {"input": TEXTS[-1], "voice": "Narrator", "response_format": "pcm"}
        with self.http.stream("POST", "v1/audio/speech", json=body) as sound:
            next(sound.iter_bytes(4800), b"")

    def bad(self) -> None:
        kind = int(self.draw.integers(6))
        if kind == 0:
            answer = self._clone(text="")
        elif kind == 1:
            answer = self._clone(mode="saved_voice", voice="Nobody")
        elif kind == 2:
            answer = self._clone(seed=-5)
        elif kind == 3:
            answer = self._clone(mode="cross_lingual", reference=self._upload(self.draw.bytes(5000)))
        elif kind == 4:
            answer = self._call("clone", [{"a": 1}])
        else:
            refused = self.http.post("v1/audio/speech", json={"input": "Hi.", "voice": "Nobody"})
            answer = "event: error" if refused.status_code >= 400 else refused.text
        assert "event: error" in answer, f"bad input {kind} was not refused: {answer[-300:]}"


def crowd(users: list[User], count: int) -> None:
    """`count` actions in all, every user in a thread of its own."""

    def work(user: User, mine: int) -> None:
        for _ in range(mine):
            user.act()

    shares = [count // len(users) + (i < count % len(users)) for i in range(len(users))]
    threads = [threading.Thread(target=work, args=both) for both in zip(users, shares, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def own_threads() -> int:
    """The program's threads; those of the web server come and go with its load."""
    return sum(thread.name.startswith("cosy-") for thread in threading.enumerate())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--users", type=int, default=6)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tier", default="auto")
    options = parser.parse_args()
    few_arenas()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        clip_file = Path(folder, "clip.wav")
        rate, samples = clip(4.0, 140.0)
        soundfile.write(clip_file, samples, rate)
        engine = load(options.model, device=options.device, tier=options.tier)
        app = App(engine)
        fixed = Request("saved_voice", "It is so.", engine.voice(clip(3.0, 150.0), WORDS), seed=3)
        first = engine.speak_all(fixed).samples
        users = [User(app, seed, clip_file) for seed in range(options.users)]
        lines, quiet, began = [], True, time.perf_counter()
        for part in range(7):  # the first warms up
            crowd(users, options.requests // 6)
            quiet = app.quiet() and quiet
            time.sleep(2 * SOUND_KEPT_S)  # the web server puts closed connections away
            app.much_later()
            kept = len(app.jobs)
            gc.collect()
            app.page.sweep()
            give_back()
            lines.append((held(), own_threads()))
            print(
                f"{(part + 1) * (options.requests // 6):5d} requests: {lines[-1][0]}, own threads {lines[-1][1]}, {kept} jobs kept",
                flush=True,
            )
        same = bool(np.array_equal(engine.speak_all(fixed).samples, first))
        app.quiet()
        pool, snapshot = engine.shelf.at("fp32", engine.tier).pool, engine.snapshot()
        app.page.close(verbose=False)
        engine.close()
    (early, early_threads), (late, late_threads) = lines[1], lines[-1]
    growth = {name: asdict(late)[name] - asdict(early)[name] for name in asdict(late)} | {
        "own_threads": late_threads - early_threads
    }
    did = sum((user.did for user in users), Counter())
    wrong = [words for user in users for words in user.wrong]
    limits = {"tensors": 5, "own_threads": 0, "megabytes": FLAT_MB, "device_mb": FLAT_MB}
    flat = same and quiet and not wrong and pool.active == 0 and (snapshot.running, snapshot.waiting) == (0, 0)
    flat = flat and all(growth[name] <= limit for name, limit in limits.items())
    for words in wrong[:10]:
        print(words)
    figures = {
        "requests": sum(did.values()),
        "did": did,
        "growth": growth,
        "same_sound": same,
        "wrong": len(wrong),
        "flat": flat,
    }
    print(json.dumps(figures | {"rows_left": pool.active, "seconds": round(time.perf_counter() - began, 1)}))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
