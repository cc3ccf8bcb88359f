"""The benchmark measures what it says, on the miniature and on a CPU; speed itself is never asserted."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from cosy_engine.bench import Bench, random_models
from cosy_engine.build import Models
from tools.miniature.make import small_spec

ROOT = Path(__file__).resolve().parent.parent


def test_every_part_of_a_configuration_is_measured():
    spec = small_spec("v2", 700)
    models = random_models(spec, torch.device("cpu"))
    assert isinstance(models, Models)
    result = Bench(spec, models, rows=[1, 2], runs=1).run("fp32", "eager")
    assert result.error == ""
    assert set(result.decode) == {1, 2} and set(result.flow) == set(result.vocoder) == {1, 10}
    assert result.first_audio.ms < result.whole.ms * 5 and result.rtf > 0 and result.floor_ms > 0


def test_more_rows_than_slots_are_decoded_apart():
    spec, said = small_spec("v3", 700), []
    bench = Bench(spec, random_models(spec, torch.device("cpu")), rows=[1, 4], runs=1, slots=2, say=said.append)
    result = bench.run("fp32", "eager", ["decode"])
    assert result.error == "" and set(result.decode) == {1, 4} and bench.shelf.rows == 2
    assert [words.removeprefix("eager fp32: ") for words in said] == [
        "warming up ...",
        "decode ...",
        "decode of 4 rows ...",
    ]


def test_a_configuration_that_fails_is_recorded_and_named():
    spec = small_spec("v3", 700)
    bench = Bench(spec, random_models(spec, torch.device("cpu")), rows=[1], runs=1)
    bench._flow = None
    assert "TypeError" in bench.run("fp32", "eager", ["flow"]).error


def test_the_command_prints_one_json_line_last_or_a_table_beside_its_file(tmp_path):
    command = [sys.executable, "-m", "cosy_engine", "bench", "--rows", "1", "--runs", "1", "--precisions", "fp32",
               "--tiers", "eager", "--parts", "decode"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stderr.splitlines()[1:3] == ["eager fp32: warming up ...", "eager fp32: decode ..."]
    out = done.stdout
    data = json.loads(out.strip().splitlines()[-1])
    assert data["machine"]["device"] and data["results"][0]["decode"]["1"]["ms"] > 0
    command += ["--json", str(tmp_path / "b.json")]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (line,) = out.splitlines()
    written = json.loads((tmp_path / "b.json").read_text())
    assert line.startswith("eager  fp32: step 1 rows ") and written.keys() == data.keys()
    assert f"{written['results'][0]['decode']['1']['ms']:.3f} ms" in line
