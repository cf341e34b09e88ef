"""The frameworks' own parsers as judges of generated configs: which keys they accept, drop and reject.

Their answers are recorded (`tests/support/oracle.py`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from cfglint_rules import registry
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.kinds import ValueKind
from cfglint_schemas.status import ITEM, Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Report
from cfglint_train.frameworks.lens import Config
from tests.support import oracle
from tests.support.corpus import CORPUS, list_corpus_files, needs_corpus
from tests.support.laws import build_config

pytestmark = pytest.mark.recorded

NUMBER = 1000


def list_reports(config: Config, *codes: str) -> list[Report]:
    return [report for code in codes for report in registry.get_checker(registry.RULES[code])(config)]


def list_reported_keys(reports: Iterable[Report]) -> set[str]:
    """Return the keys that the reports point at."""
    return {report.place.document.get_text(report.place.span).strip("\"'") for report in reports}


STRANGERS = ("stranger", "per_device_batch", "zero_optimisation", "learning-rate", "save_safetensor", "max_len")


# --- LLaMA-Factory ---------------------------------------------------------------------------------------------------


def list_arguments(vocabulary: Vocabulary) -> list[str]:
    """Return every name that any release of LLaMA-Factory or transformers accepts in a training file."""
    definitions = vocabulary.list_definitions((), vocabulary.newest)
    return sorted(
        {fact.name for definition in definitions for fact in vocabulary.list_facts(definition, vocabulary.newest)}
    )


def test_llama_factory_takes_and_refuses_the_same_keys() -> None:
    vocabulary = load("llamafactory")
    names = [*list_arguments(vocabulary), *STRANGERS]
    dice = random.Random("llamafactory")
    configs = [{"output_dir": "out", name: None} for name in names]
    configs += [{"output_dir": "out", **dict.fromkeys(dice.sample(names, dice.randint(1, 12)))} for _ in range(NUMBER)]
    answers = oracle.judge_questions("llamafactory_arguments.py", configs)
    releases = {name: oracle.read_releases()[name] for name in ("llamafactory", "transformers")}
    refused = 0
    for config, answer in zip(configs, answers, strict=True):
        assert answer["why"] is None, (config, answer)
        text = yaml.safe_dump(dict.fromkeys(config, "x"))
        checked = build_config("llamafactory", text, **releases)
        errors = [report for report in list_reports(checked, "KEY001", "KEY002") if report.severity == "error"]
        assert list_reported_keys(errors) == set(answer["unused"]), config
        refused += bool(answer["unused"])
    assert 300 < refused < len(configs) - 200


@needs_corpus
def test_llama_factory_takes_its_own_examples() -> None:
    examples = []
    for path in list_corpus_files(".yaml", under="llamafactory/examples"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        # Megatron's backend has its own arguments.
        is_training = isinstance(document, dict) and {"do_train", "model_name_or_path"} <= document.keys()
        if is_training and not path.parent.name.startswith("megatron"):
            examples.append((path, document))
    answers = oracle.judge_questions("llamafactory_arguments.py", [document for _, document in examples])
    releases = {name: oracle.read_releases()[name] for name in ("llamafactory", "transformers")}
    for (path, _), answer in zip(examples, answers, strict=True):
        checked = build_config("llamafactory", path.read_bytes(), **releases)
        errors = [report for report in list_reports(checked, "KEY001", "KEY002") if report.severity == "error"]
        assert list_reported_keys(errors) == set(answer["unused"]), path
    assert len(examples) > 30


# --- OLMo ------------------------------------------------------------------------------------------------------------

PLAIN: dict[str, list[Any]] = {
    "int": [1, "8", 0],
    "float": [0.5, 3, "1e-4", "2"],
    "bool": [True, False, "no", "true", 1],
    "str": ["x", "a/b", "yes", "12"],
    "null": [None],
    "any": ["x", 1],
}
ODD: list[Any] = ["odd", 1.5, [1], {"stranger": 1}, [], "1.5"]


def draw_value(dice: random.Random, kinds: tuple[ValueKind, ...]) -> Any:
    """Draw a value of one of the kinds, or rarely something else."""
    if len({kind.name for kind in kinds} & {"int", "float", "str"}) > 1:
        return dice.choice([1, 8])  # Members of a union, which OmegaConf does not convert to each other.
    if dice.random() < 0.04:
        return dice.choice(ODD)
    kind = dice.choice(kinds)
    if kind.name == "enum":
        return dice.choice(kind.values) if dice.random() < 0.95 else "no_member"
    if kind.name == "list":
        return [draw_value(dice, kind.items or (ValueKind("any"),)) for _ in range(dice.randint(0, 2))]
    return {} if kind.name == "dict" else dice.choice(PLAIN[kind.name])


# Settings about which a generated value shows nothing.
_LEFT_OUT: frozenset[Route] = frozenset((
    # Looked up only beside a device mesh that the script passes.
    ("sequence_parallel_size",),
    # A torch object, which JSON cannot express.
    ("tensor_parallel", "dtype"),
    # OmegaConf takes any number of items, and the optimizer unpacks two.
    ("optimizer", "betas"),
))  # fmt: skip


def draw_document(dice: random.Random, vocabulary: Vocabulary, release: str, context: Context) -> dict[str, Any]:
    """Draw settings at the root and in a few sections, with an unknown key now and then."""
    places = [route for route in vocabulary.list_mappings(release, context) if ITEM not in route]
    document: dict[str, Any] = {}
    for route in [(), *dice.sample(places, dice.randint(0, 2))]:
        section = _make_section(document, route)
        facts = [fact for fact in _list_facts(vocabulary, route, release, context) if _is_drawable(fact)]
        for fact in dice.sample(facts, min(len(facts), dice.randint(1, 4))):
            section.setdefault(fact.name, draw_value(dice, fact.list_kinds() or (ValueKind("any"),)))
        if dice.random() < 0.1:
            section[dice.choice(STRANGERS)] = 1
    return document


def _list_facts(vocabulary: Vocabulary, route: Route, release: str, context: Context) -> list[KeyFact]:
    names = vocabulary.list_names(route, release, context)
    facts = (vocabulary.find_fact((*route, name), release, context) for name in names)
    return [fact for fact in facts if fact is not None]


def _is_drawable(fact: KeyFact) -> bool:
    """Return whether values are drawn for the setting; sections are drawn setting by setting."""
    nested = (kind.name == "dict" or any(item.name == "dict" for item in kind.items) for kind in fact.list_kinds())
    return not fact.is_open and not any(nested) and fact.route not in _LEFT_OUT


def _make_section(document: dict[str, Any], route: Route) -> dict[str, Any]:
    section = document
    for step in route:
        child = section.setdefault(str(step), {})
        if not isinstance(child, dict):
            child = section[str(step)] = {}
        section = child
    return section


def test_olmo_takes_and_refuses_the_same_configurations() -> None:
    vocabulary, dice = load("olmo"), random.Random("olmo")
    release = oracle.read_releases()["ai2-olmo"]
    configs = [draw_document(dice, vocabulary, release, Context()) for _ in range(NUMBER)]
    answers = oracle.judge_questions("olmo_structured.py", configs)
    disagreements = []
    for config, answer in zip(configs, answers, strict=True):
        checked = build_config("olmo", yaml.safe_dump(config, sort_keys=False), olmo=release)
        errors = [
            report for report in list_reports(checked, "KEY001", "KEY002", "KEY004") if report.severity == "error"
        ]
        if bool(errors) == answer["accepted"]:
            disagreements.append((config, [report.message for report in errors], answer["why"]))
    assert 200 < sum(answer["accepted"] for answer in answers) < NUMBER - 100
    assert disagreements == []


# --- DeepSpeed -------------------------------------------------------------------------------------------------------

KEY_REASONS = ("Extra inputs are not permitted", "has been removed", "no longer supported", "Input should be")


def test_deepspeed_drops_and_refuses_the_same_keys() -> None:
    vocabulary, dice = load("deepspeed"), random.Random("deepspeed")
    release = oracle.read_releases()["deepspeed"]
    configs = [{"train_batch_size": 1, **draw_document(dice, vocabulary, release, Context())} for _ in range(NUMBER)]
    answers = oracle.judge_questions("deepspeed_config.py", configs)
    disagreements = []
    compared = 0
    for config, answer in zip(configs, answers, strict=True):
        if not answer["accepted"] and not any(reason in answer["why"] for reason in KEY_REASONS):
            continue  # Combinations of settings belong to KEY006.
        compared += 1
        checked = build_config("deepspeed", json.dumps(config, indent=1), "json", deepspeed=release)
        all_reports = list_reports(checked, "KEY001", "KEY002", "KEY004")
        errors = [report for report in all_reports if report.severity == "error"]
        unknown = {
            name
            for name in config
            if any(_is_reported_at(report, checked, name) for report in list_reports(checked, "KEY001"))
        }
        dropped = set() if errors else unknown
        if bool(errors) == answer["accepted"] or (answer["accepted"] and dropped != set(answer["dropped"])):
            disagreements.append((config, [report.message for report in all_reports], answer))
    assert compared > NUMBER / 2
    assert disagreements == []


def _is_reported_at(report: Report, config: Config, name: str) -> bool:
    entry = config.get_entry(name)
    return entry is not None and entry.key.span == report.place.span


def drop_auto(value: Any) -> Any:
    """Return a section without the values that the launcher fills in."""
    if not isinstance(value, dict):
        return value
    return {key: drop_auto(item) for key, item in value.items() if item != "auto"}


@needs_corpus
def test_deepspeed_takes_what_cfglint_takes_of_its_examples() -> None:
    examples = []
    for path in sorted(CORPUS.rglob("*.json")):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(config, dict) and "zero_optimization" in config:
            examples.append((path, {"train_batch_size": 1, **drop_auto(config)}))
    answers = oracle.judge_questions("deepspeed_config.py", [config for _, config in examples])
    for (path, _), answer in zip(examples, answers, strict=True):
        if answer["accepted"]:
            checked = build_config(
                "deepspeed", path.read_bytes(), "json", deepspeed=oracle.read_releases()["deepspeed"]
            )
            assert [
                report for report in list_reports(checked, "KEY001", "KEY002", "KEY004") if report.severity == "error"
            ] == [], path
    assert sum(answer["accepted"] for answer in answers) > 30
