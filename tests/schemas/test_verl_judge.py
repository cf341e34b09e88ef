"""Hydra and verl's own validation as judges of the vocabulary: which words are refused, ignored and read.

The answers for the newest release are recorded (`tests/support/oracle.py`).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.readers.verl_checks import NUMBER_CHECKS
from cfglint_schemas.status import Context, Route
from cfglint_schemas.vocabulary import Vocabulary, load
from tests.support import oracle
from tests.support.releases import fetch_source

SETS = 200
OLDER = ("0.3.0.post1", "0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0")
CHECKED_WORDS = (
    "algorithm.adv_estimator",
    "algorithm.kl_penalty",
    "algorithm.kl_ctrl.type",
    "actor_rollout_ref.actor.kl_loss_type",
    "actor_rollout_ref.actor.loss_agg_mode",
    "actor_rollout_ref.actor.policy_loss.loss_mode",
    "actor_rollout_ref.rollout.name",
    "reward_model.reward_manager",
    "reward.reward_manager.name",
    "trainer.logger",
)
STRANGE_WORDS = ("grop", "low_var", "vlm", "full", "hf", "k3+", "prime", "gdpo")
MICRO = "ppo_micro_batch_size_per_gpu"
BASE = (
    "actor_rollout_ref.rollout.name=vllm",
    f"actor_rollout_ref.actor.{MICRO}=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    f"critic.{MICRO}=4",
)
"""Words without which every release refuses its own defaults."""
STRANGERS = (
    "trainer.stranger",
    "data.stranger",
    "algorithm.stranger",
    "stranger.inner",
    "actor_rollout_ref.actor.stranger",
    "actor_rollout_ref.actor.fsdp_config.stranger",
    "actor_rollout_ref.rollout.stranger",
    "actor_rollout_ref.rollout.val_kwargs.stranger",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.stranger",
    "actor_rollout_ref.model.stranger",
    "actor_rollout_ref.model.override_config.stranger",
    "critic.stranger",
    "critic.optim.stranger",
)
BUILT = ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model", "critic")
"""Mappings that the judge builds as dataclasses, if the release does."""


def is_in_tree(fact: KeyFact | None) -> bool:
    """Return whether the composed tree has a key, so that Hydra accepts a word without `+`."""
    if fact is None or fact.is_open or "x-absent" in fact.get_schema():
        return False
    status = fact.resolve_status()
    return status.kind == "present" or status.effect == "nothing"


def list_keys(vocabulary: Vocabulary) -> list[str]:
    """Return the dotted routes of the leaves that any release has, except the names of classes."""
    routes = {fact.route: None for release in vocabulary.releases for fact in vocabulary.iterate_keys(release)}
    parents = {route[:-1] for route in routes}
    return sorted(
        ".".join(map(str, route)) for route in routes if not {"*", "_target_"} & {*route} and route not in parents
    )


def expect(vocabulary: Vocabulary, release: str, operator: str, route: Route, has_value: bool) -> str:
    """Return what becomes of a word: refused (by Hydra), error (no such field), or accepted.

    Hydra deletes only what has a value, and adds over null (hydra 1.3.2 `_apply_overrides_to_config`).
    """
    known = is_in_tree(vocabulary.find_fact(route, release))
    if (operator == "" and not known) or (operator == "~" and not (known and has_value)):
        return "refused"
    if operator == "+" and has_value:  # known, or below an interpolation of a whole mapping
        return "refused"
    if known or not ".".join(route).startswith(BUILT):
        return "accepted"
    for length in range(1, len(route) + 1):
        fact = vocabulary.find_fact(route[:length], release)
        if fact is None or fact.resolve_status().kind not in ("present",):
            return "error" if vocabulary.find_effect(route[: length - 1], release) == "error" else "accepted"
    return "accepted"


def build_questions(release: str, count: int) -> list[dict[str, Any]]:
    """Return questions of one word each, with the operators of Hydra."""
    vocabulary, dice = load("verl"), random.Random(f"verl {release}")
    keys = [*list_keys(vocabulary), *STRANGERS * 8]
    stated = {word.partition("=")[0] for word in BASE}
    words = [f"{dice.choice(('', '', '+', '+', '++', '~'))}{dice.choice(keys)}" for _ in range(count)]
    questions: list[dict[str, Any]] = [{"name": "ppo_trainer", "words": []}]
    for word in words:
        if word.lstrip("+~") not in stated:
            questions.append(
                {"name": "ppo_trainer", "words": [*BASE, word if word.startswith("~") else f"{word}=null"]}
            )
    return questions


def check_answers(release: str, questions: Iterable[dict[str, Any]], answers: Iterable[dict[str, Any]]) -> None:
    vocabulary = load("verl")
    defaults: dict[str, Any] = {}
    outcomes = dict.fromkeys(("refused", "error", "accepted"), 0)
    for question, answer in zip(questions, answers, strict=True):
        if not question["words"]:
            defaults = answer["values"]
            check_defaults(release, defaults)
            continue
        word = question["words"][-1].partition("=")[0]
        name = word.lstrip("+~")
        operator = word[: len(word) - len(name)]
        # A mapping below an interpolation (rollout.mtp) has a value, too: those of its keys.
        has_value = defaults.get(name) not in (None, "???") or any(key.startswith(f"{name}.") for key in defaults)
        expected = expect(vocabulary, release, operator, tuple(name.split(".")), has_value)
        outcomes[expected] += 1
        why = answer["why"] or ""
        if expected == "refused":
            assert not answer["values"], (word, why)
        elif operator == "~" and why.startswith("InterpolationKeyError"):
            assert name in why  # the default of another key needs it
        else:
            changed = (*answer["values"], *answer["gone"])
            is_changed = any(key == name or key.startswith(f"{name}.") for key in changed)
            assert is_changed or not has_value, (word, why)
            assert ("unexpected keyword argument" in why) == (expected == "error"), (word, why)
    assert min(outcomes["refused"], outcomes["accepted"]) > len(outcomes) * 5, outcomes
    assert outcomes["error"] or release < "0.6", outcomes


def check_defaults(release: str, values: dict[str, Any]) -> None:
    """Check that the tree has the vocabulary's keys and defaults, and no others."""
    vocabulary = load("verl")
    facts = {
        ".".join(map(str, fact.route)): fact
        for fact in vocabulary.iterate_keys(release)
        if is_in_tree(fact) and "$ref" not in fact.get_schema()
    }
    for name in values.keys() - facts.keys():
        fact = vocabulary.find_fact(tuple(name.split(".")), release)
        # In the tree but read by nothing, or below an interpolation of a whole mapping (rollout.mtp).
        assert is_in_tree(fact) or (fact is not None and fact.is_open), name
    for name, fact in facts.items():
        schema = fact.get_schema()
        assert name in values or "x-interpolation" in schema, name
        if "default" in schema:
            assert schema["default"] == values[name], name
        elif "x-required" in schema:
            assert values[name] == "???", name


