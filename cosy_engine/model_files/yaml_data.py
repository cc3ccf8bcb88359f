"""The release yaml read as data. Its tags name Python classes; here they are strings, nothing is imported or called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cosy_engine.errors import ModelFilesError

TAG = "!"  # key under which a mapping keeps its tag

REFERENCE = re.compile(r"<\w+>")


class _DataLoader(yaml.SafeLoader):
    """SafeLoader that turns any `!tag` node into plain data."""


def _tagged(loader: _DataLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True) | {TAG: suffix}
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_DataLoader.add_multi_constructor("!", _tagged)


def read_yaml(path: Path) -> dict[str, Any]:
    """Top-level mapping with `<name>` references to numbers and products of them resolved; others stay strings.

    Raises: ModelFilesError: not yaml, or not a mapping.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_DataLoader)  # a SafeLoader: data only
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFilesError(f"{path.name} is not readable as yaml: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict):
        raise ModelFilesError(f"{path.name}: expected a mapping at the top, found {type(data).__name__}")
    return _resolve(data, data, 0)


def _resolve(value: Any, top: dict[str, Any], depth: int) -> Any:
    if isinstance(value, dict):
        return {key: _resolve(item, top, depth) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, top, depth) for item in value]
    if isinstance(value, str) and depth < 8 and REFERENCE.search(value):
        return _product(value, top, depth)
    return value


def _product(text: str, top: dict[str, Any], depth: int) -> Any:
    """`<a>` or `<a> * <b> * 2`; whatever is not a number stays the string it was."""
    result: Any = 1
    parts = [part.strip() for part in text.split("*")]
    for part in parts:
        if REFERENCE.fullmatch(part):
            part = _resolve(top.get(part[1:-1]), top, depth + 1)
        elif part.isdecimal():
            part = int(part)
        if isinstance(part, bool) or not isinstance(part, (int, float)):
            return text
        result = part if len(parts) == 1 else result * part
    return result
