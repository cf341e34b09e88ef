"""List what a schema file gained, lost and changed, and which lenses read it.

    python -m tools.schemas.changes NAME BEFORE

The list is the text of the pull request that brings the new releases of a framework (.github/workflows/schemas.yml).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary, find_schema_file
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import format_route
from cfglint_train.frameworks.registry import list_frameworks

Keys = Mapping[str, Mapping[str, Any]]
"""Dotted key -> JSON Schema of its values."""

MAX_ROWS: Final = 200
"""Maximum number of keys in a list; a pull request's text is limited to 65,536 characters."""


def list_keys(vocabulary: Vocabulary) -> Keys:
    """Return the keys that the newest release accepts, over all entry points."""
    release = vocabulary.newest
    return {
        ".".join(map(str, fact.route)): fact.get_schema(release)
        for entry in vocabulary.entries
        for fact in vocabulary.iterate_keys(release, Context(entry=entry))
    }


def list_readers(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the plan fields that lenses read from each key of a vocabulary, by dotted key."""
    fields_by_key: dict[str, set[str]] = {}
    for manifest in list_frameworks().values():
        if manifest.vocabulary == name:
            for lens in frameworks.load(manifest.name).lenses:
                for field, routes in lens.keys.items():
                    for route in routes:
                        fields_by_key.setdefault(format_route(route), set()).add(field)
    return {key: tuple(sorted(fields)) for key, fields in fields_by_key.items()}


def format_changes(name: str, before: Vocabulary, after: Vocabulary) -> Iterator[str]:
    """Yield the Markdown lines of the changes between two versions of a vocabulary."""
    old, new, read = list_keys(before), list_keys(after), list_readers(name)
    releases = [release for release in after.releases if release not in before.releases]
    yield f"{name} {before.newest} to {after.newest}; new releases: {', '.join(releases) or 'none'}."
    removed = sorted(old.keys() - new.keys())
    changed = [key for key in sorted(old.keys() & new.keys()) if old[key] != new[key]]
    lists = {
        "Added": [(key, _format_schema(new[key])) for key in sorted(new.keys() - old.keys())],
        "Removed": [(key, "") for key in removed],
        "Changed": [(key, _format_difference(old[key], new[key])) for key in changed],
    }
    for title, rows in lists.items():
        yield ""
        yield f"### {title} ({len(rows)})"
        yield ""
        for key, change in rows[:MAX_ROWS]:
            fields = read.get(key)
            lenses = f", read as {', '.join(f'`{field}`' for field in fields)}" if fields else ""
            yield f"- `{key}`{change and f': {change}'}{lenses}"
        if len(rows) > MAX_ROWS:
            yield f"- and {len(rows) - MAX_ROWS} more"
    touched = sorted({field for key in (*removed, *changed) for field in read.get(key, ())})
    yield ""
    yield f"Fields whose lenses to look at: {', '.join(f'`{field}`' for field in touched) or 'none'}."


def _format_schema(schema: Mapping[str, Any]) -> str:
    plain = {word: value for word, value in schema.items() if not word.startswith("x-")}
    return f"`{json.dumps(plain, ensure_ascii=False)}`" if plain else ""


def _format_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    words = [word for word in sorted({*old, *new}) if old.get(word) != new.get(word)]
    return "; ".join(f"{word} {_format_value(old, word)} -> {_format_value(new, word)}" for word in words)


def _format_value(schema: Mapping[str, Any], word: str) -> str:
    return f"`{json.dumps(schema[word], ensure_ascii=False)}`" if word in schema else "none"


def main(arguments: list[str] | None = None) -> int:
    """Print the changes since an earlier schema file, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.schemas.changes", description=__doc__)
    parser.add_argument("name", help="the vocabulary, such as axolotl")
    parser.add_argument("before", type=Path, help="the schema file as it was")
    options = parser.parse_args(arguments)
    current = Path(find_schema_file(options.name)).read_text(encoding="utf-8")
    before, after = (Vocabulary(options.name, text) for text in (options.before.read_text(encoding="utf-8"), current))
    print("\n".join(format_changes(options.name, before, after)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
