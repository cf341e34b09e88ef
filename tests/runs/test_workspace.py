"""Files of one run: companions, launch scripts and overrides; and the files that belong to no run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.documents.document import Route, Unknown
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.plan.origin import FieldValue
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import CommandLine
from cfglint_train.settings.settings import Settings
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, DEEPSPEED, SMALL
from tests.support.corpus import REPOSITORY
from tests.support.linting import change_directory

FIXTURES = REPOSITORY / "fixtures"
CONCISE = ("--isolated", *SMALL, "--output-format", "concise")

WITH_DEEPSPEED = AXOLOTL + "deepspeed: configs/ds.json\n"

LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca
output_dir: out
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
"""

OPENRLHF = """\
#!/bin/bash
deepspeed --module openrlhf.cli.train_sft \\
   --pretrain meta-llama/Meta-Llama-3-8B \\
   --dataset data \\
   {flags}
"""


def lint_runs(
    folder: Path,
    *paths: str,
    settings: tuple[str, ...] = (),
    overrides: Mapping[Route, Any] | None = None,
    **facts: str,
) -> list[Run]:
    """Return the runs of some files, isolated from every settings file."""
    with change_directory(folder):
        command_line = CommandLine(facts, overrides or {}, settings)
        options = LintOptions(select=(), command_line=command_line, settings=Settings(str(folder)))
        workspace = dispatch.open_workspace(options)
        result = dispatch.lint(workspace, workspace.collect(paths or ["."]), options)
        assert [trouble for trouble in result.troubles if trouble.is_internal] == []
        return list(result.runs)


def lint_run(folder: Path, path: str, **options: Any) -> Run:
    [linted] = lint_runs(folder, path, **options)
    return linted


def get_value(run: Run, field: str) -> FieldValue:
    return run.resolved_plan.values[field]


