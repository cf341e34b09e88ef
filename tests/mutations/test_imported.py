"""Python files of a repository that a program imports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cfglint_train.mutations import imported
from cfglint_train.mutations.imported import ImportGraph
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings

FILES = {
    "src/train.py": "import os, own.run as run\nfrom own import (\n    late,\n    later as other,\n)\n",
    "src/own/__init__.py": "from .hparams.parser import parse\n",
    "src/own/run.py": "    from . import near\n",
    "src/own/near.py": "from ..beside import x\n",
    "src/own/late.py": "from outside.layout import Layout\n",
    "src/own/later.py": "",
    "src/own/hparams/parser.py": "from .args import Args  # from own.unused import x\n",
    "src/own/hparams/args.py": "",
    "src/beside.py": "import src.train\n",
    "outside/layout.py": "",
    "src/outside/other.py": "",
    "vendor/own/late.py": "import tool\n",
    "src/own/unused.py": "",
    "tool.py": "",
}
REACHED = {
    "src/train.py", "src/own/__init__.py", "src/own/run.py", "src/own/near.py", "src/own/late.py", "src/own/later.py",
    "src/own/hparams/parser.py", "src/own/hparams/args.py", "src/beside.py", "outside/layout.py",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def list_imported(root: Path) -> set[str]:
    index = RepositoryIndex(str(root), lambda _: Settings(str(root)), Texts())
    paths = ImportGraph(index).find_imports(str(root / "src/train.py"))
    return {os.path.relpath(path, root).replace(os.sep, "/") for path in paths}


def test_a_module_is_the_nearest_file_whose_path_ends_with_its_name(here):
    assert list_imported(here) == REACHED


def test_a_program_that_imports_much_is_followed_only_so_far(here, monkeypatch):
    monkeypatch.setattr(imported, "MAX_FILES", 2)
    assert len(list_imported(here)) < len(REACHED)
    monkeypatch.setattr(imported, "MAX_BYTES", 1)
    assert list_imported(here) == set()
