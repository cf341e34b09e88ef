"""The number of findings per rule, as a table or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cfglint_train.findings.finding import SEVERITIES
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.judging.result import Result
from cfglint_train.reports import text
from cfglint_train.reports.json import encode
from cfglint_train.reports.style import Style


class RuleCount(Frozen):
    """The number of findings of one rule."""

    code: str
    name: str
    severity: str
    """The highest severity among the findings."""
    severities: Mapping[str, int]
    """Number of findings by severity, highest first."""
    findings: int
    files: int
    fixable: int
    """Number of findings that `--fix` or `--fix --unsafe-fixes` resolves."""
    frameworks: Mapping[str, int]
    """Number of findings by the framework of their configuration."""


def count_findings(result: Result) -> list[RuleCount]:
    """Count the findings of each rule, most frequent rule first."""
    framework_of = {file.path: file.framework for file in result.files}
    by_code: dict[str, list[Any]] = {}
    for finding in result.findings:
        by_code.setdefault(finding.code, []).append(finding)
    rule_counts = [
        RuleCount(
            code,
            findings[0].name,
            min((finding.severity for finding in findings), key=SEVERITIES.index),
            dict(Counter(sorted((finding.severity for finding in findings), key=SEVERITIES.index))),
            len(findings),
            len({finding.path for finding in findings}),
            sum(finding.fix is not None and bool(finding.fix.edits) for finding in findings),
            dict(Counter(sorted(framework_of[item.path] for item in findings if item.path in framework_of))),
        )
        for code, findings in by_code.items()
    ]
    return sorted(rule_counts, key=lambda count: (-count.findings, count.code))


def render_table(result: Result, style: Style) -> Iterator[str]:
    """Yield a line per rule, then the problems and the summary."""
    rule_counts = count_findings(result)
    width = max((len(str(count.findings)) for count in rule_counts), default=0)
    has_frameworks = len({file.framework for file in result.files}) > 1
    severity_width = max((len(_format_severities(count)) for count in rule_counts), default=0)
    for count in rule_counts:
        mark = "[*]" if count.fixable == count.findings else "[-]" if count.fixable else "   "
        code = style.link(style.paint(count.code, "1"), style.build_page_url(count.code, count.name))
        frameworks = _format_frameworks(count) if has_frameworks else ""
        yield (
            f"{count.findings:>{width}}  {code}  {mark} {_format_severities(count):<{severity_width}}  "
            f"{count.name}{frameworks}"
        )
    if any(count.fixable for count in rule_counts):
        yield "[*] all fixable with --fix (some need --unsafe-fixes), [-] some fixable"
    yield from text.render_troubles(result, style)
    if not style.quiet:
        yield from text.render_summary(result)


def _format_severities(count: RuleCount) -> str:
    """Return the severity of a rule's findings, or the number of findings by severity if they differ."""
    if len(count.severities) == 1:
        return count.severity
    return ", ".join(format_count(number, severity) for severity, number in count.severities.items())


def _format_frameworks(count: RuleCount) -> str:
    """Return the number of findings by framework as a suffix, or an empty string."""
    frameworks = ", ".join(f"{list_frameworks()[name].title} {number}" for name, number in count.frameworks.items())
    return f" ({frameworks})" if frameworks else ""


def render_json(result: Result) -> Iterator[str]:
    """Yield the counts as a JSON list."""
    yield encode([count._asdict() for count in count_findings(result)])
