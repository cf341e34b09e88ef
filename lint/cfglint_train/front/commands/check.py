"""`cfglint [check] [PATHS]`: lint, and fix where asked."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TextIO
from cfglint_train.front.commands.check_defaults import DEFAULTS
from cfglint_train.front.commands.options import api_options, inputs, refuse_to_write, with_baseline
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE, fails, laid_over
from cfglint_train.front.commands.output import complain, style_of, troubles, verbose, write

if TYPE_CHECKING:
    from cfglint_train.api import FixResult, Options
    from cfglint_train.judging.result import Result
    from cfglint_train.settings.settings import Settings


def check(argv: list[str]) -> int:
    """`cfglint [check] [PATHS]`: lint, and fix where asked."""
    options = _parsed(argv)
    refuse_to_write(options)
    from cfglint_train import api
    from cfglint_train.reports import formats

    wanted = api_options(options)
    settings = laid_over(api.settings(wanted), options)
    if settings.require_checked:  # the settings here decide about the exit code, not those of inner folders
        wanted = wanted._replace(require_checked=True)
    if options.explain is None and not options.write_baseline:
        wanted = with_baseline(wanted, options, settings)
    if options.shown is not None:
        return _show(options, wanted, settings)
    if options.explain is not None:
        return _explain(options, wanted, settings)
    paths, sources = inputs(options)
    if options.write_baseline:
        from cfglint_train.front.commands.accepted import write_baseline

        return _reported(write_baseline(paths, wanted, options, settings), options, settings)
    if options.add_ignore:
        from cfglint_train.front.commands.ignores import write_ignores

        return _reported(write_ignores(paths, wanted, options), options, settings)
    from cfglint_train.front import progress

    if options.diff or options.fix or options.fix_only:
        write = not options.diff and not sources
        with progress.shown(sys.stderr, "fixing"):
            fixed = api.fix(paths, wanted, sources, unsafe=options.unsafe_fixes, write=write)
        return _fixed(fixed, options, settings)
    form = options.output_format or settings.output_format or "text"
    digest = formats.digester(form)
    shares = not options.verbose and (form in _OF_FINDINGS or digest is not None)
    with progress.shown(sys.stderr, "checking"):
        result = api.lint(paths, wanted._replace(jobs=options.jobs if shares else 1), sources, digest=digest).raw
    _report(result, options, settings)
    if settings.fix:
        complain(["`fix = true` in the settings has no effect: only --fix on the command line writes"])
    return _exit_code(result, options, settings)


def _show(options: Any, wanted: Options, settings: Settings) -> int:
    """What `--statistics`, `--show-files`, `--show-settings` and `--explain-origins` show instead of the findings."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError

    if options.output_format not in (None, "text", "json"):
        raise UsageError(f"--{options.shown} needs --output-format text or json, not {options.output_format}")
    as_json = options.output_format == "json"
    style = style_of(options, settings, sys.stdout)
    paths, sources = inputs(options)
    if options.shown == "show-settings":
        from cfglint_train.reports import effective

        named = [os.path.join(path, "") if os.path.isdir(path) else path for path in paths]
        every = [effective.values(path, api.settings(wanted, path), wanted, api.rules(wanted, path)) for path in named]
        lines = effective.as_json(every) if as_json else (line for one in every for line in effective.table(one))
        write(lines, options)
        return CLEAN
    if options.shown == "statistics":
        from cfglint_train.reports import statistics

        result = api.lint(paths, wanted, sources).raw
        write(statistics.as_json(result) if as_json else statistics.table(result, style), options)
        complain(verbose(result, options))
        return _exit_code(result, options, settings)
    result = api.estimate(paths, wanted, sources).raw
    if options.shown == "show-files":
        from cfglint_train.reports import json, text

        write(json.file_list(result) if as_json else text.files(result), options)
    else:
        from cfglint_train.reports import origins

        runs = sorted(result.runs, key=lambda run: (run.main.document.path, str(run.main.root)))
        table = origins.as_json(runs, result.secrets) if as_json else origins.table(runs, result.secrets, style)
        write(table, options)
    complain([*troubles(result), *verbose(result, options)])
    return TROUBLE if result.troubles else CLEAN


