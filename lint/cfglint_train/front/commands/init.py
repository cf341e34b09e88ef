"""`cfglint init [FOLDER]`: set up settings, hook and workflow for a repository, after showing them."""

from __future__ import annotations

import os
import sys
from functools import cache

from cfglint_train.front.commands.outcome import CLEAN, FINDINGS
from cfglint_train.front.commands.output import print_lines, print_remarks, sanitize
from cfglint_train.front.commands.parser import Parser


def init(argv: list[str]) -> int:
    """Set up a repository and return the exit code."""
    description = "Set up a repository: settings, pre-commit hook, workflow. Nothing is overwritten."
    parser = Parser(prog="cfglint init", description=description)
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="FOLDER", help="the repository, or a folder in it (default: .)"
    )
    confirmation = parser.add_mutually_exclusive_group()
    confirmation.add_argument("-y", "--yes", action="store_true", help="write without asking")
    confirmation.add_argument("--diff", action="store_true", help="show what would be written; write nothing")
    parser.add_argument("--no-pre-commit", dest="hook", action="store_false", help="do not add a pre-commit hook")
    parser.add_argument("--no-workflow", dest="workflow", action="store_false", help="do not add a GitHub workflow")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        help="install source for hook and workflow: git+https://..., https://....whl or ==X.Y.Z "
        "(default: the source of this copy)",
    )
    parser.add_argument(
        "--no-check-source",
        dest="check",
        action="store_false",
        help="do not check with pip that cfglint can be installed from there",
    )
    options = parser.parse_args(argv)
    if not os.path.isdir(options.folder):
        from cfglint_train.foundation.errors import UsageError

        raise UsageError(f"{options.folder} is not a folder")
    from cfglint_train.front.init import changes, questions, source
    from cfglint_train.front.init.survey import survey_repository

    repository_survey = survey_repository(options.folder)
    interactive = not options.yes and not options.diff and sys.stdin.isatty()
    answers = questions.ask_questions(repository_survey, _ask) if interactive else questions.Answers()

    @cache
    def resolve_requirement() -> str:
        resolved = source.build_requirement(options.source)
        if options.check and resolved != source.PLACEHOLDER:
            source.check_installable(resolved)
            resolved = source.pin_commit(resolved)
        return resolved

    proposal = changes.plan_changes(
        repository_survey, answers, resolve_requirement, with_hook=options.hook, with_workflow=options.workflow
    )
    print_lines([*changes.render_summary(repository_survey, proposal), *changes.render_diff(proposal)])
    print_remarks(
        sanitize(line) for change in proposal.changes for line in source.explain_placeholders(change.path, change.after)
    )
    question = f"Write {len(proposal.changes)} files below {proposal.root}?"
    if proposal.changes and not options.yes and (options.diff or not _confirm(question)):
        print_remarks(["nothing was written"])
        return FINDINGS
    if not options.diff:
        changes.write_changes(proposal)
    print_lines(f"wrote {sanitize(change.path)}" for change in proposal.changes)
    return CLEAN


def _confirm(question: str) -> bool:
    return _ask(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _ask(question: str) -> str:
    """Ask on standard error, so that standard output contains only the diff."""
    print(sanitize(question), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()
