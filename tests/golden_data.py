"""Reads the golden data: inputs, weights and outputs of the official modules at small size.

The folder is $COSY_GOLDEN when set (another set of the same format), else tests/golden, a trimmed copy. A case that a
set lacks is not tested, but each test asks for at least one (see `cases`), so an empty set fails.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

FOLDER = Path(os.environ.get("COSY_GOLDEN") or Path(__file__).parent / "golden")


@cache
def facts(name: str) -> dict:
    """The json of a set: dimensions and facts of the cases."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@cache
def weights(name: str) -> dict[str, Tensor]:
    """State dict with official key names."""
    return load_file(FOLDER / f"{name}.weights.safetensors")


@cache
def tensors(name: str) -> dict[str, Tensor]:
    """All inputs and outputs, keys `case.tensor`."""
    cased = FOLDER / f"{name}.cases.safetensors"
    return load_file(cased if cased.exists() else FOLDER / f"{name}.safetensors")


def cases(name: str, needs: str) -> list[str]:
    """Names of the cases that have tensor `needs`; at least one."""
    found = sorted({key[: -len(needs) - 1] for key in tensors(name) if key.endswith("." + needs)})
    assert found, f"{FOLDER} holds no case of {name} with {needs}"
    return found


WORST: dict[str, float] = {}  # test function and version -> largest difference seen, printed at the end of a run


def near(ours: Tensor, official: Tensor, atol: float) -> None:
    """Same shape and at most atol apart; the worst difference of each test is remembered."""
    assert ours.shape == official.shape
    remember((ours - official).abs().max().item() if ours.numel() else 0.0)
    torch.testing.assert_close(ours, official, atol=atol, rtol=0)


def near_rms(ours: Tensor, official: Tensor, limit: float) -> None:
    """Same shape, and the difference's root mean square below `limit` times that of the official signal."""
    assert ours.shape == official.shape
    ratio = ((ours - official).square().mean().sqrt() / official.square().mean().sqrt()).item()
    remember(ratio, "relative RMS, ")
    assert ratio < limit


def remember(difference: float, kind: str = "") -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1]
    version = next((v for v in ("v2", "v3") if v in test), "")
    name = f"{kind}{test.split('[')[0].split(' ')[0].removeprefix('test_').replace('_', ' ')} {version}".strip()
    WORST[name] = max(WORST.get(name, 0.0), difference)
