"""`cfglint [check] [PATHS]`: lint, and fix on request."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TextIO
from cfglint_train.front.commands.check_defaults import DEFAULTS
from cfglint_train.front.commands.options import add_baseline, build_options, read_inputs, refuse_write_flags
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE, apply_flags, has_failures
from cfglint_train.front.commands.output import (
    build_style,
    format_troubles,
    format_verbose,
    print_remarks,
    write_report,
)

if TYPE_CHECKING:
    from cfglint_train.api import FixResult, Options
    from cfglint_train.judging.result import Result
    from cfglint_train.settings.settings import Settings


def check(argv: list[str]) -> int:
    """Check files, fix them on request, and return the exit code."""
    options = _parse_arguments(argv)
    refuse_write_flags(options)
    from cfglint_train import api
    from cfglint_train.reports import formats

    lint_options = build_options(options)
    settings = apply_flags(api.settings(lint_options), options)
    if settings.require_checked:  # these settings, not those of each file, decide the exit code
        lint_options = lint_options._replace(require_checked=True)
    if options.explain is None and not options.write_baseline:
        lint_options = add_baseline(lint_options, options, settings)
    if options.shown is not None:
        return _show_instead(options, lint_options, settings)
    if options.explain is not None:
        return _explain_finding(options, lint_options, settings)
    paths, sources = read_inputs(options)
    if options.write_baseline:
        from cfglint_train.front.commands.accepted import write_baseline

        return _report_remaining(write_baseline(paths, lint_options, options, settings), options, settings)
    if options.add_ignore:
        from cfglint_train.front.commands.ignores import write_ignores

        return _report_remaining(write_ignores(paths, lint_options, options), options, settings)
    from cfglint_train.front import progress, replay

    if options.diff or options.fix or options.fix_only:
        write = not options.diff and not sources
        with progress.show_progress(sys.stderr, "fixing"):
            fixed = api.fix(paths, lint_options, sources, unsafe=options.unsafe_fixes, write=write)
        return _report_fixes(fixed, options, settings)
    output_format = options.output_format or settings.output_format or "text"
    digest = formats.find_digest(output_format)
    can_share = not options.verbose and (output_format in _FINDING_FORMATS or digest is not None)
    with progress.show_progress(replay.get_stream(sys.stderr), "checking"):
        result = api.lint(
            paths, lint_options._replace(jobs=options.jobs if can_share else 1), sources, digest=digest
        ).raw
    _write_report(result, options, settings)
    if settings.fix:
        print_remarks(["`fix = true` in the settings has no effect: only --fix on the command line writes"])
    code = _compute_exit_code(result, options, settings)
    if not sources and not result.troubles and options.output_file is None and not options.online:
        replay.store(code, "" if options.no_cache else options.cache_dir, settings.cache_dir)
    return code


def _show_instead(options: Any, lint_options: Options, settings: Settings) -> int:
    """Show the output of `--statistics`, `--show-files`, `--show-settings` or `--explain-origins`."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError

    if options.output_format not in (None, "text", "json"):
        raise UsageError(f"--{options.shown} needs --output-format text or json, not {options.output_format}")
    as_json = options.output_format == "json"
    style = build_style(options, settings, sys.stdout)
    paths, sources = read_inputs(options)
    if options.shown == "show-settings":
        from cfglint_train.reports import effective

        setting_paths = [os.path.join(path, "") if filesystem.is_folder(path) else path for path in paths]
        effective_settings = [
            effective.collect_settings(
                path, api.settings(lint_options, path), lint_options, api.rules(lint_options, path)
            )
            for path in setting_paths
        ]
        lines = (
            effective.render_json(effective_settings)
            if as_json
            else (line for item in effective_settings for line in effective.render_table(item))
        )
        write_report(lines, options)
        return CLEAN
    if options.shown == "statistics":
        from cfglint_train.reports import statistics

        result = api.lint(paths, lint_options, sources).raw
        write_report(statistics.render_json(result) if as_json else statistics.render_table(result, style), options)
        print_remarks(format_verbose(result, options))
        return _compute_exit_code(result, options, settings)
    result = api.estimate(paths, lint_options, sources).raw
    if options.shown == "show-files":
        from cfglint_train.reports import json, text

        write_report(json.render_file_list(result) if as_json else text.list_files(result), options)
    else:
        from cfglint_train.reports import origins

        runs = sorted(result.runs, key=lambda run: (run.main.document.path, str(run.main.root)))
        table = (
            origins.render_json(runs, result.secrets) if as_json else origins.render_table(runs, result.secrets, style)
        )
        write_report(table, options)
    print_remarks([*format_troubles(result), *format_verbose(result, options)])
    return TROUBLE if result.troubles else CLEAN


