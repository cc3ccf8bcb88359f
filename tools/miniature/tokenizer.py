"""Writes a small Qwen2-style tokenizer folder: byte-level, so any text can be encoded, with a few learned merges."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

from cosy_engine.text.tokenizer import PIECES

SAMPLE = (
    "the quick brown fox jumps over the lazy dog and then it was all over in the end",
    "she sells sea shells on the sea shore and he had nothing to say to her about that",
    "you are a helpful assistant and this is what they have been waiting for",
    "今天天气很好，我们一起去公园散步吧。希望你以后能够做的比我还好呦。",
)


def make_tiny_tokenizer(folder: str | Path, texts: Iterable[str] | None = None, base: int = 320) -> int:
    """Write vocab.json, merges.txt and tokenizer_config.json into `folder` (made if needed).

    The vocabulary is the 256 bytes plus merges learned from `texts` (a few sentences when None); `base` is its largest
    size. The same input gives the same files. Returns the number of entries; with the special tokens a tokenizer
    of it has 20 (v2) or 281 (v3) ids more.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    learner = Tokenizer(BPE())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=base, min_frequency=1, initial_alphabet=sorted(alphabet), show_progress=False
    )
    learner.train_from_iterator(texts if texts is not None else SAMPLE, trainer)
    vocab_file, merges_file = learner.model.save(str(folder))  # vocab.json, merges.txt
    vocab = json.loads(Path(vocab_file).read_text(encoding="utf-8"))
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    Path(vocab_file).write_text(json.dumps(ordered, ensure_ascii=False), encoding="utf-8")
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    entry = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(len(vocab) + i): {"content": token, **entry} for i, token in enumerate(special)},
        "additional_special_tokens": list(special[1:]),
        "bos_token": None,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "errors": "replace",
        "model_max_length": 32768,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    assert Path(merges_file).is_file()
    return len(vocab)
