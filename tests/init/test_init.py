"""`cfglint init`: its findings, the files that it writes, and those that it leaves alone."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from cfglint_train.documents.document import CannotEdit
from cfglint_train.foundation import atomic, exchange
from cfglint_train.foundation.exchange import rename_new
from cfglint_train.front.init import hook, questions, settings_table, workflow
from cfglint_train.front.init.survey import Survey
from cfglint_train.settings.settings import load_settings
from cfglint_train.version import VERSION
from tests.support import command, runner
from tests.support.configs import AXOLOTL
from tests.support.linting import read_contents

REPOSITORY = Path(__file__).resolve().parents[2]
WRITTEN_FILES = [".github/workflows/cfglint.yml", ".pre-commit-config.yaml", "cfglint.toml"]

SLURM = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:h100:8
#SBATCH --mem=1000G
srun axolotl train config.yaml
"""
PROJECT = '[project]\nname = "x"\nversion = "1"\n'

REQUIREMENT = f"cfglint-train=={VERSION}"
ENTRY = hook.build_entry(REQUIREMENT)


def run_cfglint(*arguments: str | Path, cwd: Path, stdin: bytes = b"") -> command.Outcome:
    """Run the command with another source for `init`, because the installed package comes from a folder."""
    named = ("--source", f"=={VERSION}", "--no-check-source") if arguments[0] == "init" else ()
    return command.run_cfglint(*arguments, *named, cwd=cwd, stdin=stdin)


