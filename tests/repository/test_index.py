"""The index of a repository: names, ends of paths, and who mentions a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.foundation.git_index import tracked
from cfglint_train.foundation.roots import Roots
from cfglint_train.repository import index, known_facts, listing, texts
from cfglint_train.repository.index import Repositories, RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL, Texts
from cfglint_train.settings.settings import Settings
from tests.support.command import cfglint


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *user, *arguments], cwd=root, check=True, capture_output=True, env=environment)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a tracked script and a tracked configuration."""
    root = tmp_path / "checkout"
    put(root, "a/b/run.yaml", "deep/er/go.sh", text="train run.yaml")
    put(root, ".gitignore", text="out/\n*.log.sh\n")
    git(root, "init", "-q", "-b", "master")
    git(root, "add", "-A")
    return root


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


def test_the_walk_is_bounded_and_says_so(here, monkeypatch):
    monkeypatch.setattr(listing, "MAX_WALKED", 20)
    put(here, *(f"{number % 10}/x{number}.sh" for number in range(50)), text="train deep.yaml")
    found = of(here)
    assert len(found.scripts_naming("deep.yaml")) == 20
    assert found.cut == ["only 20 files of the repository count"]


_CONFIG = "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\ndatasets: [{path: a, type: alpaca}]\nlearning_rat: 1\n"


def test_the_report_names_a_bound_that_was_met(checkout, monkeypatch):
    put(checkout, "a/b/run.yaml", text=_CONFIG)
    whole = cfglint("a/b/run.yaml", cwd=checkout)
    monkeypatch.setattr(listing, "MAX_FILES", 2)
    cut = cfglint("a/b/run.yaml", cwd=checkout)
    bound = "may be incomplete: only 2 files of the repository count"
    assert bound not in whole.out + whole.err
    assert bound in cut.out
    assert cut.code == whole.code
    assert "learning_rat" in whole.out
    assert "learning_rat" in cut.out


def test_processes_and_the_order_of_the_files_change_no_finding(checkout):
    names = [f"{number % 7}/run{number}.yaml" for number in range(70)]
    put(checkout, *names, text=_CONFIG)
    git(checkout, "add", "-A")
    for number in range(70):
        put(checkout, f"{number % 5}/go{number}.sh", text=f"accelerate launch -m axolotl.cli.train run{number}.yaml\n")
    told = {
        tuple(sorted(cfglint("--output-format", "concise", "--jobs", jobs, *some, cwd=checkout).lines))
        for jobs in ("1", "2")
        for some in (names, names[::-1])
    }
    assert len(told) == 1
    found = [line for line in told.pop() if "learning_rat" in line]
    assert {line.partition(":")[0] for line in found} == set(names)


def test_what_is_large_is_not_read(here, monkeypatch):
    put(here, "go.sh", text="train run.yaml " + "#" * texts.MAX_SMALL)
    assert of(here).scripts_naming("run.yaml") == ()
    monkeypatch.setattr(index, "MAX_READ", 0)
    put(here, "small.sh", text="for x in *; do train run.yaml; done")
    found = of(here)
    assert found.scripts_naming("run.yaml") == ()
    assert list(found.texts("loops")) == []
    assert found.cut == ["only 0 MiB of the repository are searched"]


def test_what_is_large_is_whole_for_those_who_read_it(here):
    texts, path = Texts(), here / "large.yaml"
    path.write_bytes(b"x" * (MAX_SMALL + 1))
    assert texts.small(str(path)) == b""
    assert texts.read(str(path)) == path.read_bytes()


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


def naming(root: Path, *near: str) -> list[str]:
    found = RepositoryIndex(str(root), lambda _: Settings(str(root)), Texts(), None, [str(root / one) for one in near])
    return below(root, found.scripts_naming("run.yaml"))


def test_what_git_tracks_counts_and_what_is_new_beside_the_files_that_are_checked(checkout):
    new = ["a/b/beside.sh", "a/above.sh", "root.sh"]
    put(checkout, *new, "elsewhere/x.sh", "a/c/x.sh", text="train run.yaml")
    assert naming(checkout, "a/b") == sorted([*new, "deep/er/go.sh"])
    assert naming(checkout) == ["deep/er/go.sh"]
    git(checkout, "add", "elsewhere")
    assert naming(checkout) == ["deep/er/go.sh", "elsewhere/x.sh"]


def test_what_git_ignores_never_counts(checkout):
    put(checkout, "out/x.sh", "a/b/x.log.sh", "a/b/out/x.sh", "x.log.sh", text="train run.yaml")
    put(checkout, "a/b/x.sh", text="train run.yaml")
    assert naming(checkout, "a/b") == ["a/b/x.sh", "deep/er/go.sh"]
    git(checkout, "add", "-f", "out/x.sh")
    assert naming(checkout, "a/b") == ["a/b/x.sh", "deep/er/go.sh", "out/x.sh"]


def test_in_an_ignored_folder_what_is_beside_a_checked_file_counts(checkout):
    put(checkout, "out/run/x.sh", "out/run/x.log.sh", "out/other.sh", "out/y/x.sh", text="train run.yaml")
    assert {"out/run/x.sh", "out/other.sh"} <= set(naming(checkout, "out/run"))
    assert "out/y/x.sh" not in naming(checkout, "out/run")


