"""`python -m cosy_engine compare`: variants of one request side by side, as a table, JSON, CSV and PNG."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cosy_engine.errors import CosyError, SettingInvalid
from cosy_engine.settings.engine_config import EngineConfig

TEXT = "Tomorrow at half past nine the ferry leaves for the island, and the captain hopes for a calm sea."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", type=Path, help="model folder; default as for clone")
    which.add_argument(
        "--random", choices=("v2", "v3"), help="random weights of the published sizes; needs no reference"
    )
    which.add_argument("--from", dest="data", type=Path, help="draw a comparison that was made before from its JSON")
    parser.add_argument("--reference", help="clip of the voice; needed without --random")
    parser.add_argument("--transcript", default="", help="words spoken in the reference")
    parser.add_argument("--text", default=TEXT, help="words to speak; default: one sentence of six seconds")
    parser.add_argument("--tokens", type=int, default=125, help="with --random: how many speech tokens, 25 a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--variants",
        default="all",
        help="all that run here, or a list of tier-precision[-stream]: eager-fp32,graph-fp16-stream",
    )
    parser.add_argument("--baseline", help="what the others are set against; default: the first variant")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each, in turns")
    parser.add_argument("--warm-ups", type=int, default=1, help="runs of each that are discarded first")
    for kind in ("json", "csv", "png"):
        parser.add_argument(f"--{kind}", type=Path, help=f"file to write as {kind}")


def compare(arguments: argparse.Namespace) -> int:
    """Progress and a line for each variant on standard error; the figures as one JSON line last on standard output, the
    mels of the picture only in --json.

    Status 0 when all variants have figures, 1 when one has none, 2 when something given cannot be used.
    """
    _try_outputs(arguments)
    if arguments.data:
        from cosy_engine.compare.reading import explained, read

        data = read(arguments.data)
        with explained(arguments.data):
            files = list(_files(arguments, data))  # all before the first is written
    else:
        data = _measured(arguments)
        files = _files(arguments, data)  # each is written before the next is made: the JSON holds what was measured
    failed = []
    print(json.dumps(_figures(data)), flush=True)  # before writing: a full disk must not lose a long measurement
    for path, held in files:
        try:
            path.write_bytes(held)
        except OSError as error:
            failed.append(f"{path} cannot be written ({error.strerror})")
    if failed:
        raise SettingInvalid("; ".join(failed) + ": the figures are printed above; make room or choose another place")
    return int(any(row["error"] for row in data["variants"]))


def _figures(data: dict[str, Any]) -> dict[str, Any]:
    """The data without the mels of its picture, short enough for a terminal."""
    rows = [{name: value for name, value in row.items() if name != "sketch"} for row in data["variants"]]
    return data | {"variants": rows}


def _try_outputs(arguments: argparse.Namespace) -> None:
    """Whether all files can be written, before anything is measured. Existing ones stay as they are.

    Raises: SettingInvalid: a folder, no ordinary file, no right to write, one name for two files, or Pillow is missing.
    """
    seen = {arguments.data.resolve(): "--from"} if arguments.data else {}
    for kind in ("json", "csv", "png"):
        given = getattr(arguments, kind)
        if given is None:
            continue
        flag, path = f"--{kind}", given.resolve()  # resolved: a link to nothing would be removed below
        if path in seen:
            raise SettingInvalid(f"{flag} and {seen[path]} both name {given}: give each its own file")
        seen[path] = flag
        try:
            there = path.exists()
            if path.is_dir():
                raise SettingInvalid(f"{flag} is empty or names the folder {given}: name a file")
            if there and not path.is_file():
                raise SettingInvalid(f"{flag}: {given} is no ordinary file: name another")
            if not path.parent.is_dir():
                raise SettingInvalid(
                    f"{flag}: the folder {given.parent} does not exist: create it, or name another file"
                )
            path.open("ab").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise SettingInvalid(f"{flag}: {given} cannot be written ({error.strerror}): name another file") from error
    if arguments.png and not find_spec("PIL"):
        raise SettingInvalid(
            "the picture needs Pillow: pip install pillow; or write --json now and draw it elsewhere with --from"
        )


def _files(arguments: argparse.Namespace, data: dict[str, Any]) -> Iterator[tuple[Path, bytes]]:
    """(where, what) of each file that is asked for."""
    from cosy_engine.compare import record

    if arguments.json:
        yield arguments.json, (json.dumps(data, indent=1) + "\n").encode()
    if arguments.csv:
        yield arguments.csv, record.as_csv(data).encode()
    if arguments.png:
        from cosy_engine.compare.picture import render

        yield arguments.png, render(data)


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    from cosy_engine.compare.outcome import ALL_VARIANTS, Variant
    from cosy_engine.compare.record import as_data
    from cosy_engine.compare.run import Comparison

    chosen = None if arguments.variants == "all" else [Variant.parse(text) for text in arguments.variants.split(",")]
    baseline = Variant.parse(arguments.baseline) if arguments.baseline else None
    subject, close = _subject(arguments)
    try:
        variants = chosen or [v for v in ALL_VARIANTS if not {v.tier, v.precision} & set(subject.unavailable)]
        _say("measuring this machine ...")
        facts, predicted = machine_facts(subject)
        comparison = Comparison(
            subject, variants, baseline=baseline, runs=arguments.runs, warm_ups=arguments.warm_ups
        )  # fmt: skip
        try:
            for step in comparison.steps():
                if step.variant:
                    of = {"warming": f", warm-up {step.turn} of {comparison.warm_ups}",
                          "running": f", run {step.turn} of {comparison.runs}"}  # fmt: skip
                    doing = "preparing" if step.doing == "capturing" else step.doing  # a CPU captures nothing
                    _say(f"{step.done + 1} of {step.total}: {doing} {step.variant.id}{of.get(step.doing, '')}")
            _say("")
        except KeyboardInterrupt:
            if not comparison.finished:
                raise
            _say("")
            print("stopped: what was measured so far is kept", file=sys.stderr)
            comparison.stop()
        data = as_data(comparison, facts, versions(), predicted)
    finally:
        close()
    print(table(data), file=sys.stderr)
    return data


def _say(words: str, stays: bool = False) -> None:
    """Progress on standard error: on a terminal one line that is overwritten unless it `stays`, else a line each."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="\n" if stays else "", file=sys.stderr, flush=True)
    elif words:
        print(words, file=sys.stderr, flush=True)


