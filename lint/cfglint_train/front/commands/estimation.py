"""`cfglint estimate`: budgets of runs or of a stated plan, and their grid of what-ifs, as text, JSON or a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.reports import estimate as report
from cfglint_train.reports.json import encoded
from cfglint_train.reports.style import PLAIN, Style

if TYPE_CHECKING:
    from cfglint_train.judging.result import Result

FACTS: Final = ("nodes", "gpus_per_node", "gpu", "gpu_memory", "host_memory", "disk")
"""Flags that say what the cluster is, as argparse spells them."""


def divided(groups: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """The axes and the files among the words that are behind each `--what-if`, of which the first is an axis."""
    words: list[str] = []
    files: list[str] = []
    for first, *others in groups:
        words.append(first)
        for word in others:
            (words if "=" in word and not os.path.exists(word) else files).append(word)
    return words, files


def axes(words: Sequence[str]) -> list[Any]:
    """The axes of `--what-if`; none where it is not asked for. Raises UsageError."""
    if not words:
        return []
    from cfglint_train.whatif import grid

    return grid.axes(words)


def of_plan(path: str, options: Any, wanted: Sequence[Any], form: str) -> Iterator[str]:
    """The budget of a plan's file, with the flags that win over it. Raises UsageError and OSError."""
    from cfglint_train.models.user_config import asked
    from cfglint_train.whatif import plan_file

    facts = {name.replace("_", "-"): value for name in FACTS if (value := getattr(options, name)) is not None}
    plan = plan_file.read(path, facts, *asked(options.model_config, options.online))
    return lines([plan], wanted, form, style=style_for(options))


def style_for(options: Any) -> Style:
    """Return colours and width for the report as text: a table, which keeps to COLUMNS in a pipe, too."""
    if options.output_file is not None:
        return Style(options.color == "always")
    from cfglint_train.front.terminal import columns, style_of

    style = style_of(sys.stdout, options.color)
    return style._replace(width=columns()) if style.width is None and os.environ.get("COLUMNS") else style


def lines(
    runs: Sequence[Any], wanted: Sequence[Any], form: str, result: Result | None = None, style: Style = PLAIN
) -> Iterator[str]:
    """The report; with axes the grid of each run instead of its budget.

    A page has both, and the findings of `result`.
    """
    if form == "html":
        from cfglint_train.reports import html

        yield from html.estimate(runs, wanted, result)
        return
    if not wanted:
        yield from report.as_json(runs) if form == "json" else report.table(runs, style)
        return
    from cfglint_train.whatif import grid

    if form == "json":
        told = report.document(runs)
        for run, shown in zip(runs, told["runs"]):
            cells = list(grid.grid(run, wanted))
            shown["what_if"] = grid.document(cells)
            shown["without_effect"] = grid.without_effect(cells, wanted)
        yield encoded(told)
        return
    for run in runs:
        yield from report.opening(run, style, alone=len(runs) == 1)
        yield ""
        yield from report.wrapped(grid.table(run, wanted, style.width), style)
        yield ""
