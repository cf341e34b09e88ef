"""The hash by which GitHub's code scanning recognises a line, `primaryLocationLineHash`.

GitHub's action computes it on upload, and compares it with ours; an upload through the interface behind it has to
contain it. Source: github/codeql-action `src/fingerprints.ts`: a polynomial over the 100 UTF-16 units
from the line's start, without blanks, and a number for equal ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from cfglint_train.foundation.typed import Final

_WINDOW: Final = 100
_BASE: Final = 37
_END: Final = "\uffff"


def compute_line_hashes(text: str, line_numbers: Collection[int]) -> Mapping[int, str]:
    """The hashes of some lines (numbers from 1) of a text; lines that it does not have are left out."""
    # What the reference reads: no blanks, one unit per line ending, a mark behind the last.
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
    """A text of UTF-16 code units, each as a character."""
    return "".join(map(chr, memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")))


def _hash_window(window: str) -> int:
    value = 0
    for unit in window:
        value = (value * _BASE + ord(unit)) % 2**64
    return value * pow(_BASE, _WINDOW - len(window), 2**64) % 2**64