@pytest.fixture
def here(tmp_path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    return root


def put(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


# --- companions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "companion"),
    [
        pytest.param("elsewhere", "elsewhere/configs/ds.json", id="working directory"),
        pytest.param(".", "runs/sft/configs/ds.json", id="the folder of the configuration"),
        pytest.param(".", "runs/configs/ds.json", id="above it"),
        pytest.param("elsewhere", "configs/ds.json", id="the root of the repository"),
    ],
)
def test_a_companion_is_found_and_read_although_nobody_names_it(here, cwd, companion):
    (here / "elsewhere").mkdir()
    put(here, {"runs/sft/config.yaml": WITH_DEEPSPEED, companion: CONTRADICTED})
    outcome = run_cfglint(*CONCISE, here / "runs/sft/config.yaml", cwd=here / cwd)
    assert outcome.code == 1
    [finding, *_] = outcome.lines
    assert finding.startswith(f"{here / companion}:2:5: error XFL001")


def test_the_nearest_of_several_counts(here):
    (here / "elsewhere").mkdir()
    agreeing = CONTRADICTED.replace("8", "1")
    put(
        here,
        {
            "configs/ds.json": CONTRADICTED,
            "runs/configs/ds.json": agreeing,
            "runs/config.yaml": WITH_DEEPSPEED,
            "elsewhere/configs/ds.json": CONTRADICTED,
        },
    )
    assert run_cfglint(*CONCISE, "../runs/config.yaml", cwd=here / "runs").code == 0
    # The launch looks in the working directory first.
    assert run_cfglint(*CONCISE, "../runs/config.yaml", cwd=here / "elsewhere").code == 1


def test_nothing_is_looked_for_beyond_the_repository(here):
    put(here, {"runs/config.yaml": WITH_DEEPSPEED, "../configs/ds.json": CONTRADICTED})
    assert run_cfglint(*CONCISE, "config.yaml", cwd=here / "runs").code == 0


def test_without_a_repository_a_bare_name_means_the_own_folder(tmp_path):
    put(tmp_path, {"runs/config.yaml": AXOLOTL + "deepspeed: ds.json\n", "ds.json": CONTRADICTED, "runs/cwd/x": ""})
    assert run_cfglint(*CONCISE, "../config.yaml", cwd=tmp_path / "runs/cwd").code == 0
    put(tmp_path, {"runs/ds.json": CONTRADICTED})
    assert run_cfglint(*CONCISE, "../config.yaml", cwd=tmp_path / "runs/cwd").code == 1


@pytest.mark.parametrize(
    "name", ["ds\\0.json", "missing.json", "/proc/version", ".", "~nobody/ds.json", "https://x/ds.json"]
)
def test_companions_that_are_none(here, name):
    put(here, {"config.yaml": f'{AXOLOTL}deepspeed: "{name}"\n'})
    outcome = run_cfglint(*CONCISE, "config.yaml", cwd=here)
    assert (outcome.code, outcome.err) == (0, "")


def test_a_file_that_several_runs_share_is_complained_of_once_and_where_it_stands(here):
    put(here, {"a.yaml": WITH_DEEPSPEED, "b.yaml": WITH_DEEPSPEED, "configs/ds.json": CONTRADICTED})
    outcome = run_cfglint(*CONCISE, ".", cwd=here)
    assert [line.split(" ")[0] for line in outcome.lines if "XFL001" in line] == ["configs/ds.json:2:5:"]


def test_runs_that_share_a_file_have_one_finding_at_a_place_of_it(here):
    differing = WITH_DEEPSPEED.replace("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 2")
    put(here, {"a.yaml": WITH_DEEPSPEED, "b.yaml": differing, "configs/ds.json": CONTRADICTED})
    lines = [line for line in run_cfglint(*CONCISE, ".", cwd=here).lines if "XFL001" in line]
    assert [line.split(": ")[0] for line in lines] == ["configs/ds.json:2:5"]
    report = json.loads(run_cfglint("--isolated", "--output-format", "json", ".", cwd=here).out)
    [finding] = [item for item in report["findings"] if item["code"] == "XFL001"]
    assert {"a.yaml", "b.yaml"} <= {item["path"] for item in finding["related"]}


def test_a_fix_of_a_shared_file_is_safe_only_where_every_run_wants_it(here):
    def get_applicability() -> str:
        report = json.loads(run_cfglint("--isolated", "--output-format", "json", ".", cwd=here).out)
        [fix] = [finding["fix"] for finding in report["findings"] if finding["code"] == "XFL001"]
        fix_kind: str = fix["applicability"]
        return fix_kind

    put(here, {"a.yaml": WITH_DEEPSPEED, "configs/ds.json": CONTRADICTED})
    single_kind = get_applicability()
    put(here, {"b.yaml": WITH_DEEPSPEED})
    assert get_applicability() == single_kind == "safe"
    agreeing = WITH_DEEPSPEED.replace("gradient_accumulation_steps: 1", "gradient_accumulation_steps: 8")
    put(here, {"c.yaml": agreeing})
    assert get_applicability() == "unsafe"


def test_many_runs_of_a_shared_file_are_counted(here):
    put(here, {f"{number:02}.yaml": WITH_DEEPSPEED for number in range(12)} | {"configs/ds.json": CONTRADICTED})
    for jobs in ("1", "2"):
        report = json.loads(run_cfglint("--isolated", "--jobs", jobs, "--output-format", "json", ".", cwd=here).out)
        [finding] = [item for item in report["findings"] if item["code"] == "XFL001"]
        runs = [item["path"] for item in finding["related"] if "this configuration" in item["message"]]
        assert runs == [f"{number:02}.yaml" for number in range(6)]
        assert "the same applies to 6 more runs" in finding["notes"]


def test_a_companion_alone_is_a_run_of_its_own(here):
    put(here, {"ds.json": DEEPSPEED})
    outcome = run_cfglint(*CONCISE, ".", cwd=here)
    assert outcome.lines[0].startswith("ds.json:2:5: error BAT001")


def test_a_companion_that_cannot_be_read_is_told_of(here):
    put(
        here,
        {
            "config.yaml": WITH_DEEPSPEED,
            "configs/ds.json": '{"zero_optimization": {"stage": 2},\n "train_batch_size": }',
        },
    )
    outcome = run_cfglint(*CONCISE, "config.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0].startswith("configs/ds.json:2:22: error SYN002")


def test_companions_of_companions(here):
    """Follow an accelerate file to the DeepSpeed file that it names."""
    accelerate = "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 4\n"
    accelerate += "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    put(
        here,
        {
            "config.yaml": AXOLOTL,
            "accelerate.yaml": accelerate,
            "ds.json": CONTRADICTED,
            "run.sh": "accelerate launch --config_file accelerate.yaml -m axolotl.cli.train config.yaml\n",
        },
    )
    lint_result = lint_run(here, "config.yaml")
    assert sorted(lint_result.inputs.companions) == ["accelerate", "deepspeed"]
    assert lint_result.plan.launch.gpus_per_node == 4
    assert get_value(lint_result, "launch.gpus_per_node").origin.place.document.path == "accelerate.yaml"
    assert lint_result.plan.parallel.zero_stage == 2


# --- launch scripts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "nodes", "gpus"),
    [
        ("torchrun --nnodes 4 --nproc-per-node 2 -m axolotl.cli.train config.yaml", 4, 2),
        ("torchrun --nnodes=2:2 --nproc_per_node=gpu -m axolotl.cli.train config.yaml", 2, None),
        ("accelerate launch --num_machines 2 --num_processes 8 -m axolotl.cli.train config.yaml", 2, 4),
        ("deepspeed --num_nodes 3 --num_gpus 4 --module axolotl.cli.train config.yaml", 3, 4),
        ("axolotl train config.yaml --launcher torchrun -- --nnodes=2 --nproc_per_node=4", 2, 4),
        ("#SBATCH --nodes=16\n#SBATCH --gpus-per-node=a100:4\nsrun axolotl train config.yaml", 16, 4),
        ("export N=2\ntorchrun --nnodes $N --nproc-per-node ${G} -m axolotl.cli.train ./config.yaml", 2, "open"),
        ("torchrun --nnodes=$1 --nproc_per_node=gpu -m axolotl.cli.train config.yaml", "open", None),
        ("axolotl train config.yaml --launcher torchrun -- --nnodes=$N --nproc_per_node $G", "open", "open"),
        ("deepspeed --num_gpus $G --module axolotl.cli.train config.yaml", None, "open"),
        ("deepspeed --include $HOSTS --module axolotl.cli.train config.yaml", "open", "open"),
        ("accelerate launch --num_machines 1 --num_processes $N -m axolotl.cli.train config.yaml", 1, "open"),
        ("#SBATCH -N 2\nsrun torchrun --nnodes $N --nproc_per_node 8 train.py config.yaml", 2, 8),
        ("srun -N $1 --gpus-per-node=8 axolotl train config.yaml", "open", 8),
        ("axolotl train config.yaml", None, None),
        ("torchrun --nnodes 4 -m axolotl.cli.train other/config.yaml", None, None),
        ("echo config.yaml # torchrun --nnodes 4 config.yaml", None, None),
    ],
)  # fmt: skip
def test_what_a_launch_script_says_of_the_cluster(here, command, nodes, gpus):
    put(here, {"config.yaml": AXOLOTL, "other/config.yaml": AXOLOTL, "run.sh": f"#!/bin/bash\n{command}\n"})
    started_run = lint_run(here, "config.yaml")
    for field, expected, assumed in (("launch.nodes", nodes, 1), ("launch.gpus_per_node", gpus, 8)):
        node_count = get_value(started_run, field)
        if expected == "open":
            assert (node_count.value, node_count.origin.kind) == (None, "user")
        elif expected is None:
            assert (node_count.value, node_count.origin.kind) == (assumed, "assumed")
        else:
            assert (node_count.value, node_count.origin.kind, node_count.origin.note) == (expected, "user", "run.sh")
            assert node_count.origin.place.document.path == "run.sh"


