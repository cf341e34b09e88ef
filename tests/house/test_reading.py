"""One module reads the files that a user or a repository names, so that no pipe, device or endless file blocks it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.corpus import REPOSITORY

OWN_DATA = {
    "lint/cfglint_train/calibration/measurements.py", "lint/cfglint_train/calibration/rows.py",
    "lint/cfglint_train/reports/addresses.py", "lint/cfglint_train/front/init/source.py",
    "lint/cfglint_train/fitting/moves.py", "lint/cfglint_train/foundation/credentials.py",
    "lint/cfglint_train/frameworks/chat_templates.py", "lint/cfglint_train/frameworks/hf_scripts/recognise.py",
    "lint/cfglint_train/front/replay.py", "lint/cfglint_train/front/starter.py",
    "lint/cfglint_train/frameworks/framework.py", "lint/cfglint_train/frameworks/vocabulary_access.py",
    "lint/cfglint_train/frameworks/registry.py", "lint/cfglint_train/frameworks/requires.py",
    "lint/cfglint_train/hardware/gpus.py", "lint/cfglint_train/memory/calibration/__init__.py",
    "lint/cfglint_train/models/blocks.py", "lint/cfglint_train/models/lookup.py",
    "lint/cfglint_train/models/modules.py", "lint/cfglint_train/plan/field_docs.py",
    "lint/cfglint_train/models/olmo_core.py", "lint/cfglint_train/repository/lookalikes.py",
    "lint/cfglint_train/launches/bundled_files.py", "lint/cfglint_train/forks/vendored.py",
    "lint/cfglint_train/reports/html/page.py", "rules/cfglint_rules/catalogue.py", "rules/cfglint_rules/registry.py",
    "rules/cfglint_rules/vocabulary/dataset_entries.py", "rules/cfglint_rules/vocabulary/entry_fields.py",
    "rules/cfglint_rules/vocabulary/environment_variable.py", "rules/cfglint_rules/vocabulary/table.py",
    "schemas/cfglint_schemas/vocabulary.py",
}  # fmt: skip
"""Modules that open files of the package itself."""
READER = "lint/cfglint_train/foundation/regular_files.py"


def is_reading_files(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            words = {word.arg: word.value for word in node.keywords}
            mode = node.args[1] if len(node.args) > 1 else words.get("mode")
            if "closefd" not in words and (not isinstance(mode, ast.Constant) or "r" in mode.value):
                return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("read_text", "read_bytes"):
            return True
    return False


def test_files_of_others_are_read_by_one_module() -> None:
    modules = [path for root in ("lint", "rules", "schemas") for path in (REPOSITORY / root).rglob("*.py")]
    readers = {path.relative_to(REPOSITORY).as_posix() for path in modules if is_reading_files(path)}
    assert readers == OWN_DATA | {READER}
