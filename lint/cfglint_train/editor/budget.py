"""The memory budget above the settings that decide it: one line per run, and one per size."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.editor.hover import SIZES, describe_largest
from cfglint_train.editor.session import Check
from cfglint_train.fitting import places
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Literal
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.reports.answer import format_answer
from cfglint_train.runs.run import Run


class BudgetLine(Frozen):
    """A line about the memory of a run, to be shown above a place."""

    place: Place
    text: str
    command: Literal["report", "fit"] | None
    """Command that the line starts: the HTML report, or the smallest change that fits."""


def list_budget_lines(check: Check) -> Iterator[BudgetLine]:
    """Yield the lines for the runs whose main config is in the checked document."""
    for run in check.runs:
        if run.main.document.path != check.path or places.find_worst(run) is None:
            continue
        shown = places.choose_worse(run)
        top = run.main.find_top()
        yield BudgetLine(top, format_answer(shown), "report")
        worst = places.find_worst(shown)
        if worst is not None and places.is_lacking_room(worst):
            yield BudgetLine(top, "fit", "fit")
        for field in SIZES:
            yield from _describe_size(run, shown, field)


def _describe_size(run: Run, shown: Run, field: Field) -> Iterator[BudgetLine]:
    """Yield the line above the setting of a size in the main config; `shown` may have misspelled keys corrected."""
    value = run.resolved_plan.values.get(field)
    if value is None or not value.value or value.origin.kind != "explicit" or value.origin.place is None:
        return
    if value.origin.place.document is run.main.document:
        peak = places.judge_place(shown, "gpu")
        size = () if peak is None else (format_gib(peak.budget.expected),)
        text = "; ".join((*size, *describe_largest(shown, field, value)))
        if text:
            yield BudgetLine(value.origin.place, text, None)
