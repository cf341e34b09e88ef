"""`changed-files-only`: report everything that a change breaks, in real git repositories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cfglint_train import request
from cfglint_train.foundation.budget import Budget, read_processor_time
from cfglint_train.front import action, base_tree, git_changes, programs
from tests.front.test_action import run_git, write_files
from tests.support import runner
from tests.support.configs import AXOLOTL, CONTRADICTED, TWICE

Files = Mapping[str, str]

RUN = "# cfglint: gpu=RTX4090 gpus-per-node=1 nodes=1\n" + AXOLOTL + "sequence_len: 1024\nbf16: true\n"
LOCAL = RUN.replace("Qwen/Qwen2.5-0.5B", "models/m")
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 8, "num_key_value_heads": 8,
    "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip
SMALL_MODEL = json.dumps({**LLAMA, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4})
LARGE_MODEL = json.dumps({**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80})
RING = AXOLOTL + "attn_implementation: flash_attention_2\ncontext_parallel_size: 2\n"
ACCELERATE = """\
distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: 1
  zero_stage: 2
num_processes: 1
"""
HEAD = "#!/bin/bash\n"
LARGE_BATCH = "axolotl train run.yaml --micro-batch-size 4096\n"
SMALL_BATCH = "axolotl train run.yaml --micro-batch-size 1\n"
OPENRLHF = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset d\n"


def build_adapter_config(base: str) -> str:
    return json.dumps({"peft_type": "LORA", "base_model_name_or_path": base, "r": 8})


def build_lock_file(release: str) -> str:
    return f'version = 1\n\n[[package]]\nname = "axolotl"\nversion = "{release}"\n'


def build_conda_file(release: str) -> str:
    return f"dependencies:\n  - python\n  - pip:\n      - axolotl=={release}\n"


def build_dockerfile(release: str) -> str:
    return f"FROM python:3.11\nRUN pip install axolotl=={release}\n"


class Case(NamedTuple):
    """A change to a repository: files before, files changed, and files removed."""

    base: Files
    change: Files
    removed: tuple[str, ...] = ()


CASES = {
    "model": Case({"run.yaml": LOCAL, "models/m/config.json": SMALL_MODEL}, {"models/m/config.json": LARGE_MODEL}),
    "adapter": Case(
        {"run.yaml": LOCAL, "models/m/adapter_config.json": build_adapter_config("Qwen/Qwen2.5-0.5B")},
        {"models/m/adapter_config.json": build_adapter_config("meta-llama/Llama-2-70b-hf")},
    ),
    "model, added": Case(
        {"run.yaml": LOCAL, "models/m/adapter_config.json": build_adapter_config("Qwen/Qwen2.5-0.5B")},
        {"models/m/config.json": LARGE_MODEL},
    ),
    "model, removed": Case(
        {
            "run.yaml": LOCAL,
            "models/m/config.json": SMALL_MODEL,
            "models/m/adapter_config.json": build_adapter_config("meta-llama/Llama-2-70b-hf"),
        },
        {},
        ("models/m/config.json",),
    ),
    "Dockerfile": Case(
        {"run.yaml": RING, "Dockerfile": build_dockerfile("0.18.0")}, {"Dockerfile": build_dockerfile("0.9.0")}
    ),
    "Dockerfile, removed": Case(
        {"run.yaml": AXOLOTL + "sequence_parallel_degree: 2\n", "Dockerfile": build_dockerfile("0.9.0")},
        {},
        ("Dockerfile",),
    ),
    "requirements": Case(
        {"run.yaml": RING, "requirements-train.txt": "axolotl==0.18.0\n"},
        {"requirements-train.txt": "axolotl==0.9.0\n"},
    ),
    "conda": Case(
        {"run.yaml": RING, "environment-train.yml": build_conda_file("0.18.0")},
        {"environment-train.yml": build_conda_file("0.9.0")},
    ),
    "lock": Case({"run.yaml": RING, "uv.lock": build_lock_file("0.18.0")}, {"uv.lock": build_lock_file("0.9.0")}),
    "companion": Case(
        {"run.yaml": RUN + "deepspeed: ds.json\n", "ds.json": CONTRADICTED.replace("8", "1")},
        {"ds.json": CONTRADICTED},
    ),
    "companion, removed": Case(
        {"run.yaml": RUN + "deepspeed: ds.json\n", "ds.json": CONTRADICTED.replace("8", "1")}, {}, ("ds.json",)
    ),
    "accelerate": Case(
        {
            "run.yaml": RUN,
            "train.sh": f"{HEAD}accelerate launch --config_file acc.yaml -m axolotl.cli.train run.yaml\n",
            "acc.yaml": ACCELERATE,
        },
        {"acc.yaml": ACCELERATE.replace("steps: 1", "steps: 8")},
    ),
    "launch script": Case({"run.yaml": RUN, "train.sh": HEAD + SMALL_BATCH}, {"train.sh": HEAD + LARGE_BATCH}),
    "launch script, added": Case(
        {"run.yaml": RUN}, {"jobs/train.sh": HEAD + LARGE_BATCH.replace("run.yaml", "../run.yaml")}
    ),
    "launch script, removed": Case(
        {"run.yaml": RUN.replace("micro_batch_size: 1", "micro_batch_size: 4096"), "train.sh": HEAD + SMALL_BATCH},
        {},
        ("train.sh",),
    ),
    "sourced": Case(
        {
            "run.yaml": RUN,
            "train.sh": HEAD + "source env.sh\naxolotl train run.yaml --micro-batch-size $MBS\n",
            "env.sh": "MBS=1\n",
        },
        {"env.sh": "MBS=4096\n"},
    ),
    "Makefile": Case({"Makefile": "train:\n\techo\n"}, {"Makefile": f"train:\n\t{OPENRLHF}"}),
    "Makefile, added": Case({"run.yaml": RUN}, {"Makefile": f"train:\n\t{OPENRLHF}"}),
    "settings": Case({"run.yaml": RUN.replace(" gpu=RTX4090", "")}, {"cfglint.toml": 'hardware = {gpu = "1GB"}\n'}),
    "a file that hides": Case(
        {
            "run.yaml": RUN.replace("micro_batch_size: 1", "micro_batch_size: 4096"),
            "jobs/train.sh": HEAD + SMALL_BATCH.replace("run.yaml", "../run.yaml"),
        },
        {"cfglint.toml": 'extend-exclude = ["jobs"]\n'},
    ),
}


@pytest.fixture
def lint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., set[str]]:
    """Run the action in this process for a pull request, and return the findings that it shows."""
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CFGLINT_"))]:
        monkeypatch.delenv(name)
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def run(checkout: Path, base: str, only_changed: bool = True, **inputs: str) -> set[str]:
        event = tmp_path / "event.json"
        event.write_text(json.dumps({"pull_request": {"base": {"sha": base}}}))
        environment = {
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_WORKSPACE": str(checkout),
            "RUNNER_TEMP": str(temporary),
            "CFGLINT_CHANGED_FILES_ONLY": str(only_changed).lower(),
            **inputs,
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(checkout)
        capsys.readouterr()
        code = action.main()
        findings = {
            f"{annotation.file}: {annotation.title}: {annotation.message}"
            for annotation in runner.list_annotations(capsys.readouterr().out)
            if annotation.file is not None
        }
        assert bool(findings) or code == 0
        assert not list(temporary.iterdir())
        return findings

    return run


def commit_change(folder: Path, base: Files, change: Files, removed: tuple[str, ...]) -> str:
    """Create a repository with a change in `folder`, and return the commit before it."""
    folder.mkdir(exist_ok=True)
    run_git(folder, "init", "--quiet")
    write_files(folder, base)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message", "base")
    before = run_git(folder, "rev-parse", "HEAD")
    write_files(folder, change)
    for name in removed:
        (folder / name).unlink()
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--message", "change")
    return before


@pytest.mark.parametrize("name", CASES)
def test_what_a_change_breaks_is_reported_whichever_file_it_changes(name: str, tmp_path: Path, lint) -> None:
    case = CASES[name]
    folder = tmp_path / "repository"
    before = commit_change(folder, case.base, case.change, case.removed)
    after = lint(folder, before, only_changed=False)
    run_git(folder, "switch", "--quiet", "--detach", before)
    earlier = lint(folder, before, only_changed=False)
    run_git(folder, "switch", "--quiet", "-")
    broken = after - earlier
    assert broken
    assert broken <= lint(folder, before)


UNRELATED = {
    "a text": ({"README.md": "# Changed\n"}, ()),
    "a plot": ({"plot.py": "import matplotlib\n\nprint(2)\n"}, ()),
    "a plot, removed": ({}, ("plot.py",)),
    "a script": ({"clean.sh": "#!/bin/bash\nrm -rf out\n"}, ()),
    "another configuration": ({"new.yaml": AXOLOTL}, ()),
    "a workflow": ({".github/workflows/lint.yml": "on: push\njobs:\n  a:\n    steps:\n      - run: make lint\n"}, ()),
    "a module": ({"src/thing.py": "def thing(config):\n    return config.get('x')\n"}, ()),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_a_change_that_nothing_rests_on_reports_nothing(name: str, tmp_path: Path, lint) -> None:
    change, removed = UNRELATED[name]
    base = {"old.yaml": TWICE, "README.md": "# It\n", "plot.py": "import matplotlib\n\nprint(1)\n"}
    before = commit_change(tmp_path / "repository", base, change, removed)
    assert lint(tmp_path / "repository", before, only_changed=False)
    assert lint(tmp_path / "repository", before) == set()


def test_the_checkout_stays_as_it_is(tmp_path: Path, lint) -> None:
    outside = tmp_path / "outside"
    write_files(outside, {"config.json": SMALL_MODEL})
    folder = tmp_path / "repository"
    base = {
        "run.yaml": LOCAL,
        "models/m/config.json": SMALL_MODEL,
        "gone.sh": HEAD + SMALL_BATCH,
        ".gitignore": "large\n",
    }
    before = commit_change(
        folder, base, {"models/m/config.json": LARGE_MODEL, "new.sh": HEAD + SMALL_BATCH}, ("gone.sh",)
    )
    (folder / "large").write_text("not tracked")
    (folder / "out").symlink_to(outside)
    (folder / "nowhere").symlink_to("missing")
    os.mkfifo(folder / "pipe")

    def read_state() -> dict[str, tuple[int, int, bytes]]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and "event" not in path.name]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_nlink, path.read_bytes()) for path in files}

    earlier = read_state()
    assert lint(folder, before)
    assert read_state() == earlier


def test_where_the_commit_before_cannot_be_restored_everything_is_reported(tmp_path: Path, lint, monkeypatch) -> None:
    monkeypatch.setattr(base_tree, "_MAX_FILES", 1)
    folder = tmp_path / "repository"
    before = commit_change(folder, {"old.yaml": TWICE}, {"a.md": "", "b.md": ""}, ())
    assert lint(folder, before) == lint(folder, before, only_changed=False) != set()


def test_a_link_that_changes_concerns_everything(tmp_path: Path, lint) -> None:
    folder = tmp_path / "repository"
    write_files(folder, {"a.json": CONTRADICTED.replace("8", "1"), "b.json": CONTRADICTED})
    (folder / "ds.json").symlink_to("a.json")
    before = commit_change(folder, {"run.yaml": RUN + "deepspeed: ds.json\n", "old.yaml": TWICE}, {}, ("a.json",))
    (folder / "ds.json").unlink()
    (folder / "ds.json").symlink_to("b.json")
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "--quiet", "--amend", "--message", "change")
    assert {name.split(":")[0] for name in lint(folder, before)} >= {"old.yaml"}


def store_object(folder: Path, kind: str, content: bytes) -> str:
    """Store an object that git itself would not create, and return its name."""
    command = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.run(command, cwd=folder, input=content, capture_output=True, check=True).stdout.decode().strip()


def store_tree(folder: Path, name: str) -> str:
    """Return a tree with `old.yaml` and a file `name`, in which each `>` begins a nested tree."""
    outer, *inner = name.split(">")
    below = store_object(folder, "blob", b"evil") if not inner else store_tree(folder, ">".join(inner))
    entries = [("40000" if inner else "100644", outer, below)]
    entries.append(("100644", "old.yaml", store_object(folder, "blob", TWICE.encode())))
    parts = (f"{mode} {entry_name}\0".encode() + bytes.fromhex(identity) for mode, entry_name, identity in entries)
    return store_object(folder, "tree", b"".join(parts))


@pytest.mark.parametrize(
    "name", ["..>..>evil", "../../evil", "a>../../../evil", "a//evil", "./evil", "/evil", ".git>evil", "a>.GIT>evil"]
)
def test_no_name_of_the_commit_before_leads_out_of_its_folder(name: str, tmp_path: Path, lint) -> None:
    folder = tmp_path / "repository"
    commit_change(folder, {"old.yaml": TWICE}, {"README.md": ""}, ())
    before = run_git(folder, "commit-tree", "-m", "base", store_tree(folder, name))
    everything = lint(folder, before, only_changed=False)
    assert {finding.split(":")[0] for finding in everything} == {"old.yaml"}
    assert lint(folder, before) == everything
    assert not list(tmp_path.rglob("evil"))


def test_a_name_of_windows_does_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("..\\evil", "C:evil", ".. /evil", ".git./config", "a/GIT~1/config")
    for name in names:
        assert git_changes.check_name(name) == name
    with monkeypatch.context() as patch:
        patch.setattr(git_changes.os, "name", "nt")
        for name in names:
            with pytest.raises(git_changes.UnknownChange):
                git_changes.check_name(name)
        assert git_changes.check_name("a/.gitignore") == "a/.gitignore"


def test_one_limit_of_time_holds_for_git_and_both_lints(tmp_path: Path, lint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate time: a git command takes 100 seconds, and each look at the clock takes a lint 1 ms."""
    commands = [0]

    def run(*arguments: Any, **named: Any) -> Any:
        commands[0] += 1
        return original(*arguments, **named)

    original = programs.run
    monkeypatch.setattr(programs, "run", run)
    monkeypatch.setattr(action, "read_processor_time", lambda: 100 * commands[0])
    looks = map((0.001).__mul__, count()).__next__
    monkeypatch.setattr(request, "_build_budget", lambda options, _: Budget(options.max_cpu_seconds or inf, looks))
    folder = tmp_path / "repository"
    before = commit_change(folder, {"old.yaml": TWICE, "README.md": ""}, {"README.md": "new"}, ())

    def lint_within(seconds: float | None, only_changed: bool = True) -> tuple[set[str], int]:
        commands[0] = 0
        limit = {"CFGLINT_MAX_CPU_SECONDS": "" if seconds is None else str(seconds)}
        return lint(folder, before, only_changed, **limit), commands[0]

    everything, first = lint_within(None, only_changed=False)
    assert everything
    nothing, both = lint_within(None)
    assert nothing == set()
    assert both >= first + 4
    assert lint_within(100 * both + 60)[0] == set()
    assert lint_within(100 * both + 1e-5) == (everything, both)  # no time to lint the commit before
    assert lint_within(100 * both - 50)[0] == everything  # none to restore it
    findings = lint_within(100 * first)[0]  # no time for anything
    assert len(findings) == 1
    assert "not fully checked" in findings.pop()


def test_the_time_of_other_programs_counts() -> None:
    before = read_processor_time()
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-I", "-c", spin], check=True)
    # The kernel books a child's time in ticks, so only the order of magnitude is exact.
    assert read_processor_time() - before >= 0.1
