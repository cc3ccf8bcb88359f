"""Voices that the official tools have stored in a model folder speak as from their clip; what else is in there is left out."""

import json
import shutil

import numpy as np
import pytest
import soundfile
import torch

from cosy_engine import Request, load
from cosy_engine.__main__ import main
from cosy_engine.text.frontend import SYSTEM
from cosy_engine.text.tokenizer import END_OF_PROMPT
from cosy_ui.sessions import stored_voices
from tests.test_engine import TEXT, WORDS, speechlike


def entry(voice, ids: list[int]) -> dict[str, torch.Tensor]:
    """As the official add_zero_shot_spk writes it."""
    tokens, mel, embedding = voice.tokens[None].int(), voice.mel[None], voice.embedding[None]
    length = torch.tensor([tokens.shape[1]], dtype=torch.int32)
    return {
        "prompt_text": torch.tensor([ids], dtype=torch.int32),
        "prompt_text_len": torch.tensor([len(ids)], dtype=torch.int32),
        "llm_prompt_speech_token": tokens, "llm_prompt_speech_token_len": length,
        "flow_prompt_speech_token": tokens, "flow_prompt_speech_token_len": length,
        "prompt_speech_feat": mel, "prompt_speech_feat_len": 2 * length,
        "llm_embedding": embedding, "flow_embedding": embedding,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(miniature_folder, tmp_path_factory):
    """A model folder with one good voice and others that cannot be used."""
    folder = shutil.copytree(miniature_folder, tmp_path_factory.mktemp("stored") / "model")
    engine = load(folder, device="cpu", slots=1)
    voice = engine.voice(speechlike(3.0), WORDS)
    ids = engine.text.tokenizer.encode(SYSTEM + END_OF_PROMPT + WORDS)
    engine.close()
    good = entry(voice, ids)
    many = good | {"prompt_speech_feat": torch.zeros(1).expand(1, 10**7, 80)}
    far = good | {"flow_prompt_speech_token": torch.full_like(good["flow_prompt_speech_token"], 10**6)}
    stored = {
        "me": good,
        "old": {"embedding": voice.embedding[None]},
        "many": many,
        "far": far,
        "odd": {"speech_feat": 1},
        "none": None,
    }
    torch.save(stored, folder / "spk2info.pt")
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    engine = load(folder, device="cpu", slots=1)
    yield engine
    engine.close()


def test_a_stored_voice_speaks_as_from_its_clip(engine):
    assert list(engine.stored_voices) == ["me"] and engine.stored_voices["me"].transcript == WORDS
    from_clip = engine.speak_all(Request(text=TEXT, reference=speechlike(3.0), transcript=WORDS, seed=3))
    stored = engine.speak_all(Request(mode="saved_voice", text=TEXT, reference=engine.stored_voices["me"], seed=3))
    np.testing.assert_array_equal(stored.samples, from_clip.samples)


def test_why_others_are_left_out_is_logged(folder, caplog):
    with caplog.at_level("WARNING"):
        load(folder, device="cpu", slots=1).close()
    for name, why in (("old", "speaker embedding alone"), ("many", "no tensor of a clip"), ("far", "outside the model's range"),
                      ("odd", "add_zero_shot_spk"), ("none", "add_zero_shot_spk")):  # fmt: skip
        assert any(name in line and why in line for line in caplog.messages), name


@pytest.mark.parametrize("content", [b"", b"no weights", [1, 2]])
def test_a_file_of_something_else_stops_nothing(folder, tmp_path, content, caplog):
    copy = shutil.copytree(folder, tmp_path / "model")
    if isinstance(content, bytes):
        (copy / "spk2info.pt").write_bytes(content)
    else:
        torch.save(content, copy / "spk2info.pt")
    with caplog.at_level("WARNING"):
        engine = load(copy, device="cpu", slots=1)
    engine.close()
    assert engine.stored_voices == {} and any("spk2info.pt" in line for line in caplog.messages)


def test_the_page_offers_it_to_everyone(engine):
    saved = stored_voices(engine)["me"]
    assert saved.shared and saved.id == saved.name == "me" and saved.voice is engine.stored_voices["me"]


def test_the_command_line_takes_its_name(folder, tmp_path, capsys):
    out = tmp_path / "out.wav"
    common = ["clone", "--model", str(folder), "--text", TEXT, "--out", str(out), "--device", "cpu", "--seed", "3"]
    assert main([*common, "--reference", "me"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["mode"] == "saved_voice" and len(soundfile.read(out)[0]) == round(report["audio_s"] * 24000)
    assert main([*common, "--reference", "you"]) == 2
    assert "which has me" in capsys.readouterr().err