def _subject(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """(subject, how to close it)."""
    from cosy_engine.compare.subjects import EngineSubject, RandomSubject

    if arguments.random:
        from cosy_engine.build import pick_device
        from cosy_engine.settings.published import PUBLISHED

        if not 1 <= arguments.tokens <= 1000:
            raise SettingInvalid(f"--tokens is {arguments.tokens}: give 1 to 1000")
        name = f"random weights, {arguments.random} sizes"
        device = pick_device(arguments.device)
        _say(f"making {name}, on {device} ...")
        began = time.perf_counter()
        subject = RandomSubject(name, PUBLISHED[arguments.random], device, arguments.tokens, arguments.seed)
        _say(f"making {name} took {time.perf_counter() - began:.1f} s", stays=True)
        return subject, subject.close
    if not arguments.reference:
        raise SettingInvalid("a reference clip is missing: give --reference, or --random v3 to compare without one")
    from cosy_engine import Request, load

    _say("loading the model ...")
    engine = load(arguments.model, EngineConfig(device=arguments.device, slots=1, warm_up=False))
    try:
        request = Request(
            text=arguments.text,
            reference=arguments.reference,
            transcript=arguments.transcript,
            seed=arguments.seed,
        )
        return EngineSubject(engine, request), engine.close
    except CosyError:
        engine.close()
        raise


def machine_facts(subject: Any) -> tuple[dict[str, Any], dict[tuple[str, str], float]]:
    """(what the figures are measured on, (tier, precision) -> predicted ms per token; {} for other than published sizes)."""
    from cosy_engine.bench import machine
    from cosy_engine.build import DTYPES
    from cosy_engine.health.cost import LAYERS
    from cosy_engine.health.doctor import predictions
    from cosy_engine.health.facts import Facts
    from cosy_engine.health.gather import cpu_name
    from cosy_engine.health.measure import product_bandwidth, single_core

    facts = machine(subject.device) | {"cpu": cpu_name()}
    if subject.spec.llm.layers != LAYERS:
        return facts, {}
    on_gpu = subject.device.type == "cuda"
    products = {} if on_gpu else {name: product_bandwidth(subject.device, DTYPES[name]) for name in ("fp32", "bf16")}
    known = Facts(gpu=facts["device"] if on_gpu else None, launch_us=facts["launch_us"],
                  copy_bytes_s=1e12 * facts["copy_tb_s"], single_core=single_core(), product_bytes_s=products)  # fmt: skip
    return facts, predictions(known)


def versions() -> dict[str, str]:
    """What the figures depend on, besides the machine."""
    import platform

    import torch

    found = {"Python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["CUDA"] = torch.version.cuda
    try:
        import triton

        found["Triton"] = triton.__version__
    except ImportError:
        pass
    return found


def table(data: dict[str, Any]) -> str:
    """For people: one line a variant."""
    lines = []
    for row in data["variants"]:
        if row["error"] or not row["runs"]:
            lines.append(f"{row['id']:18} {row['error']}")
            continue
        parts = [f"first audio {row['first_audio_ms'][0]:.0f} ms", f"RTF {row['rtf'][0]:.4f}"]
        if row["ms_per_token"]:
            ratio = f" (x{row['floor_ratio']:.1f} of the floor)" if row["floor_ratio"] else ""
            told = f", predicted {row['predicted_ms']:.2f}" if row["predicted_ms"] else ""
            parts.append(f"{row['ms_per_token'][0]:.3f} ms per token{ratio}{told}")
        parts.append(", ".join(f"{stage} {ms:.0f}" for stage, ms in row["stages_ms"].items()) + " ms")
        if like := row["likeness"]:
            parts.append(f"{like['tokens_equal']} of {like['base_tokens']} tokens equal")
            if like["log_prob"] is not None:
                parts.append(f"log-probs differ by {like['log_prob']:.2g}")
            if like["mel_db"] is not None:
                parts.append(f"mel by {like['mel_db']:.2f} dB")
        lines.append(f"{row['id']:18} " + "; ".join(parts))
    return "\n".join(lines)
