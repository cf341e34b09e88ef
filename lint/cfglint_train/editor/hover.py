"""Hover texts: the meaning of a key, its default and releases, its effective value, and its share of the memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from json import dumps

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.kinds import ValueKind
from cfglint_schemas.status import Context
from cfglint_train.documents.document import Route
from cfglint_train.editor.session import Setting
from cfglint_train.findings.verdicts import Judgement
from cfglint_train.fitting import places
from cfglint_train.fitting.alternatives import MAX_VALUE, find_largest
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.key_availability import is_missing
from cfglint_train.frameworks.lens import format_route
from cfglint_train.plan.field_docs import load_meanings
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue
from cfglint_train.reports.origins import describe_origin, format_value
from cfglint_train.runs.run import Run

SIZES: Final[tuple[Field, ...]] = ("batch.micro", "sequence.length")
"""Fields whose largest value that fits is worth knowing."""

_STATUSES: Final = {
    "removed": "not in this release any more",
    "renamed": "has another name in this release",
    "ignored": "accepted and never read",
    "gated": "needs a plugin or another key",
    "not yet": "not in this release yet",
}
_KIND_NAMES: Final = {
    "int": "integer", "float": "number", "bool": "true or false", "str": "text", "list": "list", "dict": "section",
    "any": "any value",
}  # fmt: skip


def describe_setting(setting: Setting) -> str:
    """Return the Markdown that explains a setting."""
    config = setting.config
    title = frameworks.load(config.framework).manifest.title
    route = _resolve_abbreviation(setting)
    explanation = "" if route == setting.route else f" means `{format_route(route)}`"
    lines = [f"**`{format_route(setting.route)}`**{explanation} ({title} {config.release})"]
    fact = find_fact(setting)
    if fact is None:
        if is_missing(config, route) and setting.route[-1] != "_CLASS_":
            lines.append("not a key of this release")
    elif not fact.is_open:
        lines += _describe_fact(fact, config.release)
    for field, value in list_fields(setting):
        meaning = load_meanings().get(field, "")
        origin = describe_origin(value.origin).removeprefix(f"{os.path.dirname(config.document.path)}/")
        effective = f"`{field}` = `{format_value(value.value)}` ({origin})"
        lines.append(f"{effective}: {meaning}" if meaning else effective)
        lines += _describe_memory(places.choose_worse(setting.run), field, value)
    return "\n\n".join(lines)


def _resolve_abbreviation(setting: Setting) -> Route:
    """Return the route of a setting's key; argparse accepts the beginning of a flag for the flag."""
    keys = frameworks.get_keys(setting.config)
    if keys is not None and len(setting.route) == 1 and str(setting.route[0]).startswith("--"):
        for entry, name in keys.parse_flags(setting.config) or ():
            if entry.name == setting.route[0] and name is not None:
                return (name,)
    return setting.route


def find_fact(setting: Setting) -> KeyFact | None:
    """Return the fact about a setting's key in the vocabulary, or None."""
    config = setting.config
    keys = frameworks.get_keys(config)
    if keys is None:
        return None
    route, context = find_place(setting)
    return keys.get_vocabulary(config).find_fact(route, config.release, context)


def find_place(setting: Setting) -> tuple[Route, Context]:
    """Return the route of a setting's key in the vocabulary, and the context in which the vocabulary knows it."""
    config, route = setting.config, _resolve_abbreviation(setting)
    keys = frameworks.get_keys(config)
    if keys is None:
        return route, Context()
    context = keys.build_context(config)
    if keys.get_vocabulary(config).find_fact(route, config.release, context) is None:
        option = keys.find_launcher_option(config, route)
        if option is not None and option.entry == "script":
            # A section that is built by a class has the fields of that class.
            return option.route, context._replace(entry=option.entry)
    return route, context


def list_fields(setting: Setting) -> list[tuple[Field, FieldValue]]:
    """Return the plan fields that the setting's key states or would state, with their effective values."""
    key, framework = format_route(setting.route), setting.config.framework
    return [
        (field, value)
        for field, value in setting.run.resolved_plan
        if value.origin.key == key and value.origin.framework in (framework, "")
    ]


def _describe_fact(fact: KeyFact, release: str) -> Iterator[str]:
    status = fact.resolve_status()
    parts = [" or ".join(dict.fromkeys(filter(None, map(format_kind, fact.list_kinds()))))]
    schema = fact.get_schema(release)
    if "default" in schema:
        parts.append(f"default `{dumps(schema['default'], ensure_ascii=False)}`")
    if fact.first_release is not None:
        parts.append(f"since {fact.package} {fact.first_release}")
    last = fact.spans[-1].get("last") if fact.spans else None
    if last is not None:
        parts.append(f"until {last}")
    yield "; ".join(filter(None, parts))
    if status.kind in _STATUSES:
        names = f": {', '.join(f'`{name}`' for name in status.new_names)}" if status.new_names else ""
        yield f"{_STATUSES[status.kind]}{names}"
    elif fact.is_deprecated:
        yield "deprecated"


def format_kind(kind: ValueKind) -> str:
    """Return one kind of value as words, or an empty string for null."""
    if kind.name == "enum":
        return ", ".join(f"`{value}`" for value in kind.values)
    if kind.name == "list" and kind.items:
        return f"list of {' or '.join(filter(None, map(format_kind, kind.items)))}"
    return _KIND_NAMES.get(kind.name, "")


def _describe_memory(run: Run, field: Field, stated: FieldValue) -> Iterator[str]:
    """Yield the peak with other values of a field: the opposite of a switch, the smallest and the largest size."""
    value = stated.value
    now = places.find_worst(run)
    if now is None:
        return
    if isinstance(value, bool):
        other = places.find_worst(run.replace_fields({field: not value}))
        if other is not None and other.budget.expected != now.budget.expected:
            yield f"peak {_format_peak(now)}; with `{format_value(not value)}` {_format_peak(other)}"
    elif field in SIZES and isinstance(value, int):
        smallest = places.find_worst(run.replace_fields({field: 1}))
        if smallest is not None and smallest.budget.expected < now.budget.expected:
            share = format_gib(now.budget.expected - smallest.budget.expected)
            yield f"{share} of the peak {_format_peak(now)} are due to this value"
        yield from describe_largest(run, field, stated)


def describe_largest(run: Run, field: Field, stated: FieldValue) -> Iterator[str]:
    """Yield the largest value of a field that fits, as words, if the field's value is the number in the text.

    A key may count something else than the field: tokens of a batch, or only the answers of a sequence.
    """
    place = stated.origin.place
    numbers = () if place is None else re.findall(r"\d(?:_?\d)*", place.document.get_text(place.span))
    if not numbers or int(numbers[-1]) != stated.value:
        return
    largest = run.compute_once(_LARGEST[field])
    if largest == MAX_VALUE:
        yield "no limit was found"
    else:
        yield f"largest that fits: {largest:,}" if largest else "no value is sure to fit"


def _find_largest_batch(run: Run) -> int:
    return find_largest(run, "batch.micro")


def _find_largest_length(run: Run) -> int:
    return find_largest(run, "sequence.length")


_LARGEST: Final = {"batch.micro": _find_largest_batch, "sequence.length": _find_largest_length}
"""Searches by field, as functions whose results a run keeps."""


def _format_peak(judgement: Judgement) -> str:
    return f"{format_gib(judgement.budget.expected)} of {format_gib(judgement.capacity)} ({judgement.verdict})"
