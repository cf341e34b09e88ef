"""Fork evidence: a table of the facts that show whether a config uses upstream's framework.

A row holds the function that finds the evidence, the scopes in which it counts, its strength in each, and its sentence
in a report. The first evidence that replaces upstream's vocabulary decides. Prose, docstrings and tests do not count as
evidence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cfglint_train.forks.forks import Forks
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.evidence import ConfigEvidence, ForkEvidence, ForkTrace, Scope, Strength
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import FrameworkManifest, list_called_packages

if TYPE_CHECKING:
    from cfglint_schemas.vendored import VendoredVocabulary
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.launches.launch_scripts import LaunchScripts
    from cfglint_train.releases.pins.search import ResolvedPin

_MAY_MOVE: Final = compile_on_use(rb"PYTHONPATH|\bcd\b|\bpushd\b|\binstall\b")
"""Text in a script that may make Python import a package from another folder."""


class Subject(Frozen):
    """A package that a config uses, with the sources of evidence about it."""

    manifest: FrameworkManifest
    config: Config
    pins: Mapping[str, ResolvedPin]
    forks: Forks
    scripts: LaunchScripts
    launches: Sequence[tuple[ShellDocument, Invocation]] = ()
    """Invocations that start the config."""
    keys: Keys | None = None
    """Keys of the config's framework, or None for another package that the config passes settings to."""

    @property
    def path(self) -> str:
        """Path of the config's file."""
        return self.config.document.path

    @property
    def packages(self) -> list[str]:
        """Names of the package and of the companion package whose settings it adopts."""
        return [name for name in (self.manifest.package, self.manifest.companion_package) if name]

    def format_path(self, path: str, line: int = 0) -> str:
        """Return a path for messages, followed by the line if it is not 0."""
        return self.forks.named(path, self.path) + (f":{line}" if line else "")

    def find_started_programs(self) -> Iterator[tuple[str, ShellDocument, Invocation]]:
        """Yield the Python files in the repository that scripts start with the config, with script and invocation."""
        index = self.forks.repositories.get_index(self.path)
        for script, invocation in self.launches if index.is_repository else ():
            if invocation.program.endswith(".py"):
                from cfglint_train.forks.renamed_copies import resolve_program

                file = resolve_program(invocation.program, script.path, index)
                if file is not None:
                    yield file, script, invocation

    def list_programs(self) -> list[str]:
        """Return the Python files in the repository that run the config: itself, or programs started with it."""
        if self.config.document.syntax == "python":
            return [self.path] if self.keys is not None else []
        return sorted({file for file, _, _ in self.find_started_programs()})

    def format_launch(self, script: ShellDocument, invocation: Invocation) -> str:
        """Return the path and line of a launch for messages."""
        return self.format_path(script.path, script.locate(invocation.span.start).line)


EvidenceItems = Iterator["ForkTrace | VendoredVocabulary"]


def find_namesakes(subject: Subject) -> EvidenceItems:
    """Yield a module in the repository that a Python config imports under the package's name, unless it is a copy."""
    if subject.config.document.syntax != "python":
        return
    from cfglint_train.forks.namesakes import find_module_launches, find_namesake

    launches = (
        (*subject.launches, *find_module_launches(subject.path, subject.scripts)) if subject.keys is not None else ()
    )
    module = find_namesake(
        subject.path, launches, subject.packages, subject.forks.repositories.get_index(subject.path).root
    )
    if module is not None and os.path.dirname(module) not in _list_copy_folders(subject):
        yield ForkTrace(subject.format_path(module), place=subject.path)


def find_programs(subject: Subject) -> EvidenceItems:
    """Yield each launched program in the repository that imports another local package instead of upstream's."""
    if subject.keys is None or subject.keys.is_library or subject.manifest.layout is None:
        return
    index = subject.forks.repositories.get_index(subject.path)
    for file, script, launch in subject.find_started_programs():
        from cfglint_train.forks.renamed_copies import find_renamed_copy, has_other_package

        if find_renamed_copy(file, index, subject.manifest) is not None:
            return  # `find_copies` yields its vocabulary
        if has_other_package(file, index, subject.manifest):
            yield ForkTrace(launch.program, place=subject.format_launch(script, launch))


