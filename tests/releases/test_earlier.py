"""Releases before the oldest known one: which requirements of other packages exclude them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import lint


@pytest.mark.parametrize(
    ("requirements", "severity"),
    [
        ("", "info"),
        ("transformers>=4.51\n", "warning"),
        ("transformers==4.52.4\n", "warning"),
        ("transformers>=4.46\n", "info"),
        ("transformers<5\n", "info"),
        ("bitsandbytes>=0.45.0\n", "info"),  # axolotl 0.4.0 asks for at least 0.41.1
    ],
)
def test_a_package_that_no_earlier_release_works_with_excludes_them(
    tmp_path: Path, requirements: str, severity: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "requirements.txt").write_text(requirements)
    (tmp_path / "config.yaml").write_text(AXOLOTL + "eval_table_max_new_tokens: 128\n")
    [finding] = [finding for finding in lint(tmp_path).findings if "eval_table_max_new_tokens" in finding.message]
    assert (finding.code, finding.severity) == ("KEY001", severity)
