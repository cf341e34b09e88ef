"""Hollow copies: a framework's project in a repository, without the package.

`.gitignore` excludes the package, or the project is a submodule that is not checked out, so its folder is empty.

The source that the project runs with cannot be determined; it may be any commit between two releases.
"""

from __future__ import annotations

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.releases.pins.requirement import match_package_name

_PROJECT_FILES: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_NAME: Final = compile_on_use(rb"(?m)^[ \t]*name[ \t]*=[ \t]*[\"']?([\w.-]+)")
_HEAD: Final = 8192
"""Number of bytes at the start of a file in which to search for a project's name."""


def read_project_names(folder: str) -> frozenset[str]:
    """Return the package names that the project files in a folder state, in lower case with hyphens."""
    names = set()
    for name in _PROJECT_FILES:
        try:
            text = regular_files.read(f"{folder}/{name}")[:_HEAD]
        except OSError:
            continue
        match = _NAME.search(text)
        if match is not None:
            names.add(match[1].decode().lower().replace("_", "-"))
    return frozenset(names)


def find_empty_folder(folder: str, package: str) -> str | None:
    """Return the name of an empty folder in `folder` that is named after a package, or None.

    A link is no such folder: git creates a real one for a submodule, and a link may leave the repository. If there
    is a `.gitmodules` file, it says what belongs into such folders.
    """
    if filesystem.exists(f"{folder}/.gitmodules"):
        return None
    try:
        named = [name for name in filesystem.list_names(folder) if match_package_name(name) == package]
        paths = {name: f"{folder}/{name}" for name in named}
        folders = (name for name, path in paths.items() if filesystem.is_folder(path) and not filesystem.is_link(path))
        return next((name for name in folders if not filesystem.list_names(paths[name])), None)
    except OSError:
        return None
