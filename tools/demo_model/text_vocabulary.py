"""The demo voice's text tokenizer: byte-level BPE in the published file layout, learned from the sentences.

    python -m tools.demo_model.text_vocabulary CosyVoice-BlankEN

Bistream mixes 5 text ids with 15 speech tokens, so an id has to last for more than 3 speech tokens; bytes give 1.7,
2048 entries about 5. The special tokens follow the vocabulary, as in the releases.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from cosy_engine.text.tokenizer import PIECES, TextTokenizer
from tools.demo_model.corpus import sentences_file

ENTRIES = 2048
PREFIX = "You are a helpful assistant.<|endofprompt|>"  # what the releases put before every v3 text


def bpe(model: models.BPE) -> Tokenizer:
    """A tokenizer that cuts text like the engine's."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    cut = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, bytes_only])
    return tokenizer


def learn(texts, folder: Path, entries: int = ENTRIES) -> None:
    """Write vocab.json and merges.txt."""
    tokenizer = bpe(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=entries, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(folder))


def dropping(folder: str | Path, share: float = 0.1) -> Tokenizer:
    """The same vocabulary with a share of merges left out at random: rare words are also seen spelled."""
    folder = Path(folder)
    return bpe(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"), dropout=share))


def variants(texts: list[str], folder: str | Path, dropped: int = 2) -> tuple[list[list[list[int]]], list[int]]:
    """Ids of every text, plainly and in `dropped` random spellings: [variant][text]; and the ids of PREFIX."""
    plain = TextTokenizer(folder, "v3")
    loose = dropping(folder)
    first = [plain.encode_user(text) for text in texts]
    more = [[e.ids for e in loose.encode_batch(texts, add_special_tokens=False)] for _ in range(dropped)]
    return [first, *more], plain.encode(PREFIX)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=Path)
    folder = ap.parse_args().folder
    learn((row["text"] for row in sentences_file.read()), folder)
    tokenizer = TextTokenizer(folder, "v3")
    texts = [row["text"] for row in sentences_file.read()[:2000]]
    ids = sum(len(tokenizer.encode_user(text)) for text in texts)
    characters = sum(map(len, texts))
    facts = {
        "entries": tokenizer.base,
        "with_specials": tokenizer.size,
        "characters_per_id": round(characters / ids, 2),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
