"""How messages name and count several things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few of some names, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, what: str) -> str:
    """A number of things: `1 file`, `2 files`; "info" has no plural."""
    return f"{count} {what}" if count == 1 or what == "info" else f"{count} {what}s"


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return `did you mean X?` with the known name that looks most like a word, or `otherwise` if none does.

    `cutoff`: how much alike they have to be, up to 1.
    """
    from difflib import get_close_matches  # only where a name is wrong

    near = get_close_matches(word, list(known), 1, cutoff)
    return f"did you mean {near[0]}?" if near else otherwise
