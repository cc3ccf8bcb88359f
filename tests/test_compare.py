"""Comparing variants on the miniature: turns, figures, sameness, refusals, files. Speed itself is never asserted."""

import base64
import csv
import errno
import io
import json
import re
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from cosy_engine import Request, load
from cosy_engine.__main__ import main
from cosy_engine.accel.decode_graph import GraphDecode
from cosy_engine.bench import random_models
from cosy_engine.build import make_stages
from cosy_engine.compare import Comparison, EngineSubject, RandomSubject, Variant, as_csv, as_data
from cosy_engine.compare.likeness import forced_log_probs, likeness, log_mel
from cosy_engine.compare.outcome import STAGES, Outcome
from cosy_engine.compare.picture import difference, render, unpacked
from cosy_engine.compare.reading import check, read
from cosy_engine.errors import Busy, Cancelled, InputMissing, ModeUnavailable, NotFinite, SettingInvalid
from cosy_engine.settings.published import PUBLISHED
from tests.test_engine import TEXT, WORDS, speechlike
from tools.miniature.make import small_spec

WHOLE, HALF, STREAM = Variant("eager", "fp32"), Variant("eager", "bf16"), Variant("eager", "fp32", True)


@pytest.fixture(scope="module")
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=2)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def subject(engine):
    return EngineSubject(engine, Request(text=TEXT, reference=speechlike(4.0), transcript=WORDS, seed=5))


@pytest.fixture(scope="module")
def compared(subject):
    """(comparison, its steps, its data)."""
    comparison = Comparison(subject, [WHOLE, HALF, STREAM], runs=2)
    steps = list(comparison.steps())
    return comparison, steps, as_data(comparison, {"device": "CPU"}, {"torch": torch.__version__})


def test_variants_take_turns_and_each_round_starts_with_another(compared):
    comparison, steps, _ = compared
    order = [step.variant for step in steps if step.doing in ("warming", "running")]
    assert order == [WHOLE, HALF, STREAM, HALF, STREAM, WHOLE, STREAM, WHOLE, HALF]
    assert [step.done for step in steps] == list(range(len(steps))) and steps[-1].total == steps[-1].done
    assert all(len(o.runs) == 2 and not o.error for o in comparison.outcomes.values())


def test_the_stages_of_a_run_add_up_to_its_time_and_the_reference_is_computed_each_time(compared):
    for outcome in compared[0].outcomes.values():
        for run in outcome.runs:
            assert set(run.stages_s) == set(STAGES)
            assert sum(run.stages_s.values()) == pytest.approx(run.wall_s, abs=0.002)
            assert run.stages_s["reference"] > 0.001 and run.stages_s["other"] < 0.5 * run.wall_s
            assert 0 < run.first_s <= run.wall_s and run.tokens and not run.disturbed


def test_sameness_is_seen_and_so_is_difference(compared):
    same, half, stream = (o.likeness for o in compared[0].outcomes.values())
    assert same.same_tokens and same.log_prob == same.mel_db == 0
    assert stream.same_tokens and stream.log_prob == 0 and 0 < stream.mel_db < 1
    assert half.tokens_equal < half.base_tokens and 0 < half.log_prob <= half.log_prob_worst < 0.1


def test_forced_log_probs_are_those_of_decoding(compared):
    """The baseline's own tokens were drawn, so each is a likely one; a shuffled sequence is not."""
    comparison = compared[0]
    base = comparison.outcomes[WHOLE]
    shuffled = comparison._log_probs(Variant("eager", "bf16"), base.spoken[0][:32])
    assert torch.allclose(shuffled, base.log_probs, atol=0.02)  # bf16 rounds weights to 8 bits
    other = [(i + 17) % 50 for i in range(32)]
    stages = comparison.subject.shelf.at("fp32", "eager")
    lost = comparison.subject.worker.call(lambda: forced_log_probs(stages, comparison.subject.job(False), other))
    assert base.log_probs.mean() > lost.mean()


