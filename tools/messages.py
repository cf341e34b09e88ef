"""Write tests/messages.txt, the message templates that a user can see: python -m tools.messages

The rules' own are not among them: the `expected.txt` of their fixtures has messages, fixes, helps and notes.

The templates are read from the source without running it: the texts that are passed to findings, fixes and errors, all
other texts of more than two words, and the texts of the JSON tables. `{name}` is a value that is filled in.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "messages.txt"
FOLDERS = ("lint/cfglint_train", "schemas/cfglint_schemas")
TABLES = ("lint/cfglint_train/frameworks", "lint/cfglint_train/fitting", "lint/cfglint_train/memory/calibration")

MESSAGES = frozenset(
    ("Report", "Fix", "Related", "Finding", "Trouble", "Unchecked", "Unknown", "CannotEdit", "Unsupported")
)
"""Constructors whose texts are shown, beside all whose names end in `Error`."""
SHOWN = frozenset(("help", "message", "notes", "note", "remedy", "title"))
"""Arguments of any call whose texts are shown."""
FIELDS = frozenset(("message", "help", "note", "gives_up", "because", "why", "advice"))
"""Fields of the tables whose texts are shown."""
CODE = frozenset(("lint/cfglint_train/front/completion.py",))
"""Modules whose texts are programs."""
_PATTERNS = frozenset(("compile", "fullmatch", "match", "search", "sub", "finditer", "split", "findall"))
_NO_TEXT = re.compile(r"\(\?|\\[dswb.]|^\s*[<.#@&]|</|[;{]\s*$|^[^A-Za-z]*$")
_WORD = re.compile(r"[A-Za-z]{2,}")


def templates() -> list[str]:
    """Return the lines of the file: `path: template`, in the order of the source."""
    found: list[str] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).as_posix() not in CODE:
                found += _lines(path, _of_python(ast.parse(path.read_bytes())))
    for folder in TABLES:
        for path in sorted((ROOT / folder).rglob("*.json")):
            found += _lines(path, _of_table(json.loads(path.read_bytes()), path.stem.endswith("read_only")))
    return found


def _lines(path: Path, texts: Iterator[str]) -> Iterator[str]:
    """Yield each text of a file once, on one line."""
    name = path.relative_to(ROOT).as_posix()
    for text in dict.fromkeys(texts):
        yield f"{name}: {text.strip().encode('unicode_escape').decode() if not text.isprintable() else text.strip()}"


def _of_python(tree: ast.Module) -> Iterator[str]:
    """Yield the templates of a module."""
    hidden = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    hidden |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    shown: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name in _PATTERNS:
                hidden |= {id(argument) for argument in node.args}
                hidden |= {id(node.func.value)} if isinstance(node.func, ast.Attribute) else set()  # "a b c".split()
            texts = list(node.args) if name in MESSAGES or name.endswith("Error") else []
            texts += [word.value for word in node.keywords if word.arg in SHOWN]
            shown |= {id(part) for text in texts for part in _parts(text)}
    for node in _in_order(tree):
        text = _template(node)
        if text is None or id(node) in hidden:
            continue
        if _is_message(text) or (id(node) in shown and _is_text(text)):
            yield text


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree in the order of the source."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the texts that an argument may be: branches of a condition, items of a tuple."""
    match node:
        case ast.IfExp():
            yield from _parts(node.body)
            yield from _parts(node.orelse)
        case ast.Tuple() | ast.List():
            for item in node.elts:
                yield from _parts(item)
        case ast.BoolOp():
            for value in node.values:
                yield from _parts(value)
        case _:
            yield node


def _template(node: ast.AST) -> str | None:
    """Return the text of a string; None for other nodes."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    return "".join(
        f"{{{_name(part.value)}}}" if isinstance(part, ast.FormattedValue) else _template(part) or ""
        for part in node.values
    )


def _name(node: ast.AST) -> str:
    """Return a short name of an expression: the last name in it."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return _name(node.func)
        case ast.Subscript():
            return _name(node.value)
        case _:
            return "..."


def _is_text(text: str) -> bool:
    """Whether a text has words at all."""
    return bool(_WORD.search(text)) and " " in text.strip() and not _NO_TEXT.search(text)


def _is_message(text: str) -> bool:
    """Whether a text has three words or more, and is no pattern and no markup."""
    return text.strip().count(" ") > 1 and len(_WORD.findall(text)) > 2 and not _NO_TEXT.search(text)


def _of_table(value: Any, all_of_it: bool, field: str = "") -> Iterator[str]:
    """Yield the texts of a table."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in ("about", "include"):
                yield from _of_table(item, all_of_it or name in FIELDS, name)
    elif isinstance(value, list):
        for item in value:
            yield from _of_table(item, all_of_it, field)
    elif isinstance(value, str) and all_of_it and field not in ("source", "applicability") and " " in value:
        yield value


if __name__ == "__main__":
    TARGET.write_text("\n".join(templates()) + "\n", encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}\n")
