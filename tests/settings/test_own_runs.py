"""The file of a user's own runs: what is read, what is refused, and that every command shows its effect."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cfglint_train import api, records
from cfglint_train.calibration.logs import Figure
from cfglint_train.calibration.record import record
from cfglint_train.front import action
from cfglint_train.models.lookup import find_entry
from cfglint_train.models.stated import format_architecture, parse_architecture
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.files import DISK
from cfglint_train.settings.own_runs import load_own_runs
from tests.support.command import run_cfglint
from tests.support.configs import PACKED_LORA

STATED = ("--gpu", "A100-80GB", "--gpus-per-node", "1", "--nodes", "1")
OPTIONS = api.Options(gpu="A100-80GB", gpus_per_node=1, nodes=1)
DEFAULT = Path(".cfglint", "measurements.jsonl")
NARROWED = records.OwnRuns(narrowed=3, widened=0)


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write_config(here: Path, micro: int, **changes: str) -> str:
    name = f"run-{micro}.yaml"
    texts = {"epochs": "1", "data": "tatsu-lab/alpaca", "out": "./out", **changes}
    (here / name).write_text(PACKED_LORA.format(micro=micro, **texts))
    return name


def estimate_step(here: Path, name: str) -> dict[str, records.Budget]:
    """Return the GPU budgets of a config by phase."""
    [run] = api.estimate(here / name, OPTIONS).runs
    return {phase.name: phase.gpu for phase in run.phases if phase.gpu is not None}


def record_run(here: Path, micro: int, factor: float = 1.0, is_bound: bool = False, **changes: str) -> None:
    """Record a run whose allocated peak is the estimate times `factor`."""
    [run] = api.estimate(here / write_config(here, micro, **changes), OPTIONS).raw.runs
    allocated = max(phase.gpu.allocated for phase in run.estimate.phases if phase.gpu is not None)
    record(run, [Figure("allocated", allocated * factor, "a test", is_bound=is_bound)], str(here / DEFAULT))


def test_three_runs_narrow_every_report_and_two_do_not(here):
    name = write_config(here, 4)
    published = estimate_step(here, name)
    for micro in (1, 2):
        record_run(here, micro)
        assert estimate_step(here, name) == published
    record_run(here, 2, epochs="3")  # the same set-up for the memory of a GPU
    assert estimate_step(here, name) == published
    record_run(here, 3)
    narrowed = estimate_step(here, name)
    step = ("forward", "backward", "optimizer step")
    for phase in step:
        assert narrowed[phase].own_runs == NARROWED
        assert published[phase].low <= narrowed[phase].low <= narrowed[phase].expected
        assert published[phase].expected == narrowed[phase].expected <= narrowed[phase].high
    assert narrowed["backward"].low > published["backward"].low
    assert narrowed["backward"].high < published["backward"].high
    for phase in published.keys() - set(step):
        assert narrowed[phase] == published[phase]
    words = "narrowed by 3 of your runs"
    for arguments in (("estimate",), ("estimate", "--output-format", "html"), ("check", "--output-format", "html")):
        assert words in run_cfglint(*arguments, name, *STATED, cwd=here).out
    small = ("--gpu", "A100-40GB", "--gpus-per-node", "1", "--nodes", "1")
    assert words in run_cfglint("fit", name, *small, cwd=here).out
    for form in ("text", "markdown"):
        assert words in run_cfglint("check", name, *small, "--output-format", form, cwd=here).out
    assert words not in run_cfglint("estimate", name, *STATED, "--isolated", cwd=here).out


def test_lint_estimate_and_fit_judge_by_the_narrowed_interval(here):
    name = write_config(here, 4)
    assert run_cfglint("estimate", name, *STATED, cwd=here).out.startswith("tight")
    for micro in (1, 2, 3, 4, 5):
        record_run(here, micro)
    assert run_cfglint("estimate", name, *STATED, cwd=here).out.startswith("fits")
    assert run_cfglint("fit", name, *STATED, cwd=here).out.startswith("fits")
    assert "MEM001" not in run_cfglint("check", name, *STATED, cwd=here).out


def test_runs_of_other_classes_and_frameworks_do_not_count(here):
    for micro in (1, 2, 3):
        record_run(here, micro)
    path = here / DEFAULT
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    name = write_config(here, 4)
    narrowed = estimate_step(here, name)["backward"].own_runs
    changes = (
        {"framework": "llamafactory"},
        {"plan": {**rows[0]["plan"], "method.quantization": "nf4"}},
    )
    for change in changes:
        path.write_text("".join(json.dumps({**row, **change}) + "\n" for row in rows))
        assert estimate_step(here, name)["backward"].own_runs is None
    assert narrowed == NARROWED


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_run_outside_of_its_interval_widens_it(here, factor):
    name = write_config(here, 4)
    published = estimate_step(here, name)["backward"]
    record_run(here, 1, factor)
    widened = estimate_step(here, name)["backward"]
    assert widened.own_runs == records.OwnRuns(narrowed=0, widened=1)
    assert widened.low <= published.low
    assert widened.high >= published.high
    assert widened.low <= widened.expected * max(factor, 1) <= widened.high + 1
    assert "widened by 1 of your runs" in run_cfglint("estimate", name, *STATED, cwd=here).out


def test_record_and_json_say_whether_an_edge_is_widened(here):
    """Counters have intervals of their own: a run below that of its counter may lie inside of that of the GPU."""
    for micro in (1, 2, 3):
        [run] = api.estimate(here / write_config(here, micro), OPTIONS).raw.runs
        peak = run.estimate.find_peak("gpu").gpu
        size = 0.999 * peak.get_bounds("allocated")[0]
        assert peak.low < peak.expected * size / peak.allocated
        recorded = record(run, [Figure("allocated", size, "a test")], str(here / DEFAULT))
    assert recorded.lines[1:] == (
        "  axolotl, single-adapters, untraced layers: the interval is narrowed by 3 of your runs",
        "  the lower edge is not narrowed: 3 of your runs lie below their own intervals",
    )
    [fit] = json.loads(run_cfglint("fit", f"run-{micro}.yaml", *STATED, "--output-format", "json", cwd=here).out)[
        "runs"
    ]
    assert fit["own_runs"] == {"narrowed": 3, "widened": 0}
    assert estimate_step(here, f"run-{micro}.yaml")["backward"].own_runs == NARROWED
    recorded = record(run, [Figure("allocated", 0.5 * size, "a test")], str(here / DEFAULT))
    assert recorded.lines[1:] == (
        "  axolotl, single-adapters, untraced layers: the interval is narrowed by 3 and widened by 3 of your runs",
        "  the lower edge is widened: 3 of your runs lie below their own intervals",
    )


def test_a_run_beyond_one_edge_leaves_the_other_edge_to_the_rest(here):
    name = write_config(here, 4)
    published = estimate_step(here, name)["backward"]
    for micro, factor in ((1, 0.7), (2, 1.0), (3, 1.0)):
        record_run(here, micro, factor)
    moved = estimate_step(here, name)["backward"]
    assert moved.own_runs == records.OwnRuns(narrowed=3, widened=1)
    assert moved.low < published.low
    assert moved.high < published.high
    said = run_cfglint("estimate", name, *STATED, cwd=here).out
    assert "narrowed by 3 and widened by 1 of your runs" in said


def test_what_ran_out_of_memory_only_widens(here):
    name = write_config(here, 4)
    published = estimate_step(here, name)
    for micro, factor in ((5, 0.9), (6, 0.6), (7, 1.0)):
        record_run(here, micro, factor, is_bound=True)
    assert {json.loads(line)["value_kind"] for line in (here / DEFAULT).read_text().splitlines()} == {"lower_bound"}
    assert estimate_step(here, name) == published
    record_run(here, 1, 1.5, is_bound=True)
    widened = estimate_step(here, name)
    assert widened["backward"].high > published["backward"].high
    assert widened["backward"].low == published["backward"].low


def test_the_order_of_rows_does_not_matter(here):
    for micro, factor in ((1, 1.02), (2, 0.98), (3, 1.01), (4, 0.99)):
        record_run(here, micro, factor)
    name = write_config(here, 5)
    lines = (here / DEFAULT).read_text().splitlines()
    narrowed = estimate_step(here, name)
    (here / DEFAULT).write_text("\n".join(lines[::-1]))
    assert estimate_step(here, name) == narrowed


GOOD = {
    "framework": "axolotl",
    "counter": "allocated",
    "measured_gib": 20,
    "plan": {"batch.micro": 1, "sequence.length": 512, "parallel.strategy": "none"},
    "model": "Qwen/Qwen2.5-7B",
    "capacity": 80 * 2**30,
}
SHAPE = format_architecture(find_entry("Qwen/Qwen2.5-7B"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ({"framework": "mine"}, "`framework` must be one of"),
        ({"framework": ["axolotl"]}, "`framework` must be one of"),
        ({"counter": "cached"}, "`counter` must be one of allocated, reserved, driver"),
        ({"value_kind": "upper_bound"}, "`value_kind` must be lower_bound"),
        ({"measured_gib": 0}, "`measured_gib` must be a positive number"),
        ({"measured_gib": True}, "`measured_gib` must be a positive number"),
        ({"measured_gib": float("nan")}, "`measured_gib` must be a positive number"),
        ({"plan": {}}, "`plan` must be an object"),
        ({"plan": {"batch.micr": 1}}, "unknown plan field batch.micr"),
        ({"plan": {"batch.micro": "x"}}, "batch.micro must be a whole number"),
        ({"plan": {"batch.micro": 1}}, "the row cannot be estimated"),
        ({"model": "nobody/nothing"}, "`model` must be a model that cfglint knows"),
        ({"shape": "large"}, "`shape` must be an object"),
        ({"shape": {**SHAPE, "layers": "28"}}, "layers must be a whole number"),
        ({"shape": {**SHAPE, "vocab": -5}}, "vocab must be a whole number"),
        ({"shape": {**SHAPE, "linears": [[1, 2]]}}, "`shape` is not a model"),
        ({"shape": {**SHAPE, "linears": [["q_proj", "a", 3, 4]]}}, "the row cannot be estimated"),
        ({"gpu": "Z9"}, "`gpu` must be a GPU that cfglint knows"),
        ({"capacity": -1}, "`capacity` must be the bytes of one GPU"),
    ],
)
def test_a_malformed_row_stops_every_command(here, line, reason):
    text = line if isinstance(line, str) else json.dumps({**GOOD, **line})
    (here / ".cfglint").mkdir()
    (here / DEFAULT).write_text(f"\n{text}\n")
    with pytest.raises(SettingsError, match=re.escape(reason)) as raised:
        load_own_runs(str(here / DEFAULT), DISK)
    assert ":2: " in str(raised.value)
    if reason.startswith("not"):
        name = write_config(here, 1)
        for command in ("check", "estimate", "fit"):
            outcome = run_cfglint(command, name, *STATED, cwd=here)
            assert outcome.code == 2
            assert f"{DEFAULT}:2: {reason}" in outcome.err


def test_rows_outside_the_repository_are_refused(here, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "rows.jsonl"
    elsewhere.write_text("")
    name = write_config(here, 1)
    (here / "cfglint.toml").write_text(f'measurements = "{elsewhere}"\n')
    outcome = run_cfglint("check", name, *STATED, cwd=here)
    assert outcome.code == 2
    assert "cfglint.toml:1:1: measurements points outside the repository" in outcome.err
    (here / "cfglint.toml").unlink()
    (here / ".cfglint").mkdir()
    (here / DEFAULT).symlink_to(elsewhere)
    outcome = run_cfglint("check", name, *STATED, cwd=here)
    assert outcome.code == 2
    assert "a link that points outside the repository" in outcome.err


@pytest.mark.parametrize("mark", ["", ".git", "cfglint.toml"])
def test_every_command_uses_the_file_that_record_writes(tmp_path, monkeypatch, mark):
    """Without a repository, too, the file does not depend on the folder that a command names."""
    folder = tmp_path / "project" / "configs" / "sub"
    folder.mkdir(parents=True)
    project = folder.parents[1]
    if mark == ".git":
        (project / mark).mkdir()
    elif mark:
        (project / mark).write_text("")
    monkeypatch.chdir(project)
    file = (project if mark else folder) / DEFAULT
    for micro in (1, 2, 3):
        name = os.path.join("configs", "sub", write_config(folder, micro))
        [run] = api.estimate(name, OPTIONS).raw.runs
        (project / "run.log").write_text(f"max_memory_allocated: {run.estimate.find_peak('gpu').gpu.allocated}\n")
        outcome = run_cfglint("calibrate", "record", name, "run.log", *STATED, cwd=project)
        assert outcome.out.startswith(f"{file.relative_to(project)}: 1 added")
    for argument in (name, "configs", os.path.join("configs", "sub"), ".", str(project), str(folder)):
        runs = [run for run in api.estimate(argument, OPTIONS).runs if run.path.endswith("run-3.yaml")]
        assert [phase.gpu.own_runs for run in runs for phase in run.phases if phase.name == "backward"] == [NARROWED]
        assert str(file) in action._find_used_settings(api.lint(argument, OPTIONS).raw, OPTIONS)


def test_the_setting_names_another_file_of_the_repository(here):
    for micro in (1, 2, 3):
        record_run(here, micro)
    shutil.move(here / ".cfglint", here / "evidence")
    name = write_config(here, 4)
    assert estimate_step(here, name)["backward"].own_runs is None
    (here / "cfglint.toml").write_text('measurements = "evidence/measurements.jsonl"\n')
    assert estimate_step(here, name)["backward"].own_runs == NARROWED


def test_without_a_file_nothing_is_imported(here):
    name = write_config(here, 4)
    code = (
        "import sys; from cfglint_train.front.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    )
    for arguments in (("check", name), ("estimate", name)):
        process = subprocess.run(
            [sys.executable, "-c", code, *arguments, *STATED], cwd=here, capture_output=True, text=True, check=True
        )
        assert "own_runs" not in process.stderr
        assert "cfglint_train.calibration" not in process.stderr


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-7B", "deepseek-ai/DeepSeek-V2-Lite", "google/gemma-3-4b-it", "tiiuae/Falcon-H1-7B-Base"]
)
def test_an_architecture_survives_its_object(name):
    architecture = find_entry(name)
    assert architecture is not None
    nameless = architecture._replace(id="", source="", folder="", whole_type="", remote_code=False)
    assert parse_architecture(json.loads(json.dumps(format_architecture(architecture)))) == nameless
