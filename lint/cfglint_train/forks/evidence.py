"""Whether a configuration's framework is upstream's: the kinds of evidence, one row each, and what they come to.

A row has the function that finds the evidence, the scopes in which it counts with its strength there, and its sentence
in a report. The first that replaces upstream's vocabulary settles the matter. Texts, docstrings and tests are no
evidence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cfglint_train.forks.forks import Forks
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.evidence import ConfigEvidence, Evidence, Scope, Strength, Trace
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import FrameworkManifest, handed_to

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.releases.pins.search import ResolvedPin

_MAY_MOVE: Final = re.compile(rb"PYTHONPATH|\bcd\b|\bpushd\b|\binstall\b")
"""What is in a script that takes a package from another folder."""


class Subject(Frozen):
    """A package that a configuration uses, and what there is to look for evidence about it in."""

    listed: FrameworkManifest
    config: Config
    pins: Mapping[str, ResolvedPin]
    forks: Forks
    scripts: LaunchScripts
    launches: Sequence[tuple[ShellDocument, Invocation]] = ()
    """The invocations that start the configuration."""
    keys: Keys | None = None
    """Of its framework; None of another package, to which it hands settings."""

    @property
    def path(self) -> str:
        """The file of the configuration."""
        return self.config.document.path

    @property
    def packages(self) -> list[str]:
        """The package, and the one whose settings it takes over."""
        return [name for name in (self.listed.package, self.listed.beside) if name]

    def shown(self, path: str, line: int = 0) -> str:
        """A path as messages name it, with a line."""
        return self.forks.named(path, self.path) + (f":{line}" if line else "")

    def started(self) -> Iterator[tuple[str, ShellDocument, Invocation]]:
        """The Python files of the repository that scripts start with the configuration."""
        index = self.forks.repositories.index(self.path)
        for script, one in self.launches if index.rooted else ():
            if one.program.endswith(".py"):
                from cfglint_train.forks.renamed_copies import file_of

                file = file_of(one.program, script.path, index)
                if file is not None:
                    yield file, script, one

    def programs(self) -> list[str]:
        """The Python files of the repository that run the configuration: itself, or those that are started with it."""
        if self.config.document.syntax == "python":
            return [self.path] if self.keys is not None else []
        return sorted({file for file, _, _ in self.started()})

    def launched(self, script: ShellDocument, one: Invocation) -> str:
        """The place of a launch."""
        return self.shown(script.path, script.position(one.span.start).line)


Found = Iterator["Trace | VendoredVocabulary"]


def find_namesakes(one: Subject) -> Found:
    """A module of the repository that a script imports by the package's name, and which is no copy."""
    if one.config.document.syntax != "python":
        return
    from cfglint_train.forks.namesakes import as_module, namesake

    launches = (*one.launches, *as_module(one.path, one.scripts)) if one.keys is not None else ()
    found = namesake(one.path, launches, one.packages, one.forks.repositories.index(one.path).root)
    if found is not None and os.path.dirname(found) not in _folders(one):
        yield Trace(one.shown(found), place=one.path)


def find_programs(one: Subject) -> Found:
    """A launched program of the repository that imports another package of it in the place of upstream's."""
    if one.keys is None or one.keys.library or one.listed.tree is None:
        return
    from cfglint_train.forks.renamed_copies import imports_another, renamed_copy_of

    index = one.forks.repositories.index(one.path)
    for file, script, launch in one.started():
        if renamed_copy_of(file, index, one.listed) is not None:
            return  # it is read
        if imports_another(file, index, one.listed):
            yield Trace(launch.program, place=one.launched(script, launch))


def find_copies(one: Subject) -> Found:
    """The copy that a launch or the folder uses, if it is started at one of its entry points."""
    copy = _copy(one)
    if copy is None:
        hollow = one.forks.hollow(one.listed, one.path) if one.keys is not None else None
        yield from () if hollow is None else (hollow,)
    elif isinstance(copy, Trace) or one.keys is None:
        yield copy
    elif (entry := one.keys.started(one.config)) is not None:
        yield copy if entry in copy.entries else Trace(copy.folder, f"has no {entry}")


def find_pins(one: Subject) -> Found:
    """A fork that a requirement around the configuration installs."""
    for package in one.packages:
        fork = one.pins[package].fork if package in one.pins else None
        if fork is not None:
            yield Trace(fork.fork, place=one.shown(fork.path, fork.line), scope="folder")


