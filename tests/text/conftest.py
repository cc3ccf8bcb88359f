from __future__ import annotations

from types import SimpleNamespace

import pytest

from cosy_engine.text.frontend import TextFrontend
from cosy_engine.text.normalize import TextNormalizer
from cosy_engine.text.tokenizer import TextTokenizer
from tools.miniature.tokenizer import make_tiny_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A tokenizer folder as a release has it, with a vocabulary of 320."""
    path = tmp_path_factory.mktemp("release") / "CosyVoice-BlankEN"
    make_tiny_tokenizer(path)
    return path


@pytest.fixture(scope="session")
def tokenizers(folder):
    return {release: TextTokenizer(folder, release) for release in ("v2", "v3")}


@pytest.fixture(scope="session")
def frontends(tokenizers):
    """release -> frontend; only the field that the frontend reads stands for the whole ModelSpec."""
    return {
        release: TextFrontend(tokenizers[release], SimpleNamespace(needs_prefix=release == "v3"))
        for release in ("v2", "v3")
    }


@pytest.fixture(scope="session")
def normal(tokenizers):
    """The default normaliser, with wetext where it is installed."""
    return TextNormalizer(tokenizers["v3"].marks)


@pytest.fixture(scope="session")
def plain(tokenizers):
    """The normaliser of a machine without wetext."""
    return TextNormalizer(tokenizers["v3"].marks, use_wetext=False)
