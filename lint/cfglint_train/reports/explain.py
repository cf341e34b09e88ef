"""Explanation of a finding: the facts that its rule read, the scenarios tried, and ways to make it certain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cfglint_rules.registry import RULES
from cfglint_train.findings.finding import Finding
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.certainty import Certainty, Scenario, describe_place, grade_origin
from cfglint_train.plan.fields import FIELDS, Role
from cfglint_train.plan.origin import Origin
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.json import encode
from cfglint_train.reports.style import Style
from cfglint_train.reports.text import wrap_text
from cfglint_train.runs.assumptions import list_assumptions
from cfglint_train.runs.run import Run

VERSION: Final = 1
_MAX_COLUMN: Final = 36
"""Maximum width of a column; longer values push the next column to the right."""


class Fact(Frozen):
    """A fact that a rule read."""

    fact: str
    """A plan field, `gpu`, `host-memory`, `disk`, or a package."""
    key: str
    """Key that states the fact in the configuration; empty if there is none or it equals `fact`."""
    value: Any
    grade: Certainty
    note: str
    """Location or source of the value."""
    remedy: str
    """Way to make the fact certain; empty if the fact is stated or no setting can state it."""


def list_facts(finding: Finding) -> list[Fact]:
    """Return the facts that a finding's rule read, in plan order, then the other facts that the finding rests on."""
    read_facts = [] if finding.run is None else list(_list_run_facts(finding, finding.run))
    names = {fact.fact for fact in read_facts}
    read_facts += [
        Fact(ground.fact, "", ground.value, ground.grade, ground.source or ground.note, "")
        for ground in finding.rests_on
        if ground.fact not in names
    ]
    return read_facts


def _list_run_facts(finding: Finding, run: Run) -> Iterator[Fact]:
    rule = RULES[finding.code]
    assumed = {assumption.fact: assumption.note for assumption in list_assumptions(run)}
    read_fields = {*finding.fields_read, *(run.estimate.fields if rule.estimates else ())}
    for field in FIELDS:
        origin, value = run.get_origin(field), run.plan.get(field)
        if field in read_fields and value is not None and origin is not None:
            yield _build_fact(field, run.spell_key(field), value, origin, assumed.get(field))
    hardware = run.hardware
    for resource, fact, value, origin in (
        ("gpu", "gpu", hardware.gpu_bytes, hardware.gpu_origin),
        ("host", "host-memory", hardware.host_bytes, hardware.host_origin),
        ("disk", "disk", hardware.disk_bytes, hardware.disk_origin),
    ):
        if resource in rule.estimates and value is not None:
            yield _build_fact(fact, "", format_gib(value), origin, assumed.get(fact))


def _build_fact(fact: str, key: str, value: Any, origin: Origin, assumed: str | None) -> Fact:
    certainty = "assumed" if assumed is not None else grade_origin(origin)
    note = describe_place(origin.place, origin.note)
    remedy = assumed or (f"state `{key}`" if certainty == "followed" and key and key != fact else "")
    return Fact(fact, key if key != fact else "", value, certainty, note, remedy)


def render_table(findings: Iterable[Finding], secrets: Iterable[str], style: Style) -> Iterator[str]:
    """Yield the explanation as text."""
    redact = build_redaction(secrets)
    for finding in findings:
        place = f"{escape_line_start(finding.path)}:{finding.start.line}"
        yield from wrap_text(
            f"{place}: {finding.severity} {style.paint(finding.code, '1')} ",
            escape_text(redact(finding.message)),
            style,
            4,
        )
        yield f"certainty: {finding.certainty}"
        rows = list_facts(finding)
        yield from _render_facts(rows, redact, style)
        yield from _render_scenarios(finding.scenarios, redact, style)
        if any(item.grade == "followed" and item.key for item in rows):
            yield "to make a followed fact certain, set its key"
        assumed = [item for item in rows if item.grade == "assumed" and item.remedy]
        if assumed:
            yield "assumed:"
            for item in assumed:
                yield from wrap_text(f"  {item.fact}: ", escape_text(redact(item.remedy)), style, 4)
        yield ""


def _render_facts(rows: list[Fact], redact: Redact, style: Style) -> Iterator[str]:
    if not rows:
        yield "rests only on the text of the file"
        return
    yield "facts:"
    cells = [
        (fact.fact, escape_text(redact(_format_value(fact.value))), fact.grade, _format_source(fact)) for fact in rows
    ]
    widths = [min(_MAX_COLUMN, max(len(row[column]) for row in cells)) for column in range(3)]
    for row in cells:
        head = "  ".join(text.ljust(width) for text, width in zip(row, widths))
        yield from wrap_text(f"  {head}  ", escape_text(redact(row[3])), style, 4)


def _format_value(value: Any) -> str:
    """Format a plan value for people: integers with separators, lists without brackets."""
    if isinstance(value, Role):
        return f"{value.name} on {value.nodes or '?'} x {value.gpus_per_node or '?'}"
    if isinstance(value, tuple):
        return ", ".join(
            f"{item[0]}: {_format_value(item[1])}" if type(item) is tuple else _format_value(item) for item in value
        )
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def _format_source(fact: Fact) -> str:
    return f"{fact.note} (`{fact.key}`)" if fact.key and fact.note else fact.note or fact.key


def _render_scenarios(scenarios: Iterable[Scenario], redact: Redact, style: Style) -> Iterator[str]:
    for number, scenario in enumerate(scenarios):
        if number == 0:
            yield "with other values:"
        values = ", ".join(f"{fact} = {_format_value(value)}" for fact, value in scenario.facts)
        outcome = "the finding holds" if scenario.holds else "the finding is less severe or gone"
        yield from wrap_text(f"  {escape_text(redact(values))}: ", outcome, style, 4)


def render_json(findings: Iterable[Finding], secrets: Iterable[str]) -> Iterator[str]:
    """Yield the explanation as a JSON object."""
    redact = build_redaction(secrets)
    yield encode({"version": VERSION, "findings": [_build_finding(finding, redact) for finding in findings]})


def _build_finding(finding: Finding, redact: Redact) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "path": escape_data(finding.path),
        "line": finding.start.line,
        "message": escape_data(redact(finding.message)),
        "certainty": finding.certainty,
        "facts": [
            {name: _convert_value(value, redact) for name, value in item._asdict().items()}
            for item in list_facts(finding)
        ],
        "corners": [
            {"facts": {fact: _convert_value(value, redact) for fact, value in scenario.facts}, "holds": scenario.holds}
            for scenario in finding.scenarios
        ],
    }


def _convert_value(value: Any, redact: Redact) -> Any:
    return (
        value if value is None or isinstance(value, (bool, int, float)) else escape_data(redact(_format_value(value)))
    )
