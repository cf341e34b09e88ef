"""How much of one file is read: a text beyond a limit is refused at once, at the place where it goes beyond.

The largest configurations that are known have 312 kB, 2,800 lines and 2,800 values (a data mix of OLMo), and 213 keys
(a dump of OLMo-core).
"""

from __future__ import annotations

from cfglint_train.documents.document import DocumentError, Position
from cfglint_train.foundation.typed import Final

MAX_LINES: Final = 100_000
"""Lines of one text, which bounds its comments and commands, too."""
MAX_LINES_OF_CODE: Final = 20_000
"""Lines of a script: each costs more than a line of data."""
MAX_NODES: Final = 50_000
"""Keys, values, lists and mappings of one text; what an alias stands for counts wherever it is used."""
MAX_KEYS: Final = 10_000
"""Keys of one text: each is checked against every release of its framework."""
MAX_WORDS: Final = 3_000
"""Words of one command."""
MAX_SLOW_BYTES: Final = 512 << 10
"""Bytes of a YAML text that PyYAML's own scanner reads: it takes a second for so many."""
MAX_DEPTH: Final = 100
"""Levels of lists and mappings inside each other."""

_CODE: Final = ("python", "shell")


class LimitExceeded(DocumentError):
    """The text may be fine, but it is larger than what is read of one file."""


def check_lines(source: bytes, syntax: str) -> None:
    """Raise BeyondLimits where a text has too many lines."""
    limit = MAX_LINES_OF_CODE if syntax in _CODE else MAX_LINES
    if max(source.count(b"\n"), source.count(b"\r")) > limit:
        raise LimitExceeded(f"more than {limit:,} lines", Position(limit + 1, 1))
