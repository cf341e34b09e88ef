"""Memory fixes: the changes that `cfglint fit` makes."""

from __future__ import annotations

from cfglint_train.findings.finding import Fix
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def find_remedy_with(run: Run, field: Field) -> tuple[Fix | None, str | None]:
    """Return the smallest change with which the step fits if it includes the field, as a remedy of a rule."""
    from cfglint_train.fitting.smallest import find_smallest  # imports the fixer, needed only if something is wrong

    solution = find_smallest(run)
    return solution.fix if solution is not None and field in solution.changes else None, None
