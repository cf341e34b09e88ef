"""Sizes: formatting of bytes and parameter counts for messages."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final

MIB: Final = 2**20
GIB: Final = 2**30


def format_gib(size: float) -> str:
    """Format bytes as GiB, with fewer decimals for larger sizes: 0.93 GiB, 73.2 GiB, 819 GiB."""
    value = size / GIB
    if value >= 100:
        return f"{value:,.0f} GiB"
    return f"{value:.1f} GiB" if value >= 1 else f"{value:.2f} GiB"


def format_parameters(count: int) -> str:
    """Format a parameter count with three significant digits: 494 M, 8.03 B, 671 B, 1.03 T."""
    for unit, scale in (("M", 1e6), ("B", 1e9)):
        if count / scale < 999.5:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e12:.3g} T"
