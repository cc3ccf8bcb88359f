"""The card says what is good and bad about a clip before anything is generated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cosy_engine.audio.clip_report import WORDS, clip_notes, describe, transcript_note
from cosy_engine.audio.features import resample
from cosy_engine.audio.waveform import read_clip

TRANSCRIPTS = json.loads((Path(__file__).parent / "speech.json").read_text(encoding="utf-8"))


def test_good_speech_is_good(speech):
    report = describe(speech[0])
    assert report.verdicts == ("good",)
    assert report.seconds == pytest.approx(4.3, abs=0.1)
    assert report.speech_share > 0.8
    assert -30 < report.level_dbfs < -15
    assert report.clipping_share == 0.0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda x: x * 0.01, "quiet"),
        (lambda x: np.clip(x * 15, -1, 1), "clipped"),
        (lambda x: x + 0.08 * np.random.default_rng(0).standard_normal(len(x)).astype(np.float32), "noisy"),
        (lambda x: x[:24000], "short"),
        (lambda x: np.tile(x, 3), "long"),
        (lambda x: np.concatenate([x, np.zeros(8 * 24000, np.float32)]), "little_speech"),
        (lambda x: resample(resample(torch.from_numpy(x), 24000, 7500), 7500, 24000).numpy(), "narrow_band"),
        (lambda x: x[: int(2.9 * 24000)], "ends_in_speech"),
        (lambda x: np.clip(x + 0.9 * (np.arange(len(x)) % 2400 == 0), -1, 1), "clicks"),
    ],
)
def test_each_fault_has_its_verdict(speech, change, code):
    report = describe(read_clip((24000, change(speech[0].samples))))
    assert code in report.verdicts
    assert WORDS[code] in report.words


@pytest.mark.parametrize("every", [12000, 2400, 480])
def test_clicks_are_no_noise(speech, every):
    clicking = np.clip(speech[0].samples + 0.9 * (np.arange(len(speech[0].samples)) % every == 0), -1, 1)
    verdicts = describe(read_clip((24000, clicking))).verdicts
    assert "clicks" in verdicts and "noisy" not in verdicts


def test_a_hard_cut_is_no_clicking(speech):
    for seconds in (0.9, 1.3, 2.0):
        assert (
            "clicks" not in describe(read_clip((24000, speech[0].samples[5000 : 5000 + int(seconds * 24000)]))).verdicts
        )


@pytest.mark.parametrize(
    "offset",
    [
        lambda t: 0.3 + 0 * t,
        lambda t: 0.005 + 0 * t,
        lambda t: 0.2 * t / t[-1],
        lambda t: 0.2 * (t > t[-1] / 2),
        lambda t: 0.1 * np.sin(2 * np.pi * 0.5 * t),
    ],
)
def test_an_offset_is_no_noise_and_no_level(speech, offset):
    quiet = speech[0].samples * 0.1
    found = describe(read_clip((24000, quiet + offset(np.arange(len(quiet)) / 24000).astype(np.float32))))
    assert "noisy" not in found.verdicts and "clicks" not in found.verdicts
    assert found.level_dbfs == pytest.approx(describe(read_clip((24000, quiet))).level_dbfs, abs=1.0)


def test_speech_is_found_however_quiet_it_is(speech):
    report = describe(read_clip((24000, speech[0].samples * np.float32(0.005))))
    assert report.level_dbfs < -60 and report.verdicts == ("quiet",)
    hiss = 0.002 * np.random.default_rng(0).standard_normal(96000).astype(np.float32)
    assert "no_speech" in describe(read_clip((24000, hiss))).verdicts


def test_a_telephone_clip_and_a_tone_have_their_verdicts(speech):
    phone = resample(torch.from_numpy(speech[0].samples), 24000, 8000).numpy()
    assert "low_rate" in describe(read_clip((8000, phone))).verdicts
    hum = (0.3 * np.sin(2 * np.pi * 50 * np.arange(96000) / 24000)).astype(np.float32)
    assert "no_speech" in describe(read_clip((24000, hum))).verdicts


def test_a_transcript_of_another_clip_is_noticed(speech):
    for i, clip in enumerate(speech):
        speech_s = describe(clip).speech_s
        own = TRANSCRIPTS[f"speech_{i}"]
        assert transcript_note(own, speech_s) is None
        for wrong in (f"{own} {own}", own[: len(own) // 2], own * 3):
            assert "does not seem to belong" in transcript_note(wrong, speech_s), wrong
    assert transcript_note("希望你以后能够做的比我还好呦。", 3.5) is None
    assert transcript_note("好", 3.5)
    assert transcript_note("No.", 0.4) is None  # a syllable more or less decides
    assert transcript_note(TRANSCRIPTS["speech_1"], 9.0, pauses=True) is None and transcript_note("好" * 18, 9.0)
    assert transcript_note("", 3.5) is None


def test_the_sample_voices_have_their_own_words():
    for clip in sorted(Path("assets/voices").glob("*.ogg")):
        report, own = describe(read_clip(clip)), clip.with_suffix(".txt").read_text(encoding="utf-8").strip()
        assert clip_notes(report) == [] and transcript_note(own, report.speech_s) is None
        assert transcript_note(f"{own} {own}", report.speech_s) and transcript_note(
            own[: len(own) // 2], report.speech_s
        )


def test_warnings_are_notes_and_hints_are_not(speech):
    loud = describe(read_clip((24000, np.clip(speech[0].samples * 15, -1, 1))))
    assert "reference clip: distorted by too high a level: record more softly" in clip_notes(loud)
    assert clip_notes(describe(read_clip((24000, speech[0].samples[:24000]))))[0].startswith("reference clip: short")
    assert clip_notes(describe(read_clip((24000, np.tile(speech[0].samples, 3))))) == []  # long
