"""Wording of messages: lists, counts and suggestions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def join_names(names: Sequence[str], limit: int = 3) -> str:
    """Join the first `limit` names and add the number of others: `a, b, c and 2 more`."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun: `1 file`, `2 files`; "info" has no plural."""
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"


def find_similar(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name most similar to `word`, or None; `cutoff` is the minimum similarity, from 0 to 1."""
    from difflib import get_close_matches  # needed only for a wrong name

    return next(iter(get_close_matches(word, list(names), 1, cutoff)), None)


def suggest_name(word: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return `did you mean X?` with the name that `find_similar` finds, or `otherwise` if it finds none."""
    similar = find_similar(word, names, cutoff)
    return otherwise if similar is None else f"did you mean {similar}?"
