"""Sources: contents of files, their names in reports, and the files that configurations refer to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.repository import files
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_train.documents.document import Document
    from cfglint_train.repository.gitignore import GitIgnore


class Sources:
    """The files of one run of cfglint; `texts` override the disk, as for fixes that are not written yet."""

    def __init__(self, texts: Mapping[str, bytes], environment: Mapping[str, str] | None = None) -> None:
        """Start with texts by path, which override the disk, and with the variables that scripts inherit, if known."""
        self.environment = environment
        self.texts = dict(texts)
        self.read_paths: set[str] = set()
        """Paths of the files that were read, from `texts` or from the disk."""
        self._overlaid = {os.path.abspath(path): path for path in self.texts}
        self._names: dict[str, str] = {}
        self._resolved_paths: dict[tuple[str, str], str | None] = {}
        self.disk = Texts()
        self.named_paths: set[str] = set()
        """Files that the user named; empty with `force_exclude`, which hooks pass with every changed file."""
        self.started_files: dict[str, str] = {}
        """First file that a named script starts, by the path of the script."""
        self.roots = Roots()
        self._ignored: dict[str, GitIgnore] = {}

    def add_texts(self, texts: Mapping[str, bytes]) -> Sources:
        """Return a copy in which `texts` also override the disk."""
        copy = Sources({**self.texts, **texts}, self.environment)
        copy._names, copy.roots, copy.named_paths, copy.disk = self._names, self.roots, self.named_paths, self.disk
        copy.started_files, copy.read_paths = self.started_files, self.read_paths
        return copy

    def read(self, path: str) -> bytes:
        """Read a file; raise OSError if that fails."""
        self.read_paths.add(path)
        return self.texts[path] if path in self.texts else self.disk.read(path)

    def collect(
        self, paths: Iterable[str], settings_for: Callable[[str], Settings], force_exclude: bool = False
    ) -> list[str]:
        """Collect the files that the arguments name: files themselves, and all files below folders, each file once.

        A named file is collected even if it is excluded, unless `force_exclude` or the setting of that name is on.
        """
        for path in paths:
            settings = settings_for(path)
            excludes_named = force_exclude or settings.force_exclude
            if excludes_named and settings.is_excluded(path):
                continue
            folder = path not in self.texts and filesystem.is_folder(path)
            if folder:
                self.roots.add(path)
            elif not excludes_named:
                self.named_paths.add(self._names.get(os.path.abspath(path), regular_files.normalize_path(path)))
            for file in self._walk(path, settings_for) if folder else (regular_files.normalize_path(path),):
                self._names.setdefault(os.path.abspath(file), file)
        self.roots.checked.update(map(os.path.dirname, self._names))
        self._resolved_paths.clear()
        return list(self._names.values())

    def _walk(self, folder: str, settings_for: Callable[[str], Settings]) -> Iterator[str]:
        """Return the files below a folder that are neither excluded by the settings nor, by default, ignored by git."""
        from cfglint_train.repository.gitignore import build_git_filter

        return files.walk(folder, settings_for, build_git_filter(folder, self.roots, self._ignored))

    def list_truncated_ignores(self) -> Iterator[str]:
        """List the folders with more ignore patterns than cfglint reads."""
        return (folder for ignore in self._ignored.values() for folder in ignore.truncated_folders)

    def find(self, target: str, referring_file: str) -> str | None:
        """Find the file that a path in a configuration refers to, or return None.

        The search starts in the working directory. It continues in the folder of `referring_file` and the folders above
        it, up to the root of the repository. Outside a repository, a bare name is searched for only in that folder.

        A path or link that leads outside the repository finds nothing, unless the user named the file. Without a
        repository, the file must be below the folder of `referring_file` or the working directory.
        """
        key = target, os.path.dirname(referring_file)
        if key not in self._resolved_paths:
            self._resolved_paths[key] = self._find(target, referring_file)
        return self._resolved_paths[key]

    def _find(self, target: str, referring_file: str) -> str | None:
        target = regular_files.expand_home(target)
        folders, is_repository = self.roots.list_folders_above(os.path.dirname(os.path.abspath(referring_file)))
        if not is_repository and not os.path.dirname(target):
            folders = folders[:1]
        allowed_folders = self.roots.list_allowed_folders(referring_file)
        for folder in dict.fromkeys((os.getcwd(), *folders)):
            path = os.path.join(folder, target)
            full = os.path.abspath(path)
            if full in self._overlaid or full in self._names:
                return self.format_path(path, referring_file)
            if filesystem.is_file(path) and any(
                regular_files.is_below(path, folder_inside) for folder_inside in allowed_folders
            ):
                return self.format_path(path, referring_file)
        return None

    def format_path(self, path: str, referring_file: str) -> str:
        """Format a path for reports: as the user named it, else absolute or relative like `referring_file`."""
        full = os.path.abspath(path)
        display_name = self._names.get(full) or self._overlaid.get(full)
        if display_name is not None:
            return display_name
        return regular_files.normalize_path(full if os.path.isabs(referring_file) else os.path.relpath(full))

    def parse(self, path: str, source: bytes, syntax: str) -> Document:
        """Parse the text of a file in a syntax, or raise `DocumentError` if it is invalid."""
        return files.parse(
            path, source, syntax, self.build_reader(path) if syntax == "shell" else None, self.environment
        )

    def build_reader(self, path: str) -> Callable[[str], bytes | None]:
        """Build a function that reads files of the repository of `path` by absolute path, or returns None."""
        root = self.roots.find_root(path)[0]

        def read(file: str) -> bytes | None:
            if not file.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
                return None
            try:
                return self.read(self._overlaid.get(file, file))
            except (OSError, ValueError):
                return None

        return read
