"""Hollow copies: a framework's project in a repository, without the package, for example because of `.gitignore`.

The source that the project runs with cannot be determined; it may be any commit between two releases.
"""

from __future__ import annotations

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

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
