"""Each promise of docs/security.md names an existing test that checks it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## Promises")[2].partition("\n## ")[0].splitlines()
    if line.startswith("|")
][2:]
PROMISES = {promise: re.fullmatch(r"`(tests/[\w./]+)::(test_\w+)`", test) for promise, _, test in ROWS}
HOSTILE = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "tests/hostile").glob("test_*.py"))


def list_functions(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


@for_each("promise", PROMISES)
def test_a_promise_is_tested(promise: str) -> None:
    test = PROMISES[promise]
    assert test is not None, "a promise names one test, as `file::test`"
    assert test[2] in list_functions(REPOSITORY / test[1])


def test_every_file_of_attacks_keeps_a_promise() -> None:
    assert len(PROMISES) == len(ROWS) > 30
    assert HOSTILE
    assert sorted({test[1] for test in PROMISES.values() if test and "/hostile/" in test[1]}) == HOSTILE
