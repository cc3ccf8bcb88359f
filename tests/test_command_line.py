"""The commands as a person types them, from a folder that is not the repository's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cosy_engine.__main__ import main
from tests.test_engine import TEXT, WORDS, speechlike

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "my voice.wav"
    rate, samples = speechlike(3.0)
    soundfile.write(path, (samples * 32767).astype(np.int16), rate)
    return path


def run(capsys, *arguments: str):
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_clone_writes_a_wav_and_ends_with_one_json_line(capsys, clip, tmp_path):
    out = tmp_path / "out.wav"
    status, printed, err = run(
        capsys, "clone", "--reference", clip, "--transcript", WORDS, "--text", TEXT, "--out", out, "--seed", "3", "--device", "cpu"
    )  # fmt: skip
    assert status == 0 and "demo voice" in err
    report = json.loads(printed.strip().splitlines()[-1])
    samples, rate = soundfile.read(out, dtype="int16")
    assert rate == 24000 and len(samples) == round(report["audio_s"] * rate)
    for key in ("first_audio_s", "rtf", "tokens", "ms_per_token", "stages_s", "retries", "model", "device", "provider", "seed"):
        assert key in report
    assert report["seed"] == 3 and report["out"] == str(out)


def test_the_inputs_choose_the_mode(capsys, clip, tmp_path, miniature_folder):
    out = tmp_path / "out.wav"
    common = ("clone", "--model", miniature_folder, "--reference", clip, "--out", out, "--device", "cpu", "--seed", "1")
    for extra, mode in (
        (("--text", TEXT), "cross_lingual"),
        (("--text", TEXT, "--instruction", "speak softly"), "instruct"),
        (("--source", clip), "voice_conversion"),
    ):
        status, printed, _ = run(capsys, *common, *extra)
        assert status == 0 and json.loads(printed.splitlines()[-1])["mode"] == mode


def test_a_saved_voice_speaks_without_its_recording(capsys, clip, tmp_path):
    file = tmp_path / "me.safetensors"
    assert run(capsys, "voice", "--reference", clip, "--transcript", WORDS, "--out", file, "--device", "cpu")[0] == 0
    spoken = []
    for reference, extra in ((file, ()), (clip, ("--transcript", WORDS))):
        out = tmp_path / "out.wav"
        status, _, _ = run(
            capsys, "clone", "--reference", reference, *extra, "--text", TEXT, "--out", out, "--seed", "2", "--device", "cpu"
        )  # fmt: skip
        assert status == 0
        spoken.append(soundfile.read(out, dtype="int16")[0])
    np.testing.assert_array_equal(*spoken)


@pytest.mark.parametrize(
    "change,says",
    [
        ({"--out": "folder"}, "is a folder"),
        ({"--out": "nowhere/out.wav"}, "does not exist"),
        ({"--out": "out.xyz"}, "ending"),
        ({"--reference": "missing.wav"}, "missing.wav"),
        ({"--speed": "3"}, "0.5 to 2"),
        ({"--seed": "-4"}, "seed"),
        ({"--mode": "saved_voice"}, "saved voice"),
        ({"--text": ""}, "text is empty"),
        ({"--model": "folder"}, "cosyvoice3.yaml"),
        ({"--precision": "fp16"}, "CPU"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, clip, tmp_path, monkeypatch, change, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    given = {"--reference": clip, "--transcript": WORDS, "--text": TEXT, "--out": "out.wav", "--device": "cpu"} | change
    status, printed, err = run(capsys, "clone", *(part for pair in given.items() for part in pair))
    assert status == 2 and says in err and "Traceback" not in err and printed == ""
    assert not (tmp_path / "out.wav").exists()


def test_run_sh_keeps_the_callers_folder_and_names_unknown_commands(tmp_path):
    """The script with this interpreter in the place of its own; nothing is installed."""
    fake = tmp_path / "venv"
    (fake / "bin").mkdir(parents=True)
    (fake / "bin" / "python").symlink_to(sys.executable)
    for name, file in (("app", "requirements.txt"), ("tests", "tests/requirements.txt")):
        sums = subprocess.run(["cksum"], stdin=(ROOT / file).open(), capture_output=True, text=True, check=True).stdout
        (fake / f"installed-{name}").write_text(sums)
    rate, samples = speechlike(3.0)
    soundfile.write(tmp_path / "clip.wav", (samples * 32767).astype(np.int16), rate)
    environment = os.environ | {"VENV": str(fake), "PYTHONPATH": os.pathsep.join(p for p in sys.path if "site-packages" in p)}

    def script(*arguments):
        return subprocess.run(
            [ROOT / "run.sh", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    done = script("clone", "--reference", "clip.wav", "--text", "Hi there.", "--out", "rel.wav", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rel.wav").is_file()
    unknown = script("sing")
    assert unknown.returncode == 2 and "unknown command 'sing'" in unknown.stderr
    assert "clone" in script("--help").stdout
