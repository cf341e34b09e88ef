"""The GitHub Action: it reads inputs from the environment and writes annotations, a summary, files and outputs.

`action.yml` starts this module. It needs no token, except for a comment, so it works on pull requests from forks.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import inf

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation import atomic, filesystem, regular_files
from cfglint_train.foundation.budget import Budget, read_processor_time
from cfglint_train.foundation.credentials import mask
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.front.commands.check_flags import build_check_parser
from cfglint_train.front.commands.options import add_baseline, build_options
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE, apply_flags, has_failures
from cfglint_train.reports import addresses, github, markdown, rdjson, sarif, text
from cfglint_train.reports.escape import escape_command_message, escape_line_start, escape_text
from cfglint_train.reports.style import Style
from cfglint_train.settings.settings import FAIL_ON

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.findings.finding import Finding
    from cfglint_train.front.base_result import BaseResult
    from cfglint_train.front.git_changes import ChangedFiles
    from cfglint_train.judging.result import Result
    from cfglint_train.records import Comparison
    from cfglint_train.runs.run import Run
    from cfglint_train.settings.files import Files
    from cfglint_train.settings.settings import Settings

# Inputs that are flags of `cfglint check`.
_FLAGS: Final = {
    "CFGLINT_CONFIG": "--config",
    "CFGLINT_GPU": "--gpu",
    "CFGLINT_GPUS_PER_NODE": "--gpus-per-node",
    "CFGLINT_NODES": "--nodes",
    "CFGLINT_HOST_MEMORY": "--host-memory",
    "CFGLINT_MAX_CPU_SECONDS": "--max-cpu-seconds",
}
# Inputs that are boolean flags of `cfglint check`.
_SWITCHES: Final = {
    "CFGLINT_FAIL_ON_ASSUMED": "fail-on-assumed",
    "CFGLINT_REQUIRE_CHECKED": "require-checked",
}

# Flags of `cfglint check` that write files, or that the action sets itself.
_FORBIDDEN_FLAGS: Final = (
    "fix", "fix_only", "diff", "output_format", "output_file", "stdin_filename", "write_baseline", "add_ignore",
)  # fmt: skip


def main() -> int:
    """Run the action and return the exit code."""
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix="cfglint-", ignore_cleanup_errors=True) as temporary:
            return _run_action(os.environ, temporary)
    except UsageError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error.filename, str) else str(error)
    print(f"::error title=cfglint::{escape_command_message(mask(message))}")
    return TROUBLE


def _run_action(environment: Mapping[str, str], temporary: str) -> int:
    started = read_processor_time()
    _check_workspace(environment)
    fail_on = environment.get("CFGLINT_FAIL_ON", "").strip()
    if fail_on and fail_on not in FAIL_ON:
        raise UsageError(f"fail-on must be one of {', '.join(FAIL_ON)}, not {fail_on}")
    only_changed = _parse_bool("changed-files-only", environment.get("CFGLINT_CHANGED_FILES_ONLY", ""))
    wants_diff = _parse_bool("diff", environment.get("CFGLINT_DIFF", ""))
    from_base = _parse_settings_from(environment.get("CFGLINT_SETTINGS_FROM", ""))
    options = _parse_options(environment, fail_on)
    from cfglint_train import api

    changes = _find_changes(environment, temporary, notify=only_changed, is_required=from_base)
    lint_options = _disable_cache_in_checkout(build_options(options), environment)
    if from_base and changes is not None:
        lint_options = lint_options._replace(settings_files=_load_base_settings(changes))
    settings = apply_flags(api.settings(lint_options), options)
    style = Style(pages=addresses.choose_rule_pages(settings.rule_url))
    lint_options = add_baseline(lint_options, options, settings)
    limit = settings.max_cpu_seconds if lint_options.max_cpu_seconds is None else lint_options.max_cpu_seconds
    # One budget for the whole step: git has used its part, and the lint of the previous commit gets the rest.
    budget = Budget(inf if limit is None else started + limit - read_processor_time(), read_processor_time)
    paths = options.paths or ["."]
    linted = api.lint(paths, lint_options._replace(max_cpu_seconds=budget.compute_limit()))
    result = linted.raw
    used_settings = _find_used_settings(result, lint_options)
    _print_lines(_describe_settings(used_settings, lint_options, changes))
    _print_lines(_warn_no_config(result, paths))
    reported, comparison = result, None
    if changes is not None:

        @cache
        def lint_base() -> BaseResult:
            from cfglint_train.front import base_result

            return base_result.lint_base(changes, paths, lint_options, budget, linted if wants_diff else None)

        if only_changed:
            reported = _filter_by_changes(result, changes, used_settings, lint_base)
        if wants_diff:
            comparison = _compare_with_base(lint_base)
    _print_lines(github.render_commands(reported, "the job summary", _match_changed_lines(reported, changes), style))
    _print_lines(text.concise(reported))
    # Code scanning treats missing results as fixed, so its file contains everything.
    _write_report(environment.get("CFGLINT_SARIF_FILE", ""), sarif.report(result, style))
    _write_report(environment.get("CFGLINT_RDJSON_FILE", ""), rdjson.report(reported, style))
    _append_lines(environment.get("GITHUB_STEP_SUMMARY", ""), _render_summary(reported, comparison, style))
    _write_comment(environment, comparison)
    code = CLEAN if fail_on == "never" else _compute_exit_code(reported, settings)
    _append_lines(environment.get("GITHUB_OUTPUT", ""), _format_outputs(reported, environment))
    return code


def _check_workspace(environment: Mapping[str, str]) -> None:
    """Raise UsageError if the working directory is outside the workspace, because a change may have made it a link."""
    workspace, working_directory = (
        os.path.realpath(environment.get("GITHUB_WORKSPACE") or os.sep),
        os.path.realpath(os.curdir),
    )
    if working_directory != workspace and not regular_files.is_below(working_directory, workspace):
        raise UsageError(f"working-directory: {working_directory} is outside of GITHUB_WORKSPACE ({workspace})")


def _parse_options(environment: Mapping[str, str], fail_on: str) -> Namespace:
    """Return the options of a check. Raise UsageError for invalid flags and for those that the action sets itself."""
    arguments = ["--fail-on", fail_on] if fail_on else []
    for name, flag in _FLAGS.items():
        value = environment.get(name, "").strip()
        if value:
            arguments += [flag, value]
    for name, switch in _SWITCHES.items():
        value = environment.get(name, "")
        if value.strip():
            arguments.append(f"--{switch}" if _parse_bool(switch, value) else f"--no-{switch}")
    arguments += _split_lines(environment.get("CFGLINT_EXTRA_ARGS", ""))
    parser = build_check_parser()

    def refuse(message: str) -> None:
        raise UsageError(message)

    parser.error = refuse  # type: ignore[assignment,method-assign]
    options = parser.parse_args([*arguments, "--", *_split_lines(environment.get("CFGLINT_PATHS", ""))])
    for flag in _FORBIDDEN_FLAGS:
        if getattr(options, flag):
            raise UsageError(f"extra-args: --{flag.replace('_', '-')} is not allowed: the action only reports")
    return options


def _disable_cache_in_checkout(options: Options, environment: Mapping[str, str]) -> Options:
    """Return the options without a cache in the checkout, which a change could have filled."""
    from cfglint_train.foundation.cache_folder import find_cache_folder

    folder = (
        None
        if options.no_cache
        else find_cache_folder(None if options.cache_dir is None else str(options.cache_dir), None)
    )
    if folder is None:
        return options._replace(no_cache=True)
    working_directory = os.getcwd()
    places = (
        environment.get("GITHUB_WORKSPACE") or working_directory,
        filesystem.find_repository(working_directory) or working_directory,
    )
    is_inside = any(regular_files.is_below(os.path.join(folder, "x"), place) for place in places)
    return options._replace(no_cache=is_inside, cache_dir=folder)


def _parse_settings_from(value: str) -> bool:
    values = {"": False, "checkout": False, "base": True}
    if value.strip() not in values:
        raise UsageError(f"settings-from must be checkout or base, not {value.strip()}")
    return values[value.strip()]


def _split_lines(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def _parse_bool(name: str, value: str) -> bool:
    values = {"": False, "false": False, "true": True}
    if value.strip().lower() not in values:
        raise UsageError(f"{name} must be true or false, not {value.strip()}")
    return values[value.strip().lower()]


# --- what changed ----------------------------------------------------------------------------------------------------


def _find_changes(
    environment: Mapping[str, str], temporary: str, notify: bool, is_required: bool
) -> ChangedFiles | None:
    """Return the changes under test, or None if they are unknown.

    If they are unknown, print a notice if `notify`, and raise UsageError if `is_required`.
    """
    from cfglint_train.front import git, git_changes

    try:
        return git_changes.find_changes(os.getcwd(), environment, temporary)
    except git.GitError as reason:
        if is_required:
            raise UsageError(f"settings-from: base: {reason}") from None
        if notify:
            print(f"::notice title=cfglint::all findings are reported: {escape_command_message(str(reason))}")
        return None


def _load_base_settings(changes: ChangedFiles) -> Files:
    """Return the settings files of the commit before the change. Raise UsageError if git cannot list them."""
    from cfglint_train.front import base_settings, git

    try:
        return base_settings.list_commit_files(changes.repository, changes.base)
    except git.GitError as reason:
        raise UsageError(f"settings-from: base: {reason}") from None


def _find_used_settings(result: Result, options: Options) -> set[str]:
    """Return the settings files in effect, with those they extend, their baselines and measurements."""
    from cfglint_train import api
    from cfglint_train.foundation.roots import Roots

    paths = {os.path.dirname(file.path): file.path for file in result.files}.values()
    settings, roots = [api.settings(options, path) for path in paths], Roots()
    listed = [(item.source, *item.extended, item.baseline) for item in (api.settings(options), *settings)]
    measurements = {item.find_measurements(path, roots) for item, path in zip(settings, paths)}
    used = {path for item in listed for path in item if path is not None}
    return used | {path for path in measurements if path is not None and options.settings_files.has(path)}


def _find_removed_settings(changes: ChangedFiles) -> set[str]:
    from cfglint_train.settings.settings import NAMES

    return {path for path in changes.deleted if os.path.basename(path) in NAMES}


def _describe_settings(used: set[str], options: Options, changes: ChangedFiles | None) -> Iterable[str]:
    """Yield the settings files in effect, and whether the change under test modifies them."""
    from cfglint_train.settings.files import DISK

    is_from_base = options.settings_files is not DISK
    removed = set() if changes is None else _find_removed_settings(changes)
    for path in sorted({*used, *removed}):
        is_changed = changes is not None and (path in removed or changes.has(path))
        kind = "removed" if path in removed else "changed"
        if is_from_base:
            note = f" from the base ({kind} by the change under test, which is ignored)" if is_changed else ""
        else:
            note = f" ({kind} by the change under test: review it first)" if is_changed else ""
        yield f"settings: {escape_line_start(os.path.relpath(path))}{note}"
    if not used:
        yield "settings: no file, using the defaults"


def _warn_no_config(result: Result, paths: list[str]) -> Iterable[str]:
    """Yield a warning if no configuration was found, because a passed step would look like a successful check."""
    if not result.files and not result.troubles:
        searched = ", ".join(escape_line_start(os.path.relpath(path)) for path in paths)
        message = (
            f"no training configuration found in {searched} (below {escape_line_start(os.getcwd())}); nothing "
            "was checked"
        )
        yield f"::warning title=cfglint::{escape_command_message(message)}"


def _match_changed_lines(result: Result, changes: ChangedFiles | None) -> Callable[[Finding], bool] | None:
    if changes is None:
        return None
    lines = changes.find_changed_lines({finding.path for finding in result.findings})

    def is_touched(finding: Finding) -> bool:
        return any(
            changed_range.start <= finding.end.line and finding.start.line < changed_range.stop
            for changed_range in lines[finding.path]
        )

    return is_touched


def _compare_with_base(lint_base: Callable[[], BaseResult]) -> Comparison | None:
    """Return the runs before and after the change, or None, with the reason in the log, if they cannot be compared."""
    from cfglint_train.front import git

    try:
        return lint_base().comparison
    except (git.GitError, UsageError) as reason:
        _print_lines([f"changed runs are not shown: {escape_line_start(str(reason))}"])
        return None


def _filter_by_changes(
    result: Result, changes: ChangedFiles, used_settings: set[str], lint_base: Callable[[], BaseResult]
) -> Result:
    """Return the part of a result that a change affects: findings in changed files, in changed runs, or new findings.

    Return the whole result if the change affects settings, or if the commit before the change cannot be linted.
    """
    from cfglint_train.front import git

    if changes.has_indirect_changes or _find_removed_settings(changes) or any(map(changes.has, used_settings)):
        return result
    try:
        base = lint_base()
    except (git.GitError, UsageError) as reason:
        print(f"::notice title=cfglint::all findings are reported: {escape_command_message(mask(str(reason)))}")
        return result

    @cache
    def has_changed(run: Run) -> bool:
        return any(map(changes.has, _collect_run_files(run))) or not base.has_run(run)

    runs = tuple(filter(has_changed, result.runs))
    changed_configs = {config.document.path for run in runs for config in run.configs}

    def is_affected(finding: Finding) -> bool:
        files = (finding.path, *(item.place.document.path for item in finding.related))
        is_of_changed_run = finding.path in changed_configs if finding.run is None else has_changed(finding.run)
        return is_of_changed_run or any(map(changes.has, files)) or not base.has_finding(finding)

    return result._replace(
        findings=tuple(filter(is_affected, result.findings)),
        troubles=tuple(
            item
            for item in result.troubles
            if item.is_internal or item.is_global or changes.has(item.path) or not base.has_trouble(item)
        ),
        runs=runs,
    )


def _collect_run_files(run: Run) -> set[str]:
    """Return the files that state values of a run."""
    hardware = run.hardware
    origins = [
        *(value.origin for value in run.resolved_plan.values.values()),
        *(override.origin for config in run.configs for override in config.overrides.values()),
        *(release.origin for release in run.releases.by_package.values()),
        *(allowed.origin for allowed in run.releases.allowed_releases.values()),
        *(hardware.gpu_origin, hardware.host_origin, hardware.disk_origin),
    ]
    documents = [*(config.document for config in run.configs), *run.inputs.scripts]
    return {
        *(document.path for document in documents),
        *(origin.place.document.path for origin in origins if origin.place is not None),
    }


# --- what comes out --------------------------------------------------------------------------------------------------


def _compute_exit_code(result: Result, settings: Settings) -> int:
    if result.troubles:
        return TROUBLE
    return FINDINGS if has_failures(result, settings) else CLEAN


def _format_outputs(result: Result, environment: Mapping[str, str]) -> list[str]:
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in result.findings:
        counts[finding.severity] += 1
    counts["error"] += sum(1 for _ in text.find_unreported_troubles(result))
    sarif_file = environment.get("CFGLINT_SARIF_FILE", "").strip()
    return [
        *(f"{severity}s={count}" for severity, count in counts.items()),
        f"files={len({file.path for file in result.files})}",
        f"sarif-file={escape_text(sarif_file)}",
    ]


def _write_comment(environment: Mapping[str, str], comparison: Comparison | None) -> None:
    """Write the comment on the pull request if the workflow hands over a token; a failure is only a notice."""
    token = environment.get("CFGLINT_COMMENT_TOKEN", "").strip()
    if not token or comparison is None:
        return
    from cfglint_train.front import comment
    from cfglint_train.reports import change

    lines = change.render_markdown(comparison, comment.MAX_BODY) if comparison.runs else None
    try:
        comment.update_comment(environment, token, None if lines is None else "\n".join(map(mask, lines)))
    except comment.CommentError as reason:
        print(f"::notice title=cfglint::no comment on the pull request: {escape_command_message(str(reason))}")


def _render_summary(result: Result, comparison: Comparison | None, style: Style) -> Iterable[str]:
    """Yield the job summary: the report, after the runs that the change affects."""
    if comparison is not None and comparison.runs:
        from cfglint_train.reports import change

        yield from change.render_markdown(comparison)
    yield from markdown.report(result, style)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{mask(line)}\n")
    sys.stdout.flush()


def _write_report(path: str, lines: Iterable[str]) -> None:
    if path.strip():
        regular_files.check_links(path.strip())  # before folders are created
        folder = os.path.dirname(path.strip())
        if folder:
            os.makedirs(folder, exist_ok=True)
        atomic.write_output(path.strip(), "".join(f"{mask(line)}\n" for line in lines).encode())


def _append_lines(path: str, lines: Iterable[str]) -> None:
    if path:
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{mask(line)}\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    raise SystemExit(main())
