"""Settings that the Python of a repository declares: fields of its classes, options of its parsers.

A program of the repository that reads a configuration by HfArgumentParser, hydra, OmegaConf or argparse takes them. The
files are read as text and never run; copies of frameworks are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.foundation.python_grammar import parsed
from cfglint_train.project.fillers import MAX_FOLLOWED, Followed
from cfglint_train.project.index import RepositoryIndex


class Declarations:
    """What the Python files of a repository declare, each parsed when one of its words is asked for."""

    def __init__(self, index: RepositoryIndex) -> None:
        self._index = index
        self._names: dict[str, frozenset[str]] = {}
        self._left = MAX_FOLLOWED

    def has(self, name: str) -> bool:
        """Whether some file declares a setting of a name."""
        files = self._index.once(Followed)
        spelled = {name, name.replace("_", "-")}
        having = dict.fromkeys(path for one in sorted(spelled) for path in self._index.pythons_naming(one))
        return any(name in self._of(path, files) for path in having if not path.startswith(files.copies))

    def _of(self, path: str, files: Followed) -> frozenset[str]:
        if path not in self._names:
            text = files.text(path)
            self._left -= len(text)
            self._names[path] = frozenset(_declared(text)) if self._left >= 0 else frozenset()
        return self._names[path]


def _declared(text: str) -> Iterator[str]:
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
            yield from (field.id for field in fields if isinstance(field, ast.Name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = (one.value for one in node.args if isinstance(one, ast.Constant))
            yield from (text.lstrip("-").replace("-", "_") for text in texts if isinstance(text, str))
