"""Packages that replace the trainers of a Python file: the program that imports the file imports them before it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL

_IMPORT: Final = rb"^[ \t]*(?:from[ \t]+(?:[\w.]*\.)?%s(?:\.\w+)*[ \t]+import\b|import[ \t]+(?:[\w.]*\.)?%s\b)"
"""An import of a module, or from it; at the start of a line."""


def replacing(path: str, index: RepositoryIndex, packages: Iterable[str]) -> str:
    """The one among some packages that the programs which import a Python file import before it; empty where there is
    none.
    """
    module = os.path.splitext(os.path.basename(path))[0]
    importing, own = _importing(module), regular_files.tidy(os.path.abspath(path))
    for package in packages:
        first = _importing(package)
        for program in index.pythons_having((package,), module):
            if program == own:
                continue
            text = regular_files.read(program)[:MAX_SMALL]
            ours, theirs = importing.search(text), first.search(text)
            if ours is not None and theirs is not None and theirs.start() < ours.start():
                return package
    return ""


def _importing(module: str) -> re.Pattern[bytes]:
    name = re.escape(os.fsencode(module))
    return re.compile(_IMPORT % (name, name), re.MULTILINE)
