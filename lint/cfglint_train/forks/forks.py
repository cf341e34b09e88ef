"""Which framework a repository uses: upstream's releases, a copy that it holds, or something else that it pins.

A copy that the configuration's launch or folder uses is read, and then is the vocabulary; of several the nearest one,
and before them one under another name that the program imports. `frameworks/doubt.py` lists the other kinds of evidence
and their strength. All of it concerns a configuration only through a launch that starts it, or from its folder and
those above.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.roots import Roots, distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.doubt import KINDS, Doubt
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import Listed, copied
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository.index import Repositories

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary
    from cfglint_train.forks.namesakes import Launches
    from cfglint_train.forks.submodules import Submodule
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.releases.pins.search import Settled

_SUBMODULES: Final = ".gitmodules"
_MAY_MOVE: Final = re.compile(rb"PYTHONPATH|\bcd\b|\bpushd\b|\binstall\b")
"""What is in a script that takes a package from another folder."""
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
        "_named",
        "_projects",
        "_read",
        "_repositories",
        "_roots",
    )

    def __init__(
        self,
        roots: Roots,
        repositories: Repositories,
        named: Callable[[str, str], str],
        cache_dirs: Callable[[str], tuple[str | None, str | None]],
    ) -> None:
        self._roots = roots
        self._repositories = repositories
        self._named = named
        self._cache_dirs = cache_dirs
        self._read: dict[str, tuple[Submodule, ...]] = {}
        self._around: dict[str, tuple[str, ...]] = {}
        self._holding: dict[tuple[str, str], tuple[str, ...]] = {}
        self._copies: dict[tuple[str, tuple[str, ...]], VendoredVocabulary | Doubt] = {}
        self._projects: dict[str, frozenset[str]] = {}

    def settle(self, config: Config, pins: Mapping[str, Settled], scripts: LaunchScripts) -> None:
        """Give a configuration the vocabulary of the nearest copy, else the doubt about upstream's."""
        framework, path = frameworks.load(config.framework), config.document.path
        keys = framework.keys
        if keys is None:
            return
        if config.document.syntax == "python":
            packages = (framework.listed.package, framework.listed.beside)
            config.doubt = self._namesake(framework.listed, path, packages, scripts.given(config), scripts)
            if config.doubt is not None:
                return
        used = (*self._installed(framework.listed, path, pins), *self._launched_from(config, scripts))
        copy = self._imported(framework.listed, config, scripts) or self.copy(framework.listed, path, used)
        if isinstance(copy, Doubt):
            config.doubt = copy
        elif copy is not None and (entry := keys.started(config)) is not None:
            if entry in copy.entries:
                config.vocabulary = copy
                return
            config.doubt = Doubt("tree", copy.folder, f"has no {entry}")
        elif copy is None:
            config.doubt = self._hollow(framework.listed, path)
        config.doubt = config.doubt or self._pinned(framework.listed, path, pins)
        changed = self._changed(framework.listed, path, self._programs(config, scripts))
        found = [*keys.doubts(config), *self._launched(keys, config, scripts), *changed]
        config.doubt = config.doubt or next((one for one in found if KINDS[one.kind].strength == "replaces"), None)
        if config.doubt is None:
            found += self._unused(framework.listed, path)
            found += self._patched(framework.listed, config, scripts)
            config.lowering = tuple(one for one in found if KINDS[one.kind].strength != "replaces")

    def used(self, listed: Listed, path: str, pins: Mapping[str, Settled]) -> VendoredVocabulary | Doubt | None:
        """What counts above the releases of a package that a script imports: what its nearest copy takes, or the doubt
        about theirs.
        """
        beside = self._namesake(listed, path, (listed.package,), ())
        used = self._installed(listed, path, pins)
        found = beside or self.copy(listed, path, used) or self._pinned(listed, path, pins)
        return found or next(self._changed(listed, path, (path,)), None)

    def stated(self, listed: Listed, path: str, said: ReleaseStatements) -> ReleaseStatements:
        """The statements about releases around a file, and by the nearest copy of its framework: what is held in the
        repository is what runs, whatever its requirement files ask for.
        """
        used = self._installed(listed, path, said.pins)
        nearest = () if listed.package in said.facts else self._nearest(listed, path, used)
        if not nearest:
            return said
        from cfglint_train.forks.vendored import likely_releases, release_of

        found = [release_of(root, listed) for root in nearest]
        if found == [None]:
            copy = self.copy(listed, path, used)
            found = [likely_releases(None if isinstance(copy, Doubt) else copy, nearest[0], listed)]
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

    def _holding_file(self, path: str, folder: Callable[[str, Listed, str], str]) -> str:
        own, root = regular_files.tidy(os.path.abspath(path)), self._repositories.index(path).root
        holding = ((one, of) for of in copied() for one in self._folders(of, path))
        found = (folder(one, of, root) for one, of in holding)
        return next((self._named(one, path) for one in found if own.startswith(f"{one}/")), "")

    def _nearest(self, listed: Listed, path: str, used: Collection[str]) -> tuple[str, ...]:
        """Return the folders that hold a copy which a file's run uses: in the file's folder or those above, where it
        takes packages from, or the framework's whole project beside those folders (`OLMo/`, `third_party/peft/`). Of
        several the nearest ones.
        """
        roots = self._folders(listed, path) if listed.tree is not None else ()
        if not roots:
            return ()
        from cfglint_train.forks.vendored import base_of, is_project
        from cfglint_train.releases.pins.requirement import namesake

        own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        above = {folder.replace(os.sep, "/") for folder in self._roots.above(own)[0]}
        near = []
        for root in roots:
            project = base_of(root)
            whole = project != root or is_project(project) or namesake(project) == listed.package
            beside = {os.path.dirname(project), os.path.dirname(os.path.dirname(project))} & above
            if (whole and beside) or project in above or {root, project} & {*used}:
                near.append(root)
        distances = {root: distance(own, root) for root in near}
        return tuple(root for root in near if distances[root] == min(distances.values()))

    def _installed(self, listed: Listed, path: str, pins: Mapping[str, Settled]) -> tuple[str, ...]:
        """Return the folder that a requirement installs a framework from."""
        fork = pins[listed.package].fork if listed.package in pins else None
        return () if fork is None else (os.path.normpath(os.path.join(os.path.dirname(fork.path), fork.fork)),)

    def _launched_from(self, config: Config, scripts: LaunchScripts) -> Iterator[str]:
        """Return the folders of the repository in which the launches of a configuration look for packages first."""
        root = self._repositories.index(config.document.path).root
        yield from map(os.path.dirname, self._programs(config, scripts))
        for document, launch in scripts.given(config):
            if _MAY_MOVE.search(document.source):
                from cfglint_train.forks.checkouts import folders, inside

                for named, _ in folders(document, launch):
                    yield from inside(named, document.path, root)

    def copy(self, listed: Listed, path: str, used: Collection[str]) -> VendoredVocabulary | Doubt | None:
        """Return what the copy takes that a file's run uses, or why that cannot be determined."""
        nearest = self._nearest(listed, path, used)
        if not nearest:
            return None
        found = self._read_copies(listed, nearest, path)
        return None if isinstance(found, Doubt) and self._is_aside(listed, nearest[0], path, used) else found

    def _is_aside(self, listed: Listed, root: str, path: str, used: Collection[str]) -> bool:
        """Whether a copy is no project of its own, and a file's run is not seen to use it: files that cannot be read as
        one then show only the keys that they declare.
        """
        from cfglint_train.forks.vendored import base_of, is_project
        from cfglint_train.releases.pins.requirement import namesake

        project, own = base_of(root), os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        if is_project(project) or namesake(project) == listed.package or {root, project} & {*used}:
            return False
        return not f"{own}/".startswith(f"{project}/")

    def _read_copies(self, listed: Listed, roots: tuple[str, ...], path: str) -> VendoredVocabulary | Doubt:
        key = (listed.name, roots)
        if key not in self._copies:
            self._copies[key] = self._choose(listed, roots, path)
        return self._copies[key]

    def _unused(self, listed: Listed, path: str) -> Iterator[Doubt]:
        """Return the copies of the repository that no launch is seen to use, with the keys that each declares."""
        roots = self._folders(listed, path) if listed.tree is not None else ()
        if not roots:
            return
        from cfglint_train.forks.vendored import folder_at

        for root in roots:
            copy = self._read_copies(listed, (root,), path)
            if isinstance(copy, Doubt):
                names = copy.declared
            else:
                names = frozenset(fact.name.lstrip("-").rpartition(".")[2] for fact in copy.walk(copy.releases[-1]))
            yield Doubt("copy", self._named(folder_at(root, listed), path), declared=names)

    def _namesake(
        self,
        listed: Listed,
        path: str,
        packages: Iterable[str | None],
        launches: Launches,
        scripts: LaunchScripts | None = None,
    ) -> Doubt | None:
        """The evidence that a script imports a module of the repository that has a package's name and is no copy."""
        from cfglint_train.forks.namesakes import as_module, namesake

        if scripts is not None:
            launches = (*launches, *as_module(path, scripts))
        names = [name for name in packages if name]
        found = namesake(path, launches, names, self._repositories.index(path).root)
        if found is None or (listed.tree is not None and os.path.dirname(found) in self._folders(listed, path)):
            return None
        return Doubt("namesake", self._named(found, path))

    def _imported(self, listed: Listed, config: Config, scripts: LaunchScripts) -> VendoredVocabulary | Doubt | None:
        """What a copy under another name takes that the program imports which scripts start with a configuration; the
        doubt where that imports another package of the repository, and the framework nowhere.
        """
        if listed.tree is None:
            return None
        path = config.document.path
        index = self._repositories.index(path)
        for document, one in scripts.given(config) if index.rooted else ():
            if not one.program.endswith(".py"):
                continue
            from cfglint_train.forks.renamed_copies import file_of, imports_another, renamed_copy_of

            file = file_of(one.program, document.path, index)
            if file is None:
                continue
            name = renamed_copy_of(file, index, listed)
            if name is not None:
                key = (listed.name, name)
                if key not in self._copies:
                    self._copies[key] = self._under_another_name(listed, *name, path)
                return self._copies[key]
            keys = frameworks.load(listed.name).keys
            if keys is not None and not keys.library and imports_another(file, index, listed):
                return Doubt("program", one.program)
        return None

    def _under_another_name(self, listed: Listed, root: str, name: str, path: str) -> VendoredVocabulary | Doubt:
        from cfglint_train.forks.vendored import UnreadTreeError, renamed_copy, vocabulary
        from cfglint_train.foundation.cache import folder_of

        shown = self._named(f"{root}/{name}", path)
        try:
            return vocabulary(renamed_copy(root, name, listed), listed, shown, folder_of(*self._cache_dirs(path)))
        except UnreadTreeError as error:
            return Doubt("tree", shown, str(error), declared=error.declared)

    def _hollow(self, listed: Listed, path: str) -> Doubt | None:
        """The evidence that a file is part of a copy whose package was left out."""
        folders, rooted = self._roots.above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if rooted and listed.tree is not None else ():
            if folder not in self._projects:
                from cfglint_train.forks.hollow_copies import projects

                self._projects[folder] = projects(folder)
            if listed.package in self._projects[folder]:
                return Doubt("tree", self._named(folder, path), "lacks the package")
        return None

    def _folders(self, listed: Listed, path: str) -> tuple[str, ...]:
        """The folders of the repository that hold a copy."""
        assert listed.tree is not None
        index = self._repositories.index(path)
        key = (listed.name, index.root)
        if key not in self._holding:
            self._holding[key] = index.holding(*listed.tree.packages)
            if self._holding[key]:
                from cfglint_train.forks.vendored import is_copy

                self._holding[key] = tuple(root for root in self._holding[key] if is_copy(root, listed))
        return self._holding[key]

    def _choose(self, listed: Listed, roots: tuple[str, ...], path: str) -> VendoredVocabulary | Doubt:
        from cfglint_train.forks.vendored import UnreadTreeError, copy_at, folder_at, vocabulary
        from cfglint_train.foundation.cache import folder_of

        try:
            found = [copy_at(root, listed) for root in roots]
            shown = self._named(found[0].folder, path)
            if len({copy.digest for copy in found}) > 1:
                return Doubt("tree", shown, f"differs from that in `{self._named(found[1].folder, path)}`")
            return vocabulary(found[0], listed, shown, folder_of(*self._cache_dirs(path)))
        except UnreadTreeError as error:
            return Doubt("tree", self._named(folder_at(roots[0], listed), path), str(error), declared=error.declared)

    def _pinned(self, listed: Listed, path: str, pins: Mapping[str, Settled]) -> Doubt | None:
        """The evidence that a framework, or the package whose settings it takes over, is pinned to a fork."""
        packages = [listed.package, *([listed.beside] if listed.beside else [])]
        for package in packages:
            fork = pins[package].fork if package in pins else None
            if fork is not None:
                return Doubt("pin", fork.fork, f"{self._named(fork.path, path)}:{fork.line}")
        folders, rooted = self._roots.above(os.path.dirname(os.path.abspath(path)))
        stated_in = os.path.join(folders[-1], _SUBMODULES)
        for one in self._submodules(stated_in) if rooted else ():
            if one.package in packages:
                return Doubt("submodule", one.repository, f"{self._named(stated_in, path)}:{one.line}")
        return None

    def _launched(self, keys: Keys, config: Config, scripts: LaunchScripts) -> Iterator[Doubt]:
        """The evidence in the scripts that start a configuration: a fork that one installs, a foreign program."""
        listed, path = keys.listed, config.document.path
        for document in dict.fromkeys(document for document, _ in scripts.given(config)):
            if b"git" not in document.source:
                continue
            from cfglint_train.releases.pins.readers import forks_in

            text = re.sub(r"(?m)^\s*#.*$", "", document.source.decode("utf-8", "replace"))
            for pin in forks_in(document.path, text):
                if pin.package == listed.package and pin.fork:
                    yield Doubt("pin", pin.fork, f"{self._named(pin.path, path)}:{pin.line}")
        found = self._checkout(listed, config, scripts)
        if found is not None:
            yield found
        program = None if keys.library else scripts.foreign(config)
        if program is not None:
            yield Doubt("entry", program)

    def _checkout(self, listed: Listed, config: Config, scripts: LaunchScripts) -> Doubt | None:
        """The evidence that a launch takes the framework from another folder than that of the installed package."""
        path = config.document.path
        launches = list(scripts.given(config))
        if not launches and config.document.syntax != "shell":
            return None
        from cfglint_train.documents.shell.document import ShellDocument
        from cfglint_train.forks.checkouts import checkout

        if isinstance(config.document, ShellDocument):
            launches.append((config.document, config.document.invocations[int(config.root[0])]))
        root = self._repositories.index(path).root
        for document, launch in launches:
            found = checkout(document, launch, listed.package, root) if _MAY_MOVE.search(document.source) else None
            if found is not None:
                return Doubt("checkout", found[0], f"{self._named(document.path, path)}:{found[1]}")
        return None

    def _patched(self, listed: Listed, config: Config, scripts: LaunchScripts) -> Iterator[Doubt]:
        """The evidence that a launch, or an image or script around a configuration, changes the installed package."""
        path = config.document.path
        index = self._repositories.index(path)
        if listed.tree is None or not index.rooted:
            return
        from cfglint_train.forks.patches import changes_in

        launching = [document.path for document, _ in scripts.given(config)]
        found = changes_in((*launching, *self._patching(path)), listed.tree.packages, index)
        if found is not None:
            yield Doubt("patch", self._named(found.path, path), f"`{found.module}`", declared=found.declared)

    def _patching(self, path: str) -> Iterator[str]:
        """Return the files in the folder of a configuration, and in those above, that may change a package."""
        from cfglint_train.forks.patches import PATCHING

        folders, rooted = self._roots.above(os.path.dirname(os.path.abspath(path)))
        for folder in folders if rooted else ():
            if folder not in self._around:
                try:
                    names = sorted(filter(PATCHING.fullmatch, os.listdir(folder)))
                except OSError:
                    names = []
                self._around[folder] = tuple(os.path.join(folder, name) for name in names)
            yield from self._around[folder]

    def _programs(self, config: Config, scripts: LaunchScripts) -> tuple[str, ...]:
        """The Python files of the repository that run a configuration: itself, or those that scripts start with it."""
        path = config.document.path
        if config.document.syntax == "python":
            return (path,)
        from cfglint_train.forks.renamed_copies import file_of

        index = self._repositories.index(path)
        started = {(one.program, document.path) for document, one in scripts.given(config)}
        found = (file_of(program, script, index) for program, script in sorted(started) if program.endswith(".py"))
        return tuple(one for one in found if one is not None)

    def _changed(self, listed: Listed, path: str, programs: Collection[str]) -> Iterator[Doubt]:
        """The evidence that a program changes a class of the framework's settings before it makes one."""
        index, known = self._repositories.index(path), listed.vocabulary
        if known is None or not index.rooted or not programs:
            return
        from cfglint_schemas.vocabulary import load
        from cfglint_train.forks.changed_classes import ChangedClasses

        spans = (span for entry in load(known).entries.values() for span in entry)
        classes = frozenset(name.rpartition(".")[2] for span in spans for name in span["definitions"])
        packages = [name for name in (listed.package, listed.beside) if name]
        for program in programs:
            found = index.once(ChangedClasses).by(program, packages, classes)
            if found is not None:
                yield Doubt("class", self._named(found.path, path), f"`{found.name}`", declared=found.declared)

    def _submodules(self, path: str) -> tuple[Submodule, ...]:
        if path not in self._read:
            self._read[path] = ()
            if os.path.exists(path):
                from cfglint_train.forks.submodules import submodules

                self._read[path] = tuple(submodules(path))
        return self._read[path]
