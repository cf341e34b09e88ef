"""Memory fixes for rules: the smallest change that `cfglint fit` finds."""

from __future__ import annotations

from cfglint_train.findings.finding import Fix
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def find_remedy_with(run: Run, field: Field) -> tuple[Fix | None, str | None]:
    """Return the smallest fix that makes the step fit, or None if it does not change `field`; the help is None."""
    from cfglint_train.fitting.smallest import find_smallest  # imports the fixer, needed only if something is wrong

    solution = find_smallest(run)
    return solution.fix if solution is not None and field in solution.changes else None, None
