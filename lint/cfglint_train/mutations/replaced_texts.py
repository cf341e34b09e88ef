"""Marks that scripts of a repository replace, whatever file they read: by sed, perl, `${X//A/B}`, `str.replace`,
`str.format` and Python's `%`.
"""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import Followed
from cfglint_train.repository.index import RepositoryIndex

_EXPANDED: Final = re.compile(r"\$\{\w+//?([^/{}\n]+)/")
"""What bash replaces where it inserts a variable."""
_MARK: Final = re.compile(r"(?![-+]?[\d.,_]*$)[^a-z]+|[\W_].*[\W_]")
"""Texts that look as if they stood for others: which file a script replaces them in is not asked. `sed s/true/false/`
is no evidence about every `true` of the repository, nor `sed s/8/16/` about every 8.
"""
_CONVERSION: Final = re.compile(r"(%\((\w+)\))[-#0 +\d.]*[a-z]")
"""What Python's `%` puts a value of a mapping into."""


class ReplacedTexts:
    """The marks that are replaced in a repository, each script read where a mark is in it."""

    def __init__(self, index: RepositoryIndex) -> None:
        self._index = index
        self._by_shell: dict[str, frozenset[str]] = {}
        self._known: dict[str, bool] = {}

    def has(self, text: str) -> bool:
        """Whether this is a mark, and a script replaces just it."""
        conversion = _CONVERSION.fullmatch(text)
        mark, name = (conversion[1], conversion[2]) if conversion else (text, text)
        if not _MARK.fullmatch(mark) or not mark.isprintable():
            return False
        if text not in self._known:
            self._known[text] = any(text in self._shell(path) for path in self._index.scripts_naming(text)) or any(
                mark in self._index.once(Followed).filler(path).replaced for path in self._index.pythons_naming(name)
            )
        return self._known[text]

    def _shell(self, path: str) -> frozenset[str]:
        if path not in self._by_shell:
            from cfglint_train.documents.shell.fillers import Key, edits

            text = self._index.once(Followed).text(path)
            changed = edits(path, text.encode(), bool)
            marks = {one for one in changed if isinstance(one, str) and not isinstance(one, Key)}
            expanded = (match[1].strip("\"'").replace("\\", "") for match in _EXPANDED.finditer(text))
            self._by_shell[path] = frozenset({*marks, *expanded})
        return self._by_shell[path]
