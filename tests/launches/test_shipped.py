"""DeepSpeed files bundled with a framework: used by name in place of files that a repository lacks."""

from __future__ import annotations

import json

import pytest
from tools import shipped as generator

from cfglint_train.documents.document import CannotEdit, Set
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.launches.bundled_files import find_bundled_file
from cfglint_train.runs.assumptions import list_assumptions
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL
from tests.support.linting import build_options, lint, list_runs

WITH = "deepspeed_configs/zero3_bf16.json"
LLAMAFACTORY = """\
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: full
dataset: alpaca
template: qwen
output_dir: out
deepspeed: examples/deepspeed/ds_z3_config.json
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


@pytest.mark.parametrize("name", sorted(generator.SHIPPERS))
def test_every_content_is_a_launchers_file_of_a_known_release(name):
    framework = frameworks.load(name)
    with open(f"{list_frameworks()[name].folder}/shipped.json", encoding="utf-8") as file:
        data = json.load(file)
    assert generator.SHIPPERS[name].source in data["source"]
    installed = name == "trl"  # trl's files are known by their bare names
    for path, rows in data["files"].items():
        assert installed or path.startswith(generator.SHIPPERS[name].folder)
        for row in rows:
            document = find_bundled_file(framework, path, row["since"])
            assert document is not None
            assert document.get_value() == row["content"]
            assert ("compute_environment" if installed else "train_micro_batch_size_per_gpu") in document.get_value()


def test_the_content_is_the_releases_own():
    axolotl = frameworks.load("axolotl")
    key = ("zero_optimization", "stage3_max_live_parameters")
    older, newer, oldest = (find_bundled_file(axolotl, WITH, release) for release in ("0.11.0", "0.21.0", "0.1.0"))
    assert older is not None
    assert newer is not None
    assert older.get_value(key) == 0
    assert not newer.get_value(key)
    assert newer.get_value(key) is not older.get_value(key)
    assert oldest is not None


@pytest.mark.parametrize("stated", [WITH, f"./{WITH}", f"/workspace/axolotl/{WITH}", f"../{WITH}"])
def test_the_path_may_lead_there_from_anywhere(stated):
    assert find_bundled_file(frameworks.load("axolotl"), stated, "0.21.0") is not None


@pytest.mark.parametrize("stated", ["zero3_bf16.json", "configs/zero3_bf16.json", f"my_{WITH}", f"{WITH}.bak"])
def test_another_path_is_no_file_of_the_framework(stated):
    assert find_bundled_file(frameworks.load("axolotl"), stated, "0.21.0") is None
    assert find_bundled_file(frameworks.load("olmo"), WITH, "0.6.0") is None


def test_nobody_can_edit_it():
    document = find_bundled_file(frameworks.load("axolotl"), WITH, "0.21.0")
    assert document is not None
    with pytest.raises(CannotEdit, match="not in this repository"):
        document.build_edits([Set(("zero_optimization", "stage"), 2)])


def test_the_run_is_estimated_under_an_assumption_that_names_the_file(here):
    (here / "train.yaml").write_text(f"{AXOLOTL}deepspeed: {WITH}\n")
    (run,) = list_runs(here)
    assert run.plan.parallel.zero_stage == 3
    assert run.companions == ()
    assert WITH in " ".join(ground.note for ground in list_assumptions(run))
    budget = json.loads(run_cfglint("estimate", "--isolated", "--format", "json", "train.yaml", cwd=here).out)
    assert any(WITH in note for note in budget["runs"][0]["assumptions"])


def test_a_file_of_the_repository_wins_and_is_no_assumption(here):
    (here / "deepspeed_configs").mkdir()
    (here / WITH).write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}')
    (here / "train.yaml").write_text(f"{AXOLOTL}deepspeed: {WITH}\n")
    (run,) = list_runs(here)
    assert run.plan.parallel.zero_stage == 2
    assert not any(ground.fact == "companion:deepspeed" for ground in list_assumptions(run))


def test_a_finding_points_at_the_name_and_is_assumed(here):
    (here / "sft.yaml").write_text(LLAMAFACTORY + "per_device_train_batch_size: 64\ncutoff_len: 8192\npacking: true\n")
    result = lint(here, build_options(("MEM", "XFL", "KEY", "PAR"), gpu="A100-40GB", nodes="1", gpus_per_node="8"))
    assert {finding.path for finding in result.findings} == {"sft.yaml"}
    (exceeded,) = (finding for finding in result.findings if finding.code == "MEM001")
    assert (exceeded.severity, exceeded.certainty) == ("warning", "assumed")
    assert any("examples/deepspeed/ds_z3_config.json" in note for note in exceeded.notes)
    assert [file.path for file in result.files] == ["sft.yaml"]


def test_the_same_finding_of_a_file_in_the_repository_is_certain(here):
    document = find_bundled_file(frameworks.load("llamafactory"), "examples/deepspeed/ds_z3_config.json", "0.9.5")
    assert document is not None
    (here / "examples" / "deepspeed").mkdir(parents=True)
    (here / "examples/deepspeed/ds_z3_config.json").write_bytes(document.source)
    (here / "sft.yaml").write_text(LLAMAFACTORY + "per_device_train_batch_size: 64\ncutoff_len: 8192\npacking: true\n")
    result = lint(here, build_options(("MEM001",), gpu="A100-40GB", nodes="1", gpus_per_node="8"))
    assert [finding.severity for finding in result.findings] == ["error"]


def test_the_generator_keeps_what_changes_and_says_when():
    files = [("0.2.0", {"a.json": {"x": 1}}), ("0.10.0", {}), ("0.9.0", {"a.json": {"x": 1}, "b.json": {"y": 2}})]
    table = json.loads(generator.format_table(files, "somewhere"))["files"]
    assert table["a.json"] == [{"since": "0.2.0", "content": {"x": 1}}, {"since": "0.10.0", "content": None}]
    assert table["b.json"] == [{"since": "0.9.0", "content": {"y": 2}}, {"since": "0.10.0", "content": None}]


WRITES = """\
if [ ! -f {path} ]; then
    cat > {path} << {end}
{{"zero_optimization": {{"stage": {stage}, "offload_optimizer": {{"device": "cpu"}}}}}}
EOF
fi
axolotl train config.yaml
"""


@pytest.mark.parametrize("path", [WITH, "/workspace/" + WITH, "./" + WITH, '"' + WITH + '"'])
def test_what_a_script_writes_counts_more_than_what_is_shipped(here, path):
    (here / "config.yaml").write_text(AXOLOTL + f"deepspeed: {WITH}\n")
    (here / "run.sh").write_text(WRITES.format(path=path, end="'EOF'", stage=3))
    [run] = list_runs(here)
    assert (run.plan.parallel.zero_stage, run.plan.parallel.offload_optimizer) == (3, "cpu")
    notes = [ground.note for ground in list_assumptions(run) if ground.fact == "companion:deepspeed"]
    assert notes == [f"`{WITH}` is the file that run.sh:2 writes; add it to the repository to be sure"]
    [document] = [config.document for config in run.inputs.companions.values()]
    with pytest.raises(CannotEdit):
        document.build_edits([Set(("zero_optimization", "stage"), 2)])


@pytest.mark.parametrize(
    "scripts",
    [
        [WRITES.format(path=WITH, end="EOF", stage="$STAGE")],
        [WRITES.format(path=WITH, end="EOF", stage=stage) for stage in (2, 3)],
        [WRITES.format(path=WITH, end="EOF", stage="]")],
    ],
    ids=["depends on the start", "two that differ", "broken"],
)
def test_what_a_script_writes_and_cannot_be_told_is_not_there(here, scripts):
    (here / "config.yaml").write_text(AXOLOTL + f"deepspeed: {WITH}\n")
    for number, text in enumerate(scripts):
        (here / f"{number}.sh").write_text(text)
    [run] = list_runs(here)
    assert run.inputs.companions == {}
    assert [finding.code for finding in lint(here).findings if finding.code == "CHK001"] == ["CHK001"]


def test_a_script_that_writes_another_file_changes_nothing(here):
    (here / "config.yaml").write_text(AXOLOTL + f"deepspeed: {WITH}\n")
    (here / "run.sh").write_text(WRITES.format(path="other.json", end="'EOF'", stage=2) + f"cat {WITH}\n")
    [run] = list_runs(here)
    assert "is the file that axolotl ships" in str(list_assumptions(run))
