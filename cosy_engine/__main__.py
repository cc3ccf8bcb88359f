"""Command line: `python -m cosy_engine clone|voice|fetch|bench|compare|doctor`. One JSON line last on standard output; progress on standard error."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cosy_engine.compare import command as compare
from cosy_engine.errors import CosyError, GenerationFailed, ReferenceUnreadable, SettingInvalid
from cosy_engine.settings.engine_config import PRECISIONS, TIERS, EngineConfig
from cosy_engine.settings.model_spec import ModelSpec
from cosy_engine.settings.modes import MODES
from cosy_engine.types import Request, Voice


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 2 something given cannot be used, 1 anything else that failed, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m cosy_engine", description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="log what the engine does")
    commands = parser.add_subparsers(dest="command", required=True)
    _clone_arguments(commands.add_parser("clone", help="speak a text in the voice of a reference clip"))
    _voice_arguments(commands.add_parser("voice", help="save a voice as one file"))
    _fetch_arguments(commands.add_parser("fetch", help="download a published release"))
    _bench_arguments(commands.add_parser("bench", help="measure this machine"))
    compare.add_arguments(commands.add_parser("compare", help="one request in several variants, side by side"))
    _doctor_arguments(commands.add_parser("doctor", help="say why this machine is slow, and what would help"))
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character shows its number
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        commands_by_name = {"clone": clone, "voice": voice, "fetch": fetch, "bench": bench, "compare": compare.compare}
        return (commands_by_name | {"doctor": doctor})[arguments.command](arguments)
    except CosyError as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1 if isinstance(error, GenerationFailed) else 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _clone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference",
        required=True,
        help="clip of the voice, 3-10 s: wav, flac, mp3, ogg, m4a, ...; or a saved voice; or the name of one in the model "
        "folder's spk2info.pt",
    )
    parser.add_argument("--transcript", default="", help="words spoken in the reference")
    parser.add_argument("--text", default="", help="words to speak; - reads standard input")
    parser.add_argument("--out", required=True, type=Path, help="file to write: .wav (16-bit), .flac, .ogg or .mp3")
    parser.add_argument(
        "--model", type=Path, help="model folder; default: a release under pretrained_models/, else the demo voice"
    )
    parser.add_argument("--llm", help="language-model file in the folder, for example llm.rl.pt")
    parser.add_argument(
        "--mode",
        choices=sorted(MODES),
        help="default: by what is given, such as zero_shot with a transcript and cross_lingual without",
    )
    parser.add_argument("--instruction", default="", help="how to speak, for mode instruct")
    parser.add_argument("--source", help="clip whose words are kept, for mode voice_conversion")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument(
        "--tier", choices=("auto", *TIERS), default="auto", help="how the model is run; auto is the fastest here"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--stream", action="store_true", help="render in chunks while the text is being spoken")
    parser.add_argument("--seed", type=int, help="same seed, same audio; drawn and reported when not given")
    parser.add_argument("--speed", type=float, default=1.0, help="0.5 to 2; not with --stream")


def _fetch_arguments(parser: argparse.ArgumentParser) -> None:
    from cosy_engine.model_files.catalog import CATALOG
    from cosy_engine.model_files.fetch import SOURCES

    parser.add_argument(
        "release",
        choices=sorted(CATALOG),
        help="; ".join(f"{e.id}: {e.title}, {e.size_gb} GB" for e in CATALOG.values()),
    )
    parser.add_argument("--source", choices=SOURCES, default=SOURCES[0])
    parser.add_argument("--to", type=Path, help="folder that gets the release's folder; default pretrained_models/")


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", type=Path, help="model folder; default as for clone")
    which.add_argument("--random", choices=("v2", "v3"), help="random weights of the published sizes")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiers", default=",".join(TIERS), help="of %(default)s")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="of %(default)s")
    parser.add_argument("--rows", type=_numbers, default=[1, 8, 32], help="rows decoded together; default 1,8,32")
    parser.add_argument(
        "--slots",
        type=lambda text: _numbers(text)[0],
        default=8,
        help="of the engine measured; more --rows get their own batch",
    )
    parser.add_argument("--parts", default="decode,flow,vocoder,request", help="of %(default)s")
    parser.add_argument(
        "--load", type=_numbers, help="instead: so many listeners at once through the scheduler, for example 1,8,32"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each of --load asks; default %(default)s")
    parser.add_argument("--stream", action="store_true", help="listeners of --load play while it is being made")
    parser.add_argument(
        "--runs", type=lambda text: _numbers(text)[0], default=5, help="timed runs after two discarded ones"
    )
    parser.add_argument(
        "--json",
        type=Path,
        help="write the figures to a file; a line for each configuration then goes to standard output",
    )


def _numbers(text: str) -> list[int]:
    """Positive whole numbers, comma-separated."""
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def bench(arguments: argparse.Namespace) -> int:
    """Measure; a line for each configuration, the figures as one JSON line last. With --json the figures go to the file, and
    standard output gets the lines alone."""
    from cosy_engine import bench as measuring
    from cosy_engine.build import default_folder, load_models, pick_device
    from cosy_engine.model_files.layout import find_release
    from cosy_engine.settings.published import PUBLISHED

    for given, known in (
        (arguments.tiers, TIERS),
        (arguments.precisions, PRECISIONS),
        (arguments.parts, measuring.PARTS),
    ):
        if unknown := set(given.split(",")) - set(known):
            raise SettingInvalid(f"{', '.join(sorted(unknown))} is not one of {', '.join(known)}")
    if arguments.json and not arguments.json.parent.is_dir():
        raise SettingInvalid(f"the folder {arguments.json.parent} does not exist: create it, or choose another --json")
    device = pick_device(arguments.device)
    facts = measuring.machine(device)
    print(json.dumps(facts), file=sys.stderr)
    if arguments.random:
        spec, what = PUBLISHED[arguments.random], f"random weights, {arguments.random} sizes"
        models = measuring.random_models(spec, device)
    else:
        release = find_release(arguments.model or default_folder())
        spec, what = release.spec, release.name
        models = load_models(release, device)
    if arguments.load:
        return _bench_load(arguments, spec, models, facts, what)
    run = measuring.Bench(spec, models, arguments.rows, arguments.runs, arguments.slots, _tell)
    results, data = [], measuring.as_data([], facts, what)
    for precision, tier in measuring.runnable(device, arguments.precisions.split(","), arguments.tiers.split(",")):
        results.append(run.run(precision, tier, arguments.parts.split(",")))
        print(measuring.table(results[-1:]), file=sys.stdout if arguments.json else sys.stderr, flush=True)
        data = measuring.as_data(results, facts, what)
        if arguments.json:  # after each configuration: a bench that is stopped leaves what it has
            arguments.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if not arguments.json:
        print(json.dumps(data))
    return 0


def _tell(words: str) -> None:
    """A line of progress."""
    print(words, file=sys.stderr, flush=True)


def _bench_load(arguments: argparse.Namespace, spec: ModelSpec, models: Any, facts: dict, what: str) -> int:
    """Listeners at once; the same lines and files."""
    from cosy_engine import bench as measuring
    from cosy_engine import bench_load

    most = max(arguments.load)
    run = measuring.Bench(spec, models, [most], arguments.runs, most, _tell)
    loads, data = [], bench_load.as_data([], facts, what)
    for precision, tier in measuring.runnable(run.device, arguments.precisions.split(","), arguments.tiers.split(",")):
        for listeners in arguments.load:
            loads.append(bench_load.measure(run, precision, tier, listeners, arguments.seconds, arguments.stream))
            print(bench_load.line(loads[-1]), file=sys.stdout if arguments.json else sys.stderr, flush=True)
            data = bench_load.as_data(loads, facts, what)
            if arguments.json:
                arguments.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if not arguments.json:
        print(json.dumps(data))
    return 0


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="model folder to examine; default as for clone")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="the facts and verdicts as one JSON line, nothing else")


def doctor(arguments: argparse.Namespace) -> int:
    """Facts, verdicts and predicted times; status 0 unless something stops the work."""
    from cosy_engine.build import default_folder, pick_device
    from cosy_engine.examine import examine
    from cosy_engine.health import doctor as rules

    facts = examine(pick_device(arguments.device), arguments.model or default_folder())
    verdicts = rules.diagnose(facts)
    if arguments.json:
        print(json.dumps(rules.as_record(facts, verdicts)))
    else:
        print(rules.report(facts, verdicts))
    return int(any(verdict.level == rules.STOP for verdict in verdicts))


def clone(arguments: argparse.Namespace) -> int:
    """Speak, write the file, print the report as one JSON line. What can be checked is checked before the model loads."""
    from cosy_engine import load
    from cosy_engine.audio.voice import load_voice
    from cosy_engine.audio.waveform import check_writable, read_clip, write_wav
    from cosy_engine.build import default_folder
    from cosy_engine.engine import check_request

    check_writable(arguments.out)
    if arguments.out.resolve() in (Path(p).resolve() for p in (arguments.reference, arguments.source) if p):
        raise SettingInvalid(f"{arguments.out} is the recording itself: name another file for the result")
    saved = arguments.reference.lower().endswith(".safetensors")
    folder = arguments.model or default_folder()
    named = not saved and not Path(arguments.reference).exists() and (folder / "spk2info.pt").is_file()
    request = Request(
        mode=arguments.mode or "",
        text=sys.stdin.read() if arguments.text == "-" else arguments.text,
        reference=Voice.empty() if saved or named else read_clip(arguments.reference),
        transcript=arguments.transcript,
        instruction=arguments.instruction,
        source=read_clip(arguments.source) if arguments.source else None,
        seed=arguments.seed,
        speed=arguments.speed,
        stream=arguments.stream,
    )
    check_request(request)
    _progress("loading the model ...")
    engine = load(
        arguments.model,
        EngineConfig(
            device=arguments.device,
            precision=arguments.precision,
            tier=arguments.tier,
            llm_weights=arguments.llm,
            slots=1,
        ),
    )
    try:
        _progress("")
        if engine.card.get("note"):
            print(engine.card["note"], file=sys.stderr)
        if saved:
            request = dataclasses.replace(request, reference=load_voice(arguments.reference, engine.voices.model_key))
        if named:
            request = dataclasses.replace(request, reference=stored_voice(engine.stored_voices, arguments.reference))
        speech = engine.speak(request)
        chunks = []
        for chunk in speech:
            chunks.append(chunk.samples)
            seconds = sum(map(len, chunks)) / chunk.rate_hz
            _progress(f"segment {chunk.segment + 1} of {chunk.segments}, {seconds:.1f} s of audio")
        _progress("")
        for note in speech.report.notes:
            print(f"note: {note}", file=sys.stderr)
        write_wav(arguments.out, np.concatenate(chunks) if chunks else np.zeros(0, np.float32), engine.spec.mel.rate_hz)
        print(json.dumps(report_line(speech.report) | {"out": str(arguments.out.resolve())}, ensure_ascii=False))
        return 0
    finally:
        engine.close()


def stored_voice(voices: dict[str, Voice], name: str) -> Voice:
    """Raises: ReferenceUnreadable: neither a file nor one of the names."""
    if name not in voices:
        known = ", ".join(voices) or "none that can be used"
        raise ReferenceUnreadable(
            f"{name} is no file, and no voice of the model folder, which has {known}: choose another"
        )
    return voices[name]


def _voice_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", required=True, help="clip of the voice, 3-10 s")
    parser.add_argument(
        "--transcript", default="", help="words spoken in it; without them the voice speaks by sound alone"
    )
    parser.add_argument("--out", required=True, type=Path, help="file to write, ending in .safetensors")
    parser.add_argument("--model", type=Path, help="model folder; a voice serves the model that made it")
    parser.add_argument("--device", default="auto")


def voice(arguments: argparse.Namespace) -> int:
    """Save what the model knows of a clip; the recording itself is not in the file."""
    from cosy_engine import load
    from cosy_engine.audio.voice import save_voice
    from cosy_engine.audio.waveform import read_clip

    if arguments.out.suffix != ".safetensors" or arguments.out.is_dir() or not arguments.out.parent.is_dir():
        raise SettingInvalid(f"{arguments.out}: name a file that ends in .safetensors, in a folder that exists")
    clip = read_clip(arguments.reference)
    engine = load(arguments.model, EngineConfig(device=arguments.device, slots=1, warm_up=False))
    try:
        made = engine.voice(clip, arguments.transcript)
        save_voice(arguments.out, made, engine.voices.model_key)
        print(json.dumps({"out": str(arguments.out.resolve()), "seconds": made.seconds, "tokens": len(made.tokens)}))
        return 0
    finally:
        engine.close()


def report_line(report) -> dict:
    """A Report as plain data, rounded for reading."""
    data = dataclasses.asdict(report) | {"rtf": report.rtf}

    def rounded(value):
        if isinstance(value, float):
            return round(value, 4)
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [rounded(item) for item in value]
        return value

    return rounded(data)


def _progress(text: str) -> None:
    """One line that is overwritten, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def fetch(arguments: argparse.Namespace) -> int:
    """Download a release; the client shows the progress."""
    from cosy_engine.build import ROOT
    from cosy_engine.model_files.fetch import fetch as download

    folder = download(arguments.release, arguments.to or ROOT / "pretrained_models", arguments.source)
    print(json.dumps({"folder": str(folder)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
