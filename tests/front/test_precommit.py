"""The hooks under a real pre-commit: run in a temporary git repository, installed from a clone of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, TWICE
from tests.support.corpus import REPOSITORY
from tests.support.upstream import IDENTITY, TAG, clone_repository, find_program, run_git

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """Return a committed copy of the working tree, as a release would contain it."""
    return clone_repository(tmp_path_factory.mktemp("upstream") / "cfglint")


class Repository:
    """A repository that uses the hooks."""

    def __init__(self, root: Path, home: Path) -> None:
        """Initialise a git repository in `root` whose pre-commit environments are in `home`."""
        self.root = root
        self.environment = {
            **os.environ,
            "PRE_COMMIT_HOME": str(home),
            "NO_COLOR": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
            self.environment.pop(name, None)
        run_git(root, "init", "--quiet", "--initial-branch", "main")

    def run_pre_commit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", *arguments],
            cwd=self.root, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the hooks."""
        return self.run_pre_commit("run", "--color", "never", *arguments)

    def stage_files(self, **files: str) -> None:
        """Write and stage `files`; in a keyword, `__` is a slash and `_yaml` or `_json` a suffix."""
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run_git(self.root, "add", "--all")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Return the folder of pre-commit's environments, shared by the tests of this module."""
    return tmp_path_factory.mktemp("pre-commit")


@pytest.fixture
def here(tmp_path, clone, home) -> Repository:
    (tmp_path / "repository").mkdir()
    repository = Repository(tmp_path / "repository", home)
    configure(repository, clone, "      - id: cfglint\n        args: [--isolated, --select, 'SYN,BAT001,XFL001,SEC']\n")
    return repository


def configure(repository: Repository, clone: Path, hooks: str) -> None:
    text = f"repos:\n  - repo: {clone}\n    rev: {TAG}\n    hooks:\n{hooks}"
    (repository.root / ".pre-commit-config.yaml").write_text(text)
    run_git(repository.root, "add", "--all")


FIX = "      - id: cfglint-fix\n        args: [--isolated, --select, 'SYN,BAT001,XFL001,SEC']\n"


@pytest.mark.slow
def test_findings_fail_the_commit(here):
    here.stage_files(config_yaml=TWICE, notes_yaml="title: none of ours\n")
    process = here.run()
    assert process.returncode == 1
    assert "config.yaml:10:1: warning SYN003" in process.stdout
    here.stage_files(config_yaml=AXOLOTL)
    process = here.run()
    assert (process.returncode, "Passed" in process.stdout) == (0, True)