def test_the_graph_tiers_own_step_is_judged():
    """What a graph replays is TorchStep; on a CPU it runs as it is. 1e-4: sums of fp32 in another order."""
    spec = small_spec("v3", 700)
    models = random_models(spec, torch.device("cpu"))
    plain, stepped = (make_stages(models, "fp32", "eager", 1) for _ in range(2))
    subject = RandomSubject("small", spec, torch.device("cpu"), tokens=20)
    try:
        tokens = [(7 * i) % 50 for i in range(20)]
        eager = forced_log_probs(plain, subject.job(False), tokens)
        stepped.pool.step = GraphDecode(models.torch_step, stepped.pool.state, 1)
        assert torch.allclose(forced_log_probs(stepped, subject.job(False), tokens), eager, atol=1e-4)
        assert eager.std() > 0.01
    finally:
        subject.close()


def test_graphs_that_are_there_are_not_captured_again(subject, monkeypatch):
    made = []
    monkeypatch.setattr(subject.shelf, "chores", lambda precision, tier: [lambda: made.append(precision)])
    list(Comparison(subject, [WHOLE], runs=1, warm_ups=0).steps())
    assert made == ["fp32"]
    monkeypatch.setattr(subject.shelf, "captured", lambda precision, tier: ["a graph"])
    list(Comparison(subject, [WHOLE], runs=1, warm_ups=0).steps())
    assert made == ["fp32"]


def test_the_figures_reach_json_csv_and_png(compared):
    _, _, data = compared
    rows = list(csv.DictReader(io.StringIO(as_csv(data))))
    assert [row["variant"] for row in rows] == ["eager-fp32-whole", "eager-bf16-whole", "eager-fp32-stream"]
    assert float(rows[0]["ms_per_token"]) == data["variants"][0]["ms_per_token"][0] > 0
    assert float(rows[0]["times_floor"]) > 1 and rows[2]["times_floor"] == ""
    again = json.loads(json.dumps(data))
    png = render(again)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert width == 2560 and height > 800
    assert TEXT not in json.dumps(data)  # it is made to be shared


def test_equal_mels_have_a_white_difference(compared):
    rows = compared[2]["variants"]
    mel = unpacked(rows[0]["sketch"])
    assert mel.shape == (40, 120) and mel.max() > mel.min()
    assert difference(mel, mel).min() >= 248 and difference(mel, 255 - mel).min() < 200


def test_it_refuses_while_others_are_served_unless_told(engine, subject):
    speech = engine.speak(Request(text=TEXT * 8, reference=speechlike(4.0), transcript=WORDS, seed=5))
    try:
        with pytest.raises(Busy, match="being served"):
            Comparison(subject, [WHOLE])
        assert Comparison(subject, [WHOLE], anyway=True)
    finally:
        speech.close()
        idle(engine)


def idle(engine):
    """Wait until nothing runs: a request that was stopped leaves at the worker's next turn."""
    for _ in range(200):
        if engine.worker.load() == (0, 0):
            return
        time.sleep(0.01)
    raise AssertionError("the engine does not fall idle")


def test_stop_ends_the_run_in_progress(subject):
    comparison = Comparison(subject, [WHOLE], runs=50)
    steps = comparison.steps()
    for step in steps:
        if step.doing == "running":
            break
    timer = threading.Timer(0.02, comparison.stop)
    timer.start()
    with pytest.raises(Cancelled):
        list(steps)
    timer.join()
    assert len(comparison.outcomes[WHOLE].runs) < 50
    idle(subject)


def test_a_variant_that_fails_leaves_the_others(subject, monkeypatch):
    whole = Comparison._once

    def once(self, outcome):
        if outcome.variant == HALF:
            raise NotFinite("the language model gave values that are no numbers: try precision fp32")
        return whole(self, outcome)

    monkeypatch.setattr(Comparison, "_once", once)
    comparison = Comparison(subject, [WHOLE, HALF], runs=1)
    list(comparison.steps())
    data = as_data(comparison, {}, {})
    assert [row["runs"] for row in data["variants"]] == [1, 0] and "no numbers" in data["variants"][1]["error"]
    assert render(data) and as_csv(data).splitlines()[2].endswith("try precision fp32")


