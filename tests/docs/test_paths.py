"""Paths named in the documentation, the workflows and the docstrings exist."""

from __future__ import annotations

import re
from functools import cache

from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY

PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
CI = [REPOSITORY / ".ci" / "run", *sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))]
CODE = [path for root in ("lint", "rules", "schemas", "tools") for path in sorted((REPOSITORY / root).rglob("*.py"))]
_PATH = re.compile(
    r"(?<![\w/.-])(?!rules/[A-Z]{3}\d{3}\.md)((?:lint/cfglint_train|rules|schemas|tools|tests|docs|benchmarks|fixtures)/[\w./-]*\w/?)"
)
_ELSEWHERE = (
    # The rule and the framework of docs/contributing, any rule's folder, and pages and schemas that the site generates.
    "fixtures/rules/PRF900", "fixtures/rules/CODE", "rules/cfglint_rules/throughput/no_data_workers",
    "rules/index.md", "rules/failures.md", "schemas/axolotl.json", "schemas/catalog.json",
    "lint/cfglint_train/frameworks/guest",
    # Files of torch and axolotl.
    "tools/autograd/", "docs/docker.qmd",
)  # fmt: skip


@for_each("page", [*PAGES, *CI, *CODE], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_is_named_is_there(page):
    for named_path in _PATH.findall(page.read_text(encoding="utf-8")):
        if not named_path.startswith(_ELSEWHERE):
            assert (REPOSITORY / named_path).exists(), named_path


CALLED_ON = ("schemas.md", "models.md", "contributing/clause.md", "contributing/framework.md", "contributing/key.md")
"""Pages that name functions and classes of the code."""
_NAME = re.compile(r"`(?:[\w.]+\.)?([a-z]+(?:_[a-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)\(")


@cache
def list_defined_names() -> frozenset[str]:
    """Return the names that are defined anywhere in the code, fields and parameters included."""
    return frozenset(re.findall(r"\b[A-Za-z_]\w+\b", "\n".join(path.read_text(encoding="utf-8") for path in CODE)))


@for_each("page", CALLED_ON)
def test_what_is_called_is_defined(page):
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    called = set(_NAME.findall(text))
    for block in re.findall(r"^```python.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        called |= {
            name
            for names in re.findall(r"^from cfglint_[\w.]+ import (.+)$", block, re.MULTILINE)
            for name in names.split(", ")
        }
        called |= set(re.findall(r"\.([a-z]+(?:_[a-z]+)+)\(", block))
    assert called <= list_defined_names()


def test_the_example_of_the_schemas_runs():
    page = (REPOSITORY / "docs" / "schemas.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "docs/schemas.md", "exec"), names)
    assert names["fact"].resolve_status().kind == "renamed"  # type: ignore[attr-defined]
