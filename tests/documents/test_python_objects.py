"""Instances of a script's classes, and values of other modules, as a static walk finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.documents.python.values import is_conditional
from cfglint_train.foundation.typed import Any


def read_value(path: Path, text: str, name: str = "x") -> Any:
    """Return the value of a name: Unknown if it cannot be determined, "?" if it depends on a condition."""
    walk = Walk(PythonDocument(str(path / "train.py"), text.encode()), {}, {}, {})
    walk.run()
    value = walk.module.names[name]
    if isinstance(value, Record) and value.implicit:
        return Unknown(value.open)
    assert isinstance(value, Value), value
    return "?" if is_conditional(value) else value.value


JOB = """
from dataclasses import dataclass, field
@dataclass
class Settings:
    rate: float = 0.1
    batch: int = field(default=4)
    more: dict = field(default_factory=dict)
class Base:
    scale = 2
    def __init__(self, settings):
        self.settings = settings
        self.size = None
    def prepare(self):
        self.size = self.settings.batch * self.scale
class Job(Base):
    def __init__(self, settings, steps=3):
        super().__init__(settings)
        self.steps = steps
    @property
    def total(self):
        return self.steps * self.settings.batch
    @staticmethod
    def double(n):
        return n * 2
job = Job(Settings(batch=8))
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = job.settings.rate", 0.1),
        ("x = job.settings.batch", 8),
        ("x = job.steps", 3),
        ("x = job.total", 24),
        ("x = job.double(5)", 10),
        ("x = job.size", None),
        ("job.prepare()\nx = job.size", 16),
        ("job.settings.batch = 1\njob.prepare()\nx = job.size", 2),
        ("if coin():\n    job.steps = 9\nx = job.steps", "?"),
        ("for _ in turns():\n    job.prepare()\nx = job.size", "?"),
        ("job.settings = load()\nx = job.settings.batch", Unknown),
        ("x = Settings(**load()).batch", Unknown),
        ("x = job.absent", Unknown),
    ],
)
def test_instances(tmp_path: Path, text: str, expected: object) -> None:
    value = read_value(tmp_path, JOB + text)
    assert isinstance(value, Unknown) if expected is Unknown else value == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if coin():\n    a = 1\n    b = a + 1\nelse:\n    a = 5\n    x = a", "?"),
        ("seen = []\nif coin():\n    a = 1\nelse:\n    a = 5\n    keep = [a][0] + 0\nx = keep", "?"),
        ("d = {'a': 1, **load()}\nx = d['a']", "?"),
        ("d = {**load(), 'a': 1}\nx = d['a']", 1),
        ("d = {'a': 1}\nd.update(load())\nd['b'] = 2\nx = d['b']", 2),
        ("d = {'a': 1} | {'b': 2}\nx = d['b']", 2),
        ("d = {'a': 1}\nx = d.get('b', 7)", 7),
        ("d = {'a': 1, **load()}\nx = d.get('b', 7)", Unknown),
    ],
)
def test_branches_and_dictionaries(tmp_path: Path, text: str, expected: object) -> None:
    value = read_value(tmp_path, text)
    assert isinstance(value, Unknown) if expected is Unknown else value == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/__init__.py").write_text("from .settings import Settings, RATE\n")
    (tmp_path / "lib/settings.py").write_text(
        "import argparse\nRATE = 3\nMORE = {'rate': RATE, 'size': 2}\n"
        "class Settings:\n    def __init__(self, batch=4):\n        self.batch = batch\n"
        "    def count(self, n):\n        return self.batch * n\n"
        "def build(settings, **more):\n    return {'batch': settings.batch, **more}\n"
        "def parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--n', default=1)\n"
        "    return p.parse_args()\n"
        "if __name__ == '__main__':\n    RATE = 5\n"
    )
    (tmp_path / "lib/circle.py").write_text("from train import x\nfrom .circle import x\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from lib.settings import RATE\nx = RATE", 3),
        ("from lib import RATE as R\nx = R + 1", 4),
        ("import lib.settings as s\nx = s.RATE", 3),
        ("from lib.settings import MORE\nx = MORE['size']", 2),
        ("from lib.settings import MORE\nMORE['size'] = 9\nx = MORE['size']", 9),
        ("from lib import Settings\nx = Settings().batch", 4),
        ("from lib import Settings\nx = Settings(batch=2).count(3)", 6),
        ("from lib import Settings\ns = Settings()\ns.batch = 7\nx = s.count(1)", 7),
        ("from lib import Settings\ns = Settings()\nif coin():\n    s.batch = 7\nx = s.batch", Unknown),
        ("from lib import Settings\ns = Settings(2) if coin() else Settings(3)\nx = s.batch", "?"),
        ("from lib.settings import Settings, build\nx = build(Settings(), size=2)['batch']", 4),
        ("from lib.settings import parse\nx = parse().n", Unknown),
    ],
)
def test_values_of_other_modules(project: Path, text: str, expected: object) -> None:
    value = read_value(project, text)
    assert isinstance(value, Unknown) if expected is Unknown else value == expected


def test_modules_that_import_each_other(project: Path) -> None:
    text = "from lib.circle import x as y\nx = 1\n"
    (project / "train.py").write_text(text)
    assert read_value(project, text) == 1


def test_nested_lists_of_another_module_spend_the_budget(tmp_path: Path) -> None:
    lines = ["X0 = [1]", *(f"X{size + 1} = [X{size}, X{size}]" for size in range(40))]
    (tmp_path / "lists.py").write_text("\n".join(lines), encoding="utf-8")
    walk = Walk(PythonDocument(str(tmp_path / "train.py"), b"from lists import X40\nx = X40\n"), {}, {}, {})
    walk.run()
    assert walk.is_exhausted
