"""Index of a repository: names, ends of paths, and the scripts that mention a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.git_index import read_index
from cfglint_train.foundation.roots import Roots
from cfglint_train.repository import index, known_facts, listing, texts
from cfglint_train.repository.clues import CLUES, TOGETHER
from cfglint_train.repository.index import Repositories, RepositoryIndex
from cfglint_train.repository.texts import MAX_SMALL, Texts
from cfglint_train.settings.settings import Settings
from tests.support.command import run_cfglint


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def run_git(root: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    user = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *user, *arguments], cwd=root, check=True, capture_output=True, env=environment)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a tracked script and a tracked config."""
    root = tmp_path / "checkout"
    put(root, "a/b/run.yaml", "deep/er/go.sh", text="train run.yaml")
    put(root, ".gitignore", text="out/\n*.log.sh\n")
    run_git(root, "init", "-q", "-b", "master")
    run_git(root, "add", "-A")
    return root


def put(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def build_index(root: Path) -> RepositoryIndex:
    return RepositoryIndex(str(root), lambda _: Settings(str(root)), Texts())


def list_relative(root: Path, paths: tuple[str, ...] | str | None) -> list[str]:
    absolute = [paths] if isinstance(paths, str) else paths or ()
    return [os.path.relpath(path, root) for path in absolute]


def test_names(here):
    put(here, "a/ds.json", "b/c/d/ds.json", "b/other.json")
    assert list_relative(here, build_index(here).find_by_name("ds.json")) == ["a/ds.json", "b/c/d/ds.json"]
    assert build_index(here).find_by_name("no.json") == ()


def test_what_is_excluded_does_not_count(here):
    put(here, ".venv/x/ds.json", "build/ds.json", "mine/ds.json", "mine/run.sh", text="train ds.json")
    (here / "link").symlink_to(here / "mine")
    settings = Settings(str(here), exclude=(*Settings(str(here)).exclude,))
    repository_index = RepositoryIndex(str(here), lambda _: settings, Texts())
    assert list_relative(here, repository_index.find_by_name("ds.json")) == ["mine/ds.json"]
    assert list_relative(here, repository_index.find_scripts_naming("ds.json")) == ["mine/run.sh"]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("/workspace/repo/configs/ds/z3.json", ["configs/ds/z3.json"]),
        ("/elsewhere/ds/z3.json", ["configs/ds/z3.json"]),
        ("../../ds/z3.json", ["configs/ds/z3.json"]),
        ("/elsewhere/only.json", ["deep/in/only.json"]),
        ("only.json", []),  # one part of a relative path is no evidence
        ("/elsewhere/z3.json", []),  # two files have the name
        ("/elsewhere/es/z3.json", []),  # the folder differs
        ("other/ds/z3.yaml", []),
        ("", []),
        ("/", []),
    ],
)
def test_the_end_of_a_path(here, stated, expected):
    put(here, "configs/ds/z3.json", "old/z3.json", "deep/in/only.json")
    assert list_relative(here, build_index(here).find_by_suffix(stated, str(here / "configs/run.yaml"))) == expected


def test_of_equal_ends_the_nearest_counts(here):
    put(here, "a/configs/z3.json", "b/configs/z3.json")
    repository_index = build_index(here)
    assert list_relative(here, repository_index.find_by_suffix("/w/configs/z3.json", str(here / "b/run.yaml"))) == [
        "b/configs/z3.json"
    ]
    assert repository_index.find_by_suffix("/w/configs/z3.json", str(here / "run.yaml")) is None
    assert list_relative(here, repository_index.find_by_suffix("/w/a/configs/z3.json", str(here / "b/run.yaml"))) == [
        "a/configs/z3.json"
    ]


def test_a_file_is_not_its_own_companion(here):
    put(here, "configs/run.yaml")
    assert build_index(here).find_by_suffix("/w/configs/run.yaml", str(here / "configs/run.yaml")) is None


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
    assert list_relative(here, build_index(here).find_scripts_naming("run.yaml")) == (
        ["one/two/three/go.sbatch"] if names else []
    )
    assert list_relative(here, build_index(here).find_python_naming("run.yaml")) == (["tool.py"] if names else [])


