"""The extension in VS Code: diagnostics, fixes, hover, lenses, the report, and servers that cannot be started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.editor import vscode
from tests.editor.vscode import VSCode
from tests.support.linting import FIXTURES

MISSING = vscode.find_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
CASE = FIXTURES / "cases" / "5-axolotl-3b"
TRUSTED = {"security.workspace.trust.enabled": False}
SERVER = Path(sys.executable).with_name("cfglint")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=vscode.CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "cfglint.vsix"
    vscode.build_package(target)
    return target


@pytest.fixture(scope="module")
def code(browser: Any, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSCode]:
    """Run VS Code with the Python extension, whose interpreter has cfglint; PATH has none."""
    folder = tmp_path_factory.mktemp("vscode")
    python, chosen = folder / "python.vsix", folder / "interpreter"
    chosen.write_text(sys.executable)
    vscode.build_python_extension(python, chosen)
    with vscode.start_vscode(browser, [package, python], folder / "data", vscode.SYSTEM_PATH, TRUSTED) as started:
        yield started


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """Yield a repository with modules that no server may import."""
    folder, trace = tmp_path / "repository", tmp_path / "imported"
    shutil.copytree(CASE, folder, ignore=shutil.ignore_patterns("fixed", "expected.txt"))
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    for name in ("cfglint_train", "pygls", "asyncio"):
        (folder / f"{name}.py").write_text(f"open({str(trace)!r}, 'w')\n")
    yield folder
    assert not trace.exists()


def find_word(page: Any, word: str) -> Any:
    return page.locator(".view-line span span", has_text=re.compile(rf"^{word}$")).first


def find_lens(page: Any, text: str) -> Any:
    return page.locator(".codelens-decoration", has_text=text).last


def wait_for_status(page: Any, text: str) -> None:
    page.locator(".statusbar-item", has_text=text).wait_for()


def run_command(page: Any, title: str) -> None:
    page.keyboard.press("F1")
    page.locator(".quick-input-box input").fill(f">{title}")
    page.locator(".quick-input-list .monaco-list-row", has_text=title).first.click()


def list_problems(page: Any) -> list[tuple[str, int]]:
    """Return the rules and lines of the problems panel."""
    page.keyboard.press("Control+Shift+M")
    page.locator(".markers-panel .marker-code").first.wait_for()
    rows = [row.inner_text() for row in page.locator(".markers-panel .monaco-list-row").all()]
    matches = [re.search(r"\ncfglint\n(\w+)\n\[Ln (\d+), Col \d+\]", row) for row in rows]
    return sorted((match[1], int(match[2])) for match in matches if match)


def test_problems_are_those_of_the_command_line_and_the_report_opens(code: VSCode, repository: Path) -> None:
    words = [str(SERVER), "--output-format", "json", "--exit-zero", "llama-3b.yaml"]
    report = json.loads(subprocess.run(words, cwd=repository, capture_output=True, text=True, check=True).stdout)
    findings = [finding for finding in report["findings"] if finding["path"] == "llama-3b.yaml"]
    with code.open_folder(repository, "llama-3b.yaml", viewport={"width": 1200, "height": 2000}) as page:
        wait_for_status(page, "does not fit: 96.9 of 79.1 GiB")
        assert list_problems(page) == sorted((finding["code"], finding["line"]) for finding in findings)
        assert len(findings) > 2
        run_command(page, "cfglint: report")
        inner = page.frame_locator("iframe.webview").frame_locator("iframe")
        inner.get_by_text("96.9 GiB expected").first.wait_for()
        inner.locator("svg.bar").first.scroll_into_view_if_needed()
        inner.locator("svg.bar").first.wait_for()
        # The styles apply although the panel forbids scripts: without them, a bar is higher than a line.
        box = inner.locator("svg.bar").first.bounding_box()
        assert 15 < box["height"] < 30 < box["width"]
        inner.locator("summary", has_text="Numbers by kind of memory").click()
        inner.get_by_role("rowheader", name="save").last.wait_for()


def test_fixes_hover_and_budget(code: VSCode, repository: Path) -> None:
    with code.open_folder(repository, "llama-3b.yaml") as page:
        find_lens(page, "does not fit: ").wait_for()
        find_word(page, "sequence_length").click()
        page.keyboard.press("Control+.")
        page.locator(".action-widget .monaco-list-row.focused", has_text="Fix: ").wait_for()
        page.keyboard.press("Enter")
        find_word(page, "sequence_len").wait_for()
        find_lens(page, "96.9 GiB; largest that fits: 2").wait_for()
        find_word(page, "micro_batch_size").hover()
        page.locator(".monaco-hover:visible", has_text="the backward pass does not fit on one GPU").wait_for()
        page.locator(".codelens-decoration a", has_text=re.compile("^fit$")).click()
        wait_for_status(page, " fits: ")
        find_lens(page, "fits: ").wait_for()
        page.keyboard.press("Control+z")
        wait_for_status(page, "does not fit: ")


def test_a_server_that_does_not_start_says_why_once(
    browser: Any, package: Path, repository: Path, tmp_path: Path
) -> None:
    """Also check that another interpreter in the Python extension starts its server."""
    program = tmp_path / "bin" / "cfglint"
    program.parent.mkdir()
    path = f"{program.parent}:{vscode.SYSTEM_PATH}"
    python, chosen = tmp_path / "python.vsix", tmp_path / "interpreter"
    chosen.write_text("/bin/false")  # an interpreter without cfglint
    vscode.build_python_extension(python, chosen)
    with (
        vscode.start_vscode(browser, [package, python], tmp_path / "data", path, TRUSTED) as code,
        code.open_folder(repository, "llama-3b.yaml") as page,
    ):
        notices = page.locator(".notification-list-item")
        status = page.locator(".statusbar-item", has_text="cfglint")
        notices.filter(has_text="cfglint is not installed").wait_for()
        # An installation without the extra `editor`, in which Python finds no pygls.
        program.write_text(f"#!/bin/sh\nexec {sys.executable} -P -c '{WITHOUT_PYGLS}' \"$@\"\n")
        program.chmod(0o755)
        status.click()
        notices.filter(has_text="pip install 'cfglint-train[editor]'").nth(1).wait_for()
        assert notices.filter(has_text="the language server needs pygls").count() == 1
        assert notices.count() == 2
        chosen.write_text(sys.executable)
        wait_for_status(page, "does not fit: ")


WITHOUT_PYGLS = """
import sys
sys.modules["pygls"] = None
from cfglint_train.front.process import main
sys.exit(main())
"""


def test_an_untrusted_workspace_does_not_choose_the_program(
    browser: Any, package: Path, repository: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "started"
    program = repository / "server.sh"
    program.write_text(f"#!/bin/sh\ntouch '{trace}'\nexec cfglint server\n")
    program.chmod(0o755)
    settings = repository / ".vscode" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"cfglint.path": ["${workspaceFolder}/server.sh"]}))
    path = vscode.build_path(tmp_path / "bin")
    asks = {"security.workspace.trust.startupPrompt": "never"}
    with (
        vscode.start_vscode(browser, [package], tmp_path / "data", path, asks) as code,
        code.open_folder(repository, "llama-3b.yaml") as page,
    ):
        wait_for_status(page, "Restricted Mode")
        wait_for_status(page, "does not fit: ")
        assert not trace.exists()
        run_command(page, "Workspaces: Manage Workspace Trust")
        page.get_by_role("button", name="Trust", exact=True).click()
        end = time.monotonic() + 30
        while not trace.exists() and time.monotonic() < end:
            page.wait_for_timeout(100)
        assert trace.exists()
