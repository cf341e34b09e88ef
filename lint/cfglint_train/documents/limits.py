"""Limits on the size of a file; cfglint refuses a file that exceeds a limit and names the position of the excess.

The largest known configurations have 312 kB, 2,800 lines and 2,800 values (a data mix of OLMo), and 213 keys (a dump of
OLMo-core).
"""

from __future__ import annotations

from cfglint_train.documents.document import DocumentError, Position
from cfglint_train.foundation.typed import Final

MAX_LINES: Final = 100_000
"""Maximum number of lines of a file, which also bounds its comments and commands."""
MAX_LINES_OF_CODE: Final = 20_000
"""Maximum lines of a script: a line of code costs more than a line of data."""
MAX_NODES: Final = 50_000
"""Maximum keys, values, lists and mappings of a text. The target of an alias counts at every use."""
MAX_KEYS: Final = 10_000
"""Maximum keys of a text: each is checked against every release of its framework."""
MAX_WORDS: Final = 3_000
"""Maximum words of a command."""
MAX_SLOW_BYTES: Final = 512 << 10
"""Maximum bytes of a YAML text that PyYAML's pure-Python scanner reads; it reads this many in about a second."""
MAX_DEPTH: Final = 100
"""Maximum nesting depth of lists and mappings."""

_CODE: Final = ("python", "shell")


class LimitExceeded(DocumentError):
    """Error for a file or script that exceeds a limit but may be valid otherwise."""


def check_lines(source: bytes, syntax: str) -> None:
    """Raise `LimitExceeded` if a file has too many lines for its syntax."""
    limit = MAX_LINES_OF_CODE if syntax in _CODE else MAX_LINES
    if max(source.count(b"\n"), source.count(b"\r")) > limit:
        raise LimitExceeded(f"more than {limit:,} lines", Position(limit + 1, 1))