def test_host_memory_of_a_batch_job(here):
    script = "#!/bin/bash\n#SBATCH --nodes=2 --mem=480G\nsrun axolotl train config.yaml\n"
    put(here, {"config.yaml": AXOLOTL, "run.sbatch": script})
    hardware = lint_run(here, "config.yaml").hardware
    assert hardware.get_capacity("host") == 480 * 2**30


def test_llamafactory_counts_its_nodes_by_the_environment(here):
    script = "NNODES=4 FORCE_TORCHRUN=1 llamafactory-cli train config.yaml\n"
    put(here, {"config.yaml": LLAMAFACTORY, "run.sh": script})
    assert get_value(lint_run(here, "config.yaml"), "launch.nodes").value == 4


@pytest.mark.parametrize(
    "place",
    ["run.sh", "scripts/run.sh", "jobs/run.sh", "jobs/sft/run.job", "elsewhere/a/b/c/d/run.sbatch"],
)
def test_where_scripts_are_looked_for(here, place):
    put(here, {"jobs/sft/config.yaml": AXOLOTL, place: "torchrun --nnodes 4 train.py jobs/sft/config.yaml\n"})
    assert get_value(lint_run(here, "jobs/sft/config.yaml"), "launch.nodes").value == 4


@pytest.mark.parametrize(
    ("script", "started"),
    [
        ("cd b && torchrun --nnodes 4 train.py configs/run.yaml", "b"),
        ("cd b\ncd configs\ntorchrun --nnodes 4 train.py run.yaml", "b"),
        ("pushd a\ntorchrun --nnodes 4 train.py configs/run.yaml", "a"),
        ("pushd a\npopd\ntorchrun --nnodes 4 train.py configs/run.yaml", ""),
        ('cd "$(dirname "$0")/../b"\ntorchrun --nnodes 4 train.py configs/run.yaml', "b"),
        ("(cd b; make)\ntorchrun --nnodes 4 train.py configs/run.yaml", ""),
        ("(cd b; torchrun --nnodes 4 train.py configs/run.yaml)", "b"),
        ("if [ -d b ]; then cd b; fi\ntorchrun --nnodes 4 train.py configs/run.yaml", ""),
        ('cd b\nbash -c "torchrun --nnodes 4 train.py configs/run.yaml"', "b"),
        ("cd /workspace/b\ntorchrun --nnodes 4 train.py configs/run.yaml", ""),
        ("cd b/..\ntorchrun --nnodes 4 train.py a/configs/run.yaml", "a"),
        ("torchrun --nnodes 4 train.py configs/run.yaml", ""),
        ("torchrun --nnodes 4 train.py ../a/configs/run.yaml", "a"),
    ],
)  # fmt: skip
def test_a_script_starts_the_file_of_the_folder_that_it_changes_to(here, script, started):
    put(here, {"a/configs/run.yaml": AXOLOTL, "b/configs/run.yaml": AXOLOTL, "jobs/go.sh": f"{script}\n"})
    counts = {started_run.main.document.path: started_run.plan.launch.nodes == 4 for started_run in lint_runs(here)}
    assert counts == {f"{project}/configs/run.yaml": project == started for project in "ab"}


@pytest.mark.parametrize(
    "script",
    [
        "axolotl train a/configs/run.yaml",
        'axolotl train "$ROOT/a/configs/run.yaml"',
        "cd /workspace && axolotl train a/configs/run.yaml",
        "for name in run other; do axolotl train a/configs/$name.yaml; done",
        "for file in a/configs/*.yaml; do axolotl train $file; done",
        "axolotl train a/configs/r${SIZE}n.yaml",
        "bash jobs/inner.sh",
        "sbatch jobs/inner.sh",
        'ssh host "cd /x; axolotl train a/configs/run.yaml"',
        "gantry run --gpus 8 -- bash -c 'axolotl train a/configs/run.yaml'",
    ],
)
def test_a_script_that_is_named_stands_for_the_runs_that_it_starts(here, script):
    inner = "axolotl train a/configs/run.yaml\n"
    put(here, {"a/configs/run.yaml": AXOLOTL, "b/run.yaml": AXOLOTL, "jobs/go.sh": script, "jobs/inner.sh": inner})
    assert [run.main.document.path for run in lint_runs(here, "jobs/go.sh")] == ["a/configs/run.yaml"]


@pytest.mark.parametrize("cwd", [".", "a", "a/configs", ".."])
def test_what_a_script_starts_does_not_depend_on_where_cfglint_runs(here, cwd):
    command = "torchrun --nnodes 4 train.py configs/run.yaml\n"
    put(here, {"a/configs/run.yaml": AXOLOTL, "b/configs/run.yaml": AXOLOTL, "jobs/go.sh": command})
    put(here, {"../configs/run.yaml": AXOLOTL})  # above the repository, so not read
    nodes = [get_value(item, "launch.nodes") for item in lint_runs(here / cwd, str(here / "a"), str(here / "b"))]
    assert [(item.value, item.origin.kind) for item in nodes] == [(1, "assumed")] * 2


