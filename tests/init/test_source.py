"""The source from which the written hook and workflow install cfglint."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cfglint_train.foundation.errors import UsageError
from cfglint_train.front.init import changes, hook, source, workflow
from cfglint_train.front.init.questions import Answers
from cfglint_train.front.init.survey import survey_repository
from cfglint_train.version import VERSION
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

COMMIT = "0" * 40
GIT = {"url": "https://github.com/acme/cfglint", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


def set_origin(monkeypatch, direct_url: dict | None) -> None:
    """Simulate an installation of the package from a URL, or from an index."""

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if direct_url is None else json.dumps(direct_url)

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, f"cfglint-train=={VERSION}"),
        (GIT, f"cfglint-train @ git+https://github.com/acme/cfglint@{COMMIT}"),
        (
            {**GIT, "url": "https://user:secret@git.acme.example/cfglint.git"},
            f"cfglint-train @ git+https://git.acme.example/cfglint.git@{COMMIT}",
        ),
        (
            {**GIT, "url": "ssh://git@acme.example/cfglint"},
            f"cfglint-train @ git+ssh://git@acme.example/cfglint@{COMMIT}",
        ),
        (
            {
                "url": "https://acme.example/cfglint_train-1-py3-none-any.whl",
                "archive_info": {"hashes": {"sha256": "ab"}},
            },
            "cfglint-train @ https://acme.example/cfglint_train-1-py3-none-any.whl#sha256=ab",
        ),
        ({"url": "https://acme.example/c.whl", "archive_info": {}}, "cfglint-train @ https://acme.example/c.whl"),
    ],
)
def test_where_this_one_came_from(monkeypatch, stated, expected):
    set_origin(monkeypatch, stated)
    assert source.build_requirement(None) == expected


@pytest.mark.parametrize(
    "stated",
    [
        {"url": "file:///home/me/cfglint", "dir_info": {"editable": True}},
        {"url": "file:///home/me/cfglint", "dir_info": {}},
        {"url": "file:///tmp/cfglint_train-1-py3-none-any.whl", "archive_info": {}},
        {"url": "file:///srv/git/cfglint", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        {"url": "https://acme.example/$(reboot)", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
    ],
)
def test_what_others_cannot_install(monkeypatch, stated):
    set_origin(monkeypatch, stated)
    assert source.build_requirement(None) == source.PLACEHOLDER


def test_a_placeholder_is_filled_in_later(tmp_path):
    (tmp_path / ".git").mkdir()
    address = "git+https://example.com/a/cfglint@0123456"
    changes.write_changes(changes.plan_changes(survey_repository(str(tmp_path)), Answers(), lambda: source.PLACEHOLDER))
    assert changes.plan_changes(survey_repository(str(tmp_path)), Answers(), lambda: source.PLACEHOLDER).changes == ()
    changes.write_changes(
        changes.plan_changes(survey_repository(str(tmp_path)), Answers(), lambda: f"cfglint-train @ {address}")
    )
    for name in (".pre-commit-config.yaml", ".github/workflows/cfglint.yml"):
        text = (tmp_path / name).read_text()
        assert address in text
        assert "@ SOURCE" not in text


def test_a_copy_from_a_clone_shows_everything_and_the_line_to_fill_in(tmp_path, monkeypatch):
    set_origin(monkeypatch, {"url": "file:///home/me/cfglint", "dir_info": {}})
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint("init", "-y", cwd=tmp_path)
    assert outcome.code == 0
    for name in (hook.NAME, workflow.NAME):
        lines = (tmp_path / name).read_text().splitlines()
        (line,) = [number for number, text in enumerate(lines, 1) if source.PLACEHOLDER in text]
        assert f"{name}:{line}: replace SOURCE with an address" in outcome.err
    filled = (tmp_path / hook.NAME).read_text().replace("cfglint-train @ SOURCE", "cfglint-train==9.9")
    assert filled.encode() == hook.create_config("cfglint-train==9.9")


@pytest.mark.parametrize(
    "given", ["==0.2", "git+https://github.com/acme/cfglint@v1", "https://a.example/c.whl#sha256=0f"]
)
def test_a_named_source(given):
    wanted = source.build_requirement(given)
    assert wanted.endswith(given)
    assert wanted.encode() in hook.create_config(wanted)
    assert (wanted in workflow.render_workflow(wanted)) == ("@v1" not in given)  # there the action installs itself


@pytest.mark.parametrize(
    "given", ["", "cfglint", ".", "/cfglint", "git+file:///x", "==1; rm", "git+https://a/$(b)", "== 1"]
)
def test_no_source(given):
    with pytest.raises(UsageError, match="expected git"):
        source.build_requirement(given)


def test_nothing_is_written_where_the_source_cannot_be_used(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint("init", "-y", "--source", "nonsense", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "config.yaml"]
    # Settings alone require no source.
    assert run_cfglint("init", "-y", "--no-workflow", "--no-pre-commit", cwd=tmp_path).code == 0


@pytest.mark.slow
def test_pip_is_asked(tmp_path, monkeypatch):
    """Reject a git repository without cfglint; accept a repository with a package of that name."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    package = tmp_path / "cfglint_train"
    package.mkdir()
    (package / "__init__.py").write_text("")
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-C", str(tmp_path)]
    subprocess.run(["git", *names, "add", "-A"], check=True)
    subprocess.run(["git", *names, "commit", "-qm", "a"], check=True)
    wanted = f"cfglint-train @ git+file://localhost{Path(tmp_path).as_posix()}"
    with pytest.raises(UsageError, match=r"cannot be installed: .*pass --source"):
        source.check_installable(wanted)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cfglint-train"\nversion = "1"\n')
    subprocess.run(["git", *names, "add", "-A"], check=True)
    subprocess.run(["git", *names, "commit", "-qm", "b"], check=True)
    source.check_installable(wanted)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="--no-check-source"):
        source.check_installable(wanted)


