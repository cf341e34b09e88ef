"""Settings outside the plan that differ between two runs of one framework."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from json import dumps

from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.redact import Redact
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field
from cfglint_train.records import FieldChange, SettingChange
from cfglint_train.releases.changed_settings import compare_settings, read_text
from cfglint_train.reports.escape import escape_data
from cfglint_train.reports.origins import format_value
from cfglint_train.runs.run import Run, find_lens

_MARKER: Final = compile_on_use(r"_[A-Z]+_")
"""Steps that a script lacks: the call of a class, the trainer, a recipe."""
_CALLS: Final = ("_CLASS_", "_FACTORY_")
"""Steps for the class of an argument, and for the function that makes it; they are the argument's value."""


def list_setting_changes(
    before: Run, after: Run, fields: Iterable[FieldChange], redact: Redact
) -> Iterator[SettingChange]:
    """Yield the settings that differ in the files of two runs, except those that state a changed field.

    Runs of two frameworks have no settings in common.
    """
    if before.framework.name != after.framework.name:
        return
    names = [item.field for item in fields]
    shown = [field for field in FIELDS if any(name == field or name.startswith(f"{field}.") for name in names)]
    field_keys = {key for run in (before, after) for field in shown for key in _list_keys(run, field)}
    for old in before.configs:
        new = next((config for config in after.configs if config.framework == old.framework), None)
        if new is None:
            continue
        for item in compare_settings(old, new):
            key = _format_key(item.route)
            is_in_section = any(_is_in_section(config, old, item.route) for config in before.configs)
            if key and not is_in_section and not _is_among(old.framework, item.route, field_keys):
                earlier = _convert_setting(old, item.route, item.before, redact)
                later = _convert_setting(new, item.route, item.after, redact)
                yield SettingChange(old.framework, escape_data(redact(key)), earlier, later)


def _list_keys(run: Run, field: Field) -> Iterator[tuple[str, str]]:
    """Yield each key that states or may state a field, with its framework."""
    origin = run.get_origin(field)
    if origin is not None and origin.key:
        yield origin.framework, origin.key
    for config in run.configs:
        lens = find_lens(config, field)
        for route in () if lens is None else lens.keys[field]:
            yield config.framework, format_route(route)


def _is_among(framework: str, route: Route, keys: Collection[tuple[str, str]]) -> bool:
    """Return whether a setting, or a section around it, is among keys."""
    return any((framework, format_route(route[:depth])) in keys for depth in range(1, len(route) + 1))


def _is_in_section(config: Config, main: Config, route: Route) -> bool:
    """Return whether a setting is in a section of its file that is a config of its own."""
    is_inner = config is not main and config.document is main.document and len(config.root) > len(main.root)
    return is_inner and (*main.root, *route)[: len(config.root)] == config.root


def _format_key(route: Route) -> str:
    """Return a setting as people write it, or nothing if no argument states it."""
    steps = route[:-1] if route and route[-1] in _CALLS else route
    if steps and _MARKER.fullmatch(str(steps[-1])):
        return ""
    return format_route(tuple(step for step in steps if isinstance(step, int) or not _MARKER.fullmatch(step)))


def _convert_setting(config: Config, route: Route, value: Any, redact: Redact) -> str | float | bool | None:
    """Return the value of a setting for reports; unset is None, and null is text."""
    if value is MISSING:
        return None
    if value is None:
        return "null"
    if isinstance(value, Unknown):
        return escape_data(redact(read_text(config, route, value)))
    is_nested = isinstance(value, dict) or (isinstance(value, list) and any(_is_collection(item) for item in value))
    return convert_value(dumps(value, ensure_ascii=False, default=_format_unknown) if is_nested else value, redact)


def _is_collection(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _format_unknown(value: Any) -> str:
    return value.path or value.reason if isinstance(value, Unknown) else str(value)


def convert_value(value: Any, redact: Redact) -> str | float | bool | None:
    """Return a value for reports: a number, a boolean or None as it is, and anything else as text."""
    if value is None or isinstance(value, bool):
        return value
    text = redact(format_value(value))
    is_number = isinstance(value, (int, float)) and text == format_value(value)  # a password may be a number
    return value if is_number else escape_data(text)
