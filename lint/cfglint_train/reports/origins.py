"""Every field of a run's plan with its value and where that comes from: a table for people, a list for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Position
from cfglint_train.foundation.redact import Redact, redaction
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.reports.escape import leading, plain, printable
from cfglint_train.reports.json import encoded
from cfglint_train.reports.style import Style
from cfglint_train.reports.text import wrapped
from cfglint_train.runs.run import Run

_VALUE: Final = 24
"""Columns of the values; longer ones push their origin to the right."""


def table(runs: Iterable[Run], secrets: Iterable[str], style: Style) -> Iterator[str]:
    """The fields of every run, then its cluster and releases; unknown fields are named at the end."""
    redact = redaction(secrets)
    for run in runs:
        yield style.paint(leading(run.main.document.path), "1") + f"  ({run.framework.title})"
        rows = list(_rows(run))
        width = max(len(name) for name, _, _ in rows)
        for name, value, origin in rows:
            shown = printable(redact(value))
            yield from wrapped(
                f"  {name:<{width}}  {shown:<{_VALUE}}  ", printable(redact(_told(origin))), style, width + 6
            )
        unknown = [field for field in FIELDS if run.reading.get(field) is None]
        yield from wrapped("  not known: ", ", ".join(unknown), style, 4)
        yield ""


def _rows(run: Run) -> Iterator[tuple[str, str, Origin]]:
    for field in FIELDS:
        told = run.reading.values.get(field)
        if told is not None and (told.value is not None or told.origin.kind == "explicit"):
            yield field, _shown(told.value), told.origin
    hardware = run.hardware
    if hardware.gpu_bytes is not None:
        name = f"{hardware.gpu}, " if hardware.gpu else ""
        yield "gpu", f"{name}{gib(hardware.gpu_bytes)}", hardware.gpu_origin
    for place, size, origin in (
        ("host-memory", hardware.host_bytes, hardware.host_origin),
        ("disk", hardware.disk_bytes, hardware.disk_origin),
    ):
        if size is not None:
            yield place, gib(size), origin
    for package, release in sorted(run.releases.known.items()):
        yield package, release.version, release.origin
    for package, allowed in sorted(run.releases.ranges.items()):
        if package not in run.releases.known:
            yield package, str(allowed.constraint), allowed.origin


def _shown(value: Any) -> str:
    if value is None:
        return "cannot be determined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_shown, value)) or "none"
    return str(value)


def _told(origin: Origin) -> str:
    """Where a value comes from, in words."""
    place = _place(origin)
    at = "" if place is None else f"{place[0]}:{place[1].line}:{place[1].column}"
    key = f" ({origin.key})" if origin.key else ""
    if origin.kind == "explicit":
        return f"{at}{key}" if at else f"stated{key}"
    if origin.kind == "default":
        return f"default of {origin.note}{key}"
    if origin.kind == "user":
        note = "" if at.partition(":")[0].endswith(origin.note) else origin.note
        return " ".join(filter(None, (note, at))) + key
    return f"{origin.kind}: {origin.note}"


def _place(origin: Origin) -> tuple[str, Position] | None:
    if origin.place is None:
        return None
    return origin.place.document.path, origin.place.document.position(origin.place.span.start)


def as_json(runs: Iterable[Run], secrets: Iterable[str]) -> Iterator[str]:
    """The same as an object; `null` is unknown."""
    redact = redaction(secrets)
    yield encoded(
        {
            "version": 1,
            "runs": [
                {
                    "path": plain(run.main.document.path),
                    "framework": run.main.framework,
                    "fields": {field: _field(run, field, redact) for field in FIELDS},
                    "releases": {
                        package: {"value": release.version, **_origin(release.origin, redact)}
                        for package, release in sorted(run.releases.known.items())
                    },
                }
                for run in runs
            ],
        }
    )


def _field(run: Run, field: Field, redact: Redact) -> dict[str, Any] | None:
    told = run.reading.values.get(field)
    if told is None:
        return None
    value = told.value
    if not isinstance(value, (bool, int, float, type(None))):
        value = plain(redact(_shown(value)))
    return {"value": value, **_origin(told.origin, redact)}


def _origin(origin: Origin, redact: Redact) -> Mapping[str, Any]:
    place = _place(origin)
    return {
        "origin": origin.kind,
        "note": plain(redact(origin.note)),
        "key": plain(redact(origin.key)),
        "path": None if place is None else plain(place[0]),
        "line": None if place is None else place[1].line,
        "column": None if place is None else place[1].column,
    }
