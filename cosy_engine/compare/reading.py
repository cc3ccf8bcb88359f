"""Reads a comparison's JSON back. It may come from anywhere, so its shape and sizes are checked before anything is drawn."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from cosy_engine.compare.outcome import STAGES
from cosy_engine.compare.record import FORMAT, SKETCH_BINS, SKETCH_COLUMNS
from cosy_engine.errors import SettingInvalid

LARGEST_BYTES = 4_000_000  # nine variants are 67 kB
MOST_VARIANTS = 64
LONGEST_TEXT = 10_000  # characters of a name or an error
LARGEST = 1e12  # of a figure, in whatever unit

Check = Callable[[Any], bool]


def read(path: Path) -> dict[str, Any]:
    """`record.as_data`'s result from a file.

    Raises: SettingInvalid: it cannot be read, is no JSON, or is not what this program writes; the message says which part.
    """
    try:
        with path.open("rb") as file:
            held = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise SettingInvalid(f"{path} cannot be read ({error.strerror}): give the file that --json wrote") from error
    with explained(path):
        if len(held) > LARGEST_BYTES:
            raise ValueError(f"it is larger than {LARGEST_BYTES // 10**6} MB")
        data = json.loads(held.decode("utf-8"), parse_constant=_no_number)
        check(data)
    return data


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What a wrong file makes fail, in words for its owner.

    Raises: SettingInvalid.
    """
    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        StopIteration,
        RecursionError,
    ) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error) or type(error).__name__
        raise SettingInvalid(
            f"{path} is not a comparison made by this program: {why[:200]}; give the file that --json wrote"
        ) from error


def check(data: Any) -> None:
    """Raises: ValueError: not a comparison; the message names the first part that is wrong."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    _parts(data, "", HEAD)
    rows = data["variants"]
    for number, row in enumerate(rows):
        where = f"variants[{number}]"
        _parts(row, where, ROW)
        if not row["runs"]:
            continue
        _parts(row, where, FIGURES)
        _parts(row["stages_ms"], f"{where}.stages_ms", dict.fromkeys(STAGES, _amount))
        if row["likeness"] is not None:
            _parts(row["likeness"], f"{where}.likeness", LIKENESS)
        _parts(row["sketch"], f"{where}.sketch", SKETCH)
    ids = [row["id"] for row in rows]
    if len(set(ids)) < len(ids) or data["baseline"] not in ids:
        raise ValueError("two of its variants have one id, or baseline is none of them")


def _parts(value: Any, where: str, checks: dict[str, Check]) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is no object")
    for name, fits in checks.items():
        full = f"{where}.{name}".lstrip(".")
        if name not in value:
            raise ValueError(f"{full} is missing")
        if not fits(value[name]):
            raise ValueError(f"{full} has a value that cannot be")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no figure")


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _count(value: Any) -> bool:
    return _amount(value) and isinstance(value, int)


def _spread(value: Any) -> bool:
    """[median, spread]."""
    return isinstance(value, list) and len(value) == 2 and all(map(_amount, value))


def _object(value: Any) -> bool:
    """Its parts are checked on their own."""
    return isinstance(value, dict)


def _facts(value: Any) -> bool:
    """Names and single values."""
    return (
        isinstance(value, dict)
        and len(value) <= MOST_VARIANTS
        and all(_text(name) and (fact is None or _text(fact) or _amount(fact) or _flag(fact)) for name, fact in value.items())
    )  # fmt: skip


def _or_none(fits: Check) -> Check:
    return lambda value: value is None or fits(value)


def _mel(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(base64.b64decode(value, validate=True)) == SKETCH_BINS * SKETCH_COLUMNS
    except ValueError:
        return False


HEAD: dict[str, Check] = {
    "what": _text, "request": _facts, "machine": _facts, "versions": _facts, "baseline": _text, "runs": _count,
    "warm_ups": _count, "variants": lambda value: isinstance(value, list) and 1 <= len(value) <= MOST_VARIANTS,
}  # fmt: skip
ROW: dict[str, Check] = {
    "id": _text, "tier": _text, "precision": _text, "stream": _flag, "runs": _count, "error": _text,
}  # fmt: skip
FIGURES: dict[str, Check] = {
    "first_audio_ms": _spread, "rtf": _spread, "ms_per_token": _or_none(_spread), "floor_ratio": _or_none(_amount),
    "stages_ms": _object, "memory_gb": _or_none(_amount), "audio_s": _amount, "tokens": _count,
    "likeness": _or_none(_object), "sketch": _object,
}  # fmt: skip
LIKENESS: dict[str, Check] = {
    "tokens_equal": _count, "same_tokens": _flag, "log_prob": _or_none(_amount), "mel_db": _or_none(_amount),
}  # fmt: skip
SKETCH: dict[str, Check] = {
    "bins": lambda value: value == SKETCH_BINS, "columns": lambda value: value == SKETCH_COLUMNS, "mel": _mel,
}  # fmt: skip
