"""The page of failures that users met: which rule reports each of them on which framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_text import table

from cfglint_rules.registry import RULES
from cfglint_train.frameworks.registry import listed

PAGE = "rules/failures.md"
_DATA = Path(__file__).with_name("failure_modes.json")

_HEAD = """# Failures that users met

cfglint reports {covered} of {count} failures from public threads before the run. A code is a rule; a name in code is a
clause of [KEY005](KEY005.md) or [KEY006](KEY006.md). A dash: the framework has no such setting, or none of its configs
shows the failure. Each cell is tested on a config of its framework. [What is not a rule](../not-rules.md) explains the
others, and [Failures by framework](../failures.md) lists what else is reported.

"""


def pages() -> dict[str, str]:
    """The page by its path below docs/."""
    modes: list[dict[str, Any]] = json.loads(_DATA.read_text(encoding="utf-8"))["modes"]
    named = {framework for mode in modes for framework in mode.get("rules", {})}
    columns = [one for one in listed().values() if one.name in named]
    rows = [
        (str(mode["number"]), mode["failure"], *(_cell(mode, framework.name) for framework in columns))
        for mode in modes
    ]
    head = _HEAD.format(covered=sum("rules" in mode for mode in modes), count=len(modes))
    return {PAGE: head + table(("", "failure", *(one.title for one in columns)), rows)}


def _cell(mode: dict[str, Any], framework: str) -> str:
    if "reason" in mode:
        return "[not a rule](../not-rules.md)"
    names = mode["rules"].get(framework, ())
    return " ".join(f"[{name}]({name}.md)" if name in RULES else f"`{name}`" for name in names) or "-"
