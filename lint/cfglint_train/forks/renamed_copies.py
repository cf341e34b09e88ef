"""Renamed copies: packages in the repository that a program imports instead of a framework."""

from __future__ import annotations

import os

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.registry import FrameworkManifest, SourceLayout
from cfglint_train.mutations.fillers import PythonSources
from cfglint_train.repository.index import RepositoryIndex

_IMPORT: Final = compile_on_use(r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+)")


def find_renamed_copy(file: str, index: RepositoryIndex, manifest: FrameworkManifest) -> tuple[str, str] | None:
    """Return the parent folder and the name of the renamed copy that a program imports.

    Return None if the program imports the framework itself or does not import a copy of it.
    """
    assert manifest.layout is not None
    names = _list_imports(file, index)
    if not names.keys().isdisjoint(manifest.layout.packages):
        return None
    return next(
        (
            (root, name)
            for name in names
            for root in index.find_parent_folders(name)
            if _is_renamed_copy(root, name, manifest.layout)
        ),
        None,
    )


def has_other_package(file: str, index: RepositoryIndex, manifest: FrameworkManifest) -> bool:
    """Return whether a program imports a package in the repository but never the framework, not even indirectly."""
    assert manifest.layout is not None
    if not any(index.find_parent_folders(name) for name in _list_imports(file, index)):
        return False
    from cfglint_train.mutations.imported import ImportGraph

    packages = {*manifest.layout.packages}
    return all(
        packages.isdisjoint(_list_imports(file_path, index))
        for file_path in index.compute_once(ImportGraph).find_imports(file)
    )


def resolve_program(program: str, script: str, index: RepositoryIndex) -> str | None:
    """Return the path of a program that a script starts, or None if it is not in the repository."""
    sibling = regular_files.normalize_path(os.path.join(os.path.dirname(os.path.abspath(script)), program))
    return (
        sibling if sibling in index.find_by_name(os.path.basename(program)) else index.find_by_suffix(program, script)
    )


def _list_imports(file: str, index: RepositoryIndex) -> dict[str, None]:
    """Return the top-level packages that a file imports, in order."""
    return dict.fromkeys(_IMPORT.findall(index.compute_once(PythonSources).read_source(file)))


def _is_renamed_copy(root: str, name: str, tree: SourceLayout) -> bool:
    """Return whether a package has more than half of the files that identify the framework."""
    for package in tree.packages:
        tails = [mark.removeprefix(package) for mark in tree.marks if mark.startswith(f"{package}/")]
        if 2 * sum(filesystem.exists(f"{root}/{name}{tail}") for tail in tails) > len(tails):
            return True
    return False
