"""Which files are configurations, and which of them together make one run.

A companion that a configuration names is read although the command line does not name it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.forks.evidence import collect_evidence
from cfglint_train.forks.forks import Forks
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.evidence import ConfigEvidence
from cfglint_train.frameworks.framework import Reference
from cfglint_train.frameworks.lens import Config, Role
from cfglint_train.frameworks.registry import listed
from cfglint_train.hardware.catalogue import hardware_from
from cfglint_train.launches.consumers import given_programs
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.mutations.section_files import with_sections
from cfglint_train.mutations.templates import Template
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Value
from cfglint_train.releases.resolution import companion, releases_of
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents
from cfglint_train.repository.index import Repositories
from cfglint_train.repository.sources import Sources
from cfglint_train.runs.run import Run, RunInputs, Unresolved, assemble
from cfglint_train.runs.statements import CommandLine, Statements
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_train.launches.launches import Launch, LauncherGiven
    from cfglint_train.launches.merged_launch import MergedLaunch
    from cfglint_train.launches.shared_output_dir import PreviousLaunch, SameFolder


class Workspace:
    """The files of one invocation. `texts` are laid over the disk (fixes before they are written).

    `idle`: configurations that train nothing (a server, a converter) count, too, where they have the same keys.
    `upstream`: upstream's releases count although the repository uses a fork.
    """

    def __init__(
        self,
        settings_for: Callable[[str], Settings],
        command_line: CommandLine,
        texts: Mapping[str, bytes] | None = None,
        idle: bool = False,
        upstream: bool = False,
    ) -> None:
        self.settings_for = settings_for
        self.idle = idle
        self.upstream = upstream
        self.sources = Sources(texts or {})
        self.statements = Statements(settings_for, command_line, self.sources.roots)
        self.repositories = Repositories(settings_for, self.sources.roots, self.sources.disk, self._cache_dir)
        self.forks = Forks(self.sources.roots, self.repositories, self.sources.named, self._cache_dirs)
        self.documents = Documents(self.sources, self.forks.part_of, self._is_replaced)
        self.scripts = LaunchScripts(self.documents, self.repositories)
        self._configs: dict[str, list[Config]] = {}
        self._templates: dict[tuple[str, Route], Template] = {}
        self._same_folder: SameFolder | None = None

    def updated(self, texts: Mapping[str, bytes]) -> Workspace:
        """The same files with new contents of some; what was read of the others is not read again."""
        after = Workspace(self.settings_for, self.statements.command_line, idle=self.idle, upstream=self.upstream)
        after.statements = self.statements
        after.sources = self.sources.updated(texts)
        after.documents = self.documents.updated(after.sources, texts)
        after.scripts = self.scripts.updated(after.documents, texts)
        after.repositories, after.forks = self.repositories, self.forks
        after._configs = {path: configs for path, configs in self._configs.items() if path not in texts}
        return after

    def collect(self, paths: Iterable[str], force_exclude: bool = False) -> list[str]:
        """Return the files that the arguments mean, each once: of a script that is named, also what it starts."""
        named = list(paths)
        collected = self.sources.collect(named, self.settings_for, force_exclude)
        started = [file for path in named if files.is_shell_script(path) for file in self.scripts.started_by(path)]
        if started:
            collected = self.sources.collect(started, self.settings_for, force_exclude=True)
        for folder in self.sources.ignoring_in_part():
            from cfglint_train.repository.gitignore import MOST_PATTERNS

            path = self.sources.named(os.path.join(folder, ".gitignore"), ".")
            self.documents.ignore(path, f"only its first {MOST_PATTERNS:,} patterns count")
        return collected

    def configs_in(self, path: str) -> list[Config]:
        """The configurations that are in a file (several in a shell script)."""
        if path not in self._configs:
            document = self.documents.document(path)
            self._configs[path] = [] if document is None else self._recognise(document)
            if path in self.documents.starting or path in self.documents.launching:
                from cfglint_train.launches.unread import note_starts

                index = self.repositories.index(path)
                note_starts(path, self._configs[path], self.documents, self.scripts, index, self._reads)
        return self._configs[path]

    def _is_named(self, role: str | None, framework: frameworks.Framework, path: str) -> bool:
        """Whether a run of a role that cannot be read is named at its program."""
        if role not in ("program", "handed"):
            return role == "unread"
        from cfglint_train.launches.unread import is_named

        return is_named(role, path, self.repositories.index(path), framework, self.scripts)

    def _reads(self, path: str) -> bool:
        """Whether a file is the main configuration of a run, or one that is named as not read; a Python program also
        where it trains no language model.
        """
        document = self.documents.document(path)
        if document is None:
            return False
        names = (name for name in self.documents.candidates[path] if not frameworks.load(name).is_companion)
        read = (None, "unread", "other", "handed") if document.syntax == "python" else (None, "unread")
        return any(one.role in read for name in names for one in frameworks.recognise(name, document))

    def _recognise(self, document: Document) -> list[Config]:
        best: tuple[int, str, list[frameworks.Found]] = (0, "", [])
        for name in self.documents.candidates[document.path]:
            found = frameworks.recognise(name, document)
            score = max((one.score for one in found), default=0)
            if score > best[0]:
                best = (score, name, found)
        _, name, found = best if best[2] else self._trained_with(document)
        if not found:
            self.documents.skip(document.path, "its keys belong to no known configuration", document.source)
            return []
        if document.syntax == "python" and document.path not in self.sources.asked:
            copy = self.forks.package_of(document.path)
            if copy:
                self.documents.ignore(document.path, f"it is a module of the copy in `{copy}`")
                return []
        replacing = self._replacing(document, name)
        if replacing:
            self.documents.skip(document.path, f"{replacing} replaces its trainers", tool=replacing)
            return []
        framework = frameworks.load(name)
        reader = self._own_reader(framework, document)
        if reader:
            self.documents.note_run(document, None, f"`{reader}` reads its settings in its own way")
            return []
        all_count = self.idle and framework.keys is not None and framework.keys.idle_too
        training = [one for one in found if one.role is None or all_count]
        unread = [one for one in found if self._is_named(one.role, framework, document.path)]
        for one in unread:
            self.documents.note_run(document, one.at, one.why)
        if not training:
            if not unread:
                self.documents.skip(document.path, found[0].why, document.source)
            return []
        framework.prepare(document)
        role: Role = "companion" if framework.is_companion else "main"
        overrides = self.statements.overrides(framework)
        stated = self._stated(framework, document)
        configs = [
            Config(name, document, releases_of(framework, document, one.root, stated), one.root, role, overrides)
            for one in training
        ]
        for config in configs:
            self._settle(config, stated)
        return configs

    def _is_replaced(self, path: str, mark: str) -> bool:
        """Whether a script replaces a mark in the repository of a file."""
        from cfglint_train.mutations.replaced_texts import ReplacedTexts  # few files have such marks

        return self.repositories.index(path).once(ReplacedTexts).has(mark)

    def _replacing(self, document: Document, name: str) -> str:
        """The package that replaces what a Python file trains with; empty where there is none."""
        packages = listed()[name].replaced_by
        if not packages or document.syntax != "python" or not self.sources.roots.around(document.path)[1]:
            return ""
        from cfglint_train.forks.replaced import replacing

        return replacing(document.path, self.repositories.index(document.path), packages)

    def _own_reader(self, framework: frameworks.Framework, document: Document) -> str:
        """The program of the repository that reads a file with keys of a library's; empty where the library may."""
        if document.syntax != "yaml" or framework.keys is None or not framework.keys.library:
            return ""
        return self.scripts.assigned(document.path)

    def _trained_with(self, document: Document) -> tuple[int, str, list[frameworks.Found]]:
        """The framework that trains with a file which no keys distinguish."""
        names = self.documents.candidates[document.path] if document.syntax in ("yaml", "json") else ()
        own = [name for name in names if listed()[name].trains is not None]
        if not own:
            return 0, "", []
        from cfglint_train.launches.framework_by_command import trained_with  # most files are recognised by their keys

        name, command = trained_with(own, self.scripts.likely(document.path), self._program)
        return (1, name, [frameworks.Found((), 1, f"`{command}` is given the file")]) if name else (0, "", [])

    def _program(self, script: Document, named: str) -> Document | None:
        """The Python program that a script starts by its path; None where the repository has none."""
        path = self.sources.find(named, script.path)
        return None if path is None else self.documents.document(path)

    def _stated(self, framework: frameworks.Framework, document: Document) -> ReleaseStatements:
        """The statements about releases around a main configuration: by flags, settings and requirement files, by a
        copy of its framework, else by the commands of the repository. Where its scripts install another release than
        its requirement files name, neither counts.
        """
        stated = self.statements.of_releases(document, self.sources)
        if self.upstream or framework.listed.tree is None:
            return stated
        stated = self.forks.stated(framework.listed, document.path, stated)
        package = framework.listed.package
        if package in stated.facts or not self.sources.roots.around(document.path)[1]:
            return stated
        from cfglint_train.releases.pins.commands import installed
        from cfglint_train.releases.pins.search import opposed

        by_files = package in stated.pins and stated.pins[package].is_told
        found = installed(self.repositories.index(document.path), document.path, package, only_run=by_files)
        if not found:
            return stated
        pins = opposed(stated.pins, found)
        if not by_files:
            pins = {**found, **{name: one for name, one in pins.items() if one.is_told or name not in found}}
        return ReleaseStatements(stated.facts, pins, stated.named)

    def _cache_dir(self, path: str) -> str | None:
        """The folder of the cache for what is around a file."""
        from cfglint_train.foundation.cache import folder_of  # where something is kept

        return folder_of(*self._cache_dirs(path))

    def _cache_dirs(self, path: str) -> tuple[str | None, str | None]:
        """The folder of the cache by flags, and by the settings for a path."""
        return self.statements.command_line.cache_dir, self.settings_for(path).cache_dir

    def _settle(self, config: Config, stated: ReleaseStatements) -> None:
        """State the evidence about a configuration: the launches that start it, the vocabulary that counts, and who
        handles its settings before its framework does.
        """
        document, place = config.document, (config.document.path, config.root)
        found = ConfigEvidence(self.scripts.commands(config))
        if document.syntax == "shell":
            from cfglint_train.mutations.command_options import CommandOptions

            found = found._replace(mutations=CommandOptions(document, config.root, self.scripts))
        elif document.syntax in ("yaml", "json"):
            if place not in self._templates:
                self._templates[place] = Template(config, self.scripts)
            found = found._replace(mutations=self._templates[place])
            if config.role == "main":
                found = found._replace(programs=given_programs(document.path, self.scripts))
        config.evidence = found
        if not self.upstream:
            config.evidence = collect_evidence(config, stated.pins, self.forks, self.scripts)

    def run(self, main: Config) -> Run:
        """The run of a main configuration. Raises FactError where a stated fact is invalid."""
        launch = self._launch(main)
        adding = self._adding(main) if main.document.syntax == "shell" else launch
        if adding is not None:
            main = main.altered(overrides={**adding.overrides, **main.overrides})
            main.launched, main.starts = adding.given, adding.places
        main = with_sections(main, self.sources, self.repositories)
        named = [self._companions(main, one) for one in (launch.launchers if launch is not None else (None,))]
        variants = [companions for companions, _ in named]
        unresolved = {one.framework: one for _, missing in named for one in missing}
        recipes = self._recipes(main)
        for recipe, path in recipes.items():
            if path is None:
                unresolved[main.framework] = Unresolved(main.framework, recipe, None)
        documents = [one.document for companions in variants for one in companions.values()]
        launching = launch.documents if launch is not None else ()
        others = [*launching, *(one for one in documents if one is not main.document)]
        stated = self.statements.of(main.document, others, launch.facts if launch is not None else None)
        if not {"gpu", "gpu-memory"} & stated.keys():
            stated = {**self._named(main.document.path), **self._asked_for(main.document.path), **stated}
        cluster: dict[Field, Value] = {}
        disagreed: dict[Field, tuple[Any, ...]] = {}
        for name, field in cluster_facts.CLUSTER_FACTS.items():
            if name in stated:
                cluster[field] = cluster_facts.counted(name, stated[name])
            if launch is not None and name in launch.others and stated[name] is launch.facts[name]:
                disagreed[field] = launch.others[name]
        if launch is not None and launch.environment:
            scripts = " and ".join(one.path for one in launch.documents)
            cluster["launch.environment"] = Value(
                tuple(sorted(launch.environment.items())), Origin("user", note=scripts)
            )
        if launch is not None and launch.meets is not None:
            cluster["launch.meets"] = launch.meets
        elif launch is None and self.scripts.may_give(main, "--main_process_ip"):
            note = f"what starts `{os.path.basename(main.document.path)}` may give the address"
            cluster["launch.meets"] = Value(None, Origin("assumed", note=note))
        known = {name: stated[name] for name in cluster_facts.HARDWARE_FACTS if name in stated}
        hardware = hardware_from({name: fact for name, fact in known.items() if fact.value is not None})
        said = self.statements.command_line
        return assemble(
            RunInputs(
                main,
                variants[0],
                cluster,
                hardware,
                main.releases,
                (*self.sources.roots.inside(main.document.path), *said.model_folders),
                said.model_config,
                said.online,
                unresolved=tuple(unresolved.values()),
                variants=tuple(variants[1:]),
                others=disagreed,
                sharding=launch.sharding if launch is not None else self._sharding(main),
                launch_known=None if launch is None else launch.known,
                resumable=self.settings_for(main.document.path).resumable,
                require=self.settings_for(main.document.path).required_of(main.document.path, main.framework),
                scripts=launch.documents if launch is not None and main.document.syntax != "shell" else (),
                unread=tuple(self.scripts.unread(main)),
                earlier=self._earlier(main, launch),
                appended=self.scripts.appended(main),
                stands_elsewhere=bool(recipes) and all(path and self.configs_in(path) for path in recipes.values()),
            )
        )

    def _recipes(self, main: Config) -> dict[str, str | None]:
        """The files that its launches give a program as its settings, each with the file that it means, if any."""
        beside, found = main.document.path, dict[str, str | None]()
        for stated in frameworks.load(main.framework).launching.recipes(main):
            path = self.sources.find(stated, beside) or self.repositories.index(beside).by_tail(stated, beside)
            found[stated] = None if path is None else self.sources.named(path, beside)
        return found

    def _named(self, path: str) -> Mapping[str, Value]:
        """The GPUs that a path names below the root of its repository."""
        from cfglint_train.launches.named_cards import named

        root, _ = self.sources.roots.around(path)
        return named(os.path.relpath(os.path.abspath(path), root))

    def _asked_for(self, path: str) -> Mapping[str, Value]:
        """The GPUs that the file of a scheduler or a cloud asks for, which names a configuration."""
        if not self.sources.roots.around(path)[1]:
            return {}
        from cfglint_train.launches.job_files import asked_for

        return asked_for(self.repositories.index(path), path)

    def _sharding(self, main: Config) -> Value | None:
        """That it cannot be determined, where no script is seen to start a configuration, and launchers shard those
        beside it or what a script that names it starts by a variable.
        """
        if main.role != "main" or main.document.syntax == "shell":
            return None
        naming = self.scripts.naming(main)
        if naming is not None:
            note = f"`{naming}` names it, and starts something by a variable with a launcher that may shard the model"
            return Value(None, Origin("assumed", note=note))
        beside = self.scripts.beside(main)
        if beside is None:
            return None
        script, name = beside
        note = f"no script starts it, and `{script}` starts `{name}` beside it with a launcher that may shard the model"
        return Value(None, Origin("assumed", note=note))

    def _launch(self, main: Config) -> MergedLaunch | None:
        """What the scripts that start a configuration say of it."""
        return _together(self.scripts.starts(main))

    def _adding(self, main: Config) -> MergedLaunch | None:
        """What the scripts that start the script that a configuration is add to its options."""
        return _together(self.scripts.argued(main)) if main.role == "main" else None

    def _earlier(self, main: Config, launch: MergedLaunch | None) -> tuple[PreviousLaunch, ...]:
        """The launches before those of a configuration that write into its folder."""
        is_own = main.document.syntax == "shell"
        several = is_own and (len(self.configs_in(main.document.path)) > 1 or b"for " in main.document.source)
        if main.role != "main" or not (several if is_own else launch):
            return ()
        if self._same_folder is None:
            from cfglint_train.launches.shared_output_dir import SameFolder

            self._same_folder = SameFolder(self.scripts, self.configs_in)
        return self._same_folder.earlier(main, self.repositories.index(main.document.path))

    def _companions(
        self, main: Config, launcher: LauncherGiven | None
    ) -> tuple[dict[str, Config], tuple[Unresolved, ...]]:
        """The files and sections that shape the run of a main configuration, by framework, and those that are not
        there. `launcher` is what its launcher is given.
        """
        companions: dict[str, Config] = {}
        unresolved: dict[str, Unresolved] = {}
        waiting = [(main, reference) for reference in frameworks.load(main.framework).references(main)]
        if launcher is not None:
            waiting.insert(0, (main, Reference(launcher.framework, (), launcher.path)))
        while waiting:
            owner, reference = waiting.pop(0)
            if reference.framework in companions:
                continue
            given = launcher if launcher is not None and reference.framework == launcher.framework else None
            config = self._companion(owner, reference) if given is None else self._launched(owner, reference, given)
            if config is not None and reference.overrides:
                config = config.altered(overrides={**config.overrides, **reference.overrides})
            if config is not None:
                companions[reference.framework] = config
                waiting += [(config, more) for more in frameworks.load(reference.framework).references(config)]
            elif reference.path is not None and not (given is not None and given.assumed):
                place = owner.origin(*reference.route).place if reference.route else given and given.place
                similar = self._similar(reference.path, owner.document.path)
                is_refused = self._refused(owner, reference)
                one = Unresolved(reference.framework, reference.path, place, similar, is_refused)
                unresolved.setdefault(reference.framework, one)
        return companions, tuple(one for name, one in unresolved.items() if name not in companions)

    def _launched(self, owner: Config, reference: Reference, given: LauncherGiven) -> Config | None:
        """The configuration that a launcher has: its file, and its options above that."""
        if given.path is not None:
            config = self._companion(owner, reference)
        else:
            from cfglint_train.launches.bundled_files import GivenDocument  # few launches shard by options alone

            config = self._config(owner, reference, GivenDocument(owner.document.path, b"{}"), ())
        if config is None:
            return None
        config = config.altered(overrides=dict(given.settings))
        config.assumed = config.assumed or given.assumed
        return config

    def _companion(self, owner: Config, reference: Reference) -> Config | None:
        if reference.path is None:
            return self._config(owner, reference, owner.document, owner.root + reference.route)
        stated, beside = reference.path, owner.document.path
        path, assumed = self.sources.find(stated, beside), ""
        if path is None and "$" not in stated and "{" not in stated:
            path = self.repositories.index(beside).by_tail(stated, beside)
            if path is None:
                return self._shipped(owner, reference)
            path = self.sources.named(path, beside)
            assumed = f"`{stated}` is `{path}` of this repository; name it by that path to be sure"
        read = self.documents.document if "yaml" in _syntaxes(reference) else self.documents.json
        document = None if path is None else read(path)
        return None if document is None else self._config(owner, reference, document, (), assumed)

    def _refused(self, owner: Config, reference: Reference) -> bool:
        """Whether a file that is not read is there, as YAML, and its reader wants strict JSON."""
        if "yaml" in _syntaxes(reference) or not frameworks.load(owner.framework).traits.strict_json:
            return False
        path = self.sources.find(str(reference.path), owner.document.path)
        return path is not None and path.endswith((".yaml", ".yml"))

    def _similar(self, stated: str, beside: str) -> tuple[str, ...]:
        found = self.repositories.index(beside).with_tail(stated, beside)
        return tuple(self.sources.named(path, beside) for path in found) if len(found) > 1 else ()

    def _shipped(self, owner: Config, reference: Reference) -> Config | None:
        """The file of that name that a script writes, else the one that the owner's framework ships."""
        from cfglint_train.launches.bundled_files import shipped, written  # only where a file is not there

        stated = str(reference.path)
        place, document = written(self.scripts.naming_file(stated, owner.document.path), stated)
        if place:
            note = f"`{stated}` is what {place} writes; add it to the repository to be sure"
            return None if document is None else self._config(owner, reference, document, (), note)
        host = frameworks.load(owner.framework)
        document = shipped(host, stated, owner.release)
        if document is None:
            return None
        note = f"`{document.path}` is the file that {host.title} ships; add it to the repository to be sure"
        return self._config(owner, reference, document, (), note)

    def _config(
        self, owner: Config, reference: Reference, document: Document, root: Route, assumed: str = ""
    ) -> Config:
        """A companion's configuration, checked against the releases of its owner."""
        framework = frameworks.load(reference.framework)
        if document is not owner.document:
            framework.prepare(document)
        host = frameworks.load(owner.framework)
        stated = self.statements.of_releases(owner.document if document.stands_in else document, self.sources)
        releases = companion(owner.releases, host, framework, document, root, stated)
        assumed = assumed or owner.assumed or (owner.origin(*reference.route).assumed if reference.route else "")
        config = Config(reference.framework, document, releases, root, "companion", assumed=assumed)
        if not document.stands_in:
            self._settle(config, stated)
        return config


def _syntaxes(reference: Reference) -> Collection[str]:
    """The syntaxes of the files of a framework."""
    return listed()[reference.framework].clues.keys()


def _together(starts: list[Launch]) -> MergedLaunch | None:
    """What the places that start a configuration come to; None where there are none."""
    if not starts:
        return None
    from cfglint_train.launches.merged_launch import together

    return together(starts)
