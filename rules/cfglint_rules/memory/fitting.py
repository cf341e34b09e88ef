"""Memory fixes: the moves that `cfglint fit` makes."""

from __future__ import annotations

from cfglint_train.findings.finding import Fix
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def find_remedy_with(run: Run, field: Field) -> tuple[Fix | None, str | None]:
    """The remedy of a rule about one field: the smallest change with which the step fits, where the field is in it."""
    from cfglint_train.fitting.smallest import find_smallest  # with the fixer, and only where something is wrong

    solution = find_smallest(run)
    return solution.fix if solution is not None and field in solution.changes else None, None