def test_before_the_first_git_add_and_with_a_split_index_the_folders_are_walked(checkout):
    put(checkout, "new/x.sh", "out/x.sh", text="train run.yaml")
    (checkout / ".git/index").rename(checkout / ".git/kept")
    assert naming(checkout) == ["deep/er/go.sh", "new/x.sh"]
    (checkout / ".git/kept").rename(checkout / ".git/index")
    git(checkout, "update-index", "--split-index")
    assert naming(checkout) == ["deep/er/go.sh", "new/x.sh"]


def test_what_is_gone_or_is_a_link_by_now_does_not_count(checkout):
    put(checkout, "one/ds.json", "two/ds.json", "three/ds.json", "four/x.sh", text="train run.yaml")
    git(checkout, "add", "-A")
    (checkout / "one/ds.json").unlink()
    (checkout / "two/ds.json").unlink()
    (checkout / "two/ds.json").symlink_to(checkout / "three/ds.json")
    (checkout / "four/x.sh").unlink()
    (checkout / "four/x.sh").symlink_to(checkout / "deep/er/go.sh")
    found = of(checkout)
    assert below(checkout, found.named("ds.json")) == ["three/ds.json"]
    assert below(checkout, found.scripts_naming("run.yaml")) == ["deep/er/go.sh"]
    assert found.holding("er") == (f"{checkout}/deep",)


def test_files_of_submodules_count(checkout, tmp_path):
    put(tmp_path / "other", "lib/olmo/go.sh", text="train run.yaml")
    git(tmp_path / "other", "init", "-q")
    git(tmp_path / "other", "add", "-A")
    git(tmp_path / "other", "commit", "-qm", "x")
    git(checkout, "submodule", "add", str(tmp_path / "other"), "parts/other")
    assert naming(checkout) == ["deep/er/go.sh", "parts/other/lib/olmo/go.sh"]
    assert below(checkout, of(checkout).holding("olmo")) == ["parts/other/lib"]


@pytest.mark.parametrize(("path", "crafted"), [("aa/run.sh", b"../run.sh"), ("aaaa/run.sh", b".git/run.sh")])
def test_an_index_that_leads_out_is_none(checkout, path, crafted):
    """An archive may hold an index that git did not write: git refuses such a path."""
    put(checkout, path)
    git(checkout, "add", "-A")
    assert os.fsencode(path) in tracked(str(checkout)).paths
    entries = checkout / ".git" / "index"
    entries.write_bytes(entries.read_bytes().replace(os.fsencode(path), crafted))
    assert tracked(str(checkout)) is None


def test_a_merge_lists_each_path_once(checkout):
    git(checkout, "commit", "-qm", "1")
    for branch in ("one", "two"):
        git(checkout, "checkout", "-q", "-b", branch, "master" if branch == "one" else "HEAD~1")
        put(checkout, "deep/er/go.sh", text=branch)
        git(checkout, "commit", "-qam", branch)
    with pytest.raises(subprocess.CalledProcessError):
        git(checkout, "merge", "one")
    assert tracked(str(checkout)).paths.count(b"deep/er/go.sh") == 1


def test_folders_may_be_deeper_than_the_stack(checkout):
    path = "d/" * 1500 + "x.sh"
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=checkout, input=b"", capture_output=True, check=True
    )
    git(checkout, "update-index", "--add", "--cacheinfo", f"100644,{blob.stdout.decode().strip()},{path}")
    assert len(listing.listing(str(checkout), None, (), lambda _: False).files) == 4


def test_many_words_are_found_as_few_are(here):
    put(here, "go.sh", text=" ".join(f"name{number}.yaml" for number in range(index.FEW * 2)))
    found = of(here)
    for number in range(index.FEW * 2):
        assert found.scripts_naming(f"name{number}.yaml") == (f"{here}/go.sh",)
        assert found.scripts_naming(f"ame{number}.yaml") == ()


def test_facts_of_earlier_runs_count_only_for_files_that_are_as_they_were(here, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(index, "LEAST", 1)
    monkeypatch.setattr(known_facts, "_TICK", 0)
    cache = str(tmp_path_factory.mktemp("cache"))
    put(here, *(f"a/{number}.sh" for number in range(9)), text="for x in *")
    put(here, "a/without.sh", text="echo")

    def looping() -> tuple[list[str], list[str]]:
        read: list[str] = []
        small = Texts.small
        monkeypatch.setattr(Texts, "small", lambda self, path: (read.append(path), small(self, path))[1])
        found = RepositoryIndex(str(here), lambda _: Settings(str(here)), Texts(), cache=lambda: cache)
        names = below(here, tuple(found._answered()["loops"]))
        monkeypatch.setattr(Texts, "small", small)
        return sorted(names), below(here, tuple(read))

    all_of_them = [f"a/{number}.sh" for number in range(9)]
    assert looping() == (all_of_them, [*all_of_them, "a/without.sh"])
    assert looping() == (all_of_them, [])
    state = os.stat(here / "a/3.sh")
    (here / "a/3.sh").write_text("echo x in")  # as long as before
    os.utime(here / "a/3.sh", ns=(state.st_atime_ns, state.st_mtime_ns))
    without = [path for path in all_of_them if path != "a/3.sh"]
    assert looping() == (without, ["a/3.sh"])
    put(here, "b/new.sh", text="for x in *")
    assert looping()[0] == [*without, "b/new.sh"]
    assert looping() == ([*without, "b/new.sh"], [])
    for kept in (Path(cache) / "repositories").iterdir():
        kept.write_text("no facts\n")
    assert looping()[0] == [*without, "b/new.sh"]


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
