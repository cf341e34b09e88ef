"""The Action on an untrusted pull request: its own steps, in a repository with files named like modules."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cfglint_train import api
from cfglint_train.calibration.logs import Figure
from cfglint_train.calibration.record import build_rows
from cfglint_train.settings.settings import MEASUREMENTS
from tests.front.test_action import (  # noqa: F401 (fixtures)
    STEPS,
    copy_action,
    lint,
    run_git,
    run_step,
    temporary,
    upstream,
    write_event,
    write_files,
)
from tests.hostile.test_audit import HOSTILE, INPUTS
from tests.hostile.test_forging import find_forged_commands
from tests.support import runner
from tests.support.configs import PACKED_LORA, TWICE
from tests.support.corpus import REPOSITORY
from tests.support.hostile import write_hostile_folder

TRAP = "import os\nopen(os.environ['TRAP'], 'w').write(__name__)\n"
MODULES = ("venv", "pip", "ensurepip", "site", "sitecustomize", "json", "yaml", "cfglint_train", "re", "os", "signal")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Create a checkout with module names, commands as names and keys, links that lead out, and all recorded inputs."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    write_hostile_folder(checkout)
    write_files(checkout, {name: text.replace("{outside}", str(tmp_path)) for name, text in HOSTILE.items()})
    write_files(checkout, {f"{name}.py": TRAP for name in MODULES})
    write_files(checkout, {f"{name}/__init__.py": TRAP for name in ("pip", "setuptools", "hatchling")})
    for path in sorted(INPUTS.glob("*")):
        shutil.copy(path, checkout / path.name)
    bare = f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {tmp_path}/trapped\n"
    bare += f'[remote "origin"]\n\turl = ext::touch {tmp_path}/trapped\n[protocol "ext"]\n\tallow = always\n'
    files = {"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": "", "config": bare, "a.yaml": TWICE}
    write_files(checkout, {f"bare/{name}": text for name, text in files.items()})
    (checkout / "report.sarif").symlink_to(tmp_path / "profile")
    run_git(checkout, "init", "--quiet")
    run_git(checkout, "add", "--all")
    run_git(checkout, "commit", "--quiet", "--message", "x")
    run_git(checkout, "commit", "--quiet", "--allow-empty", "--message", "y")
    return checkout


@pytest.mark.slow
def test_what_the_action_installs_stays_itself_on_a_hostile_checkout(hostile: Path, tmp_path: Path) -> None:
    """Run both steps of action.yml unchanged in the checkout."""
    action, home, trap = copy_action(tmp_path / "action"), tmp_path / "home", tmp_path / "trapped"
    home.mkdir()
    environment = {"TRAP": str(trap), "PYTHONPATH": str(hostile), "PYTHONSTARTUP": str(hostile / "os.py")}
    installed = run_step("Install cfglint", hostile, {}, environment, home, action)
    assert installed.code == 0, installed.output
    before = run_git(hostile, "status", "--porcelain")
    outcome = run_step("Lint", hostile, {"extra-args": "--no-cache"}, environment, home, action)
    assert outcome.code == 2
    assert not trap.exists(), trap.read_text()
    assert "please report it" not in outcome.output
    commands = [
        command for line in runner.split_lines(outcome.output) if (command := runner.parse_command(line)) is not None
    ]
    assert {command.name for command in commands} == {"error", "warning", "notice"}
    named = {command.properties["file"] for command in commands if "file" in command.properties}
    assert len(named) > 10
    assert {name for name in named if not (hostile / name).exists() and not re.search(r"\\x|# #", name)} == set()
    assert find_forged_commands(outcome.output) == []
    assert run_git(hostile, "status", "--porcelain") == before
    event = write_event(tmp_path, "push", "", before=run_git(hostile, "rev-parse", "HEAD^"))
    below = {"working-directory": "bare", "settings-from": "base", "extra-args": "--no-cache"}
    outcome = run_step("Lint", hostile, below, {**environment, **event}, home, action)
    assert outcome.code == 1, outcome.output
    assert not trap.exists()
    refused = run_step("Lint", hostile, {"sarif-file": "report.sarif"}, environment, home, action)
    assert refused.code == 2
    assert "report.sarif: a link that points outside the repository" in refused.output
    assert not (tmp_path / "profile").exists()


def test_every_python_of_the_action_is_isolated() -> None:
    for step in STEPS.values():
        for line in step["run"].splitlines():
            if 'python" ' in line:
                assert 'python" -I ' in line


REQUIREMENTS = REPOSITORY / ".github" / "requirements.txt"


def test_everything_that_the_action_installs_is_pinned_by_hashes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    requirements = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    entries = re.split(r"\n(?=\S)", REQUIREMENTS.read_text().strip())
    pinned = {Requirement(entry.partition("\\")[0]).name.lower(): entry for entry in entries}
    for requirement in map(Requirement, requirements):
        release = re.match(r"[\w-]+==([\w.]+)", pinned[requirement.name.lower()])
        assert release is not None
        assert requirement.specifier.contains(release[1])
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)
    commands = [line.strip() for line in STEPS["Install cfglint"]["run"].splitlines() if "pip" in line]
    assert commands[1:] == [
        'pip --require-hashes --only-binary :all: --requirement "$CFGLINT_ACTION/.github/requirements.txt"',
        'pip --no-deps --no-build-isolation -- "$package"',
    ]


@pytest.mark.slow
@pytest.mark.parametrize("changed", [True, False])
def test_the_settings_that_counted_are_named(upstream, tmp_path, lint, temporary, changed):  # noqa: F811
    settings = {"cfglint.toml": 'select = ["SYN"]\n'}
    base = {"a.yaml": TWICE, **({} if changed else settings)}
    commit = upstream.merge_pull_request(base, settings if changed else {"b.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", commit, depth=2)
    event = write_event(temporary, "pull_request", commit)
    outcome = lint(checkout, event, extra_args="--select\nSYN")
    assert "settings: cfglint.toml" in outcome.output
    assert ("changed by the change under test" in outcome.output) == changed


LAX, STRICT = 'select = ["SEC"]\n', 'select = ["SYN"]\n'
EXTENDING = {"cfglint.toml": 'extend = "shared.toml"\n', "shared.toml": STRICT}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "change", "removed", "told"),
    [
        pytest.param({"cfglint.toml": STRICT}, {"cfglint.toml": LAX}, (), "cfglint.toml", id="an edit"),
        pytest.param({}, {"cfglint.toml": LAX}, (), None, id="a new file"),
        pytest.param({"cfglint.toml": STRICT}, {"x.md": ""}, ("cfglint.toml",), "cfglint.toml", id="a removal"),
        pytest.param(EXTENDING, {"shared.toml": LAX}, (), "shared.toml", id="an edit of what is extended"),
        pytest.param({"cfglint.toml": STRICT}, {"sub/cfglint.toml": LAX}, (), None, id="a nearer file"),
    ],
)
def test_settings_of_the_base(upstream, tmp_path, lint, temporary, base, change, removed, told):  # noqa: F811
    commit = upstream.merge_pull_request(base, {"sub/a.yaml": TWICE, **change}, *removed)
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    event = write_event(temporary, "pull_request", commit)
    outcome = lint(
        checkout, event, extra_args="--select\nSYN,SEC" if not base else "", settings_from="base", fail_on="info"
    )
    assert "SYN003" in outcome.output
    assert outcome.code == 1
    if told is not None:
        assert f"settings: {told} from the base (" in outcome.output


TIGHT = PACKED_LORA.format(micro=4, epochs=1, data="tatsu-lab/alpaca", out="./out")


@pytest.mark.slow
def test_measurements_that_a_change_commits(upstream, tmp_path, lint, temporary):  # noqa: F811
    """They can hide a finding that rests on the interval; with `settings-from: base`, those of the base count."""
    rows = []
    for micro in (4, 1, 2, 3, 5):
        (tmp_path / "a.yaml").write_text(TIGHT.replace("size: 4", f"size: {micro}"))
        [run] = api.estimate(tmp_path / "a.yaml", api.Options(gpu="A100-80GB", nodes=1, gpus_per_node=1)).raw.runs
        allocated = run.estimate.find_peak("gpu").gpu.allocated
        rows.append(json.dumps(build_rows(run, [Figure("allocated", allocated, "a test")])[0]) + "\n")
    commit = upstream.merge_pull_request({"a.yaml": TIGHT, MEASUREMENTS: rows[0]}, {MEASUREMENTS: "".join(rows)})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    event = write_event(temporary, "pull_request", commit)
    arguments = "--gpu\nA100-80GB\n--nodes\n1\n--gpus-per-node\n1\n--select\nMEM001"
    for source, code, told in (
        ("base", 1, "from the base (changed by the change under test, which is ignored)"),
        ("checkout", 0, "(changed by the change under test: review it first)"),
    ):
        outcome = lint(checkout, event, extra_args=arguments, settings_from=source, fail_on="info")
        assert outcome.code == code, outcome.output
        assert f"settings: {MEASUREMENTS} {told}" in outcome.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "removed", "told"),
    [
        ({"shared.toml": LAX}, (), "shared.toml (changed by the change under test: review it first)"),
        ({"x.md": ""}, ("cfglint.toml",), "cfglint.toml (removed by the change under test: review it first)"),
    ],
)
def test_every_settings_file_that_changes_is_named(upstream, tmp_path, lint, temporary, change, removed, told):  # noqa: F811
    commit = upstream.merge_pull_request({"a.yaml": TWICE, **EXTENDING}, change, *removed)
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    assert f"settings: {told}" in lint(checkout, write_event(temporary, "pull_request", commit), extra_args="").output


def test_a_settings_file_of_the_base_that_became_a_link(upstream, tmp_path, lint, temporary):  # noqa: F811
    upstream.commit({"cfglint.toml": STRICT, "a.yaml": TWICE, "lax.toml": LAX})
    before = run_git(upstream.root, "rev-parse", "HEAD")
    (upstream.root / "cfglint.toml").unlink()
    (upstream.root / "cfglint.toml").symlink_to("lax.toml")
    commit = upstream.commit({})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    event = write_event(temporary, "push", commit, before=before)
    assert lint(checkout, event, extra_args="", settings_from="base", fail_on="info").code == 1
    assert lint(checkout, event, extra_args="", fail_on="info").code == 0


@pytest.mark.parametrize(
    ("name", "settings_from", "said"),
    [
        ("workflow_dispatch", "base", "settings-from: base: the event workflow_dispatch has no commits to compare"),
        ("push", "base", "settings-from: base: the event does not name the previous commit"),
        ("push", "main", "settings-from must be checkout or base, not main"),
    ],
)
def test_a_base_that_is_unknown_fails(upstream, tmp_path, lint, temporary, name, settings_from, said):  # noqa: F811
    commit = upstream.commit({"a.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    outcome = lint(checkout, write_event(temporary, name, commit), settings_from=settings_from)
    assert outcome.code == 2
    assert said in outcome.output


def test_a_pull_request_cannot_accept_its_own_findings(upstream, tmp_path, lint, temporary):  # noqa: F811
    entry = {"path": "a.yaml", "code": "SYN003", "line": "micro_batch_size: 2", "count": 1}
    empty, accepting = ({"version": 1, "findings": findings} for findings in ([], [entry]))
    base = {"cfglint.toml": 'baseline = "known.json"\n', "known.json": json.dumps(empty)}
    commit = upstream.merge_pull_request(base, {"a.yaml": TWICE, "known.json": json.dumps(accepting)})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    event = write_event(temporary, "pull_request", commit)
    checked = {"extra_args": "--select\nSYN", "fail_on": "info"}
    outcome = lint(checkout, event, settings_from="base", **checked)
    assert outcome.code == 1
    assert "settings: known.json from the base (" in outcome.output
    outcome = lint(checkout, event, **checked)
    assert outcome.code == 0
    assert "settings: known.json (changed by the change under test: review it first)" in outcome.output
