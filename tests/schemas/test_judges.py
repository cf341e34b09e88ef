"""The frameworks' own readers as judges of generated configurations: which keys they take, drop and refuse.

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
from cfglint_schemas.fact import Fact
from cfglint_schemas.kinds import Kind
from cfglint_schemas.status import ITEM, Context
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Report
from cfglint_train.frameworks.lens import Config
from tests.support import oracle
from tests.support.corpus import CORPUS, files, needs_corpus
from tests.support.laws import config_of

pytestmark = pytest.mark.recorded

NUMBER = 1000


def reports(config: Config, *codes: str) -> list[Report]:
    return [report for code in codes for report in registry.checker(registry.RULES[code])(config)]


def spoken_of(found: Iterable[Report]) -> set[str]:
    """The keys that reports point at."""
    return {report.place.document.text(report.place.span).strip("\"'") for report in found}


STRANGERS = ("stranger", "per_device_batch", "zero_optimisation", "learning-rate", "save_safetensor", "max_len")


# --- LLaMA-Factory ---------------------------------------------------------------------------------------------------


def arguments(vocabulary: Vocabulary) -> list[str]:
    """Every name that any release of LLaMA-Factory or transformers takes in a training file."""
    definitions = vocabulary.definitions((), vocabulary.newest)
    return sorted({fact.name for of in definitions for fact in vocabulary.facts_of(of, vocabulary.newest)})


def test_llama_factory_takes_and_refuses_the_same_keys() -> None:
    vocabulary = load("llamafactory")
    names = [*arguments(vocabulary), *STRANGERS]
    dice = random.Random("llamafactory")
    asked = [{"output_dir": "out", name: None} for name in names]
    asked += [{"output_dir": "out", **dict.fromkeys(dice.sample(names, dice.randint(1, 12)))} for _ in range(NUMBER)]
    answers = oracle.judge("llamafactory_arguments.py", asked)
    releases = {name: oracle.releases()[name] for name in ("llamafactory", "transformers")}
    refused = 0
    for config, answer in zip(asked, answers, strict=True):
        assert answer["why"] is None, (config, answer)
        text = yaml.safe_dump(dict.fromkeys(config, "x"))
        checked = config_of("llamafactory", text, **releases)
        found = [one for one in reports(checked, "KEY001", "KEY002") if one.severity == "error"]
        assert spoken_of(found) == set(answer["unused"]), config
        refused += bool(answer["unused"])
    assert 300 < refused < len(asked) - 200


@needs_corpus
def test_llama_factory_takes_its_own_examples() -> None:
    examples = []
    for path in files(".yaml", under="llamafactory/examples"):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        # Megatron's backend has arguments of its own.
        plain = isinstance(document, dict) and {"do_train", "model_name_or_path"} <= document.keys()
        if plain and not path.parent.name.startswith("megatron"):
            examples.append((path, document))
    answers = oracle.judge("llamafactory_arguments.py", [document for _, document in examples])
    releases = {name: oracle.releases()[name] for name in ("llamafactory", "transformers")}
    for (path, _), answer in zip(examples, answers, strict=True):
        checked = config_of("llamafactory", path.read_bytes(), **releases)
        found = [one for one in reports(checked, "KEY001", "KEY002") if one.severity == "error"]
        assert spoken_of(found) == set(answer["unused"]), path
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


def value(dice: random.Random, kinds: tuple[Kind, ...]) -> Any:
    """A value of one of the kinds, or seldom something else."""
    if len({kind.name for kind in kinds} & {"int", "float", "str"}) > 1:
        return dice.choice([1, 8])  # a union, whose members OmegaConf does not convert to each other
    if dice.random() < 0.04:
        return dice.choice(ODD)
    kind = dice.choice(kinds)
    if kind.name == "enum":
        return dice.choice(kind.values) if dice.random() < 0.95 else "no_member"
    if kind.name == "list":
        return [value(dice, kind.items or (Kind("any"),)) for _ in range(dice.randint(0, 2))]
    return {} if kind.name == "dict" else dice.choice(PLAIN[kind.name])


# Settings about which a generated value shows nothing.
_LEFT_OUT: frozenset[Route] = frozenset((
    # Looked up only beside a device mesh that the script gives.
    ("sequence_parallel_size",),
    # An object of torch; no JSON can give one.
    ("tensor_parallel", "dtype"),
))  # fmt: skip


def document(dice: random.Random, vocabulary: Vocabulary, release: str, context: Context) -> dict[str, Any]:
    """Settings at the root and in a few sections, with a stranger now and then."""
    places = [route for route in vocabulary.mappings(release, context) if ITEM not in route]
    made: dict[str, Any] = {}
    for route in [(), *dice.sample(places, dice.randint(0, 2))]:
        here = _place(made, route)
        facts = [fact for fact in _facts(vocabulary, route, release, context) if _is_taken(fact)]
        for fact in dice.sample(facts, min(len(facts), dice.randint(1, 4))):
            here.setdefault(fact.name, value(dice, fact.kinds() or (Kind("any"),)))
        if dice.random() < 0.1:
            here[dice.choice(STRANGERS)] = 1
    return made


def _facts(vocabulary: Vocabulary, route: Route, release: str, context: Context) -> list[Fact]:
    names = vocabulary.names(route, release, context)
    found = (vocabulary.fact((*route, name), release, context) for name in names)
    return [fact for fact in found if fact is not None]


def _is_taken(fact: Fact) -> bool:
    """Whether the setting is one that is drawn: a section is where its own settings are."""
    nested = (kind.name == "dict" or any(item.name == "dict" for item in kind.items) for kind in fact.kinds())
    return not fact.open and not any(nested) and fact.route not in _LEFT_OUT


def _place(made: dict[str, Any], route: Route) -> dict[str, Any]:
    here = made
    for step in route:
        below = here.setdefault(str(step), {})
        if not isinstance(below, dict):
            below = here[str(step)] = {}
        here = below
    return here


def test_olmo_takes_and_refuses_the_same_configurations() -> None:
    vocabulary, dice = load("olmo"), random.Random("olmo")
    release = oracle.releases()["ai2-olmo"]
    asked = [document(dice, vocabulary, release, Context()) for _ in range(NUMBER)]
    answers = oracle.judge("olmo_structured.py", asked)
    apart = []
    for config, answer in zip(asked, answers, strict=True):
        checked = config_of("olmo", yaml.safe_dump(config, sort_keys=False), olmo=release)
        found = [one for one in reports(checked, "KEY001", "KEY002", "KEY004") if one.severity == "error"]
        if bool(found) == answer["accepted"]:
            apart.append((config, [one.message for one in found], answer["why"]))
    assert 200 < sum(answer["accepted"] for answer in answers) < NUMBER - 100
    assert apart == []


# --- DeepSpeed -------------------------------------------------------------------------------------------------------

KEY_REASONS = ("Extra inputs are not permitted", "has been removed", "no longer supported", "Input should be")


def test_deepspeed_drops_and_refuses_the_same_keys() -> None:
    vocabulary, dice = load("deepspeed"), random.Random("deepspeed")
    release = oracle.releases()["deepspeed"]
    asked = [{"train_batch_size": 1, **document(dice, vocabulary, release, Context())} for _ in range(NUMBER)]
    answers = oracle.judge("deepspeed_config.py", asked)
    apart = []
    compared = 0
    for config, answer in zip(asked, answers, strict=True):
        if not answer["accepted"] and not any(reason in answer["why"] for reason in KEY_REASONS):
            continue  # what it says of settings together is KEY006's
        compared += 1
        checked = config_of("deepspeed", json.dumps(config, indent=1), "json", deepspeed=release)
        found = reports(checked, "KEY001", "KEY002", "KEY004")
        refused = [one for one in found if one.severity == "error"]
        top = {name for name in config if any(_points_at(one, checked, name) for one in reports(checked, "KEY001"))}
        dropped = set() if refused else top
        if bool(refused) == answer["accepted"] or (answer["accepted"] and dropped != set(answer["dropped"])):
            apart.append((config, [one.message for one in found], answer))
    assert compared > NUMBER / 2
    assert apart == []


def _points_at(report: Report, config: Config, name: str) -> bool:
    entry = config.entry(name)
    return entry is not None and entry.key.span == report.place.span


def without_auto(value: Any) -> Any:
    """A section without what the launcher fills in."""
    if not isinstance(value, dict):
        return value
    return {key: without_auto(one) for key, one in value.items() if one != "auto"}


@needs_corpus
def test_deepspeed_takes_what_cfglint_takes_of_its_examples() -> None:
    examples = []
    for path in sorted(CORPUS.rglob("*.json")):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(config, dict) and "zero_optimization" in config:
            examples.append((path, {"train_batch_size": 1, **without_auto(config)}))
    answers = oracle.judge("deepspeed_config.py", [config for _, config in examples])
    for (path, _), answer in zip(examples, answers, strict=True):
        if answer["accepted"]:
            checked = config_of("deepspeed", path.read_bytes(), "json", deepspeed=oracle.releases()["deepspeed"])
            assert [one for one in reports(checked, "KEY001", "KEY002", "KEY004") if one.severity == "error"] == [], (
                path
            )
    assert sum(answer["accepted"] for answer in answers) > 30
