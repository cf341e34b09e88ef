"""mkdocs hooks: generate pages and run consoles each time the site is built.

Nothing generated is committed, so nothing can be outdated.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import command_page
import failure_page
import fit_page
import framework_pages
import front_page
import picture
import rule_pages
import settings_page
from markdown_text import format_code_block
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from run import run_cfglint

# ```console exec: runs the commands of the block and adds their output.
_CONSOLE = re.compile(r"^```console exec\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Insert generated sections for the folders in the navigation, and append pages that it does not name."""
    navigation = [_fill_entry(entry) for entry in config.nav or []]
    named_pages = set(re.findall(r"[\w/.-]+\.md", str(navigation)))
    folder = Path(config.docs_dir)
    other_pages = sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - named_pages)
    config.nav = [*navigation, *([{"More": other_pages}] if other_pages else [])]
    return config


# Folder in the navigation -> function that returns its entries.
_SECTIONS = {"rules/": rule_pages.build_navigation, "frameworks/": framework_pages.build_navigation}


def _fill_entry(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _fill_entry(inside) for title, inside in entry.items()}
    if isinstance(entry, str) and entry in _SECTIONS:
        return _SECTIONS[entry]()
    return [_fill_entry(item) for item in entry] if isinstance(entry, list) else entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in generate_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def generate_pages() -> dict[str, str]:
    """Return every generated page by its path below docs/."""
    modules = (rule_pages, failure_page, framework_pages, settings_page, command_page)
    return {path: text for module in modules for path, text in module.build_pages().items()}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Run the consoles of a page, draw its picture, list the frameworks, and add tables of keys and search words."""
    page.meta.update(rule_pages.build_metadata(page.file.src_uri))
    markdown = markdown.replace(framework_pages.LIST, framework_pages.build_framework_list())
    if front_page.CATCHES in markdown:
        markdown = markdown.replace(front_page.CATCHES, front_page.build_tables())
    if fit_page.COSTS in markdown:
        markdown = markdown.replace(fit_page.COSTS, fit_page.build_cost_table())
    if page.file.generated_by is None:
        markdown = f"{markdown}\n\n{framework_pages.build_sections(page.file.src_uri)}"
    markdown = picture.MERMAID.sub(lambda match: picture.draw_svg(picture.parse_picture(match[0])), markdown)
    return _CONSOLE.sub(lambda match: run_console(match["lines"]), markdown)


def run_console(lines: str) -> str:
    """Return a console with the output of its commands."""
    output_lines = []
    for line in lines.splitlines():
        assert line.startswith("$ cfglint"), f"only cfglint is run: {line}"
        output_lines += [line, run_cfglint(*shlex.split(line)[2:]).rstrip()]
    return format_code_block("\n".join(output_lines), ".console")
