"""Imports: the Python files that a program imports, directly or through others.

Files are read as text and never run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import PythonSources
from cfglint_train.repository.index import RepositoryIndex

MAX_FILES: Final = 500
MAX_BYTES: Final = 4 * 2**20
"""Total size limit in bytes of the files followed from one program; its parser is usually in one of the first."""

_FROM: Final = compile_on_use(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*|[^\n;#]*)", re.MULTILINE)
_IMPORT: Final = compile_on_use(r"^[ \t]*import[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE)
_NAME: Final = compile_on_use(r"(\w+)(?:\s+as\s+\w+)?")


class ImportGraph:
    """A cache of the files that a repository's programs import, directly or through others."""

    def __init__(self, index: RepositoryIndex) -> None:
        """Create an empty cache for a repository."""
        self._index = index
        self._reached: dict[str, frozenset[str]] = {}
        self._direct: dict[str, tuple[str, ...]] = {}

    def find_imports(self, program: str) -> frozenset[str]:
        """Return the program and the files that it imports, directly or through others, as absolute paths with `/`.

        The result is incomplete beyond `MAX_FILES` files or `MAX_BYTES` bytes.
        """
        start = regular_files.normalize_path(os.path.abspath(program))
        if start not in self._reached:
            self._reached[start] = frozenset(self._follow(start))
        return self._reached[start]

    def _follow(self, start: str) -> Iterator[str]:
        files, seen, waiting, budget = self._index.compute_once(PythonSources), {start}, [start], MAX_BYTES
        while waiting and len(seen) <= MAX_FILES:
            path = waiting.pop(0)
            text = files.read_source(path)
            budget -= len(text)
            if budget < 0:
                return
            yield path
            for imported in self._find_direct_imports(path, text):
                if imported not in seen:
                    seen.add(imported)
                    waiting.append(imported)

    def _find_direct_imports(self, path: str, text: str) -> tuple[str, ...]:
        """Return the files that a file imports directly."""
        if path not in self._direct:
            paths = (
                self._resolve_module(path, folder, module)
                for folder, module in dict.fromkeys(_list_modules(path, text))
            )
            self._direct[path] = tuple(file for file in dict.fromkeys(paths) if file is not None)
        return self._direct[path]

    def _resolve_module(self, importer: str, folder: str, module: str) -> str | None:
        """Return the module's file in `folder` (if empty, the file of that name nearest to the importer), or None."""
        *before, last = module.split("/")
        for tail in (f"{last}.py", f"{last}/__init__.py"):
            full_tail = "/".join((*before, tail))
            candidates = list(self._index.find_by_name(full_tail))
            if folder:
                candidates = [path for path in candidates if path == f"{folder}/{full_tail}"]
            if candidates:
                return max(candidates, key=lambda path: (len(os.path.commonpath((path, importer))), -len(path)))
        return None


def _list_modules(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file may import: the folder of a relative import (else empty), and the path below it."""
    for statement in _IMPORT.finditer(text):
        yield from (("", name.strip().replace(".", "/")) for name in statement[1].split(","))
    for statement in _FROM.finditer(text):
        folder, module = "", statement[2].replace(".", "/")
        if statement[1]:
            folder = path
            for _ in statement[1]:
                folder = os.path.dirname(folder)
        names = (match[1] for match in _NAME.finditer(statement[3]))
        if module:
            yield folder, module
        yield from ((folder, f"{module}/{name}" if module else name) for name in names if folder or module)
