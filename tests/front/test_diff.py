"""`cfglint diff`: revisions and files in, text, JSON or Markdown out, in real git repositories."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.front.test_action import run_git, write_files
from tests.support.command import Outcome, run_cfglint
from tests.support.configs import AXOLOTL, BROKEN

RUN = "# cfglint: gpu=RTX4090 gpus-per-node=1 nodes=1\n" + AXOLOTL + "sequence_len: 1024\nbf16: true\n"
ZERO = '{"zero_optimization": {"stage": %d}, "bf16": {"enabled": true}}\n'
PLAIN = '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": %d, "intermediate_size": 1408, \
"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000, \
"max_position_embeddings": 4096}'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    run_git(folder, "init", "--quiet", "--initial-branch", "main")
    return folder


def commit(folder: Path, files: Mapping[str, str]) -> str:
    write_files(folder, files)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--allow-empty", "--message", "change")
    return run_git(folder, "rev-parse", "HEAD")


def diff(folder: Path, *arguments: str) -> Outcome:
    return run_cfglint("diff", *arguments, cwd=folder)


def list_fields(folder: Path, *arguments: str) -> dict[str, dict[str, tuple[object, object]]]:
    """Return the changed fields of each run, by path."""
    report = json.loads(diff(folder, *arguments, "--output-format", "json").out)
    return {
        (run["after"] or run["before"])["path"]: {
            item["field"]: (item["before"], item["after"]) for item in run["fields"]
        }
        for run in report["runs"]
    }


def read_state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_tree_equals_its_commit_with_what_git_ignores(repository: Path) -> None:
    """Count a local model that git ignores on both sides, and copy no installed packages."""
    local = RUN.replace("Qwen/Qwen2.5-0.5B", "models/m") + "deepspeed: ds.json\n"
    files = {"run.yaml": local, "ds.json": ZERO % 2, "train.sh": "axolotl train run.yaml --micro-batch-size 2\n"}
    commit(repository, {**files, ".gitignore": "models\nvenv\n", "requirements.txt": "axolotl==0.18.0\n"})
    write_files(repository, {"models/m/config.json": PLAIN % 512, "venv/pyvenv.cfg": "", "venv/lib/a.py": ""})
    before = read_state(repository)
    outcome = diff(repository)
    assert (outcome.code, outcome.out) == (0, "no change in 1 run\n")
    assert read_state(repository) == before
    assert run_git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("run.yaml", RUN.replace("micro_batch_size: 1", "micro_batch_size: 4"), {"batch.micro": (2, 2)}),
        ("train.sh", "axolotl train run.yaml --micro-batch-size 8\n", {"batch.micro": (2, 8), "batch.global_": (2, 8)}),
        ("ds.json", ZERO % 3, {"parallel.zero_stage": (2, 3)}),
        ("cfglint.toml", '[hardware]\nhost-memory = "1TB"\n', {"host-memory": (None, 10**12)}),
    ],
)
def test_all_files_of_both_sides_count(repository: Path, name: str, text: str, fields: dict[str, object]) -> None:
    run = RUN + "deepspeed: ds.json\n"
    launch = "axolotl train run.yaml --micro-batch-size 2\n"
    commit(repository, {"run.yaml": run, "ds.json": ZERO % 2, "train.sh": launch})
    write_files(repository, {name: text if name != "run.yaml" else text + "deepspeed: ds.json\n"})
    changed = list_fields(repository).get("run.yaml", {})
    assert {field: changed.get(field, (2, 2)) for field in fields} == fields


def test_revisions_new_runs_and_removed_runs(repository: Path) -> None:
    first = commit(repository, {"a.yaml": RUN, "old.yaml": RUN})
    run_git(repository, "switch", "--quiet", "--create", "topic")
    commit(repository, {"a.yaml": RUN.replace("1024", "2048"), "old.yaml": RUN})
    (repository / "old.yaml").unlink()
    write_files(repository, {"new.yaml": RUN})
    by_default = diff(repository)
    assert by_default.out.splitlines()[-1] == "3 runs: 1 changed, 1 new, 1 removed"
    assert "  sequence         1,024 -> 2,048" in by_default.lines
    assert diff(repository, first).out == diff(repository, "main").out == by_default.out
    assert diff(repository, "HEAD").out.splitlines()[-1] == "3 runs: 1 new, 1 removed, 1 unchanged"
    assert diff(repository, "HEAD", "--path", "a.yaml").out == "no change in 1 run\n"
    assert diff(repository, "HEAD", "--path", str(repository / "a.yaml")).out == "no change in 1 run\n"
    (repository / "sub").mkdir()
    assert diff(repository / "sub", "HEAD", "--path", "../old.yaml").out.splitlines()[-1] == "1 run: 1 removed"
    assert [diff(repository, word, "--exit-code").code for word in ("main", "HEAD")] == [1, 1]
    assert diff(repository, "HEAD", "--path", "a.yaml", "--exit-code").code == 0
    markdown = diff(repository, "--output-format", "markdown").out
    assert "| <code>old.yaml</code> (removed) |" in markdown


def test_a_file_that_the_change_repairs_is_new_and_one_that_it_breaks_is_an_error(repository: Path) -> None:
    commit(repository, {"a.yaml": BROKEN})
    write_files(repository, {"a.yaml": RUN})
    assert diff(repository).code == 0
    commit(repository, {})
    write_files(repository, {"a.yaml": BROKEN})
    broken = diff(repository)
    assert broken.code == 2
    assert broken.err.startswith("error: a.yaml:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "no revision nowhere in "),
        (("--path", "nowhere"), "nowhere: neither in "),
        (("--path", ".."), ".. is outside the repository "),
        (("a.yaml",), "a.yaml is no revision; write cfglint diff --path a.yaml"),
        (("a.yaml", "."), ". is a folder; name two files, or a revision and --path ."),
        (("a.yaml", "b.yaml"), "b.yaml: no such file; to compare with a revision, name the file with --path"),
        (("a.yaml", "notes.md"), "notes.md: no training run in this file"),
        (("a", "b", "c"), "diff needs a revision or two files; name the paths to compare with a revision with --path"),
        (("HEAD:a.yaml",), "no revision HEAD:a.yaml in "),
    ],
)
def test_a_mistake_is_one_clear_error(repository: Path, arguments: tuple[str, ...], message: str) -> None:
    commit(repository, {"a.yaml": RUN, "notes.md": "# Notes\n"})
    outcome = diff(repository, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"cfglint: {message}")
    assert outcome.err.count("\n") == 1


def test_without_a_repository_or_a_commit_there_is_nothing_to_compare_with(tmp_path: Path, repository: Path) -> None:
    assert diff(tmp_path).err == "cfglint: not a git repository\n"
    empty = diff(repository)
    assert (empty.code, empty.err.count("\n")) == (2, 1)
    write_files(tmp_path, {"a.yaml": BROKEN, "b.yaml": RUN})
    broken = diff(tmp_path, "a.yaml", "b.yaml")
    assert broken.code == 2
    assert broken.err.startswith("error: a.yaml:")


def test_a_checkout_cannot_start_a_program(repository: Path, tmp_path: Path) -> None:
    """Resolve revisions in the checkout, whose configuration names programs."""
    trace, spy = tmp_path / "trace", tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\ntouch "{trace}"\nexit 1\n')
    spy.chmod(0o755)
    first = commit(repository, {"a.yaml": RUN, ".gitattributes": "* filter=spy diff=spy\n"})
    commit(repository, {"a.yaml": RUN.replace("1024", "2048")})
    for name in ("core.fsmonitor", "core.sshCommand", "filter.spy.clean", "filter.spy.smudge", "diff.spy.textconv"):
        run_git(repository, "config", name, str(spy))
    for name, value in (("url", "ssh://127.0.0.1:1/x"), ("promisor", "true"), ("partialclonefilter", "blob:none")):
        run_git(repository, "config", f"remote.origin.{name}", value)
    os.utime(repository / "a.yaml", (1, 1))
    assert diff(repository, first).lines[-1] == "1 run: 1 changed"
    assert diff(repository, "0" * 39 + "1").code == 2
    assert not trace.exists()
