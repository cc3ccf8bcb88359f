"""Model folders made to hurt: each ends quickly in one message."""

import json
import os
import shutil

import pytest
import torch

from cosy_engine.errors import CosyError, ModelFilesError, SettingInvalid
from cosy_engine.model_files.fetch import fetch
from cosy_engine.model_files.layout import find_release
from cosy_engine.model_files.weights import (
    BODY,
    TEXT_HEAD,
    check_finite,
    in_int8_rows,
    load_llm,
    load_strict,
    read_checkpoint,
    widened,
)
from cosy_engine.model_files.yaml_data import read_yaml
from cosy_engine.settings.engine_config import EngineConfig
from cosy_engine.vocoder import build_vocoder

BOMB = "a0: &a0 [1, 2, 3]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a [*a]\n",
        "\n".join(["a0: 1"] + [f"a{i}: {' * '.join([f'<a{i - 1}>'] * 6)}" for i in range(1, 9)]) + "\n- 1",
        "x: " + "9" * 5000,
        "x: 2001-99-99",
        "x: !!int abc",
        "x: !!float abc",
        "x: " + "[" * 3000,
        "x: '" + "a" * 300_000 + "'",
        "just words",
    ],
)
def test_a_hostile_yaml_is_refused(tmp_path, text):
    path = tmp_path / "cosyvoice3.yaml"
    path.write_text(text)
    with pytest.raises(ModelFilesError, match="cosyvoice3"):
        read_yaml(path)


@pytest.fixture
def folder(miniature_folder, tmp_path):
    return shutil.copytree(miniature_folder, tmp_path / "model")


@pytest.mark.parametrize("line,value", [("sample_rate", "0"), ("    base_channels", "-4"), ("        depth", "abc"), ("        top_k", "1.5"), ("    vocab_size", "[]")])  # fmt: skip
def test_wild_sizes_in_the_yaml_are_named(folder, line, value):
    path = folder / "cosyvoice3.yaml"
    lines = path.read_text().splitlines()
    at = next(i for i, text in enumerate(lines) if text.strip().startswith(line.strip() + ":"))
    lines[at] = lines[at].split(":")[0] + f": {value}"
    path.write_text("\n".join(lines))
    with pytest.raises(ModelFilesError, match="cosyvoice3"):
        find_release(folder)


@pytest.mark.parametrize("change", [{"num_hidden_layers": 10**9}, {"hidden_size": -1}, {"intermediate_size": "a"}, {"vocab_size": None}, {"num_attention_heads": 1.5}])  # fmt: skip
def test_wild_sizes_in_the_bodys_config_are_named(folder, change):
    path = folder / "CosyVoice-BlankEN" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelFilesError):
        find_release(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "[]", "{"])
def test_a_hostile_json_is_refused(folder, text):
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(text)
    with pytest.raises(ModelFilesError, match=r"config\.json"):
        find_release(folder)


@pytest.mark.parametrize(
    "key,values",
    [
        ("name", [5, None, "a" * 301, "two\nlines", "\x1b[31mred", "\ud800", ["x"]]),
        ("note", [True, {}, "a" * 301, "a\tb"]),
        ("trained", [1, "true", None]),
        ("instructions", [0, []]),
        ("tags", ["no"]),
        ("capitals", [0.5]),
        ("languages", ["en", None, {"en": 1}, [1], [["en"]], [None]]),
    ],
)
def test_a_card_of_another_form_is_refused_with_its_key(folder, key, values):
    for value in values:
        (folder / "card.json").write_text(json.dumps({"other": 1, key: value}))
        with pytest.raises(ModelFilesError, match=rf"card\.json: {key} has another form, .* expected"):
            find_release(folder)


def test_a_language_that_no_text_can_be_in_is_refused_when_the_model_is_loaded(folder):
    from cosy_engine import load

    (folder / "card.json").write_text('{"languages": ["en", "xx"]}')
    with pytest.raises(ModelFilesError, match=r"card\.json: languages has another form, .* en, .* expected"):
        load(folder, device="cpu")


