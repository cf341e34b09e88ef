"""Launch scripts that start configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from cfglint_rules.vocabulary import launched
from cfglint_train import api
from cfglint_train.forks import hollow_copies
from cfglint_train.foundation import filesystem
from cfglint_train.launches import launches
from cfglint_train.runs.assumptions import find_assumptions
from cfglint_train.runs.run import Run
from tests.support.configs import AXOLOTL
from tests.support.linting import change_directory, list_runs

COUNT = 6


def test_a_script_is_asked_of_a_configuration_only_where_it_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the work below cubic: each configuration, each script, each of its commands."""
    (tmp_path / ".git").mkdir()
    for number in range(COUNT):
        (tmp_path / f"{number}.yaml").write_text(AXOLOTL)
        lines = (f"axolotl train {name}.yaml --learning_rate={name}e-5\n" for name in range(COUNT))
        (tmp_path / f"{number}.sh").write_text("".join(lines))
    checked_configs: list[str] = []
    behind = launches.find_trailing_words

    def record_call(document, invocation, config, repository):  # type: ignore[no-untyped-def]
        checked_configs.append(config)
        return behind(document, invocation, config, repository)

    monkeypatch.setattr(launches, "find_trailing_words", record_call)
    runs = list_runs(tmp_path)
    assert len(runs) == COUNT
    assert checked_configs
    assert len(checked_configs) <= 2 * COUNT**2


def test_what_scripts_share_is_found_and_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share the programs that a folder's scripts start, their settings, and project files in parent folders."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: alpaca\n"
        "template: qwen\ncutoff_len: 2048\noutput_dir: out\nbf16: true\n"
    )
    for number in range(COUNT):
        start = "accelerate launch src/train.py run.yaml logging_steps=5\n"
        (tmp_path / f"{number}.sh").write_text(f"#!/bin/bash\n{start}")
    calls: list[tuple[object, ...]] = []

    def count_calls(owner: object, name: str) -> None:
        work = getattr(owner, name)

        def record_call(*arguments):  # type: ignore[no-untyped-def]
            calls.append((name, *(argument for argument in arguments if isinstance(argument, str | tuple))))
            return work(*arguments)

        monkeypatch.setattr(owner, name, record_call)

    count_calls(filesystem, "is_file")
    count_calls(launched, "_judge_setting")
    count_calls(hollow_copies, "read_project_names")
    with change_directory(tmp_path):
        result = api.lint(["."], api.Options(isolated=True)).raw
    assert len(result.runs) == 1
    assert len(result.runs[0].main.launch_overrides) == COUNT
    counts = Counter(calls)
    assert [call for call, count in counts.items() if count > 1 and call[0] != "is_file"] == []
    assert {call[0] for call in counts} == {"is_file", "_judge_setting", "read_project_names"}
    assert counts["is_file", str(tmp_path / "src/train.py")] < 2 * COUNT


TAKES = "#!/bin/bash\nset -e\naxolotl train $1 --launcher torchrun -- --nnodes 2 --nproc_per_node 4\n"
HANDS = {
    "bash": ({"scripts/train.sh": TAKES, "run.sh": "bash scripts/train.sh configs/a.yaml\n"}, (2, 4), ""),
    "its path alone": ({"scripts/train.sh": TAKES, "run.sh": "./scripts/train.sh configs/a.yaml\n"}, (2, 4), ""),
    "a variable of the script": (
        {
            "train.sh": TAKES.replace("axolotl train $1", 'FILE="${1}"\naxolotl train "$FILE"'),
            "run.sh": "bash train.sh configs/a.yaml\n",
        },
        (2, 4),
        "",
    ),
    "all that it is handed": (
        {"train.sh": TAKES.replace("$1", '"$@"'), "run.sh": "bash train.sh configs/a.yaml\n"},
        (2, 4),
        "",
    ),
    "a module": (
        {
            "train.sh": 'accelerate launch --num_processes 4 -m axolotl.cli.train "$1"\n',
            "run.sh": "sh train.sh configs/a.yaml\n",
        },
        (1, 4),
        "",
    ),
    "nobody": ({"train.sh": TAKES}, (2, 4), "train.sh:3"),
    "nobody, in a folder beside": ({"scripts/train.sh": TAKES}, (None, None), ""),
    "nobody, of two that agree": ({"a.sh": TAKES, "b.sh": TAKES + "sleep 1\n"}, (2, 4), "a.sh:3"),
    "nobody, of two that differ": (
        {"a.sh": TAKES, "b.sh": TAKES.replace("-nnodes 2", "-nnodes 4")},
        (None, 4),
        "a.sh:3",
    ),
    "the nearest of two": (
        {"a.sh": TAKES.replace("-nnodes 2", "-nnodes 4"), "configs/b.sh": TAKES},
        (2, 4),
        "configs/b.sh:3",
    ),
    "a script for another framework": (
        {"a.sh": "FORCE_TORCHRUN=1 NNODES=2 llamafactory-cli train $1\n"},
        (None, None),
        "",
    ),
    "a script that names its file": ({"a.sh": TAKES.replace("$1", "configs/b.yaml")}, (None, None), ""),
    "a variable that is no argument": ({"a.sh": TAKES.replace("$1", "$FILE")}, (None, None), ""),
}


