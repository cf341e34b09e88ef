"""The index of a repository: names, ends of paths, and who mentions a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.foundation.roots import Roots
from cfglint_train.repository import index, texts
from cfglint_train.repository.index import Repositories, RepositoryIndex
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def put(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def of(root: Path) -> RepositoryIndex:
    return RepositoryIndex(str(root), lambda _: Settings(str(root)), Texts())


def below(root: Path, paths: tuple[str, ...] | str | None) -> list[str]:
    found = [paths] if isinstance(paths, str) else paths or ()
    return [os.path.relpath(path, root) for path in found]


def test_names(here):
    put(here, "a/ds.json", "b/c/d/ds.json", "b/other.json")
    assert below(here, of(here).named("ds.json")) == ["a/ds.json", "b/c/d/ds.json"]
    assert of(here).named("no.json") == ()


def test_what_is_excluded_does_not_count(here):
    put(here, ".venv/x/ds.json", "build/ds.json", "mine/ds.json", "mine/run.sh", text="train ds.json")
    (here / "link").symlink_to(here / "mine")
    settings = Settings(str(here), exclude=(*Settings(str(here)).exclude,))
    found = RepositoryIndex(str(here), lambda _: settings, Texts())
    assert below(here, found.named("ds.json")) == ["mine/ds.json"]
    assert below(here, found.scripts_naming("ds.json")) == ["mine/run.sh"]


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("/workspace/repo/configs/ds/z3.json", ["configs/ds/z3.json"]),
        ("/elsewhere/ds/z3.json", ["configs/ds/z3.json"]),
        ("../../ds/z3.json", ["configs/ds/z3.json"]),
        ("/elsewhere/only.json", ["deep/in/only.json"]),
        ("only.json", []),  # one part of a relative path is no evidence
        ("/elsewhere/z3.json", []),  # two files have the name
        ("/elsewhere/es/z3.json", []),  # the folder is another
        ("other/ds/z3.yaml", []),
        ("", []),
        ("/", []),
    ],
)
def test_the_end_of_a_path(here, stated, found):
    put(here, "configs/ds/z3.json", "old/z3.json", "deep/in/only.json")
    assert below(here, of(here).by_tail(stated, str(here / "configs/run.yaml"))) == found


def test_of_equal_ends_the_nearest_counts(here):
    put(here, "a/configs/z3.json", "b/configs/z3.json")
    found = of(here)
    assert below(here, found.by_tail("/w/configs/z3.json", str(here / "b/run.yaml"))) == ["b/configs/z3.json"]
    assert found.by_tail("/w/configs/z3.json", str(here / "run.yaml")) is None
    assert below(here, found.by_tail("/w/a/configs/z3.json", str(here / "b/run.yaml"))) == ["a/configs/z3.json"]


def test_a_file_is_not_its_own_companion(here):
    put(here, "configs/run.yaml")
    assert of(here).by_tail("/w/configs/run.yaml", str(here / "configs/run.yaml")) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("train configs/run.yaml", True),
        ("train --config=run.yaml;", True),
        ('train "$HERE/run.yaml"', True),
        ("train my_run.yaml", False),
        ("train run.yaml.bak", False),
        ("train run", False),
    ],
)
def test_who_mentions_a_file(here, text, names):
    put(here, "one/two/three/go.sbatch", "tool.py", text=text)
    assert below(here, of(here).scripts_naming("run.yaml")) == (["one/two/three/go.sbatch"] if names else [])
    assert below(here, of(here).pythons_naming("run.yaml")) == (["tool.py"] if names else [])


def test_a_name_with_a_blank(here):
    put(here, "go.sh", text="train 'my run.yaml'")
    assert below(here, of(here).scripts_naming("my run.yaml")) == ["go.sh"]


def test_folders_that_hold_a_folder(here):
    put(here, "OLMo/olmo/config.py", "olmo/config.py", "fork/openrlhf/cli/train_sft.py", "tolmo/config.py", "x/olmo")
    assert below(here, of(here).holding("olmo")) == [".", "OLMo"]
    assert below(here, of(here).holding("openrlhf")) == ["fork"]


def test_the_walk_is_bounded_and_the_folders_of_a_file_are_not_beyond_it(here, monkeypatch):
    monkeypatch.setattr(index, "MAX_ENTRIES", 20)
    put(here, *(f"a{number}/x.sh" for number in range(50)), text="train deep.yaml")
    put(here, "z/y/deep.sh", "z/near.sh", text="train deep.yaml")
    assert len(of(here).named("x.sh")) < 20
    found = below(here, of(here).scripts_naming("deep.yaml", str(here / "z/y/deep.yaml")))
    assert {"z/near.sh", "z/y/deep.sh"} <= set(found)


def test_what_is_large_is_not_read(here, monkeypatch):
    put(here, "go.sh", text="train run.yaml " + "#" * texts.MAX_SMALL)
    assert of(here).scripts_naming("run.yaml") == ()
    monkeypatch.setattr(index, "MAX_READ", 0)
    put(here, "small.sh", text="train run.yaml")
    assert of(here).scripts_naming("run.yaml") == ()


def test_a_folder_that_cannot_be_read_is_none(here):
    assert of(here / "missing").named("x") == ()


def test_the_root_is_above_the_projects_in_a_repository(here):
    put(here, "pyproject.toml", "examples/one/pyproject.toml", "examples/one/run.yaml", "jobs/run.sh")
    repositories = Repositories(Settings, Roots(), Texts())
    assert repositories.index(str(here / "examples/one/run.yaml")).root == str(here)
    assert Roots().above(str(here / "examples")) == ((str(here / "examples"), str(here)), True)


def test_the_outermost_project_counts_without_a_repository(tmp_path):
    put(tmp_path, "one/pyproject.toml", "one/two/cfglint.toml", "one/two/run.yaml")
    assert Repositories(Settings, Roots(), Texts()).index(str(tmp_path / "one/two/run.yaml")).root == f"{tmp_path}/one"


def test_without_a_root_only_the_folders_in_its_own_count(tmp_path):
    put(tmp_path, "run.yaml", "go.sh", "scripts/go.sh", "a/b/go.sh", "../stray.sh", text="train run.yaml")
    found = Repositories(Settings, Roots(), Texts()).index(str(tmp_path / "run.yaml"))
    assert below(tmp_path, found.scripts_naming("run.yaml")) == ["go.sh", "scripts/go.sh"]


_STEPS = st.sampled_from(["a", "b", "c", "ds.json", "x.yaml"])
_PATHS = st.lists(_STEPS, min_size=1, max_size=4).map("/".join)


@given(paths=st.sets(_PATHS, max_size=8), stated=_PATHS)
def test_an_end_agrees_with_the_file_that_it_finds(tmp_path_factory, paths, stated):
    root = tmp_path_factory.mktemp("repository")
    for path in sorted(paths):
        if not any((root / part).is_file() for part in Path(path).parents) and not (root / path).exists():
            put(root, path)
    found = of(root).by_tail(f"/away/{stated}", str(root / "run.yaml"))
    if found is not None:
        steps = stated.split("/")
        assert found.split("/")[-1] == steps[-1]
        assert found.split("/")[-2:] == f"/away/{stated}".split("/")[-2:] or len(of(root).named(steps[-1])) == 1