@pytest.fixture
def here(tmp_path) -> Path:
    """Create a repository with one configuration."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    return tmp_path


def list_files(folder: Path) -> list[str]:
    return [path for path in read_contents(folder) if path != "config.yaml"]


# --- written files ---------------------------------------------------------------------------------------------------


def test_everything_is_shown_and_written(here):
    before = read_contents(here)
    shown = run_cfglint("init", "--diff", cwd=here)
    assert (shown.code, shown.err) == (1, "nothing was written\n")
    assert read_contents(here) == before
    outcome = run_cfglint("init", "--yes", cwd=here)
    assert outcome.code == 0
    assert list_files(here) == WRITTEN_FILES
    assert outcome.out == shown.out + "".join(
        f"wrote {name}\n" for name in ("cfglint.toml", ".pre-commit-config.yaml", ".github/workflows/cfglint.yml")
    )
    again = run_cfglint("init", "--yes", cwd=here)
    assert again.code == 0
    assert again.lines[-4:] == [
        "Unchanged: cfglint.toml: it already exists",
        "Unchanged: .pre-commit-config.yaml: it already has the hook",
        "Unchanged: .github/workflows/cfglint.yml: it already runs cfglint",
        "Nothing to write.",
    ]
    assert {path: text for path, text in read_contents(here).items() if path in before} == before


def test_the_shown_diff_is_one_that_patch_takes(here, tmp_path):
    (here / ".pre-commit-config.yaml").write_bytes(b"repos:\n- repo: a\n  rev: b\n  hooks: [{id: c}]\n")
    (here / "pyproject.toml").write_text(PROJECT)
    shown = run_cfglint("init", "--diff", cwd=here)
    other = tmp_path / "other"
    other.mkdir()
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        (other / name).write_bytes((here / name).read_bytes())
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    patch = "\n".join(line for line in shown.lines if not re.match(r"[A-Z][a-z ]+: ", line)) + "\n"
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, text=True, cwd=other, check=True)
    assert run_cfglint("init", "-y", cwd=here).code == 0
    for name in (".pre-commit-config.yaml", "pyproject.toml", ".github/workflows/cfglint.yml"):
        assert (other / name).read_bytes() == (here / name).read_bytes()


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"YES\n", 0), (b"n\n", 1), (b"\n", 1), (b"", 1)])
def test_it_asks(here, answer, code):
    outcome = run_cfglint("init", cwd=here, stdin=answer)
    assert outcome.code == code
    assert outcome.err.startswith(f"Write 3 files below {here}? [y/N] ")
    assert list_files(here) == (WRITTEN_FILES if code == 0 else [])


def test_what_no_file_says_is_asked_and_written():
    survey = Survey("/x", {"axolotl": 1}, {"run.sh": ("nodes",)}, {}, ())
    replies = iter(["abacus\n", "H100\n", "0\n", "8\n", "loud\n", "error\n", "YES\n", "no\n"])
    prompts: list[str] = []

    def ask(question: str) -> str:
        prompts.append(question)
        return next(replies)

    answers = questions.ask_questions(survey, ask)
    assert answers == questions.Answers({"gpu": "H100", "gpus-per-node": "8"}, "error", True, False)
    assert [question.partition("[")[0][-14:].strip() for question in prompts].count("such as H100") == 2
    table = tomllib.loads("\n".join(settings_table.render_table(survey, "", answers)))
    assert (table["fail-on"], table["require-checked"], table["resumable"]) == ("error", True, False)
    assert table["hardware"] == {"gpu": "H100", "gpus-per-node": 8}


def test_empty_answers_keep_the_defaults(here):
    survey = Survey("/x", {}, {}, {}, ())
    assert questions.ask_questions(survey, lambda _: "\n") == questions.Answers()
    assert run_cfglint("init", "-y", cwd=here).code == 0
    loaded = load_settings(str(here / "cfglint.toml"))
    assert (loaded.fail_on, loaded.require_checked, loaded.resumable) == ("warning", False, True)
    assert 'fail-on = "warning"' in (here / "cfglint.toml").read_text()


def test_parts_can_be_left_out(here):
    assert run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here).code == 0
    assert list_files(here) == ["cfglint.toml"]


def test_it_writes_at_the_root_of_the_repository(here):
    (here / "a" / "b").mkdir(parents=True)
    assert run_cfglint("init", "-y", cwd=here / "a" / "b").code == 0
    assert list_files(here) == WRITTEN_FILES


def test_without_a_repository_the_folder_is_the_root(tmp_path):
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    assert run_cfglint("init", "-y", ".", cwd=tmp_path).code == 0
    assert list_files(tmp_path) == WRITTEN_FILES


def test_a_missing_folder_is_wrong_usage(tmp_path):
    outcome = run_cfglint("init", "nowhere", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (2, "cfglint: nowhere is not a folder\n")


def test_new_files_have_the_usual_permissions(here):
    before = os.umask(0o027)
    try:
        assert run_cfglint("init", "-y", cwd=here).code == 0
    finally:
        os.umask(before)
    assert {(here / name).stat().st_mode & 0o777 for name in WRITTEN_FILES} == {0o640}


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings_hold_what_was_found(here):
    (here / "cluster").mkdir()
    # The job starts its argument, so cfglint cannot know that it starts this configuration.
    (here / "cluster" / "job.sh").write_text(SLURM.replace("config.yaml", '"$1"'))
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 0
    settings = load_settings(str(here / "cfglint.toml"))
    assert settings.facts == {"gpu": "H100-80GB", "gpus-per-node": "8", "nodes": "4", "host-memory": "1000GiB"}
    assert "Hardware: gpu H100-80GB (cluster/job.sh:3)" in outcome.lines
    assert "Configurations: axolotl (1)" in outcome.lines
    assert run_cfglint("--output-format", "concise", cwd=here).code != 2


def test_what_a_launch_script_says_of_its_runs_is_not_said_again(here):
    (here / "train.sh").write_text(SLURM)
    outcome = run_cfglint("init", "-y", cwd=here)
    assert "Launch script: train.sh (nodes, gpus-per-node, host-memory)" in outcome.lines
    assert load_settings(str(here / "cfglint.toml")).facts == {"gpu": "H100-80GB"}
    assert "# nodes is read from train.sh, for the runs that it starts" in (here / "cfglint.toml").read_text()


def test_what_differs_is_left_to_people(here):
    for name, gpu in (("a", "h100"), ("b", "h200"), ("c", "h100")):
        (here / f"{name}.sh").write_text(f"#SBATCH --gres=gpu:{gpu}:8\nsrun python x.py\n")
    run_cfglint("init", "-y", cwd=here)
    text = (here / "cfglint.toml").read_text()
    assert '# gpu = "H100-80GB"  # a.sh:1, c.sh:1\n# gpu = "H200"  # b.sh:1\ngpus-per-node = 8' in text
    assert "gpu" not in load_settings(str(here / "cfglint.toml")).facts


def test_a_name_that_may_mean_two_cards_is_left_to_people(here):
    (here / "a.sh").write_text("#SBATCH --gres=gpu:a100:8\nsrun python x.py\n")
    run_cfglint("init", "-y", cwd=here)
    assert '# gpu = "A100-80GB"  # or "A100-40GB": a.sh:1' in (here / "cfglint.toml").read_text()


def test_every_commented_setting_is_one(here):
    run_cfglint("init", "-y", cwd=here)
    text = (here / "cfglint.toml").read_text()
    (here / "cfglint.toml").write_text(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    facts = load_settings(str(here / "cfglint.toml")).facts
    assert {"gpu", "gpus-per-node", "nodes", "host-memory", "disk", "axolotl"} <= set(facts)


def test_a_stated_release_is_reported(here):
    (here / "config.yaml").write_text("# cfglint: axolotl=0.18.0\n" + AXOLOTL)
    outcome = run_cfglint("init", "-y", cwd=here)
    assert "Release: axolotl 0.18.0 (pragma)" in outcome.lines
    assert "# axolotl 0.18.0: pragma" in (here / "cfglint.toml").read_text()


def test_a_pinned_release_is_reported_with_its_place_from_the_root(here):
    (here / "requirements.txt").write_text("axolotl==0.18.0\n")
    outcome = run_cfglint("init", "-y", cwd=here)
    assert "Release: axolotl 0.18.0 (requirements.txt:1)" in outcome.lines
    text = (here / "cfglint.toml").read_text()
    assert "# axolotl 0.18.0: requirements.txt:1" in text
    assert str(here) not in text


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [PROJECT, PROJECT.rstrip("\n"), PROJECT + "[tool.ruff]\nline-length = 100\n", "\ufeff" + PROJECT, "", "\n"],
)
def test_pyproject_is_only_added_to(here, text, newline):
    source = text.replace("\n", newline).encode()
    (here / "pyproject.toml").write_bytes(source)
    run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here)
    after = (here / "pyproject.toml").read_bytes()
    assert after.startswith(source)
    assert len(after) > len(source)
    if newline == "\r\n" and "\n" in text:
        assert b"\n" not in after.replace(b"\r\n", b"")
    assert load_settings(str(here / "pyproject.toml")).source is not None
    assert list_files(here) == ["pyproject.toml"]


@pytest.mark.parametrize(
    "text", ["tool = {ruff = {line-length = 100}}\n", "this is no TOML", "tool = 3\n", "[[tool]]\na = 1\n"]
)
def test_where_pyproject_takes_no_table_the_settings_stand_alone(here, text):
    (here / "pyproject.toml").write_text(text)
    run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here)
    assert (here / "pyproject.toml").read_text() == text
    assert list_files(here) == ["cfglint.toml", "pyproject.toml"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cfglint.toml", 'select = ["MEM"]\n'),
        (".cfglint.toml", ""),
        ("pyproject.toml", "[tool.cfglint]\n"),
        ("pyproject.toml", "[tool.cfglint.hardware]\ngpu = 'H100'\n"),
        ("pyproject.toml", "[tool]\ncfglint = {}\n"),
    ],
)
def test_settings_that_are_there_stay(here, name, text):
    (here / name).write_text(text)
    outcome = run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here)
    assert (outcome.code, outcome.lines[-1]) == (0, "Nothing to write.")
    assert (here / name).read_text() == text
    assert list_files(here) == [name]


# --- the hook --------------------------------------------------------------------------------------------------------


def test_the_hook_is_the_one_of_the_manifest():
    (shipped, _) = yaml.safe_load((REPOSITORY / "pre-commit-hooks.yaml").read_text())
    (entry_hook,) = ENTRY["hooks"]
    assert {key: value for key, value in entry_hook.items() if key != "additional_dependencies"} == {
        key: value for key, value in shipped.items() if key in entry_hook
    }
    assert not shipped.keys() - entry_hook.keys() - {"description", "minimum_pre_commit_version"}


def validate(source: bytes, folder: Path) -> dict:
    path = folder / "checked.yaml"
    path.write_bytes(source)
    process = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", str(path)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout
    return yaml.safe_load(source)


OTHER = {"repo": "https://example.org/a", "rev": "v1", "hooks": [{"id": "b"}]}


def test_a_new_hook_file(tmp_path):
    assert validate(hook.create_config(REQUIREMENT), tmp_path) == {"repos": [ENTRY]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            b"# ours\nrepos:\n- repo: https://example.org/a  # pinned\n  rev: v1\n  hooks:\n  - id: b\n",
            b"  rev: v1\n  hooks:\n  - id: b\n- repo: local\n",
        ),
        (
            b"repos:\n   - repo: https://example.org/a\n     rev: v1\n     hooks:\n       - id: b\nfail_fast: true\n",
            b"- id: b\n   - repo: local\n     hooks:\n       - id: cfglint\n",
        ),
        (b"repos: [{repo: 'https://example.org/a', rev: v1, hooks: [{id: b}]}]\n", b"{repo: local, hooks: ["),
        (
            b"repos:\r\n- repo: https://example.org/a\r\n  rev: v1\r\n  hooks: [{id: b}]\r\n",
            b"\r\n- repo: local\r\n  hooks",
        ),
        (b"repos:\n- repo: https://example.org/a\n  rev: v1\n  hooks: [{id: b}]", b"\n- repo: local\n  hooks:\n"),
    ],
)
def test_the_hook_is_added_to_the_repositories(tmp_path, source, expected):
    after = hook.append_hook(source, REQUIREMENT)
    assert expected in after
    assert validate(after, tmp_path)["repos"] == [OTHER, ENTRY]
    # Nothing is removed, and the order is kept.
    rest = iter(after)
    assert all(byte in rest for byte in source)
    assert hook.has_hook(after)
    if b"\r\n" in source:
        assert b"\n" not in after.replace(b"\r\n", b"")


def test_an_empty_list_of_repositories(tmp_path):
    after = hook.append_hook(b"repos: []\n", REQUIREMENT)
    assert validate(after, tmp_path) == {"repos": [ENTRY]}


@pytest.mark.parametrize("name", ["cfglint", "cfglint-fix"])
def test_a_hook_that_is_there_stays(name):
    assert hook.has_hook(f"repos:\n- repo: x\n  rev: y\n  hooks:\n  - id: {name}\n".encode())


@pytest.mark.parametrize("source", [b"", b"- a\n", b"repos: 3\n", b"repos: [", b"\xff", b"a: 1\n---\nb: 1\n"])
def test_a_file_that_takes_no_hook_is_left_alone(here, source):
    with pytest.raises(CannotEdit):
        hook.append_hook(source, REQUIREMENT)
    (here / ".pre-commit-config.yaml").write_bytes(source)
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 0
    assert any(line.startswith("Unchanged: .pre-commit-config.yaml: ") and "by hand" in line for line in outcome.lines)
    assert (here / ".pre-commit-config.yaml").read_bytes() == source


# --- the workflow ----------------------------------------------------------------------------------------------------


def test_the_workflow_is_valid(tmp_path):
    path = tmp_path / "cfglint.yml"
    path.write_text(workflow.render_workflow(REQUIREMENT))
    subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)], check=True
    )
    tree = yaml.safe_load(workflow.render_workflow(REQUIREMENT))
    assert tree["permissions"] == {}
    assert tree["jobs"]["cfglint"]["permissions"] == {"contents": "read"}


def test_the_workflow_pins_what_this_repository_pins():
    ours = "".join(path.read_text() for path in (REPOSITORY / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: (\S+@[0-9a-f]{40} # v\S+)", workflow.render_workflow(REQUIREMENT))
    assert len(used) == workflow.render_workflow(REQUIREMENT).count("uses:") == 2
    for action in used:
        assert action in ours


def test_a_workflow_that_runs_cfglint_stays(here):
    (here / ".github" / "workflows").mkdir(parents=True)
    (here / ".github" / "workflows" / "lint.yaml").write_text("jobs: {a: {steps: [{run: cfglint}]}}\n")
    outcome = run_cfglint("init", "-y", cwd=here)
    assert "Unchanged: .github/workflows/lint.yaml: it already runs cfglint" in outcome.lines
    assert not (here / workflow.NAME).exists()


def test_gitlab_gets_no_github_workflow(here):
    (here / ".gitlab-ci.yml").write_text("test: {script: [true]}\n")
    outcome = run_cfglint("init", "-y", cwd=here)
    assert any(line.startswith("Unchanged: .gitlab-ci.yml: ") for line in outcome.lines)
    assert not (here / ".github").exists()


# --- all or nothing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failure_leaves_everything_as_it_was(here, monkeypatch, failing):
    (here / ".pre-commit-config.yaml").write_text("repos: []\n")
    before = read_contents(here)
    calls = []

    def break_rename(really):
        def rename(source, target):
            calls.append(target)
            if len(calls) == failing:
                raise OSError(28, "No space left on device", target)
            really(source, target)

        return rename

    monkeypatch.setattr(os, "replace", break_rename(os.replace))
    monkeypatch.setattr(atomic, "rename_new", break_rename(atomic.rename_new))
    monkeypatch.setattr(atomic, "exchange", lambda *_: False)  # simulates a system without an atomic exchange
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert read_contents(here) == before
    assert not (here / ".github").exists()


@pytest.mark.parametrize("can", [True, False])
def test_a_file_that_appears_meanwhile_is_not_overwritten(here, monkeypatch, can):
    def create_before_rename(source, target):
        if target.endswith("cfglint.toml"):
            Path(target).write_text("theirs = 1\n")
        rename_new(source, target)

    monkeypatch.setattr(atomic, "rename_new", create_before_rename)
    if not can:  # simulates a system without an atomic rename to a new name
        monkeypatch.setattr(exchange, "_rename", lambda *_: errno.ENOSYS)
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 2
    assert "File exists" in outcome.err
    assert (here / "cfglint.toml").read_text() == "theirs = 1\n"
    assert list_files(here) == ["cfglint.toml"]


def test_a_link_is_not_followed_to_make_a_file(here, tmp_path):
    (here / "cfglint.toml").symlink_to(here / "nowhere")
    assert run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here).lines[-1] == "Nothing to write."
    assert not (here / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (".github", ""),
        (".github/workflows", ""),
        (".pre-commit-config.yaml", ".pre-commit-config.yaml"),
        ("pyproject.toml", "pyproject.toml"),
    ],
)
def test_nothing_is_made_behind_a_link_that_leads_out(here, tmp_path_factory, name, file):
    outside = tmp_path_factory.mktemp("outside")
    for target_name in (".pre-commit-config.yaml", "pyproject.toml"):
        (outside / target_name).write_text("")
    before = read_contents(outside)
    (here / name).parent.mkdir(exist_ok=True)
    (here / name).symlink_to(outside / file)
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 2
    assert "a link that points outside the repository" in outcome.err
    assert read_contents(outside) == before
    assert list_files(here) == [name for name in (file,) if name]


def test_releases_are_named_by_their_packages_and_once_each(here):
    """List LLaMA-Factory v1, a separate framework, under LLaMA-Factory's release."""
    (here / "config.yaml").write_text("model: org/model\ntrain_dataset: data.yaml\nmicro_batch_size: 1\n")
    for number, key in enumerate(("fsdp: [full_shard]", "flash_attn_rms_norm: true", "fsdp: [auto_wrap]")):
        (here / f"{number}.yaml").write_text(f"{AXOLOTL}{key}\n")
    outcome = run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here)
    assert outcome.code == 0
    lines = [line for line in (here / "cfglint.toml").read_text().splitlines() if line.startswith("# ")]
    assert sum(line.startswith("# llamafactory = ") for line in lines) == 1
    releases = [" ".join(line.split()[:3]) for line in outcome.lines if line.startswith("Release: ")]
    assert len(releases) == len(set(releases)) == 3