def find_copies(subject: Subject) -> EvidenceItems:
    """Yield the vocabulary of the copy that a launch or the config's folder uses.

    Yield a trace instead if the copy cannot be read, has no package, or lacks the entry point that is started.
    """
    copy = _read_used_copy(subject)
    if copy is None:
        hollow_copy = (
            subject.forks.find_hollow_copy(subject.manifest, subject.path) if subject.keys is not None else None
        )
        yield from () if hollow_copy is None else (hollow_copy,)
    elif isinstance(copy, ForkTrace) or subject.keys is None:
        yield copy
    elif (entry := subject.keys.find_started_entry(subject.config)) is not None:
        yield copy if entry in copy.entries else ForkTrace(copy.folder, f"has no {entry}")


def find_pins(subject: Subject) -> EvidenceItems:
    """Yield a fork that a requirement near the config installs."""
    for package in subject.packages:
        fork = subject.pins[package].fork if package in subject.pins else None
        if fork is not None:
            yield ForkTrace(fork.fork, place=subject.format_path(fork.path, fork.line), scope="folder")


def find_submodules(subject: Subject) -> EvidenceItems:
    """Yield a submodule that is a fork, if no requirement installs an upstream release."""
    folders, has_root = subject.forks.roots.list_folders_above(os.path.dirname(os.path.abspath(subject.path)))
    gitmodules = os.path.join(folders[-1], ".gitmodules")
    for module in subject.forks.read_submodules(gitmodules) if has_root else ():
        pin = subject.pins.get(module.package)
        is_upstream = pin is not None and pin.constraint.exact_release is not None and not pin.is_optional
        if module.package in subject.packages and not is_upstream:
            yield ForkTrace(module.repository, place=subject.format_path(gitmodules, module.line), scope="folder")


def find_installed(subject: Subject) -> EvidenceItems:
    """Yield a fork that a script installs before it starts the config."""
    for document in dict.fromkeys(document for document, _ in subject.launches):
        if b"git" not in document.source:
            continue
        from cfglint_train.releases.pins.readers import find_forks

        text = re.sub(r"(?m)^\s*#.*$", "", document.source.decode("utf-8", "replace"))
        for pin in find_forks(document.path, text):
            if pin.package == subject.manifest.package and pin.fork:
                yield ForkTrace(pin.fork, place=subject.format_path(pin.path, pin.line))


def find_checkouts(subject: Subject) -> EvidenceItems:
    """Yield a folder outside the repository from which a launch imports the framework before the installed package."""
    root = subject.forks.repositories.get_index(subject.path).root
    for document, launch in subject.launches:
        if _MAY_MOVE.search(document.source):
            from cfglint_train.forks.checkouts import find_checkout

            folder_and_line = find_checkout(document, launch, subject.manifest.package, root)
            if folder_and_line is not None:
                yield ForkTrace(folder_and_line[0], place=subject.format_path(document.path, folder_and_line[1]))


def find_entries(subject: Subject) -> EvidenceItems:
    """Yield a training program that receives the config but is not an entry point of upstream."""
    yield from _find_traces(subject, "entry")
    program = (
        subject.scripts.find_foreign_program(subject.config)
        if subject.keys is not None and not subject.keys.is_library
        else None
    )
    for script, launch in subject.launches if program is not None else ():
        if launch.program == program:
            yield ForkTrace(program, place=subject.format_launch(script, launch))


