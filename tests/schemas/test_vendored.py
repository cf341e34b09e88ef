"""Vocabulary of a vendored copy: the release's own if the copy is exact, otherwise what the copy declares."""

from __future__ import annotations

import collections
import contextlib
import sys

import pytest

from cfglint_schemas.kinds import is_suggestion
from cfglint_schemas.status import Context
from cfglint_schemas.vendored import VendoredVocabulary
from cfglint_schemas.vocabulary import load
from cfglint_train.forks.vendored import UnreadableCopyError, build_vocabulary, estimate_releases, load_copy
from cfglint_train.frameworks.registry import list_called_packages, list_frameworks
from tests.support.pace import measure_block
from tests.support.releases import fetch_source

RELEASES = [
    ("openrlhf", "openrlhf", "0.11.2"),
    ("openrlhf", "openrlhf", "0.6.0"),
    ("axolotl", "axolotl", "0.21.0"),
    ("llamafactory", "llamafactory", "0.9.5"),
    ("llamafactory", "llamafactory", "0.9.2"),
    ("olmo", "ai2-olmo", "0.6.0"),
    ("verl", "verl", "0.9.1"),
    ("verl", "verl", "0.5.0"),
    ("peft", "peft", "0.21.2"),
    ("peft", "peft", "0.4.0"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "package", "release"), RELEASES)
def test_a_copy_of_a_release_takes_what_the_release_takes(framework: str, package: str, release: str) -> None:
    layout, upstream = list_frameworks().get(framework) or list_called_packages()[framework], load(framework)
    copy = load_copy(str(fetch_source(package, release, framework)), layout)
    vendored = build_vocabulary(copy, layout, framework, None)
    assert release in vendored.find_similar_releases(upstream)
    assert set(vendored.entries) == {entry for entry in upstream.entries if upstream.has_entry(entry, release)}
    for entry in vendored.entries:
        context = Context(entry=entry)
        facts = {fact.route: fact for fact in vendored.iterate_keys(release, context)}
        for fact in upstream.iterate_keys(release, context):
            assert (
                facts[fact.route].list_kinds() == fact.list_kinds()
                or fact.list_spellings()
                or "enum" in fact.get_schema()
                or is_suggestion(facts[fact.route].get_schema())
            ), fact
        # A fork may accept keys that upstream's code rejects behind its definitions.
        for route in facts.keys() - {fact.route for fact in upstream.iterate_keys(release, context)}:
            upstream_fact = upstream.find_fact(route, release, context)
            assert upstream_fact is not None
            assert upstream_fact.resolve_status().kind in ("renamed", "removed", "ignored")
        assert vendored.find_effect((), release, context) == upstream.find_effect((), release, context)


@pytest.mark.slow
def test_a_copy_without_a_version_is_next_to_the_release_that_it_is_most_like(tmp_path) -> None:
    layout, root = list_frameworks()["llamafactory"], fetch_source("llamafactory", "0.9.2", "llamafactory")
    pin = estimate_releases(build_vocabulary(load_copy(str(root), layout), layout, "", None), str(root), layout)
    assert pin is not None
    assert str(pin.constraint) == ">=0.9.1,<=0.9.3"


@pytest.fixture
def copy(tmp_path):
    """Return a function that builds the vocabulary of a small copy of OLMo."""

    def build_copy_vocabulary(text: str) -> VendoredVocabulary:
        (tmp_path / "olmo").mkdir()
        (tmp_path / "olmo" / "config.py").write_text(text)
        copied = load_copy(str(tmp_path), list_frameworks()["olmo"])
        return build_vocabulary(copied, list_frameworks()["olmo"], "olmo", None)

    return build_copy_vocabulary


CONFIG = """
from dataclasses import dataclass
from typing import Literal, Optional

@dataclass
class ModelConfig:
    d_model: int = 768
    probe: Optional[Literal["a", "b"]] = None

@dataclass
class TrainConfig:
    model: ModelConfig
    stop_at: Optional[int] = None
"""


def test_a_copy_has_what_it_declares_and_nothing_else(copy) -> None:
    vendored = copy(CONFIG)
    for release in ("0.1.0", "0.6.0", "9.9"):
        assert vendored.list_names((), release) == ["model", "stop_at"]
        assert vendored.list_names(("model",), release) == ["d_model", "probe"]
        probe = vendored.find_fact(("model", "probe"), release)
        assert probe is not None
        assert probe.get_schema()["enum"] == ["a", "b", None]
        assert vendored.find_effect(("model",), release) == "error"
    assert vendored.find_fact(("model", "n_heads"), "0.6.0") is None


def test_a_part_of_a_copy_is_like_no_release(copy) -> None:
    assert copy(CONFIG).find_similar_releases(load("olmo")) == ()


def test_settings_of_another_package_stay_as_they_are(tmp_path) -> None:
    folder = tmp_path / "llamafactory" / "hparams"
    folder.mkdir(parents=True)
    (folder / "parser.py").write_text(
        "from transformers import Seq2SeqTrainingArguments\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass TrainingArguments(Seq2SeqTrainingArguments):\n    mine: int = 1\n"
        "_TRAIN_ARGS = [TrainingArguments]\n"
    )
    layout = list_frameworks()["llamafactory"]
    copied, upstream = load_copy(str(tmp_path), layout), load("llamafactory")
    names = set(build_vocabulary(copied, layout, "x", None).list_names((), "0.9.5"))
    context = Context(releases={"transformers": "4.57.1"})
    trainer = {fact.name for fact in upstream.iterate_keys("0.9.5", context) if fact.package == "transformers"}
    assert {"mine", "logging_steps"} <= names
    assert trainer - names <= {fact.name for fact in upstream.iterate_keys("0.9.5") if len(fact.route) > 1} | {"mine"}
    assert "cutoff_len" not in names