def test_scripts_of_strangers_do_not_count(here):
    """Skip what is above the repository, what is excluded and what is not a script."""
    command = "torchrun --nnodes 4 train.py jobs/sft/config.yaml\n"
    put(here, {"jobs/sft/config.yaml": AXOLOTL, "../run.sh": command, "build/run.sh": command, "README.md": command})
    assert get_value(lint_run(here, "jobs/sft/config.yaml"), "launch.nodes").origin.kind == "assumed"


def test_scripts_that_disagree_leave_it_unknown(here):
    put(
        here,
        {
            "config.yaml": AXOLOTL,
            "small.sh": "torchrun --nnodes 2 --nproc-per-node 4 -m axolotl.cli.train config.yaml\n",
            "large.sh": "torchrun --nnodes 64 --nproc-per-node 4 -m axolotl.cli.train config.yaml\n",
        },
    )
    undecided = lint_run(here, "config.yaml")
    nodes = get_value(undecided, "launch.nodes")
    assert (nodes.value, nodes.origin.kind) == (None, "user")
    assert nodes.origin.note == "large.sh:1 and small.sh:1 differ"
    assert undecided.inputs.conflicts == {"launch.nodes": (2, 64)}
    assert get_value(undecided, "launch.gpus_per_node").value == 4
    assert not get_value(undecided, "launch.gpus_per_node").origin.assumption
    # The command line settles it.
    stated = lint_run(here, "config.yaml", nodes="2")
    assert (get_value(stated, "launch.nodes").value, stated.inputs.conflicts) == (2, {})
    # Two launches in one script differ as well.
    put(
        here,
        {"small.sh": "torchrun --nproc-per-node 2 x.py config.yaml\ntorchrun --nproc-per-node 4 x.py config.yaml\n"},
    )
    (here / "large.sh").unlink()
    assert get_value(lint_run(here, "config.yaml"), "launch.gpus_per_node").value is None


def test_what_only_some_launches_state_is_assumed(here):
    put(here, {"config.yaml": AXOLOTL, "a.sh": "torchrun --nproc-per-node 4 x.py config.yaml\n"})
    put(here, {"b.sh": "axolotl train config.yaml\n"})
    gpus = get_value(lint_run(here, "config.yaml"), "launch.gpus_per_node")
    assert (gpus.value, gpus.origin.assumption) == (
        4,
        "4 GPUs per node, as a.sh:1 states, the only one of 2 launches; set `gpus-per-node` to be sure",
    )


def test_a_default_of_the_launch_is_assumed(here):
    script = "G=${GPUS:-4}\ntorchrun --nproc-per-node $G --nnodes 2 x.py config.yaml --micro_batch_size ${MBS:-3}\n"
    put(here, {"config.yaml": AXOLOTL, "a.sh": script})
    started_run = lint_run(here, "config.yaml")
    gpus = get_value(started_run, "launch.gpus_per_node")
    assert (gpus.value, gpus.origin.assumption) == (4, "`$GPUS` is 4 unless the environment sets it")
    assert not get_value(started_run, "launch.nodes").origin.assumption


_FSDP = """\
distributed_type: FSDP
num_machines: 1
num_processes: {gpus}
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: {reshard}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
"""


def _write_launch(name: str, accelerate: str) -> dict[str, str]:
    launch = f"accelerate launch --config_file {name}.yaml -m axolotl.cli.train config.yaml\n"
    return {f"{name}.yaml": accelerate, f"{name}.sh": launch}


def test_launches_are_merged_by_what_their_files_say(here):
    put(here, {"config.yaml": AXOLOTL, **_write_launch("two", _FSDP.format(gpus=2, reshard="true"))})
    put(here, _write_launch("four", _FSDP.format(gpus=4, reshard="true")))
    merged = lint_run(here, "config.yaml")
    assert get_value(merged, "parallel.strategy").value == "fsdp2"
    gpus = get_value(merged, "launch.gpus_per_node")
    assert (gpus.value, gpus.origin.kind, gpus.origin.note) == (None, "user", "four.yaml and two.yaml differ")
    assert set(merged.inputs.conflicts["launch.gpus_per_node"]) == {2, 4}


def test_a_launch_without_sharding_beside_one_with_it(here):
    put(here, {"config.yaml": AXOLOTL, **_write_launch("two", _FSDP.format(gpus=2, reshard="true"))})
    put(here, {"plain.sh": "torchrun --nproc-per-node 2 -m axolotl.cli.train config.yaml\n"})
    strategy = get_value(lint_run(here, "config.yaml"), "parallel.strategy")
    assert (strategy.value, strategy.origin.kind) == (None, "user")


@given(order=st.permutations(range(3)), twice=st.booleans())
def test_neither_the_order_of_scripts_counts_nor_a_second_one_that_says_the_same(tmp_path_factory, order, twice):
    bodies = [
        "torchrun --nnodes 2 --nproc-per-node 4 x.py config.yaml --micro-batch-size 2\n",
        "torchrun --nnodes 2 --nproc-per-node 8 x.py config.yaml\n",
        "accelerate launch --config_file fsdp.yaml x.py config.yaml\n",
    ]
    resolved_plans = []
    for numbers in ((0, 1, 2), order):
        here = tmp_path_factory.mktemp("order")
        (here / ".git").mkdir()
        put(here, {"config.yaml": AXOLOTL, "fsdp.yaml": _FSDP.format(gpus=4, reshard="true")})
        put(here, {f"{name}.sh": bodies[number] for name, number in zip("abc", numbers)})
        if twice and numbers != (0, 1, 2):
            put(here, {"again.sh": bodies[order[0]]})
        with change_directory(here):
            resolved_plans.append(
                {field: resolved.value for field, resolved in lint_run(here, "config.yaml").resolved_plan}
            )
    assert resolved_plans[0] == resolved_plans[1]


