"""Limits on how much of one file is read; a text beyond a limit is rejected at the place where it exceeds it.

The largest known configurations have 312 kB, 2,800 lines and 2,800 values (a data mix of OLMo), and 213 keys (a dump of
OLMo-core).
"""

from __future__ import annotations

from cfglint_train.documents.document import DocumentError, Position
from cfglint_train.foundation.typed import Final

MAX_LINES: Final = 100_000
"""Lines of one text. This also bounds its comments and commands."""
MAX_LINES_OF_CODE: Final = 20_000
"""Lines of a script. A line of code costs more than a line of data."""
MAX_NODES: Final = 50_000
"""Keys, values, lists and mappings of one text. The target of an alias counts every time that it is used."""
MAX_KEYS: Final = 10_000
"""Keys of one text. Each is checked against every release of its framework."""
MAX_WORDS: Final = 3_000
"""Words of one command."""
MAX_SLOW_BYTES: Final = 512 << 10
"""Bytes of a YAML text that PyYAML's own scanner reads, which takes about a second for this many."""
MAX_DEPTH: Final = 100
"""Nesting depth of lists and mappings."""

_CODE: Final = ("python", "shell")


class LimitExceeded(DocumentError):
    """A text that exceeds a limit; it may be valid otherwise."""


def check_lines(source: bytes, syntax: str) -> None:
    """Raise `LimitExceeded` if a text has too many lines for its syntax."""
    limit = MAX_LINES_OF_CODE if syntax in _CODE else MAX_LINES
    if max(source.count(b"\n"), source.count(b"\r")) > limit:
        raise LimitExceeded(f"more than {limit:,} lines", Position(limit + 1, 1))
