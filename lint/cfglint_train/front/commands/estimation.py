"""Reports of `cfglint estimate`: budgets of runs or of a plan file, with what-if grids, as text, JSON or HTML."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.reports import estimate as report
from cfglint_train.reports.json import encode
from cfglint_train.reports.style import PLAIN, Style

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.judging.result import Result
    from cfglint_train.runs.run import Run
    from cfglint_train.whatif.plan_file import StatedPlan

CLUSTER_FLAGS: Final = ("nodes", "gpus_per_node", "gpu", "gpu_memory", "host_memory", "disk")
"""Flags about the cluster, as argparse spells them."""


def split_words(groups: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Separate axes from files in the words after each `--what-if`; the first word is always an axis."""
    words: list[str] = []
    files: list[str] = []
    for first, *others in groups:
        words.append(first)
        for word in others:
            (words if "=" in word and not os.path.exists(word) else files).append(word)
    return words, files


def parse_axes(words: Sequence[str]) -> list[Any]:
    """Parse the axes of `--what-if`; return an empty list if there are no words. Raise UsageError."""
    if not words:
        return []
    from cfglint_train.whatif import grid

    return grid.parse_axes(words)


def read_plan(path: str, options: Any) -> StatedPlan:
    """Return the plan in a file; the cluster flags override its facts. Raise UsageError and OSError."""
    from cfglint_train.models.user_config import load_user_config
    from cfglint_train.whatif import plan_file

    facts = {name.replace("_", "-"): value for name in CLUSTER_FLAGS if (value := getattr(options, name)) is not None}
    return plan_file.read_plan_file(path, facts, *load_user_config(options.model_config, options.online))


def estimate_only_run(path: str, options: Options) -> Run:
    """Return the run in a file. Raise UsageError if the file has none or several, or cannot be read."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.commands.output import format_troubles

    result = api.estimate([path], options).raw
    runs = list(result.runs)
    if len(runs) != 1:
        troubles = [*format_troubles(result)] or [f"{path}: {len(runs)} runs; name a file with one"]
        raise UsageError(troubles[0].removeprefix("error: "))
    return runs[0]


def choose_style(options: Any) -> Style:
    """Return the style of the text report, or that of the page, which links to the pages of rules.

    Because the text is a table, it respects COLUMNS even in a pipe.
    """
    if options.output_format == "html":
        from cfglint_train import api
        from cfglint_train.front.commands.options import build_options
        from cfglint_train.front.commands.repeated import spell_facts, spell_subject
        from cfglint_train.reports.addresses import choose_rule_pages

        pages = choose_rule_pages(api.settings(build_options(options)).rule_url)
        return Style(pages=pages, flags=spell_facts(options), subject=spell_subject(options))
    if options.output_file is not None:
        return Style(options.color == "always")
    from cfglint_train.front.terminal import detect_columns, detect_style

    style = detect_style(sys.stdout, options.color)
    return style._replace(width=detect_columns()) if style.width is None and os.environ.get("COLUMNS") else style


def render_report(
    runs: Sequence[Any],
    what_if_axes: Sequence[Any],
    output_format: str,
    result: Result | None = None,
    style: Style = PLAIN,
) -> Iterator[str]:
    """Yield the report; with axes, the grid of each run replaces its budget.

    An HTML page contains both, and the findings of `result`.
    """
    if output_format == "html":
        from cfglint_train.reports import html

        yield from html.estimate(runs, what_if_axes, result, style)
        return
    if not what_if_axes:
        yield from report.render_json(runs) if output_format == "json" else report.render_table(runs, style)
        return
    from cfglint_train.whatif import grid

    if output_format == "json":
        report_document = report.build_document(runs)
        for run, run_document in zip(runs, report_document["runs"]):
            cells = list(grid.generate_cells(run, what_if_axes))
            run_document["what_if"] = grid.build_document(cells)
            run_document["without_effect"] = grid.find_idle_axes(cells, what_if_axes)
        yield encode(report_document)
        return
    for run in runs:
        yield from report.render_opening(run, style, alone=len(runs) == 1)
        yield ""
        yield from report.wrap_lines(grid.render_table(run, what_if_axes, style.width), style)
        yield ""
