"""Every sentence that the engine can say to a user, read out of its source, with sample values filled in."""

import ast
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from cosy_engine import errors

SILENT = {"ModelFilesError"}  # said in the terminal at start, not in the page
WRITERS = {"check_writable", "write_wav", "pick_device", "load"}  # only the command line reaches these
REASONS = {"unavailable", "misfit"}  # functions whose answers stand behind greyed choices
ROOMS = ("engine.py", "build.py", "accel/fused_config.py", "audio", "text", "scheduling", "flow", "vocoder", "llm")
SAMPLES = ("7", "clip.wav")  # for a value of which the source shows no format


def sentences() -> Iterator[tuple[str, type | None, list[list[str]]]]:
    """(where it stands, kind of error or None for a note, for each sample the ways in which it can read)."""
    root = Path("cosy_engine")
    files = [
        file
        for room in ROOMS
        for file in ([root / room] if room.endswith(".py") else sorted((root / room).glob("*.py")))
    ]
    for file in files:
        module = importlib.import_module(".".join(file.with_suffix("").parts))
        for kind, node in said(ast.parse(file.read_text(encoding="utf-8"))):
            ways = [readings(node, module, sample) for sample in SAMPLES]
            if any(ways):
                yield f"{file}:{node.lineno}", kind, ways


def said(tree: ast.AST) -> Iterator[tuple[type | None, ast.expr]]:
    """First arguments of raised errors, what is added to notes, what a *_note function returns."""
    for node in inside(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            kind = getattr(errors, node.exc.func.id, None)
            if isinstance(kind, type) and issubclass(kind, errors.CosyError) and kind.__name__ not in SILENT:
                yield kind, node.exc.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            if "notes" in ast.unparse(node.func.value):
                yield None, node.args[0]
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value and any(
                word in ast.unparse(t) for t in targets for word in ("notes", "unavailable", "missing[")
            ):
                yield from ((None, text) for text in texts_in(node.value))
        elif isinstance(node, ast.FunctionDef) and (
            node.name.endswith("_note") or node.name.startswith("_why") or node.name in REASONS
        ):
            yield from ((None, n.value) for n in ast.walk(node) if isinstance(n, ast.Return) and n.value)


def inside(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of WRITERS."""
    for child in ast.iter_child_nodes(tree):
        if getattr(child, "name", None) not in WRITERS:
            yield child
            yield from inside(child)


def texts_in(node: ast.AST) -> Iterator[ast.expr]:
    """Whole texts of an expression."""
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts_in(child)


def readings(node: ast.expr, module, sample: str) -> list[str]:
    """Texts that an expression can become; none for what is no text."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) and " " in node.value else []
    if isinstance(node, ast.IfExp):
        return readings(node.body, module, sample) + readings(node.orelse, module, sample)
    if isinstance(node, ast.BinOp):
        parts = [readings(side, module, sample) or [""] for side in (node.left, node.right)]
        return ["".join(both) for both in itertools.product(*parts)]
    if isinstance(node, ast.JoinedStr):
        return joined(node, module, sample)
    return known(node, module)


def joined(node: ast.JoinedStr, module, sample: str) -> list[str]:
    texts = [""]
    for part in node.values:
        if isinstance(part, ast.Constant):
            ways = [part.value]
        else:
            ways = known(part.value, module) or choices(part.value)
            if not ways:
                spec = ast.unparse(part.format_spec)[2:-1] if part.format_spec else ""
                ways = [format(0.5 if "%" in spec else 1234 if "," in spec else 12.3, spec) if spec else sample]
        texts = [text + way for text in texts for way in ways]
    return texts


def choices(node: ast.expr) -> list[str]:
    """The two words of a conditional value."""
    ways = [node.body, node.orelse] if isinstance(node, ast.IfExp) else []
    return [way.value for way in ways if isinstance(way, ast.Constant)]


def known(node: ast.expr, module) -> list[str]:
    """A constant of the module, or all values of a table of words."""
    name = ast.unparse(node.value) if isinstance(node, ast.Subscript) else ast.unparse(node)
    value = getattr(module, name, None) if name.isidentifier() and name.isupper() else None
    if isinstance(value, dict):
        return [words for words in value.values() if isinstance(words, str)]
    return [value] if isinstance(value, str) else []