def find_submodules(one: Subject) -> Found:
    """A submodule of the repository that is a fork, if no requirement installs a release of upstream's."""
    folders, rooted = one.forks.roots.above(os.path.dirname(os.path.abspath(one.path)))
    stated_in = os.path.join(folders[-1], ".gitmodules")
    for module in one.forks.submodules(stated_in) if rooted else ():
        settled = one.pins.get(module.package)
        is_upstream = settled is not None and settled.constraint.exact is not None and not settled.optional
        if module.package in one.packages and not is_upstream:
            yield Trace(module.repository, place=one.shown(stated_in, module.line), scope="folder")


def find_installed(one: Subject) -> Found:
    """A fork that a script installs which starts the configuration."""
    for document in dict.fromkeys(document for document, _ in one.launches):
        if b"git" not in document.source:
            continue
        from cfglint_train.releases.pins.readers import forks_in

        text = re.sub(r"(?m)^\s*#.*$", "", document.source.decode("utf-8", "replace"))
        for pin in forks_in(document.path, text):
            if pin.package == one.listed.package and pin.fork:
                yield Trace(pin.fork, place=one.shown(pin.path, pin.line))


def find_checkouts(one: Subject) -> Found:
    """Another folder than that of the installed package, from which a launch takes the framework."""
    root = one.forks.repositories.index(one.path).root
    for document, launch in one.launches:
        if _MAY_MOVE.search(document.source):
            from cfglint_train.forks.checkouts import checkout

            found = checkout(document, launch, one.listed.package, root)
            if found is not None:
                yield Trace(found[0], place=one.shown(document.path, found[1]))


def find_entries(one: Subject) -> Found:
    """A program that trains, is given the configuration, and is no entry point of upstream."""
    yield from _stated(one, "entry")
    program = one.scripts.foreign(one.config) if one.keys is not None and not one.keys.library else None
    for script, launch in one.launches if program is not None else ():
        if launch.program == program:
            yield Trace(program, place=one.launched(script, launch))


def find_classes(one: Subject) -> Found:
    """A class of the framework's settings that a launched program changes before it makes one."""
    index, known = one.forks.repositories.index(one.path), one.listed.vocabulary
    programs = one.programs() if one.keys is not None else [one.path]
    if known is None or not index.rooted or not programs:
        return
    from cfglint_schemas.vocabulary import load
    from cfglint_train.forks.changed_classes import ChangedClasses

    spans = (span for entry in load(known).entries.values() for span in entry)
    classes = frozenset(name.rpartition(".")[2] for span in spans for name in span["definitions"])
    for program in programs:
        found = index.once(ChangedClasses).by(program, one.packages, classes)
        if found is not None:
            place = one.shown(found.path, found.line)
            yield Trace(one.shown(found.path), f"`{found.name}`", place, names=found.declared)


def find_plugins(one: Subject) -> Found:
    """A plugin that the configuration loads and upstream lacks."""
    return _stated(one, "plugin")


def find_keys(one: Subject) -> Found:
    """A key of a known fork."""
    return _stated(one, "key")


def find_unused(one: Subject) -> Found:
    """The copies of the repository that no launch is seen to use, with the keys that each declares."""
    for root in _folders(one) if one.keys is not None else ():
        from cfglint_train.forks.vendored import folder_at

        copy, folder = one.forks.read_copies(one.listed, (root,), one.path), one.shown(folder_at(root, one.listed))
        if isinstance(copy, Trace):
            names = copy.names
        else:
            names = frozenset(fact.name.lstrip("-").rpartition(".")[2] for fact in copy.walk(copy.releases[-1]))
        yield Trace(folder, place=folder, scope="repository", names=names)


def find_patches(one: Subject) -> Found:
    """A change of the installed package by a launch, or by an image or script in the folder or one above."""
    index = one.forks.repositories.index(one.path)
    if one.keys is None or one.listed.tree is None or not index.rooted:
        return
    from cfglint_train.forks.patches import changes_in

    launching = [document.path for document, _ in one.launches]
    found = changes_in((*launching, *one.forks.patching(one.path)), one.listed.tree.packages, index)
    if found is not None:
        scope: Scope = "launch" if found.path in launching else "folder"
        place = one.shown(found.path, found.line)
        yield Trace(one.shown(found.path), f"`{found.module}`", place, scope, found.declared)


class Kind(Frozen):
    """A kind of evidence."""

    name: str
    find: Callable[[Subject], Found]
    scopes: Mapping[Scope, Strength]
    """Where it counts, and how much; evidence of another scope is none."""
    sentence: str


