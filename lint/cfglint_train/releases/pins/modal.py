"""Modal: images that a Python file builds by chained calls, and GPUs that its training functions request."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from cfglint_train.documents.python.syntax import parse_tree
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.releases.pins.readers import REQUIRED, Pin, find_command_pins, parse_image_tag
from cfglint_train.releases.pins.requirement import Requirement

_INSTALL_METHODS: Final = ("pip_install", "uv_pip_install")
_COMMAND_METHODS: Final = ("run_commands", "dockerfile_commands")
_BASE_METHODS: Final = ("from_registry",)


def find_image_pins(path: str, text: str) -> Iterator[list[Pin]]:
    """Yield the pins of each image that a Python file builds by chained calls."""
    tree = parse_tree(text)
    texts = collect_constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.keyword)) and isinstance(node.value, ast.Call):
            yield [
                Pin(
                    requirement.package,
                    requirement.constraint,
                    path,
                    number,
                    REQUIRED,
                    requirement.fork,
                    requirement.unreleased,
                )
                for call in _walk_chain(node.value)
                for requirement, number in _find_call_requirements(call, texts, text)
            ]


def collect_constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the expressions that a module assigns at its top level, by name."""
    assignments = (node for node in tree.body if isinstance(node, ast.Assign))
    return {name.id: node.value for node in assignments for name in node.targets if isinstance(name, ast.Name)}


def _walk_chain(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of `Image.a(...).b(...)`, last call first."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node
        node = node.func.value


def _find_call_requirements(
    call: ast.Call, texts: Mapping[str, ast.expr], text: str
) -> Iterator[tuple[Requirement, int]]:
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    for node in call.args if name in (*_INSTALL_METHODS, *_COMMAND_METHODS, *_BASE_METHODS) else ():
        for item in node.elts if isinstance(node, (ast.List, ast.Tuple)) else (node,):
            argument = render_text(item, texts)
            if name in _INSTALL_METHODS:
                argument = f"pip install '{argument}'"
            if name in _BASE_METHODS:
                place, _, tag = argument.partition(":" if "@" not in argument else "@")
                requirements = list(
                    parse_image_tag(place.lower(), tag if ":" not in tag else _find_commented_tag(text))
                )
            else:
                pins = find_command_pins("", argument)
                requirements = [Requirement(pin.package, pin.constraint, pin.fork, pin.unreleased) for pin in pins]
            yield from ((requirement, item.lineno) for requirement in requirements)


def _find_commented_tag(text: str) -> str:
    """Return the dated tag that the file mentions for an image named by digest; "" if there is none or several."""
    tags = {match[0] for match in re.finditer(r"(?m)(?<=[\s`])main-\d{8}-[\w.+-]+", text)}
    return tags.pop() if len(tags) == 1 else ""


def render_text(node: ast.AST, texts: Mapping[str, ast.expr], depth: int = 0) -> str:
    """Return the value of an expression as text, with the module's constants inserted; unknown parts become `?`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name) and depth < 3:
        value: Any = texts.get(node.id)
        return "?" if value is None else render_text(value, texts, depth + 1)
    if isinstance(node, ast.JoinedStr):
        return "".join(render_text(part, texts, depth) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return render_text(node.value, texts, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth < 3:
        return render_text(node.left, texts, depth + 1) + render_text(node.right, texts, depth + 1)
    return "?"


def find_gpu_requests(text: str) -> Iterator[tuple[str, int]]:
    """Yield the GPUs that each training function or class requests, as a string (`H100:8`), with the line."""
    tree = parse_tree(text)
    yield from _find_function_gpus(tree, collect_constants(tree), text.splitlines())


def _find_function_gpus(tree: ast.Module, texts: Mapping[str, ast.expr], lines: list[str]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            for call in node.decorator_list if re.search(r"train|torchrun|accelerate", body) else ():
                for word in call.keywords if isinstance(call, ast.Call) else ():
                    if word.arg == "gpu":
                        yield _format_gpu_request(word.value, texts), word.value.lineno


def _format_gpu_request(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    """Return a GPU request as text: `"H100:8"` unchanged, `modal.gpu.A100(size="80GB", count=8)` as `A100:80GB:8`."""
    if isinstance(node, ast.Name) and node.id in texts:
        node = texts[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        arguments: dict[str | None, Any] = {word.arg: render_text(word.value, texts) for word in node.keywords}
        size = arguments.get("size", arguments.get("memory", ""))
        count = arguments.get("count", "1")
        return ":".join(filter(None, (node.func.attr, f"{size.removesuffix('GB')}GB" if size else "", count)))
    return render_text(node, texts).removesuffix("!")
