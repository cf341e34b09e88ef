"""The copies of frameworks that repositories hold: which one a configuration uses, and what it takes.

A copy that the configuration's launch or folder uses is read, and then is the vocabulary; of several the nearest one,
and before them one under another name that the program imports. `evidence.py` lists the other kinds of evidence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.roots import Roots, distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks.evidence import Trace
from cfglint_train.frameworks.registry import FrameworkManifest, copied
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository.index import Repositories

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary
    from cfglint_train.forks.submodules import Submodule
    from cfglint_train.releases.pins.search import ResolvedPin

_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")


class Forks:
    """The forks that repositories use, each repository read once.

    `named` shows a path beside another one. `cache_dirs` are the folder of the cache that a flag names, and that of the
    settings for a path.
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
        self.roots = roots
        self.repositories = repositories
        self.named = named
        self._cache_dirs = cache_dirs
        self._read: dict[str, tuple[Submodule, ...]] = {}
        self._around: dict[str, tuple[str, ...]] = {}
        self._holding: dict[tuple[str, str], tuple[str, ...]] = {}
        self._copies: dict[tuple[str, tuple[str, ...]], VendoredVocabulary | Trace] = {}
        self._projects: dict[str, frozenset[str]] = {}

    def stated(self, listed: FrameworkManifest, path: str, said: ReleaseStatements) -> ReleaseStatements:
        """The statements about releases around a file, and by the nearest copy of its framework: what is held in the
        repository is what runs, whatever its requirement files ask for.
        """
        used = self.installed(listed, said.pins)
        nearest = () if listed.package in said.facts else self._nearest(listed, path, used)
        if not nearest:
            return said
        from cfglint_train.forks.vendored import likely_releases, release_of

        found = [release_of(root, listed) for root in nearest]
        if found == [None]:
            copy = self.copy(listed, path, used)
            found = [likely_releases(None if isinstance(copy, Trace) else copy, nearest[0], listed)]
        if found[0] is None or any(one is None or one.constraint != found[0].constraint for one in found):
            return said
        return ReleaseStatements(said.facts, {**said.pins, listed.package: found[0]}, said.named)

    def part_of(self, path: str) -> str:
        """The folder of the copy that a file is a part of, as messages name it; empty where it is part of none.

        Below the root of the repository, a copy is the project that its package is in. A package has no scripts that
        train: those in its folder are the repository's own.
        """
        from cfglint_train.forks.vendored import whole

        return "" if path.endswith(_SCRIPTS) and self.package_of(path) else self._holding_file(path, whole)

    def package_of(self, path: str) -> str:
        """The package of a copy that a file is in, as messages name it; empty where it is in none."""
        from cfglint_train.forks.vendored import folder_at

        return self._holding_file(path, lambda root, of, _: folder_at(root, of))

    def _holding_file(self, path: str, folder: Callable[[str, FrameworkManifest, str], str]) -> str:
        own, root = regular_files.tidy(os.path.abspath(path)), self.repositories.index(path).root
        holding = ((one, of) for of in copied() for one in self.folders_of(of, path))
        found = (folder(one, of, root) for one, of in holding)
        return next((self.named(one, path) for one in found if own.startswith(f"{one}/")), "")

    def _nearest(self, listed: FrameworkManifest, path: str, used: Collection[str]) -> tuple[str, ...]:
        """Return the folders that hold a copy which a file's run uses: in the file's folder or those above, where it
        takes packages from, or the framework's whole project beside those folders (`OLMo/`, `third_party/peft/`). Of
        several the nearest ones.
        """
        roots = self.folders_of(listed, path) if listed.tree is not None else ()
        if not roots:
            return ()
        from cfglint_train.forks.vendored import base_of, is_project
        from cfglint_train.releases.pins.requirement import namesake

        own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        above = {folder.replace(os.sep, "/") for folder in self.roots.above(own)[0]}
        near = []
        for root in roots:
            project = base_of(root)
            whole = project != root or is_project(project) or namesake(project) == listed.package
            beside = {os.path.dirname(project), os.path.dirname(os.path.dirname(project))} & above
            if (whole and beside) or project in above or {root, project} & {*used}:
                near.append(root)
        distances = {root: distance(own, root) for root in near}
        return tuple(root for root in near if distances[root] == min(distances.values()))

    def installed(self, listed: FrameworkManifest, pins: Mapping[str, ResolvedPin]) -> tuple[str, ...]:
        """Return the folder that a requirement installs a framework from."""
        fork = pins[listed.package].fork if listed.package in pins else None
        return () if fork is None else (os.path.normpath(os.path.join(os.path.dirname(fork.path), fork.fork)),)

    def copy(self, listed: FrameworkManifest, path: str, used: Collection[str]) -> VendoredVocabulary | Trace | None:
        """Return what the copy takes that a file's run uses, or why that cannot be determined."""
        nearest = self._nearest(listed, path, used)
        if not nearest:
            return None
        found = self.read_copies(listed, nearest, path)
        return None if isinstance(found, Trace) and self._is_aside(listed, nearest[0], path, used) else found

    def _is_aside(self, listed: FrameworkManifest, root: str, path: str, used: Collection[str]) -> bool:
        """Whether a copy is no project of its own, and a file's run is not seen to use it: files that cannot be read as
        one then show only the keys that they declare.
        """
        from cfglint_train.forks.vendored import base_of, is_project
        from cfglint_train.releases.pins.requirement import namesake

        project, own = base_of(root), os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        if is_project(project) or namesake(project) == listed.package or {root, project} & {*used}:
            return False
        return not f"{own}/".startswith(f"{project}/")

    def read_copies(self, listed: FrameworkManifest, roots: tuple[str, ...], path: str) -> VendoredVocabulary | Trace:
        """Return what some copies take that are one, or why that cannot be determined."""
        key = (listed.name, roots)
        if key not in self._copies:
            self._copies[key] = self._choose(listed, roots, path)
        return self._copies[key]

    def folders_of(self, listed: FrameworkManifest, path: str) -> tuple[str, ...]:
        """The folders of the repository that hold a copy."""
        assert listed.tree is not None
        index = self.repositories.index(path)
        key = (listed.name, index.root)
        if key not in self._holding:
            self._holding[key] = index.holding(*listed.tree.packages)
            if self._holding[key]:
                from cfglint_train.forks.vendored import is_copy

                self._holding[key] = tuple(root for root in self._holding[key] if is_copy(root, listed))
        return self._holding[key]

    def renamed_copy(self, listed: FrameworkManifest, root: str, name: str, path: str) -> VendoredVocabulary | Trace:
        """Return what a copy under another name takes, or why that cannot be determined."""
        key = (listed.name, (root, name))
        if key not in self._copies:
            self._copies[key] = self._under_another_name(listed, root, name, path)
        return self._copies[key]

    def _under_another_name(
        self, listed: FrameworkManifest, root: str, name: str, path: str
    ) -> VendoredVocabulary | Trace:
        from cfglint_train.forks.vendored import UnreadTreeError, renamed_copy, vocabulary
        from cfglint_train.foundation.cache import folder_of

        shown = self.named(f"{root}/{name}", path)
        try:
            return vocabulary(renamed_copy(root, name, listed), listed, shown, folder_of(*self._cache_dirs(path)))
        except UnreadTreeError as error:
            return Trace(shown, str(error), names=error.declared)

    def hollow(self, listed: FrameworkManifest, path: str) -> Trace | None:
        """The evidence that a file is part of a copy whose package was left out."""
        folders, rooted = self.roots.above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if rooted and listed.tree is not None else ():
            if folder not in self._projects:
                from cfglint_train.forks.hollow_copies import projects

                self._projects[folder] = projects(folder)
            if listed.package in self._projects[folder]:
                return Trace(self.named(folder, path), "lacks the package", scope="folder")
        return None

    def _choose(self, listed: FrameworkManifest, roots: tuple[str, ...], path: str) -> VendoredVocabulary | Trace:
        from cfglint_train.forks.vendored import UnreadTreeError, copy_at, folder_at, vocabulary
        from cfglint_train.foundation.cache import folder_of

        try:
            found = [copy_at(root, listed) for root in roots]
            shown = self.named(found[0].folder, path)
            if len({copy.digest for copy in found}) > 1:
                return Trace(shown, f"differs from that in `{self.named(found[1].folder, path)}`")
            return vocabulary(found[0], listed, shown, folder_of(*self._cache_dirs(path)))
        except UnreadTreeError as error:
            return Trace(self.named(folder_at(roots[0], listed), path), str(error), names=error.declared)

    def patching(self, path: str) -> Iterator[str]:
        """Return the files in the folder of a configuration, and in those above, that may change a package."""
        from cfglint_train.forks.patches import PATCHING

        folders, rooted = self.roots.above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if rooted else ():
            if folder not in self._around:
                try:
                    names = sorted(filter(PATCHING.fullmatch, os.listdir(folder)))
                except OSError:
                    names = []
                self._around[folder] = tuple(os.path.join(folder, name) for name in names)
            yield from self._around[folder]

    def submodules(self, path: str) -> tuple[Submodule, ...]:
        """Return what a file states of submodules."""
        if path not in self._read:
            self._read[path] = ()
            if os.path.exists(path):
                from cfglint_train.forks.submodules import submodules

                self._read[path] = tuple(submodules(path))
        return self._read[path]
