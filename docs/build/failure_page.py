"""Page of failures that users met: the rule that reports each of them, by framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markdown_text import format_table

from cfglint_rules.registry import RULES
from cfglint_train.frameworks.registry import list_frameworks

PAGE = "rules/failures.md"
_DATA = Path(__file__).with_name("failure_modes.json")

_HEAD = """# Failures that users met

cfglint reports {covered} of {count} failures from public threads before the run. A code is a rule; a name in code is a
clause of [KEY005](KEY005.md) or [KEY006](KEY006.md). A dash: the framework has no such setting, or none of its configs
shows the failure. Each cell is tested on a config of its framework. [What is not a rule](../not-rules.md) explains the
others, and [Failures by framework](../failures.md) lists what else is reported.

"""


def build_pages() -> dict[str, str]:
    """Return the page by its path below docs/."""
    modes: list[dict[str, Any]] = json.loads(_DATA.read_text(encoding="utf-8"))["modes"]
    named_frameworks = {framework for mode in modes for framework in mode.get("rules", {})}
    columns = [manifest for manifest in list_frameworks().values() if manifest.name in named_frameworks]
    rows = [
        (str(mode["number"]), mode["failure"], *(_format_cell(mode, framework.name) for framework in columns))
        for mode in modes
    ]
    head = _HEAD.format(covered=sum("rules" in mode for mode in modes), count=len(modes))
    return {PAGE: head + format_table(("", "failure", *(manifest.title for manifest in columns)), rows)}


def _format_cell(mode: dict[str, Any], framework: str) -> str:
    if "reason" in mode:
        return "[not a rule](../not-rules.md)"
    names = mode["rules"].get(framework, ())
    return " ".join(f"[{name}]({name}.md)" if name in RULES else f"`{name}`" for name in names) or "-"
