"""Layers: every import points down, by the floors of docs/architecture.md, read from the source with `ast`."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.corpus import REPOSITORY

ROOTS = ("lint", "rules", "schemas")


def load_picture() -> ModuleType:
    """Load docs/build/picture.py, which is not in a package."""
    spec = importlib.util.spec_from_file_location("picture", REPOSITORY / "docs" / "build" / "picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PICTURE = load_picture().parse_picture((REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8"))
PACKAGES = {"rules": "cfglint_rules", "schemas": "cfglint_schemas"}


def get_package(name: str) -> str:
    """Return the package of a room in the picture."""
    return PACKAGES.get(name, f"cfglint_train.{name}")


FLOORS = [[get_package(name) for name in floor] for floor in PICTURE.floors]
"""Floors from top to bottom. Rooms of one floor may not import each other, except along the solid arrows."""

BESIDE = {(get_package(source), get_package(target)) for source, target in PICTURE.beside}
BESIDE.add(("cfglint_train.__main__", "cfglint_train.front"))
FLOORS[0].append("cfglint_train.__main__")

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("cfglint_train.mutations.fillers", "cfglint_train.forks.vendored"): (
        "programs that load files with unknown paths do not count in copies of frameworks"
    ),
}
"""Permitted upward imports: (module, imported) -> reason. Three at most."""

FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}


def find_sources() -> dict[str, Path]:
    """Return module -> file, for the three packages."""
    files = {}
    for root in ROOTS:
        for path in (REPOSITORY / root).rglob("*.py"):
            parts = path.relative_to(REPOSITORY / root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


SOURCES = find_sources()


def find_room(module: str) -> str:
    """Return the room of a module."""
    return next((name for name in FLOOR if module == name or module.startswith(f"{name}.")), module)


def find_imports(path: Path, modules: dict[str, Path] = SOURCES) -> Iterator[tuple[str, int, bool]]:
    """Yield the project's modules that a file imports, each with its line and whether it is imported early.

    An early import runs when the file itself is imported: it is neither in a function nor for type checkers only.
    """
    tree = ast.parse(path.read_bytes())
    late = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING")
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            names = [
                f"{module}.{alias.name}" if f"{module}.{alias.name}" in modules else module for alias in node.names
            ]
        else:
            continue
        yield from ((name, node.lineno, id(node) not in late) for name in names if name in modules)


PACKAGE = "cfglint_train"
"""The package itself: it holds the version and imports nothing, so everything may import it."""


@cache
def list_edges() -> list[tuple[str, str, int, bool]]:
    """Return every import: module, imported module, line, and whether it runs when the module is imported."""
    return [
        (module, target, line, early)
        for module, path in SOURCES.items()
        for target, line, early in find_imports(path)
        if target != PACKAGE
    ]


def test_the_package_itself_imports_nothing():
    assert list(find_imports(SOURCES[PACKAGE])) == []


def find_upward_imports(edges: list[tuple[str, str, int, bool]]) -> list[str]:
    """Return the imports that do not point down."""
    upward_imports = []
    for module, target, line, _ in edges:
        above, below = find_room(module), find_room(target)
        down = FLOOR[above] < FLOOR[below] or (above, below) in BESIDE
        if above != below and not down and (module, target) not in EXCEPTIONS:
            upward_imports.append(f"{module}:{line} imports {target}")
    return upward_imports


def find_cycles(edges: list[tuple[str, str, int, bool]]) -> list[list[str]]:
    """Return the groups of modules that import each other (strongly connected components, Tarjan's algorithm)."""
    graph: dict[str, set[str]] = {}
    for module, target, _, _ in edges:
        graph.setdefault(module, set()).add(target)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1 or node in graph.get(node, ()):
                cycles.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return cycles


def test_every_module_has_a_floor_and_every_room_has_modules():
    assert set(FLOOR) == {find_room(module) for module in SOURCES if module != "cfglint_train"}
    assert [module for module in SOURCES if module != "cfglint_train" and find_room(module) not in FLOOR] == []


def test_no_import_points_up():
    assert find_upward_imports(list_edges()) == []


def test_no_circle():
    assert find_cycles(list_edges()) == []


def test_there_are_few_exceptions_and_each_is_needed():
    assert len(EXCEPTIONS) <= 3
    imported = {(module, target) for module, target, _, _ in list_edges()}
    for pair, reason in EXCEPTIONS.items():
        assert pair in imported, "the exception is not needed any more"
        assert len(reason) > 20


@pytest.mark.parametrize(
    ("module", "target", "found"),
    [
        ("cfglint_train.memory.host", "cfglint_train.reports.text", True),
        ("cfglint_train.reports.text", "cfglint_train.memory.host", False),
        ("cfglint_train.models.names", "cfglint_train.hardware.gpus", True),
    ],
)
def test_the_test_finds_what_it_looks_for(module, target, found):
    assert bool(find_upward_imports([(module, target, 1, True)])) is found
    assert find_cycles([("a", "b", 1, True), ("b", "c", 1, True), ("c", "a", 1, False)]) == [["a", "b", "c"]]
