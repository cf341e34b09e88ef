"""`cfglint calibrate`: compare estimates with measurements, and record your own runs.

record CONFIG LOG [--gpu NAME]         add the peak of your own run; three of them narrow its intervals
report [--rows FILE] [--output-format json]   the error table over published rows (or measured ones)
add ROWS.jsonl                         check rows that the harness wrote, and file them
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterator

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.front.commands.options import build_options
from cfglint_train.front.commands.output import print_lines
from cfglint_train.front.commands.parser import Parser, add_cluster, add_model, add_output_format, add_settings

Outcome = tuple[int, Iterator[str]]
"""Exit code and lines of output."""


class _Parser(Parser):
    """A parser with a program name and a description."""

    def __init__(self, prog: str, description: str) -> None:
        """Create a parser with a program name and a description."""
        super().__init__(prog, description=description)


def calibrate(argv: list[str]) -> int:
    """Run the command and return the exit code. Raise UsageError and OSError."""
    code, lines = _run_subcommand(argv)
    print_lines(lines)
    return code


def _run_subcommand(arguments: list[str]) -> Outcome:
    main = _Parser("cfglint calibrate", str(__doc__))
    main.add_argument("command", choices=tuple(_SUBCOMMANDS), help="what to run")
    options = main.parse_args(arguments[:1])
    return _SUBCOMMANDS[options.command](arguments[1:])


def _report_errors(arguments: list[str]) -> Outcome:
    parser = _Parser("cfglint calibrate report", "Compare estimates with measurements.")
    parser.add_argument("--rows", metavar="FILE", help="rows in JSON Lines (default: the published rows in a clone)")
    add_output_format(parser, ("text", "json", "markdown"))
    parser.add_argument("-v", "--verbose", action="store_true", help="also list every row, and the rows left out")
    parser.add_argument("--no-peers", action="store_true", help="do not compare with other estimators")
    options = parser.parse_args(arguments)
    from cfglint_train.calibration import report
    from cfglint_train.calibration.compare import compare
    from cfglint_train.calibration.rows import PUBLISHED_ROWS, read_rows

    rows = list(read_rows(options.rows or _require_clone(PUBLISHED_ROWS, "--rows")))
    compared = list(compare(rows)) if options.rows else [*report.compare_published(), *report.compare_measured()]
    peer_errors = None
    if not options.no_peers:
        from cfglint_train.calibration import peers

        peer_errors = peers.compare_peers(rows, compared)
    if options.output_format == "markdown":
        return 0, _render_markdown(report, compared, peer_errors)
    if options.output_format == "json":
        return 0, iter([json.dumps(report.build_report(compared, peer_errors), indent=1, allow_nan=False)])
    return 0, _render_text(report, compared, peer_errors, options)


def _require_clone(path: str, flag: str) -> str:
    """Return the path of measurements. Raise UsageError in a regular installation, which does not contain them."""
    if not os.path.isdir(os.path.dirname(path)):
        raise UsageError(f"measurements are not installed; use `pip install -e .` in a clone, or {flag}")
    return path


def _render_text(
    report: Any, compared: list[Any], peer_errors: dict[str, Any] | None, options: Namespace
) -> Iterator[str]:
    yield from report.render_text(compared, options.verbose)
    if peer_errors is None:
        return
    yield ""
    yield "other estimators on the rows that they can estimate"
    from cfglint_train.calibration import peers

    yield from peers.render_peers(peer_errors)


def _render_markdown(report: Any, compared: list[Any], peer_errors: dict[str, Any] | None) -> Iterator[str]:
    yield from report.render_markdown(compared)
    if peer_errors is not None:
        from cfglint_train.calibration import peers

        yield from peers.render_peers_markdown(peer_errors)


def _add_rows(arguments: list[str]) -> Outcome:
    parser = _Parser("cfglint calibrate add", "Check measured rows and add them to a clone.")
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl")
    parser.add_argument("--into", metavar="FOLDER", help="folder to write to (default: the measured rows in a clone)")
    options = parser.parse_args(arguments)
    from cfglint_train.calibration import measurements
    from cfglint_train.calibration.rows import MEASURED_FOLDER, Unreadable, read_rows

    valid_rows: list[dict[str, Any]] = []
    lines: list[str] = []
    summary: list[str] = []
    for path in options.rows:
        for row in read_rows(path):
            if isinstance(row, Unreadable):
                lines.append(f"{path}:{row.line}: {row.reason}")
                continue
            problems = list(measurements.find_problems(row.content))
            if problems:
                lines.append(f"{path}: {row.id}: {'; '.join(problems)}")
            else:
                valid_rows.append(dict(row.content))
    if valid_rows:
        filed = measurements.store_rows(valid_rows, options.into or _require_clone(MEASURED_FOLDER, "--into"))
        summary = [f"{file.path}: {file.added} added, {file.existing} already there" for file in filed]
    elif not lines:
        raise UsageError("no rows in these files")
    return (1 if lines else 0), iter([*lines, *summary])


_ABOUT_RECORD = """\
Add the peak memory of a run of yours to the measurements of its repository. Three different runs narrow the intervals
of comparable runs. Only plan fields, dimensions and bytes are written: no path, no name. Nothing is uploaded.
A sequence length in --set is that of the run's longest sample. This matters if samples are neither packed nor padded.
Exit codes: 0 recorded, 2 wrong usage, or a run or log that is no evidence (nothing is written)."""


def _record_run(arguments: list[str]) -> Outcome:
    parser = _Parser("cfglint calibrate record", _ABOUT_RECORD)
    parser.add_argument("run", metavar="CONFIG", help="the configuration of the run")
    parser.add_argument("log", metavar="LOG", help="its log, trainer_state.json or train_results.json")
    parser.add_argument("--to", metavar="FILE", help="file to add to (default: .cfglint/measurements.jsonl)")
    add_cluster(parser)
    add_model(parser)
    add_settings(parser)
    parser.set_defaults(select=None, ignore=None)
    options = parser.parse_args(arguments)
    from cfglint_train import api
    from cfglint_train.calibration import record
    from cfglint_train.calibration.logs import read_figures
    from cfglint_train.foundation.roots import Roots
    from cfglint_train.front.commands.estimation import estimate_only_run

    lint_options = build_options(options)
    figures = read_figures(options.log)
    run = estimate_only_run(options.run, lint_options)
    path = options.to
    if path is None:
        path = api.settings(lint_options, options.run).find_measurements(options.run, Roots())
        if path is None:
            raise UsageError("--isolated ignores the settings; say where to write with --to")
    return 0, record.format_recorded(record.record(run, figures, path))


_SUBCOMMANDS: Final[dict[str, Callable[[list[str]], Outcome]]] = {
    "record": _record_run,
    "report": _report_errors,
    "add": _add_rows,
}
