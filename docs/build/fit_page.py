"""Table of docs/fit.md: the cost of each change, from `fitting/moves.json`."""

from __future__ import annotations

from typing import Any

from markdown_text import format_table

from cfglint_train.fitting import moves

COSTS = "<!-- costs -->"
"""Placeholder of the table on the page."""
_KINDS = {
    "keeps": "safe",
    "gives-up": "unsafe",
    "ends-resuming": "unsafe",
    "optimisation": "changes the optimisation",
}


def build_cost_table() -> str:
    """Return the table of all changes."""
    rows = moves.load_table()
    batch = rows["micro_batch"]
    halved = {"slowdown": f"{batch['slowdown_per_halving']} per halving", "kind": "keeps"}
    first = {**batch, **halved, "name": "micro batch, token budget", "field": "batch.micro"}
    head = ("change", "slowdown", "kind", "gives up", "source")
    return format_table(head, [_format_row(row) for row in (first, *rows["moves"], *rows["lengths"])])


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    slowdown = row["slowdown"] if isinstance(row["slowdown"], list) else [row["slowdown"]]
    return (
        f"{row['name']} (`{row['field']}`)",
        f"{', '.join(map(str, slowdown))}, {row['basis']}",
        _KINDS[row["kind"]],
        row["gives_up"],
        row["source"],
    )