def find_classes(subject: Subject) -> EvidenceItems:
    """Yield each settings class of the framework that a program changes before it creates an instance."""
    index, vocabulary = subject.forks.repositories.get_index(subject.path), subject.manifest.vocabulary
    programs = subject.list_programs() if subject.keys is not None else [subject.path]
    if vocabulary is None or not index.is_repository or not programs:
        return
    from cfglint_schemas.vocabulary import load
    from cfglint_train.forks.changed_classes import ChangedClasses

    spans = (span for entry in load(vocabulary).entries.values() for span in entry)
    classes = frozenset(name.rpartition(".")[2] for span in spans for name in span["definitions"])
    for program in programs:
        change = index.compute_once(ChangedClasses).find_change(program, subject.packages, classes)
        if change is not None:
            place = subject.format_path(change.path, change.line)
            yield ForkTrace(subject.format_path(change.path), f"`{change.name}`", place, names=change.declared)


def find_plugins(subject: Subject) -> EvidenceItems:
    """Yield each plugin that the config loads although upstream does not have it."""
    return _find_traces(subject, "plugin")


def find_keys(subject: Subject) -> EvidenceItems:
    """Yield each key in the config that only a known fork has."""
    return _find_traces(subject, "key")


def find_unused(subject: Subject) -> EvidenceItems:
    """Yield the remaining copies in the repository, which no known launch uses, with the keys that they declare."""
    for root in _list_copy_folders(subject) if subject.keys is not None else ():
        from cfglint_train.forks.vendored import get_package_folder

        copy, folder = (
            subject.forks.read_copies(subject.manifest, (root,), subject.path),
            subject.format_path(get_package_folder(root, subject.manifest)),
        )
        names = copy.names if isinstance(copy, ForkTrace) else copy.list_key_names(copy.releases[-1])
        yield ForkTrace(folder, place=folder, scope="repository", names=names)


def find_patches(subject: Subject) -> EvidenceItems:
    """Yield a patch to the installed package, made by a launch or by a file in the config's folder or a parent."""
    index = subject.forks.repositories.get_index(subject.path)
    if subject.keys is None or subject.manifest.layout is None or not index.is_repository:
        return
    launch_scripts = [document.path for document, _ in subject.launches]
    files = (*launch_scripts, *subject.forks.list_patch_files(subject.path))
    if not files:
        return
    from cfglint_train.forks.patches import find_first_patch

    patch = find_first_patch(files, subject.manifest.layout.packages, index)
    if patch is not None:
        scope: Scope = "launch" if patch.path in launch_scripts else "folder"
        place = subject.format_path(patch.path, patch.line)
        yield ForkTrace(subject.format_path(patch.path), f"`{patch.module}`", place, scope, patch.declared)


class EvidenceKind(Frozen):
    """A row of the table: a kind of evidence."""

    name: str
    find: Callable[[Subject], EvidenceItems]
    scopes: Mapping[Scope, Strength]
    """Strength by scope; evidence of any other scope does not count."""
    sentence: str


KINDS: Final = (
    EvidenceKind("namesake", find_namesakes, {"launch": "replaces"}, "the script imports `{source}` of the repository"),
    EvidenceKind("program", find_programs, {"launch": "replaces"},
         "`{source}` of the repository imports another package instead"),
    EvidenceKind("tree", find_copies, {"launch": "replaces", "folder": "replaces"}, "the copy in `{source}` {what}"),
    EvidenceKind("pin", find_pins, {"folder": "replaces"}, "`{source}` is installed ({place})"),
    EvidenceKind("submodule", find_submodules, {"folder": "replaces"}, "`{source}` is a submodule ({place})"),
    EvidenceKind("pin", find_installed, {"launch": "replaces"}, "`{source}` is installed ({place})"),
    EvidenceKind("checkout", find_checkouts, {"launch": "replaces"}, "it is taken from `{source}` ({place})"),
    EvidenceKind("entry", find_entries, {"launch": "replaces", "config": "replaces"},
                 "`{source}` is not an entry point of upstream"),
    EvidenceKind("class", find_classes, {"launch": "replaces"},
                 "`{source}`, which the program imports, changes {what}"),
    EvidenceKind("plugin", find_plugins, {"config": "lowers"}, "`{source}` is not a plugin of upstream"),
    EvidenceKind("key", find_keys, {"config": "adds"}, "`{what}` is a key of `{source}`"),
    EvidenceKind("copy", find_unused, {"repository": "lowers"}, "no known launch uses the copy in `{source}`"),
    EvidenceKind("patch", find_patches, {"launch": "adds", "folder": "adds"}, "`{source}` may patch {what}"),
)  # fmt: skip


