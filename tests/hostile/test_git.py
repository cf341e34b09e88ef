"""git on hostile checkouts: no folder, configuration, submodule or attribute of a checkout starts a program.

Each test first shows that its attack works with plain git: a test that cannot fail proves nothing.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.roots import Roots
from cfglint_train.front import base_settings, git_changes
from cfglint_train.front.git import GitError
from cfglint_train.front.init import source
from tests.front.test_action import STEPS, Upstream, lint, run_git, temporary, write_event, write_files  # noqa: F401 (fixtures)
from tests.support.configs import TWICE
from tests.support.corpus import REPOSITORY

LAX, STRICT = 'select = ["SEC"]\n', 'select = ["SYN"]\n'
EVIL = '[core]\n\tsshCommand = {spy}\n\tfsmonitor = {spy}\n[remote "origin"]\n\turl = ssh://127.0.0.1:1/x\n'
BARE = {
    "train/HEAD": "ref: refs/heads/main\n",
    "train/objects/x": "",
    "train/refs/x": "",
    "train/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {spy}\n"
    '[remote "origin"]\n\turl = ext::{spy}\n[protocol "ext"]\n\tallow = always\n',
}


class Scene(NamedTuple):
    """A pull request, how to check it out, and a program that leaves a trace."""

    root: Path
    upstream: Upstream
    commit: str
    spy: Path
    trace: Path

    def check_out(self, name: str) -> Path:
        return self.upstream.check_out(self.root / name, self.commit)

    def detect_start(self) -> bool:
        """Return whether the program was started, and remove its trace."""
        is_started = self.trace.exists()
        self.trace.unlink(missing_ok=True)
        return is_started


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    spy, trace = tmp_path / "spy", tmp_path / "trace"
    spy.write_text(f'#!/bin/sh\necho "$*" >> "{trace}"\nexit 1\n')
    spy.chmod(0o755)
    upstream = Upstream(tmp_path / "upstream")
    change = {name: text.replace("{spy}", str(spy)) for name, text in BARE.items()}
    change |= {"cfglint.toml": LAX, "evil.config": EVIL.replace("{spy}", str(spy)), ".gitattributes": "* diff=spy\n"}
    commit = upstream.merge_pull_request({"cfglint.toml": STRICT, "train/a.yaml": TWICE}, change)
    return Scene(tmp_path, upstream, commit, spy, trace)


def use_git(scene: Scene, folder: Path, workspace: Path | str) -> list[str]:
    """Use git in every way that the Action does, and return what the base's settings select or why it is unknown."""
    event = write_event(scene.root, "pull_request", scene.commit)
    private = scene.root / "private"
    private.mkdir()
    try:
        changes = git_changes.find_changes(str(folder), {**event, "GITHUB_WORKSPACE": str(workspace)}, str(private))
        files = base_settings.list_commit_files(changes.repository, changes.base)
        assert any(changes.find_changed_lines([os.path.join(changes.repository.root, "train/config")]).values())
        return [files.read(os.path.join(changes.repository.root, "cfglint.toml")).decode()]
    except GitError as reason:
        return [str(reason)]
    finally:
        shutil.rmtree(private)


