"""The catalogue's files as text: family files, the index of names, the index of shapes. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from cfglint_train.foundation.typed import Any
from cfglint_train.models.names import parse_name

Sources = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Family file to model id to source entry."""


class AmbiguousError(Exception):
    """A name that would mean two models."""


def format_family(records: Mapping[str, Mapping[str, Any]]) -> str:
    """One family file: one line for each model."""
    lines = (f"{json.dumps(model)}: {json.dumps(fields, separators=(',', ':'))}" for model, fields in records.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def build_index(sources: Sources) -> dict[str, Any]:
    """The index: the files, the models as (file, id), keys, and the full ids (in lower case) whose key means another.

    Keys and full ids lead to the model's place in the list of models. Raises AmbiguousError where two entries claim
    one id or one key. An entry with `"key": false` is found by its full id only, because another model owns the key.
    """
    files = sorted(sources)
    models = [(number, model) for number, family in enumerate(files) for model in sources[family]]
    full: dict[str, int] = {}
    keys: dict[str, int] = {}
    for position, (number, model) in enumerate(models):
        entry = sources[files[number]][model]
        for name in (model, *entry.get("aliases", ())):
            claim_name(full, name.lower(), position, models)
            if entry.get("key", True):
                claim_name(keys, parse_name(name).key, position, models)
    ids = {name: position for name, position in full.items() if keys.get(parse_name(name).key) != position}
    return {"files": files, "models": models, "ids": dict(sorted(ids.items())), "names": dict(sorted(keys.items()))}


def claim_name(table: dict[str, int], name: str, position: int, models: list[tuple[int, str]]) -> None:
    """Enter a name, which may have only one meaning. Raises AmbiguousError."""
    if table.setdefault(name, position) != position:
        raise AmbiguousError(f"{name!r} would mean {models[table[name]][1]} and {models[position][1]}")


def format_index(data: Mapping[str, Any]) -> str:
    """The index with one line for each model and each name."""
    models = ",\n".join(json.dumps(position) for position in data["models"])
    sections = (f'"{section}": {format_rows(data[section])}' for section in ("ids", "names"))
    head = [f'"files": {json.dumps(data["files"])}', f'"models": [\n{models}\n]']
    return "{\n" + ",\n".join([*head, *sections]) + "\n}\n"


def format_rows(table: Mapping[str, Any]) -> str:
    """A table with one line for each row."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in table.items()) + "\n}"


def index_shapes(files: list[str], rows: Iterable[tuple[str, str, str]]) -> dict[str, list[Any]]:
    """Shape to (file, id) from (family, id, shape); a shape that two models share is left out."""
    table: dict[str, list[Any]] = {}
    ambiguous: set[str] = set()
    for family, model, shape in rows:
        position = [files.index(family), model]
        if table.setdefault(shape, position) != position:
            ambiguous.add(shape)
    return {shape: position for shape, position in sorted(table.items()) if shape not in ambiguous}
