"""Source text of a release or of a vendored copy."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen


class SourceTree(Frozen):
    """The Python source of one release: module path (`axolotl/utils/schemas/config.py`) -> text."""

    package: str
    release: str
    files: dict[str, str]

    def has_file(self, path: str) -> bool:
        """Return whether the release has this file."""
        return path in self.files

    def list_files(self, folder: str) -> list[str]:
        """Return the files below a folder, sorted."""
        return sorted(path for path in self.files if path.startswith(folder.rstrip("/") + "/"))
