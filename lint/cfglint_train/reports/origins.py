"""The fields of a run's plan with their values and origins, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Position
from cfglint_train.foundation.redact import Redact, build_redaction
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text
from cfglint_train.reports.json import encode
from cfglint_train.reports.style import Style
from cfglint_train.reports.text import wrap_text
from cfglint_train.runs.run import Run

_VALUE_WIDTH: Final = 24
"""Columns for values; longer values push the origin to the right."""


def render_table(runs: Iterable[Run], secrets: Iterable[str], style: Style) -> Iterator[str]:
    """Yield, for every run, the known fields, the hardware and the releases, then the names of unknown fields."""
    redact = build_redaction(secrets)
    for run in runs:
        yield style.paint(escape_line_start(run.main.document.path), "1") + f"  ({run.framework.title})"
        rows = list(_list_rows(run))
        width = max(len(name) for name, _, _ in rows)
        for name, value, origin in rows:
            text = escape_text(redact(value))
            yield from wrap_text(
                f"  {name:<{width}}  {text:<{_VALUE_WIDTH}}  ",
                escape_text(redact(describe_origin(origin))),
                style,
                width + 6,
            )
        unknown = [field for field in FIELDS if run.resolved_plan.get(field) is None]
        yield from wrap_text("  not known: ", ", ".join(unknown), style, 4)
        yield ""


def _list_rows(run: Run) -> Iterator[tuple[str, str, Origin]]:
    for field in FIELDS:
        value = run.resolved_plan.values.get(field)
        if value is not None and (value.value is not None or value.origin.kind == "explicit"):
            yield field, format_value(value.value), value.origin
    hardware = run.hardware
    if hardware.gpu_bytes is not None:
        name = f"{hardware.gpu}, " if hardware.gpu else ""
        yield "gpu", f"{name}{format_gib(hardware.gpu_bytes)}", hardware.gpu_origin
    for fact, size, origin in (
        ("host-memory", hardware.host_bytes, hardware.host_origin),
        ("disk", hardware.disk_bytes, hardware.disk_origin),
    ):
        if size is not None:
            yield fact, format_gib(size), origin
    for package, release in sorted(run.releases.by_package.items()):
        yield package, release.version, release.origin
    for package, allowed in sorted(run.releases.allowed_releases.items()):
        if package not in run.releases.by_package:
            yield package, str(allowed.constraint), allowed.origin


def format_value(value: Any) -> str:
    """Return a plan value as words."""
    if value is None:
        return "cannot be determined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(format_value, value)) or "none"
    return str(value)


def describe_origin(origin: Origin) -> str:
    """Describe the source of a value on one line."""
    place = _locate(origin)
    location = "" if place is None else f"{place[0]}:{place[1].line}:{place[1].column}"
    key = f" ({origin.key})" if origin.key else ""
    if origin.kind == "explicit":
        return f"{location}{key}" if location else f"stated{key}"
    if origin.kind == "default":
        return f"default of {origin.note}{key}"
    if origin.kind == "user":
        note = "" if location.partition(":")[0].endswith(origin.note) else origin.note
        return " ".join(filter(None, (note, location))) + key
    return f"{origin.kind}: {origin.note}"


def _locate(origin: Origin) -> tuple[str, Position] | None:
    if origin.place is None:
        return None
    return origin.place.document.path, origin.place.document.locate(origin.place.span.start)


def render_json(runs: Iterable[Run], secrets: Iterable[str]) -> Iterator[str]:
    """Yield the fields as a JSON object; `null` means unknown."""
    yield encode({"version": 1, "runs": build_runs(runs, secrets)})


def build_runs(runs: Iterable[Run], secrets: Iterable[str]) -> list[dict[str, Any]]:
    """Return the fields and releases of each run as plain values; None means unknown."""
    redact = build_redaction(secrets)
    return [
        {
            "path": escape_data(run.main.document.path),
            "framework": run.main.framework,
            "fields": {field: _build_field(run, field, redact) for field in FIELDS},
            "releases": {
                package: {"value": release.version, **_build_origin(release.origin, redact)}
                for package, release in sorted(run.releases.by_package.items())
            },
        }
        for run in runs
    ]


def _build_field(run: Run, field: Field, redact: Redact) -> dict[str, Any] | None:
    field_value = run.resolved_plan.values.get(field)
    if field_value is None:
        return None
    value = field_value.value
    if not isinstance(value, (bool, int, float, type(None))):
        value = escape_data(redact(format_value(value)))
    return {"value": value, **_build_origin(field_value.origin, redact)}


def _build_origin(origin: Origin, redact: Redact) -> Mapping[str, Any]:
    place = _locate(origin)
    return {
        "origin": origin.kind,
        "note": escape_data(redact(origin.note)),
        "key": escape_data(redact(origin.key)),
        "path": None if place is None else escape_data(place[0]),
        "line": None if place is None else place[1].line,
        "column": None if place is None else place[1].column,
    }
