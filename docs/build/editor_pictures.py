"""Draw docs/images/editor*.png, VS Code with the extension: python docs/build/editor_pictures.py.

It needs Chromium, Playwright, and `code-server` on PATH: tests/editor/vscode.sh installs that.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from run import REPOSITORY, copy_to_repository

sys.path.insert(0, str(REPOSITORY))
from tests.editor import vscode

TARGET = REPOSITORY / "docs" / "images"
_CASE = REPOSITORY / "fixtures" / "cases" / "5-axolotl-3b"
_FILE = "llama-3b.yaml"
_SETTINGS = {
    "editor.fontSize": 13,
    "editor.stickyScroll.enabled": False,
    "git.enabled": False,
    "security.workspace.trust.enabled": False,
    "workbench.sideBar.location": "right",
    "breadcrumbs.enabled": False,
}
_MISSPELLED = "warmup_ration"
_SIZE, _WIDE = {"width": 900, "height": 640}, {"width": 1200, "height": 640}


def draw() -> None:
    """Write the pictures.

    Raise RuntimeError if something that they need is missing.
    """
    missing = vscode.find_missing()
    if missing is not None:
        raise RuntimeError(missing)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, copy_to_repository(_CASE) as repository, sync_playwright() as running:
        config = repository / _FILE
        text = config.read_text(encoding="utf-8").split("\n", 1)[1]
        text = text.replace("sequence_length", "sequence_len").replace("warmup_ratio", _MISSPELLED)
        config.write_text(text, encoding="utf-8")
        package = Path(folder, "cfglint.vsix")
        vscode.build_package(package)
        browser = running.chromium.launch(executable_path=vscode.CHROMIUM, args=["--no-sandbox"])
        path = vscode.build_path(Path(folder, "bin"))
        with (
            vscode.start_vscode(browser, [package], Path(folder, "data"), path, _SETTINGS) as code,
            code.open_folder(repository, _FILE, viewport=_SIZE, device_scale_factor=1.5) as page,
        ):
            page.locator(".statusbar-item", has_text="does not fit").wait_for()
            page.keyboard.press("Control+b")  # hides the side bar
            _draw_fix(page)
            page.set_viewport_size(_WIDE)
            _draw_report(page)
        browser.close()


def _draw_fix(page: Any) -> None:
    _find_key(page, _MISSPELLED).click()
    page.keyboard.press("Control+.")
    page.locator(".action-widget .monaco-list-row.focused", has_text="Fix: ").wait_for()
    _take_picture(page, "editor.png")
    page.keyboard.press("Enter")
    _find_key(page, "warmup_ratio").wait_for()


def _draw_report(page: Any) -> None:
    page.locator(".codelens-decoration a", has_text="does not fit").click()
    inner = page.frame_locator("iframe.webview").frame_locator("iframe")
    inner.locator("svg.bar").first.wait_for()
    inner.locator("svg.bar").nth(1).scroll_into_view_if_needed()
    _take_picture(page, "editor-report.png")


def _find_key(page: Any, key: str) -> Any:
    return page.locator(".view-line span span", has_text=re.compile(f"^{key}$")).first


def _take_picture(page: Any, name: str) -> None:
    page.wait_for_timeout(500)  # until animations have ended
    page.screenshot(path=TARGET / name)


if __name__ == "__main__":
    draw()
