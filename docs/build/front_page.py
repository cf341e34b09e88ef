"""Generated parts of README.md and of the site's first page: python docs/build/front_page.py writes README.md."""

from __future__ import annotations

import re

from markdown_text import format_table
from rule_pages import FAMILIES, extract_summary, yield_families
from run import REPOSITORY

from cfglint_rules.vocabulary.table import load_table as clauses
from cfglint_schemas.vocabulary import load
from cfglint_train.frameworks.registry import FrameworkManifest, list_frameworks

README = REPOSITORY / "README.md"
CATCHES = "<!-- catches -->"
"""Placeholder of the tables on the first page of the site."""
_PART = re.compile(r"(?P<start><!-- generated: (?P<name>\w+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def build_parts() -> dict[str, str]:
    """Return the generated parts of the README by their names."""
    return {"catches": build_tables("docs/")}


def fill_readme(text: str) -> str:
    """Return the README with its generated parts."""
    generated_parts = build_parts()
    return _PART.sub(lambda match: f"{match['start']}\n{generated_parts[match['name']]}\n{match['end']}", text)


def build_tables(pages: str = "") -> str:
    """Return the tables of rule areas and of supported frameworks.

    `pages` is the path prefix of the site's pages.
    """
    areas = [
        (f"**{FAMILIES[family]}**", extract_summary(rules[0]).rstrip("."), f"`{family}`")
        for family, rules in yield_families()
    ]
    frameworks = [
        _list_cells(manifest, pages) for manifest in list_frameworks().values() if manifest.package == manifest.name
    ]
    head = ("framework", "files", "releases", "combinations that it rejects", "settings without effect")
    return f"{format_table(('area', 'for example', 'rules'), areas)}\n{format_table(head, frameworks)}"


def _list_cells(manifest: FrameworkManifest, pages: str) -> tuple[str, ...]:
    vocabulary = load(manifest.vocabulary)
    return (
        f"[{manifest.title}]({pages}frameworks/{manifest.name}.md)",
        ", ".join(_FILES[syntax] for syntax in manifest.clues),
        f"{vocabulary.releases[0]} to {vocabulary.newest}",
        str(len(clauses(manifest.name, "refusals").rows)),
        str(len(clauses(manifest.name, "idle").rows)),
    )


_FILES = {"yaml": "YAML", "json": "JSON", "shell": "shell scripts", "python": "Python scripts"}


if __name__ == "__main__":
    README.write_text(fill_readme(README.read_text(encoding="utf-8")), encoding="utf-8")
