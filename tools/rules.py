"""Write rules/cfglint_rules/catalogue.py from the `RULE` of every rule's module: python -m tools.rules

The catalogue exists because importing every rule to list them would cost more than linting a file.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cfglint_rules
from cfglint_rules.rule import Rule

WIDTH = 121
"""Of a line with its end."""
TARGET = Path(__file__).resolve().parents[1] / "rules" / "cfglint_rules" / "catalogue.py"

HEAD = '''"""Every rule. Made by `python -m tools.rules` from the rules' modules; do not edit."""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

CATALOGUE: Final = (
'''


def rules() -> list[Rule]:
    """Return the rules of all modules below `cfglint_rules`, by family and number."""
    found = []
    for module in pkgutil.walk_packages(cfglint_rules.__path__, "cfglint_rules."):
        rule = getattr(importlib.import_module(module.name), "RULE", None)
        if isinstance(rule, Rule):
            found.append(rule._replace(module=module.name.removeprefix("cfglint_rules.")))
    return sorted(found, key=lambda rule: (FAMILIES.index(rule.code[:3]), rule.code))


FAMILIES = ("SYN", "KEY", "MEM", "CKP", "HST", "BAT", "PAR", "XFL", "REL", "PRF", "SEC", "HSE", "CHK")


def catalogue() -> str:
    """Return the text of the catalogue."""
    return HEAD + "".join(map(_entry, rules())) + ")\n"


def _entry(rule: Rule) -> str:
    """Return a rule as the formatter leaves it: on one line where that is short enough."""
    line = f"    Rule({', '.join(_arguments(rule))}),\n"
    if len(line) <= WIDTH:
        return line
    return "    Rule(\n" + "".join(map(_argument, _arguments(rule))) + "    ),\n"


def _argument(text: str) -> str:
    line = f"        {text},\n"
    name, _, items = text.partition("=(")
    if len(line) <= WIDTH or not items:
        return line
    return f"        {name}=(\n" + "".join(f"            {item},\n" for item in items[:-1].split(", ")) + "        ),\n"


def _arguments(rule: Rule) -> Iterator[str]:
    for field, value in rule._asdict().items():
        if field in ("code", "name", "severity"):
            yield _literal(value)
        elif value != Rule._field_defaults.get(field):
            yield f"{field}={_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    # Rules may import the catalogue that is there, which is out of date and perhaps broken.
    sys.modules["cfglint_rules.catalogue"] = empty = ModuleType("cfglint_rules.catalogue")
    empty.CATALOGUE = ()  # type: ignore[attr-defined]
    TARGET.write_text(catalogue(), encoding="utf-8", newline="\n")