@given(first=st.integers(0, 3), second=st.integers(0, 3))
def test_a_second_launch_only_takes_knowledge_away(tmp_path_factory, first, second):
    bodies = [
        "torchrun --nnodes 2 --nproc-per-node 4 x.py config.yaml\n",
        "torchrun --nnodes 2 --nproc-per-node ${G:-4} x.py config.yaml\n",
        "accelerate launch --config_file fsdp.yaml x.py config.yaml\n",
        "python x.py config.yaml\n",
    ]
    here = tmp_path_factory.mktemp("second")
    (here / ".git").mkdir()
    put(here, {"config.yaml": AXOLOTL, "fsdp.yaml": _FSDP.format(gpus=4, reshard="true"), "a.sh": bodies[first]})
    fields = ("launch.nodes", "launch.gpus_per_node", "parallel.strategy")
    with change_directory(here):
        one_launch = lint_run(here, "config.yaml").stated_plan
        put(here, {"b.sh": bodies[second]})
        two_launches = lint_run(here, "config.yaml").stated_plan
    for field in fields:
        first_value, second_value = one_launch.values.get(field), two_launches.values.get(field)
        if (
            first_value is not None
            and second_value is not None
            and second_value.value is not None
            and not second_value.origin.assumption
        ):
            assert first_value.value == second_value.value


@pytest.mark.parametrize(
    ("command", "is_known"),
    [
        ("FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train config.yaml", True),
        ("torchrun --nproc_per_node 8 src/train.py config.yaml", True),
        ("torchrun $MORE src/train.py config.yaml", False),
        ("ACCELERATE_USE_FSDP=true torchrun src/train.py config.yaml", False),
        ("accelerate launch src/train.py config.yaml", False),  # reads a file in the home directory
        ("bash train.sh config.yaml", False),
        ("python submit.py config.yaml", False),
        ("echo config.yaml", None),  # starts nothing
    ],
)
def test_launches_in_which_all_is_in_sight(here, command, is_known):
    put(here, {"config.yaml": LLAMAFACTORY, "run.sh": f"{command}\n"})
    assert lint_run(here, "config.yaml").inputs.is_sharding_known is is_known


OPEN = ("--use_fsdp $MORE", "--config_file $CONFIG --use-deepspeed --zero_stage 3", "--use_megatron_lm")


@pytest.mark.parametrize("flags", OPEN)
def test_options_of_the_launcher_that_shard_the_model_in_a_way_that_cannot_be_told(here, flags):
    put(here, {"config.yaml": LLAMAFACTORY, "run.sh": f"accelerate launch {flags} src/train.py config.yaml\n"})
    strategy = get_value(lint_run(here, "config.yaml"), "parallel.strategy")
    assert (strategy.value, strategy.origin.kind) == (None, "user")
    assert strategy.origin.key in flags
    assert strategy.origin.place.document.path == "run.sh"


BY_OPTIONS = {
    "fsdp": ("--use_fsdp", ("fsdp1", "full_shard", None, None)),
    "fsdp2": ("--use_fsdp --fsdp_version 2", ("fsdp2", "full_shard", None, None)),
    "kept": ("--use_fsdp --fsdp_version=2 --fsdp_reshard_after_forward false", ("fsdp2", "shard_grad_op", None, None)),
    "sharding": ("--use-fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", ("fsdp1", "shard_grad_op", None, None)),
    "offload": ("--use_fsdp --fsdp_offload_params true", ("fsdp1", "full_shard", None, "cpu")),
    "zero": ("--use_deepspeed", ("zero", None, 2, "none")),
    "stage": ("--use-deepspeed --zero_stage 3", ("zero", None, 3, "none")),
    "device": ("--use_deepspeed --zero_stage=3 --offload_param_device cpu", ("zero", None, 3, "cpu")),
}


@pytest.mark.parametrize("how", BY_OPTIONS)
def test_options_of_the_launcher_shard_the_model(here, how):
    flags, expected = BY_OPTIONS[how]
    put(here, {"config.yaml": LLAMAFACTORY})
    put(here, {"run.sh": f"accelerate launch {flags} --num_processes 4 src/train.py config.yaml\n"})
    sharded_run = lint_run(here, "config.yaml")
    plan = sharded_run.plan.parallel
    offload = plan.offload_params if expected[3] is not None else None
    assert (plan.strategy, plan.sharding, plan.zero_stage, offload) == expected
    origin = get_value(sharded_run, "parallel.strategy").origin
    assert (origin.key, origin.note) == (flags.split()[0], "run.sh")
    assert sharded_run.cluster == (1, 4)
    assert sharded_run.companions == ()


def test_options_of_fsdp_without_its_switch_are_not_read(here):
    for flags in ("--fsdp_offload_params true", "--multi_gpu --zero_stage 3"):
        command = f"accelerate launch {flags} --num_processes 4 src/train.py config.yaml\n"
        put(here, {"config.yaml": LLAMAFACTORY, "run.sh": command})
        plain_run = lint_run(here, "config.yaml")
        assert (plain_run.plan.parallel.strategy, plain_run.find_place("parallel.strategy").document.path) == (
            "ddp",
            "config.yaml",
        )


