"""Start the page: flags -> engine -> page."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 after a clean stop, 2 when something given cannot be used."""
    arguments = _arguments(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    if any(os.environ.get(name) for name in PROXIES):  # the page checks its own address, which no proxy can reach
        for name in ("no_proxy", "NO_PROXY"):
            os.environ[name] = ",".join(filter(None, (os.environ.get(name), "localhost,127.0.0.1,::1")))
    # Uploads and results lie where only this user may look, and go with the program.
    with tempfile.TemporaryDirectory(prefix="cosy-studio-", ignore_cleanup_errors=True) as private:
        os.environ["GRADIO_TEMP_DIR"] = private  # read when Gradio is imported
        return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from cosy_engine import CosyError, EngineConfig, load

    print("Loading ...", flush=True)
    try:
        engine = load(
            arguments.model,
            EngineConfig(
                device=arguments.device,
                precision=arguments.precision,
                slots=arguments.slots,
                max_batch=arguments.max_batch,
                queue=arguments.queue,
            ),
        )
    except CosyError as error:
        print(f"Cannot start: {error}", file=sys.stderr)
        return 2

    from cosy_engine.audio.transcribe import Transcriber
    from cosy_engine.build import default_folder
    from cosy_ui.jobs import JobTable
    from cosy_ui.page import add_routes, build_page, launch_options
    from cosy_ui.sessions import Sessions, shared_voices

    voices, wrong = shared_voices(arguments.voices, engine.voices.model_key)
    for words in wrong:
        print(f"Left out: {words}", file=sys.stderr)
    jobs, sessions, shared = JobTable(), Sessions(voices), arguments.share or arguments.public
    page = build_page(
        engine,
        jobs,
        sessions,
        transcriber=Transcriber(arguments.whisper, engine.shelf.models("fp32").lm.device),
        shared=shared,
        model=arguments.model or default_folder(),
    )
    try:
        app, local, share = page.launch(
            server_name=arguments.host,
            server_port=arguments.port,
            share=arguments.share,
            root_path=arguments.root_path,
            prevent_thread_lock=True,
            quiet=True,
            **launch_options(engine),
        )
    except OSError as error:
        print(
            f"Cannot start: port {arguments.port} on {arguments.host} cannot be used ({error}). Choose another with --port.",
            file=sys.stderr,
        )
        engine.close()
        return 2
    add_routes(app, engine, jobs, sessions, shared)
    print(
        f"{engine.name} on {engine.device}; reference front end on {engine.voices.provider}; text by {engine.text.backend}"
    )
    if engine.card.get("note"):
        print(engine.card["note"])
    if arguments.voices:
        print(f"Shared voices: {', '.join(voices) or f'none in {arguments.voices}'}")
    print(f"Open {local.replace('0.0.0.0', 'localhost').replace('[::]', 'localhost')}")
    if arguments.share:
        print(
            f"Shared at {share}"
            if share
            else "No share link: the tunnel's helper or the network is missing. The local address works."
        )
    print("Stop with Ctrl+C", flush=True)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a service manager's stop is Ctrl+C: the engine closes too
    try:
        page.block_thread()
    finally:
        engine.close()
    return 0


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
        "--public", action="store_true", help="others reach this page: ask for consent before a voice is cloned"
    )
    parser.add_argument("--voices", type=Path, help="folder of saved voices (.safetensors) that everyone may use")
    parser.add_argument(
        "--whisper", help="folder, or cached name, of a Whisper model for Transcribe; nothing is downloaded"
    )
    parser.add_argument("--slots", type=int, help="requests that run at once; default: by the device's free memory")
    parser.add_argument("--max-batch", type=int, help="of them, rows decoded together; default: all")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
