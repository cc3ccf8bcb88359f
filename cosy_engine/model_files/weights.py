"""Published checkpoint files -> our modules. Files are read as data only (weights-only unpickling), names are strict."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cosy_engine.errors import FETCH, ModelFilesError

BODY = "llm.model.model."
TEXT_HEAD = "llm.model.lm_head.weight"  # tied to the text embedding; its logits are never used
ROWS = "::rows"  # int8 matrices carry one factor per row beside them, under their own name and this
FACTOR_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """State dict of a .pt file on the CPU, memory-mapped where the format allows; bookkeeping entries dropped. Matrices in int8
    rows stay so: `widened` is for who has compared their names, as many names may lie on one storage.

    Raises: ModelFilesError: missing, empty, a Git-LFS pointer, truncated, holding anything but plain data, or a tensor
        with more elements than the file holds.
    """
    data = unpickled(path)
    if not isinstance(data, dict):
        raise ModelFilesError(f"{path.name}: expected a state dict, found {type(data).__name__}")
    state = {name: value for name, value in data.items() if isinstance(value, Tensor)}
    for name, value in state.items():
        if not isinstance(name, str) or value.layout != torch.strided or value.is_meta:
            raise ModelFilesError(misfit(path.name, f"{name!r} is no dense tensor with a name"))
        claimed, held = value.numel() * value.element_size(), value.untyped_storage().nbytes()
        if claimed > held:  # an expanded view: a tiny file that would take terabytes once it is computed with
            raise ModelFilesError(
                misfit(path.name, f"{name} claims {claimed:,} bytes and the file holds {held:,} of it")
            )
    return state


def unpickled(path: Path) -> Any:
    """What a .pt file holds, on the CPU, read as plain data only.

    Raises: ModelFilesError: missing, empty, a Git-LFS pointer, truncated, or holding anything but plain data.
    """
    check_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ModelFilesError(
            f"{path.name}: refused, it holds more than plain weights or is damaged ({first_line(error)}). "
            f"Delete it and download the release again: {fetch_command(path.parent)}"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelFilesError(
            f"{path.name}: {path.stat().st_size:,} bytes, cannot be read: truncated or damaged ({first_line(error)}). "
            f"Delete it and download it again: {fetch_command(path.parent)}"
        ) from error


def in_int8_rows(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices and convolutions as int8 with a half-precision factor per row; all else stays as it is.

    A row is everything that makes one output. Rounding moves a weight by at most 1/254 of the largest of its row.
    """
    out = dict(state)
    for name, value in state.items():
        if value.is_floating_point() and value.ndim >= 2 and value.shape[1:].numel() >= 32:
            wide = value.float()
            factor = (wide.flatten(1).abs().amax(1).clamp(min=1e-4) / 127).half()
            out[name] = (wide / _beside(factor, wide)).round().clamp(-127, 127).to(torch.int8)
            out[name + ROWS] = factor
    return out


def widened(state: dict[str, Tensor], file: str) -> dict[str, Tensor]:
    """Undo `in_int8_rows`; files without such rows, the published ones among them, come back as they are.

    Raises: ModelFilesError: factors without their matrix, of another number of rows, or no positive numbers.
    """
    out = {name: value for name, value in state.items() if not name.endswith(ROWS)}
    for name in (name.removesuffix(ROWS) for name in state if name.endswith(ROWS)):
        factor, value = state[name + ROWS], out.get(name)
        if value is None or value.dtype != torch.int8 or factor.shape != value.shape[:1]:
            raise ModelFilesError(misfit(file, f"{name} has row factors that do not belong to it"))
        if factor.dtype not in FACTOR_TYPES or not (factor.isfinite() & (factor > 0)).all():
            raise ModelFilesError(misfit(file, f"{name} has row factors that are not all positive floating numbers"))
        out[name] = value.float() * _beside(factor.float(), value)
    return out


def _beside(factor: Tensor, value: Tensor) -> Tensor:
    return factor.view(-1, *(1,) * (value.ndim - 1))


