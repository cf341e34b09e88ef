"""Draw docs/images/report.png, the picture of an HTML report: python docs/build/screenshot.py (needs Chromium)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from run import REPOSITORY, run_cfglint

TARGET = REPOSITORY / "docs" / "images" / "report.png"
_REPORT = ("estimate", "--isolated", "--format", "html", "--gpu", "H100", "fixtures/rules/MEM002/fires/axolotl.yaml")
_SIZE = "1100,900"


def draw() -> None:
    """Write the picture.

    Raise RuntimeError without Chromium.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise RuntimeError("Chromium is not installed")
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(run_cfglint(*_REPORT), encoding="utf-8")
        options = ("--headless=new", "--no-sandbox", "--hide-scrollbars")
        sizes = (f"--window-size={_SIZE}", f"--user-data-dir={folder}/profile", f"--screenshot={TARGET}")
        subprocess.run([browser, *options, *sizes, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    draw()
