"""The generated parts of README.md and of the site's first page: python docs/build/front_page.py writes README.md."""

from __future__ import annotations

import re

from markdown_text import table
from rule_pages import FAMILIES, families, summary
from run import REPOSITORY

from cfglint_rules.vocabulary.table import table as clauses
from cfglint_schemas.vocabulary import load
from cfglint_train.frameworks.registry import FrameworkManifest, listed

README = REPOSITORY / "README.md"
CATCHES = "<!-- catches -->"
"""Where the first page of the site has the tables."""
_PART = re.compile(r"(?P<start><!-- generated: (?P<name>\w+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def parts() -> dict[str, str]:
    """Return the generated parts of the README by their names."""
    return {"catches": catches("docs/")}


def filled(text: str) -> str:
    """Return the README with its generated parts."""
    made = parts()
    return _PART.sub(lambda found: f"{found['start']}\n{made[found['name']]}\n{found['end']}", text)


def catches(pages: str = "") -> str:
    """Return what is found by area, and what is known of each framework. `pages`: the folder of the site's pages."""
    found = [(f"**{FAMILIES[family]}**", summary(rules[0]).rstrip("."), f"`{family}`") for family, rules in families()]
    known = [_framework(one, pages) for one in listed().values() if one.package == one.name]
    head = ("framework", "files", "releases", "combinations that it rejects", "settings without effect")
    return f"{table(('area', 'for example', 'rules'), found)}\n{table(head, known)}"


def _framework(one: FrameworkManifest, pages: str) -> tuple[str, ...]:
    vocabulary = load(one.vocabulary)
    return (
        f"[{one.title}]({pages}frameworks/{one.name}.md)",
        ", ".join(_FILES[syntax] for syntax in one.clues),
        f"{vocabulary.releases[0]} to {vocabulary.newest}",
        str(len(clauses(one.name, "refusals").rows)),
        str(len(clauses(one.name, "idle").rows)),
    )


_FILES = {"yaml": "YAML", "json": "JSON", "shell": "shell scripts", "python": "Python scripts"}


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