def collect_evidence(
    config: Config, pins: Mapping[str, ResolvedPin], forks: Forks, scripts: LaunchScripts
) -> ConfigEvidence:
    """Return the evidence about a config and, for a Python config, about the packages that it passes settings to."""
    framework = frameworks.load(config.framework)
    subject = Subject(
        framework.manifest, config, pins, forks, scripts, scripts.find_invocations(config), framework.keys
    )
    evidence = config.evidence if framework.keys is None else _weigh_evidence(subject, config.evidence)
    if config.document.syntax != "python":
        return evidence
    other_subjects = (Subject(listed, config, pins, forks, scripts) for listed in list_called_packages().values())
    return evidence._replace(
        copies={other.manifest.name: _weigh_evidence(other, ConfigEvidence()) for other in other_subjects}
    )


def _weigh_evidence(subject: Subject, evidence: ConfigEvidence) -> ConfigEvidence:
    """Return `evidence` with the evidence about a package added.

    Stop at a readable copy, which becomes the vocabulary, and at evidence that replaces the vocabulary.
    """
    lowering = []
    for kind in KINDS:
        for item in kind.find(subject):
            if not isinstance(item, ForkTrace):
                return evidence._replace(vocabulary=item)
            strength = kind.scopes.get(item.scope)
            if strength is None:
                continue
            text = kind.sentence.format(source=item.source, what=item.detail, place=item.place)
            new_evidence = ForkEvidence(kind.name, strength, item.scope, text, item.place or item.source, item.names)
            if strength == "replaces":
                return evidence._replace(fork=new_evidence)
            lowering.append(new_evidence)
    return evidence._replace(lowering_evidence=tuple(lowering))


def _find_traces(subject: Subject, kind: str) -> EvidenceItems:
    """Yield the evidence of a kind that the config itself contains."""
    yield from (
        (trace for name, trace in subject.keys.find_traces(subject.config) if name == kind)
        if subject.keys is not None
        else ()
    )


def _list_copy_folders(subject: Subject) -> tuple[str, ...]:
    """Return the folders in the repository that contain a copy of the package."""
    return (
        subject.forks.list_copy_folders(subject.manifest, subject.path) if subject.manifest.layout is not None else ()
    )


def _read_used_copy(subject: Subject) -> VendoredVocabulary | ForkTrace | None:
    """Return the vocabulary of the copy in use: the renamed copy that a launched program imports, or the nearest copy.

    Return a `ForkTrace` with the reason if the copy cannot be read, and None if no copy is used.
    """
    index = subject.forks.repositories.get_index(subject.path)
    for file, _, _ in subject.find_started_programs() if subject.manifest.layout is not None else ():
        from cfglint_train.forks.renamed_copies import find_renamed_copy

        name = find_renamed_copy(file, index, subject.manifest)
        if name is not None:
            return subject.forks.read_renamed_copy(subject.manifest, *name, subject.path)
    used_folders = [
        *subject.forks.get_installed_folder(subject.manifest, subject.pins),
        *map(os.path.dirname, subject.list_programs()),
    ]
    for document, launch in subject.launches:
        if _MAY_MOVE.search(document.source):
            from cfglint_train.forks.checkouts import find_package_folders, resolve_inside

            used_folders += (
                folder
                for named_folder, _ in find_package_folders(document, launch)
                for folder in resolve_inside(named_folder, subject.path, index.root)
            )
    copy = subject.forks.read_used_copy(subject.manifest, subject.path, used_folders)
    return copy._replace(scope="folder") if isinstance(copy, ForkTrace) and not used_folders else copy
