"""The load bench counts what listeners have: on a simulated player, and through the scheduler on small random weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cosy_engine.bench import Bench, random_models
from cosy_engine.bench_load import Playback, line, measure
from tools.miniature.make import small_spec

ROOT = Path(__file__).resolve().parent.parent


def test_a_player_runs_dry_when_the_next_chunk_is_late_and_goes_on():
    player = Playback(asked_s=10.0)
    for now, seconds in ((10.2, 1.0), (11.0, 1.0), (12.5, 1.0), (13.0, 0.5)):
        player.chunk(now, seconds)
    heard = player.heard()
    assert heard.first_s == pytest.approx(0.2) and heard.audio_s == pytest.approx(3.5)
    assert heard.underruns == 1 and heard.dry_s == pytest.approx(0.3)  # dry from 12.2 to 12.5
    assert player.ends_s == pytest.approx(14.0)


@pytest.mark.parametrize("stream", [False, True])
def test_every_listener_is_served_and_counted(stream):
    spec = small_spec("v3", 700)
    bench = Bench(spec, random_models(spec, torch.device("cpu")), rows=[3], runs=1, slots=3)
    load = measure(bench, "fp32", "eager", 3, 0.0, stream)
    assert load.error == "" and load.requests == 3 and load.least_share == pytest.approx(1.0)
    assert load.audio_s == pytest.approx(30.0, abs=0.1) and load.rtf > 0 and load.steps >= 249
    assert 0 < load.first_ms_p50 <= load.first_ms_p95 <= 1000 * load.seconds
    assert 0 < load.rows <= 3 and (stream or load.underruns == 0)
    assert "3 at once" in line(load)


def test_a_listener_whose_request_fails_is_named():
    spec = small_spec("v3", 700)
    bench = Bench(spec, random_models(spec, torch.device("cpu")), rows=[1], runs=1, slots=1)
    bench.shelf.at("fp32", "eager").flow.whole = None
    load = measure(bench, "fp32", "eager", 1, 0.0, False)
    assert "TypeError" in load.error and "did not finish" in line(load)


def test_the_command_prints_a_line_for_each_load_and_writes_the_data(tmp_path, miniature_folder):
    command = [sys.executable, "-m", "cosy_engine", "bench", "--model", str(miniature_folder), "--load", "1,2", "--seconds", "0.1",
               "--stream", "--precisions", "fp32", "--tiers", "eager", "--device", "cpu", "--json", str(tmp_path / "b.json")]  # fmt: skip
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    data = json.loads((tmp_path / "b.json").read_text())
    assert len(out.splitlines()) == 2 and "2 at once, streamed" in out
    assert [load["listeners"] for load in data["loads"]] == [1, 2] and not any(load["error"] for load in data["loads"])