def run_plain_git(folder: Path, *arguments: str) -> None:
    """Run git without any protection."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=False, timeout=60)


FETCH = ("fetch", "--depth=2", "origin", "HEAD")
SETTINGS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "a command of ssh": ({"core.sshCommand": "{spy}", "remote.origin.url": "ssh://127.0.0.1:1/x"}, FETCH),
    "a transport": ({"remote.origin.url": "ext::{spy}", "protocol.ext.allow": "always"}, FETCH),
    "a transport by its name": (
        {"remote.origin.vcs": "ext", "remote.origin.url": "{spy}", "protocol.ext.allow": "always"},
        FETCH,
    ),
    "another address": ({"url.ext::{spy} .insteadOf": "file:", "protocol.ext.allow": "always"}, FETCH),
    "a proxy": ({"core.gitProxy": "{spy}", "remote.origin.url": "git://127.0.0.1:1/x"}, FETCH),
    "the other end": ({"remote.origin.uploadpack": "{spy}"}, FETCH),
    "a hook": ({"core.hooksPath": "{root}/hooks"}, ("update-ref", "refs/heads/x", "HEAD")),
    "a monitor": ({"core.fsmonitor": "{spy}"}, ("diff", "HEAD")),
    "an external diff": ({"diff.external": "{spy}"}, ("diff", "HEAD", "--", "train/a.yaml")),
    "a driver of attributes": ({"diff.spy.textconv": "{spy}"}, ("show", "HEAD:train/a.yaml", "--textconv")),
    "a filter": ({"filter.spy.smudge": "{spy}"}, ("checkout", "HEAD", "--", "train/a.yaml")),
    "another repository's references": ({"core.alternateRefsCommand": "{spy}"}, FETCH),
    "a file that is included": ({"include.path": "{checkout}/evil.config"}, FETCH),
    "a file that is included for this folder": ({"includeIf.gitdir:**/.git.path": "{checkout}/evil.config"}, FETCH),
    "the other work tree": ({"core.worktree": "{checkout}/train", "core.fsmonitor": "{spy}"}, ("status",)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_of_a_checkout_starts_a_program(scene: Scene, name: str) -> None:
    settings, control = SETTINGS[name]
    (scene.root / "hooks").mkdir()
    (scene.root / "hooks" / "reference-transaction").symlink_to(scene.spy)
    elsewhere = Upstream(scene.root / "elsewhere")
    elsewhere.commit({"x": ""})

    def create_checkout(folder: str) -> Path:
        checkout = scene.check_out(folder)
        (checkout / ".git/objects/info/alternates").write_text(f"{elsewhere.root}/.git/objects\n")
        (checkout / ".git/info/attributes").write_text("* filter=spy diff=spy\n")
        (checkout / "train/a.yaml").write_text("changed: 1\n")
        for key, value in settings.items():
            values = {"spy": str(scene.spy), "root": str(scene.root), "checkout": str(checkout)}
            run_git(checkout, "config", key.format(**values), value.format(**values))
        return checkout

    run_plain_git(create_checkout("control"), *control)
    assert scene.detect_start(), "git itself no longer does this: the test proves nothing"
    checkout = create_checkout("checkout")
    before = read_files(checkout / ".git")
    [answer] = use_git(scene, checkout / "train", checkout)
    assert not scene.detect_start()
    assert answer == STRICT or "set `fetch-depth` of actions/checkout" in answer
    assert read_files(checkout / ".git") == before


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_looks_like_a_repository_is_none(scene: Scene) -> None:
    run_plain_git(scene.check_out("control") / "train", "fetch", "origin")
    assert scene.detect_start()
    checkout = scene.check_out("checkout")
    for workspace in (str(checkout), ""):
        assert use_git(scene, checkout / "train", workspace) == [STRICT]
    assert not scene.detect_start()


def test_a_worktree(scene: Scene) -> None:
    main = scene.check_out("main")
    tree = scene.root / "tree"
    run_git(main, "worktree", "add", "--detach", str(tree), scene.commit)
    run_git(main, "config", "extensions.worktreeConfig", "true")
    run_git(tree, "config", "--worktree", "core.fsmonitor", str(scene.spy))
    run_plain_git(tree, "status")
    assert scene.detect_start()
    assert use_git(scene, tree / "train", tree) == [STRICT]
    assert not scene.detect_start()


def test_of_a_submodule_the_repository_around_it_counts(scene: Scene) -> None:
    """Ask the outer repository, also when a change turns a folder into a submodule."""
    inner = Upstream(scene.root / "inner")
    inner.commit({"a.yaml": TWICE, "cfglint.toml": LAX})
    checkout = scene.check_out("checkout")
    run_git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", str(inner.root), "module")
    run_git(checkout / "module", "config", "core.fsmonitor", str(scene.spy))
    run_plain_git(checkout / "module", "status")
    assert scene.detect_start()
    assert use_git(scene, checkout / "module", checkout) == [STRICT]
    assert not scene.detect_start()


def test_a_link_does_not_lead_to_another_repository(scene: Scene) -> None:
    checkout = scene.check_out("checkout")
    (checkout / "away").symlink_to(scene.upstream.root)
    [reason] = use_git(scene, checkout / "away", checkout)
    assert reason == "the working directory is outside of GITHUB_WORKSPACE"


def test_the_step_reads_nothing_outside_of_the_workspace(scene: Scene, lint, tmp_path: Path) -> None:  # noqa: F811
    checkout = scene.check_out("checkout")
    write_files(tmp_path / "outside", {"a.yaml": TWICE})
    (checkout / "away").symlink_to(tmp_path / "outside")
    outcome = lint(checkout, working_directory="away")
    assert outcome.code == 2
    assert "outside of GITHUB_WORKSPACE" in outcome.output
    assert "a.yaml" not in outcome.output
    assert outcome.summary == ""
    (checkout / "link").symlink_to("train")
    assert "a.yaml" in lint(checkout, working_directory="link").output


def test_a_checkout_of_another_user_is_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the checkout of another user: in a job's container, it belongs to the runner's user."""
    checkout = scene.upstream.check_out(scene.root / "checkout", scene.commit, depth=2)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # a switch of git's own tests
    with pytest.raises(AssertionError, match="dubious ownership"):
        run_git(checkout, "status")
    assert use_git(scene, checkout, checkout) == [STRICT]


