"""Requirements in `setup.py`, from strings in lists, variables and dictionaries. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from cfglint_train.documents.python.syntax import get_callee_name, parse_tree
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

MAX_DEPTH: Final = 8
"""Maximum nesting of expressions, and of variables that refer to each other."""
MAX_BYTES: Final = 256 * 2**10

_NAME: Final = compile_on_use(r"[\w.-]+")


class WrittenRequirement(Frozen):
    """A requirement as written."""

    text: str
    line: int
    is_optional: bool
    """True if the requirement belongs to an extra."""


def find_requirements(text: str) -> Iterator[WrittenRequirement]:
    """Yield the requirements that the `setup` calls of a file state literally or through variables of the file."""
    if len(text) > MAX_BYTES or "setup" not in text:
        return
    tree = parse_tree(text)
    names = dict(_collect_values(tree))
    tables = _Variables(names, dict(_group_by_package(names)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and get_callee_name(node) == "setup":
            arguments = {word.arg: word.value for word in node.keywords}
            for key in ("install_requires", "extras_require"):
                tables.followed.clear()
                for item in _find_texts(arguments[key], tables, 0) if key in arguments else ():
                    yield WrittenRequirement(item.value, item.lineno, key == "extras_require")


class _Text(Frozen):
    value: str
    lineno: int


class _Variables:
    """The values of the variables in a file."""

    def __init__(self, values: Mapping[str, list[ast.expr]], required: Mapping[str, list[_Text]]) -> None:
        """Store the values; no variable has been followed yet."""
        self.values = values
        self.required = required
        """Requirements in lists and dictionaries of the file, by package."""
        self.followed: set[str] = set()
        """Variables already followed, which are not followed again because many lists refer to each other."""


def _collect_values(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr]]]:
    """Return the variables of a module with the values assigned to them or to their items."""
    values_by_name: dict[str, list[ast.expr]] = {}
    for step in tree.body:
        if not isinstance(step, (ast.Assign, ast.AnnAssign)) or step.value is None:
            continue
        for target in step.targets if isinstance(step, ast.Assign) else (step.target,):
            name = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(name, ast.Name):
                if name is target:
                    values_by_name[name.id] = []
                values_by_name.setdefault(name.id, []).append(step.value)
    return iter(values_by_name.items())


def _find_texts(node: ast.expr, tables: _Variables, depth: int) -> Iterator[_Text]:
    """Yield the strings in an expression."""
    if depth > MAX_DEPTH:
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield _Text(node.value, node.lineno)
        return
    inner: list[ast.expr] = []
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        inner = node.elts
    elif isinstance(node, ast.Dict):
        inner = node.values
    elif isinstance(node, ast.Name):
        inner = [] if node.id in tables.followed else tables.values.get(node.id, [])
        tables.followed.add(node.id)
    elif isinstance(node, ast.BinOp):
        inner = [node.left, node.right]
    elif isinstance(node, ast.Starred):
        inner = [node.value]
    elif isinstance(node, ast.Subscript):
        yield from _find_item(node, tables, depth)
    elif isinstance(node, ast.Call):
        # The file's own function that looks up packages in a table by name: `deps_list("torch")`.
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield from tables.required.get(argument.value, ())
            elif isinstance(argument, (ast.Name, ast.List, ast.Tuple)) and get_callee_name(node) in (
                "list",
                "sorted",
                "tuple",
            ):
                inner.append(argument)
    for child in inner:
        yield from _find_texts(child, tables, depth + 1)


def _find_item(node: ast.Subscript, tables: _Variables, depth: int) -> Iterator[_Text]:
    """Yield the requirements that `deps["torch"]` selects from a dictionary, literal or built from a list."""
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    values = tables.values.get(node.value.id, []) if isinstance(node.value, ast.Name) else []
    if not isinstance(key, str):
        return
    for value in values:
        if isinstance(value, ast.Dict):
            for name, entry in zip(value.keys, value.values):
                if isinstance(name, ast.Constant) and name.value == key:
                    yield from _find_texts(entry, tables, depth + 1)
        elif isinstance(value, (ast.DictComp, ast.Call)):
            yield from tables.required.get(key, ())


def _group_by_package(names: Mapping[str, list[ast.expr]]) -> Mapping[str, list[_Text]]:
    """Return the strings in the lists and dictionaries of a file, by the package name that they start with."""
    texts: dict[str, list[_Text]] = {}
    for value in (item for values in names.values() for item in values):
        items = value.elts if isinstance(value, (ast.List, ast.Tuple)) else ()
        for item in value.values if isinstance(value, ast.Dict) else items:
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                name = _NAME.match(item.value)
                if name is not None:
                    texts.setdefault(name[0], []).append(_Text(item.value, item.lineno))
    return texts
