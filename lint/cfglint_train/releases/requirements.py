"""Requirements: the pins of the requirement files around a config, read once per folder."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cfglint_train.releases.pins.search import ResolvedPin

# Beginnings and endings of the names of requirement files. Most folders have no requirement file, so `releases/pins` is
# imported only for those that do.
_BEGINNINGS: Final = (
    "requirement", "reqs.", "req.", "constraints", "pyproject.toml", "uv.lock", "poetry.lock", "pdm.lock", "pylock.",
    "env", "conda", "dockerfile", "containerfile", "docker", "install", "setup.py", "setup.cfg", "pixi.", "pipfile",
)  # fmt: skip
_ENDINGS: Final = ("requirements.txt", "requirements.in", "requirement.txt", ".dockerfile")
_REVISION_MARKS: Final = (b"git+", b"git clone", b"/tree/")


class Requirements:
    """A cache of the pins in requirement files, by folder."""

    __slots__ = ("_pins_by_folder", "_roots")

    def __init__(self, roots: Roots) -> None:
        """Create an empty cache."""
        self._roots = roots
        self._pins_by_folder: dict[str, Mapping[str, ResolvedPin]] = {}

    def collect_pins(self, path: str) -> dict[str, ResolvedPin]:
        """Return the pins that apply to a file by package; the nearest folder that pins a package takes precedence."""
        pins: dict[str, ResolvedPin] = {}
        for folder in self._list_folders(os.path.dirname(os.path.abspath(path))):
            for package, pin in self._read_folder(folder).items():
                pins.setdefault(package, pin)
        return pins

    def _read_folder(self, folder: str) -> Mapping[str, ResolvedPin]:
        if folder not in self._pins_by_folder:
            try:
                names = [name for name in filesystem.list_names(folder) if _is_candidate(folder, name)]
            except OSError:
                names = []
            self._pins_by_folder[folder] = {}
            if names:
                from cfglint_train.releases.pins.search import read_folder_pins

                self._pins_by_folder[folder] = read_folder_pins(folder, names)
        return self._pins_by_folder[folder]

    def _list_folders(self, folder: str) -> tuple[str, ...]:
        """Return a folder and its parents up to the repository root, or outside a repository up to the working folder.

        A folder that is not below the working folder is returned alone.
        """
        folders, has_root = self._roots.list_folders_above(folder)
        working = os.getcwd()
        return folders if has_root else folders[: folders.index(working) + 1 if working in folders else 1]


def _is_candidate(folder: str, name: str) -> bool:
    lower = name.lower()
    if lower.startswith("readme") and lower.endswith(".md"):
        return _has_revision(os.path.join(folder, name))
    return lower.startswith(_BEGINNINGS) or lower.endswith(_ENDINGS)


def _has_revision(path: str) -> bool:
    """Return whether a README may name a git repository or revision; other READMEs are not parsed."""
    try:
        text = regular_files.read(path)
    except (OSError, ValueError):
        return False
    return any(mark in text for mark in _REVISION_MARKS)
