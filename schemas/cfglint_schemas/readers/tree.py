"""Source text of a release or of a vendored copy."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen


class SourceTree(Frozen):
    """The Python and YAML files of a release; `files` maps paths (`axolotl/utils/schemas/config.py`) to their text."""

    package: str
    release: str
    files: dict[str, str]

    def has_file(self, path: str) -> bool:
        """Return whether the release has this file."""
        return path in self.files

    def list_files(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder, sorted."""
        return sorted(path for path in self.files if path.startswith(folder.rstrip("/") + "/"))
