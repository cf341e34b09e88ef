"""Settings that the Python of a repository declares: fields of its classes, options of its parsers.

A program of the repository that reads a configuration by HfArgumentParser, hydra, OmegaConf or argparse takes them. The
files are read as text and never run; copies of frameworks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Container

from cfglint_train.documents.python.syntax import declared, tree_of
from cfglint_train.mutations.fillers import MAX_FOLLOWED, Followed
from cfglint_train.repository.index import RepositoryIndex


class Declarations:
    """What the Python files of a repository declare, each parsed when it may declare what is asked for."""

    def __init__(self, index: RepositoryIndex) -> None:
        self._index = index
        self._names: dict[str, frozenset[str]] = {}

    def has(self, name: str, among: Container[str] | None = None) -> bool:
        """Whether some file declares a setting of a name; of the files that may, the first within the bound are read.

        The bound is of one name: what another one costs must not decide. `among`: only these files count.
        """
        files = self._index.once(Followed)
        spelled = sorted({name, name.replace("_", "-")})
        options = "|".join(map(re.escape, spelled))
        may = re.compile(rf"^[ \t]+{re.escape(name)}[ \t]*:|[\"']--?(?:{options})[\"']", re.MULTILINE)
        left = MAX_FOLLOWED
        words = [word for one in spelled for word in (one, f"--{one}", f"-{one}")]
        for path in dict.fromkeys(path for word in words for path in self._index.pythons_naming(word)):
            if path.startswith(files.copies) or (among is not None and path not in among):
                continue
            if may.search(files.text(path)) is None:
                continue
            left -= len(files.text(path))
            if left < 0:
                return False
            if name in self._of(path, files):
                return True
        return False

    def _of(self, path: str, files: Followed) -> frozenset[str]:
        if path not in self._names:
            self._names[path] = frozenset(name.replace("-", "_") for name, _ in declared(tree_of(files.text(path))))
        return self._names[path]
