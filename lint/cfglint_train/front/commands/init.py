"""`cfglint init [FOLDER]`: settings, hook and workflow for a repository, shown before they are written."""

from __future__ import annotations

import os
import sys
from functools import cache

from cfglint_train.front.commands.outcome import CLEAN, FINDINGS
from cfglint_train.front.commands.output import complain, put, shown
from cfglint_train.front.commands.parser import Parser


def init(argv: list[str]) -> int:
    """`cfglint init [FOLDER]`: settings, hook and workflow for a repository, shown before they are written."""
    description = "Set up a repository: settings, pre-commit hook, workflow. Nothing that is there is overwritten."
    parser = Parser(prog="cfglint init", description=description)
    parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="in the repository (default: .)")
    asking = parser.add_mutually_exclusive_group()
    asking.add_argument("-y", "--yes", action="store_true", help="write without asking")
    asking.add_argument("--diff", action="store_true", help="show what would be written, and write nothing")
    parser.add_argument("--no-pre-commit", dest="hook", action="store_false", help="no pre-commit hook")
    parser.add_argument("--no-workflow", dest="workflow", action="store_false", help="no GitHub workflow")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        help="where hook and workflow install cfglint from: git+https://..., https://....whl or ==X.Y.Z "
        "(default: where this cfglint came from)",
    )
    parser.add_argument(
        "--no-check-source", dest="check", action="store_false", help="do not ask pip whether it can be installed"
    )
    options = parser.parse_args(argv)
    if not os.path.isdir(options.folder):
        from cfglint_train.foundation.errors import UsageError

        raise UsageError(f"{options.folder} is not a folder")
    from cfglint_train.front.init import changes, questions, source
    from cfglint_train.front.init.survey import survey

    found = survey(options.folder)
    interactive = not options.yes and not options.diff and sys.stdin.isatty()
    answers = questions.asked(found, _asked) if interactive else questions.Answers()

    @cache
    def requirement() -> str:
        wanted = source.requirement(options.source)
        if options.check and wanted != source.PLACEHOLDER:
            source.check(wanted)
            wanted = source.pinned(wanted)
        return wanted

    planned = changes.plan(found, answers, requirement, with_hook=options.hook, with_workflow=options.workflow)
    put([*changes.summary(found, planned), *changes.diff(planned)])
    complain(shown(line) for change in planned.changes for line in source.to_fill_in(change.path, change.after))
    question = f"Write {len(planned.changes)} files below {planned.root}?"
    if planned.changes and not options.yes and (options.diff or not _agreed(question)):
        complain(["nothing was written"])
        return FINDINGS
    if not options.diff:
        changes.write(planned)
    put(f"wrote {shown(change.path)}" for change in planned.changes)
    return CLEAN


def _agreed(question: str) -> bool:
    return _asked(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _asked(question: str) -> str:
    """Ask on standard error, so that a diff on standard output stays one."""
    print(shown(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
