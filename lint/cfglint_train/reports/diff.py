"""The diffs and summaries of fixing, safe to print."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.fixing.loop import Fixed
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import redaction
from cfglint_train.foundation.wording import counted
from cfglint_train.reports.escape import diff_line, printable


class Diff(Frozen):
    """Unified diffs of every file that would change."""

    lines: tuple[str, ...]
    altered: int
    """Lines that are shown otherwise than they are: they hold a credential, or what a terminal or a CI would obey."""


def unified(fixed: Fixed) -> Diff:
    """The diffs of all files, ready to be printed; `patch` takes them unless lines were altered."""
    from difflib import unified_diff

    redact = redaction(fixed.result.secrets)
    lines: list[str] = []
    altered = 0
    for path, source in sorted(fixed.sources.items()):
        before, after = _lines(fixed.originals[path]), _lines(source)
        name = printable(path)
        for line in unified_diff(before, after, name, name):
            text = line.removesuffix("\n")
            shown = diff_line(redact(text))
            altered += shown != text
            lines.append(shown)
            if not line.endswith("\n"):
                lines.append("\\ No newline at end of file")
    return Diff(tuple(lines), altered)


def _lines(source: bytes) -> list[str]:
    """The lines with their `\\n`; the last one may have none."""
    *whole, last = source.decode("utf-8", "replace").split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def promise(fixed: Fixed) -> str:
    """How much `--fix` would do."""
    return f"--fix would change {counted(len(fixed.sources), 'file')}."


def summary(fixed: Fixed) -> Iterator[str]:
    """What was fixed, and what was not and why."""
    redact = redaction(fixed.result.secrets)
    for one in fixed.applied:
        yield f"fixed: {printable(one.path)}: {one.code} {printable(redact(one.message))}"
    yield from refusals(fixed)
    for finding in fixed.result.findings:
        fix = finding.intent
        if fix is not None and fix.decision and fix.applicability == "unsafe":
            said = printable(redact(f"{fix.message}; {fix.decision}"))
            yield f"to decide: {printable(finding.path)}: {finding.code} {said}"


def refusals(fixed: Fixed) -> Iterator[str]:
    """What was not fixed, and why."""
    redact = redaction(fixed.result.secrets)
    for one in fixed.refused:
        yield f"not fixed: {printable(one.path)}: {one.code}: {printable(redact(one.reason))}"