def test_the_settings_name_the_baseline(here):
    assert run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=here).code == 0
    path = here / "cfglint.toml"
    path.write_text(path.read_text().replace("# baseline", "baseline"))
    assert load_settings(str(path)).baseline == str(here / "cfglint-baseline.json")


def test_hostile_names_forge_nothing(here):
    folder = here / "::error::\x1b[31m##[group]\n::warning::x"
    folder.mkdir()
    (folder / "a\nnodes = 9.sh").write_text("#SBATCH --gres=gpu:h100:8\nsrun python x.py\n")
    outcome = run_cfglint("init", "-y", cwd=here)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert all(runner.parse_command(line) is None for line in runner.split_lines(outcome.out))
    assert load_settings(str(here / "cfglint.toml")).facts == {"gpu": "H100-80GB", "gpus-per-node": "8"}
    assert tomllib.loads((here / "cfglint.toml").read_text()) == {
        "fail-on": "warning",
        "require-checked": False,
        "resumable": True,
        "hardware": {"gpu": "H100-80GB", "gpus-per-node": 8},
        "releases": {},
    }


@pytest.mark.slow
def test_the_written_hook_runs(here, tmp_path_factory):
    """Build the hook's environment with pre-commit itself, with this release as the index's release."""
    wheels = tmp_path_factory.mktemp("wheels")
    copy = tmp_path_factory.mktemp("source") / "cfglint"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(copy)], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(wheels), str(copy)]
    subprocess.run(pip, check=True)
    (here / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    (here / "config.yaml").write_text(AXOLOTL + "micro_batch_size: 2\n")
    assert run_cfglint("init", "-y", cwd=here).code == 0
    subprocess.run(["git", "add", "-A"], cwd=here, check=True)
    environment = {
        **os.environ,
        "PIP_FIND_LINKS": str(wheels),
        "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("cache")),
    }
    process = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files"],
        cwd=here, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 1, process.stdout + process.stderr
    assert "config.yaml:10:1: warning SYN003" in process.stdout