def test_options_of_the_launcher_stand_above_its_file(here):
    launch = "accelerate launch --config_file fsdp.yaml {} -m axolotl.cli.train config.yaml\n"
    put(here, {"config.yaml": AXOLOTL, "fsdp.yaml": _FSDP.format(gpus=4, reshard="true")})
    for flags, expected in (
        ("", ("fsdp2", "full_shard", None)),
        ("--fsdp_reshard_after_forward false", ("fsdp2", "shard_grad_op", None)),
        ("--fsdp_version 1 --fsdp_sharding_strategy NO_SHARD", ("fsdp1", "no_shard", None)),
        ("--use_deepspeed --zero_stage 3", ("zero", None, 3)),
        ("--multi_gpu", ("ddp", None, None)),
    ):
        put(here, {"run.sh": launch.format(flags)})
        plan = lint_run(here, "config.yaml").plan.parallel
        assert (plan.strategy, plan.sharding, plan.zero_stage) == expected, flags


def test_a_deepspeed_file_among_the_options_of_the_launcher(here):
    put(here, {"config.yaml": LLAMAFACTORY, "ds.json": json.dumps({"zero_optimization": {"stage": 3}})})
    launch = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json src/train.py config.yaml\n"
    put(here, {"run.sh": launch})
    started_run = lint_run(here, "config.yaml")
    assert (started_run.plan.parallel.zero_stage, [companion.framework for companion in started_run.companions]) == (
        3,
        ["deepspeed"],
    )


def test_launchers_with_different_options_leave_the_stage_unknown(here):
    put(here, {"config.yaml": LLAMAFACTORY})
    for stage in (2, 3):
        command = f"accelerate launch --use_deepspeed --zero_stage {stage} src/train.py config.yaml\n"
        put(here, {f"run{stage}.sh": command})
    merged = lint_run(here, "config.yaml")
    assert (merged.plan.parallel.strategy, merged.plan.parallel.zero_stage) == ("zero", None)


def test_what_is_never_called_starts_nothing(here):
    uncalled = "old() {\n  torchrun --nnodes 4 x.py config.yaml\n}\n# torchrun --nnodes 8 x.py config.yaml\n"
    put(here, {"config.yaml": AXOLOTL, "run.sh": f"{uncalled}torchrun x.py config.yaml\n"})
    assert get_value(lint_run(here, "config.yaml"), "launch.nodes").value == 1


def test_flags_stand_above_the_script(here):
    put(here, {"config.yaml": AXOLOTL, "run.sh": "torchrun --nnodes 4 -m axolotl.cli.train config.yaml\n"})
    assert get_value(lint_run(here, "config.yaml", nodes="2"), "launch.nodes").value == 2


def test_a_script_that_is_no_bash_is_no_trouble(here):
    put(here, {"config.yaml": AXOLOTL, "run.sh": "torchrun config.yaml <<\n ) ` $(( \x00"})
    assert get_value(lint_run(here, "config.yaml"), "launch.nodes").origin.kind == "assumed"


# --- what a launch lays over the file --------------------------------------------------------------------------------

CORE = (FIXTURES / "olmo_core/internal_style.py").read_text()
OLMO = (FIXTURES / "olmo/ddp-tiny.yaml").read_text()

LAUNCHES = {
    "llamafactory": ("config.yaml", LLAMAFACTORY, "llamafactory-cli train config.yaml {}"),
    "axolotl": ("config.yaml", AXOLOTL, "axolotl train config.yaml {}"),
    "olmo": ("config.yaml", OLMO, "torchrun scripts/train.py config.yaml {}"),
    "olmo_core": ("train.py", CORE, "torchrun --nproc-per-node=8 train.py train run01 ai2/jupiter {}"),
}


def start_run(here: Path, framework: str, words: str) -> Run:
    name, text, command = LAUNCHES[framework]
    put(here, {name: text, "run.sh": f"#!/bin/bash\n{command.format(words)}\n"})
    return lint_run(here, name)


@pytest.mark.parametrize(
    ("framework", "words", "field", "expected"),
    [
        ("llamafactory", "per_device_train_batch_size=8", "batch.micro", 8),
        ("llamafactory", "gradient_accumulation_steps=2 gradient_accumulation_steps=3", "batch.accumulation", 3),
        ("llamafactory", "finetuning_type=full", "method.tuning", "full"),
        ("llamafactory", "--not-a-word-of-omegaconf per_device_train_batch_size=8", "batch.micro", 8),
        ("axolotl", "--micro-batch-size 4", "batch.micro", 4),
        ("axolotl", "--micro_batch_size=4 --flash-attention", "batch.micro", 4),
        ("axolotl", "--gradient-checkpointing true", "activations.checkpointing", "full"),
        ("axolotl", "--launcher torchrun --micro-batch-size 4 -- --micro-batch-size 8", "batch.micro", 4),
        ("axolotl", "--adapter lora --lora-r 64 --lora-alpha 16", "method.lora_rank", 64),
        ("olmo", "--device_train_microbatch_size=4", "batch.micro", 4),
        ("olmo", "--device-train-microbatch-size=4", "batch.micro", 4),
        ("olmo", "--activation_checkpointing=fine_grained", "activations.checkpointing", "fine_grained"),
        ("olmo_core", "--train_module.rank_microbatch_size=4096", "batch.micro", 1),
        ("olmo_core", "--train_module.ac_config='{mode: full}'", "activations.checkpointing", "full"),
        ("olmo_core", "--save-folder /x --train_module.dp_config=null", "parallel.strategy", "none"),
    ],
)
def test_what_stands_behind_the_file_lies_over_it(here, framework, words, field, expected):
    started_run = start_run(here, framework, words)
    resolved = get_value(started_run, field)
    assert resolved.value == expected
    assert resolved.origin.kind == "user"
    assert resolved.origin.note == "run.sh"
    text = resolved.origin.place.document.get_text(resolved.origin.place.span)
    assert text.lstrip("-").replace("-", "_").startswith(resolved.origin.key.split(".")[0])