@pytest.mark.recorded
def test_hydra_refuses_ignores_and_takes_the_words_that_the_vocabulary_says() -> None:
    release = oracle.read_releases()["verl"]
    questions = build_questions(release, SETS)
    check_answers(release, questions, oracle.judge_questions("verl_config.py", questions))


@pytest.mark.oracle
@pytest.mark.parametrize("release", OLDER)
def test_older_releases_do_too(release: str) -> None:
    oracle.require_module("hydra")
    questions = build_questions(release, SETS // 2)
    command = [sys.executable, str(oracle.ORACLES / "verl_config.py"), str(fetch_source("verl", release, "verl"))]
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    check_answers(release, questions, [json.loads(line) for line in process.stdout.splitlines()])


def test_context_selects_the_trainer() -> None:
    vocabulary = load("verl")
    megatron = Context(entry="ppo_megatron_trainer")
    route = ("actor_rollout_ref", "actor", "megatron", "tensor_model_parallel_size")
    assert is_in_tree(vocabulary.find_fact(route, "0.9.1", megatron))
    assert not is_in_tree(vocabulary.find_fact(route, "0.9.1"))


def list_word_questions(release: str) -> list[tuple[dict[str, str], bool]]:
    """Return the words of every release for each setting, and whether the vocabulary says that a release takes them."""
    vocabulary = load("verl")
    questions = []
    for name in CHECKED_WORDS:
        facts = [vocabulary.find_fact(tuple(name.split(".")), other) for other in vocabulary.releases]
        words = {word for fact in facts if fact is not None for word in fact.get_schema().get("enum", ()) if word}
        fact = vocabulary.find_fact(tuple(name.split(".")), release)
        if fact is None or fact.resolve_status().kind != "present" or "enum" not in fact.get_schema():
            continue
        for word in sorted(words.union(STRANGE_WORDS)):
            questions.append(({"check": name, "word": word}, word in fact.get_schema()["enum"]))
    return questions


@pytest.mark.oracle
@pytest.mark.parametrize("release", load("verl").releases)
def test_the_code_of_each_release_accepts_the_words_of_the_vocabulary_and_no_others(release: str) -> None:
    oracle.require_module("hydra")
    questions = list_word_questions(release)
    command = [sys.executable, str(oracle.ORACLES / "verl_words.py"), str(fetch_source("verl", release, "verl"))]
    lines = "".join(json.dumps(question) + "\n" for question, _ in questions)
    process = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    judged = [
        (*pair, answer) for pair, answer in zip(questions, answers, strict=True) if answer["accepted"] is not None
    ]
    assert [row for row in judged if row[1] is not row[2]["accepted"]] == []
    assert len(judged) > 75


def test_each_number_that_a_release_computes_with_has_the_expression_in_its_code() -> None:
    vocabulary = load("verl")
    for check in NUMBER_CHECKS:
        facts = [vocabulary.find_fact(tuple(check.name.split(".")), release) for release in vocabulary.releases]
        present = [fact for fact in facts if fact is not None and fact.resolve_status().kind == "present"]
        declared = [fact for fact in present if "x-absent" not in fact.get_schema()]
        assert len(declared) > 8, check.name
        assert all("x-checked-if" in fact.get_schema() for fact in declared), check.name
