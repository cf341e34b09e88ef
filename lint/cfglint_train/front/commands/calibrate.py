"""`cfglint calibrate`: the estimates against measurements, and measured rows filed.

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
from cfglint_train.front.commands.output import put
from cfglint_train.front.commands.parser import Parser, add_output_format

Answer = tuple[int, Iterator[str]]
"""Exit code and lines."""


class _Parser(Parser):
    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description)


def calibrate(argv: list[str]) -> int:
    """Run the command. Raises UsageError and OSError."""
    code, lines = _answer(argv)
    put(lines)
    return code


def _answer(arguments: list[str]) -> Answer:
    main = _Parser("cfglint calibrate", str(__doc__))
    main.add_argument("command", choices=tuple(_COMMANDS), help="what to do")
    found = main.parse_args(arguments[:1])
    return _COMMANDS[found.command](arguments[1:])


def _report(arguments: list[str]) -> Answer:
    own = _Parser("cfglint calibrate report", "Estimates beside measurements.")
    own.add_argument("--rows", metavar="FILE", help="rows as JSON lines (default: the published rows of a clone)")
    add_output_format(own, ("text", "json", "markdown"))
    own.add_argument("-v", "--verbose", action="store_true", help="every row, and those that are left out")
    own.add_argument("--no-peers", action="store_true", help="leave out other estimators")
    options = own.parse_args(arguments)
    from cfglint_train.calibration import report
    from cfglint_train.calibration.compare import compare
    from cfglint_train.calibration.rows import PACKAGED, read

    rows = list(read(options.rows or _of_clone(PACKAGED, "--rows")))
    compared = list(compare(rows)) if options.rows else [*report.packaged(), *report.measured()]
    others = None
    if not options.no_peers:
        from cfglint_train.calibration import peers

        others = peers.compared(rows, compared)
    if options.output_format == "markdown":
        return 0, _markdown(report, compared, others)
    if options.output_format == "json":
        return 0, iter([json.dumps(report.document(compared, others), indent=1, allow_nan=False)])
    return 0, _text(report, compared, others, options)


def _of_clone(path: str, flag: str) -> str:
    """Return a path among the measurements. Raises UsageError in a regular installation, which has none."""
    if not os.path.isdir(os.path.dirname(path)):
        raise UsageError(f"measurements are not installed; use `pip install -e .` in a clone, or {flag}")
    return path


def _text(report: Any, compared: list[Any], others: dict[str, Any] | None, options: Namespace) -> Iterator[str]:
    yield from report.lines(compared, options.verbose)
    if others is None:
        return
    yield ""
    yield "other estimators on the rows that they have an answer for"
    from cfglint_train.calibration import peers

    yield from peers.lines(others)


def _markdown(report: Any, compared: list[Any], others: dict[str, Any] | None) -> Iterator[str]:
    yield from report.markdown(compared)
    if others is not None:
        from cfglint_train.calibration import peers

        yield from peers.markdown(others)


def _add(arguments: list[str]) -> Answer:
    own = _Parser("cfglint calibrate add", "Check measured rows and file them.")
    own.add_argument("rows", nargs="+", metavar="ROWS.jsonl")
    own.add_argument("--into", metavar="FOLDER", help="where to (default: the measured rows of a clone)")
    options = own.parse_args(arguments)
    from cfglint_train.calibration import measurements
    from cfglint_train.calibration.rows import MEASURED, Unreadable, read

    good: list[dict[str, Any]] = []
    lines: list[str] = []
    told: list[str] = []
    for path in options.rows:
        for row in read(path):
            if isinstance(row, Unreadable):
                lines.append(f"{path}:{row.line}: {row.reason}")
                continue
            found = list(measurements.problems(row.content))
            if found:
                lines.append(f"{path}: {row.id}: {'; '.join(found)}")
            else:
                good.append(dict(row.content))
    if good:
        filed = measurements.file(good, options.into or _of_clone(MEASURED, "--into"))
        told = [f"{one.path}: {one.added} added, {one.there} there already" for one in filed]
    elif not lines:
        raise UsageError("no rows in these files")
    return (1 if lines else 0), iter([*lines, *told])


_COMMANDS: Final[dict[str, Callable[[list[str]], Answer]]] = {"report": _report, "add": _add}
