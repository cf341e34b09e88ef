"""Replaced trainers: packages that patch the trainers of a Python file if a program imports them first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL

_IMPORT: Final = rb"^[ \t]*(?:from[ \t]+(?:[\w.]*\.)?%s(?:\.\w+)*[ \t]+import\b|import[ \t]+(?:[\w.]*\.)?%s\b)"
"""Import of a module or of names from it, on a line without other code before it."""


def find_replacing_package(path: str, index: RepositoryIndex, packages: Iterable[str]) -> str:
    """Return the first of `packages` that a program imports before it imports a Python file, or an empty string."""
    module = os.path.splitext(os.path.basename(path))[0]
    file_import, full_path = _compile_import(module), regular_files.normalize_path(os.path.abspath(path))
    for package in packages:
        package_import = _compile_import(package)
        for program in index.find_python_using((package,), module):
            if program == full_path:
                continue
            text = regular_files.read(program)[:MAX_SMALL]
            file_match, package_match = file_import.search(text), package_import.search(text)
            if file_match is not None and package_match is not None and package_match.start() < file_match.start():
                return package
    return ""


def _compile_import(module: str) -> re.Pattern[bytes]:
    name = re.escape(os.fsencode(module))
    return re.compile(_IMPORT % (name, name), re.MULTILINE)