def test_a_repository_without_a_commit_is_pinned_to_the_one_that_it_has(tmp_path):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-C", str(tmp_path)]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", *names, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    commit = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    wanted = f"cfglint-train @ git+file://localhost{tmp_path.as_posix()}"
    assert source.pin_commit(wanted) == f"{wanted}@{commit}"
    assert source.pin_commit(f"{wanted}@v1") == f"{wanted}@v1"
    for other in (f"cfglint-train=={VERSION}", "cfglint-train @ https://a.example/c.whl"):
        assert source.pin_commit(other) == other
    assert source.pin_commit("cfglint-train @ git+ssh://git@acme.example/c@v2").endswith("c@v2")
    with pytest.raises(UsageError, match=r"cannot determine its commit: .*pass --source"):
        source.pin_commit(f"{wanted}/nowhere")


def test_uv_is_asked_where_there_is_no_pip(tmp_path, monkeypatch):
    """Use uv for the environments of `uv tool`, which have no pip."""
    (tmp_path / "python").write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    (tmp_path / "uv").write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\nexec sh {tmp_path}/answer\n')
    for name in ("python", "uv"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "answer").write_text("exit 0\n")
    source.check_installable("cfglint-train==1")
    arguments = (tmp_path / "asked").read_text().split()
    assert (arguments[:2], arguments[-1]) == (["pip", "install"], "cfglint-train==1")
    assert {"--dry-run", str(tmp_path / "python")} <= set(arguments)
    (tmp_path / "answer").write_text(
        "echo '  x Failed to resolve' >&2; echo '  fatal: repository not found' >&2; exit 1\n"
    )
    with pytest.raises(UsageError, match=r"cannot be installed: fatal: repository not found; pass --source"):
        source.check_installable("cfglint-train==1")


@pytest.mark.parametrize(
    ("requirement", "home", "step"),
    [
        (f"cfglint-train @ git+https://github.com/acme/cfglint@{COMMIT}", "", f"- uses: acme/cfglint@{COMMIT}\n"),
        ("cfglint-train @ git+https://github.com/acme/cfglint.git@v1.2", "", "- uses: acme/cfglint@v1.2\n"),
        (
            "cfglint-train==1.2",
            "https://github.com/acme/cfglint",
            f'- uses: acme/cfglint@v{VERSION}\n        with:\n          source: "cfglint-train==1.2"\n',
        ),
        (
            "cfglint-train @ git+https://git.acme.example/cfglint@v1",
            "https://github.com/acme/cfglint",
            f"- uses: acme/cfglint@v{VERSION}\n        with:\n"
            '          source: "cfglint-train @ git+https://git.acme.example/cfglint@v1"\n',
        ),
        ("cfglint-train==1.2", None, 'run: python -m pip install "cfglint-train==1.2"'),
        ("cfglint-train==1.2", "https://git.acme.example/cfglint", 'run: python -m pip install "cfglint-train==1.2"'),
        ("cfglint-train @ git+https://github.com/acme/cfglint", "", "run: python -m pip install"),
    ],
)
def test_the_workflow_runs_the_action_where_one_is_known(requirement, home, step):
    assert step in workflow.render_workflow(requirement, home)
    assert ("pip install" in workflow.render_workflow(requirement, home)) == step.startswith("run:")