def test_no_folder_of_a_change_is_the_root_of_a_repository(scene: Scene) -> None:
    """Ignore a `.hg` folder, which git lets a change add.

    Otherwise, pins, scripts and companions of the repository would not count below it.
    """
    checkout = scene.check_out("checkout")
    write_files(checkout, {"train/.hg/requires": "", "train/a.yaml": ""})
    run_git(checkout, "add", "train/.hg/requires")
    inside = str(checkout / "train" / "a.yaml")
    assert Roots().find_root(inside) == (str(checkout), True)
    assert filesystem.find_repository(inside) == str(checkout)
    shutil.rmtree(checkout / ".git")
    assert Roots().find_root(inside) == (str(checkout / "train"), True)
    assert filesystem.find_repository(inside) == str(checkout / "train")


class Host(HTTPServer):
    """A host that requests a password for everything and records the credentials that it receives."""

    credentials: list[str | None]


class PasswordHandler(BaseHTTPRequestHandler):
    """HTTP handler that requests a password."""

    server: Host

    def do_GET(self) -> None:
        self.server.credentials.append(self.headers["Authorization"])
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Host]:
    server = Host(("127.0.0.1", 0), PasswordHandler)
    server.credentials = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("layout", ["in the configuration", "in a file that it includes"])
def test_a_token_is_sent_and_no_helper_asked(scene: Scene, host: Host, layout: str) -> None:
    """Read the token where `actions/checkout` keeps it: in `.git/config` until release 5, in a separate file since."""
    address = f"http://127.0.0.1:{host.server_port}"
    token_file = scene.root / "credentials.config"

    def create_checkout(folder: str) -> Path:
        checkout = scene.check_out(folder)
        config = checkout / ".git" / "config" if layout == "in the configuration" else token_file
        run_git(checkout, "config", "--file", str(config), f"http.{address}/.extraheader", "AUTHORIZATION: basic abc=")
        run_git(checkout, "config", f"includeIf.gitdir:{checkout}/.git.path", str(token_file))
        run_git(checkout, "remote", "set-url", "origin", f"{address}/x.git")
        for key in ("credential.helper", f"credential.{address}.helper", "core.askPass"):
            run_git(checkout, "config", key, str(scene.spy))
        return checkout

    run_plain_git(create_checkout("control"), *FETCH)
    assert scene.detect_start()
    assert "basic abc=" in host.credentials
    host.credentials.clear()
    checkout = create_checkout("checkout")
    [reason] = use_git(scene, checkout, checkout)
    assert "set `fetch-depth` of actions/checkout" in reason
    assert set(host.credentials) == {"basic abc="}
    assert not scene.detect_start()


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_what_is_missing_is_fetched_from_a_partial_checkout(tmp_path: Path, form: str) -> None:
    """Fetch missing content: for a sparse checkout, `actions/checkout` fetches none of other folders."""
    upstream = Upstream(tmp_path / "upstream")
    shutil.rmtree(upstream.root / ".git")
    run_git(upstream.root, "init", "--quiet", "--initial-branch", "main", f"--object-format={form}")
    for key in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        run_git(upstream.root, "config", key, "true")
    commit = upstream.merge_pull_request({"cfglint.toml": STRICT, "train/config": "a"}, {"train/config": "b"})
    checkout = tmp_path / "checkout"
    run_git(
        tmp_path,
        "clone",
        "--quiet",
        "--depth=1",
        "--filter=blob:none",
        "--no-checkout",
        f"file://{upstream.root}",
        str(checkout),
    )
    run_git(checkout, "sparse-checkout", "set", "none")
    run_git(checkout, "update-ref", "--no-deref", "HEAD", commit)
    event = write_event(tmp_path, "pull_request", commit)
    (tmp_path / "private").mkdir()
    changes = git_changes.find_changes(str(checkout), event, str(tmp_path / "private"))
    files = base_settings.list_commit_files(changes.repository, changes.base)
    assert files.read(f"{checkout}/cfglint.toml").decode() == STRICT


