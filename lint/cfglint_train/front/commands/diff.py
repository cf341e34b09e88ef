"""`cfglint diff [BASE]`, `cfglint diff OLD NEW`: the effect of a change on each run."""

from __future__ import annotations

import os

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.front.commands.options import build_options
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE
from cfglint_train.front.commands.output import format_troubles, print_remarks, write_report
from cfglint_train.front.commands.parser import Parser, add_cluster, add_model, add_output_format, add_settings

if TYPE_CHECKING:
    from cfglint_train.api import LintResult, Options
    from cfglint_train.front.git import Repository
    from cfglint_train.records import Comparison

_ABOUT = """\
Show what a change does to each run: peaks, speed, batch, releases, plan, findings.
cfglint diff [BASE] compares a git revision with the files as they are now; the
default is where this branch left the default branch. cfglint diff OLD NEW
compares two files, also of different frameworks.
Exit codes: 0 compared, 1 a run changed (only with --exit-code), 2 wrong usage,
an unknown revision, or a file that cannot be read."""

_DEFAULT_BRANCHES: Final = ("refs/remotes/origin/HEAD", "origin/main", "origin/master", "main", "master")


def diff(argv: list[str]) -> int:
    """Print the comparison and return the exit code."""
    parser = Parser(prog="cfglint diff", description=_ABOUT)
    parser.add_argument("words", nargs="*", metavar="BASE | OLD NEW", help="a git revision, or two files")
    parser.add_argument(
        "--path", action="append", metavar="PATH", help="compare only the runs of PATH with BASE; may be repeated"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if a run changed")
    add_cluster(parser)
    add_model(parser)
    add_output_format(parser, ("text", "json", "markdown"))
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: only on a terminal"
    )
    parser.add_argument("--output-file", metavar="FILE", help="write the report to FILE")
    add_settings(parser)
    parser.set_defaults(select=None, ignore=None)
    options = parser.parse_args(argv)
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.commands.estimation import choose_style
    from cfglint_train.front.git import GitError
    from cfglint_train.reports import change

    if len(options.words) > 2 or (len(options.words) == 2 and options.path):
        raise UsageError("diff needs a revision or two files; name the paths to compare with a revision with --path")
    lint_options = build_options(options)
    if len(options.words) == 2:
        old, new = options.words
        comparison, is_complete = _compare_files(old, new, lint_options)
    else:
        try:
            comparison, is_complete = _compare_revision(options, lint_options)
        except GitError as error:
            raise UsageError(str(error)) from None
    render = {"json": change.render_json, "markdown": change.render_markdown}.get(options.output_format)
    lines = render(comparison) if render else change.render_text(comparison, choose_style(options))
    write_report(lines, options)
    if not is_complete:
        return TROUBLE
    return FINDINGS if options.exit_code and any(run.kind != "same" for run in comparison.runs) else CLEAN


def _compare_files(old: str, new: str, options: Options) -> tuple[Comparison, bool]:
    """Return the comparison of two files, and whether both could be read. Raise UsageError."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError

    for path in (old, new):
        if os.path.isdir(path):
            raise UsageError(f"{path} is a folder; name two files, or a revision and --path {path}")
        if not os.path.isfile(path):
            raise UsageError(f"{path}: no such file; to compare with a revision, name the file with --path")
    before, after = api.lint(old, options), api.lint(new, options)
    for path, result in ((old, before), (new, after)):
        print_remarks(format_troubles(result.raw))
        if not result.raw.troubles and not any(run.is_training_run for run in result.raw.runs):
            raise UsageError(f"{path}: no training run in this file")
    comparison = api.compare(before, after, is_pair=True)
    return comparison, not before.raw.troubles and not after.raw.troubles


def _compare_revision(options: Any, lint_options: Options) -> tuple[Comparison, bool]:
    """Return the comparison with a revision, and whether all files could be read. Raise GitError and UsageError."""
    from tempfile import TemporaryDirectory

    from cfglint_train import api
    from cfglint_train.foundation import regular_files
    from cfglint_train.foundation.budget import Budget
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.base_tree import lint_commit
    from cfglint_train.front.git import open_repository

    paths = [os.path.relpath(path) for path in options.path or ["."]]
    with TemporaryDirectory(prefix="cfglint-", ignore_cleanup_errors=True) as temporary:
        repository = open_repository(os.getcwd(), "", temporary)
        for path in paths:
            if os.path.realpath(path) != repository.root and not regular_files.is_below(path, repository.root):
                raise UsageError(f"{path} is outside the repository {repository.root}")
        commit = _find_base(repository, options.words)
        before = lint_commit(repository, commit, paths, lint_options, Budget(), is_clean=False)
        present = [path for path in paths if os.path.lexists(path)]
        if before is None and not present:
            raise UsageError(f"{paths[0]}: neither in {commit[:12]} nor here")
        after = api.lint(present, lint_options) if present else None
        comparison = api.compare(before, after)
    for name, result in ((f"{commit[:12]}: ", before), ("", after)):
        print_remarks(_format_problems(name, result))
    return comparison, after is None or not after.raw.troubles


def _format_problems(name: str, result: LintResult | None) -> list[str]:
    return [] if result is None else [f"{name}{line}" for line in format_troubles(result.raw)]


def _find_base(repository: Repository, words: list[str]) -> str:
    """Return the named commit, or the last one that HEAD shares with the default branch. Raise GitError."""
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.front.git import GitError, resolve_revision

    if words:
        try:
            return resolve_revision(repository, words[0])
        except GitError:
            if os.path.lexists(words[0]):
                raise UsageError(f"{words[0]} is no revision; write cfglint diff --path {words[0]}") from None
            raise
    head = resolve_revision(repository, "HEAD")
    for name in _DEFAULT_BRANCHES:
        try:
            branch = resolve_revision(repository, name)
        except GitError:
            continue
        try:
            return repository.run_git("merge-base", head, branch).decode().strip()
        except GitError:
            raise GitError(f"HEAD and {name} share no commit here; name a revision") from None
    return head
