"""No code outside `frameworks/` knows a framework by name: all that a framework adds is in its folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cfglint_train.frameworks.registry import list_frameworks
from tests.support.cases import for_each

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset(list_frameworks())
OUTSIDE = sorted(
    path
    for source in ("lint/cfglint_train", "rules/cfglint_rules", "schemas/cfglint_schemas")
    for path in (ROOT / source).rglob("*.py")
    if "frameworks" not in path.relative_to(ROOT).parts
)

# OLMo v1's checkpointer `olmo_core` is a value of the plan (`checkpoint.checkpointer`); launch programs are named like
# their frameworks.
COMPARISONS = {
    "lint/cfglint_train/documents/shell/script.py": 1,
    "lint/cfglint_train/memory/save.py": 1,
    "rules/cfglint_rules/checkpoints/olmo_core_metadata.py": 1,
    "rules/cfglint_rules/checkpoints/save_gather.py": 1,
    "rules/cfglint_rules/releases/olmo_checkpointer.py": 1,
    "rules/cfglint_rules/throughput/no_16_bit_format.py": 2,  # the file of DeepSpeed's engine
}
# Other tools' estimates are named like their frameworks.
TABLES = {"lint/cfglint_train/calibration/peers.py"}


def find_imported_frameworks(tree: ast.Module) -> Iterator[str]:
    """Yield the framework folders that a module imports from."""
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            package, _, below = module.partition(".frameworks.")
            if package == "cfglint_train" and below.partition(".")[0] in NAMES:
                yield below.partition(".")[0]


def find_names(node: ast.AST) -> set[str]:
    return {
        constant.value
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and constant.value in NAMES
    }


def find_comparisons(tree: ast.Module) -> Iterator[ast.Compare | ast.Call]:
    for node in ast.walk(tree):
        compares = isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
        )
        if compares and find_names(node):
            yield node  # type: ignore[misc]


def find_tables(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            keys = {item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)}
        else:
            continue
        if len(keys & NAMES) >= 2:
            yield node


@for_each("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_framework_is_compared_with_or_listed(path: Path) -> None:
    tree, name = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix()
    assert len(list(find_comparisons(tree))) <= COMPARISONS.get(name, 0)
    assert name in TABLES or not list(find_tables(tree))
    assert list(find_imported_frameworks(tree)) == []


def test_exceptions_are_few_and_needed() -> None:
    trees = {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in (*COMPARISONS, *TABLES)}
    assert trees.keys() <= {path.relative_to(ROOT).as_posix() for path in OUTSIDE}
    assert sum(COMPARISONS.values()) <= 7
    assert {name: len(list(find_comparisons(trees[name]))) for name in COMPARISONS} == COMPARISONS
    assert all(list(find_tables(trees[name])) for name in TABLES)


def test_a_comparison_is_found() -> None:
    """Ensure that the test can fail."""
    assert list(find_comparisons(ast.parse("config.framework != 'axolotl'")))
    assert list(find_comparisons(ast.parse("config.framework in ('olmo', 'x')")))
    assert list(find_tables(ast.parse("{'olmo': 1, 'axolotl': 2}")))
    assert list(find_imported_frameworks(ast.parse("from cfglint_train.frameworks.olmo.lenses import LENSES"))) == [
        "olmo"
    ]
    assert list(find_imported_frameworks(ast.parse("from cfglint_train.frameworks import olmo, framework"))) == ["olmo"]
    assert list(find_imported_frameworks(ast.parse("def f():\n import cfglint_train.frameworks.olmo"))) == ["olmo"]


GUIDE = ROOT / "docs" / "contributing" / "framework.md"
# In axolotl and LLaMA-Factory, `trl` is a section or a package.
OWN = {"trl", "trainer_script", "hf_scripts", "hf_trainer", "axolotl", "llamafactory"}


def test_the_guide_gives_a_reason_for_every_file_outside_its_folder_that_names_trl():
    files = [
        path for source in ("lint", "rules") for kind in ("py", "json") for path in (ROOT / source).rglob(f"*.{kind}")
    ]
    paths = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.parent.name not in OWN and re.search(r'frameworks\.trl\b|"trl"', path.read_text(encoding="utf-8"))
    }
    assert paths == set(re.findall(r"^\| `((?:lint|rules)/[\w/.]+)` \|", GUIDE.read_text(encoding="utf-8"), re.M))
