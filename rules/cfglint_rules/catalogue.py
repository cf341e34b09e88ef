"""Rule catalogue: read the metadata of all rules from the source of their modules.

Importing every rule just to list them would cost more than linting a file. `hatch_build.py` runs this module when it
builds a wheel and stores the result there as `catalogue.json`, so this module may import only the standard library.
"""

import os
import re
from collections.abc import Iterator

FAMILIES = {
    "SYN": "Syntax",
    "KEY": "Vocabulary",
    "MEM": "GPU memory",
    "CKP": "Checkpoints",
    "HST": "Host memory",
    "BAT": "Batch",
    "PAR": "Parallelism",
    "XFL": "Across files",
    "REL": "Releases",
    "PRF": "Throughput",
    "SEC": "Security",
    "HSE": "House rules",
    "CHK": "Not checked",
}
"""Titles of the rule families by code prefix, in the order in which their rules are listed and run."""

_RULE_LINE = re.compile(r"^RULE\b", re.MULTILINE)
_METADATA = re.compile(r"^RULE: Final = (Rule\((?:.+\)$|\n(?s:.*?)^\)))", re.MULTILINE)


def read(root: str) -> list[dict[str, object]]:
    """Return the arguments of every `RULE` in the modules below `root`, sorted by family and number.

    Raises ValueError if a module defines `RULE` in another form than `RULE: Final = Rule(...)`.
    """
    order = list(FAMILIES)
    return sorted(_read_rules(root), key=lambda rule: (order.index(str(rule["code"])[:3]), rule["code"]))


def _read_rules(root: str) -> Iterator[dict[str, object]]:
    for folder in os.listdir(root):
        family = os.path.join(root, folder)
        for name in os.listdir(family) if os.path.isdir(family) else ():
            if name.endswith(".py"):
                path = os.path.join(family, name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                metadata = _METADATA.search(text)
                if metadata is None and _RULE_LINE.search(text):
                    raise ValueError(f"{path}: `RULE` must read `RULE: Final = Rule(...)`, closed at a line end")
                if metadata is not None:
                    yield eval(metadata[1], {"Rule": _collect_arguments}) | {
                        "module": f"{folder}.{name.removesuffix('.py')}"
                    }


def _collect_arguments(code: str, name: str, severity: str, **others: object) -> dict[str, object]:
    """Return the arguments of a `Rule(...)` call by name."""
    return {"code": code, "name": name, "severity": severity, **others}
