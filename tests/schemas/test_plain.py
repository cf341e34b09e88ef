"""Plain JSON Schemas of one release, and the vocabulary's own walk checked against jsonschema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_schemas.kinds import ValueKind, list_kinds
from cfglint_schemas.plain import build_plain_schema, is_accepted
from cfglint_schemas.status import Context, Route
from cfglint_schemas.vocabulary import Vocabulary, list_vocabularies, load
from tests.support.corpus import CORPUS, list_corpus_files, needs_corpus

every_framework = pytest.mark.parametrize("framework", list_vocabularies())

_made: dict[tuple[Any, ...], jsonschema.Draft202012Validator] = {}


def get_validator(vocabulary: Vocabulary, release: str, context: Context) -> jsonschema.Draft202012Validator:
    key = (vocabulary.framework, release, context.entry, context.plugins, tuple(sorted(context.releases.items())))
    if key not in _made:
        _made[key] = jsonschema.Draft202012Validator(build_plain_schema(vocabulary, release, context))
    return _made[key]


def list_refused_by_jsonschema(vocabulary: Vocabulary, release: str, context: Context, document: Any) -> set[Route]:
    """Return the routes that the plain schema rejects."""
    return set(_yield_refused(get_validator(vocabulary, release, context).iter_errors(document)))


def _yield_refused(errors: Any) -> Iterator[Route]:
    for error in errors:
        if error.validator == "additionalProperties":
            parent = tuple(error.absolute_path)
            yield from ((*parent, name) for name in error.instance if name not in error.schema["properties"])
        branches: dict[int, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.relative_schema_path[0], []).append(inner)
        # Alternatives of another type do not count, and one alternative that has the name is enough.
        fitting = [
            set(_yield_refused(branch))
            for branch in branches.values()
            if not any(inner.validator in ("type", "enum") and not inner.relative_path for inner in branch)
        ]
        if fitting:
            yield from set.intersection(*fitting)


def yield_refused_by_walk(
    vocabulary: Vocabulary, release: str, context: Context, document: Any, route: Route = ()
) -> Iterator[Route]:
    """Yield the routes that the vocabulary does not know, or that the framework would reject."""
    for part, value in document.items() if isinstance(document, dict) else enumerate(document):
        child_route = (*route, part)
        if isinstance(part, str):
            fact = vocabulary.find_fact(child_route, release, context)
            if fact is None or not is_accepted(fact.resolve_status()):
                yield child_route
                continue
            kinds = {kind.name for kind in fact.list_kinds()}
            if isinstance(value, dict) and not kinds & {"dict", "any"}:
                continue
            if isinstance(value, list) and not kinds & {"list", "any"}:
                continue
        if isinstance(value, (dict, list)):
            yield from yield_refused_by_walk(vocabulary, release, context, value, child_route)


def assert_agreement(vocabulary: Vocabulary, release: str, context: Context, document: Any) -> None:
    expected = list_refused_by_jsonschema(vocabulary, release, context, document)
    assert set(yield_refused_by_walk(vocabulary, release, context, document)) == expected


@every_framework
def test_plain_schemas_are_schemas_without_our_own_words(framework: str) -> None:
    vocabulary = load(framework)
    for release in (
        vocabulary.releases[0],
        vocabulary.releases[len(vocabulary.releases) // 2],
        vocabulary.releases[-1],
    ):
        for entry in vocabulary.entries:
            if vocabulary.has_entry(entry, release):
                schema = build_plain_schema(vocabulary, release, Context(entry=entry))
                jsonschema.Draft202012Validator.check_schema(schema)
                assert '"x-' not in json.dumps(schema)


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("release", ["0.12.2", "0.18.0", "0.21.0"])
def test_both_refuse_the_same_names_in_axolotl_examples(release: str) -> None:
    vocabulary = load("axolotl")
    count = refused = 0
    for path in list_corpus_files(".yaml", ".yml", under="axolotl/examples"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and "base_model" in document:
            context = Context(plugins=tuple(document.get("plugins") or ()))
            assert_agreement(vocabulary, release, context, document)
            count += 1
            refused += bool(list_refused_by_jsonschema(vocabulary, release, context, document))
    assert count > 240
    assert refused > 20


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize(("framework", "under", "mark"), [
    ("olmo", "olmo", "optimizer"),
    ("llamafactory", "llamafactory/examples", "model_name_or_path"),
    ("accelerate", "", "distributed_type"),
])  # fmt: skip
def test_both_refuse_the_same_names_in_other_examples(framework: str, under: str, mark: str) -> None:
    vocabulary = load(framework)
    count = 0
    for path in list_corpus_files(".yaml", ".yml", under=under):
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            continue
        if isinstance(document, dict) and mark in document:
            assert_agreement(vocabulary, vocabulary.releases[-1], Context(), document)
            count += 1
    assert count > 10


@needs_corpus
@pytest.mark.parametrize("release", ["0.12.6", "0.18.4", "0.19.8"])
def test_both_refuse_the_same_names_in_deepspeed_examples(release: str) -> None:
    count = 0
    for path in sorted(CORPUS.rglob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(document, dict) and "zero_optimization" in document:
            assert_agreement(load("deepspeed"), release, Context(), document)
            count += 1
    assert count > 50


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))


@st.composite
def draw_document(draw: st.DrawFn) -> tuple[Vocabulary, str, Context, dict[str, Any]]:
    """Draw a document of known settings in known places, with unknown keys among them."""
    vocabulary = load(draw(st.sampled_from(list_vocabularies())))
    release = draw(
        st.sampled_from(
            [vocabulary.releases[0], vocabulary.releases[len(vocabulary.releases) // 2], vocabulary.releases[-1]]
        )
    )
    entry = draw(st.sampled_from([entry for entry in vocabulary.entries if vocabulary.has_entry(entry, release)]))
    plugins = draw(st.sampled_from([None, ()]))
    context = Context(entry=entry, plugins=plugins)
    document: dict[str, Any] = {}
    for parent in draw(st.lists(st.sampled_from(vocabulary.list_mappings(release, context)), min_size=1, max_size=4)):
        mapping = _make_mapping(document, parent)
        if mapping is None:
            continue
        names = vocabulary.list_names(parent, release, context)
        strangers = st.sampled_from(
            ["stranger", "mis-spelt", "fsdp_config.x", "fsdp", "relora_steps", "mics_shard_size"]
        )
        for name in draw(st.lists(st.one_of(st.sampled_from(names), strangers), max_size=6)):
            mapping.setdefault(name, draw(LEAVES))
    return vocabulary, release, context, document


def _make_mapping(document: dict[str, Any], route: Route) -> dict[str, Any] | None:
    """Return the mapping at a route, creating it if missing, or None if another value is in the way."""
    node: Any = document
    for part, following in zip(route, (*route[1:], "")):
        fresh: Any = [{}] if following == "*" else {}
        if part == "*":
            if not isinstance(node, list):
                return None
            node = node[0]
        elif isinstance(node, dict):
            node = node.setdefault(part, fresh)
        else:
            return None
    return node if isinstance(node, dict) else None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(draw_document())
def test_both_refuse_the_same_names_in_generated_documents(
    made: tuple[Vocabulary, str, Context, dict[str, Any]],
) -> None:
    assert_agreement(*made)


def is_of_kind(kind: ValueKind, value: Any) -> bool:
    """Return whether a value is of a kind, by JSON Schema's rules (1.0 is an integer, true is no number)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind.name == "enum":
        return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in kind.values)
    if kind.name == "list":
        return isinstance(value, list) and (
            not kind.items or all(any(is_of_kind(item_kind, item) for item_kind in kind.items) for item in value)
        )
    return {
        "any": True,
        "int": number and float(value).is_integer() if number else False,
        "float": number,
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "dict": isinstance(value, dict),
        "null": value is None,
    }[kind.name]


def reduce_to_types(schema: Any) -> Any:
    """Return a schema without references and bounds, which is all that `kinds` allows."""
    if isinstance(schema, list):
        return [reduce_to_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"type": "object"}
    reduced = {word: value for word, value in schema.items() if word in ("type", "enum")}
    for word in ("items", "anyOf"):
        if word in schema:
            reduced[word] = reduce_to_types(schema[word])
    return reduced


@st.composite
def draw_value(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    vocabulary = load(draw(st.sampled_from(list_vocabularies())))
    release = vocabulary.releases[-1]
    definition = draw(st.sampled_from(vocabulary.list_definitions((), release)))
    fact = draw(st.sampled_from(list(vocabulary.list_facts(definition, release))))
    schema = reduce_to_types(dict(fact.get_schema()))
    chosen = [value for kind in list_kinds(schema) for value in kind.values]
    value = draw(
        st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.just({}), *([st.sampled_from(chosen)] if chosen else []))
    )
    return schema, value


@settings(max_examples=300, deadline=None)
@given(draw_value())
def test_kinds_agree_with_jsonschema(made: tuple[dict[str, Any], Any]) -> None:
    schema, value = made
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert any(is_of_kind(kind, value) for kind in list_kinds(schema)) == expected
