"""`cfglint migrate --to openrlhf=0.11.2 PATH...`: arguments in, exit code out.

Exit codes: 0 nothing is left to do, 1 something needs a human (or, with --check or --diff, would change), 2
wrong usage, or a file that could not be read or written.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from cfglint_train.foundation.errors import UsageError
from cfglint_train.front.commands.output import print_lines, print_remarks
from cfglint_train.front.commands.parser import Parser, add_output_format
from cfglint_train.reports.escape import escape_line_start


def _build_parser() -> ArgumentParser:
    parser = Parser(
        prog="cfglint migrate",
        description="Rewrite configurations for another release of their framework.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders")
    parser.add_argument(
        "--to", action="append", required=True, metavar="NAME=RELEASE",
        help="openrlhf=0.11.2, axolotl=0.21.0, transformers=5.6.0 (for LLaMA-Factory); a name alone: its newest",
    )  # fmt: skip
    parser.add_argument(
        "--from", action="append", default=[], dest="start", metavar="NAME=RELEASE",
        help="the release that the files are for (default: from pragmas, settings, requirements files and keys)",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")
    add_output_format(parser, ("text", "json"))
    parser.add_argument("--config", metavar="FILE", help="settings file (default: the nearest one)")
    parser.add_argument("--isolated", action="store_true", help="ignore all settings files")
    return parser


def migrate(argv: list[str]) -> int:
    """Migrate files and return the exit code. Raise UsageError and OSError."""
    options = _build_parser().parse_args(argv)
    if options.diff and options.output_format == "json":
        raise UsageError("--diff does not work with --output-format json")
    from cfglint_train import api
    from cfglint_train.fixing.loop import FixOutcome
    from cfglint_train.fixing.write import UnwrittenFile, write_sources
    from cfglint_train.front.migrate import report, rewrite
    from cfglint_train.front.migrate.goal import parse_goal
    from cfglint_train.judging.result import Result
    from cfglint_train.judging.selection import build_settings_resolver
    from cfglint_train.reports import diff
    from cfglint_train.runs.statements import CommandLine
    from cfglint_train.runs.workspace import Workspace

    target = parse_goal(options.to, options.start)
    settings = api.settings(api.Options(config=options.config, isolated=options.isolated))
    resolver = build_settings_resolver(settings if options.config or options.isolated else None)
    paths = Workspace(resolver, CommandLine()).collect(options.paths)
    outcome = rewrite.migrate(paths, target, resolver)
    preview = FixOutcome(
        {file.path: file.source for file in outcome.files if file.has_changes},
        {file.path: file.original.source for file in outcome.files},
        (),
        (),
        Result((), (), (), (), (), outcome.secrets),
    )
    failures: list[UnwrittenFile] = []
    is_dry_run = options.check or options.diff
    if options.diff:
        print_lines(diff.build_diff(preview).lines)
    elif not is_dry_run:
        failures = write_sources(preview)
    stream = sys.stderr if options.diff else sys.stdout
    if options.output_format == "json":
        print_lines([report.render_json(outcome, target, written=not is_dry_run)], stream)
    else:
        print_lines(report.render_text(outcome, target, written=not is_dry_run), stream)
    for failure in failures:
        print_remarks([escape_line_start(f"error: {failure.path}: not written: {failure.reason}")])
    for trouble in outcome.troubles:
        position = "" if trouble.position is None else f":{trouble.position.line}:{trouble.position.column}"
        print_remarks([escape_line_start(f"error: {trouble.path}{position}: {trouble.message}")])
    if failures or outcome.troubles:
        return 2
    if not outcome.files:
        print("no configuration of these frameworks in the given paths", file=sys.stderr)
        return 2
    is_incomplete = any(item.kind == "human" for file in outcome.files for item in file.items) or bool(outcome.hints)
    return 1 if is_incomplete or (is_dry_run and preview.sources) else 0
