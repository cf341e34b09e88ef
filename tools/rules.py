"""Write rules/cfglint_rules/catalogue.json from the `RULE` of every rule's module: python -m tools.rules

The catalogue exists because importing every rule to list them would cost more than linting a file.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import cfglint_rules
from cfglint_rules.rule import Rule

TARGET = Path(__file__).resolve().parents[1] / "rules" / "cfglint_rules" / "catalogue.json"


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
    """Return the text of the catalogue: what each rule states, without its defaults, on a line of its own."""
    return "[\n" + ",\n".join(json.dumps(_stated(rule)) for rule in rules()) + "\n]\n"


def _stated(rule: Rule) -> dict[str, Any]:
    defaults = Rule._field_defaults
    return {field: value for field, value in rule._asdict().items() if value != defaults.get(field)}


if __name__ == "__main__":
    # Some rules read the catalogue that is there, which may lack a field that was renamed.
    TARGET.write_text("[]", encoding="utf-8")
    TARGET.write_text(catalogue(), encoding="utf-8", newline="\n")
