"""Descriptions of keys for editors: values, default, releases, meaning, and the rules that read a key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from json import dumps

from cfglint_rules.registry import list_readers
from cfglint_rules.rule import Rule
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.kinds import ValueKind
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.plan.field_docs import load_meanings
from cfglint_train.plan.names import Field
from cfglint_train.reports.style import Style

_STATUSES: Final = {
    "removed": "not in this release any more",
    "renamed": "has another name in this release",
    "ignored": "accepted and never read",
    "gated": "needs a plugin or another key",
    "not yet": "not in this release yet",
}
_GONE: Final = ("removed", "renamed", "not yet")
_KIND_NAMES: Final = {
    "int": "integer", "float": "number", "bool": "true or false", "str": "text", "list": "list", "dict": "section",
    "any": "any value",
}  # fmt: skip
_MAX_VALUES: Final = 12
"""Number of values of an enumeration that a description lists; editors offer all of them."""

FieldsByKey = Mapping[tuple[str, str], tuple[Field, ...]]
"""Definition and name of a key in the vocabulary -> the plan fields that lenses read from it."""


def describe_key(fact: KeyFact, release: str) -> list[str]:
    """Return the paragraphs, in Markdown, about a key's values, default, releases and status at a release."""
    paragraphs = ["; ".join(filter(None, (format_kinds(fact.list_kinds()), *_describe_history(fact, release))))]
    status = fact.resolve_status(release)
    if status.kind in _STATUSES:
        names = f": {', '.join(f'`{name}`' for name in status.new_names)}" if status.new_names else ""
        paragraphs.append(f"{_STATUSES[status.kind]}{names}")
    elif fact.is_deprecated:
        paragraphs.append("deprecated")
    return paragraphs


def describe_fields(fields: Collection[Field], style: Style) -> list[str]:
    """Return the paragraphs, in Markdown, that explain plan fields and name the rules that read them.

    Rules are links if `style` has the URLs of their pages.
    """
    meanings = load_meanings()
    paragraphs = [f"`{field}`: {meanings[field]}" for field in fields if field in meanings]
    others = ", ".join(f"`{field}`" for field in fields if field not in meanings)
    if others:
        paragraphs.append(f"plan field {others}" if "," not in others else f"plan fields {others}")
    rules = dict(sorted((rule.code, rule) for field in fields for rule in list_readers(field)))
    if rules:
        paragraphs.append(f"read by {', '.join(_format_rule(rule, style) for rule in rules.values())}")
    return paragraphs


def strip_markdown(paragraphs: list[str]) -> str:
    """Return paragraphs without links as plain text, for editors that show descriptions literally."""
    return "\n\n".join(paragraphs).replace("`", "")


def _describe_history(fact: KeyFact, release: str) -> Iterator[str]:
    """Yield the default of a key and the releases that have it."""
    schema = fact.get_schema(release)
    if "default" in schema:
        yield f"default `{dumps(schema['default'], ensure_ascii=False)}`"
    if not fact.spans:
        return
    packages = fact.vocabulary.packages
    first = fact.spans[0]
    package = first.get("package", fact.vocabulary.package)
    is_oldest = package in packages and first["since"] == packages[package][0]
    yield f"since {package} {first['since']}{' or earlier' if is_oldest else ''}"
    end = _find_end(fact)
    if end is not None:
        yield f"until {end}"


def _find_end(fact: KeyFact) -> str | None:
    """Return the last package and release that accept the key under its name, or None for the newest known."""
    last = fact.spans[-1]
    package = fact.vocabulary.package
    if "last" in last:
        return f"{last.get('package', package)} {last['last']}"
    releases = fact.vocabulary.packages[package]
    final = next((release for release in reversed(releases) if fact.resolve_status(release).kind not in _GONE), None)
    return None if final in (releases[-1], None) else f"{package} {final}"


def _format_rule(rule: Rule, style: Style) -> str:
    page = style.build_page_url(rule.code, rule.name)
    text = f"{rule.code} {rule.name}"
    return text if page is None else f"[{text}]({page})"


def format_kinds(kinds: Iterable[ValueKind]) -> str:
    """Return kinds of value as words, each once, without null; lists come last, so that `or` is not theirs."""
    ordered = sorted(kinds, key=lambda kind: kind.name == "list")
    return " or ".join(dict.fromkeys(filter(None, map(_format_kind, ordered))))


def _format_kind(kind: ValueKind) -> str:
    """Return one kind of value as words, or an empty string for null."""
    if kind.name == "enum":
        rest = len(kind.values) - _MAX_VALUES
        values = ", ".join(f"`{value}`" for value in kind.values[:_MAX_VALUES])
        return f"{values} and {rest} more" if rest > 1 else ", ".join(f"`{value}`" for value in kind.values)
    if kind.name == "list" and kind.items:
        return f"list of {format_kinds(kind.items)}"
    return _KIND_NAMES.get(kind.name, "")


@lru_cache(maxsize=64)
def map_fields(vocabulary: Vocabulary, release: str, entry: str | None) -> FieldsByKey:
    """Return the plan fields that the lenses of a vocabulary's frameworks read from each key of an entry point."""
    fields: dict[tuple[str, str], dict[Field, None]] = {}
    for name, manifest in list_frameworks().items():
        if vocabulary.framework != manifest.vocabulary:
            continue
        for lens in frameworks.load(name).lenses:
            for field, routes in lens.keys.items():
                for route in routes:
                    fact = vocabulary.find_fact(route, release, Context(entry=entry))
                    for reading in () if fact is None else (fact, *fact.alternatives):
                        fields.setdefault((reading.definition, reading.name), {})[field] = None
    return {key: tuple(names) for key, names in fields.items()}


def find_fields(fact: KeyFact, release: str, entry: str | None) -> tuple[Field, ...]:
    """Return the plan fields that lenses read from a key."""
    return map_fields(fact.vocabulary, release, entry).get((fact.definition, fact.name), ())
