"""Patches with facts that a framework's definitions do not state: renames, effects, keys that are never read.

The patches are in `patches/<framework>.json`. Every item names its `source`, which is not copied to the schema. `with`
names further patch files to apply.

- `broken`: releases on PyPI that cannot be read, with the reason.
- `keys`: keys that no definition declares (code reads them from a plain mapping), with `schema`, `since`, `last`.
- `also`: schema keywords to add to the schema that a definition states for a key.
- `prefixes`: definitions whose keys may have a prefix that the framework strips.
- `chosen`: definitions of a list's items that the value of another key selects.
- `status`: the status of a key from `since` to `last`; `docs/schemas.md` explains the words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent / "patches"
KINDS: Final = frozenset(("renamed", "removed", "ignored", "deprecated", "requires"))
EFFECTS: Final = frozenset(("dropped", "error", "warning", "mapped", "nothing", "kept"))
_STATUS_WORDS: Final = ("kind", "package", "since", "last", "to", "also", "cases", "sums", "needs", "effect", "because")


class PatchError(Exception):
    """Error for a patch that is incomplete, names an unknown definition, key, kind or effect, or is superfluous."""


def load_patches(framework: str) -> Json:
    """Return a framework's patches with those of the files in `with`, or an empty mapping if it has no patch file."""
    path = FOLDER / f"{framework}.json"
    if not path.exists():
        return {}
    patches: Json = json.loads(path.read_text(encoding="utf-8"))
    for name in patches.pop("with", ()):
        for kind, items in load_patches(name).items():
            patches[kind] = [*items, *patches.get(kind, ())]
    return patches


def apply_patches(schema: Json, patches: Json) -> Json:
    """Add patches to a freshly folded schema in place and return it; raise PatchError for an invalid patch."""
    for item in patches.get("keys", ()):
        _require_words(item, "source")
        for definition, key in _find_targets(schema, item):
            properties = schema["$defs"][definition]["properties"]
            span = {word: item[word] for word in ("package", "since", "last", "aliases", "gate") if word in item}
            if "since" not in span:
                raise PatchError(f"{definition}.{key}: no `since`")
            if key not in properties:
                properties[key] = {**item.get("schema", {}), "x-releases": [], "x-patched": True}
            elif not properties[key].get("x-patched"):
                raise PatchError(f"{definition}.{key} is declared by the framework itself: no patch is needed")
            properties[key]["x-releases"].append(span)
    for item in patches.get("also", ()):
        _require_words(item, "source", "schema", "since")
        span = {word: item[word] for word in ("since", "last", "schema") if word in item}
        for definition, key in _find_targets(schema, item):
            _find_key(schema, definition, key).setdefault("x-also", []).append(span)
    for item in patches.get("prefixes", ()):
        _require_words(item, "source", "since", "effect")
        span = {word: item[word] for word in ("prefix", "since", "last", "effect") if word in item}
        definition = schema["$defs"][item["definition"]]
        properties = definition.pop("properties")
        definition.update({"x-prefixes": [*definition.get("x-prefixes", ()), span], "properties": properties})
    for item in patches.get("chosen", ()):
        _require_words(item, "source", "since", "at", "when")
        span = {word: item[word] for word in ("at", "when", "since", "last") if word in item}
        definition = schema["$defs"][item["definition"]]
        properties = definition.pop("properties")
        definition.update({"x-chosen": [*definition.get("x-chosen", ()), span], "properties": properties})
    for item in patches.get("status", ()):
        _require_words(item, "source", "since")
        if item["kind"] not in KINDS or item.get("effect", "error") not in EFFECTS:
            raise PatchError(f"{item}: unknown kind or effect")
        status = {word: item[word] for word in _STATUS_WORDS if word in item}
        for definition, key in _find_targets(schema, item):
            properties = schema["$defs"][definition]["properties"]
            facts = properties.setdefault(key, {"x-releases": [], "x-patched": True})
            facts.setdefault("x-status", []).append(status)
    for definition in schema["$defs"].values():
        definition["properties"] = dict(sorted(definition["properties"].items()))
    return schema


def _require_words(item: Json, *words: str) -> None:
    for word in words:
        if word not in item:
            raise PatchError(f"{item}: no `{word}`")


def _find_key(schema: Json, definition: str, key: str) -> Json:
    properties: Json = schema["$defs"][definition]["properties"]
    if key not in properties:
        raise PatchError(f"{definition}.{key}: no such key")
    facts: Json = properties[key]
    return facts


def _find_targets(schema: Json, item: Json) -> Iterator[tuple[str, str]]:
    """Yield the definition and the key of each target in an item's `keys`, written as `Definition/key`."""
    for target in item["keys"]:
        definition, _, key = target.partition("/")
        if definition not in schema["$defs"] or not key:
            raise PatchError(f"{target}: no definition {definition}")
        yield definition, key
