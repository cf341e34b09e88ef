"""What a Python file asks of Modal: images, each made by a chain of calls, and the GPUs of functions that train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.python.syntax import tree_of
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.releases.pins.readers import REQUIRED, Pin, commands_in, of_image
from cfglint_train.releases.pins.requirement import Requirement

_INSTALLS: Final = ("pip_install", "uv_pip_install")
_RUNS: Final = ("run_commands", "dockerfile_commands")
_STARTS: Final = ("from_registry",)


def images(path: str, text: str) -> Iterator[list[Pin]]:
    """The pins of each image that a Python file builds by a chain of calls."""
    tree = tree_of(text)
    texts = constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.keyword)) and isinstance(node.value, ast.Call):
            yield [
                Pin(found.package, found.constraint, path, number, REQUIRED, found.fork, found.unreleased)
                for call in _chain(node.value)
                for found, number in _called(call, texts, text)
            ]


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The names of a module, with what is assigned to each."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    return {name.id: node.value for node in assigned for name in node.targets if isinstance(name, ast.Name)}


def _chain(node: ast.expr) -> Iterator[ast.Call]:
    """The calls of `Image.a(...).b(...)`, the last one first."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node
        node = node.func.value


def _called(call: ast.Call, texts: Mapping[str, ast.expr], text: str) -> Iterator[tuple[Requirement, int]]:
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    for node in call.args if name in (*_INSTALLS, *_RUNS, *_STARTS) else ():
        for one in node.elts if isinstance(node, (ast.List, ast.Tuple)) else (node,):
            written = text_of(one, texts)
            if name in _INSTALLS:
                written = f"pip install '{written}'"
            if name in _STARTS:
                place, _, tag = written.partition(":" if "@" not in written else "@")
                found = list(of_image(place.lower(), tag if ":" not in tag else _commented(text)))
            else:
                pins = commands_in("", written)
                found = [Requirement(pin.package, pin.constraint, pin.fork, pin.unreleased) for pin in pins]
            yield from ((each, one.lineno) for each in found)


def _commented(text: str) -> str:
    """The dated tag that a comment gives to an image that is named by its digest."""
    found = {match[0] for match in re.finditer(r"(?m)(?<=[\s`])main-\d{8}-[\w.+-]+", text)}
    return found.pop() if len(found) == 1 else ""


def text_of(node: ast.AST, texts: Mapping[str, ast.expr], depth: int = 0) -> str:
    """A text with the constants of its module put in; what is not known leaves a gap that no release fits in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name) and depth < 3:
        value: Any = texts.get(node.id)
        return "?" if value is None else text_of(value, texts, depth + 1)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one, texts, depth) for one in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, texts, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth < 3:
        return text_of(node.left, texts, depth + 1) + text_of(node.right, texts, depth + 1)
    return "?"


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
