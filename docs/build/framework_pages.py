"""Framework pages: the list on the first page, the navigation, generated pages and tables of written keys."""

from __future__ import annotations

from pathlib import Path

from markdown_text import format_table

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Lens, format_route
from cfglint_train.frameworks.registry import FrameworkManifest, list_frameworks
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field

FOLDER = "frameworks"
LIST = "<!-- frameworks -->"
"""Placeholder of the list of frameworks on the first page."""
_WRITTEN = Path(__file__).resolve().parents[1] / FOLDER


def build_pages() -> dict[str, str]:
    """Return the pages of frameworks without a hand-written one, by their path below docs/."""
    ungenerated = [(manifest, path) for manifest, path in _list_pages() if not (_WRITTEN / Path(path).name).exists()]
    return {
        path: f"# {manifest.title}\n\n{_describe_files(manifest)}\n{build_sections(path)}"
        for manifest, path in ungenerated
    }


def build_navigation() -> list[dict[str, object]]:
    """Return the page of every framework, for the site's navigation."""
    return [{manifest.title: path} for manifest, path in _list_pages()]


def build_framework_list() -> str:
    """Return the list of frameworks, each with a link to its page."""
    return f"Frameworks: {', '.join(f'[{manifest.title}]({path})' for manifest, path in _list_pages())}."


def _list_pages() -> list[tuple[FrameworkManifest, str]]:
    """List every framework that has a page with its path; others are on the page of their package."""
    return [
        (manifest, f"{FOLDER}/{manifest.name}.md")
        for manifest in list_frameworks().values()
        if manifest.package == manifest.name
    ]


def build_sections(path: str) -> str:
    """Return the tables of keys at the end of a framework's page, or an empty string for other pages."""
    on_page = [manifest for manifest, page in _list_pages() if page == path]
    same_package = [
        manifest for manifest in list_frameworks().values() if on_page and manifest.package == on_page[0].package
    ]
    return "\n".join(
        _format_keys_table(manifest, f"## Every key{f': {manifest.title}' if manifest not in on_page else ''}")
        for manifest in same_package
    )


def _format_keys_table(manifest: FrameworkManifest, heading: str) -> str:
    """Return the table of fields that the framework's lenses read: their keys, and whether fixes write them."""
    framework = frameworks.load(manifest.name)
    owners = {field: lens for lens in framework.lenses for field in lens.fields}
    rows = [
        (f"`{field}`", _format_keys(owners[field], field), framework.explain_unwritable(field) or "written")
        for field in FIELDS
        if field in owners
    ]
    return f"{heading}\n\n{format_table(('plan field', 'keys', 'written, or why not'), rows)}"


def _format_keys(lens: Lens, field: Field) -> str:
    return ", ".join(f"`{format_route(route)}`" for route in lens.keys[field])


def _describe_files(manifest: FrameworkManifest) -> str:
    syntaxes = ", ".join(manifest.clues)
    vocabulary = "a vocabulary" if manifest.vocabulary else "no vocabulary, so cfglint reports no unknown keys"
    return f"Files: {syntaxes}. It has {vocabulary}.\n"