@pytest.mark.parametrize(
    ("framework", "words", "field"),
    [
        ("llamafactory", "per_device_train_batch_size=$MICRO", "batch.micro"),
        ("axolotl", '--micro-batch-size "$MICRO"', "batch.micro"),
        ("axolotl", "--micro-batch-size=$MICRO", "batch.micro"),
        ("olmo", "--device_train_microbatch_size=${MICRO}", "batch.micro"),
        ("olmo_core", "--train_module.rank_microbatch_size=$((2 * N))", "batch.micro"),
    ],
)
def test_a_value_that_the_script_does_not_settle_is_unknown(here, framework, words, field):
    assert get_value(start_run(here, framework, ""), field).value is not None
    resolved = get_value(start_run(here, framework, words), field)
    assert resolved.value is None
    assert resolved.origin.note == "run.sh"


def test_words_that_are_no_settings_are_left_alone(here):
    unchanged = start_run(here, "axolotl", "")
    for words in ("--num-processes 4 --main-process-port 29500", '"$@"', "$EXTRA", "--debug", "extra words"):
        assert start_run(here, "axolotl", words).plan == unchanged.plan


def test_switches_of_axolotl(here):
    off = start_run(here, "axolotl", "--no-flash-attention --no-sample-packing")
    on = start_run(here, "axolotl", "--flash-attention --sample-packing")
    assert get_value(on, "sequence.packing").value is True
    assert get_value(off, "sequence.packing").value is False
    assert get_value(off, "sequence.packing").origin.kind == "user"


def test_axolotl_reads_a_text_by_what_the_file_has_there(here):
    """Read `--gradient-checkpointing offload` over `true` as false, like any text but true, 1 and yes."""
    put(here, {"config.yaml": AXOLOTL + "gradient_checkpointing: true\n"})
    put(here, {"run.sh": "axolotl train config.yaml --gradient-checkpointing offload\n"})
    assert get_value(lint_run(here, "config.yaml"), "activations.checkpointing").value == "none"
    put(here, {"config.yaml": AXOLOTL})
    assert get_value(lint_run(here, "config.yaml"), "activations.checkpointing").value == "full"


def test_a_strict_file_of_axolotl_takes_only_what_it_has(here):
    put(here, {"config.yaml": AXOLOTL + "strict: true\n"})
    put(here, {"run.sh": "axolotl train config.yaml --micro-batch-size 4 --gradient-checkpointing true\n"})
    strict_run = lint_run(here, "config.yaml")
    assert get_value(strict_run, "batch.micro").value == 4
    assert get_value(strict_run, "activations.checkpointing").value == "none"


def test_a_companion_that_only_the_launch_names(here):
    put(here, {"ds.json": CONTRADICTED})
    started_run = start_run(here, "axolotl", "--deepspeed ds.json")
    assert list(started_run.inputs.companions) == ["deepspeed"]


def test_what_all_scripts_lay_over_a_file_but_differently_is_unknown(here):
    put(here, {"config.yaml": AXOLOTL})
    put(here, {"a.sh": "axolotl train config.yaml --micro-batch-size 2 --gradient-accumulation-steps 4\n"})
    put(here, {"b.sh": "axolotl train config.yaml --micro-batch-size 4 --gradient-accumulation-steps 4\n"})
    merged = lint_run(here, "config.yaml")
    assert get_value(merged, "batch.micro").value is None
    assert get_value(merged, "batch.accumulation").value == 4
    # One run uses the file as it is, and the findings are about that run.
    put(here, {"b.sh": "axolotl train config.yaml\n"})
    merged = lint_run(here, "config.yaml")
    assert get_value(merged, "batch.micro").value == 1
    assert get_value(merged, "batch.micro").origin.kind == "explicit"


def test_what_a_launch_gives_cannot_be_fixed_in_the_file(here):
    put(here, {"config.yaml": AXOLOTL + "deepspeed: ds.json\n", "ds.json": DEEPSPEED})
    put(here, {"run.sh": "axolotl train config.yaml --trust-remote-code\n"})
    outcome = run_cfglint("--isolated", "--select", "SEC001", "--fix", "--unsafe-fixes", "config.yaml", cwd=here)
    assert (here / "config.yaml").read_text() == AXOLOTL + "deepspeed: ds.json\n"
    assert "SEC001" in outcome.out
    assert outcome.err == "not fixed: run.sh: SEC001: trust_remote_code is set by run.sh\n"


@pytest.mark.parametrize(
    ("framework", "setting", "field", "expected"),
    [
        ("axolotl", "micro_batch_size=4", "batch.micro", 4),
        ("llamafactory", "learning_rate=1e-4", "optimizer.lr", 1e-4),
        ("llamafactory", "per_device_train_batch_size=4", "batch.micro", 4),
        ("olmo", "device_train_microbatch_size=4", "batch.micro", 4),
        ("olmo", "--device-train-microbatch-size=4", "batch.micro", 4),
        ("olmo_core", "train_module.rank_microbatch_size=4096", "batch.micro", 1),
    ],
)
def test_settings_of_the_command_line(here, framework, setting, field, expected):
    name, text, _ = LAUNCHES[framework]
    put(here, {name: text})
    set_run = lint_run(here, name, settings=(setting,))
    if field in set_run.resolved_plan.values or field != "optimizer.lr":
        assert get_value(set_run, field).value == expected
        assert get_value(set_run, field).origin.note == "--set"


