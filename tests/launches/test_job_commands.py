"""Commands in YAML jobs and justfiles that start a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.documents import job_commands, justfiles
from cfglint_train.runs.assumptions import find_assumptions
from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, fix, lint, list_runs, read_contents

LARGE = AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "NousResearch/Meta-Llama-3-70B") + "bf16: true\nadapter: lora\nlora_r: 8\n"
COMMAND = "accelerate launch --num_processes {} -m axolotl.cli.train configs/a.yaml --deepspeed zero3.json"
ZERO3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}'
SKY = f"""\
resources:
  accelerators: A100-80GB:4
num_nodes: 1
setup: pip install axolotl
run: |
  {COMMAND.format("$SKYPILOT_NUM_GPUS_PER_NODE")}
"""
DSTACK = f"type: task\nenv:\n  - N=4\n  - KEY\ncommands:\n  - pip install axolotl\n  - {COMMAND.format('$N')}\n"
COMPOSE = f"services:\n  train:\n    environment:\n      N: 4\n    command: >-\n      {COMMAND.format('$N')}\n"
WORDS = ", ".join(f'"{word}"' for word in COMMAND.format("$(N)").split())
KUBERNETES = f"""\
kind: ConfigMap
---
kind: Job
spec:
  containers:
    - env:
        - name: N
          value: "4"
      command: [{WORDS}]
"""
LINES = COMMAND.format("4").split()
ARGUMENTS = f"""\
kind: Job
spec:
  containers:
    - command: [{", ".join(LINES[:4])}]
      args:
""" + "".join(f"        - {word}\n" for word in LINES[4:])
SHELL = f'kind: Job\nspec:\n  - command: ["bash", "-c"]\n    args:\n      - |\n        {COMMAND.format("4")}\n'
JUST = f"n := '4'\n\ntrain config=\"x\":\n    @{COMMAND.format('{{n}}')}\n"
JOBS = {
    "SkyPilot": ("jobs/sky.yaml", SKY, 6),
    "dstack": (".dstack.yml", DSTACK, 7),
    "compose": ("docker-compose.yml", COMPOSE, 6),
    "Kubernetes": ("k8s/job.yaml", KUBERNETES, 9),
    "Kubernetes, arguments": ("k8s/job.yaml", ARGUMENTS, 4),
    "Kubernetes, a shell": ("k8s/job.yaml", SHELL, 6),
    "just": ("justfile", JUST, 4),
}


def write_repository(folder: Path, **files: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    for name, text in {"configs/a.yaml": LARGE, "zero3.json": ZERO3, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", JOBS)
def test_what_a_job_starts_is_a_launch(tmp_path: Path, name: str) -> None:
    path, text, line = JOBS[name]
    [run] = [
        item for item in list_runs(write_repository(tmp_path / "x", **{path: text})) if item.main.framework == "axolotl"
    ]
    assert run.plan.launch.gpus_per_node == 4
    origin = run.get_origin("launch.gpus_per_node")
    assert origin is not None
    assert f"{Path(path).name}:{line}" in origin.assumption
    assert run.plan.parallel.zero_stage == 3


def test_nothing_is_too_large_that_a_job_shards(tmp_path: Path) -> None:
    card = build_options(["MEM"], gpu="A100-80GB", gpus_per_node="4", nodes="1")
    assert "warning" in {finding.severity for finding in lint(write_repository(tmp_path / "alone"), card).findings}
    for name, (path, text, _) in JOBS.items():
        findings = lint(write_repository(tmp_path / name.replace(" ", ""), **{path: text}), card).findings
        assert {finding.severity for finding in findings} <= {"info"}, name


@pytest.mark.parametrize("path", ["README.md", "justfile"])
def test_of_an_example_what_shards_the_model_counts_and_no_other_setting(tmp_path: Path, path: str) -> None:
    command = COMMAND.format(4) + " --micro_batch_size 4"
    text = f"```sh\n{command}\n```\n" if path == "README.md" else f"train:\n  {command}\n"
    [run] = [
        item for item in list_runs(write_repository(tmp_path / "x", **{path: text})) if item.main.framework == "axolotl"
    ]
    assert (run.plan.parallel.zero_stage, run.plan.batch.micro) == (3, 1)
    assert f"from {path}:2; another launch" in " ".join(
        item.note for item in find_assumptions(run, {"parallel.zero_stage"})
    )


def test_a_workflow_is_no_launch_of_a_training(tmp_path: Path) -> None:
    workflow = f"on: push\njobs:\n  test:\n    steps:\n      - run: {COMMAND.format(2)}\n"
    [run] = [
        item
        for item in list_runs(write_repository(tmp_path / "x", **{".github/workflows/test.yml": workflow}))
        if item.main.framework == "axolotl"
    ]
    assert run.plan.parallel.zero_stage != 3


def test_jobs_that_differ_leave_a_setting_unknown(tmp_path: Path) -> None:
    jobs = {f"{size}/sky.yaml": SKY.replace("zero3.json", f"zero3.json --micro_batch_size {size}") for size in (2, 4)}
    folder = write_repository(tmp_path / "x", **jobs)
    [run] = [item for item in list_runs(folder) if item.main.framework == "axolotl"]
    assert run.plan.batch.micro is None


def test_a_fix_leaves_jobs_alone(tmp_path: Path) -> None:
    text = SKY.replace("zero3.json", "zero3.json --micro_batch_size 64 --gradient_checkpointing false")
    folder = write_repository(tmp_path / "x", **{"sky.yaml": text})
    assert any(finding.code == "MEM001" for finding in lint(folder).findings)
    fix(folder, unsafe=True)
    assert read_contents(folder)["sky.yaml"].decode() == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: a b", ["     a b"]),
        ("run: |\n  a\n  b\n", ["\na\nb"]),
        ("commands: [a, b]", ["           a ; b"]),
        ("command: [a, -c, 'b ${{ d }} c']", [" " * 17 + "b $9 c"]),
        ("command: [a, 'b c']", ["          a  'b c'"]),
        ("command: [a, $(D), '${{e}}']", ['          a  "${D}" "$9"']),
        ("envs: {A: 1, B: , C: x y}\nrun: a", ["export A=1; export C='x y'\n     a"]),
        ("- env: {A: 1}\n- env: {A: 2}\n- run: a", ["\n\n       a"]),
        ("run: a\n---\nrun: b", ["     a", "\n\n     b"]),
        ("run: a\n--- # next\nx: {{ y }}\n---\nrun: b", ["     a", "\n\n\n\n     b"]),
        ("resources: {gpu: 1}\nname: train", []),
        ("run: [", []),
        ("- 1", []),
        ("", []),
    ],
)  # fmt: skip
def test_the_commands_of_a_file(text: str, expected: list[str]) -> None:
    assert [script.rstrip() for script in job_commands.extract_scripts(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a := 'x'\nrun:\n  b {{a}} {{ a }}", 'a="x"\n\n  b ${a} ${a}'),
        ('a := "x" # y\nrun c:\n\t@-b {{c}} {{a + c}}', 'a="x"\n\n   b $9 $9'),
        ("a := `x`\nrun:\n  b {{a}}", "\n\n  b ${a}"),
        ("a := 'x'\nrun a:\n  b {{a}}", "\n\n  b $9"),
        ("a := 'x'\na := 'y'\nrun:\n  b {{a}}", "\n\n\n  b $9"),
    ],
)
def test_the_commands_of_a_justfile(text: str, expected: str) -> None:
    assert justfiles.extract_commands(text) == expected
