"""The hash by which GitHub code scanning recognizes a line: `primaryLocationLineHash`.

GitHub's upload action computes this hash and compares it with cfglint's; uploads through the API must contain it.
Source: github/codeql-action `src/fingerprints.ts`: a polynomial over the 100 UTF-16 units from the start of the line,
in 64 bits, with a count of equal hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from cfglint_train.foundation.typed import Final

_WINDOW: Final = 100
_BASE: Final = 37
_END: Final = "\uffff"


def compute_line_hashes(text: str, line_numbers: Collection[int]) -> Mapping[int, str]:
    """Return the hash of each line in `line_numbers`, which count from 1; lines beyond the text are omitted."""
    # Normalize as the reference does: no blanks, one unit per line ending, an end mark.
    stripped = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    units = (stripped if stripped.isascii() else _convert_to_utf16(stripped)) + _END
    last = max(line_numbers, default=0)
    seen: Counter[str] = Counter()
    hashes: dict[int, str] = {}
    start = 0
    for number in range(1, last + 1):
        window = units[start : start + _WINDOW]
        seen[window] += 1
        if number in line_numbers:
            hashes[number] = f"{_hash_window(window):x}:{seen[window]}"
        start = units.find("\n", start) + 1
        if not start:
            break
    return hashes


def _convert_to_utf16(text: str) -> str:
    """Return the UTF-16 code units of `text` as characters."""
    return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))


def _hash_window(window: str) -> int:
    value = 0
    for unit in window:
        value = (value * _BASE + ord(unit)) % 2**64
    return value * pow(_BASE, _WINDOW - len(window), 2**64) % 2**64