def test_progress_names_each_variant_and_run_from_the_start(capsys, monkeypatch):
    monkeypatch.setitem(PUBLISHED, "v3", small_spec("v3", 700))
    assert main(["compare", "--random", "v3", "--device", "cpu", "--tokens", "20", "--runs", "2", "--variants",
                 "eager-fp32,eager-bf16"]) == 0  # fmt: skip
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "making random weights, v3 sizes, on cpu ..."
    assert re.fullmatch(r"making random weights, v3 sizes took \d+\.\d s", lines[1])
    assert lines[2:6] == ["measuring this machine ...", "1 of 10: preparing eager-fp32-whole", "2 of 10: preparing eager-bf16-whole",
                          "3 of 10: warming eager-fp32-whole, warm-up 1 of 1"]  # fmt: skip
    assert [line.split(": ")[1] for line in lines[7:13]] == [
        "running eager-bf16-whole, run 1 of 2", "running eager-fp32-whole, run 1 of 2", "running eager-fp32-whole, run 2 of 2",
        "running eager-bf16-whole, run 2 of 2", "judging eager-fp32-whole", "judging eager-bf16-whole",
    ]  # fmt: skip
    assert all("first audio" in line for line in lines[13:]) and len(lines) == 15


def test_what_the_user_got_wrong_is_heard(engine):
    with pytest.raises(InputMissing):
        list(
            Comparison(
                EngineSubject(engine, Request(mode="zero_shot", text=TEXT, reference=speechlike(4.0))), [WHOLE]
            ).steps()
        )
    with pytest.raises(ModeUnavailable, match="CUDA"):
        Comparison(EngineSubject(engine, Request(text=TEXT)), [Variant("graph", "fp32")])
    with pytest.raises(SettingInvalid, match="pieces"):
        EngineSubject(engine, Request(text=iter(["a"])))
    for wrong in ("eager", "eager-fp64", "eager-fp32-both", "a-b-c-d", ""):
        with pytest.raises(SettingInvalid, match="graph-fp16-stream"):
            Variant.parse(wrong)
    assert Variant.parse("graph-fp16") == Variant("graph", "fp16") and Variant.parse(STREAM.id) == STREAM


def test_random_weights_speak_a_fixed_number_of_tokens():
    subject = RandomSubject("small", small_spec("v3", 700), torch.device("cpu"), tokens=30)
    try:
        comparison = Comparison(subject, [WHOLE, STREAM], runs=1, warm_ups=0)
        list(comparison.steps())
        assert [o.runs[0].tokens for o in comparison.finished] == [30, 30]
        assert comparison.outcomes[STREAM].likeness.same_tokens
    finally:
        subject.close()


def test_silence_and_nothing_have_no_mel_distance():
    spec = small_spec("v3", 700).mel
    assert len(log_mel(np.zeros(100, np.float32), spec)) == 0
    empty, full = Outcome(WHOLE), Outcome(HALF, samples=np.ones(24000, np.float32), spoken=[[1, 2]])
    found = likeness(empty, full, spec)
    assert found.mel_db is None and found.tokens_equal == 0 and not found.same_tokens