def check_file(path: Path) -> None:
    """Existence and the three ways in which a download commonly fails."""
    if not path.is_file():
        raise ModelFilesError(f"{path.name} is missing in {path.parent}: {fetch_command(path.parent)}")
    size = path.stat().st_size
    if size == 0:
        raise ModelFilesError(f"{path.name} is empty (0 bytes): delete it and run {fetch_command(path.parent)}")
    with path.open("rb") as file:
        if file.read(40).startswith(b"version https://git-lfs"):
            raise ModelFilesError(
                f"{path.name} is a Git-LFS pointer of {size} bytes, not the weights: run `git lfs pull` in the folder, "
                f"or {fetch_command(path.parent)}"
            )


def fetch_command(folder: Path) -> str:
    version = "v2" if "2-0" in folder.name else "v3"
    return f"`{FETCH} {version}`"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def load_llm(lm: nn.Module, state: dict[str, Tensor], file: str) -> None:
    """Into a SpeechLM. The text head is dropped."""
    head = {
        name.removeprefix(TEXT_HEAD): value for name, value in state.items() if name in (TEXT_HEAD, TEXT_HEAD + ROWS)
    }
    ours = {
        "backbone." + name.removeprefix(BODY) if name.startswith(BODY) else name: value
        for name, value in state.items()
        if name not in (TEXT_HEAD, TEXT_HEAD + ROWS)
    }
    embedding = "backbone.embed_tokens.weight"
    if embedding not in ours:
        ours |= {
            embedding + suffix: value for suffix, value in head.items()
        }  # saved tied: the file holds the table once
    load_strict(lm, ours, file)


def published_llm_names(lm: nn.Module) -> dict[str, tuple[int, ...]]:
    """Key and shape of every tensor that a published llm.pt holds for this module."""
    names = {
        BODY + name.removeprefix("backbone.") if name.startswith("backbone.") else name: tuple(value.shape)
        for name, value in lm.state_dict().items()
    }
    return names | {TEXT_HEAD: names[BODY + "embed_tokens.weight"]}


def without_training_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """hift.pt: training checkpoints carry `generator.` inside their names."""
    return {name.replace("generator.", ""): value for name, value in state.items()}


def load_strict(module: nn.Module, state: dict[str, Tensor], file: str) -> None:
    """All names and shapes must agree; int8 rows and any floating precision are widened to fp32 only then.

    Raises: ModelFilesError: names the first differences, or the first tensor with NaN or infinity in it.
    """
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items() if not name.endswith(ROWS)}
    problems = [f"missing {name}" for name in expected if name not in found]
    problems += [f"unexpected {name}" for name in found if name not in expected]
    problems += [
        f"{name} has shape {list(found[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    if problems:
        shown = "; ".join(problems[:4]) + (f"; and {len(problems) - 4} more" if len(problems) > 4 else "")
        raise ModelFilesError(misfit(file, shown))
    state = widened(state, file)
    if wrong := next((name for name, value in state.items() if not value.is_floating_point()), None):
        raise ModelFilesError(misfit(file, f"{wrong} holds {state[wrong].dtype}, not floating numbers"))
    wide = {name: value.float() for name, value in state.items()}
    check_finite(wide, file)
    module.load_state_dict(wide, strict=True, assign=True)


def check_finite(state: dict[str, Tensor], file: str) -> None:
    """Weights without NaN and infinity; a single one of them would silence every sentence, long after loading.

    Raises: ModelFilesError: names the first tensor that has one.
    """
    for name, value in state.items():
        # One pass without a mask; the exact look is for a sum that only overflowed.
        if not value.sum().isfinite() and not value.isfinite().all():
            raise ModelFilesError(
                f"{file} is damaged: {name} holds NaN or infinity. Delete it and download the release again."
            )


def misfit(file: str, what: str) -> str:
    """The message for names or shapes that do not belong to this model."""
    return (
        f"{file} does not fit the model that the yaml describes: {what[:400]}. Another version's file? "
        "Download the whole release again into an empty folder."
    )
