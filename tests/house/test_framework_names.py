"""No framework is known by name outside `frameworks/`: what it adds is in its folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cfglint_train.frameworks.registry import listed
from tests.support.cases import for_each

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset(listed())
OUTSIDE = sorted(
    path
    for source in ("lint/cfglint_train", "rules/cfglint_rules", "schemas/cfglint_schemas")
    for path in (ROOT / source).rglob("*.py")
    if "frameworks" not in path.relative_to(ROOT).parts
)

# The checkpointer of OLMo v1 that is called `olmo_core` is a value of the plan (`checkpoint.checkpointer`); programs
# that start others are called like the frameworks that they come with.
COMPARISONS = {
    "lint/cfglint_train/documents/shell/script.py": 1,
    "lint/cfglint_train/memory/save.py": 1,
    "rules/cfglint_rules/checkpoints/olmo_core_metadata.py": 1,
    "rules/cfglint_rules/checkpoints/save_gather.py": 1,
    "rules/cfglint_rules/releases/olmo_checkpointer.py": 1,
}
# Other tools' estimates are called like the frameworks that they come with.
TABLES = {"lint/cfglint_train/calibration/peers.py"}


def imported(tree: ast.Module) -> Iterator[str]:
    """The folders of frameworks that a module imports from."""
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            package, _, below = module.partition(".frameworks.")
            if package == "cfglint_train" and below.partition(".")[0] in NAMES:
                yield below.partition(".")[0]


def names_in(node: ast.AST) -> set[str]:
    return {
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value in NAMES
    }


def comparisons(tree: ast.Module) -> Iterator[ast.Compare | ast.Call]:
    for node in ast.walk(tree):
        compares = isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith"
        )
        if compares and names_in(node):
            yield node  # type: ignore[misc]


def tables(tree: ast.Module) -> Iterator[ast.AST]:
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
    assert len(list(comparisons(tree))) <= COMPARISONS.get(name, 0)
    assert name in TABLES or not list(tables(tree))
    assert list(imported(tree)) == []


def test_exceptions_are_few_and_needed() -> None:
    found = {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in (*COMPARISONS, *TABLES)}
    assert found.keys() <= {path.relative_to(ROOT).as_posix() for path in OUTSIDE}
    assert sum(COMPARISONS.values()) <= 5
    assert {name: len(list(comparisons(found[name]))) for name in COMPARISONS} == COMPARISONS
    assert all(list(tables(found[name])) for name in TABLES)


def test_a_comparison_is_found() -> None:
    """The test itself can fail."""
    assert list(comparisons(ast.parse("config.framework != 'axolotl'")))
    assert list(comparisons(ast.parse("config.framework in ('olmo', 'x')")))
    assert list(tables(ast.parse("{'olmo': 1, 'axolotl': 2}")))
    assert list(imported(ast.parse("from cfglint_train.frameworks.olmo.lenses import LENSES"))) == ["olmo"]
    assert list(imported(ast.parse("from cfglint_train.frameworks import olmo, framework"))) == ["olmo"]
    assert list(imported(ast.parse("def f():\n import cfglint_train.frameworks.olmo"))) == ["olmo"]


GUIDE = ROOT / "docs" / "contributing" / "framework.md"
# Of axolotl and LLaMA-Factory, TRL is a section or a package.
OWN = {"trl", "trainer_script", "hf_scripts", "hf_trainer", "axolotl", "llamafactory"}


def test_the_guide_gives_a_reason_for_every_file_outside_its_folder_that_names_trl():
    files = [
        path for source in ("lint", "rules") for kind in ("py", "json") for path in (ROOT / source).rglob(f"*.{kind}")
    ]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.parent.name not in OWN and re.search(r'frameworks\.trl\b|"trl"', path.read_text(encoding="utf-8"))
    }
    assert found == set(re.findall(r"^\| `((?:lint|rules)/[\w/.]+)` \|", GUIDE.read_text(encoding="utf-8"), re.M))
