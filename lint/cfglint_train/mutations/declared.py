"""Declared settings: fields of classes and options of parsers in the Python files of a repository.

A program of the repository that reads a config with HfArgumentParser, Hydra, OmegaConf or argparse accepts these
settings. Files
are read as text and never run; copies of frameworks are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Container

from cfglint_train.documents.python.syntax import find_declared_settings, parse_tree
from cfglint_train.mutations.fillers import MAX_PROGRAM_BYTES, PythonSources
from cfglint_train.repository.index import RepositoryIndex


class Declarations:
    """Declarations in a repository's Python files; a file is parsed only if it may declare a requested name."""

    def __init__(self, index: RepositoryIndex) -> None:
        """Create an empty cache for a repository."""
        self._index = index
        self._names: dict[str, frozenset[str]] = {}

    def is_declared(self, name: str, allowed: Container[str] | None = None) -> bool:
        """Return whether a file declares the setting `name`; if `allowed` is set, only the files in it count.

        The search stops, with False, if the candidate files exceed `MAX_PROGRAM_BYTES` in total. The limit applies to
        each name separately, so the order of lookups does not matter.
        """
        files = self._index.compute_once(PythonSources)
        spellings = sorted({name, name.replace("_", "-")})
        options = "|".join(map(re.escape, spellings))
        pattern = re.compile(rf"^[ \t]+{re.escape(name)}[ \t]*:|[\"']--?(?:{options})[\"']", re.MULTILINE)
        budget = MAX_PROGRAM_BYTES
        words = [word for spelling in spellings for word in (spelling, f"--{spelling}", f"-{spelling}")]
        for path in dict.fromkeys(path for word in words for path in self._index.find_python_naming(word)):
            if path.startswith(files.copies) or (allowed is not None and path not in allowed):
                continue
            if pattern.search(files.read_source(path)) is None:
                continue
            budget -= len(files.read_source(path))
            if budget < 0:
                return False
            if name in self._read_names(path, files):
                return True
        return False

    def _read_names(self, path: str, files: PythonSources) -> frozenset[str]:
        if path not in self._names:
            self._names[path] = frozenset(
                name.replace("-", "_") for name, _ in find_declared_settings(parse_tree(files.read_source(path)))
            )
        return self._names[path]