@pytest.mark.parametrize("text", [" " * 65_535 + "{}", "[]", "{", "[" * 60_000, '"name"'])
def test_a_card_that_is_too_large_or_no_object_is_refused(folder, text):
    (folder / "card.json").write_text(text)
    with pytest.raises(ModelFilesError, match=r"card\.json"):
        find_release(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_card_that_is_no_regular_file_is_refused(folder):
    card = folder / "card.json"
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")):
        if card.is_dir():
            card.rmdir()
        else:
            card.unlink()
        make(card)
        with pytest.raises(ModelFilesError, match=r"card\.json: a regular file"):
            find_release(folder)


def test_a_whole_card_is_taken_and_keys_of_later_versions_are_left_alone(folder):
    card = {"name": "小声音 é", "note": "a" * 300, "trained": True, "instructions": False, "tags": False}
    card |= {"capitals": False, "languages": ["en", "zh"], "later": [1, None]}
    (folder / "card.json").write_text(json.dumps(card))
    assert find_release(folder, languages=("en", "zh", "de")).card == card
    (folder / "card.json").unlink()
    assert find_release(folder).card == {}


@pytest.mark.parametrize("state", [{"a": torch.ones(2).to_sparse()}, {1: torch.ones(2)}, [torch.ones(2)]])
def test_a_checkpoint_that_is_no_state_dict_is_refused(tmp_path, state):
    path = tmp_path / "llm.pt"
    torch.save(state, path)
    with pytest.raises(ModelFilesError, match=r"llm\.pt"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "factor",
    [torch.tensor([1.0, bad]) for bad in (0.0, -1.0, torch.nan, torch.inf, -torch.inf)]
    + [torch.ones(2, dtype=kind) for kind in (torch.int8, torch.bool, torch.complex64, torch.float64)],
)
def test_row_factors_that_are_no_positive_floating_numbers_are_refused(tmp_path, factor):
    path = tmp_path / "llm.pt"
    torch.save({"linear": torch.ones(2, 32, dtype=torch.int8), "linear::rows": factor}, path)
    with pytest.raises(ModelFilesError, match="linear has row factors that are not all positive"):
        widened(read_checkpoint(path), "llm.pt")


def test_names_are_compared_before_int8_rows_are_widened(tmp_path, miniature_folder):
    """Many names on one storage would take many times the file's size; these factors would be refused, were they read."""
    path = tmp_path / "flow.pt"
    one = torch.ones(2, 32, dtype=torch.int8)
    rows = torch.full((2,), torch.nan)
    torch.save(
        {f"part.{i}{suffix}": value for i in range(100) for suffix, value in (("", one), ("::rows", rows))}, path
    )
    with pytest.raises(ModelFilesError, match=r"missing weight; missing bias; unexpected part\.0"):
        load_strict(torch.nn.Linear(32, 2), read_checkpoint(path), "flow.pt")
    vocoder = build_vocoder(find_release(miniature_folder).spec.vocoder)
    with pytest.raises(KeyError, match=r"unexpected part\.0"):
        vocoder.load_published(read_checkpoint(path))


def test_a_text_head_in_int8_rows_stands_for_the_embedding():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(2, 32)})

    table, lm = torch.full((2, 32), 2.0), Tied()
    load_llm(lm, in_int8_rows({TEXT_HEAD: table}), "llm.pt")
    torch.testing.assert_close(lm.backbone["embed_tokens"].weight, table, atol=0.01, rtol=0)
    load_llm(lm, in_int8_rows({TEXT_HEAD: table, BODY + "embed_tokens.weight": table}), "llm.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_small_file_that_claims_terabytes_is_refused(tmp_path, zipped):
    path = tmp_path / "llm.pt"
    huge = torch.ones(1, dtype=torch.int8).expand(10**6, 10**6)
    state = {"linear": huge, "linear::rows": torch.ones(1).expand(10**6)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    assert path.stat().st_size < 10_000
    with pytest.raises(ModelFilesError, match="linear claims 1,000,000,000,000 bytes and the file holds 1 of it"):
        read_checkpoint(path)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(
    "file,name,shown",
    [("llm.pt", "llm.model.model.norm.weight", "backbone.norm.weight"),
     ("flow.pt", "spk_embed_affine_layer.bias", "spk_embed_affine_layer.bias"),
     ("hift.pt", "conv_pre.bias", "conv_pre.bias")],
)  # fmt: skip
def test_weights_with_nan_or_infinity_are_refused_and_the_tensor_named(folder, file, name, shown, bad):
    from cosy_engine import load

    state = torch.load(folder / file, weights_only=True)
    state[name].view(-1)[-1] = bad
    torch.save(state, folder / file)
    with pytest.raises(ModelFilesError, match=rf"{file} is damaged: {shown} holds NaN"):
        load(folder, device="cpu")


def test_large_finite_weights_whose_sum_overflows_are_no_damage():
    check_finite({"weight": torch.full((4,), 3e38)}, "llm.pt")


def test_whole_numbers_in_place_of_weights_are_refused(folder):
    from cosy_engine import load

    state = torch.load(folder / "llm.pt", weights_only=True)
    torch.save({name: value.to(torch.int32) for name, value in state.items()}, folder / "llm.pt")
    with pytest.raises(ModelFilesError, match="floating"):
        load(folder, device="cpu")


def test_a_target_that_is_no_folder_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CosyError, match="--to"):
        fetch("v3", tmp_path / "file")


@pytest.mark.parametrize(
    "options",
    [{"slots": 0}, {"slots": -1}, {"slots": "4"}, {"slots": 1.5}, {"queue": -1}, {"queue": None}, {"precision": "x"}, {"tier": "x"},
     {"max_reference_s": float("nan")}, {"max_text_chars": 0}, {"onnx_threads": "a"}, {"voice_cache_bytes": -1}, {"device": None}, {"llm_weights": 5}],
)  # fmt: skip
def test_options_outside_their_range_are_refused(options):
    with pytest.raises(SettingInvalid, match=next(iter(options))):
        EngineConfig(**options)