def test_an_installed_hook_stops_a_commit(here):
    here.stage_files(config_yaml=TWICE)
    assert here.run_pre_commit("install").returncode == 0
    command = ["git", *IDENTITY, "commit", "--message", "train"]
    process = subprocess.run(command, cwd=here.root, env=here.environment, capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert "SYN003" in process.stderr + process.stdout
    here.stage_files(config_yaml=AXOLOTL)
    process = subprocess.run(command, cwd=here.root, env=here.environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_all_files(here):
    here.stage_files(**{f"runs__{number}_yaml": TWICE if number % 2 else AXOLOTL for number in range(6)})
    run_git(here.root, "commit", "--quiet", "--message", "all")
    assert here.run().returncode == 0  # nothing is staged
    process = here.run("--all-files")
    assert process.returncode == 1
    assert process.stdout.count("SYN003") == 3


def test_files_that_are_none_of_ours_pass(here):
    others = REPOSITORY / "fixtures" / "others"
    shutil.copytree(others, here.root / "others")
    run_git(here.root, "add", "--all", "--force")
    process = here.run("--all-files")
    assert process.returncode == 0, process.stdout


def test_the_fixing_hook_changes_files_and_fails(here, clone):
    configure(here, clone, FIX)
    here.stage_files(ds_json=DEEPSPEED, config_yaml=AXOLOTL)
    process = here.run("--all-files")
    assert process.returncode == 1
    assert "files were modified by this hook" in process.stdout
    assert "fixed: ds.json: BAT001" in process.stdout
    fixed = (here.root / "ds.json").read_text()
    assert fixed != DEEPSPEED
    run_git(here.root, "add", "--all")
    assert here.run("--all-files").returncode == 0
    assert (here.root / "ds.json").read_text() == fixed


def test_what_cannot_be_fixed_fails_too(here, clone):
    configure(here, clone, FIX)
    here.stage_files(config_yaml=TWICE)
    process = here.run("--all-files")
    assert process.returncode == 1
    assert "SYN003" in process.stdout
    assert (here.root / "config.yaml").read_text() == TWICE


def test_a_companion_that_is_not_part_of_the_commit_is_read(here):
    here.stage_files(configs__ds_json=CONTRADICTED)
    run_git(here.root, "commit", "--quiet", "--message", "companion")
    here.stage_files(config_yaml=AXOLOTL + "deepspeed: configs/ds.json\n")
    process = here.run()
    assert process.returncode == 1
    assert "configs/ds.json:2:5: error XFL001" in process.stdout


def test_the_settings_of_the_repository_count_also_for_named_files(here, clone):
    configure(here, clone, "      - id: cfglint\n")
    here.stage_files(vendored__config_yaml=TWICE, own__config_yaml=TWICE)
    (here.root / "cfglint.toml").write_text('select = ["SYN"]\nextend-exclude = ["vendored"]\n')
    run_git(here.root, "add", "--all")
    process = here.run("--all-files")
    assert process.returncode == 1
    assert "own/config.yaml:10:1" in process.stdout
    assert "vendored" not in process.stdout


def test_an_exclude_of_the_hook(here, clone):
    configure(
        here, clone, "      - id: cfglint\n        exclude: ^vendored/\n        args: [--isolated, --select, SYN]\n"
    )
    here.stage_files(vendored__config_yaml=TWICE)
    process = here.run("--all-files")
    assert process.returncode == 0, process.stdout


def test_files_that_are_split_over_processes(here, clone):
    """Run several processes, without `require_serial`: each reports its own files' findings, without duplicates."""
    hook = "      - id: cfglint\n        require_serial: false\n        args: [--isolated, --select, 'SYN,XFL001']\n"
    configure(here, clone, hook)
    main = AXOLOTL + "deepspeed: ../configs/ds.json\n"
    here.stage_files(configs__ds_json=CONTRADICTED, **{f"runs__{number:02}_yaml": main for number in range(40)})
    (here.root / "runs" / "00.yaml").write_text(main + "micro_batch_size: 1\n")
    run_git(here.root, "add", "--all")
    process = here.run("--all-files")
    assert process.returncode == 1
    assert process.stdout.count("SYN003") == 1
    # Every process reads and reports the companion, whether or not it was passed the file.
    assert process.stdout.count("configs/ds.json:2:5: error XFL001") == process.stdout.count("Found ")


@pytest.mark.slow
def test_try_repo(here, clone):
    here.stage_files(config_yaml=TWICE)
    process = here.run_pre_commit("try-repo", "--color", "never", str(clone), "cfglint", "--all-files", "--verbose")
    assert process.returncode == 1, process.stderr
    assert "SYN003" in process.stdout


def build_prek_environment(here: Repository) -> dict[str, str]:
    return {**here.environment, "PREK_HOME": here.environment["PRE_COMMIT_HOME"] + "/prek"}


@pytest.mark.slow
def test_prek_runs_the_same_hooks(here, clone):
    environment = build_prek_environment(here)
    here.stage_files(config_yaml=TWICE)
    command = [find_program("prek"), "run", "--color", "never", "--all-files"]
    process = subprocess.run(command, cwd=here.root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 1, process.stderr
    assert "config.yaml:10:1: warning SYN003" in process.stdout
    configure(here, clone, FIX)
    here.stage_files(config_yaml=AXOLOTL, ds_json=DEEPSPEED)
    process = subprocess.run(command, cwd=here.root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 1, process.stderr
    assert "fixed: ds.json: BAT001" in process.stdout
    run_git(here.root, "add", "--all")
    process = subprocess.run(command, cwd=here.root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout


def build_old_config(number: int) -> str:
    """Return a configuration with four findings; a hundred such files simulate an existing repository."""
    return AXOLOTL + "".join(f"no_such_key_{number}_{key}: 1\n" for key in range(4))


@pytest.mark.parametrize("runner", ["pre-commit", "prek"])
def test_an_old_repository_starts_with_a_baseline(here, clone, runner):
    def run(*arguments: str) -> tuple[int, str]:
        if runner == "pre-commit":
            process = here.run(*arguments)
        else:
            process = subprocess.run(
                [find_program("prek"), "run", "--color", "never", *arguments],
                cwd=here.root, env=build_prek_environment(here), capture_output=True, text=True, check=False,
            )  # fmt: skip
        return process.returncode, process.stdout + process.stderr

    configure(here, clone, "      - id: cfglint\n")
    (here.root / "cfglint.toml").write_text('select = ["KEY", "SYN"]\n')
    here.stage_files(**{f"runs__{number:03}_yaml": build_old_config(number) for number in range(100)})
    code, output = run("--all-files")
    assert code == 1
    assert "Found 400 warnings in 100 files." in output
    outcome = run_cfglint("--write-baseline", cwd=here.root)
    assert (outcome.code, outcome.err.splitlines()[0]) == (0, "wrote cfglint-baseline.json: 400 accepted findings")
    (here.root / "cfglint.toml").write_text('select = ["KEY", "SYN"]\nbaseline = "cfglint-baseline.json"\n')
    here.stage_files()
    assert run("--all-files")[0] == 0
    run_git(here.root, "commit", "--quiet", "--message", "adopt cfglint")

    # Only the new finding stops the commit; a comment accepts it.
    here.stage_files(runs__000_yaml=build_old_config(0) + "no_such_key_4: 1\n")
    code, output = run()
    assert (code, output.count("KEY001")) == (1, 1)
    assert "Found 1 warning in 1 file." in output
    assert "no_such_key_4" in output
    ignored = run_cfglint("--add-ignore", cwd=here.root)
    assert (ignored.code, "ignored 1 finding in 1 file" in ignored.err) == (0, True)
    here.stage_files()
    assert run()[0] == 0

    # Accepted findings follow a moved file; a removed file leaves stale entries.
    run_git(here.root, "mv", "runs/001.yaml", "moved.yaml")
    assert run()[0] == 0
    run_git(here.root, "rm", "--quiet", "runs/002.yaml")
    after_move = run_cfglint(cwd=here.root)
    assert after_move.code == 0
    report = "4 stale accepted findings in cfglint-baseline.json: runs/002.yaml KEY001; --write-baseline"
    assert report in after_move.out
    assert run_cfglint("--write-baseline", cwd=here.root).code == 0
    here.stage_files()
    assert run("--all-files")[0] == 0
    assert '"moved.yaml"' in (here.root / "cfglint-baseline.json").read_text()
    assert "396 accepted findings not shown" in run_cfglint(cwd=here.root).out


def test_the_manifest_is_found_and_valid(clone):
    process = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml", "pre-commit-hooks.yaml"],
        cwd=clone, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout
