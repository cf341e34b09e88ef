"""Acceptance cases: small repositories with the findings that must and must not appear (`fixtures/acceptance`).

`tests/acceptance_failures.json` lists the cases that fail, with the work that will fix them. A listed case that passes
is an error here, so the list stays true.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import acceptance
from tests.support.corpus import REPOSITORY, SHARED

CASES = REPOSITORY / "fixtures" / "acceptance"
SHARED_CASES = SHARED / "cases"
FAILURES: dict[str, str] = json.loads(Path(__file__).with_name("acceptance_failures.json").read_text())
NAMES = sorted(path.parent.relative_to(CASES).as_posix() for path in CASES.glob("*/*/expect.json"))


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, tmp_path: Path) -> None:
    unmet = acceptance.list_failures(CASES / name, tmp_path)
    if name in FAILURES:
        assert unmet, "met: take it from the list of failures"
    else:
        assert unmet == []


def test_the_list_names_cases() -> None:
    assert len(NAMES) >= 323
    assert set(FAILURES) <= set(NAMES)
    assert all(FAILURES.values())


@pytest.mark.skipif(not SHARED_CASES.is_dir(), reason=f"no shared data: no acceptance cases at {SHARED_CASES}")
def test_the_cases_are_those_that_were_given() -> None:
    """Keep every shared case unchanged; the folder may hold further cases."""
    shared_paths = {path.relative_to(SHARED_CASES) for path in SHARED_CASES.rglob("*") if path.is_file()}
    assert [
        path for path in sorted(shared_paths) if (SHARED_CASES / path).read_bytes() != (CASES / path).read_bytes()
    ] == []
