"""Text tokens: Qwen2's byte-level BPE and the special tokens that the speech models added to it.

Built straight on the `tokenizers` library from vocab.json and merges.txt, so it needs no network, no model class and
no particular version of transformers; it gives the ids of transformers' Qwen2 tokenizer (a test compares them).
All sizes come from the files: the published vocabulary has 151643 entries, a miniature's a few hundred.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from cosy_engine.errors import FETCH, ModelFilesError

END_OF_TEXT = "<|endoftext|>"
END_OF_PROMPT = "<|endofprompt|>"
# How Qwen2 cuts text before BPE: contractions, words with their leading mark, single digits, symbols, blanks.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The releases' merges.txt lacks the merges of several ideographs: each character is a token of its own.
PUBLISHED_BASE = 151643
PROBE, PROBE_IDS = "希望", [99658, 99317]
MEND = f"fetch the release again: {FETCH} v2 (or v3)"


@cache
def special_tokens(release: str) -> tuple[str, ...]:
    """Tokens after <|endoftext|> in id order; release is "v2" or "v3" (ModelSpec.text_tokens)."""
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("special_tokens.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if line in ("[common]", "[v3]"):
            current = sections.setdefault(line, [])
        else:
            current.extend(line.split())
    return tuple(sections["[common]"] + (sections["[v3]"] if release == "v3" else []))


class TextTokenizer:
    """Text to ids over a folder `CosyVoice-BlankEN/`. Safe to share between threads.

    marks: what a user may write to act on the voice ([breath], <strong>, v3's [AA1] and [ǐ]).
    size: number of ids. base: entries of vocab.json; <|endofprompt|> is base + 3.
    """

    def __init__(self, folder: str | Path, release: str):
        """Raises: ModelFilesError: a file is missing or unreadable, or the special ids are not where the model
        expects them (a Qwen2.5 tokenizer has further tokens there and would break v3 without a word)."""
        folder = Path(folder)
        self.release = release
        vocab_file, merges_file = folder / "vocab.json", folder / "merges.txt"
        vocab = _read_json(vocab_file, dict)
        if not merges_file.is_file():
            raise ModelFilesError(f"{merges_file} is missing: {MEND}")
        self.base = len(vocab)
        if sorted(vocab.values()) != list(range(self.base)):
            raise ModelFilesError(f"{vocab_file} does not number its {self.base} entries from 0 without gaps: {MEND}")
        try:
            model = BPE.from_file(str(vocab_file), str(merges_file))
        except Exception as error:  # the library raises plain Exception
            raise ModelFilesError(
                f"{vocab_file} and {merges_file.name} do not fit together ({error}): {MEND}"
            ) from error
        self._bpe = Tokenizer(model)
        self._bpe.normalizer = normalizers.NFC()
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        self._bpe.decoder = decoders.ByteLevel()
        self._add_specials(folder / "tokenizer_config.json", vocab)
        if self.base == PUBLISHED_BASE and self.encode(PROBE) != PROBE_IDS:
            raise ModelFilesError(
                f"{merges_file} belongs to another model (ids of {PROBE!r} are {self.encode(PROBE)}, expected "
                f"{PROBE_IDS}): a plain Qwen2 tokenizer joins Chinese characters, which the speech models never saw; {MEND}"
            )

    def _add_specials(self, config_file: Path, vocab: dict[str, int]) -> None:
        wanted = (END_OF_TEXT, *special_tokens(self.release))
        expected = {token: self.base + i for i, token in enumerate(wanted)}
        if config_file.is_file():
            listed = _read_json(config_file, dict).get("added_tokens_decoder", {})
            for id_text, entry in listed.items():
                token = entry.get("content") if isinstance(entry, dict) else entry
                if expected.get(token) != int(id_text):
                    raise ModelFilesError(
                        f"{config_file} gives {token} the id {id_text}, but {END_OF_PROMPT} must become "
                        f"{expected[END_OF_PROMPT]}: this is not the tokenizer of the release; {MEND}"
                    )
        if clash := next((token for token in wanted if token in vocab), None):
            raise ModelFilesError(f"{config_file.with_name('vocab.json')} already holds {clash}: {MEND}")
        self._bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in wanted])
        got = {token: self._bpe.token_to_id(token) for token in wanted}
        if got != expected:
            wrong = next(token for token in wanted if got[token] != expected[token])
            raise ModelFilesError(
                f"{config_file.parent / 'vocab.json'}: {wrong} got id {got[wrong]}, expected {expected[wrong]}; {MEND}"
            )
        self.specials = expected
        self.endofprompt_id = expected[END_OF_PROMPT]
        self.size = self.base + len(wanted)
        self.marks = frozenset(token for token in wanted if not token.startswith("<|"))

    def encode(self, text: str) -> list[int]:
        """Ids of text with every special token matched anywhere; nothing is added at the ends.

        For strings of our own making; what a user typed goes through `encode_user`.
        """
        return self._bpe.encode(_clean_unicode(text), add_special_tokens=False).ids

    def encode_user(self, text: str) -> list[int]:
        """Ids of text in which `<|...|>` never is a special token, whatever went wrong before; marks still are."""
        ids: list[int] = []
        for part in re.split(r"(?<=<)(?=\|)", _clean_unicode(text)):  # no piece holds "<|"
            ids += self._bpe.encode(part, add_special_tokens=False).ids if part else []
        return ids

    def count(self, text: str) -> int:
        """How many ids text has; the splitter's measure."""
        return len(self.encode_user(text))

    def decode(self, ids: list[int]) -> str:
        """Back to text, special tokens included; for logs and tests."""
        return self._bpe.decode(ids, skip_special_tokens=False)


def _clean_unicode(text: str) -> str:
    """NFC (the pinyin tokens are precomposed), and no lone surrogates, which are not text."""
    return unicodedata.normalize("NFC", text.encode("utf-8", "ignore").decode("utf-8"))


def _read_json(file: Path, kind: type) -> dict:
    if not file.is_file():
        raise ModelFilesError(f"{file} is missing: {MEND}")
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFilesError(
            f"{file} is not valid JSON ({error}): it may be truncated or a pointer file; {MEND}"
        ) from error
    if not isinstance(value, kind):
        raise ModelFilesError(f"{file} does not hold a JSON object: {MEND}")
    return value
