"""With CI=true, a test that lacks a requirement fails, and so does a file that is not collected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.corpus import REPOSITORY

LACKING = "import pytest\n\n\ndef test_it():\n    pytest.skip('no browser')\n"
FINE = LACKING.replace("no browser", "not applicable: no such case")
UNCOLLECTED = "import pytest\n\npytest.importorskip('no_such_package')\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ci", "code"),
    [(LACKING, "true", 1), (LACKING, "", 0), (FINE, "true", 0), (UNCOLLECTED, "true", 1), (UNCOLLECTED, "", 5)],
)
def test_a_skip_in_ci(tmp_path: Path, text: str, ci: str, code: int):
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", str(tmp_path / "pytest.ini")]
    process = subprocess.run(
        [*command, str(tmp_path)], cwd=REPOSITORY, env={**os.environ, "CI": ci}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert process.returncode == code, process.stdout
    assert ("CI runs everything" in process.stdout) == (code == 1)