@pytest.mark.parametrize("name", HANDS)
def test_a_script_that_takes_the_file_as_an_argument(tmp_path: Path, name: str) -> None:
    """State the script's facts if another script passes it the file; otherwise assume them."""
    files, cluster, assumed = HANDS[name]
    (tmp_path / ".git").mkdir()
    for path, text in {"configs/a.yaml": AXOLOTL, **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    [run] = list_runs(tmp_path)
    launch = run.plan.launch
    origins = [run.get_origin(field) for field in ("launch.nodes", "launch.gpus_per_node")]
    values = [
        value if origin and origin.kind != "assumed" else None
        for value, origin in zip((launch.nodes, launch.gpus_per_node), origins)
    ]
    assert tuple(values) == cluster
    notes = {origin.assumption for origin, value in zip(origins, values) if origin is not None and value is not None}
    assert notes <= {""} if not assumed else all(assumed.rpartition("/")[2] in note for note in notes)


def test_what_stands_behind_the_argument_is_laid_over_the_file(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(AXOLOTL)
    (tmp_path / "train.sh").write_text("axolotl train $1 --micro-batch-size 4\n")
    (tmp_path / "run.sh").write_text("bash train.sh a.yaml\n")
    [run] = list_runs(tmp_path)
    assert run.plan.batch.micro == 4


@pytest.mark.parametrize(
    ("command", "micro", "assumed"),
    [
        ("axolotl train $1 --micro-batch-size $2", 8, "`micro_batch_size` is 8, as the file states; train.sh:1 may"),
        ("torchrun --nproc_per_node $2 --nnodes $NODES -m axolotl.cli.train $1", 8, ""),
    ],
)
def test_what_a_generic_launcher_leaves_open_keeps_no_file_from_being_estimated(
    tmp_path: Path, command: str, micro: int, assumed: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(f"{AXOLOTL}micro_batch_size: 8\n")
    (tmp_path / "train.sh").write_text(f"{command}\n")
    [run] = list_runs(tmp_path)
    origin = run.get_origin("batch.micro")
    assert run.plan.batch.micro == micro
    assert origin is not None
    assert origin.assumption.startswith(assumed)
    assert (run.plan.launch.nodes, run.plan.launch.gpus_per_node) == (1, 8)


@pytest.mark.parametrize(("root", "nodes"), [(None, None), ("cfglint.toml", 2), ("pyproject.toml", 2), (".git", 2)])
def test_without_a_root_scripts_above_the_folder_of_a_configuration_do_not_count(
    tmp_path: Path, root: str | None, nodes: int | None
) -> None:
    if root is not None:
        (tmp_path / root).touch()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.yaml").write_text(AXOLOTL)
    (tmp_path / "run.sh").write_text(TAKES.replace("$1", "configs/a.yaml"))
    [run] = list_runs(tmp_path / "configs")
    assert (run.plan.launch.nodes if run.is_stated("launch.nodes") else None) == nodes
    [run] = list_runs(tmp_path)
    assert run.plan.launch.nodes == 2  # a folder named on the command line is a root if there is no other


RECIPE = """model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
packing: true
max_length: 4096
per_device_train_batch_size: 4
gradient_checkpointing: true
learning_rate: 2.0e-05
bf16: true
output_dir: out
"""
ZERO3 = """distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
num_machines: 1
num_processes: 4
"""
NAMES_FILE = "accelerate launch --config_file accelerate/zero3.yaml train.py recipes/a.yaml"


def read_documented_run(root: Path, *commands: str, files: Iterable[str] = ("accelerate/zero3.yaml",)) -> Run:
    (root / ".git").mkdir()
    (root / "README.md").write_text("".join(f"# Train\n\n```shell\n{command}\n```\n" for command in commands))
    for name, text in {"recipes/a.yaml": RECIPE, **dict.fromkeys(files, ZERO3)}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    [run] = [run for run in list_runs(root) if run.main.framework == "trl"]
    return run


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (NAMES_FILE, "`accelerate/zero3.yaml`"),
        ("accelerate launch --use_deepspeed --zero_stage 3 --num_processes 4 train.py recipes/a.yaml", "its options"),
    ],
)
def test_what_an_example_gives_a_launcher_is_an_assumption(tmp_path: Path, command: str, given: str) -> None:
    run = read_documented_run(tmp_path, command)
    launch, parallel = run.plan.launch, run.plan.parallel
    assert (parallel.strategy, parallel.zero_stage, launch.gpus_per_node) == ("zero", 3, 4)
    note = f"accelerate is given {given}, as an example in `README.md` shows"
    for field in ("parallel.strategy", "parallel.zero_stage"):
        assert note in " ".join(ground.note for ground in find_assumptions(run, {field}))


@pytest.mark.parametrize(
    ("commands", "files"),
    [
        ((NAMES_FILE,), ()),
        (("accelerate launch --use_fsdp train.py recipes/a.yaml", NAMES_FILE), ("accelerate/zero3.yaml",)),
    ],
    ids=["the file is not there", "another example differs"],
)
def test_an_example_that_leaves_sharding_open(
    tmp_path: Path, commands: tuple[str, ...], files: tuple[str, ...]
) -> None:
    run = read_documented_run(tmp_path, *commands, files=files)
    assert run.plan.parallel.strategy is None
    assert run.inputs.unresolved == ()
