"""Model folders: published names and shapes, yaml as data, and every way in which a folder can be wrong."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch

from cosy_engine.errors import ModelFilesError
from cosy_engine.flow import build_flow
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.model_files.layout import find_release, read_spec
from cosy_engine.model_files.weights import in_int8_rows, published_llm_names, read_checkpoint, widened
from cosy_engine.model_files.yaml_data import read_yaml
from cosy_engine.settings.published import PUBLISHED
from cosy_engine.vocoder import build_vocoder
from tests import golden_data
from tools.miniature.release import body_config, yaml_text

V2, V3 = PUBLISHED["v2"], PUBLISHED["v3"]


@pytest.mark.parametrize("spec,name", [(V2, "cosyvoice2"), (V3, "cosyvoice3")], ids=["v2", "v3"])
def test_full_size_models_have_exactly_the_published_names_and_shapes(spec, name):
    published = golden_data.facts("manifest")[name]
    with torch.device("meta"):
        lm, flow, vocoder = SpeechLM(spec.llm), build_flow(spec.flow), build_vocoder(spec.vocoder, weight_norm=True)

    def shapes(entries):
        return {key: tuple(value["shape"] if isinstance(value, dict) else value[0]) for key, value in entries.items()}

    def ours(module):
        return {key: tuple(value.shape) for key, value in module.state_dict().items()}

    assert published_llm_names(lm) == shapes(published["llm.pt"])
    assert ours(flow) == shapes(published["flow.pt"])
    assert ours(vocoder) == shapes(published["hift.pt"])


@pytest.mark.parametrize("spec", [V2, V3], ids=["v2", "v3"])
def test_a_release_yaml_gives_back_the_spec(spec, tmp_path):
    path = tmp_path / "release.yaml"
    path.write_text(yaml_text(spec), encoding="utf-8")
    assert read_spec(read_yaml(path), body_config(spec), path.name) == spec


def test_a_model_with_other_codes_names_its_own_silent_tokens(tmp_path):
    path = tmp_path / "release.yaml"
    spec = replace(V3, llm=replace(V3.llm, silent_ids=(7, 9)))
    path.write_text(yaml_text(spec), encoding="utf-8")
    assert read_spec(read_yaml(path), body_config(spec), path.name).llm.silent_ids == (7, 9)
    published = "".join(line for line in yaml_text(V3).splitlines(True) if "silent_tokens" not in line)
    path.write_text(published, encoding="utf-8")
    assert len(read_spec(read_yaml(path), body_config(V3), path.name).llm.silent_ids) == 11


def test_an_early_v2_yaml_without_the_later_keys_is_read(tmp_path):
    path = tmp_path / "cosyvoice.yaml"
    text = yaml_text(V2)
    for line in ("chunk_size: 25\n", "token_frame_rate: 25\n", "token_mel_ratio: 2\n", "    mix_ratio: [5, 15]\n"):
        assert line in text
        text = text.replace(line, "", 1)
    for line in (
        "            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>\n",
        "        static_chunk_size: !ref <chunk_size>\n",
    ):
        text = text.replace(line, "")
    path.write_text(text.replace("CausalConditionalDecoder", "ConditionalDecoder"), encoding="utf-8")
    assert read_spec(read_yaml(path), body_config(V2), path.name) == V2


def test_yaml_tags_are_data_and_nothing_is_called(tmp_path):
    path = tmp_path / "evil.yaml"
    marker = tmp_path / "called"
    path.write_text(
        f"a: !!python/object/apply:os.system ['touch {marker}']\nb: !apply:os.system ['touch {marker}']\n",
        encoding="utf-8",
    )
    with pytest.raises(ModelFilesError):  # a python tag is unknown to the safe loader
        read_yaml(path)
    path.write_text(
        f"b: !apply:os.system ['touch {marker}']\nc: !new:os.system\n  x: 1\nd: !ref <e> * <e>\ne: 3\n",
        encoding="utf-8",
    )
    assert read_yaml(path) == {"b": [f"touch {marker}"], "c": {"x": 1, "!": "new:os.system"}, "d": 9, "e": 3}
    assert not marker.exists()


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch called-by-pickle",)


def test_a_checkpoint_with_code_in_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for save in (lambda p: torch.save({"w": Evil()}, p), lambda p: p.write_bytes(pickle.dumps(Evil()))):
        path = tmp_path / "llm.pt"
        save(path)
        with pytest.raises(ModelFilesError, match=r"llm\.pt"):
            read_checkpoint(path)
    assert not (tmp_path / "called-by-pickle").exists()


def test_int8_rows_come_back_within_half_a_step_and_other_tensors_as_they_are():
    torch.manual_seed(0)
    state = {
        "linear": torch.randn(7, 64),
        "conv": torch.randn(5, 40, 3),
        "zero": torch.zeros(3, 64),
        "bias": torch.randn(7),
    }
    small = in_int8_rows(state)
    assert {small[name].dtype for name in ("linear", "conv", "zero")} == {torch.int8} and small["bias"] is state["bias"]
    back = widened(small, "llm.pt")
    assert back.keys() == state.keys() and torch.equal(back["zero"], state["zero"])
    for name in ("linear", "conv"):
        largest = state[name].flatten(1).abs().amax(1)
        off = (back[name] - state[name]).flatten(1).abs().amax(1)
        assert (off <= largest / 127 * 0.51).all()  # half a step, and the factor's own rounding to half precision
    assert widened(state, "llm.pt") == state


def test_row_factors_without_their_matrix_are_refused():
    small = in_int8_rows({"linear": torch.randn(7, 64)})
    for wrong in (
        {"linear::rows": small["linear::rows"]},
        small | {"linear::rows": torch.ones(6).half()},
        small | {"linear": torch.randn(7, 64)},
    ):
        with pytest.raises(ModelFilesError, match="linear has row factors that do not belong to it"):
            widened(wrong, "llm.pt")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_row_factors_of_any_floating_type_and_the_lowest_int8_are_taken(dtype):
    state = {
        "linear": torch.full((2, 32), -128, dtype=torch.int8),
        "linear::rows": torch.tensor([0.5, 2.0], dtype=dtype),
    }
    assert widened(state, "llm.pt")["linear"][:, 0].tolist() == [-64.0, -256.0]


@pytest.fixture
def folder(miniature_folder, tmp_path):
    return shutil.copytree(miniature_folder, tmp_path / "model")


def load(folder):
    from cosy_engine import load

    load(folder, device="cpu").close()


WEIGHTS = ("llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v3.onnx")


@pytest.mark.parametrize(
    "name", [*WEIGHTS, "cosyvoice3.yaml", "CosyVoice-BlankEN/config.json", "CosyVoice-BlankEN/vocab.json"]
)
def test_a_missing_or_empty_file_is_named_with_the_command_that_mends_it(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(ModelFilesError, match="fetch") as empty:
        load(folder)
    assert name.split("/")[-1] in str(empty.value)
    (folder / name).unlink()
    with pytest.raises(ModelFilesError, match="fetch") as missing:
        load(folder)
    assert name.split("/")[-1] in str(missing.value)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_pointer_or_a_truncated_file_is_named(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 2023456789\n")
    with pytest.raises(ModelFilesError, match=r"(?i)pointer") as pointer:
        load(folder)
    assert name in str(pointer.value)
    (folder / name).write_bytes(whole[: len(whole) // 3])
    with pytest.raises(ModelFilesError) as cut:
        load(folder)
    assert name in str(cut.value)


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt"])
def test_weights_of_another_model_are_refused_with_the_first_differences(folder, name):
    state = torch.load(folder / name, weights_only=True)
    first = next(iter(state))
    torch.save({("renamed." + key if key == first else key): value for key, value in state.items()}, folder / name)
    with pytest.raises(ModelFilesError, match=name) as error:
        load(folder)
    assert "renamed." in str(error.value) or first in str(error.value)


def test_llm_rl_weights_serve_when_llm_is_absent_and_can_be_chosen(folder):
    (folder / "llm.pt").rename(folder / "llm.rl.pt")
    assert find_release(folder).llm.name == "llm.rl.pt"
    with pytest.raises(ModelFilesError, match=r"llm\.pt"):
        find_release(folder, "llm.pt")


def test_training_leftovers_and_old_weight_norm_names_load(folder):
    state = torch.load(folder / "hift.pt", weights_only=True)
    renamed = {
        "generator."
        + key.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for key, value in state.items()
    }
    torch.save(renamed | {"epoch": 3, "step": 17}, folder / "hift.pt")
    load(folder)


def test_a_folder_without_a_release_says_so(tmp_path):
    with pytest.raises(ModelFilesError, match=r"cosyvoice3\.yaml"):
        find_release(tmp_path)
    with pytest.raises(ModelFilesError, match="not a folder"):
        find_release(tmp_path / "nowhere")
    (tmp_path / "cosyvoice3.yaml").write_text("llm: 3\n")
    (tmp_path / "CosyVoice-BlankEN").mkdir()
    (tmp_path / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps({"hidden_size": 1}))
    with pytest.raises(ModelFilesError, match=r"cosyvoice3\.yaml"):
        find_release(tmp_path)
