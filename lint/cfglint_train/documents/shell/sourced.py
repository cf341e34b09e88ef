"""Scripts that a script reads with `source FILE` or `. FILE`, for the variables that they set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from cfglint_train.documents.shell.words import Fragment
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

MAX_SOURCED: Final = 3
"""Maximum depth of nested `source` commands; deeper scripts are not read."""

Load = Callable[[str], bytes | None]
"""Function that returns the bytes of a file, given its absolute path, or None if it is missing or must not be read."""

_SELF: Final = r'"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?(?::-\$\{?0\}?)?\})"?'
_REAL: Final = rf'(?:{_SELF}|"?\$\((?:readlink -f|realpath)(?: -s)?(?: --)? {_SELF}\)"?)'
_FOLDER: Final = rf"(?:\$\(dirname(?: --)? {_REAL}\)|\$\{{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}})"
_QUIET: Final = r"(?:\s*(?:[12&]?>{1,2}\s*(?:/dev/null|&1)))*"
_ENTERED: Final = (
    rf'\$\(\s*(?:unset CDPATH;\s*)?(?:builtin )?cd(?: -P)?(?: --)? "?{_FOLDER}"?((?:/[\w.-]+)*)/?"?'
    rf"{_QUIET}\s*(?:&&|;)\s*pwd(?: -P)?\s*\)"
)
_SCRIPT_FOLDER: Final = compile_on_use(rf"(?:{_FOLDER}|{_ENTERED})")


class Sourcing(Frozen):
    """The location of a script, and the function that loads the files it sources."""

    path: str
    """Absolute path of the script."""
    load: Load
    depth: int = 0


def is_script_folder(text: str) -> bool:
    """Return whether an expansion yields the folder of the script or a folder below it."""
    return _SCRIPT_FOLDER.fullmatch(text) is not None


def resolve_path_word(fragments: Iterable[Fragment]) -> str | None:
    """Return the path that a word names, or None if it cannot be determined.

    A path relative to the folder of the script starts with `./`.
    """
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
    """Yield the possible paths of a sourced file, starting in the folder of the script.

    Unless the path starts with `./`, the folders above it follow, because the script may be started from any of them.
    """
    if os.path.isabs(path):
        yield path
        return
    folder = os.path.dirname(sourcing.path)
    while True:
        yield os.path.normpath(os.path.join(folder, path))
        if path.startswith("./") or os.path.dirname(folder) == folder:
            return
        folder = os.path.dirname(folder)
