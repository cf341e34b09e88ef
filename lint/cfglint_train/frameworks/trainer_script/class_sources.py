"""Classes that a script names, followed through the definitions and imports of the repository."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.modules import find_imports, find_module
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.trainer_script.facts import find_full_name

PACKAGES: Final = ("transformers", "trl")
_MAX_DEPTH: Final = 6
"""Maximum number of imports and base classes to follow from a name to a package's class."""


class ClassSource(Frozen):
    """A class: its definition in a module of the repository, or its full name in a package (`trl.SFTConfig`)."""

    module: PythonScript | None = None
    definition: ast.ClassDef | None = None
    full_name: str = ""

    @property
    def package(self) -> str:
        """Package of a class without a definition in the repository."""
        return self.full_name.partition(".")[0]

    @property
    def name(self) -> str:
        """Name of the class without its module."""
        return self.full_name.rpartition(".")[2] if self.definition is None else self.definition.name


def find_class(document: PythonScript, node: ast.expr, depth: int = _MAX_DEPTH) -> ClassSource | None:
    """Return the class that an expression names, or None if it cannot be found."""
    definitions = document.find_classes(node.id) if isinstance(node, ast.Name) else []
    if definitions:
        return ClassSource(document, definitions[0]) if len(definitions) == 1 else None
    full_name = find_full_name(document, node)
    if full_name.partition(".")[0] in PACKAGES:
        return ClassSource(full_name=full_name)
    if isinstance(node, ast.Attribute):
        return find_imported_class(document, full_name, depth)
    imports = find_imports(document, node.id) if isinstance(node, ast.Name) else []
    sources = (find_imported_class(document, f"{module}.{name}", depth) for module, name in imports)
    return next((source for source in sources if source is not None), None)


@lru_cache(maxsize=256)
def find_imported_class(document: PythonScript, full_name: str, depth: int = _MAX_DEPTH) -> ClassSource | None:
    """Return the class with a full name, as `document` imports it (`.configs.SFTConfig`), or None."""
    module, _, name = full_name.rpartition(".")
    if module.partition(".")[0] in PACKAGES:
        return ClassSource(full_name=full_name)
    other = find_module(document, module) if module and depth else None
    return None if other is None else find_class(other, ast.Name(name, ast.Load()), depth - 1)


def walk_bases(source: ClassSource | None, depth: int = _MAX_DEPTH) -> Iterator[ClassSource | None]:
    """Yield a class and all its base classes, derived classes first; None stands for a class that is not found."""
    yield source
    if source is None or source.module is None or source.definition is None:
        return
    for base in source.definition.bases:
        if not (isinstance(base, ast.Name) and base.id in ("object", "ABC")):
            yield from walk_bases(find_class(source.module, base) if depth else None, depth - 1)


def find_package_class(source: ClassSource | None, package_classes: Mapping[str, Collection[str]]) -> str:
    """Return the name of the first of some packages' classes among a class and its bases, or an empty string."""
    names = (item for item in walk_bases(source) if item is not None and item.definition is None)
    return next((item.name for item in names if item.name in package_classes.get(item.package, ())), "")