def test_settings_of_the_command_line_stand_above_the_script(here):
    put(here, {"config.yaml": AXOLOTL, "run.sh": "axolotl train config.yaml --micro-batch-size 4\n"})
    assert get_value(lint_run(here, "config.yaml", settings=("micro_batch_size=2",)), "batch.micro").value == 2


def _yield_examples() -> Iterator[str]:
    """Yield up to three of the shipped configs per framework."""
    remaining: dict[str, int] = {}
    for path in sorted(FIXTURES.rglob("*")):
        if path.suffix in (".yaml", ".yml", ".json", ".py", ".sh") and "rules" not in path.parts:
            framework = path.relative_to(FIXTURES).parts[0]
            remaining[framework] = remaining.get(framework, 4) - 1
            if remaining[framework] > 0:
                yield str(path.relative_to(REPOSITORY))


@pytest.mark.slow
@pytest.mark.parametrize("path", list(_yield_examples()))
def test_no_lens_stumbles_over_an_unknown_override(path, here):
    """Let no rule crash and no plan field take a value, whatever setting a launch leaves unknown."""
    folder = shutil.copytree((REPOSITORY / path).parent, here / "x")
    path = os.path.basename(path)
    originals = lint_runs(folder, path)
    for main in originals[:1]:
        for route in {route for lens in main.framework.lenses for route in lens.keys if "*" not in route}:
            overrides = {route: Unknown("the launch")}
            options = LintOptions(command_line=CommandLine(overrides=overrides), settings=Settings(str(folder)))
            with change_directory(folder):
                result = dispatch.lint(dispatch.open_workspace(options), [path], options)
            assert [trouble for trouble in result.troubles if trouble.is_internal] == []
            for checked_run in result.runs:
                assert [
                    field for field, resolved in checked_run.resolved_plan if isinstance(resolved.value, Unknown)
                ] == []


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "release"),
    [
        ("--zero_stage 3", "0.10.1.post2"),
        ("--ds.zero_stage 3", "0.10.1.post2"),  # no release accepts it with --pretrain
        ("--flash_attn", None),
    ],
)
def test_an_openrlhf_script_is_read_at_the_release_that_its_flags_show(here, flags, release):
    put(here, {"run.sh": OPENRLHF.format(flags=flags)})
    script_run = lint_run(here, "run.sh")
    openrlhf = script_run.releases.by_package["openrlhf"]
    if release is not None:
        assert openrlhf.version == release
    if openrlhf.version != frameworks.load("openrlhf").default_release:
        has_conflict = "no release accepts all keys of the file" in openrlhf.origin.note
        assert has_conflict or "accepts" in openrlhf.origin.note
        assert openrlhf.origin.kind == ("assumed" if has_conflict else "inferred")
    # Companion packages have the releases that this release installs.
    assert (
        script_run.releases.get("deepspeed")
        == frameworks.load("openrlhf").list_installed(openrlhf.version)["deepspeed"]
    )


def test_a_stated_release_of_openrlhf_stands(here):
    put(here, {"run.sh": OPENRLHF.format(flags="--zero_stage 3")})
    openrlhf = lint_run(here, "run.sh", openrlhf="0.9.0").releases.by_package["openrlhf"]
    assert (openrlhf.version, openrlhf.origin.kind) == ("0.9.0", "user")


def test_each_invocation_of_a_script_has_its_own_release(here):
    dotted = OPENRLHF.replace("--pretrain", "--model.model_name_or_path").replace("--dataset", "--data.dataset")
    script = OPENRLHF.format(flags="--zero_stage 3") + dotted.format(flags="--ds.zero_stage 3")
    put(here, {"run.sh": script})
    assert [run.releases.get("openrlhf") for run in lint_runs(here, "run.sh")] == ["0.10.1.post2", "0.11.2"]


# --- files of other tools --------------------------------------------------------------------------------------------

# One file of each kind that is found next to training configs and may share some of their keys.
OTHERS = FIXTURES / "others"
EMPTY = "warning: no training config found in {} (--verbose says why)"
NAMES = sorted(str(path.relative_to(OTHERS)) for path in OTHERS.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_files_of_other_tools_are_passed_over(name):
    handed_over = run_cfglint("--isolated", "--force-exclude", name, cwd=OTHERS)
    assert (handed_over.code, handed_over.err, len(handed_over.lines)) == (0, "", 1)
    assert handed_over.lines == [EMPTY.format("1 file")]
    outcome = run_cfglint("--isolated", name, cwd=OTHERS)
    assert (outcome.code, outcome.err, outcome.lines[1:]) == (0, "", [EMPTY.format("1 file")])
    assert outcome.lines[0].startswith(f"{name}: not recognised as a training configuration (")
    verbose = run_cfglint("--isolated", "--verbose", name, cwd=OTHERS)
    assert verbose.code == 0
    assert verbose.err.startswith(f"not checked: {name}: ")
    assert len(verbose.err.removeprefix(f"not checked: {name}: ").strip()) > 10


def test_a_repository_of_all_sorts():
    outcome = run_cfglint("--isolated", "--verbose", ".", cwd=OTHERS)
    assert (outcome.code, outcome.out) == (0, EMPTY.format(f"{len(NAMES)} files") + "\n")
    assert sorted(line.split(": ")[1] for line in outcome.err.splitlines()) == NAMES
