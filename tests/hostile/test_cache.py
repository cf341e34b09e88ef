"""A cache that comes with a repository is not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfglint_schemas
from cfglint_train.forks import vendored
from cfglint_train.foundation import git_index, regular_files
from tests.forks.test_forks import PARSER, format_script, list_codes, write_repository
from tests.front.test_action import lint, run_git, temporary, write_files  # noqa: F401 (fixtures)

SETTINGS = 'cache-dir = "own"\n'


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository whose cache claims that its copy of the framework accepts a flag."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CFGLINT_CACHE_DIR", raising=False)
    folder = tmp_path / "x"
    folder.mkdir()
    run_git(folder, "init", "--quiet")
    write_files(
        folder, {"openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--mine"), "cfglint.toml": SETTINGS}
    )
    run_git(folder, "add", "--all")
    assert is_reported(folder)
    [entry] = (folder / "own" / "vocabulary").iterdir()
    entry.write_text(entry.read_text().replace("--ours", "--mine"))
    assert not is_reported(folder), "the change of the entry has no effect: the test proves nothing"
    return folder


def is_reported(folder: Path) -> bool:
    """Return whether the flag that the copy does not accept is reported."""
    return "KEY001" in [code for code, _, _ in list_codes(folder)]


def test_files_that_git_tracks_are_no_cache(poisoned: Path) -> None:
    run_git(poisoned, "add", "--force", "--all")
    before = sorted(poisoned.rglob("*"))
    assert is_reported(poisoned)
    assert sorted(poisoned.rglob("*")) == before


def test_nor_are_they_by_another_name(poisoned: Path) -> None:
    """Use a link, which acts like a name in another case on case-insensitive systems."""
    run_git(poisoned, "add", "--force", "--all")
    (poisoned / "linked").symlink_to("own")
    (poisoned / "cfglint.toml").write_text('cache-dir = "linked"\n')
    assert is_reported(poisoned)


@pytest.mark.parametrize("mark", [None, ".hg", ".git"], ids=str)
def test_nor_is_what_came_with_an_archive(poisoned: Path, mark: str | None) -> None:
    (poisoned / ".git").rename(poisoned.parent / "away")
    if mark == ".git":
        (poisoned / ".git").write_text("gitdir: nowhere/worktrees/x\n")
    elif mark is not None:
        (poisoned / mark).mkdir()
    assert is_reported(poisoned)


def test_the_action_has_no_cache_in_the_checkout(poisoned: Path, lint, tmp_path: Path) -> None:  # noqa: F811
    run_git(poisoned, "commit", "--quiet", "--message", "x")
    around = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    for extra in ("", "--cache-dir\nown", f"--cache-dir\n{tmp_path}/x/own"):
        assert "KEY001" in lint(poisoned, around, extra_args=extra, working_directory=".").output
    assert len(list((poisoned / "own" / "vocabulary").iterdir())) == 1
    assert len(list((tmp_path / "home").rglob("vocabulary/*"))) == 1


def test_an_entry_is_for_one_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinguish builds: a release may be built twice from different sources."""
    monkeypatch.setenv("CFGLINT_CACHE_DIR", str(tmp_path / "cache"))
    folder = write_repository(tmp_path / "x", **{"openrlhf/cli/train_sft.py": PARSER, "a.sh": format_script("--ours")})
    other = tmp_path / "build"
    write_files(other, {"readers/new.py": "A = 1\n"})
    names = []
    for text in (None, "A = 1\n", "A = 2\n"):
        vendored._compute_build_digest.cache_clear()
        with monkeypatch.context() as patched:
            if text is not None:
                write_files(other, {"readers/new.py": text})
                patched.setattr(cfglint_schemas, "__path__", [*cfglint_schemas.__path__, str(other)])
            assert list_codes(folder) == []
        names.append(len(list((tmp_path / "cache").rglob("vocabulary/*"))))
    vendored._compute_build_digest.cache_clear()
    assert names == [1, 2, 3]


# --- the index -------------------------------------------------------------------------------------------------------


def create_checkout(folder: Path) -> Path:
    folder.mkdir()
    run_git(folder, "init", "--quiet")
    write_files(folder, {"a.yaml": "", "own/vocabulary/b": ""})
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message", "x")
    return folder


def test_a_file_that_leads_to_the_data_of_another_checkout_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = create_checkout(tmp_path / "outside")
    run_git(outside, "worktree", "add", "--detach", str(tmp_path / "tree"), "HEAD")
    (folder := tmp_path / "x").mkdir()
    opened: list[str] = []
    real = regular_files.read_anywhere
    monkeypatch.setattr(regular_files, "read_anywhere", lambda path: opened.append(path) or real(path))
    for address in ("../outside/.git", str(outside / ".git"), f"{outside}/.git/worktrees/tree"):
        (folder / ".git").write_text(f"gitdir: {address}\n")
        assert git_index.read_index(str(folder)) is None
    assert {Path(path).name for path in opened} == {".git", "gitdir"}


def test_worktrees_and_submodules_have_an_index(tmp_path: Path) -> None:
    main, inner = create_checkout(tmp_path / "main"), create_checkout(tmp_path / "inner")
    run_git(main, "worktree", "add", "--detach", str(tmp_path / "tree"), "HEAD")
    for around in (main, tmp_path / "tree"):
        run_git(around, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "deep/module")
        for folder in (around, around / "deep" / "module"):
            index = git_index.read_index(str(folder))
            assert index is not None
            assert index.has_path("a.yaml")
            assert index.has_files_in(str(folder / "own" / "vocabulary"), str(folder))
            assert not index.has_files_in(str(folder / "own"), str(folder))


def test_an_index_of_which_a_part_is_elsewhere_says_nothing(tmp_path: Path) -> None:
    folder = create_checkout(tmp_path / "x")
    run_git(folder, "update-index", "--split-index")
    assert git_index.read_index(str(folder)) is None
