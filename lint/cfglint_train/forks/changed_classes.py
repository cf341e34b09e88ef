"""Changed classes: settings classes that a program in the repository changes before it instantiates them.

Examples are `trl.SFTConfig = OurConfig`, `SFTConfig.__init__ = ...` and `setattr(trl, "SFTConfig", ...)` in a file that
the program imports. The parameters then differ from upstream's. Files are read as text and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from cfglint_train.documents.python.syntax import map_imports, parse_tree, resolve_dotted_name
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import PythonSources
from cfglint_train.mutations.imported import ImportGraph
from cfglint_train.repository.index import RepositoryIndex

_CHANGES: Final = compile_on_use(
    r"\bsetattr\(|\.\w*(?:Config|Arguments|Args)\s*=(?!=)"
    r"|(?:Config|Arguments|Args)\.__\w+__\s*(?:\[[^\]\n]*\]\s*)?=(?!=)"
)
"""Cheap test for a change to a settings class: most files in a repository do not match and are not parsed."""


class ChangedClass(Frozen):
    """A settings class that a file changes."""

    path: str
    line: int
    name: str
    declared: frozenset[str]
    """Names of fields and parameters, and strings, in the file; the file may add them to the class."""


class _Assignments(Frozen):
    """Attributes that a file assigns on imported objects."""

    stored: tuple[tuple[int, tuple[str, ...], str | None], ...]
    """Line, dotted name of the owner, and attribute (None if computed)."""
    declared: frozenset[str]
    """Fields, parameters and strings of the file."""


class ChangedClasses:
    """Files of a repository that change classes of installed packages. Only files that a program imports are parsed."""

    def __init__(self, index: RepositoryIndex) -> None:
        """Create an empty cache for a repository."""
        self._index = index
        self._read: dict[str, _Assignments] = {}

    def find_change(self, program: str, packages: Collection[str], classes: Collection[str]) -> ChangedClass | None:
        """Return the first change to one of the packages' classes in the files that a program imports, or None."""
        files = self._index.compute_once(PythonSources)
        for path in sorted(self._index.compute_once(ImportGraph).find_imports(program)):
            if _CHANGES.search(files.read_source(path)) is None or path.startswith(files.copies):
                continue
            stores = self._read_stores(path)
            for line, name in _find_changed(stores, packages, classes):
                return ChangedClass(path, line, name, stores.declared)
        return None

    def _read_stores(self, path: str) -> _Assignments:
        """Return the attributes that a file assigns on imported objects."""
        if path not in self._read:
            nodes = list(ast.walk(parse_tree(self._index.compute_once(PythonSources).read_source(path))))
            names = map_imports(nodes)
            assignments = (
                (owner.lineno, resolve_dotted_name(owner, names), attribute)
                for owner, attribute in _find_assignments(nodes)
            )
            stored = tuple(
                (line, tuple(owner.split(".")), attribute) for line, owner, attribute in assignments if owner
            )
            self._read[path] = _Assignments(stored, frozenset(_list_declared(nodes)) if stored else frozenset())
        return self._read[path]


def _find_changed(
    stores: _Assignments, packages: Collection[str], classes: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield the lines and names of the packages' classes that a file changes."""
    for line, steps, attribute in stores.stored:
        if steps[0] not in packages:
            continue
        if steps[-1] in classes and (attribute is None or attribute.startswith("__")):
            yield line, steps[-1]  # other attributes add no field
        elif attribute in classes and attribute is not None:
            yield line, attribute


def _find_assignments(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, str | None]]:
    """Yield the owner and name of each assigned attribute (None if computed)."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.value, node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Attribute):  # `SFTConfig.__dataclass_fields__["key"] = ...`
                yield node.value.value, node.value.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and len(node.args) == 3:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            yield node.args[0], name if isinstance(name, str) else None


def _list_declared(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
