"""Namesakes: modules on a program's import path that Python imports instead of an installed package.

A folder without `__init__.py` does not count, because an installed package takes precedence. The import path contains
the program's folder if it is started by file name, and the parent folder of its package if it is started as a module.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.forks.checkouts import find_package_folders, resolve_inside
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import LaunchScripts

Launches = Sequence[tuple[ShellDocument, Invocation]]


def find_namesake(program: str, launches: Launches, packages: Collection[str], root: str) -> str | None:
    """Return the first module, other than the program itself, that shadows one of the packages, or None."""
    program_path = os.path.abspath(program)
    for folder in (
        *_find_program_folder(program, launches),
        *_find_package_parents(program, launches),
        *_find_path_folders(launches, root),
    ):
        for package in packages:
            module = os.path.join(folder, package)
            if filesystem.is_file(os.path.join(module, "__init__.py")):
                return regular_files.normalize_path(module)
            if filesystem.is_file(f"{module}.py") and f"{module}.py" != program_path:
                return regular_files.normalize_path(f"{module}.py")
    return None


def find_module_launches(program: str, scripts: LaunchScripts) -> Iterator[tuple[ShellDocument, Invocation]]:
    """Yield the launches that start a program as a module of a package: `accelerate launch -m pkg.train`."""
    root = scripts.repositories.get_index(program).root
    steps = os.path.splitext(os.path.relpath(os.path.abspath(program), root))[0].split(os.sep)
    for start in range(len(steps) - 1):
        name = ".".join(steps[start:])
        for script in scripts.find_scripts_naming(name, program):
            yield from ((script, invocation) for invocation in script.invocations if invocation.program == name)


def _find_program_folder(program: str, launches: Launches) -> Iterator[str]:
    """Yield the folder of a program if it is on the program's import path."""
    folder = os.path.dirname(os.path.abspath(program))
    by_file = [launch.program.endswith(".py") for _, launch in launches]
    if any(by_file) or not (by_file or filesystem.exists(os.path.join(folder, "__init__.py"))):
        yield folder


def _find_package_parents(program: str, launches: Launches) -> Iterator[str]:
    """Yield the parent folder of the package from which a launch starts the program as a module."""
    stem = os.path.splitext(os.path.abspath(program))[0]
    for _, launch in launches:
        suffix = os.sep + launch.program.replace(".", os.sep)
        if stem.endswith(suffix):
            yield stem.removesuffix(suffix)


def _find_path_folders(launches: Launches, root: str) -> Iterator[str]:
    """Yield the folders in the repository that launches put on the import path before installed packages."""
    for script, launch in launches:
        for path, _ in find_package_folders(script, launch):
            yield from resolve_inside(path, script.path, root)
