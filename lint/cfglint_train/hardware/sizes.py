"""Memory sizes as people write them: `80GB`, `480GiB`, `1.5TB`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.foundation.typed import Final

UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
    # Slurm and Docker write a single letter for powers of two.
    **{letter: 1024**power for power, letter in enumerate("kmgtp", 1)},
}

# Compiled by `re` on first use, because most runs state no size.
_SIZE: Final = r"(?ia)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*"


class SizeError(ValueError):
    """Failure to parse a memory size; the message gives the reason."""


def parse_size(text: str) -> int:
    """Return the bytes of a size: GB is 10**9, GiB (and a single G) is 2**30. Raise SizeError if it is not a size."""
    size, _ = split_size(text)
    return size


def parse_stated_size(text: str) -> int:
    """Return the bytes of a memory size, which needs a unit and must be above zero. Raise SizeError otherwise.

    The unit is required so that `80` is not read as 80 bytes.
    """
    size, unit = split_size(text)
    if not unit:
        raise SizeError(f"{text.strip()} has no unit; write {text.strip()}GB or {text.strip()}GiB")
    if size <= 0:
        raise SizeError(f"{text!r} must be more than zero")
    return size


def split_size(text: str) -> tuple[int, str]:
    """Return the bytes of a size and its unit in lower case, empty if it has no unit. Raise SizeError."""
    match = re.fullmatch(_SIZE, text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in UNITS:
        raise SizeError(f"{text!r} is not a size; write it like 80GB, 480GiB or 1.5TB")
    whole, _, fraction = match[1].partition(".")
    if len(match[1]) > 20:
        raise SizeError(f"{text!r} is larger than any memory")
    # Use integers, because a float is exact only up to 2**53 bytes.
    digits = int((whole or "0") + fraction)
    return (digits * UNITS[unit] + 10 ** len(fraction) // 2) // 10 ** len(fraction), unit
