"""Paths named in the documentation, the workflows and the docstrings exist."""

from __future__ import annotations

import re

from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
CI = [REPOSITORY / ".ci" / "run", *sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))]
CODE = [path for root in ("lint", "rules", "schemas", "tools") for path in sorted((REPOSITORY / root).rglob("*.py"))]
_PATH = re.compile(
    r"(?<![\w/.-])(?!rules/[A-Z]{3}\d{3}\.md)((?:lint/cfglint_train|rules|schemas|tools|tests|docs|benchmarks|fixtures)/[\w./-]*\w/?)"
)
_ELSEWHERE = (
    # The rule and the framework of docs/contributing, any rule's folder, and pages that the site generates.
    "fixtures/rules/PRF900", "fixtures/rules/CODE", "rules/cfglint_rules/throughput/no_data_workers",
    "rules/index.md", "rules/failures.md",
    "lint/cfglint_train/frameworks/guest",
    # Files of torch and axolotl.
    "tools/autograd/", "docs/docker.qmd",
)  # fmt: skip


@for_each("page", [*PAGES, *CI, *CODE], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_is_named_is_there(page):
    for named_path in _PATH.findall(page.read_text(encoding="utf-8")):
        if not named_path.startswith(_ELSEWHERE):
            assert (REPOSITORY / named_path).exists(), named_path
