"""Entry fields: fields of a list's entries that have no effect because of other settings (`entries.json`).

A file names the sections whose entries it describes, the field that selects a reader, the values of this selector that
read each field, and the settings that override a field. Entries with any other selector are not judged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from json import loads

from cfglint_rules.vocabulary.operators import evaluate_test
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import get_checked_keys
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Delete, Route, Unknown
from cfglint_train.findings.finding import Fix, Related, Report
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.operators import Test

EntryTable = Mapping[str, Any]
"""The parsed file of a framework."""


@cache
def load_entry_table(framework: str) -> EntryTable | None:
    """Return the table of a framework, or None if it has none."""
    path = os.path.join(list_frameworks()[framework].folder, "entries.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        table: EntryTable = loads(file.read())
    return table


def report_unread_fields(config: Config, settings: Settings) -> Iterator[Report]:
    """Yield a report for every field that its entries do not read, or that a setting overrides."""
    table = load_entry_table(config.framework)
    if table is None or not _is_match(table["when"], settings):
        return
    overrides = {name: row for name, row in table["overrides"].items() if _is_match(row["when"], settings)}
    routes: dict[tuple[str, str], list[Route]] = {}
    for selected, route in _list_fields(config, table):
        routes.setdefault((selected, str(route[-1])), []).append(route)
    for (selected, name), places in routes.items():
        readers, selector = table["fields"][name], table["selector"]
        if selected not in readers:
            setting = f"a custom `{selector}`" if selected == table["mapping"] else f"`{selector}: {selected}`"
            remedy = f"set `{selector}: {readers[0]}` to have it read"
            yield _build_report(config, places, f"{setting} does not read it", remedy)
        elif name in overrides:
            yield _build_report(config, places, overrides[name]["message"], overrides[name]["help"])


def _is_match(tests: Mapping[str, Test], settings: Settings) -> bool:
    values = {name: settings.get_value(name) for name in tests}
    return all(not isinstance(value, Unknown) and evaluate_test(tests[name], value) for name, value in values.items())


def _list_fields(config: Config, table: EntryTable) -> Iterator[tuple[str, Route]]:
    """Yield the fields of the entries with a known selector, each with the selector."""
    for section in table["sections"]:
        entries = config.get_value(section)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            selected = _get_selected(entry, table)
            if selected is None or selected not in table["values"]:
                continue
            for name in table["fields"]:
                route: Route = (section, index, name)
                if entry.get(name) is not None and _is_declared(config, route):
                    yield selected, route


def _get_selected(entry: Any, table: EntryTable) -> str | None:
    """Return the selector of an entry without its variants (`alpaca_chat.load_qa`, `alpaca:chat`), or None."""
    value = entry.get(table["selector"]) if isinstance(entry, dict) else None
    if isinstance(value, dict):
        return str(table["mapping"])
    return re.split(r"[.:]", value)[0] if isinstance(value, str) else None


def _is_declared(config: Config, route: Route) -> bool:
    """Return whether upstream declares a field, and no program of the repository changes it."""
    keys = get_checked_keys(config)
    if keys is None or get_mutations(config).is_changed(route) or config.evidence.vocabulary is not None:
        return False
    fact = keys.get_vocabulary(config).find_fact(route, keys.get_release(config), keys.build_context(config))
    return fact is not None and fact.resolve_status().kind == PRESENT


def _build_report(config: Config, routes: list[Route], reason: str, remedy: str) -> Report:
    name = str(routes[0][-1])
    entries = [config.get_entry(*route) for route in routes]
    first, *others = [Place(*config.document.locate_key(entry)) for entry in entries if entry is not None]
    changes = tuple(Delete((*config.root, *route)) for route in routes)
    return Report(
        f"`{name}` has no effect: {reason}",
        first,
        "info" if config.evidence.fork is not None else "warning",
        Fix("unsafe", f"remove `{name}`", keys=((config, changes),)),
        related=tuple(Related(place, "and here") for place in others),
        help=remedy,
    )
