"""The GPUs that the functions of a Python file ask Modal for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.python.syntax import tree_of
from cfglint_train.foundation.typed import Any
from cfglint_train.releases.pins.modal_images import constants, text_of


def asked(text: str) -> Iterator[tuple[str, int]]:
    """What each function that trains asks for, as it is written in one text, with its line."""
    tree = tree_of(text)
    yield from _functions(tree, constants(tree), text.splitlines())


def _functions(tree: ast.Module, texts: Mapping[str, ast.expr], lines: list[str]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            for call in node.decorator_list if re.search(r"train|torchrun|accelerate", body) else ():
                for word in call.keywords if isinstance(call, ast.Call) else ():
                    if word.arg == "gpu":
                        yield _asked(word.value, texts), word.value.lineno


def _asked(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    """`"H100:8"`, or `modal.gpu.A100(size="80GB", count=8)` as the same text."""
    if isinstance(node, ast.Name) and node.id in texts:
        node = texts[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        given: dict[str | None, Any] = {word.arg: text_of(word.value, texts) for word in node.keywords}
        size = given.get("size", given.get("memory", ""))
        count = given.get("count", "1")
        return ":".join(filter(None, (node.func.attr, f"{size.removesuffix('GB')}GB" if size else "", count)))
    return text_of(node, texts).removesuffix("!")
