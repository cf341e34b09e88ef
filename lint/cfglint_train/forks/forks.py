"""Copies of frameworks in repositories: find the copy that a config uses, and its vocabulary.

A copy that the config's launch or folder uses replaces upstream's vocabulary. A renamed copy that the program imports
comes first, then the nearest copy. `evidence.py` lists the other kinds of evidence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.roots import Roots, measure_distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.evidence import ForkTrace
from cfglint_train.frameworks.registry import FrameworkManifest, list_vendorable
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository.index import Repositories

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary
    from cfglint_train.forks.submodules import Submodule
    from cfglint_train.releases.pins.search import ResolvedPin

_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")
_PATCHING_NAMES: Final = ("Dockerfile", "Containerfile", "sitecustomize.py", "usercustomize.py")
"""File names of container files and of modules that Python imports at startup."""
_PATCHING_ENDINGS: Final = (".patch", ".diff", *_SCRIPTS)


class Forks:
    """The forks in repositories. Each repository is read once.

    `named` formats a path for messages about another path. `cache_dirs` returns the cache folders that the command line
    and the settings for a path specify.
    """

    __slots__ = (
        "_around",
        "_cache_dirs",
        "_copies",
        "_holding",
        "_projects",
        "_read",
        "named",
        "repositories",
        "roots",
    )

    def __init__(
        self,
        roots: Roots,
        repositories: Repositories,
        named: Callable[[str, str], str],
        cache_dirs: Callable[[str], tuple[str | None, str | None]],
    ) -> None:
        """Create an empty cache."""
        self.roots = roots
        self.repositories = repositories
        self.named = named
        self._cache_dirs = cache_dirs
        self._read: dict[str, tuple[Submodule, ...]] = {}
        self._around: dict[str, tuple[str, ...]] = {}
        self._holding: dict[tuple[str, str], tuple[str, ...]] = {}
        self._copies: dict[tuple[str, tuple[str, ...]], VendoredVocabulary | ForkTrace] = {}
        self._projects: dict[str, frozenset[str]] = {}

    def add_copy_release(
        self, manifest: FrameworkManifest, path: str, statements: ReleaseStatements
    ) -> ReleaseStatements:
        """Return `statements` with the release of the nearest copy in place of the pin from the requirement files.

        The copy is used, whatever release the requirement files name. A release that the user states still wins. Return
        `statements` unchanged if no copy is used, or if the nearest copies differ in their release.
        """
        used_folders = self.get_installed_folder(manifest, statements.pins)
        nearest = () if manifest.package in statements.facts else self._find_nearest(manifest, path, used_folders)
        if not nearest:
            return statements
        from cfglint_train.forks.vendored import estimate_releases, read_release

        releases = [read_release(root, manifest) for root in nearest]
        if releases == [None]:
            copy = self.read_used_copy(manifest, path, used_folders)
            releases = [estimate_releases(None if isinstance(copy, ForkTrace) else copy, nearest[0], manifest)]
        if releases[0] is None or any(
            release is None or release.constraint != releases[0].constraint for release in releases
        ):
            return statements
        return ReleaseStatements(statements.facts, {**statements.pins, manifest.package: releases[0]}, statements.named)

    def find_enclosing_copy(self, path: str) -> str:
        """Return the folder of the copy that contains a file, for messages, or an empty string.

        The folder of a copy is the project that contains the package, or the package if the project is the repository
        itself. Shell scripts in a package folder belong to the repository, because published packages have none.
        """
        from cfglint_train.forks.vendored import get_copy_folder

        return (
            ""
            if path.endswith(_SCRIPTS) and self.find_enclosing_package(path)
            else self._find_enclosing(path, get_copy_folder)
        )

    def find_enclosing_package(self, path: str) -> str:
        """Return the package folder of the copy that contains a file, for messages, or an empty string."""
        from cfglint_train.forks.vendored import get_package_folder

        return self._find_enclosing(path, lambda root, manifest, _: get_package_folder(root, manifest))

    def _find_enclosing(self, path: str, folder: Callable[[str, FrameworkManifest, str], str]) -> str:
        full_path, root = regular_files.normalize_path(os.path.abspath(path)), self.repositories.get_index(path).root
        copies = (
            (candidate, manifest)
            for manifest in list_vendorable()
            for candidate in self.list_copy_folders(manifest, path)
        )
        copy_folders = (folder(candidate, manifest, root) for candidate, manifest in copies)
        return next(
            (self.named(candidate, path) for candidate in copy_folders if full_path.startswith(f"{candidate}/")), ""
        )

    def _find_nearest(self, manifest: FrameworkManifest, path: str, used_folders: Collection[str]) -> tuple[str, ...]:
        """Return the folders of the nearest copies that a file's run uses; several if they are equally near.

        A copy is used if its project is the file's folder or a parent of it, or if `used_folders` contains it. A whole
        project of the framework one or two levels below a parent also counts as used (`OLMo/`, `third_party/peft/`).
        """
        roots = self.list_copy_folders(manifest, path) if manifest.layout is not None else ()
        if not roots:
            return ()
        from cfglint_train.forks.vendored import get_project_folder, is_project
        from cfglint_train.releases.pins.requirement import match_package_name

        config_folder = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        parents = {folder.replace(os.sep, "/") for folder in self.roots.list_folders_above(config_folder)[0]}
        candidates = []
        for root in roots:
            project = get_project_folder(root)
            is_whole_project = project != root or is_project(project) or match_package_name(project) == manifest.package
            siblings = {os.path.dirname(project), os.path.dirname(os.path.dirname(project))} & parents
            if (is_whole_project and siblings) or project in parents or {root, project} & {*used_folders}:
                candidates.append(root)
        distances = {root: measure_distance(config_folder, root) for root in candidates}
        return tuple(root for root in candidates if distances[root] == min(distances.values()))

    def get_installed_folder(self, manifest: FrameworkManifest, pins: Mapping[str, ResolvedPin]) -> tuple[str, ...]:
        """Return the folder from which a requirement installs a framework, or an empty tuple."""
        fork = pins[manifest.package].fork if manifest.package in pins else None
        return () if fork is None else (os.path.normpath(os.path.join(os.path.dirname(fork.path), fork.fork)),)

    def read_used_copy(
        self, manifest: FrameworkManifest, path: str, used_folders: Collection[str]
    ) -> VendoredVocabulary | ForkTrace | None:
        """Return the vocabulary of the copy that a file's run uses, or None if it uses none.

        Return a `ForkTrace` with the reason if the copy cannot be read.
        """
        nearest = self._find_nearest(manifest, path, used_folders)
        if not nearest:
            return None
        vocabulary = self.read_copies(manifest, nearest, path)
        return (
            None
            if isinstance(vocabulary, ForkTrace) and self._is_unused(manifest, nearest[0], path, used_folders)
            else vocabulary
        )

    def _is_unused(self, manifest: FrameworkManifest, root: str, path: str, used_folders: Collection[str]) -> bool:
        """Return whether a copy is a package without a project, and the run of `path` does not visibly use it.

        An unreadable copy of this kind counts only for the keys that it declares.
        """
        from cfglint_train.forks.vendored import get_project_folder, is_project
        from cfglint_train.releases.pins.requirement import match_package_name

        project, config_folder = get_project_folder(root), os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        if is_project(project) or match_package_name(project) == manifest.package or {root, project} & {*used_folders}:
            return False
        return not f"{config_folder}/".startswith(f"{project}/")

    def read_copies(
        self, manifest: FrameworkManifest, roots: tuple[str, ...], path: str
    ) -> VendoredVocabulary | ForkTrace:
        """Return the vocabulary of the copies in `roots`, or a trace with the reason if there is no common one."""
        key = (manifest.name, roots)
        if key not in self._copies:
            self._copies[key] = self._build_common(manifest, roots, path)
        return self._copies[key]

    def list_copy_folders(self, manifest: FrameworkManifest, path: str) -> tuple[str, ...]:
        """Return the folders in the repository of `path` that contain a copy of the framework."""
        assert manifest.layout is not None
        index = self.repositories.get_index(path)
        key = (manifest.name, index.root)
        if key not in self._holding:
            self._holding[key] = index.find_parent_folders(*manifest.layout.packages)
            if self._holding[key]:
                from cfglint_train.forks.vendored import is_copy

                self._holding[key] = tuple(root for root in self._holding[key] if is_copy(root, manifest))
        return self._holding[key]

    def read_renamed_copy(
        self, manifest: FrameworkManifest, root: str, name: str, path: str
    ) -> VendoredVocabulary | ForkTrace:
        """Return the vocabulary of a copy under another name, or a trace with the reason if it cannot be read."""
        key = (manifest.name, (root, name))
        if key not in self._copies:
            self._copies[key] = self._build_renamed(manifest, root, name, path)
        return self._copies[key]

    def _build_renamed(
        self, manifest: FrameworkManifest, root: str, name: str, path: str
    ) -> VendoredVocabulary | ForkTrace:
        from cfglint_train.forks.vendored import UnreadableCopyError, build_vocabulary, load_renamed_copy
        from cfglint_train.foundation.cache_folder import find_cache_folder

        shown_folder = self.named(f"{root}/{name}", path)
        try:
            return build_vocabulary(
                load_renamed_copy(root, name, manifest),
                manifest,
                shown_folder,
                find_cache_folder(*self._cache_dirs(path)),
            )
        except UnreadableCopyError as error:
            return ForkTrace(shown_folder, str(error), names=error.declared)

    def find_hollow_copy(self, manifest: FrameworkManifest, path: str) -> ForkTrace | None:
        """Return evidence that a file belongs to the framework's project but the package is missing, or None."""
        folders, has_root = self.roots.list_folders_above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if has_root and manifest.layout is not None else ():
            from cfglint_train.forks.hollow_copies import find_empty_folder, read_project_names

            if folder not in self._projects:
                self._projects[folder] = read_project_names(folder)
            if manifest.package in self._projects[folder]:
                return ForkTrace(self.named(folder, path), "lacks the package", scope="folder")
            empty = find_empty_folder(folder, manifest.package)
            if empty is not None:
                return ForkTrace(self.named(f"{folder}/{empty}", path), "is empty", scope="folder")
        return None

    def _build_common(
        self, manifest: FrameworkManifest, roots: tuple[str, ...], path: str
    ) -> VendoredVocabulary | ForkTrace:
        from cfglint_train.forks.vendored import UnreadableCopyError, build_vocabulary, get_package_folder, load_copy
        from cfglint_train.foundation.cache_folder import find_cache_folder

        try:
            copies = [load_copy(root, manifest) for root in roots]
            shown_folder = self.named(copies[0].folder, path)
            if len({copy.digest for copy in copies}) > 1:
                return ForkTrace(shown_folder, f"differs from the copy in `{self.named(copies[1].folder, path)}`")
            return build_vocabulary(copies[0], manifest, shown_folder, find_cache_folder(*self._cache_dirs(path)))
        except UnreadableCopyError as error:
            return ForkTrace(self.named(get_package_folder(roots[0], manifest), path), str(error), names=error.declared)

    def list_patch_files(self, path: str) -> Iterator[str]:
        """Yield the files in a config's folder and its parents that may patch an installed package."""
        folders, has_root = self.roots.list_folders_above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if has_root else ():
            if folder not in self._around:
                try:
                    names = sorted(filter(_can_patch, filesystem.list_names(folder)))
                except OSError:
                    names = []
                self._around[folder] = tuple(os.path.join(folder, name) for name in names)
            yield from self._around[folder]

    def read_submodules(self, path: str) -> tuple[Submodule, ...]:
        """Return the forks of frameworks among the submodules that a `.gitmodules` file declares."""
        if path not in self._read:
            self._read[path] = ()
            if filesystem.exists(path):
                from cfglint_train.forks.submodules import parse_submodules

                self._read[path] = tuple(parse_submodules(path))
        return self._read[path]


def _can_patch(name: str) -> bool:
    """Return whether a file may patch an installed package, judging by its name."""
    return name in _PATCHING_NAMES or (name.endswith(_PATCHING_ENDINGS) and name not in _PATCHING_ENDINGS)
