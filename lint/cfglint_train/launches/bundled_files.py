"""What replaces a file that a repository does not have: what a script writes into it, DeepSpeed files that a
framework ships, found by name, and the options that a launcher is given instead.

The data are beside the framework (`shipped.json`): for each path in its repository the contents, each with the first
release that has it.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from json import dumps, load

from cfglint_train.documents.document import CannotEdit, Change, Document, DocumentError, Edit
from cfglint_train.documents.json import JsonDocument
from cfglint_train.foundation.regular_files import tidy
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cfglint_train.documents.shell.document import ShellDocument

_FILE: Final = "shipped.json"


class ShippedDocument(JsonDocument):
    """A file that a framework ships. It is not in the repository and cannot be edited."""

    stands_in: ClassVar[bool] = True

    def edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raises CannotEdit."""
        raise CannotEdit(f"{self.path} is not in this repository")


class GivenDocument(JsonDocument):
    """Stands for the file of a launcher that is given options alone; empty, as these override it."""

    stands_in: ClassVar[bool] = True

    def edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raises CannotEdit."""
        raise CannotEdit("the launch gives it")


class WrittenDocument(JsonDocument):
    """A file that a script of the repository writes."""

    stands_in: ClassVar[bool] = True

    def edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Raises CannotEdit."""
        raise CannotEdit(f"a script writes {self.path}")


# `cat > PATH << 'EOF'`: the file, whether its text is taken as it is, and the line that ends it.
_HERE: Final = re.compile(
    rb"(?m)^[^\n#]*?(?:>|\btee\b)[ \t]*(?P<path>[^\s<>|&;]+)[ \t]*"
    rb"<<-?[ \t]*(?P<quote>['\"\\]?)(?P<end>\w+)['\"]?[^\n]*\n"
)
_MOST: Final = 100
"""Files of one script that are looked at."""


def written(scripts: Iterable[ShellDocument], stated: str) -> tuple[str, Document | None]:
    """Where a script writes a file of some path, and the file; without a place, none does. No file where the text
    depends on the start, or scripts write different ones.
    """
    found: dict[bytes, str] = {}
    for script in scripts:
        for match in islice(_HERE.finditer(script.source), _MOST) if b"<<" in script.source else ():
            path = tidy(match["path"].decode("utf-8", "replace").strip("'\"")).lstrip("/")
            if f"/{tidy(stated)}".endswith(f"/{path}") or f"/{path}".endswith(f"/{tidy(stated)}"):
                place = f"{script.path}:{script.position(match.start()).line}"
                found.setdefault(_text(script.source, match), place)
    if len(found) != 1:
        return next(iter(found.values()), ""), None
    ((text, place),) = found.items()
    try:
        return place, WrittenDocument(stated, text) if text else None
    except DocumentError:
        return place, None


def _text(source: bytes, match: re.Match[bytes]) -> bytes:
    """What a script writes; empty where it depends on the start."""
    end = re.compile(rb"(?m)^[ \t]*%s[ \t]*$" % re.escape(match["end"])).search(source, match.end())
    text = source[match.end() : len(source) if end is None else end.start()]
    return text if match["quote"] or not re.search(rb"[$`]", text) else b""


def shipped(framework: Framework, stated: str, release: str) -> Document | None:
    """The file that a release of a framework ships under a path, which may lead there from any folder.

    A release older than the first one known has that one's file. None where it ships none.
    """
    path = os.path.join(framework.listed.folder, _FILE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        files: dict[str, list[dict[str, Any]]] = load(file)["files"]
    ends = f"/{tidy(stated)}"
    rows = next((rows for name, rows in files.items() if ends.endswith(f"/{name}")), None)
    if rows is None:
        return None
    wanted = release_key(release)
    since = [row for row in rows if release_key(row["since"]) <= wanted] or rows[:1]
    content = since[-1]["content"]
    return None if content is None else ShippedDocument(stated, dumps(content, indent=2).encode())
