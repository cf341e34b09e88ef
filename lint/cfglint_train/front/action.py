"""The GitHub Action: inputs by the environment, one lint; then annotations, a job summary, files and outputs.

`action.yml` starts it. Nothing of it needs a token, so that it works on pull requests from forks.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import inf

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation import atomic, regular_files
from cfglint_train.foundation.budget import Budget, processor_time
from cfglint_train.foundation.credentials import masked
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.front import addresses
from cfglint_train.front.commands.check_flags import check_parser
from cfglint_train.front.commands.options import api_options, with_baseline
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE, fails, laid_over
from cfglint_train.reports import github, markdown, rdjson, sarif, text
from cfglint_train.reports.escape import command_message, leading, printable
from cfglint_train.reports.style import Style
from cfglint_train.settings.settings import FAIL_ON

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.findings.finding import Finding
    from cfglint_train.front.git_changes import Changed
    from cfglint_train.judging.result import Result
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
# Inputs that are switches of `cfglint check`, on or off.
_SWITCHES: Final = {
    "CFGLINT_FAIL_ON_ASSUMED": "fail-on-assumed",
    "CFGLINT_REQUIRE_CHECKED": "require-checked",
}

# Flags of `cfglint check` that write, or that the action gives itself.
_WRITING: Final = (
    "fix", "fix_only", "diff", "output_format", "output_file", "stdin_filename", "write_baseline", "add_ignore",
)  # fmt: skip


def main() -> int:
    """Run the action. Returns the exit code."""
    from tempfile import TemporaryDirectory

    try:
        with TemporaryDirectory(prefix="cfglint-", ignore_cleanup_errors=True) as temporary:
            return _run(os.environ, temporary)
    except UsageError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error.filename, str) else str(error)
    print(f"::error title=cfglint::{command_message(masked(message))}")
    return TROUBLE


def _run(environment: Mapping[str, str], temporary: str) -> int:
    started = processor_time()
    _stay_in_workspace(environment)
    fail_on = environment.get("CFGLINT_FAIL_ON", "").strip()
    if fail_on and fail_on not in FAIL_ON:
        raise UsageError(f"fail-on must be one of {', '.join(FAIL_ON)}, not {fail_on}")
    only_changed = _truth("changed-files-only", environment.get("CFGLINT_CHANGED_FILES_ONLY", ""))
    from_base = _from_base(environment.get("CFGLINT_SETTINGS_FROM", ""))
    options = _options(environment, fail_on)
    from cfglint_train import api

    changes = _changes(environment, temporary, told=only_changed, needed=from_base)
    wanted = _without_cache_inside(api_options(options), environment)
    if from_base and changes is not None:
        wanted = wanted._replace(settings_files=_of_base(changes))
    settings = laid_over(api.settings(wanted), options)
    style = Style(pages=settings.rule_url or addresses.rule_pages())
    wanted = with_baseline(wanted, options, settings)
    limit = settings.max_cpu_seconds if wanted.max_cpu_seconds is None else wanted.max_cpu_seconds
    # One for the whole step: git has had its part, and the commit before gets what the lint leaves.
    budget = Budget(inf if limit is None else started + limit - processor_time(), processor_time)
    result = api.lint(options.paths or ["."], wanted._replace(max_cpu_seconds=budget.rest())).raw
    used = _settings_files(result, wanted)
    _print(_settings_used(used, wanted, changes))
    _print(_nothing_found(result, options.paths or ["."]))
    shown = result
    if only_changed and changes is not None:
        shown = _concerning(result, changes, used, options.paths or ["."], wanted, budget)
    _print(github.commands(shown, "the job summary", _on_changed_lines(shown, changes), style))
    _print(text.concise(shown))
    # Code scanning takes what is missing for solved, so its file holds everything.
    _write(environment.get("CFGLINT_SARIF_FILE", ""), sarif.report(result, style))
    _write(environment.get("CFGLINT_RDJSON_FILE", ""), rdjson.report(shown, style))
    _append(environment.get("GITHUB_STEP_SUMMARY", ""), markdown.report(shown, style))
    code = CLEAN if fail_on == "never" else _exit_code(shown, settings)
    _append(environment.get("GITHUB_OUTPUT", ""), _outputs(shown, environment))
    return code


def _stay_in_workspace(environment: Mapping[str, str]) -> None:
    """Raise UsageError if the working directory leads out of the workspace: a change may have made it a link."""
    workspace, here = os.path.realpath(environment.get("GITHUB_WORKSPACE") or os.sep), os.path.realpath(os.curdir)
    if here != workspace and not regular_files.is_below(here, workspace):
        raise UsageError(f"working-directory: {here} is outside of GITHUB_WORKSPACE ({workspace})")


def _options(environment: Mapping[str, str], fail_on: str) -> Namespace:
    """The options of a check. Raises UsageError, also for what the action does itself."""
    arguments = ["--fail-on", fail_on] if fail_on else []
    for name, flag in _FLAGS.items():
        value = environment.get(name, "").strip()
        if value:
            arguments += [flag, value]
    for name, switch in _SWITCHES.items():
        value = environment.get(name, "")
        if value.strip():
            arguments.append(f"--{switch}" if _truth(switch, value) else f"--no-{switch}")
    arguments += _lines(environment.get("CFGLINT_EXTRA_ARGS", ""))
    parser = check_parser()

    def refuse(message: str) -> None:
        raise UsageError(message)

    parser.error = refuse  # type: ignore[assignment,method-assign]
    options = parser.parse_args([*arguments, "--", *_lines(environment.get("CFGLINT_PATHS", ""))])
    for flag in _WRITING:
        if getattr(options, flag):
            raise UsageError(f"extra-args: --{flag.replace('_', '-')} is not allowed: the action only reports")
    return options


def _without_cache_inside(wanted: Options, environment: Mapping[str, str]) -> Options:
    """The options without a cache in the checkout, whatever settings and flags say: a change may have filled it."""
    from cfglint_train.foundation.cache import folder_of

    folder = None if wanted.no_cache else folder_of(None if wanted.cache_dir is None else str(wanted.cache_dir), None)
    if folder is None:
        return wanted._replace(no_cache=True)
    here = os.getcwd()
    places = (environment.get("GITHUB_WORKSPACE") or here, regular_files.repository_of(here) or here)
    inside = any(regular_files.is_below(os.path.join(folder, "x"), place) for place in places)
    return wanted._replace(no_cache=inside, cache_dir=folder)


def _from_base(value: str) -> bool:
    known = {"": False, "checkout": False, "base": True}
    if value.strip() not in known:
        raise UsageError(f"settings-from must be checkout or base, not {value.strip()}")
    return known[value.strip()]


def _lines(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def _truth(name: str, value: str) -> bool:
    known = {"": False, "false": False, "true": True}
    if value.strip().lower() not in known:
        raise UsageError(f"{name} must be true or false, not {value.strip()}")
    return known[value.strip().lower()]


# --- what changed ----------------------------------------------------------------------------------------------------


def _changes(environment: Mapping[str, str], temporary: str, told: bool, needed: bool) -> Changed | None:
    """What changed; None where it is unknown, with a notice where it was asked for. Raises UsageError where needed."""
    from cfglint_train.front import git, git_changes

    try:
        return git_changes.changed(os.getcwd(), environment, temporary)
    except git.GitError as reason:
        if needed:
            raise UsageError(f"settings-from: base: {reason}") from None
        if told:
            print(f"::notice title=cfglint::everything is reported: {command_message(str(reason))}")
        return None


def _of_base(changes: Changed) -> Files:
    """The settings files of the commit before the change. Raises UsageError."""
    from cfglint_train.front import base_settings, git

    try:
        return base_settings.at(changes.repository, changes.base)
    except git.GitError as reason:
        raise UsageError(f"settings-from: base: {reason}") from None


def _settings_files(result: Result, wanted: Options) -> set[str]:
    """The settings files that counted, with what they extend and the baselines that they name."""
    from cfglint_train import api

    paths = {os.path.dirname(file.path): file.path for file in result.files}
    used = (api.settings(wanted), *(api.settings(wanted, path) for path in paths.values()))
    return {path for of in used for path in (of.source, *of.extended, of.baseline) if path is not None}


def _removed_settings(changes: Changed) -> set[str]:
    from cfglint_train.settings.settings import NAMES

    return {path for path in changes.gone if os.path.basename(path) in NAMES}


def _settings_used(used: set[str], wanted: Options, changes: Changed | None) -> Iterable[str]:
    """The settings files that counted, and whether the change under test is theirs, too."""
    from cfglint_train.settings.files import DISK

    from_base = wanted.settings_files is not DISK
    gone = set() if changes is None else _removed_settings(changes)
    for path in sorted({*used, *gone}):
        changed = changes is not None and (path in gone or changes.has(path))
        kind = "removed" if path in gone else "changed"
        if from_base:
            note = f" as the base has it ({kind} by the change under test, which does not count)" if changed else ""
        else:
            note = f" ({kind} by the change under test: review it first)" if changed else ""
        yield f"settings: {leading(os.path.relpath(path))}{note}"
    if not used:
        yield "settings: no file, the defaults"


def _nothing_found(result: Result, paths: list[str]) -> Iterable[str]:
    """A warning where no configuration was found: a green step that checked nothing looks like a checked one."""
    if not result.files and not result.troubles:
        searched = ", ".join(leading(os.path.relpath(path)) for path in paths)
        message = f"no training configuration found in {searched} (below {leading(os.getcwd())}); nothing was checked"
        yield f"::warning title=cfglint::{command_message(message)}"


def _on_changed_lines(result: Result, changes: Changed | None) -> Callable[[Finding], bool] | None:
    if changes is None:
        return None
    lines = changes.lines({finding.path for finding in result.findings})

    def touched(finding: Finding) -> bool:
        return any(one.start <= finding.end.line and finding.start.line < one.stop for one in lines[finding.path])

    return touched


def _concerning(
    result: Result, changes: Changed, used: set[str], paths: list[str], wanted: Options, budget: Budget
) -> Result:
    """The findings that a change is to blame for: in a changed file, of a run that it shapes, or new with it."""
    from cfglint_train.front import base_result, git

    if changes.leads_elsewhere or _removed_settings(changes) or any(map(changes.has, used)):
        return result
    try:
        base = base_result.lint_base(changes, paths, wanted, budget)
    except (git.GitError, UsageError) as reason:
        print(f"::notice title=cfglint::everything is reported: {command_message(masked(str(reason)))}")
        return result

    @cache
    def has_changed(run: Run) -> bool:
        return any(map(changes.has, _files_of(run))) or not base.has_run(run)

    runs = tuple(filter(has_changed, result.runs))
    shaped = {config.document.path for run in runs for config in run.configs}

    def concerns(finding: Finding) -> bool:
        files = (finding.path, *(one.place.document.path for one in finding.related))
        by_run = finding.path in shaped if finding.run is None else has_changed(finding.run)
        return by_run or any(map(changes.has, files)) or not base.has(finding)

    return result._replace(
        findings=tuple(filter(concerns, result.findings)),
        troubles=tuple(
            one
            for one in result.troubles
            if one.ours or one.whole or changes.has(one.path) or not base.has_trouble(one)
        ),
        runs=runs,
    )


def _files_of(run: Run) -> set[str]:
    """The files that a run's values are stated in."""
    hardware = run.hardware
    origins = [
        *(value.origin for value in run.reading.values.values()),
        *(override.origin for config in run.configs for override in config.overrides.values()),
        *(release.origin for release in run.releases.known.values()),
        *(allowed.origin for allowed in run.releases.ranges.values()),
        *(hardware.gpu_origin, hardware.host_origin, hardware.disk_origin),
    ]
    documents = [*(config.document for config in run.configs), *run.parts.scripts]
    return {
        *(document.path for document in documents),
        *(origin.place.document.path for origin in origins if origin.place is not None),
    }


# --- what comes out --------------------------------------------------------------------------------------------------


def _exit_code(result: Result, settings: Settings) -> int:
    if result.troubles:
        return TROUBLE
    return FINDINGS if fails(result, settings) else CLEAN


def _outputs(result: Result, environment: Mapping[str, str]) -> list[str]:
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in result.findings:
        counts[finding.severity] += 1
    counts["error"] += sum(1 for _ in text.untold(result))
    sarif_file = environment.get("CFGLINT_SARIF_FILE", "").strip()
    return [
        *(f"{severity}s={count}" for severity, count in counts.items()),
        f"files={len({file.path for file in result.files})}",
        f"sarif-file={printable(sarif_file)}",
    ]


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{masked(line)}\n")
    sys.stdout.flush()


def _write(path: str, lines: Iterable[str]) -> None:
    if path.strip():
        regular_files.stay(path.strip())  # before folders are made there
        folder = os.path.dirname(path.strip())
        if folder:
            os.makedirs(folder, exist_ok=True)
        atomic.put(path.strip(), "".join(f"{masked(line)}\n" for line in lines).encode())


def _append(path: str, lines: Iterable[str]) -> None:
    if path:
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{masked(line)}\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    raise SystemExit(main())
