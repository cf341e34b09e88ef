"""Replacements for a file that a repository does not have.

The replacement is a file that a script writes, a DeepSpeed file that a framework ships under the same name, or the
options that a launcher receives instead of a file. The `shipped.json` of a framework maps paths in its repository to
their contents, each with the first release that has them.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from json import dumps, load

from cfglint_train.documents.document import CannotEdit, Change, Document, DocumentError, Edit
from cfglint_train.documents.json import JsonDocument
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.regular_files import normalize_path
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfglint_train.documents.shell.document import ShellDocument

_FILE: Final = "shipped.json"


class BundledDocument(JsonDocument):
    """A file that a framework ships; it is not in the repository, so it cannot be edited."""

    is_placeholder: ClassVar[bool] = True

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raise `CannotEdit`."""
        raise CannotEdit(f"{self.path} is not in this repository")


class LauncherOptionsDocument(JsonDocument):
    """An empty stand-in for the config file of a launcher that receives only options; these act as overrides."""

    is_placeholder: ClassVar[bool] = True

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raise `CannotEdit`."""
        raise CannotEdit("the launch sets it")


class WrittenDocument(JsonDocument):
    """A file that a script of the repository writes when it runs; only the script can be edited."""

    is_placeholder: ClassVar[bool] = True

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raise `CannotEdit`."""
        raise CannotEdit(f"a script writes {self.path}")


# `cat > PATH << 'EOF'`: the path, the quote that prevents expansion, and the delimiter that ends the file.
_HERE_DOCUMENT: Final = compile_on_use(
    rb"(?m)^[^\n#]*?(?:>|\btee\b)[ \t]*(?P<path>[^\s<>|&;]+)[ \t]*"
    rb"<<-?[ \t]*(?P<quote>['\"\\]?)(?P<end>\w+)['\"]?[^\n]*\n"
)
_MAX_FILES: Final = 100
"""Maximum number of here-documents to read from one script."""


def find_written_file(scripts: Iterable[ShellDocument], stated_path: str) -> tuple[str, Document | None]:
    """Return the place where a script writes the file at `stated_path`, and the file.

    The place (`script:line`) is empty if no script writes the file. The file is None if its text is only known at run
    time or does not parse, or if scripts write different texts; in the last case, the first place is returned.
    """
    places: dict[bytes, str] = {}
    for script in scripts:
        for match in islice(_HERE_DOCUMENT.finditer(script.source), _MAX_FILES) if b"<<" in script.source else ():
            path = normalize_path(match["path"].decode("utf-8", "replace").strip("'\"")).lstrip("/")
            if f"/{normalize_path(stated_path)}".endswith(f"/{path}") or f"/{path}".endswith(
                f"/{normalize_path(stated_path)}"
            ):
                place = f"{script.path}:{script.locate(match.start()).line}"
                places.setdefault(_extract_text(script.source, match), place)
    if len(places) != 1:
        return next(iter(places.values()), ""), None
    ((text, place),) = places.items()
    try:
        return place, WrittenDocument(stated_path, text) if text else None
    except DocumentError:
        return place, None


def _extract_text(source: bytes, match: re.Match[bytes]) -> bytes:
    """Return the text of a here-document, or empty bytes if the shell expands a variable or command in it."""
    end = re.compile(rb"(?m)^[ \t]*%s[ \t]*$" % re.escape(match["end"])).search(source, match.end())
    text = source[match.end() : len(source) if end is None else end.start()]
    return text if match["quote"] or not re.search(rb"[$`]", text) else b""


def find_bundled_file(framework: Framework, stated_path: str, release: str) -> Document | None:
    """Return the file that a release of a framework ships at a path that `stated_path` ends with, or None.

    Leading folders of `stated_path` are ignored. A release older than the first row of `shipped.json` gets the contents
    of that row.
    """
    path = os.path.join(framework.manifest.folder, _FILE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        files: dict[str, list[dict[str, Any]]] = load(file)["files"]
    full_path = f"/{normalize_path(stated_path)}"
    rows = next((rows for name, rows in files.items() if full_path.endswith(f"/{name}")), None)
    if rows is None:
        return None
    key = parse_release(release)
    since = [row for row in rows if parse_release(row["since"]) <= key] or rows[:1]
    content = since[-1]["content"]
    return None if content is None else BundledDocument(stated_path, dumps(content, indent=2).encode())
