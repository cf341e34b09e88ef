"""Text of the model catalogue's files: family files, the name index and the shape index. Does not need torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from cfglint_train.foundation.typed import Any
from cfglint_train.models.names import parse_name

Sources = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Family file -> model id -> source entry."""


class AmbiguousError(Exception):
    """Error for a name that would refer to two models."""


def format_family(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a family file, one model per line."""
    lines = (f"{json.dumps(model)}: {json.dumps(fields, separators=(',', ':'))}" for model, fields in records.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def build_index(sources: Sources) -> dict[str, Any]:
    """Return the name index: files, models as (file number, id), `names` (keys) and `ids` (full ids in lower case).

    Keys and full ids map to the model's position in the list of models. `ids` only has full ids whose key does not
    already lead to the model. An entry with `"key": false` is only found by its full id, because another model owns the
    key. Raises AmbiguousError if two entries claim the same id or the same key.
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
    """Add a name for the model at `position`; raise AmbiguousError if the name already refers to another model."""
    if table.setdefault(name, position) != position:
        raise AmbiguousError(f"{name!r} would mean {models[table[name]][1]} and {models[position][1]}")


def format_index(data: Mapping[str, Any]) -> str:
    """Return the text of the name index, with one model or name per line."""
    models = ",\n".join(json.dumps(position) for position in data["models"])
    sections = (f'"{section}": {format_rows(data[section])}' for section in ("ids", "names"))
    head = [f'"files": {json.dumps(data["files"])}', f'"models": [\n{models}\n]']
    return "{\n" + ",\n".join([*head, *sections]) + "\n}\n"


def format_rows(table: Mapping[str, Any]) -> str:
    """Return the text of a JSON object with one item per line."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in table.items()) + "\n}"


def index_shapes(files: list[str], rows: Iterable[tuple[str, str, str]]) -> dict[str, list[Any]]:
    """Return shape -> [file number, id] for rows of (file, id, shape), without shapes that several models share."""
    table: dict[str, list[Any]] = {}
    ambiguous: set[str] = set()
    for family, model, shape in rows:
        position = [files.index(family), model]
        if table.setdefault(shape, position) != position:
            ambiguous.add(shape)
    return {shape: position for shape, position in sorted(table.items()) if shape not in ambiguous}
