"""Text for changes to a run: each key once, with its old and new value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, Append, CannotEdit, Change, Delete, Rename, Set
from cfglint_train.findings.draft import group_by_lens, has_value
from cfglint_train.findings.verdicts import Judgement
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def format_settings(run: Run, changes: Mapping[Field, Any]) -> tuple[str, ...]:
    """Return each changed setting as `micro_batch_size: 16 -> 2`; return nothing if no file can state the changes."""
    try:
        return tuple(dict.fromkeys(_generate_settings(run, changes)))
    except CannotEdit:
        return ()


def _generate_settings(run: Run, changes: Mapping[Field, Any]) -> Iterator[str]:
    for config, lens, values in group_by_lens(run, changes):
        written = lens.write(config, values)
        field = next(iter(values)) if len(values) == len(written) == 1 else None
        for change in written:
            if isinstance(change, Set) and isinstance(change.value, dict):  # a section
                for key, value in change.value.items():
                    yield _format_setting(run, config, Set((*change.route, key), value), None)
            elif not has_value(config, change):
                yield _format_setting(run, config, change, field)


def _format_setting(run: Run, config: Config, change: Change, field: Field | None) -> str:
    route = change.route[len(config.root) :] if change.route[: len(config.root)] == config.root else change.route
    key = format_route(tuple(step for step in route if not isinstance(step, int)))
    spelled = run.spell_key(field) if field is not None else key
    key = key if key.startswith(f"{spelled}.") else spelled  # the lens may name only the section of the key
    if isinstance(change, Append):
        return f"{key}: + {format_value(change.value)}"
    if isinstance(change, Delete):
        return f"{key}: removed"
    if isinstance(change, Rename):
        return f"{key}: renamed to {change.key}"
    assert isinstance(change, Set)
    old = config.get_value(*route)
    if old is MISSING and field is not None and type(run.plan.get(field)) is int:
        old = run.plan.get(field)
        old = MISSING if old == change.value else old  # the setting now states the value that already applies
    return (
        f"{key}: {format_value(change.value)}"
        if old is MISSING
        else f"{key}: {format_value(old)} -> {format_value(change.value)}"
    )


def format_value(value: Any) -> str:
    """Return a value as the file spells it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(getattr(value, "text", value))  # Python expressions keep their source in `text`


def format_drop(before: Judgement, after: Judgement) -> str:
    """Return the expected sizes before and after: `92.1 -> 61.4 GiB`."""
    return f"{format_gib(before.budget.expected).removesuffix(' GiB')} -> {format_gib(after.budget.expected)}"


def format_slowdown(slowdown: float) -> str:
    """Describe a factor on the duration of a step: `no slowdown`, `about 7 % slower`, `about 7 % faster`."""
    more, less = round((slowdown - 1) * 100), round((1 / slowdown - 1) * 100)
    return f"about {more} % slower" if more >= 1 else f"about {less} % faster" if less >= 1 else "no slowdown"
