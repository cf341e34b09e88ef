"""What a finding rests on: the facts that its rule read, what changes with the assumed ones, and how to be sure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_rules.registry import RULES
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, redaction
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.certainty import Certainty, Scenario, grade, where
from cfglint_train.plan.fields import FIELDS, Role
from cfglint_train.plan.origin import Origin
from cfglint_train.reports.escape import leading, plain, printable
from cfglint_train.reports.json import encoded
from cfglint_train.reports.style import Style
from cfglint_train.reports.text import wrapped
from cfglint_train.runs.assumptions import assumptions
from cfglint_train.runs.run import Run

VERSION: Final = 1
_WIDEST: Final = 36
"""Characters of a column; longer values push the next one to the right."""


class Fact(Frozen):
    """A fact that a rule read."""

    fact: str
    """A plan field, `gpu`, `host-memory`, `disk`, or a package."""
    key: str
    """The key by which the configuration states it; empty where none does."""
    value: Any
    grade: Certainty
    note: str
    """Where it is, or where it comes from."""
    remedy: str
    """How to be sure of it; empty where it is stated."""


def facts(finding: Finding) -> list[Fact]:
    """The facts that the rule of a finding read, in the order of the plan; the others that it rests on at the end."""
    found = [] if finding.run is None else list(_facts(finding, finding.run))
    known = {one.fact for one in found}
    found += [
        Fact(ground.fact, "", ground.value, ground.grade, ground.source or ground.note, "")
        for ground in finding.rests_on
        if ground.fact not in known
    ]
    return found


def _facts(finding: Finding, run: Run) -> Iterator[Fact]:
    rule = RULES[finding.code]
    assumed = {one.fact: one.note for one in assumptions(run)}
    read = {*finding.reads, *(run.estimate.fields if rule.estimates else ())}
    for field in FIELDS:
        origin, value = run.origin(field), run.plan.get(field)
        if field in read and value is not None and origin is not None:
            yield _fact(field, run.spell(field), value, origin, assumed.get(field))
    hardware = run.hardware
    for resource, fact, value, origin in (
        ("gpu", "gpu", hardware.gpu_bytes, hardware.gpu_origin),
        ("host", "host-memory", hardware.host_bytes, hardware.host_origin),
        ("disk", "disk", hardware.disk_bytes, hardware.disk_origin),
    ):
        if resource in rule.estimates and value is not None:
            yield _fact(fact, "", gib(value), origin, assumed.get(fact))


def _fact(fact: str, key: str, value: Any, origin: Origin, assumed: str | None) -> Fact:
    sure = "assumed" if assumed is not None else grade(origin)
    note = where(origin.place, origin.note)
    remedy = assumed or (f"state `{key}`" if sure == "followed" and key and key != fact else "")
    return Fact(fact, key if key != fact else "", value, sure, note, remedy)


def table(findings: Iterable[Finding], secrets: Iterable[str], style: Style) -> Iterator[str]:
    """The same for people."""
    redact = redaction(secrets)
    for finding in findings:
        place = f"{leading(finding.path)}:{finding.start.line}"
        yield from wrapped(
            f"{place}: {finding.severity} {style.paint(finding.code, '1')} ",
            printable(redact(finding.message)),
            style,
            4,
        )
        yield f"certainty: {finding.certainty}"
        rows = facts(finding)
        yield from _facts_table(rows, redact, style)
        yield from _corners(finding.corners, redact, style)
        if any(one.grade == "followed" and one.key for one in rows):
            yield "to pin a fact that is followed, state its key"
        assumed = [one for one in rows if one.grade == "assumed" and one.remedy]
        if assumed:
            yield "assumed:"
            for one in assumed:
                yield from wrapped(f"  {one.fact}: ", printable(redact(one.remedy)), style, 4)
        yield ""


def _facts_table(rows: list[Fact], redact: Redact, style: Style) -> Iterator[str]:
    if not rows:
        yield "rests on the text of the file alone"
        return
    yield "facts:"
    shown = [(one.fact, printable(redact(_words(one.value))), one.grade, _source(one)) for one in rows]
    widths = [min(_WIDEST, max(len(row[column]) for row in shown)) for column in range(3)]
    for row in shown:
        head = "  ".join(text.ljust(width) for text, width in zip(row, widths))
        yield from wrapped(f"  {head}  ", printable(redact(row[3])), style, 4)


def _words(value: Any) -> str:
    """A value of the plan as people read it: numbers with separators, lists without brackets."""
    if isinstance(value, Role):
        return f"{value.name} on {value.nodes or '?'} x {value.gpus_per_node or '?'}"
    if isinstance(value, tuple):
        return ", ".join(f"{item[0]}: {_words(item[1])}" if type(item) is tuple else _words(item) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def _source(one: Fact) -> str:
    return f"{one.note} (`{one.key}`)" if one.key and one.note else one.note or one.key


def _corners(corners: Iterable[Scenario], redact: Redact, style: Style) -> Iterator[str]:
    for number, corner in enumerate(corners):
        if number == 0:
            yield "with other values:"
        values = ", ".join(f"{fact} = {_words(value)}" for fact, value in corner.facts)
        told = "the finding holds" if corner.holds else "the finding is milder or gone"
        yield from wrapped(f"  {printable(redact(values))}: ", told, style, 4)


def as_json(findings: Iterable[Finding], secrets: Iterable[str]) -> Iterator[str]:
    """The same as an object."""
    redact = redaction(secrets)
    yield encoded({"version": VERSION, "findings": [_finding(one, redact) for one in findings]})


def _finding(finding: Finding, redact: Redact) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "path": plain(finding.path),
        "line": finding.start.line,
        "message": plain(redact(finding.message)),
        "certainty": finding.certainty,
        "facts": [{name: _plain(value, redact) for name, value in one._asdict().items()} for one in facts(finding)],
        "corners": [
            {"facts": {fact: _plain(value, redact) for fact, value in corner.facts}, "holds": corner.holds}
            for corner in finding.corners
        ],
    }


def _plain(value: Any, redact: Redact) -> Any:
    return value if value is None or isinstance(value, (bool, int, float)) else plain(redact(_words(value)))