def test_a_name_with_a_blank(here):
    put(here, "go.sh", text="train 'my run.yaml'")
    assert list_relative(here, build_index(here).find_scripts_naming("my run.yaml")) == ["go.sh"]


def test_folders_that_hold_a_folder(here):
    put(here, "OLMo/olmo/config.py", "olmo/config.py", "fork/openrlhf/cli/train_sft.py", "tolmo/config.py", "x/olmo")
    assert list_relative(here, build_index(here).find_parent_folders("olmo")) == [".", "OLMo"]
    assert list_relative(here, build_index(here).find_parent_folders("openrlhf")) == ["fork"]


def test_the_walk_is_bounded_and_says_so(here, monkeypatch):
    monkeypatch.setattr(listing, "MAX_WALKED", 20)
    put(here, *(f"{number % 10}/x{number}.sh" for number in range(50)), text="train deep.yaml")
    repository_index = build_index(here)
    assert len(repository_index.find_scripts_naming("deep.yaml")) == 20
    assert repository_index.limits_reached == ["only 20 files of the repository are considered"]


_CONFIG = "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\ndatasets: [{path: a, type: alpaca}]\nlearning_rat: 1\n"


def test_the_report_names_a_bound_that_was_met(checkout, monkeypatch):
    put(checkout, "a/b/run.yaml", text=_CONFIG)
    whole = run_cfglint("a/b/run.yaml", cwd=checkout)
    monkeypatch.setattr(listing, "MAX_FILES", 2)
    cut = run_cfglint("a/b/run.yaml", cwd=checkout)
    bound = "was not searched completely: only 2 files of the repository are considered"
    assert bound not in whole.out + whole.err
    assert bound in cut.out
    assert cut.code == whole.code
    assert "learning_rat" in whole.out
    assert "learning_rat" in cut.out


def test_processes_and_the_order_of_the_files_change_no_finding(checkout):
    names = [f"{number % 7}/run{number}.yaml" for number in range(70)]
    put(checkout, *names, text=_CONFIG)
    run_git(checkout, "add", "-A")
    for number in range(70):
        put(checkout, f"{number % 5}/go{number}.sh", text=f"accelerate launch -m axolotl.cli.train run{number}.yaml\n")
    outputs = {
        tuple(sorted(run_cfglint("--output-format", "concise", "--jobs", jobs, *file_order, cwd=checkout).lines))
        for jobs in ("1", "2")
        for file_order in (names, names[::-1])
    }
    assert len(outputs) == 1
    reported = [line for line in outputs.pop() if "learning_rat" in line]
    assert {line.partition(":")[0] for line in reported} == set(names)


def test_what_is_large_is_not_read(here, monkeypatch):
    put(here, "go.sh", text="train run.yaml " + "#" * texts.MAX_SMALL)
    assert build_index(here).find_scripts_naming("run.yaml") == ()
    monkeypatch.setattr(index, "MAX_READ", 0)
    put(here, "small.sh", text="for x in *; do train run.yaml; done")
    repository_index = build_index(here)
    assert repository_index.find_scripts_naming("run.yaml") == ()
    assert list(repository_index.read_texts("loops")) == []
    assert repository_index.limits_reached == ["only 0 MiB of the repository are searched"]


def test_what_was_found_before_the_limit_counts(here, monkeypatch):
    text = "for x in *; do train run.yaml; done"
    put(here, "a.sh", "b.sh", "c.py", text=text)
    monkeypatch.setattr(index, "MAX_READ", len(text))
    monkeypatch.setattr(index, "_MAX_JOINED", 0)
    repository_index = build_index(here)
    assert list(repository_index.read_texts("loops")) == [(str(here / "a.sh"), text)]
    assert repository_index.limits_reached == ["only 0 MiB of the repository are searched"]


def test_the_facts_of_a_file_have_a_bit_for_every_question():
    assert len(CLUES) <= known_facts._ANSWERED
    assert sorted(question for group in TOGETHER for question in group) == sorted(CLUES)


def test_what_is_large_is_whole_for_those_who_read_it(here):
    texts, path = Texts(), here / "large.yaml"
    path.write_bytes(b"x" * (MAX_SMALL + 1))
    assert texts.read_small(str(path)) == b""
    assert texts.read(str(path)) == path.read_bytes()


