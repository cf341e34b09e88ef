"""Keys that a release declares and no code of it reads (`tools.schemas.unread`)."""

from __future__ import annotations

from typing import Any

from tools.schemas.unread import list_unread_keys

from cfglint_schemas.readers.tree import SourceTree
from tests.support.cases import for_each

CONFIG = """
KEY = "plain"

class Config(BaseModel):
    passed: int = 0
    stored: int = 0
    switched: bool = False
    logged: int = 0
    asked: int = 0
    tuned: int = 0

def get_plain(values):
    return get_scalar_param(values, KEY, 0)

class Engine:
    def __init__(self, config, values):
        self.kept = config.stored
        self.plain = get_plain(values)
        logger.info(config.logged)
        build(amount=config.passed)
        if config.switched:
            start()

    def answer(self):
        return self.config.asked

def build(amount):
    return torch.empty(amount)
"""
READERS = {"plain": "use(engine.plain)", "stored": "use(engine.kept)", "asked": "print_all(engine.answer())"}


def list_keys(*files: str, **releases: Any) -> list[str]:
    names = ("passed", "stored", "switched", "logged", "asked", "plain", "tuned")
    span = {"since": "1.0", **releases}
    schema = {"$defs": {"Config": {"properties": {name: {"x-releases": [span]} for name in names}}}}
    tree = SourceTree("guest", "1.0", {f"guest/{number}.py": text for number, text in enumerate((CONFIG, *files))})
    return [key.partition("/")[2] for key in list_unread_keys(schema, tree)]


def test_a_key_is_read_if_its_value_has_an_effect():
    assert list_keys() == ["stored", "logged", "asked", "plain", "tuned"]


@for_each(("key", "reader"), READERS.items())
def test_a_key_is_read_through_other_names(key, reader):
    assert key not in list_keys(f"{reader}\n")


def test_keys_of_other_releases_are_left_out():
    assert list_keys(since="2.0") == []
    assert list_keys(since="0.5", last="0.9") == []


def test_a_program_beside_training_is_no_reader():
    schema = {
        "$defs": {name: {"properties": {"tuned": {"x-releases": [{"since": "1.0"}]}}} for name in ("a", "autotuning")}
    }
    tree = SourceTree("guest", "1.0", {"guest/autotuning/run.py": "use(config.tuned)\n"})
    assert list(list_unread_keys(schema, tree)) == ["a/tuned"]