def _explain(options: Any, wanted: Options, settings: Settings) -> int:
    """What `--explain` shows instead of the findings."""
    from cfglint_train import api
    from cfglint_train.foundation.errors import UsageError
    from cfglint_train.reports import explain
    from cfglint_train.request import repository

    code, line = options.explain
    if options.output_format not in (None, "text", "json"):
        raise UsageError(f"--explain needs --output-format text or json, not {options.output_format}")
    paths, sources = inputs(options)
    if len(paths) != 1:
        raise UsageError("--explain takes one PATH")
    result = api.lint(paths, wanted._replace(select=(code,)), sources).raw
    found = [finding for finding in result.findings if (finding.code, finding.start.line) == (code, line)]
    if not found and os.path.isfile(paths[0]):
        # What a run says of its companion is found where the run is; that may be anywhere in the repository.
        root = os.path.relpath(repository(paths[0]))
        around = api.lint([root], wanted._replace(select=(code,)), sources).raw
        there = [finding for finding in around.findings if os.path.abspath(finding.path) == os.path.abspath(paths[0])]
        found = [finding for finding in there if (finding.code, finding.start.line) == (code, line)]
        result = around if found else result
    if not found:
        lines = ", ".join(f"{code}:{finding.start.line}" for finding in result.findings if finding.code == code)
        raise UsageError(f"no finding {code}:{line} in {paths[0]}" + (f"; there is {lines}" if lines else ""))
    as_json = options.output_format == "json"
    style = style_of(options, settings, sys.stdout)
    secrets = result.secrets
    write(explain.as_json(found, secrets) if as_json else explain.table(found, secrets, style), options)
    complain([*troubles(result), *verbose(result, options)])
    return TROUBLE if result.troubles else CLEAN


# Reports made of findings alone; others take the runs, which stay in the process that assembled them, or their
# summaries.
_OF_FINDINGS: Final = (
    "text", "concise", "grouped", "json", "json-lines", "github", "gitlab", "junit", "rdjson", "sarif",
)  # fmt: skip


def _fixed(fixed: FixResult, options: Any, settings: Settings) -> int:
    from cfglint_train.reports import diff

    result = fixed.raw.result
    if options.diff:
        shown = diff.unified(fixed.raw)
        write(shown.lines, options)
        if shown.altered:
            masked = f"{shown.altered} lines of the diff are shown changed (masked or escaped)"
            complain([f"{masked}; apply it with --fix, not with patch"])
        complain([*troubles(result), *diff.refusals(fixed.raw), *verbose(result, options)])
        if fixed.sources and not options.quiet:
            complain([diff.promise(fixed.raw)])
        if result.troubles:
            return TROUBLE
        return FINDINGS if fixed.sources and not options.exit_zero else CLEAN
    stream = sys.stdout
    if not fixed.written:
        stream = sys.stderr
        sys.stdout.buffer.write(next(iter(fixed.texts.values())))
        sys.stdout.buffer.flush()
    if options.fix_only:
        complain([*troubles(result), *verbose(result, options)])
    else:
        _report(fixed.lint.raw, options, settings, stream)
    if not options.quiet:
        complain(diff.summary(fixed.raw))
    if result.troubles:
        return TROUBLE
    if options.exit_non_zero_on_fix and fixed.applied and not options.exit_zero:
        return FINDINGS
    return CLEAN if options.fix_only else _exit_code(result, options, settings)


def _reported(result: Result, options: Any, settings: Settings) -> int:
    """Report what is left, and return the exit code."""
    _report(result, options, settings)
    return _exit_code(result, options, settings)


def _report(result: Result, options: Any, settings: Settings, stream: TextIO | None = None) -> None:
    from cfglint_train.reports.formats import reporter

    report = reporter(options.output_format or settings.output_format or "text")
    write(report(result, style_of(options, settings, stream or sys.stdout)), options, stream)
    complain(verbose(result, options))


def _exit_code(result: Result, options: Any, settings: Settings) -> int:
    if result.troubles:
        return TROUBLE
    return FINDINGS if fails(result, settings) and not options.exit_zero else CLEAN


def _parsed(argv: list[str]) -> Any:
    """The options. Switches and then files are all that a hook gives, for which argparse is not imported."""
    options, paths = {**DEFAULTS}, [*argv]
    while paths and (name := _switch(paths[0])):
        options[name] = True
        del paths[0]
    if not any(path.startswith("-") for path in paths):
        return SimpleNamespace(**options, paths=paths)
    from cfglint_train.front.commands.check_flags import check_parser

    return check_parser().parse_args(argv)


def _switch(argument: str) -> str:
    """The option that an argument switches on: one that is off by default. Empty for any other argument."""
    name = argument[2:].replace("-", "_")
    is_switch = argument == f"--{name.replace('_', '-')}" and DEFAULTS.get(name) is False
    return name if is_switch else ""
