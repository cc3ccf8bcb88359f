"""The fuzzers run, repeat their inputs, and find nothing in their first cases."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tools.fuzz import text_input

ROOT = Path(__file__).resolve().parents[2]


def test_inputs_follow_from_the_seed():
    texts = [[text_input(random.Random(f"{seed}/{i}")) for i in range(20)] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and max(map(len, texts[0])) <= 5000


@pytest.mark.parametrize("target", ["text", "audio"])
def test_a_short_run_finds_nothing(target):
    run = subprocess.run(
        [sys.executable, "-m", "tools.fuzz", target, "--seconds", "2", "--seed", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    figures = json.loads(run.stdout.splitlines()[-1])
    assert run.returncode == 0 and figures["cases"] > 3 and figures["found"] == {}, run.stdout
