"""Conditions in the source of a copied framework."""

from pathlib import Path

import pytest

from cfglint_train.documents.python.copied_code import CopiedCode

SOURCE = """
if not config.actor.dynamic:
    assert size >= config.critic.mini
    assert config.data.size >= self.config.rate

def refuse(size, name):
    if size is None:
        raise ValueError(name)

def warn(size):
    print(size)

def render(size):
    "Print a size."
    raise NotImplementedError

if self.reference:
    refuse(config.ref.rows, "ref")
    refuse(size=config.ref.cells, name="ref")
    warn(config.ref.batch)
    render(config.ref.lines)
"""


@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        (("mini",), True),
        (("critic.mini", "actor.dynamic"), True),
        (("actor.mini",), False),
        (("data.size", "critic.mini"), True),
        (("data.size", "actor.rate"), True),
        (("data.rows", "actor.rate"), False),
        (("reference", "ref.rows"), True),
        (("reference", "ref.cells"), True),
        (("reference", "ref.batch"), False),
        (("reference", "ref.lines"), False),
    ],
)
def test_a_name_may_have_its_group(tmp_path: Path, words: tuple[str, ...], is_there: bool) -> None:
    (tmp_path / "trainer.py").write_text(SOURCE, encoding="utf-8")
    assert CopiedCode(str(tmp_path)).has_condition(words, stops=True, calls=True) is is_there


CLASSES = """
class FSDPActorConfig(ActorConfig):
    def validate(self, size):
        if size < self.rows:
            raise ValueError

class CriticConfig:
    def validate(self, size):
        if size < self.mini:
            raise ValueError

class AlgoConfig:
    def validate(self):
        assert self.penalty

class CriticWorker:
    def start(self):
        assert self.config.micro
"""


@pytest.mark.parametrize(
    ("word", "is_there"),
    [
        ("actor.rows", True),
        ("critic.rows", False),
        ("critic.mini", True),
        ("actor_rollout_ref.actor.mini", False),
        ("actor.fsdp_config.mini", False),
        ("actor.fsdp_config.rows", True),
        ("mini", True),
        ("algorithm.penalty", True),
        ("critic.micro", True),
        ("actor.micro", False),
    ],
)
def test_a_class_of_settings_holds_its_own_group(tmp_path: Path, word: str, is_there: bool) -> None:
    (tmp_path / "config.py").write_text(CLASSES, encoding="utf-8")
    assert CopiedCode(str(tmp_path)).has_condition((word,), stops=True) is is_there