def test_init_finds_no_program_settings_or_module_in_the_folder(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask pip, uv and git about a source while an untrusted folder is the working directory."""
    folder = scene.check_out("checkout") / "train"
    write_files(folder, {"pip.py": f"open({str(scene.trace)!r}, 'w')\n", "pip/__main__.py": ""})
    for name in ("git", "uv"):
        shutil.copy(scene.spy, folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", os.pathsep.join((".", "", os.environ["PATH"])))
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    assert scene.detect_start()
    subprocess.run(["git", "--version"], capture_output=True, check=False)
    assert scene.detect_start()
    run_plain_git(folder, "fetch", "origin")
    assert scene.detect_start()
    wanted = f"cfglint-train @ git+file://localhost{scene.upstream.root}"
    head = run_git(scene.upstream.root, "rev-parse", "HEAD")
    assert source.pin_commit(wanted) == f"{wanted}@{head}"
    source.check_installable("pip")
    assert not scene.detect_start()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a bare repository", "a submodule", "a worktree"])
def test_the_step_below_a_folder_that_is_hostile(scene: Scene, lint: Callable[..., Any], kind: str) -> None:  # noqa: F811
    checkout, folder = scene.check_out("checkout"), "train"
    if kind == "a submodule":
        inner = Upstream(scene.root / "inner")
        inner.commit({"b.yaml": TWICE, "cfglint.toml": LAX})
        run_git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", str(inner.root), "train/module")
        folder = "train/module"
        run_git(checkout / folder, "config", "core.fsmonitor", str(scene.spy))
    elif kind == "a worktree":
        run_git(checkout, "worktree", "add", "--detach", str(scene.root / "tree"), scene.commit)
        checkout = scene.root / "tree"
    run_git(checkout, "config", "core.fsmonitor", str(scene.spy))
    event = write_event(scene.root, "pull_request", scene.commit)
    scene.detect_start()
    outcome = lint(checkout, event, working_directory=folder, settings_from="base", extra_args="", fail_on="info")
    assert not scene.detect_start()
    assert outcome.code == 1
    assert "SYN003" in outcome.output
    assert "settings: ../" * (kind != "a submodule") in outcome.output


# --- the sources -----------------------------------------------------------------------------------------------------

STARTING = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
HINT = re.compile(r"subprocess|\bpty\b|asyncio|\bos\.(system|popen|startfile|exec|spawn|posix_spawn)|from os |programs")


def find_starts(path: Path) -> Iterator[str]:
    """Yield the names with which a module starts programs."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in ("subprocess", "pty"))
        elif isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "os", "asyncio"):
            yield from (name.name for name in node.names if is_start(name.name))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "asyncio") and is_start(node.attr):
            yield node.attr


def is_start(name: str) -> bool:
    of_os = ("system", "popen", "startfile", "posix_spawn", "create_subprocess")
    return name in STARTING or name.startswith((*of_os, "exec", "spawn"))


def has_git_command(path: Path) -> bool:
    """Return whether a module runs `git`, or has a command list that begins with it."""
    for node in ast.walk(ast.parse(path.read_text())):
        runs = isinstance(node, ast.Call) and is_start(ast.unparse(node.func).rpartition(".")[2])
        words = node.args if runs else node.elts if isinstance(node, ast.List) else []
        if words and isinstance(words[0], ast.Constant) and words[0].value == "git":
            return True
    return False


def test_one_module_starts_programs_and_one_function_git() -> None:
    def find_modules(*roots: str) -> dict[str, Path]:
        paths = [path for root in roots for path in (REPOSITORY / root).rglob("*.py") if HINT.search(path.read_text())]
        return {path.relative_to(REPOSITORY).as_posix(): path for path in paths}

    shipped = find_modules("lint", "rules", "schemas")
    assert [name for name, path in shipped.items() if any(find_starts(path))] == [
        "lint/cfglint_train/front/programs.py"
    ]
    with_others = {**shipped, **find_modules("tools", "docs")}
    assert [name for name, path in with_others.items() if has_git_command(path)] == ["lint/cfglint_train/front/git.py"]
    assert not any(re.search(r"\bgit\b", line) for step in STEPS.values() for line in step["run"].splitlines())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import subprocess", True),
        ("from subprocess import run", True),
        ("from subprocess import TimeoutExpired", False),
        ("import os\nos.execvp('git', ['git'])", True),
        ("import os\nos.getcwd()", False),
        ("import asyncio\nasyncio.create_subprocess_exec('git')", True),
    ],
)
def test_a_start_is_found(tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "a.py").write_text(text)
    assert any(find_starts(tmp_path / "a.py")) == found
