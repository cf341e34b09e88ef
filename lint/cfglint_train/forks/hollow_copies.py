"""The project of a framework in a repository whose package was left out, as by a `.gitignore`: which source it is of
cannot be determined, be it one between two releases.
"""

from __future__ import annotations

import re

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final

_PROJECT_FILES: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_NAME: Final = re.compile(rb"(?m)^[ \t]*name[ \t]*=[ \t]*[\"']?([\w.-]+)")
_HEAD: Final = 8192
"""Bytes of a file in which a project's name is looked for."""


def read_project_names(folder: str) -> frozenset[str]:
    """The packages that a folder is the project of, by the files in it."""
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