def test_a_folder_that_cannot_be_read_is_none(here):
    assert build_index(here / "missing").find_by_name("x") == ()


def test_the_root_is_above_the_projects_in_a_repository(here):
    put(here, "pyproject.toml", "examples/one/pyproject.toml", "examples/one/run.yaml", "jobs/run.sh")
    repositories = Repositories(Settings, Roots(), Texts())
    assert repositories.get_index(str(here / "examples/one/run.yaml")).root == str(here)
    assert Roots().list_folders_above(str(here / "examples")) == ((str(here / "examples"), str(here)), True)


def test_the_outermost_project_counts_without_a_repository(tmp_path):
    put(tmp_path, "one/pyproject.toml", "one/two/cfglint.toml", "one/two/run.yaml")
    assert (
        Repositories(Settings, Roots(), Texts()).get_index(str(tmp_path / "one/two/run.yaml")).root == f"{tmp_path}/one"
    )


def test_without_a_root_only_the_folders_in_its_own_count(tmp_path):
    put(tmp_path, "run.yaml", "go.sh", "scripts/go.sh", "a/b/go.sh", "../stray.sh", text="train run.yaml")
    repository_index = Repositories(Settings, Roots(), Texts()).get_index(str(tmp_path / "run.yaml"))
    assert list_relative(tmp_path, repository_index.find_scripts_naming("run.yaml")) == ["go.sh", "scripts/go.sh"]


def list_scripts_naming(root: Path, *near: str) -> list[str]:
    repository_index = RepositoryIndex(
        str(root), lambda _: Settings(str(root)), Texts(), None, [str(root / name) for name in near]
    )
    return list_relative(root, repository_index.find_scripts_naming("run.yaml"))


def test_what_git_tracks_counts_and_what_is_new_beside_the_files_that_are_checked(checkout):
    new = ["a/b/beside.sh", "a/above.sh", "root.sh"]
    put(checkout, *new, "elsewhere/x.sh", "a/c/x.sh", text="train run.yaml")
    assert list_scripts_naming(checkout, "a/b") == sorted([*new, "deep/er/go.sh"])
    assert list_scripts_naming(checkout) == ["deep/er/go.sh"]
    run_git(checkout, "add", "elsewhere")
    assert list_scripts_naming(checkout) == ["deep/er/go.sh", "elsewhere/x.sh"]


def test_what_git_ignores_never_counts(checkout):
    put(checkout, "out/x.sh", "a/b/x.log.sh", "a/b/out/x.sh", "x.log.sh", text="train run.yaml")
    put(checkout, "a/b/x.sh", text="train run.yaml")
    assert list_scripts_naming(checkout, "a/b") == ["a/b/x.sh", "deep/er/go.sh"]
    run_git(checkout, "add", "-f", "out/x.sh")
    assert list_scripts_naming(checkout, "a/b") == ["a/b/x.sh", "deep/er/go.sh", "out/x.sh"]


def test_in_an_ignored_folder_what_is_beside_a_checked_file_counts(checkout):
    put(checkout, "out/run/x.sh", "out/run/x.log.sh", "out/other.sh", "out/y/x.sh", text="train run.yaml")
    assert {"out/run/x.sh", "out/other.sh"} <= set(list_scripts_naming(checkout, "out/run"))
    assert "out/y/x.sh" not in list_scripts_naming(checkout, "out/run")


def test_before_the_first_git_add_and_with_a_split_index_the_folders_are_walked(checkout):
    put(checkout, "new/x.sh", "out/x.sh", text="train run.yaml")
    (checkout / ".git/index").rename(checkout / ".git/kept")
    assert list_scripts_naming(checkout) == ["deep/er/go.sh", "new/x.sh"]
    (checkout / ".git/kept").rename(checkout / ".git/index")
    run_git(checkout, "update-index", "--split-index")
    assert list_scripts_naming(checkout) == ["deep/er/go.sh", "new/x.sh"]


