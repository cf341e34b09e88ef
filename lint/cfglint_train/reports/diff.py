"""Diffs and summaries of fixes, safe to print."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.fixing.loop import FixOutcome
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.foundation.wording import format_count
from cfglint_train.reports.escape import escape_diff_line, escape_text


class Diff(Frozen):
    """Unified diffs of all files that would change."""

    lines: tuple[str, ...]
    altered: int
    """Number of lines that are masked because they contain a credential or a command for terminals or CI systems."""


def build_diff(fixed: FixOutcome) -> Diff:
    """Return the diffs of all files, safe to print; `patch` accepts the diffs unless lines are altered."""
    from difflib import unified_diff

    redact = build_redaction(fixed.result.secrets)
    lines: list[str] = []
    altered = 0
    for path, source in sorted(fixed.sources.items()):
        before, after = _split_lines(fixed.originals[path]), _split_lines(source)
        name = escape_text(path)
        for line in unified_diff(before, after, name, name):
            text = line.removesuffix("\n")
            escaped = escape_diff_line(redact(text))
            altered += escaped != text
            lines.append(escaped)
            if not line.endswith("\n"):
                lines.append("\\ No newline at end of file")
    return Diff(tuple(lines), altered)


def _split_lines(source: bytes) -> list[str]:
    r"""Split a file's source into lines that keep their `\n`, which the last line may lack."""
    *whole, last = source.decode("utf-8", "replace").split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def format_promise(fixed: FixOutcome) -> str:
    """Return a sentence with the number of files that `--fix` would change."""
    return f"--fix would change {format_count(len(fixed.sources), 'file')}."


def render_summary(fixed: FixOutcome) -> Iterator[str]:
    """Yield a line for each applied fix, each refused fix, and each fix that needs a decision."""
    redact = build_redaction(fixed.result.secrets)
    for applied_fix in fixed.applied:
        files = escape_text(", ".join(applied_fix.files))
        yield f"fixed: {files}: {applied_fix.code} {escape_text(redact(applied_fix.message))}"
    yield from render_refusals(fixed)
    for finding in fixed.result.findings:
        fix = finding.intent
        if fix is not None and fix.advice and fix.applicability == "unsafe":
            decision = escape_text(redact(f"{fix.message}; {fix.advice}"))
            yield f"to decide: {escape_text(finding.path)}: {finding.code} {decision}"


def render_refusals(fixed: FixOutcome) -> Iterator[str]:
    """Yield a line for each refused fix, with the reason."""
    redact = build_redaction(fixed.result.secrets)
    for refused_fix in fixed.refused:
        yield (
            f"not fixed: {escape_text(refused_fix.path)}: {refused_fix.code}: {escape_text(redact(refused_fix.reason))}"
        )
