"""Files outside the repository are never read, shown or written, wherever a file of it points."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.cache import Cache
from cfglint_train.models import local
from cfglint_train.releases.pins.search import read_folder_pins
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, DEEPSPEED

SECRET = "only-outside-4711"
OUTSIDE = DEEPSPEED.replace('"train_micro', f'"{SECRET}": 1, "train_micro')


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "ds.json").write_text(OUTSIDE)
    (tmp_path / "outside" / "base.toml").write_text(f'[{SECRET}]\nx = "{SECRET}"\n')
    home = tmp_path / "repository"
    (home / ".git").mkdir(parents=True)
    return home


def check_untouched(repository: Path, *outputs: str) -> None:
    assert (repository.parent / "outside" / "ds.json").read_text() == OUTSIDE
    assert not any(SECRET in output for output in outputs)


@pytest.mark.parametrize("stated", ["{absolute}", "../outside/ds.json", "~/ds.json", "link.json", "folder/ds.json"])
def test_a_companion_outside_is_neither_read_nor_written(repository: Path, stated: str) -> None:
    outside = repository.parent / "outside"
    os.symlink(outside / "ds.json", repository / "link.json")
    os.symlink(outside, repository / "folder")
    stated = stated.format(absolute=outside / "ds.json")
    (repository / "a.yaml").write_text(AXOLOTL + f"deepspeed: {stated}\n")
    environment = {"HOME": str(outside)}
    for words in ((), ("--fix", "--unsafe-fixes"), ("--explain-origins",), ("--output-format", "json"), ("--diff",)):
        outcome = run_cfglint(*words, "a.yaml", cwd=repository, environment=environment)
        check_untouched(repository, outcome.out, outcome.err)


def test_a_companion_inside_is_read(repository: Path) -> None:
    (repository / "configs").mkdir()
    (repository / "ds.json").write_text(OUTSIDE)
    (repository / "configs" / "a.yaml").write_text(AXOLOTL + "deepspeed: ../ds.json\n")
    assert SECRET in run_cfglint("configs/a.yaml", cwd=repository).out


@pytest.mark.parametrize("name", ["link.json", "."])
def test_a_link_that_leads_out_is_no_file(repository: Path, name: str) -> None:
    os.symlink(repository.parent / "outside" / "ds.json", repository / "link.json")
    outcome = run_cfglint(name, "--fix", "--unsafe-fixes", cwd=repository)
    assert outcome.code == 2
    assert "link.json:1:1: error SYN001 a link that points outside the repository" in outcome.out
    check_untouched(repository, outcome.out, outcome.err)


@pytest.mark.parametrize(
    "stated", ["../outside/base.toml", "{absolute}", "/dev/zero", "/etc/passwd", "link.toml", "~/base.toml"]
)
def test_settings_extend_nothing_outside(repository: Path, stated: str) -> None:
    outside = repository.parent / "outside"
    os.symlink(outside / "base.toml", repository / "link.toml")
    (repository / "a.yaml").write_text(AXOLOTL)
    (repository / "cfglint.toml").write_text(f'extend = "{stated.format(absolute=outside / "base.toml")}"\n')
    outcome = run_cfglint(cwd=repository, environment={"HOME": str(outside)})
    assert outcome.code == 2
    assert "cfglint.toml:1:1: extend points outside the repository" in outcome.err
    check_untouched(repository, outcome.out, outcome.err)


def test_settings_are_no_link_that_leads_out(repository: Path) -> None:
    os.symlink(repository.parent / "outside" / "base.toml", repository / "cfglint.toml")
    outcome = run_cfglint(cwd=repository)
    assert outcome.code == 2
    assert "a link that points outside the repository" in outcome.err
    check_untouched(repository, outcome.out, outcome.err)


def test_huge_settings_are_refused(repository: Path) -> None:
    (repository / "pyproject.toml").write_text("[tool.cfglint]\n#" + "x" * 2**20)
    outcome = run_cfglint(cwd=repository)
    assert outcome.code == 2
    assert "pyproject.toml: larger than 1 MiB" in outcome.err


@pytest.mark.parametrize(
    "pattern", ["*" * 30 + "a/" + "*a" * 30, "{a,b}" * 60, "{" * 20_000, "a" * 3000, "[a-z]*" * 50]
)
def test_globs_end_soon(repository: Path, pattern: str) -> None:
    (repository / ("a" * 100 + ".yaml")).write_text(AXOLOTL)
    (repository / "cfglint.toml").write_text(f'exclude = ["{pattern}"]\n')
    assert run_cfglint(cwd=repository).code in (0, 1, 2)


def test_settings_of_the_repository_never_make_a_lint_write(repository: Path) -> None:
    (repository / "ds.json").write_text(DEEPSPEED)
    (repository / "cfglint.toml").write_text("fix = true\nunsafe-fixes = true\n")
    outcome = run_cfglint(cwd=repository)
    assert (repository / "ds.json").read_text() == DEEPSPEED
    assert "only --fix on the command line writes" in outcome.err


@pytest.mark.parametrize("stated", ["{absolute}", "../outside", "~/cache", "link", "a/../../outside"])
def test_settings_keep_no_cache_outside(repository: Path, stated: str) -> None:
    outside = repository.parent / "outside"
    os.symlink(outside, repository / "link")
    (repository / "a.yaml").write_text(AXOLOTL)
    (repository / "cfglint.toml").write_text(f'cache-dir = "{stated.format(absolute=outside)}"\n')
    outcome = run_cfglint(cwd=repository, environment={"HOME": str(outside)})
    assert outcome.code == 2
    assert "cfglint.toml:1:1: cache-dir points outside the repository" in outcome.err


def test_a_cache_in_the_repository_leads_nowhere_else(repository: Path) -> None:
    outside = repository.parent / "outside"
    (repository / "cache").mkdir()
    os.symlink(outside, repository / "cache" / "vocabulary")
    Cache("vocabulary", str(repository / "cache")).put("0" * 64, "text")
    assert Cache("vocabulary", str(repository / "cache")).get("0" * 64) is None
    inside, digest = Cache("kind", str(repository / "cache")), "1" * 64
    (repository / "cache" / "kind").mkdir()
    os.symlink(outside / "ds.json", repository / "cache" / "kind" / f"{digest}.{os.getpid()}")
    inside.put(digest, "text")
    assert sorted(path.name for path in outside.iterdir()) == ["base.toml", "ds.json"]
    check_untouched(repository)


def test_a_cache_lets_go_of_its_own_files_only(tmp_path: Path) -> None:
    (tmp_path / "kind").mkdir()
    for number in range(100):
        (tmp_path / "kind" / f"{number}.yaml").write_text("")
    for number in range(70):
        Cache("kind", str(tmp_path)).put(f"{number:064}", "")
    assert len(list((tmp_path / "kind").glob("*.yaml"))) == 100
    assert len(list((tmp_path / "kind").iterdir())) == 164


@pytest.mark.parametrize("stated", ["{absolute}", "../outside/m", "~/m", "link", "folder/m", "inner", "adapter"])
def test_a_model_outside_is_not_read(repository: Path, stated: str) -> None:
    outside = repository.parent / "outside"
    (outside / "m").mkdir()
    (outside / "m" / "config.json").write_text(f'{{"{SECRET}": ')
    os.symlink(outside / "m", repository / "link")
    os.symlink(outside, repository / "folder")
    (repository / "inner").mkdir()
    os.symlink(outside / "m" / "config.json", repository / "inner" / "config.json")
    (repository / "adapter").mkdir()  # only one of its two files is inside
    os.symlink(outside / "m" / "config.json", repository / "adapter" / "config.json")
    (repository / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen2.5-0.5B"}')
    stated = stated.format(absolute=outside / "m")
    (repository / "a.yaml").write_text(AXOLOTL.replace("base_model: Qwen/Qwen2.5-0.5B", f"base_model: {stated}"))
    environment = {"HOME": str(outside)}
    for words in (("a.yaml",), ("estimate", "a.yaml")):
        outcome = run_cfglint(*words, cwd=repository, environment=environment)
        check_untouched(repository, outcome.out, outcome.err)
        assert "m/config.json" not in outcome.out + outcome.err  # neither reported as broken nor as present
        assert "Expecting" not in outcome.out + outcome.err  # under any name that leads to it
    with_folder = run_cfglint("a.yaml", "--model-folder", str(outside), cwd=repository, environment=environment)
    assert "config.json: Expecting value" in with_folder.out


@pytest.mark.parametrize("revision", ["../../../m", "{absolute}", "a/../../../../m"])
def test_a_revision_leads_nowhere_else(repository: Path, revision: str) -> None:
    hub, model = repository.parent / "hub", repository.parent / "m"
    (hub / "models--us--m" / "snapshots" / "a").mkdir(parents=True)
    (hub / "models--us--m" / "refs").mkdir()
    model.mkdir()
    (model / "config.json").write_text("{")
    assert (
        local.find_cached_model("us/m", revision.format(absolute=model), environment={"HF_HUB_CACHE": str(hub)}) is None
    )


@pytest.mark.parametrize("flag", ["-r", "-c"])
@pytest.mark.parametrize("stated", ["{absolute}", "../outside/pins.txt", "link.txt", "folder/pins.txt"])
def test_requirements_include_nothing_outside(repository: Path, flag: str, stated: str) -> None:
    outside = repository.parent / "outside"
    (outside / "pins.txt").write_text("axolotl==0.6.0\n")
    os.symlink(outside / "pins.txt", repository / "link.txt")
    os.symlink(outside, repository / "folder")
    (repository / "requirements.txt").write_text(f"{flag} {stated.format(absolute=outside / 'pins.txt')}\n")
    assert read_folder_pins(str(repository), ["requirements.txt"]) == {}
    (repository / "requirements.txt").write_text("axolotl==0.6.0\n")
    assert "axolotl" in read_folder_pins(str(repository), ["requirements.txt"])


def test_a_folder_that_is_a_link_out_is_not_read(repository: Path) -> None:
    outside = repository.parent / "outside"
    (outside / "pins.txt").write_text("axolotl==0.6.0\n")
    for name in ("requirements", "folder"):
        os.symlink(outside, repository / name)
    assert read_folder_pins(str(repository), ["requirements"]) == {}
    with pytest.raises(OSError, match="a link that points outside the repository"):
        regular_files.read(str(repository / "folder" / "ds.json"))


def test_files_that_include_each_other_for_ever_end(repository: Path) -> None:
    for number in range(3000):
        (repository / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n-r a/../r{number}.txt\n")
    (repository / "requirements.txt").write_text("-r r0.txt\naxolotl==0.6.0\n")
    assert "axolotl" in read_folder_pins(str(repository), ["requirements.txt"])
