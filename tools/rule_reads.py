"""Write rules/cfglint_rules/reads.json, the rules that read each plan field, from the source of the rules.

python -m tools.rule_reads
"""

from __future__ import annotations

import ast
from json import dumps
from pathlib import Path

from cfglint_rules import registry
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.plan.names import Field

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "rules" / "cfglint_rules" / "reads.json"

_GROUPS: Final = frozenset(Plan._field_defaults)
_GROUPS_BY_RECORD: Final = {type(record).__name__: group for group, record in Plan._field_defaults.items()}


def find_fields(source: str) -> set[Field]:
    """Return the plan fields that a module names: `plan.batch.micro`, `batch.micro` or the text `"batch.micro"`.

    A variable stands for a group if it is assigned from one (`batch = plan.batch`) or annotated with its record.
    """
    tree = ast.parse(source)
    groups = dict(pair for node in ast.walk(tree) for pair in _list_groups(node))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            names.add(node.value)
        elif isinstance(node, ast.Attribute):
            names.add(f"{_find_group(node.value) or groups.get(ast.unparse(node.value))}.{node.attr}")
    return {field for field in FIELDS if field in names}


def _find_group(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) and node.attr in _GROUPS else None


def _list_groups(node: ast.AST) -> list[tuple[str, str]]:
    """Return the names that a node binds to groups of the plan, each with its group."""
    if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
        group = _GROUPS_BY_RECORD.get(node.annotation.id)
        return [] if group is None else [(node.arg, group)]
    if not isinstance(node, ast.Assign):
        return []
    target, value = node.targets[0], node.value
    is_tuple = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    pairs = zip(target.elts, value.elts, strict=False) if is_tuple else [(target, value)]  # type: ignore[attr-defined]
    return [(ast.unparse(name), group) for name, part in pairs if (group := _find_group(part))]


def format_reads() -> str:
    """Return the text of the file: each field with the codes of the rules that read it, in the order of the rules.

    The rule that compares the estimate with the GPU reads every field from which the estimate is computed.
    """
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "lint/cfglint_train/memory").rglob("*.py")]
    estimated = set().union(*map(find_fields, sources))
    readers: dict[Field, list[str]] = {field: [] for field in FIELDS}
    for rule in registry.RULES.values():
        source = Path(str(registry.load_module(rule).__file__)).read_text(encoding="utf-8")
        fields = {*find_fields(source), *rule.needs, *rule.writes}
        for field in estimated | fields if rule.name == "step-exceeds-gpu" else fields:
            readers[field].append(rule.code)
    lines = [f'"{field}": {dumps(codes)}' for field, codes in readers.items() if codes]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(format_reads(), encoding="utf-8")
