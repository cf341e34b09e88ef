"""Output of commands: reports to a stream or file, remarks to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from cfglint_train.judging.result import Result
    from cfglint_train.reports.style import Style
    from cfglint_train.settings.settings import Settings


def write_report(lines: Iterable[str], options: Any, stream: TextIO | None = None) -> None:
    """Write a report to `--output-file` if the flag is set, or else to the stream (standard output by default)."""
    if options.output_file is None:
        print_lines(lines, stream)
        return
    from cfglint_train.foundation import atomic

    atomic.write_output(options.output_file, _join_masked(lines).encode())


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines; characters that the encoding of the stream lacks are escaped."""
    out: TextIO = stream or sys.stdout
    try:
        _print_text(lines, out)
    except BrokenPipeError:
        # The reader of the pipe has exited (head, less). The findings still decide the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _print_text(lines: Iterable[str], out: TextIO) -> None:
    text = _join_masked(lines)
    try:
        out.write(text)
    except UnicodeEncodeError:
        encoding = out.encoding or "ascii"
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def print_remarks(lines: Iterable[str]) -> None:
    """Print remarks on standard error."""
    print_lines(lines, sys.stderr)


def _join_masked(lines: Iterable[str]) -> str:
    """Join the lines of a report and mask everything that looks like a credential."""
    from cfglint_train.foundation.redact import build_redaction

    return build_redaction(())("".join([f"{line}\n" for line in lines]))


def sanitize(text: str) -> str:
    """Return text that is safe to print, even if it comes from untrusted files."""
    from cfglint_train.foundation.redact import build_redaction
    from cfglint_train.reports.escape import escape_text

    return escape_text(build_redaction(())(text))


def build_style(options: Any, settings: Settings, stream: TextIO) -> Style:
    """Return the style for a stream: colors, links, width, and the URLs of the rule pages."""
    from cfglint_train.front import terminal
    from cfglint_train.reports.style import Style

    if options.output_file is not None:
        style = Style(options.color == "always", quiet=options.quiet)
    else:
        style = terminal.detect_style(stream, options.color)._replace(quiet=options.quiet)
    from cfglint_train.front.commands.repeated import spell_facts, spell_subject
    from cfglint_train.reports import addresses

    return style._replace(
        pages=addresses.choose_rule_pages(settings.rule_url), flags=spell_facts(options), subject=spell_subject(options)
    )


def format_troubles(result: Result) -> Iterator[str]:
    """Return one line for each problem that prevented a check."""
    from cfglint_train.foundation.redact import build_redaction
    from cfglint_train.reports import text

    redact = build_redaction(result.secrets)
    return (f"error: {text.format_trouble(trouble, redact)}" for trouble in result.troubles)


def report_gaps(runs: Sequence[Any], result: Result | None = None, named_paths: Iterable[str] = ()) -> bool:
    """Print on standard error which runs and named files were not estimated, each with its reason.

    Return whether all were.
    """
    from cfglint_train.reports import answer, text

    gaps = answer.list_gaps(runs, () if result is None else result.unread_runs, named_paths)
    lines = [f"error: {sanitize(path)}: not estimated: {sanitize(reason)}" for path, reason in gaps]
    is_complete = bool(runs) and not gaps
    if result is not None:
        is_complete = is_complete and not any(file.named and not file.is_launch for file in result.skipped)
        lines += text.describe_skipped(result)
        lines += [] if runs or gaps else [text.describe_no_run(result)]
    print_remarks(lines)
    return is_complete


def format_verbose(result: Result, options: Any) -> Iterator[str]:
    """Yield the lines that `--verbose` adds: why files were skipped, and the releases of the runs."""
    if options.verbose:
        launches = {os.path.abspath(document.path) for run in result.runs for document, _ in run.main.launches}
        for skipped in result.skipped:
            if os.path.abspath(skipped.path) in launches:
                continue  # its runs are checked
            yield f"not checked: {sanitize(skipped.path)}: {sanitize(skipped.reason)}"
        from cfglint_train.reports import releases

        yield from releases.format_releases(result.runs)
