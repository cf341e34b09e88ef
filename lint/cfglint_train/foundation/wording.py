"""How messages name and count several things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def join_names(names: Sequence[str], limit: int = 3) -> str:
    """The first few of some names, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def format_count(count: int, noun: str) -> str:
    """A number of things: `1 file`, `2 files`; "info" has no plural."""
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"


def suggest_name(word: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return `did you mean X?` with the known name that looks most like a word, or `otherwise` if none does.

    `cutoff`: how much alike they have to be, up to 1.
    """
    from difflib import get_close_matches  # only where a name is wrong

    matches = get_close_matches(word, list(names), 1, cutoff)
    return f"did you mean {matches[0]}?" if matches else otherwise
