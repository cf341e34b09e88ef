"""The frameworks on the site: the list of the first page, the navigation, a page for those without a written one, and
on each page what fixes write.
"""

from __future__ import annotations

from pathlib import Path

from markdown_text import table

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Lens, spelled
from cfglint_train.frameworks.registry import FrameworkManifest, listed
from cfglint_train.plan.fields import FIELDS
from cfglint_train.plan.names import Field

FOLDER = "frameworks"
LIST = "<!-- frameworks -->"
"""Where the first page has the list of the frameworks."""
_WRITTEN = Path(__file__).resolve().parents[1] / FOLDER


def pages() -> dict[str, str]:
    """The pages, by their path below docs/, of frameworks without a written one."""
    bare = [(one, path) for one, path in _paged() if not (_WRITTEN / Path(path).name).exists()]
    return {path: f"# {one.title}\n\n{_facts(one)}\n{sections(path)}" for one, path in bare}


def navigation() -> list[dict[str, object]]:
    """The page of every framework, for the site's navigation."""
    return [{one.title: path} for one, path in _paged()]


def listing() -> str:
    """The frameworks, each with a link to its page: what is read of it, and what is not."""
    return f"Frameworks: {', '.join(f'[{one.title}]({path})' for one, path in _paged())}."


def _paged() -> list[tuple[FrameworkManifest, str]]:
    """Every framework with the path of its page; one in another's package is on that one's page."""
    return [(one, f"{FOLDER}/{one.name}.md") for one in listed().values() if one.package == one.name]


def sections(path: str) -> str:
    """What the page at a path below docs/ says at its end of fixes; empty for a page of something else."""
    own = [one for one, page in _paged() if page == path]
    shown = [one for one in listed().values() if own and one.package == own[0].package]
    return "\n".join(_written(one, f"## Every key{f': {one.title}' if one not in own else ''}") for one in shown)


def _written(one: FrameworkManifest, heading: str) -> str:
    """Every field that the framework's lenses read: its keys, and whether fixes write it."""
    framework = frameworks.load(one.name)
    owners = {field: lens for lens in framework.lenses for field in lens.fields}
    rows = [
        (f"`{field}`", _keys(owners[field], field), framework.unwritten(field) or "written")
        for field in FIELDS
        if field in owners
    ]
    return f"{heading}\n\n{table(('plan field', 'keys', 'written, or why not'), rows)}"


def _keys(lens: Lens, field: Field) -> str:
    return ", ".join(f"`{spelled(route)}`" for route in lens.keys[field])


def _facts(one: FrameworkManifest) -> str:
    syntaxes = ", ".join(one.clues)
    known = "a vocabulary" if one.vocabulary else "no vocabulary, so that no key is reported as unknown"
    return f"Files: {syntaxes}. It has {known}.\n"
