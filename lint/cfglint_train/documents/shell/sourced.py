"""The scripts that a script reads by `source FILE` or `. FILE`, for the variables that they set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from cfglint_train.documents.shell.words import Fragment
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

MAX_SOURCED: Final = 3
"""Scripts that source each other: one further inside is not read."""

Load = Callable[[str], bytes | None]
"""The bytes of a file by its absolute path; None for one that is not there or not to be read."""

_SELF: Final = r'"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?(?::-\$\{?0\}?)?\})"?'
_REAL: Final = rf'(?:{_SELF}|"?\$\((?:readlink -f|realpath)(?: -s)?(?: --)? {_SELF}\)"?)'
_FOLDER: Final = rf"(?:\$\(dirname(?: --)? {_REAL}\)|\$\{{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}})"
_QUIET: Final = r"(?:\s*(?:[12&]?>{1,2}\s*(?:/dev/null|&1)))*"
_ENTERED: Final = (
    rf'\$\(\s*(?:unset CDPATH;\s*)?(?:builtin )?cd(?: -P)?(?: --)? "?{_FOLDER}"?((?:/[\w.-]+)*)/?"?'
    rf"{_QUIET}\s*(?:&&|;)\s*pwd(?: -P)?\s*\)"
)
_SCRIPT_FOLDER: Final = re.compile(rf"(?:{_FOLDER}|{_ENTERED})")


class Sourcing(Frozen):
    """How a script finds those that it sources."""

    path: str
    """Its own, absolute."""
    load: Load
    depth: int = 0


def is_script_folder(text: str) -> bool:
    """Whether an expansion means the folder of the script, or one that is named from there."""
    return _SCRIPT_FOLDER.fullmatch(text) is not None


def resolve_path_word(fragments: Iterable[Fragment]) -> str | None:
    """The path that a word means (`./...`: from the folder of the script); None where that cannot be determined."""
    parts: list[str] = []
    for fragment in fragments:
        text = fragment.text.decode("utf-8", "replace")
        if fragment.why:
            match = _SCRIPT_FOLDER.fullmatch(text)
            if match is None or parts:
                return None
            text = f".{match.group(1) or ''}"
        elif fragment.condition:
            return None
        parts.append(text)
    return "".join(parts) or None


def list_candidate_paths(path: str, sourcing: Sourcing) -> Iterator[str]:
    """Where a sourced file may lie: from the folder of the script, or from one above it, as it may be started there."""
    if os.path.isabs(path):
        yield path
        return
    folder = os.path.dirname(sourcing.path)
    while True:
        yield os.path.normpath(os.path.join(folder, path))
        if path.startswith("./") or os.path.dirname(folder) == folder:
            return
        folder = os.path.dirname(folder)