KINDS: Final = (
    Kind("namesake", find_namesakes, {"launch": "replaces"}, "the script imports `{source}` of the repository"),
    Kind("program", find_programs, {"launch": "replaces"},
         "`{source}` of the repository imports another package in its place"),
    Kind("tree", find_copies, {"launch": "replaces", "folder": "replaces"}, "the copy in `{source}` {what}"),
    Kind("pin", find_pins, {"folder": "replaces"}, "`{source}` is installed ({place})"),
    Kind("submodule", find_submodules, {"folder": "replaces"}, "`{source}` is a submodule ({place})"),
    Kind("pin", find_installed, {"launch": "replaces"}, "`{source}` is installed ({place})"),
    Kind("checkout", find_checkouts, {"launch": "replaces"}, "it is taken from `{source}` ({place})"),
    Kind("entry", find_entries, {"launch": "replaces", "config": "replaces"},
         "`{source}` is not an entry point of upstream"),
    Kind("class", find_classes, {"launch": "replaces"}, "`{source}`, which the program imports, changes {what}"),
    Kind("plugin", find_plugins, {"config": "lowers"}, "`{source}` is not a plugin of upstream"),
    Kind("key", find_keys, {"config": "adds"}, "`{what}` is a key of `{source}`"),
    Kind("copy", find_unused, {"repository": "lowers"}, "no launch is seen to use the copy in `{source}`"),
    Kind("patch", find_patches, {"launch": "adds", "folder": "adds"}, "`{source}` may patch {what}"),
)  # fmt: skip


def collect_evidence(
    config: Config, pins: Mapping[str, ResolvedPin], forks: Forks, scripts: LaunchScripts
) -> ConfigEvidence:
    """Return the evidence about a configuration, and about the packages to which a script hands settings."""
    framework = frameworks.load(config.framework)
    subject = Subject(framework.listed, config, pins, forks, scripts, scripts.given(config), framework.keys)
    found = config.evidence if framework.keys is None else _weighed(subject, config.evidence)
    if config.document.syntax != "python":
        return found
    others = (Subject(listed, config, pins, forks, scripts) for listed in handed_to().values())
    return found._replace(copies={one.listed.name: _weighed(one, ConfigEvidence()) for one in others})


def _weighed(subject: Subject, known: ConfigEvidence) -> ConfigEvidence:
    """What is known with the evidence about a package: all of it counts in its scope, as strongly as its kind does."""
    lowering = []
    for kind in KINDS:
        for one in kind.find(subject):
            if not isinstance(one, Trace):
                return known._replace(vocabulary=one)
            strength = kind.scopes.get(one.scope)
            if strength is None:
                continue
            text = kind.sentence.format(source=one.source, what=one.what, place=one.place)
            found = Evidence(kind.name, strength, one.scope, text, one.place or one.source, one.names)
            if strength == "replaces":
                return known._replace(fork=found)
            lowering.append(found)
    return known._replace(lowering=tuple(lowering))


def _stated(one: Subject, kind: str) -> Found:
    """What the configuration itself states of a kind."""
    yield from (trace for name, trace in one.keys.traces(one.config) if name == kind) if one.keys is not None else ()


def _folders(one: Subject) -> tuple[str, ...]:
    """The folders of the repository that hold a copy."""
    return one.forks.folders_of(one.listed, one.path) if one.listed.tree is not None else ()


def _copy(one: Subject) -> VendoredVocabulary | Trace | None:
    """What the copy takes that a launched program imports under another name, else the nearest one that is used."""
    index = one.forks.repositories.index(one.path)
    for file, _, _ in one.started() if one.listed.tree is not None else ():
        from cfglint_train.forks.renamed_copies import renamed_copy_of

        name = renamed_copy_of(file, index, one.listed)
        if name is not None:
            return one.forks.renamed_copy(one.listed, *name, one.path)
    used = [*one.forks.installed(one.listed, one.pins), *map(os.path.dirname, one.programs())]
    for document, launch in one.launches:
        if _MAY_MOVE.search(document.source):
            from cfglint_train.forks.checkouts import folders, inside

            used += (folder for named, _ in folders(document, launch) for folder in inside(named, one.path, index.root))
    copy = one.forks.copy(one.listed, one.path, used)
    return copy._replace(scope="folder") if isinstance(copy, Trace) and not used else copy
