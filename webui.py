"""Start the page: flags -> engine -> page."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

NO_TELEMETRY = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "ORT_DISABLE_TELEMETRY": "1"}
LAST_BYTES_S = 1  # for what has been made and not yet sent
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 after a clean stop, 2 when something given cannot be used."""
    arguments = _arguments(argv)
    from cosy_engine import CosyError
    from cosy_ui.heap import few_arenas
    from cosy_ui.private_folder import private_folder

    for name, value in NO_TELEMETRY.items():  # before the libraries are imported
        os.environ.setdefault(name, value)
    if any(os.environ.get(name) for name in PROXIES):  # the page checks its own address, which no proxy can reach
        for name in ("no_proxy", "NO_PROXY"):
            os.environ[name] = ",".join(filter(None, (os.environ.get(name), "localhost,127.0.0.1,::1")))
    _many_connections()
    few_arenas()
    stop = _Stop()
    try:
        with private_folder():  # before Gradio is imported, which reads the place once
            from cosy_ui.logs import set_up_logs

            set_up_logs(arguments.verbose, arguments.log_json)
            return _serve(arguments, stop)
    except CosyError as error:
        print(f"Cannot start: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while loading
        return 0


class _Stop:
    """Set by Ctrl+C (at once) or SIGTERM, a service manager's stop (what runs may end). A second one means at once."""

    def __init__(self) -> None:
        self.asked, self.now = threading.Event(), threading.Event()
        self.serving = False

    def listen(self) -> None:
        """From now on signals set the events; before, they end the program wherever it is."""
        self.serving = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT or self.asked.is_set():
            self.now.set()
        self.asked.set()


def _serve(arguments: argparse.Namespace, stop: _Stop) -> int:
    from cosy_engine import EngineConfig, load
    from cosy_engine.audio.transcribe import Transcriber
    from cosy_engine.build import default_folder
    from cosy_ui.guests import Guests
    from cosy_ui.jobs import JobTable
    from cosy_ui.login import Login
    from cosy_ui.page import ASSETS, add_routes, build_page, example_clips, launch_options
    from cosy_ui.session_files import keep_house
    from cosy_ui.sessions import Sessions, example_voices, shared_voices, stored_voices

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    login = Login.read(arguments.auth) if arguments.auth else None
    print("Loading ...", flush=True)
    engine = load(
        arguments.model,
        EngineConfig(
            device=arguments.device,
            precision=arguments.precision,
            slots=arguments.slots,
            max_batch=arguments.max_batch,
            queue=arguments.queue,
            unload_after_s=None if arguments.unload_after is None else round(60 * arguments.unload_after),
        ),
    )
    voices, wrong = shared_voices(arguments.voices, engine.voices.model_key)
    stored = stored_voices(engine)
    examples, unreadable = example_voices(engine, example_clips(ASSETS / "voices"))
    for words in wrong + unreadable:
        print(f"Left out: {words}", file=sys.stderr)
    jobs, sessions = JobTable(Guests(shared=arguments.share or arguments.public)), Sessions(examples | stored | voices)
    page = build_page(
        engine,
        jobs,
        sessions,
        transcriber=Transcriber(arguments.whisper, engine.shelf.device),
        model=arguments.model or default_folder(),
    )
    try:
        app, local, share = page.launch(
            server_name=arguments.host,
            server_port=arguments.port,
            share=arguments.share,
            root_path=arguments.root_path,
            auth=login,
            prevent_thread_lock=True,
            quiet=True,
            **launch_options(engine, jobs.guests),
        )
    except OSError as error:
        print(
            f"Cannot start: port {arguments.port} on {arguments.host} cannot be used ({error}). Choose another with --port.",
            file=sys.stderr,
        )
        engine.close()
        return 2
    add_routes(app, engine, jobs, sessions)
    stop.listen()
    threading.Thread(target=keep_house, args=(sessions, page, jobs, stop.asked), name="cosy-house", daemon=True).start()
    _say_where(arguments, engine, [*stored, *voices], local, share)
    while not stop.asked.wait(0.5):  # in pieces, so that Windows sees Ctrl+C
        pass
    _wind_up(engine, jobs, page, stop, arguments.drain)
    return 0


def _say_where(arguments: argparse.Namespace, engine: Any, voices: list[str], local: str, share: str | None) -> None:
    from gradio.tunneling import BINARY_PATH

    from cosy_ui.share import link_words, no_link_words

    print(
        f"{engine.name} on {engine.device}; reference front end on {engine.voices.provider}; text by {engine.text.backend}"
    )
    if engine.card.get("note"):
        print(engine.card["note"])
    if voices or arguments.voices:
        print(f"Shared voices: {', '.join(voices) or f'none in {arguments.voices}'}")
    if arguments.share or arguments.public:
        print(
            f"Others reach this page: consent is asked, and each visitor is limited. Login: {'on' if arguments.auth else 'off'}"
        )
    print(f"Open {local.replace('0.0.0.0', 'localhost').replace('[::]', 'localhost')}")
    if arguments.share:
        print(link_words(share, time.time()) if share else no_link_words(Path(BINARY_PATH)))
    print("Stop with Ctrl+C", flush=True)


def _wind_up(engine: Any, jobs: Any, page: Any, stop: _Stop, drain_s: float) -> None:
    """Take nothing new, let what runs end within drain_s, then end everything."""
    from gradio.tunneling import CURRENT_TUNNELS

    jobs.guests.closing = True
    until = time.monotonic() + drain_s
    while engine.worker.load() != (0, 0) and not stop.now.is_set() and time.monotonic() < until:
        stop.now.wait(0.1)
    jobs.cancel_all()
    engine.close()
    page.server.config.timeout_graceful_shutdown = (
        LAST_BYTES_S  # open pages hold connections that never end by themselves
    )
    page.close(verbose=False)
    for tunnel in CURRENT_TUNNELS:
        tunnel.kill()


def _many_connections() -> None:
    """Let the program hold as many connections as the system allows: idle ones of strangers must not use up the usual 1024."""
    if os.name == "posix":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="webui.py", description=__doc__)
    parser.add_argument(
        "--model", type=Path, help="model folder; default: a release under pretrained_models/, else the demo voice"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument(
        "--precision", default="fp32", choices=("fp32", "fp16", "bf16"), help="what the page starts with"
    )
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    parser.add_argument("--root-path", help="path prefix behind a proxy, for example /voice")
    parser.add_argument("--share", action="store_true", help="also make a public link")
    parser.add_argument(
        "--public", action="store_true", help="others reach this page: consent, limits for each visitor, one model"
    )
    parser.add_argument(
        "--auth", metavar="NAME:PASSWORD|FILE", help="login; a file with one pair a line stays out of the process list"
    )
    parser.add_argument("--drain", type=float, default=20.0, metavar="S", help="SIGTERM: seconds for what runs to end")
    parser.add_argument("--voices", type=Path, help="folder of saved voices (.safetensors) that everyone may use")
    parser.add_argument(
        "--whisper", help="folder, or cached name, of a Whisper model for Transcribe; nothing is downloaded"
    )
    parser.add_argument("--slots", type=int, help="requests that run at once; default: by the device's free memory")
    parser.add_argument("--max-batch", type=int, help="of them, rows decoded together; default: all")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait")
    parser.add_argument(
        "--unload-after",
        type=float,
        metavar="MINUTES",
        help="give the model's memory back when nobody has used it for so long; the next request loads it again",
    )
    parser.add_argument("--verbose", action="store_true", help="also one log line for each request, without its text")
    parser.add_argument("--log-json", action="store_true", help="the same, as one JSON object a line on standard error")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
