"""The release yaml read as data. Its tags name Python classes; here they are strings, nothing is imported or called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cosy_engine.errors import ModelFilesError

TAG = "!"  # key under which a mapping keeps its tag

REFERENCE = re.compile(r"<\w+>")


LARGEST = 200_000  # characters


class _DataLoader(yaml.SafeLoader):
    """SafeLoader that turns any `!tag` node into plain data. Aliases are refused: no release needs them, and a few lines of
    them can stand for more data than there is memory."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("anchors and aliases are not allowed")
        return super().compose_node(parent, index)


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
        text = path.read_text(encoding="utf-8")
        if len(text) > LARGEST:
            raise ModelFilesError(
                f"{path.name} has {len(text):,} characters, a release's has some 10,000: not such a file"
            )
        data = yaml.load(text, Loader=_DataLoader)  # a SafeLoader: data only
        if not isinstance(data, dict):
            raise ModelFilesError(f"{path.name}: expected a mapping at the top, found {type(data).__name__}")
        return _resolve(data, _numbers(data))
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError) as error:  # also bad scalars
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ModelFilesError(f"{path.name} is not readable as yaml: {reason}") from error


def _numbers(top: dict[str, Any]) -> dict[str, float]:
    """Top-level numbers by name, those that are products of others included; an entry sees only earlier ones."""
    known: dict[str, float] = {}
    for name, value in top.items():
        value = _product(value, known) if isinstance(value, str) else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            known[name] = value
    return known


def _resolve(value: Any, known: dict[str, float]) -> Any:
    if isinstance(value, dict):
        return {key: _resolve(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, known) for item in value]
    return _product(value, known) if isinstance(value, str) else value


def _product(text: str, known: dict[str, float]) -> Any:
    """`<a>` or `<a> * <b> * 2` as a number; whatever else stays the string it was."""
    if not REFERENCE.search(text):
        return text
    result: Any = 1
    parts = [part.strip() for part in text[:200].split("*")]
    for part in parts:
        number = known.get(part[1:-1]) if REFERENCE.fullmatch(part) else int(part) if part.isdecimal() else None
        if number is None:
            return text
        result = number if len(parts) == 1 else result * number
    return result
