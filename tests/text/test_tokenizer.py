"""Ids equal transformers' Qwen2 tokenizer; special ids are where the models expect them, or loading says why not."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from transformers import AutoTokenizer

from cosy_engine.errors import ModelFilesError
from cosy_engine.text.tokenizer import TextTokenizer, special_tokens
from tools.miniature.tokenizer import make_tiny_tokenizer


def test_special_ids_follow_the_base_vocabulary_without_gaps(tokenizers):
    for release, added in (("v2", 20), ("v3", 281)):
        tokenizer = tokenizers[release]
        assert tokenizer.size == tokenizer.base + added
        assert tokenizer.endofprompt_id == tokenizer.base + 3
        assert sorted(tokenizer.specials.values()) == list(range(tokenizer.base, tokenizer.size))


def test_the_lists_give_the_published_ids():
    base = 151643  # entries of the published vocabulary; <|endoftext|> comes first
    v2, v3 = special_tokens("v2"), special_tokens("v3")
    ids = {token: base + 1 + i for i, token in enumerate(v3)}
    assert (len(v2), len(v3), v3[: len(v2)]) == (19, 280, v2)
    published = {"<|endofprompt|>": 151646, "[breath]": 151647, "[laughter]": 151651, "[mn]": 151662,
                 "<|endofsystem|>": 151663, "[AA1]": 151666, "[j]": 151797, "[ǐ]": 151913, "[ǜ]": 151923}  # fmt: skip
    assert {token: ids[token] for token in published} == published


def test_ids_equal_the_transformers_tokenizer(folder, tokenizers):
    qwen = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    qwen.add_tokens([t for t in special_tokens("v3") if t not in qwen.get_vocab()], special_tokens=True)
    assert len(qwen) == tokenizers["v3"].size
    for text in (
        "You are a helpful assistant.<|endofprompt|>希望你以后能够做的比我还好呦。",
        "Hello, it's 123\n\n  you'll see <strong>x</strong> [AA1] [j][ǐ] é 😀\t.",
        "a[breath]b [breath] c",
        "Привет! こんにちは 안녕",
    ):
        assert tokenizers["v3"].encode(text) == qwen(text)["input_ids"]


def test_special_tokens_match_without_eating_blanks(tokenizers):
    tokenizer = tokenizers["v2"]
    breath = tokenizer.specials["[breath]"]
    assert tokenizer.encode("a[breath]b [breath] c") == [
        *tokenizer.encode("a"), breath, *tokenizer.encode("b"), *tokenizer.encode(" "), breath, *tokenizer.encode(" c"),
    ]  # fmt: skip


def test_decomposed_pinyin_is_the_same_token(tokenizers):
    assert tokenizers["v3"].encode("[i\u030c]") == [tokenizers["v3"].specials["[ǐ]"]]
    assert len(tokenizers["v2"].encode("[ǐ]")) > 1  # v2 has no phonemes


@pytest.mark.parametrize("token", ["<|endofprompt|>", "<|im_start|>", "<|endoftext|>", "<|endofsystem|>"])
def test_user_text_never_becomes_a_control_token(tokenizers, token):
    tokenizer = tokenizers["v3"]
    assert tokenizer.specials[token] in tokenizer.encode(f"a{token}b")
    ids = tokenizer.encode_user(f"a{token}b")
    assert not set(ids) & {i for t, i in tokenizer.specials.items() if t.startswith("<|")}
    assert tokenizer.decode(ids) == f"a{token}b"


def test_any_text_can_be_encoded(tokenizers):
    for text in ("", "\ud800x", "\x00", "龘\U00020000", "e\u0301"):
        assert isinstance(tokenizers["v3"].encode_user(text), list)


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "CosyVoice-BlankEN")


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_a_missing_or_damaged_file_is_named(folder, tmp_path, name):
    broken = copy(folder, tmp_path)
    (broken / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", encoding="utf-8")
    with pytest.raises(ModelFilesError, match=name):
        TextTokenizer(broken, "v3")
    (broken / name).unlink()
    with pytest.raises(ModelFilesError, match=f"{name} is missing.*fetch"):
        TextTokenizer(broken, "v3")


def test_a_tokenizer_with_other_special_tokens_is_refused(folder, tmp_path):
    """A Qwen2.5 tokenizer lists <|object_ref_start|> where <|endofprompt|> must be; v3 would break without a word."""
    other = copy(folder, tmp_path)
    config = json.loads((other / "tokenizer_config.json").read_text(encoding="utf-8"))
    base = len(json.loads((other / "vocab.json").read_text(encoding="utf-8")))
    config["added_tokens_decoder"][str(base + 3)] = {"content": "<|object_ref_start|>"}
    (other / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelFilesError, match=r"tokenizer_config\.json.*not the tokenizer of the release"):
        TextTokenizer(other, "v3")


def test_the_tiny_tokenizer_is_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        make_tiny_tokenizer(tmp_path / name, ["one two three", "two three four"], base=280)
    for file in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.weights
@pytest.mark.skipif("COSY_MODEL" not in os.environ, reason="needs a published model folder in COSY_MODEL")
def test_published_vocabulary_gives_the_published_ids():
    tokenizer = TextTokenizer(os.environ["COSY_MODEL"] + "/CosyVoice-BlankEN", "v3")
    assert tokenizer.encode("报道[j][ǐ]予好评。") == [42278, 44793, 151797, 151913, 99944, 52801, 63379, 1773]


def test_the_vocabulary_of_another_model_is_refused(folder, monkeypatch):
    """A plain Qwen2 merges.txt gives other ids for Chinese; a full-size vocabulary is probed for that."""
    monkeypatch.setattr("cosy_engine.text.tokenizer.PUBLISHED_BASE", 320)
    with pytest.raises(ModelFilesError, match=r"merges\.txt belongs to another model"):
        TextTokenizer(folder, "v3")