TRAINER = """
from dataclasses import dataclass
from transformers import TrainingArguments

@dataclass
class {name}(TrainingArguments):
    beta: float = 0.1
"""
SCRIPT = """
from trl import {name}, TrlParser

def make_parser():
    parser = TrlParser(({name},))
    {more}
    return parser
"""


def test_a_copy_of_trl_has_what_its_scripts_add_to_their_parsers(tmp_path) -> None:
    (tmp_path / "trl" / "trainer").mkdir(parents=True)
    (tmp_path / "trl" / "scripts").mkdir()
    for trainer, more in {
        "GRPO": "parser.add_argument('--judge-level', choices=['a', 'b'], default='a')",
        "DPO": "parser.description = 'x'",
    }.items():
        name = f"{trainer}Config"
        (tmp_path / "trl" / "trainer" / f"{trainer.lower()}_config.py").write_text(TRAINER.format(name=name))
        (tmp_path / "trl" / "scripts" / f"{trainer.lower()}.py").write_text(SCRIPT.format(name=name, more=more))
    layout = list_frameworks()["trl"]
    vendored = build_vocabulary(load_copy(str(tmp_path), layout), layout, "x", None)
    grpo, dpo = Context(entry="grpo"), Context(entry="dpo")
    level = vendored.find_fact(("judge_level",), "1.0.0", grpo)
    assert level is not None
    assert level.get_schema()["enum"] == ["a", "b"]
    assert vendored.find_fact(("judge_levels",), "1.0.0", grpo) is None
    assert vendored.find_fact(("judge_level",), "1.0.0", dpo) is None
    assert vendored.find_fact(("beta",), "1.0.0", dpo) is not None


def write_chain(levels: int, line: str) -> str:
    """Return names that each refer to the previous one twice: the text grows and the value doubles."""
    return "x0 = 1\n" + "".join(line.format(own=f"x{level}", one=f"x{level - 1}") for level in range(1, levels))


GROWING = {
    "lists": write_chain(45, "{own} = [{one}, {one}]\n") + "X = x44\n",
    "texts": write_chain(45, "{own} = f'{{{one}}}{{{one}}}'\n") + "X = x44\n",
    "conditions": write_chain(45, "{own} = {one} if {one} == {one} else {one}\n") + "X = x44\n",
    "calls": write_chain(45, "{own} = max({one}, {one})\n") + "X = x44\n",
    "nested": f"X = {'max(' * 40}1{')' * 40}\n",
}
CLASSES = "from dataclasses import dataclass\nfrom enum import Enum\nclass a0: pass\nclass b0: pass\n"
LATTICE = "".join(f"class {own}{n}(a{n - 1}, b{n - 1}): pass\n" for n in range(1, 45) for own in "ab")


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING)
def test_names_that_stand_for_names_end_soon(tmp_path, text: str) -> None:
    duration = measure_seconds(tmp_path, f"{text}{CLASSES}@dataclass\nclass TrainConfig:\n    x: int = X\n")
    assert duration < 3


def test_ancestors_end_soon(tmp_path) -> None:
    assert (
        measure_seconds(tmp_path, f"{CLASSES}{LATTICE}@dataclass\nclass TrainConfig(a44, b44):\n    x: int = 1\n") < 3
    )


def test_an_annotation_ends_soon(tmp_path) -> None:
    text = "from typing import Union\nx0 = int\n" + "".join(f"x{n} = Union[x{n - 1}, x{n - 1}]\n" for n in range(1, 19))
    assert measure_seconds(tmp_path, f"{text}{CLASSES}@dataclass\nclass TrainConfig:\n    x: x18\n") < 3


def test_modules_that_import_everything_from_each_other_end_soon(tmp_path) -> None:
    (tmp_path / "olmo").mkdir()
    for name in ("aliases", "util"):
        (tmp_path / "olmo" / f"{name}.py").write_text("from .aliases import *\nfrom .util import *\n")
    assert measure_seconds(tmp_path, f"from .util import *\n{CLASSES}@dataclass\nclass TrainConfig(Base): pass\n") < 3


def test_the_work_of_reading_settings_grows_with_their_number(tmp_path) -> None:
    fields = [f"    x{number}: int = {number}\n" for number in range(5_000)]
    few, many = (count_calls(tmp_path, "".join(fields[:count])) for count in (500, 5_000))
    assert 5 * few < many < 11 * few


def count_calls(root, fields: str) -> int:
    """Return the number of calls of functions, those of C included, while a copy with the fields is read."""
    events: collections.Counter[str] = collections.Counter()
    sys.setprofile(lambda frame, event, argument: events.update((event,)))
    try:
        read_copy(root, f"{CLASSES}@dataclass\nclass TrainConfig:\n{fields}")
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


def read_copy(root, text: str) -> None:
    """Read a copy of OLMo with the text, whether it succeeds or not."""
    (root / "olmo").mkdir(exist_ok=True)
    (root / "olmo" / "config.py").write_text(text)
    layout = list_frameworks()["olmo"]
    with contextlib.suppress(UnreadableCopyError):
        build_vocabulary(load_copy(str(root), layout), layout, "olmo", None)


def measure_seconds(root, text: str) -> float:
    """Return the CPU seconds of reading a copy of OLMo with the text."""
    with measure_block() as watch:
        read_copy(root, text)
    return watch.seconds