def test_the_command_writes_its_files_and_draws_them_again(capsys, tmp_path):
    clip = tmp_path / "clip.wav"
    rate, samples = speechlike(3.0)
    soundfile.write(clip, samples, rate)
    files = [tmp_path / f"c.{kind}" for kind in ("json", "csv", "png")]
    status = main(["compare", "--reference", str(clip), "--transcript", WORDS, "--device", "cpu", "--runs", "1", "--text", TEXT,
                   "--variants", "eager-fp32,eager-fp32-stream", *(f"--{f.suffix[1:]}={f}" for f in files)])  # fmt: skip
    out, err = capsys.readouterr()
    assert status == 0 and "first audio" in err and all(f.stat().st_size for f in files)
    whole = json.loads(files[0].read_text())
    assert all(len(row.pop("sketch")["mel"]) == 6400 for row in whole["variants"])
    assert json.loads(out) == whole and len(out) < 4000
    assert main(["compare", "--from", str(files[0]), "--png", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").read_bytes() == files[2].read_bytes()
    for wrong in (["compare"], ["compare", "--from", str(clip)], ["compare", "--random", "v3", "--tokens", "0"],
                  ["compare", "--random", "v3", "--json", str(tmp_path / "no" / "a.json")]):  # fmt: skip
        assert main([*wrong, "--device", "cpu"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def broken(data, *path, value=None, drop=False):
    """A copy with one part replaced or dropped."""
    whole = json.loads(json.dumps(data))
    at = whole
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(whole)


def test_a_file_that_is_no_comparison_is_refused_and_nothing_is_written(compared, capsys, tmp_path):
    data = compared[2]
    row = ("variants", 0)
    few = base64.b64encode(b"few").decode()
    cases = {
        "": "not a comparison", "{": "not a comparison", "5": "its format", "[null]": "its format", '{"a":1}': "its format",
        '{"variants":5}': "its format", '{"variants":[{}]}': "its format", "[" * 100_000: "nested too deep",
        broken(data, "format", value="cosy-compare-2"): "its format",
        broken(data, "variants", value=5): "variants has",
        broken(data, "variants", value=[{}]): "variants[0].id is missing",
        broken(data, "variants", value=[None]): "variants[0] is no object",
        broken(data, "variants", value=[]): "variants has",
        broken(data, "variants", value=[data["variants"][0]] * 65): "variants has",
        broken(data, "variants", value=[{}] * 40_000): "variants has",
        broken(data, "variants", value=[data["variants"][0]] * 2): "one id",
        broken(data, "machine", value=[1]): "machine has",
        broken(data, "what", value="x" * 100_000): "what has",
        broken(data, "baseline", drop=True): "baseline is missing",
        broken(data, "baseline", value="another"): "baseline is none",
        broken(data, *row, "stages_ms", drop=True): "stages_ms is missing",
        broken(data, *row, "stages_ms", "decode", value="5"): "stages_ms.decode has",
        broken(data, *row, "stages_ms", "decode", value=float("inf")): "Infinity",
        broken(data, *row, "rtf", value=[1]): "rtf has",
        broken(data, *row, "tokens", value=10**400): "tokens has",
        broken(data, *row, "memory_gb", value=True): "memory_gb has",
        broken(data, *row, "likeness", value=[]): "likeness has",
        broken(data, *row, "sketch", "mel", value="*"): "sketch.mel has",
        broken(data, *row, "sketch", "mel", value=few): "sketch.mel has",
        broken(data, *row, "sketch", "bins", value=10**9): "sketch.bins has",
        broken(data, *row, "error", value=7): "error has",
        " " * 4_000_001: "larger than 4 MB",
    }  # fmt: skip
    source = tmp_path / "given.json"
    for text, why in cases.items():
        source.write_text(text)
        for kind in ("json", "csv", "png"):
            out = tmp_path / f"out.{kind}"
            assert main(["compare", "--from", str(source), f"--{kind}", str(out)]) == 2, text[:80]
            said = capsys.readouterr()
            assert "given.json is not a comparison made by this program: " in said.err and why in said.err, text[:80]
            assert not said.out and not out.exists()
    source.write_bytes(b"\xff\xfe")
    assert main(["compare", "--from", str(source)]) == 2 and "not a comparison made" in capsys.readouterr().err
    assert main(["compare", "--from", str(tmp_path)]) == 2 and "cannot be read" in capsys.readouterr().err


def test_a_fault_that_only_drawing_finds_is_told_the_same_way(compared, capsys, tmp_path, monkeypatch):
    source, out = tmp_path / "given.json", tmp_path / "out.csv"
    source.write_text(json.dumps(compared[2]))
    monkeypatch.setattr("cosy_engine.compare.picture.render", lambda data: {}["absent"])
    assert main(["compare", "--from", str(source), "--csv", str(out), "--png", str(tmp_path / "out.png")]) == 2
    assert "not a comparison made by this program" in capsys.readouterr().err and not out.exists()


def test_a_comparison_without_any_time_is_drawn(compared):
    still = json.loads(json.dumps(compared[2]))
    for row in still["variants"]:
        row["stages_ms"] = dict.fromkeys(STAGES, 0)
    check(still)
    assert render(still)


def test_one_that_failed_is_a_comparison(compared, tmp_path):
    failed = {
        "id": "graph-fp32-whole",
        "tier": "graph",
        "precision": "fp32",
        "stream": False,
        "runs": 0,
        "error": "lost",
    }
    data = compared[2] | {"variants": [*compared[2]["variants"], failed]}
    path = tmp_path / "given.json"
    path.write_text(json.dumps(data))
    assert read(path) == json.loads(json.dumps(data))
    assert main(["compare", "--from", str(path)]) == 1
    check(json.loads(Path("bench/results/h200-compare-v3.json").read_text()))


def test_no_cell_of_the_csv_is_a_formula(compared):
    data = json.loads(json.dumps(compared[2]))
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "plain = text", ""]
    data["variants"] = [data["variants"][0] | {"id": text, "error": text} for text in texts]
    data["variants"] += [row | {"runs": 0} for row in data["variants"]]
    rows = list(csv.DictReader(io.StringIO(as_csv(data), newline="")))
    wanted = [f"'{text}" for text in texts[:5]] + texts[5:]
    assert [row["variant"] for row in rows] == [row["error"] for row in rows] == wanted * 2
    assert all(float(row["rtf"]) > 0 for row in rows[:7])


def test_where_it_shall_write_is_tried_before_anything_is_measured(compared, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cosy_engine.compare.command._measured", lambda arguments: pytest.fail("it measured"))
    held = tmp_path / "held.json"
    held.write_text("kept")
    link = tmp_path / "link.png"
    link.symlink_to(tmp_path / "nothing.png")
    locked = "/proc/no.csv"  # no one can create a file there, nor can root
    for wrong, why in (
        (["--json", ""], "--json is empty"),
        (["--csv", str(tmp_path)], "names the folder"),
        (["--png", str(tmp_path / "no" / "a.png")], "does not exist"),
        (["--csv", locked], "cannot be written"),
        (["--png", str(tmp_path / ("a" * 300))], "cannot be written"),
        (["--json", "/dev/null"], "no ordinary file"),
        (["--json", str(tmp_path / "a"), "--csv", str(tmp_path / "." / "a")], "both name"),
        (["--from", str(held), "--png", str(held)], "both name"),
        (["--json", str(held), "--png", str(link), "--csv", locked], "cannot be written"),
    ):
        given = [] if "--from" in wrong else ["--random", "v3"]
        assert main(["compare", *given, *wrong]) == 2
        said = capsys.readouterr()
        assert why in said.err and not said.out
        assert len(list(tmp_path.iterdir())) == 2 and held.read_text() == "kept" and link.is_symlink()


def test_a_write_that_fails_loses_neither_the_figures_nor_the_other_files(compared, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cosy_engine.compare.command._measured", lambda arguments: compared[2])
    write = Path.write_bytes

    def full(path, held):
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, held)

    monkeypatch.setattr(Path, "write_bytes", full)
    out = tmp_path / "out.csv"
    assert main(["compare", "--random", "v3", "--json", str(tmp_path / "out.json"), "--csv", str(out)]) == 2
    said = capsys.readouterr()
    assert "No space left on device" in said.err and out.read_text() == as_csv(compared[2])
    figures = json.loads(said.out)["variants"]
    assert [row["rtf"] for row in figures] == [row["rtf"] for row in compared[2]["variants"]]
    assert not any("sketch" in row for row in figures)