def test_what_is_gone_or_is_a_link_by_now_does_not_count(checkout):
    put(checkout, "one/ds.json", "two/ds.json", "three/ds.json", "four/x.sh", text="train run.yaml")
    run_git(checkout, "add", "-A")
    (checkout / "one/ds.json").unlink()
    (checkout / "two/ds.json").unlink()
    (checkout / "two/ds.json").symlink_to(checkout / "three/ds.json")
    (checkout / "four/x.sh").unlink()
    (checkout / "four/x.sh").symlink_to(checkout / "deep/er/go.sh")
    repository_index = build_index(checkout)
    assert list_relative(checkout, repository_index.find_by_name("ds.json")) == ["three/ds.json"]
    assert list_relative(checkout, repository_index.find_scripts_naming("run.yaml")) == ["deep/er/go.sh"]
    assert repository_index.find_parent_folders("er") == (f"{checkout}/deep",)


def test_files_of_submodules_count(checkout, tmp_path):
    put(tmp_path / "other", "lib/olmo/go.sh", text="train run.yaml")
    run_git(tmp_path / "other", "init", "-q")
    run_git(tmp_path / "other", "add", "-A")
    run_git(tmp_path / "other", "commit", "-qm", "x")
    run_git(checkout, "submodule", "add", str(tmp_path / "other"), "parts/other")
    assert list_scripts_naming(checkout) == ["deep/er/go.sh", "parts/other/lib/olmo/go.sh"]
    assert list_relative(checkout, build_index(checkout).find_parent_folders("olmo")) == ["parts/other/lib"]


@pytest.mark.parametrize(("path", "crafted"), [("aa/run.sh", b"../run.sh"), ("aaaa/run.sh", b".git/run.sh")])
def test_an_index_that_leads_out_is_none(checkout, path, crafted):
    """Reject the index: an archive may hold one that git did not write, and git refuses such paths."""
    put(checkout, path)
    run_git(checkout, "add", "-A")
    assert os.fsencode(path) in read_index(str(checkout)).paths
    entries = checkout / ".git" / "index"
    entries.write_bytes(entries.read_bytes().replace(os.fsencode(path), crafted))
    assert read_index(str(checkout)) is None


def test_a_merge_lists_each_path_once(checkout):
    run_git(checkout, "commit", "-qm", "1")
    for branch in ("one", "two"):
        run_git(checkout, "checkout", "-q", "-b", branch, "master" if branch == "one" else "HEAD~1")
        put(checkout, "deep/er/go.sh", text=branch)
        run_git(checkout, "commit", "-qam", branch)
    with pytest.raises(subprocess.CalledProcessError):
        run_git(checkout, "merge", "one")
    assert read_index(str(checkout)).paths.count(b"deep/er/go.sh") == 1


def test_folders_may_be_deeper_than_the_stack(checkout):
    path = "d/" * 1500 + "x.sh"
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=checkout, input=b"", capture_output=True, check=True
    )
    run_git(checkout, "update-index", "--add", "--cacheinfo", f"100644,{blob.stdout.decode().strip()},{path}")
    assert len(listing.list_files(str(checkout), None, (), lambda _: False).files) == 4


def test_many_words_are_found_as_few_are(here):
    put(here, "go.sh", text=" ".join(f"name{number}.yaml" for number in range(index.MAX_SEARCHES * 2)))
    repository_index = build_index(here)
    for number in range(index.MAX_SEARCHES * 2):
        assert repository_index.find_scripts_naming(f"name{number}.yaml") == (f"{here}/go.sh",)
        assert repository_index.find_scripts_naming(f"ame{number}.yaml") == ()