def _explain_finding(options: Any, lint_options: Options, settings: Settings) -> int:
    """Show the output of `--explain`."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.reports import explain
    from cfglint_train.request import find_repository

    code, line = options.explain
    if options.output_format not in (None, "text", "json"):
        raise UsageError(f"--explain needs --output-format text or json, not {options.output_format}")
    paths, sources = read_inputs(options)
    if len(paths) != 1:
        raise UsageError("--explain needs exactly one PATH")
    result = api.lint(paths, lint_options, sources).raw
    candidates = [atom for finding in result.findings for atom in finding.atoms if atom.code == code]
    findings = [finding for finding in candidates if finding.start.line == line]
    if not findings and filesystem.is_file(paths[0]):
        # A finding in a companion is reported with its run, which may be anywhere in the repository. With a finding of
        # KEY001, a misspelled key counts as meant.
        root = os.path.relpath(find_repository(paths[0]))
        repository_result = api.lint([root], lint_options._replace(select=(code, "KEY001")), sources).raw
        file_findings = [
            atom
            for finding in repository_result.findings
            for atom in finding.atoms
            if os.path.abspath(atom.path) == os.path.abspath(paths[0])
        ]
        findings = [finding for finding in file_findings if (finding.code, finding.start.line) == (code, line)]
        result = repository_result if findings else result
    if not findings:
        lines = ", ".join(f"{code}:{finding.start.line}" for finding in candidates)
        raise UsageError(f"no finding {code}:{line} in {paths[0]}" + (f"; there is {lines}" if lines else ""))
    as_json = options.output_format == "json"
    style = build_style(options, settings, sys.stdout)
    secrets = result.secrets
    write_report(
        explain.render_json(findings, secrets) if as_json else explain.render_table(findings, secrets, style), options
    )
    print_remarks([*format_troubles(result), *format_verbose(result, options)])
    return TROUBLE if result.troubles else CLEAN


# Formats that need only findings, so that several processes can share the files. Other formats need the runs, which
# worker processes do not send, or a digest of each run.
_FINDING_FORMATS: Final = (
    "text", "concise", "grouped", "json", "json-lines", "github", "gitlab", "junit", "rdjson", "sarif",
)  # fmt: skip


_FOLDING_FORMATS: Final = ("text", "json")
"""Formats that show findings with one cause once, with their places. The others have a line or a mark per place."""


def _report_fixes(fixed: FixResult, options: Any, settings: Settings) -> int:
    from cfglint_train.reports import diff

    result = fixed.raw.result
    if options.diff:
        preview = diff.build_diff(fixed.raw)
        write_report(preview.lines, options)
        if preview.altered:
            notice = f"{preview.altered} lines of the diff are masked or escaped"
            print_remarks([f"{notice}; apply it with --fix, not with patch"])
        print_remarks([*format_troubles(result), *diff.render_refusals(fixed.raw), *format_verbose(result, options)])
        if fixed.sources and not options.quiet:
            print_remarks([diff.format_promise(fixed.raw)])
        if result.troubles:
            return TROUBLE
        return FINDINGS if fixed.sources and not options.exit_zero else CLEAN
    stream = sys.stdout
    if not fixed.written:
        stream = sys.stderr
        sys.stdout.buffer.write(next(iter(fixed.texts.values())))
        sys.stdout.buffer.flush()
    if options.fix_only:
        print_remarks([*format_troubles(result), *format_verbose(result, options)])
    else:
        _write_report(fixed.lint.raw, options, settings, stream)
    if not options.quiet:
        print_remarks(diff.render_summary(fixed.raw))
    if result.troubles:
        return TROUBLE
    if options.exit_non_zero_on_fix and fixed.applied and not options.exit_zero:
        return FINDINGS
    return CLEAN if options.fix_only else _compute_exit_code(result, options, settings)


def _report_remaining(result: Result, options: Any, settings: Settings) -> int:
    """Report the remaining findings, and return the exit code."""
    _write_report(result, options, settings)
    return _compute_exit_code(result, options, settings)


def _write_report(result: Result, options: Any, settings: Settings, stream: TextIO | None = None) -> None:
    from cfglint_train.reports.formats import find_reporter

    output_format = options.output_format or settings.output_format or "text"
    if output_format in _FOLDING_FORMATS:
        from cfglint_train.reports.folding import fold_places

        result = fold_places(result)
    report = find_reporter(output_format)
    write_report(report(result, build_style(options, settings, stream or sys.stdout)), options, stream)
    print_remarks(format_verbose(result, options))


def _compute_exit_code(result: Result, options: Any, settings: Settings) -> int:
    if result.troubles:
        return TROUBLE
    return FINDINGS if has_failures(result, settings) and not options.exit_zero else CLEAN


def _parse_arguments(argv: list[str]) -> Any:
    """Return the parsed options.

    A hook passes only switches and files; these are parsed without importing argparse.
    """
    options, paths = {**DEFAULTS}, [*argv]
    while paths and (name := _parse_switch(paths[0])):
        options[name] = True
        del paths[0]
    if not any(path.startswith("-") for path in paths):
        return SimpleNamespace(**options, paths=paths)
    from cfglint_train.front.commands.check_flags import build_check_parser

    return build_check_parser().parse_args(argv)


def _parse_switch(argument: str) -> str:
    """Return the option that a switch turns on, or an empty string for any other argument."""
    name = argument[2:].replace("-", "_")
    is_switch = argument == f"--{name.replace('_', '-')}" and DEFAULTS.get(name) is False
    return name if is_switch else ""
