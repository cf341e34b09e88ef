"""Write tests/messages.txt: the templates of the messages that a user can see.

    python -m tools.messages

Messages of rules are not included: the `expected.txt` of their fixtures has their messages, fixes, helps and notes.

The source is only parsed. The list has the texts that are passed to findings, fixes and errors, all other strings of
more than two words, and the texts of the JSON tables. `{name}` stands for a value.
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
"""Constructors whose positional texts are shown, in addition to those whose names end in `Error`."""
SHOWN = frozenset(("help", "message", "notes", "note", "remedy", "title"))
"""Keyword arguments whose texts are shown, in any call."""
FIELDS = frozenset(("message", "help", "note", "gives_up", "because", "why", "advice"))
"""Fields of the JSON tables whose texts are shown."""
EXCLUDED_MODULES = frozenset(("lint/cfglint_train/front/completion.py",))
"""Modules whose strings are programs, not messages."""
_PATTERN_FUNCTIONS = frozenset(
    ("compile", "compile_on_use", "fullmatch", "match", "search", "sub", "finditer", "split", "findall")
)
_NO_TEXT = re.compile(r"\(\?|\\[dswb.]|^\s*[<.#@&]|</|[;{]\s*$|^[^A-Za-z]*$")
_WORD = re.compile(r"[A-Za-z]{2,}")


def list_templates() -> list[str]:
    """Return the lines of the file as `path: template`, in the order of the source."""
    lines: list[str] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.relative_to(ROOT).as_posix() not in EXCLUDED_MODULES:
                lines += _format_lines(path, _find_in_module(ast.parse(path.read_bytes())))
    for folder in TABLES:
        for path in sorted((ROOT / folder).rglob("*.json")):
            lines += _format_lines(path, _find_in_table(json.loads(path.read_bytes()), path.stem.endswith("read_only")))
    return lines


def _format_lines(path: Path, texts: Iterator[str]) -> Iterator[str]:
    """Yield each text of a file once, escaped so that it takes one line."""
    name = path.relative_to(ROOT).as_posix()
    for text in dict.fromkeys(texts):
        yield f"{name}: {text.strip().encode('unicode_escape').decode() if not text.isprintable() else text.strip()}"


def _find_in_module(tree: ast.Module) -> Iterator[str]:
    """Yield the message templates of a module, in the order of the source."""
    hidden = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    hidden |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    shown: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _shorten_expression(node.func)
            if name in _PATTERN_FUNCTIONS:
                hidden |= {id(argument) for argument in node.args}
                hidden |= {id(node.func.value)} if isinstance(node.func, ast.Attribute) else set()  # "a b c".split()
            texts = list(node.args) if name in MESSAGES or name.endswith("Error") else []
            texts += [word.value for word in node.keywords if word.arg in SHOWN]
            shown |= {id(part) for text in texts for part in _list_alternatives(text)}
    for node in _walk_in_order(tree):
        text = _build_template(node)
        if text is None or id(node) in hidden:
            continue
        if _is_message(text) or (id(node) in shown and _is_text(text)):
            yield text


def _walk_in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree in the order of the source."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk_in_order(child)


def _list_alternatives(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions that an argument may evaluate to: branches of a condition, items of a tuple or list."""
    match node:
        case ast.IfExp():
            yield from _list_alternatives(node.body)
            yield from _list_alternatives(node.orelse)
        case ast.Tuple() | ast.List():
            for item in node.elts:
                yield from _list_alternatives(item)
        case ast.BoolOp():
            for value in node.values:
                yield from _list_alternatives(value)
        case _:
            yield node


def _build_template(node: ast.AST) -> str | None:
    """Return the template of a string or f-string, or None for any other node."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    return "".join(
        f"{{{_shorten_expression(part.value)}}}"
        if isinstance(part, ast.FormattedValue)
        else _build_template(part) or ""
        for part in node.values
    )


def _shorten_expression(node: ast.AST) -> str:
    """Return the last name in an expression, or `...` if it has none."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call():
            return _shorten_expression(node.func)
        case ast.Subscript():
            return _shorten_expression(node.value)
        case _:
            return "..."


def _is_text(text: str) -> bool:
    """Return whether a text has a space and a word, and is neither a pattern nor markup."""
    return bool(_WORD.search(text)) and " " in text.strip() and not _NO_TEXT.search(text)


def _is_message(text: str) -> bool:
    """Return whether a text has at least three words and is neither a pattern nor markup."""
    return text.strip().count(" ") > 1 and len(_WORD.findall(text)) > 2 and not _NO_TEXT.search(text)


def _find_in_table(value: Any, include_all: bool, field: str = "") -> Iterator[str]:
    """Yield the texts with spaces in a JSON table: all, or only those in `FIELDS`."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in ("about", "include"):
                yield from _find_in_table(item, include_all or name in FIELDS, name)
    elif isinstance(value, list):
        for item in value:
            yield from _find_in_table(item, include_all, field)
    elif isinstance(value, str) and include_all and field not in ("source", "applicability") and " " in value:
        yield value


if __name__ == "__main__":
    TARGET.write_text("\n".join(list_templates()) + "\n", encoding="utf-8")
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}\n")
