"""Placeholders that scripts replace in any file: by sed, perl, `${X//A/B}`, `str.replace`, `str.format` or `%`."""

from __future__ import annotations

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.mutations.fillers import PythonSources
from cfglint_train.repository.index import RepositoryIndex

_EXPANDED: Final = compile_on_use(r"\$\{\w+//?([^/{}\n]+)/")
"""Pattern for text that bash replaces when it expands a variable."""
_PLACEHOLDER: Final = compile_on_use(r"(?![-+]?[\d.,_]*$)[^a-z]+|[\W_].*[\W_]")
"""Pattern for text that looks like a placeholder.

cfglint does not check which file a script edits, so ordinary text must not match: `sed s/true/false/` does not affect
every `true` in the repository, nor does `sed s/8/16/` affect every 8.
"""
_CONVERSION: Final = compile_on_use(r"(%\((\w+)\))[-#0 +\d.]*[a-z]")
"""Pattern for a conversion of Python's `%` that inserts a mapping's value."""


class ReplacedPlaceholders:
    """Placeholders that a repository's scripts replace; a script is read only if it contains a requested one."""

    def __init__(self, index: RepositoryIndex) -> None:
        """Create an empty cache for a repository."""
        self._index = index
        self._by_shell: dict[str, frozenset[str]] = {}
        self._results: dict[str, bool] = {}

    def is_replaced(self, text: str) -> bool:
        """Return whether `text` is a placeholder that a script of the repository replaces."""
        conversion = _CONVERSION.fullmatch(text) if text.startswith("%") else None
        placeholder, name = (conversion[1], conversion[2]) if conversion else (text, text)
        if not _PLACEHOLDER.fullmatch(placeholder) or not placeholder.isprintable():
            return False
        if text not in self._results:
            self._results[text] = any(
                text in self._find_shell_placeholders(path) for path in self._index.find_scripts_naming(text)
            ) or any(
                placeholder in self._index.compute_once(PythonSources).analyse_filler(path).replaced_texts
                for path in self._index.find_python_naming(name)
            )
        return self._results[text]

    def _find_shell_placeholders(self, path: str) -> frozenset[str]:
        if path not in self._by_shell:
            from cfglint_train.documents.shell.fillers import EditedKey, find_edits

            text = self._index.compute_once(PythonSources).read_source(path)
            changed = find_edits(path, text.encode(), bool)
            placeholders = {
                change for change in changed if isinstance(change, str) and not isinstance(change, EditedKey)
            }
            expanded = (match[1].strip("\"'").replace("\\", "") for match in _EXPANDED.finditer(text))
            self._by_shell[path] = frozenset({*placeholders, *expanded})
        return self._by_shell[path]