def test_facts_of_earlier_runs_count_only_for_files_that_are_as_they_were(here, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(index, "MIN_FILES_TO_CACHE", 1)
    monkeypatch.setattr(filesystem, "TICK", 0)
    cache = str(tmp_path_factory.mktemp("cache"))
    put(here, *(f"a/{number}.sh" for number in range(9)), text="for x in *")
    put(here, "a/without.sh", text="echo")

    def list_loops() -> tuple[list[str], list[str]]:
        read_paths: list[str] = []
        small = Texts.read_small
        monkeypatch.setattr(Texts, "read_small", lambda self, *how: (read_paths.append(how[0]), small(self, *how))[1])
        repository_index = RepositoryIndex(str(here), lambda _: Settings(str(here)), Texts(), cache=lambda: cache)
        names = list_relative(here, tuple(repository_index._find_answer("loops")))
        monkeypatch.setattr(Texts, "read_small", small)
        return sorted(names), list_relative(here, tuple(read_paths))

    all_paths = [f"a/{number}.sh" for number in range(9)]
    assert list_loops() == (all_paths, [*all_paths, "a/without.sh"])
    assert list_loops() == (all_paths, [])
    state = os.stat(here / "a/3.sh")
    (here / "a/3.sh").write_text("echo x in")  # same length as before
    os.utime(here / "a/3.sh", ns=(state.st_atime_ns, state.st_mtime_ns))
    remaining = [path for path in all_paths if path != "a/3.sh"]
    assert list_loops() == (remaining, ["a/3.sh"])
    put(here, "b/new.sh", text="for x in *")
    assert list_loops()[0] == [*remaining, "b/new.sh"]
    assert list_loops() == ([*remaining, "b/new.sh"], [])
    for cache_file in (Path(cache) / "repositories").iterdir():
        cache_file.write_text("no facts\n")
    assert list_loops()[0] == [*remaining, "b/new.sh"]


def test_links_do_not_make_every_run_store_its_facts(here, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(index, "MIN_FILES_TO_CACHE", 1)
    monkeypatch.setattr(filesystem, "TICK", 0)
    monkeypatch.setattr(known_facts, "_MAX_CHANGED", 0)
    cache = tmp_path_factory.mktemp("cache")
    put(here, "a.sh", text="for x in *")
    (here / "b.sh").symlink_to("a.sh")
    run_git(here, "init", "-q")
    run_git(here, "add", "-A")
    entries = []
    for _ in range(2):
        repository_index = RepositoryIndex(str(here), lambda _: Settings(str(here)), Texts(), cache=lambda: str(cache))
        assert repository_index._find_answer("loops") == [str(here / "a.sh")]
        entries.append({path.stat().st_ino for path in (cache / "repositories").iterdir()})
    assert entries[0] == entries[1] != set()


def test_no_fact_counts_behind_a_link_that_leads_out(checkout, tmp_path_factory, monkeypatch):
    """A folder that is moved away and back keeps the times and inodes of its files."""
    monkeypatch.setattr(index, "MIN_FILES_TO_CACHE", 1)
    monkeypatch.setattr(filesystem, "TICK", 0)
    cache, away = str(tmp_path_factory.mktemp("cache")), tmp_path_factory.mktemp("away") / "deep"
    put(checkout, "deep/er/go.sh", text="for x in $1; do pip install torch; done")
    put(checkout, "a/other.sh", text="for x in $1; do pip install torch; done")
    run_git(checkout, "add", "-A")

    def list_answers(question: str) -> list[str]:
        repository_index = RepositoryIndex(str(checkout), lambda _: Settings(""), Texts(), cache=lambda: cache)
        return sorted(list_relative(checkout, tuple(repository_index._find_answer(question))))

    both = ["a/other.sh", "deep/er/go.sh"]
    assert list_answers("loops") == both
    (checkout / "deep").rename(away)
    (checkout / "deep").symlink_to(away)
    assert list_answers("loops") == ["a/other.sh"]
    assert list_answers("installations") == ["a/other.sh"]
    (checkout / "deep").unlink()
    away.rename(checkout / "deep")
    assert list_answers("installations") == both
    assert list_answers("loops") == both


_STEPS = st.sampled_from(["a", "b", "c", "ds.json", "x.yaml"])
_PATHS = st.lists(_STEPS, min_size=1, max_size=4).map("/".join)


@given(paths=st.sets(_PATHS, max_size=8), stated=_PATHS)
def test_an_end_agrees_with_the_file_that_it_finds(tmp_path_factory, paths, stated):
    root = tmp_path_factory.mktemp("repository")
    for path in sorted(paths):
        if not any((root / part).is_file() for part in Path(path).parents) and not (root / path).exists():
            put(root, path)
    matched = build_index(root).find_by_suffix(f"/away/{stated}", str(root / "run.yaml"))
    if matched is not None:
        steps = stated.split("/")
        assert matched.split("/")[-1] == steps[-1]
        assert (
            matched.split("/")[-2:] == f"/away/{stated}".split("/")[-2:]
            or len(build_index(root).find_by_name(steps[-1])) == 1
        )
