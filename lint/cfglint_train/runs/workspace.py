"""Workspace: recognize the configs among the files and combine them into runs.

If a config refers to a companion file, that file is read even if the command line does not name it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from cfglint_train.documents.document import MISSING, Document, Entry, Route, Scalar, Unknown
from cfglint_train.forks.evidence import collect_evidence
from cfglint_train.forks.forks import Forks
from cfglint_train.foundation.regular_files import normalize_path
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.evidence import ConfigEvidence, LaunchedKey
from cfglint_train.frameworks.framework import Reference
from cfglint_train.frameworks.lens import Config, Override, Role
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.hardware.catalogue import build_hardware
from cfglint_train.launches.consumers import find_consumers
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.mutations.section_files import merge_section_files
from cfglint_train.mutations.templates import Template
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.releases.resolution import resolve_companion_releases, resolve_releases
from cfglint_train.releases.statements import ReleaseStatements
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents
from cfglint_train.repository.index import Repositories
from cfglint_train.repository.sources import Sources
from cfglint_train.runs.run import Run, RunInputs, Unresolved, build_run
from cfglint_train.runs.statements import CommandLine, Statements
from cfglint_train.settings import cluster_facts, pragmas
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_train.launches.launches import Launch, LauncherInput
    from cfglint_train.launches.merged_launch import MergedLaunch
    from cfglint_train.launches.shared_output_dir import PreviousLaunch, SharedOutputDirs
    from cfglint_train.memory.comparable import OwnRuns
    from cfglint_train.repository.dataset_file import DatasetFile


MAX_LAUNCHED_FILES: Final = 20
"""Maximum number of settings files for which a script's launches are runs of their own."""


class Workspace:
    """The files of one invocation of cfglint. `texts` replaces files on disk (fixes before they are written).

    With `idle`, the workspace includes configs that do not train (those of a server or a converter) if they have the
    same keys. With `upstream`, it checks against upstream's releases even if the repository uses a fork.
    """

    def __init__(
        self,
        settings_for: Callable[[str], Settings],
        command_line: CommandLine,
        texts: Mapping[str, bytes] | None = None,
        idle: bool = False,
        upstream: bool = False,
    ) -> None:
        """Create a workspace; `settings_for` returns the settings of a path."""
        self.settings_for = settings_for
        self.idle = idle
        self.upstream = upstream
        self.sources = Sources(texts or {}, command_line.environment)
        self.statements = Statements(settings_for, command_line, self.sources.roots)
        self.repositories = Repositories(settings_for, self.sources.roots, self.sources.disk, self._get_cache_folder)
        self.forks = Forks(self.sources.roots, self.repositories, self.sources.format_path, self._get_cache_settings)
        self.documents = Documents(self.sources, self.forks.find_enclosing_copy, self._is_replaced)
        self.scripts = LaunchScripts(self.documents, self.repositories, command_line.launch)
        self._configs: dict[str, list[Config]] = {}
        self._partly_read: set[tuple[str, Route]] = set()
        """Runs, by path and route, that are reported as read only in part."""
        self._templates: dict[tuple[str, Route], Template] = {}
        self._shared_output_dirs: SharedOutputDirs | None = None
        self._dataset_files: dict[str, DatasetFile | None] = {}
        self._own_runs: dict[str, Mapping[str, Mapping[str, OwnRuns]]] = {}

    def replace_files(self, texts: Mapping[str, bytes]) -> Workspace:
        """Return a copy of the workspace with new contents for some files; the other files are not read again."""
        result = Workspace(self.settings_for, self.statements.command_line, idle=self.idle, upstream=self.upstream)
        result.statements = self.statements
        result.sources = self.sources.add_texts(texts)
        result.documents = self.documents.replace_sources(result.sources, texts)
        result.scripts = self.scripts.replace_files(result.documents, texts)
        result.repositories, result.forks = self.repositories, self.forks
        result._own_runs = self._own_runs
        result._configs = {path: configs for path, configs in self._configs.items() if path not in texts}
        result._partly_read = set(self._partly_read)
        return result

    def reopen(self, texts: Mapping[str, bytes]) -> Workspace:
        """Return a workspace for another call with other texts, which assumes that no file on the disk has changed.

        What is known about repositories, their scripts and copies of frameworks in them is not read again.
        """
        result = Workspace(self.settings_for, self.statements.command_line, texts, self.idle, self.upstream)
        result.sources.disk, result.sources.roots = self.sources.disk, self.sources.roots
        result.statements = Statements(self.settings_for, self.statements.command_line, self.sources.roots)
        result.repositories, result.forks = self.repositories, self.forks
        result.documents = Documents(result.sources, self.forks.find_enclosing_copy, result._is_replaced)
        result.scripts = self.scripts.replace_files(result.documents, texts)
        return result

    def collect(self, paths: Iterable[str], force_exclude: bool = False) -> list[str]:
        """Return the files that the arguments name, each once, including files that a named script starts."""
        arguments = list(paths)
        collected = self.sources.collect(arguments, self.settings_for, force_exclude)
        started_files: list[str] = []
        for path in filter(files.may_launch, arguments):
            started = list(self.scripts.list_started_files(path))
            if started:
                self.sources.started_files[normalize_path(path)] = started[0]
                started_files += started
        if started_files:
            collected = self.sources.collect(started_files, self.settings_for, force_exclude=True)
        for folder in self.sources.list_truncated_ignores():
            from cfglint_train.repository.gitignore import MAX_PATTERNS

            path = self.sources.format_path(os.path.join(folder, ".gitignore"), ".")
            self.documents.ignore(path, f"only its first {MAX_PATTERNS:,} patterns are used")
        return collected

    def read_configs(self, path: str) -> list[Config]:
        """Return the configs in a file; a shell script may have several."""
        if path not in self._configs:
            document = self.documents.read_document(path)
            self._configs[path] = [] if document is None else self._recognise(document)
            if path in self.documents.starting_scripts or path in self.documents.launching_scripts:
                from cfglint_train.launches.unread import note_unread_runs

                index = self.repositories.get_index(path)
                note_unread_runs(path, self._configs[path], self.documents, self.scripts, index, self._is_read)
        return self._configs[path]

    def _is_reported_at_program(self, role: str | None, framework: frameworks.Framework, path: str) -> bool:
        """Return whether a run that cannot be read is reported at its program, which has this role, not at a launch."""
        if role not in ("program", "handed"):
            return role == "unread"
        from cfglint_train.launches.unread import is_reported_at_program

        return is_reported_at_program(role, path, self.repositories.get_index(path), framework, self.scripts)

    def _is_read(self, path: str) -> bool:
        """Return whether a file is the main config of a run, or is reported as unread.

        A Python program counts even if it trains no language model.
        """
        document = self.documents.read_document(path)
        if document is None:
            return False
        names = (name for name in self.documents.candidates[path] if not frameworks.load(name).is_companion)
        roles = (None, "unread", "other", "handed") if document.syntax == "python" else (None, "unread")
        matches = [match for name in names for match in frameworks.recognise(name, document)]
        return any(match.role in roles for match in matches or self._identify_framework(document)[2])

    def _recognise(self, document: Document) -> list[Config]:
        best: tuple[int, str, list[frameworks.RecognisedConfig]] = (0, "", [])
        for name in self.documents.candidates[document.path]:
            matches = frameworks.recognise(name, document)
            score = max((match.score for match in matches), default=0)
            if score > best[0]:
                best = (score, name, matches)
        _, name, matches = best if best[2] else self._identify_framework(document)
        if document.syntax == "python" and matches:
            matches = self._read_launched_files(document, name, matches)
        if not matches:
            self.documents.skip(document.path, "no supported framework has its keys", document.source)
            return []
        if document.syntax == "python" and document.path not in self.sources.named_paths:
            copy = self.forks.find_enclosing_package(document.path)
            if copy:
                self.documents.ignore(document.path, f"it belongs to the copy of a framework in `{copy}`")
                return []
        replacing_package = self._find_replacing_package(document, name)
        if replacing_package:
            self.documents.skip(document.path, f"{replacing_package} replaces its trainers", tool=replacing_package)
            return []
        framework = frameworks.load(name)
        reader = self._find_custom_reader(framework, document)
        if reader:
            self.documents.note_run(document, None, f"`{reader}` reads this file with its own code")
            return []
        include_idle = self.idle and framework.keys is not None and framework.keys.migrates_idle_files
        training = [match for match in matches if match.role in (None, "part") or include_idle]
        unread = [match for match in matches if self._is_reported_at_program(match.role, framework, document.path)]
        for match in unread:
            is_part = any(match.root == other.root for other in training) and bool(match.root)
            self.documents.note_run(document, match.span, match.reason, is_part)
            if is_part:
                self._partly_read.add((document.path, match.root))
        if not training:
            if not unread:
                self.documents.skip(document.path, matches[0].reason, document.source)
            return []
        framework.prepare(document)
        role: Role = "main" if framework.is_run(document) else "companion"
        overrides = self.statements.parse_overrides(framework)
        statements = self._collect_release_statements(framework, document)
        parts = [match for match in training if match.role == "part"]
        if parts and (pinned := self._find_older_patch(framework, statements)):
            self.documents.skip(document.path, f"{pinned} patches its trainers", tool=pinned)
            return []
        for match in parts:
            self.documents.note_run(document, match.span, match.reason, is_part=True)
        configs = [
            Config(
                name,
                document,
                resolve_releases(framework, document, match.root, statements),
                match.root,
                "companion" if match.role == "part" else role,
                overrides,
            )
            for match in training
        ]
        for config in configs:
            self._set_evidence(config, statements)
        return configs

    def _read_launched_files(
        self, document: Document, name: str, matches: list[frameworks.RecognisedConfig]
    ) -> list[frameworks.RecognisedConfig]:
        """Return the runs of a Python script, one for each settings file that only its launches name."""
        from cfglint_train.documents.python.document import PythonDocument

        if not isinstance(document, PythonDocument) or not document.awaits_file or document.launches:
            return matches
        from cfglint_train.frameworks.trainer_script.runs import list_settings_files

        by_files = {
            files_named: words
            for words in reversed(self.scripts.list_launch_words(document.path))
            if (files_named := list_settings_files(document, words))
        }
        if not by_files:
            return matches
        document.launches = tuple(reversed(by_files.values()))[:MAX_LAUNCHED_FILES]
        document.root = None
        return frameworks.recognise(name, document)

    def _is_replaced(self, path: str, mark: str) -> bool:
        """Return whether a script in the file's repository replaces the placeholder `mark`."""
        from cfglint_train.mutations.replaced_texts import ReplacedPlaceholders  # few files have placeholders

        return self.repositories.get_index(path).compute_once(ReplacedPlaceholders).is_replaced(mark)

    def _find_older_patch(self, framework: frameworks.Framework, statements: ReleaseStatements) -> str:
        """Return a package that patches the framework if its newest known release is ruled out, or an empty string.

        The framework's releases that an older release of the package requires are unknown.
        """
        for name, patch in framework.manifest.patched_by.items():
            pin, stated = statements.pins.get(name), statements.get_release(name)
            if stated is not None and stated.version != patch["release"]:
                return name
            if pin is not None and not (pin.is_consistent and pin.constraint.is_satisfied_by(patch["release"])):
                return name
        return ""

    def _find_replacing_package(self, document: Document, name: str) -> str:
        """Return the package that replaces the trainers of a Python file, or an empty string."""
        manifest = list_frameworks()[name]
        packages = (*manifest.replaced_by, *manifest.patched_by)
        if not packages or document.syntax != "python" or not self.sources.roots.find_root(document.path)[1]:
            return ""
        from cfglint_train.forks.replaced import find_replacing_package

        return find_replacing_package(document.path, self.repositories.get_index(document.path), packages)

    def _find_custom_reader(self, framework: frameworks.Framework, document: Document) -> str:
        """Return the repository's program that reads a file with a library's keys, or an empty string."""
        if document.syntax != "yaml" or framework.keys is None or not framework.keys.is_library:
            return ""
        return self.scripts.find_assigning_program(document.path)

    def _identify_framework(self, document: Document) -> tuple[int, str, list[frameworks.RecognisedConfig]]:
        """Identify the framework of a file with ambiguous keys by the command that trains with it.

        Return its score, name and match, or (0, "", []).
        """
        names = self.documents.candidates[document.path] if document.syntax in ("yaml", "json") else ()
        candidates = [name for name in names if not frameworks.load(name).is_companion]
        if not candidates:
            return 0, "", []
        from cfglint_train.launches.framework_by_command import identify_framework  # most files are recognised by keys

        name, command = identify_framework(candidates, self.scripts.find_likely_uses(document.path), self._read_program)
        return (1, name, [frameworks.RecognisedConfig((), 1, f"it is passed to `{command}`")]) if name else (0, "", [])

    def _read_program(self, script: Document, stated_path: str) -> Document | None:
        """Return the parsed Python program that a script starts by its path, or None if the repository has none."""
        path = self.sources.find(stated_path, script.path)
        return None if path is None else self.documents.read_document(path)

    def _collect_release_statements(
        self,
        framework: frameworks.Framework,
        document: Document,
        scripts: Iterable[Document] = (),
        launched_keys: tuple[LaunchedKey, ...] = (),
    ) -> ReleaseStatements:
        """Return the statements about releases for a main config.

        They come from flags, settings and requirement files, then from a vendored copy of the framework, then from
        install commands in the repository. If a command installs a different release than a requirement file pins,
        neither counts. `scripts` start the document, and all of them set `launched_keys`.
        """
        statements = self.statements.collect_release_statements(document, self.sources, scripts, launched_keys)
        if document.path.endswith(".ipynb"):
            from cfglint_train.documents.python.notebook import NotebookDocument
            from cfglint_train.releases.pins.notebooks import replace_pins

            if isinstance(document, NotebookDocument):
                pins = replace_pins(document, statements.pins)
                return ReleaseStatements(statements.facts, pins, statements.named, launched_keys)
        if self.upstream or framework.manifest.layout is None:
            return statements
        statements = self.forks.add_copy_release(framework.manifest, document.path, statements)
        package = framework.manifest.package
        if package in statements.facts or not self.sources.roots.find_root(document.path)[1]:
            return statements
        from cfglint_train.releases.pins.commands import find_installed_pins

        is_pinned_by_files = package in statements.pins and statements.pins[package].is_specified
        installed_pins = find_installed_pins(
            self.repositories.get_index(document.path), document.path, package, only_run=is_pinned_by_files
        )
        if not installed_pins:
            return statements
        from cfglint_train.releases.pins.search import resolve_pin_conflicts

        pins = resolve_pin_conflicts(statements.pins, installed_pins)
        if not is_pinned_by_files:
            pins = {
                **installed_pins,
                **{name: pin for name, pin in pins.items() if pin.is_specified or name not in installed_pins},
            }
        return ReleaseStatements(statements.facts, pins, statements.named, launched_keys)

    def _get_cache_folder(self, path: str) -> str | None:
        """Return the cache folder that applies to a file, or None."""
        from cfglint_train.foundation.cache_folder import find_cache_folder  # only if something is cached

        return find_cache_folder(*self._get_cache_settings(path))

    def _get_cache_settings(self, path: str) -> tuple[str | None, str | None]:
        """Return the cache folder set by a flag and the one in the settings for a path."""
        return self.statements.command_line.cache_dir, self.settings_for(path).cache_dir

    def _set_evidence(self, config: Config, statements: ReleaseStatements) -> None:
        """Set the evidence of a config: launches, vocabulary, and programs that change its settings before training."""
        document, place = config.document, (config.document.path, config.root)
        evidence = ConfigEvidence(self.scripts.list_commands(config))
        if document.syntax == "shell":
            from cfglint_train.mutations.command_options import CommandOptions

            evidence = evidence._replace(mutations=CommandOptions(document, config.root, self.scripts))
        elif document.syntax in ("yaml", "json"):
            if place not in self._templates:
                self._templates[place] = Template(config, self.scripts)
            evidence = evidence._replace(mutations=self._templates[place])
            if not frameworks.load(config.framework).is_companion:
                evidence = evidence._replace(programs=find_consumers(document.path, self.scripts))
        config.evidence = evidence
        if not self.upstream:
            config.evidence = collect_evidence(config, statements.pins, self.forks, self.scripts)

    def resolve_switched_runs(self, main: Config, run: Run) -> list[tuple[Run, str]]:
        """Return runs of a Python script to which launches or a switch add a companion, each with its assumption.

        Empty if `run`, which combines all launches, has such a companion. The assumption is empty for launches in
        scripts.
        """
        setting = frameworks.load(main.framework).launch_interface.companion_setting
        if not setting or main.document.syntax != "python" or setting.encode() not in main.document.source:
            return []
        if any(setting in companions for companions in (run.inputs.companions, *run.inputs.variants)):
            return []
        route: Route = (setting,)
        groups: dict[tuple[str, str], list[Launch]] = {}
        for launch in self.scripts.list_program_launches(main):
            override = launch.overrides.get(route)
            if override is not None and isinstance(override.value, str):
                # The assumption holds for the whole run, so no single comparison rests on it.
                overrides = {**launch.overrides, route: _drop_assumption(override)}
                group = groups.setdefault((override.value, override.origin.assumption), [])
                group.append(launch._replace(overrides=overrides))
        runs = [
            (self.resolve_run(main, _merge_if_any(launches)), assumption)
            for (_, assumption), launches in groups.items()
        ]
        if not groups:
            from cfglint_train.frameworks.trainer_script.switches import find_switched_settings  # few scripts have one

            settings = find_switched_settings(main, route)
            if settings:
                assumption = settings[route].origin.assumption
                overrides = {**settings, route: _drop_assumption(settings[route])}
                runs = [(self.resolve_run(main.replace(overrides=overrides)), assumption)]
        return [(item, assumption) for item, assumption in runs if setting in item.inputs.companions]

    def resolve_runs(self, main: Config) -> list[Run]:
        """Return the runs of a main config: one, or one per launch if launches state much of what the run is."""
        separates = frameworks.load(main.framework).launch_interface.separates_launches
        launches = self.scripts.find_launches(main) if separates and main.document.syntax != "shell" else []
        groups: dict[frozenset[str], list[Launch]] = {}
        for launch in launches:
            settings = frozenset(repr((route, item.value)) for route, item in launch.overrides.items())
            groups.setdefault(settings, []).append(launch)
        if not 1 < len(groups) <= MAX_LAUNCHED_FILES:
            return [self.resolve_run(main)]
        everything = _merge_if_any(launches)
        return [self.resolve_run(main, _merge_if_any(group), everything) for group in groups.values()]

    def resolve_run(
        self, main: Config, launch: MergedLaunch | None = None, everything: MergedLaunch | None = None
    ) -> Run:
        """Return the run of a main config. Raise `FactError` if a stated fact is invalid.

        `launch`: the launch to use instead of all launches of the config. `everything`: all of them, whose words are
        checked once.
        """
        launch = launch or self._merge_launches(main)
        caller_launch = self._merge_caller_launches(main) if main.document.syntax == "shell" else launch
        if caller_launch is not None:
            main = main.replace(overrides={**caller_launch.overrides, **main.overrides})
            checked = everything or caller_launch
            main.launch_overrides, main.launches = checked.launch_overrides, checked.invocations
        main = self._apply_launch_releases(main, [item for item in (launch, caller_launch) if item is not None])
        main = _ignore_unread_settings(main)
        main = merge_section_files(main, self.sources, self.repositories)
        companions_by_launcher = [
            self._find_companions(main, item) for item in (launch.launchers if launch is not None else (None,))
        ]
        variants = [companions for companions, _ in companions_by_launcher]
        unresolved = {item.framework: item for _, missing in companions_by_launcher for item in missing}
        recipes = self._find_recipes(main)
        for recipe, path in recipes.items():
            if path is None:
                unresolved[main.framework] = Unresolved(main.framework, recipe, None)
        documents = [item.document for companions in variants for item in companions.values()]
        launch_scripts = launch.documents if launch is not None else ()
        other_documents = [*launch_scripts, *(item for item in documents if item is not main.document)]
        facts = self.statements.collect_facts(
            main.document, other_documents, launch.facts if launch is not None else None
        )
        if not {"gpu", "gpu-memory"} & facts.keys():
            facts = {
                **self._read_path_gpus(main.document.path),
                **self._read_requested_gpus(main.document.path),
                **facts,
            }
        cluster: dict[Field, FieldValue] = {}
        conflicts: dict[Field, tuple[Any, ...]] = {}
        for name, field in cluster_facts.CLUSTER_FACTS.items():
            if name in facts:
                cluster[field] = cluster_facts.convert_count(name, facts[name])
            if launch is not None and name in launch.conflicts and facts[name] is launch.facts[name]:
                conflicts[field] = launch.conflicts[name]
        visible = facts.get("visible-gpus") or self._find_granted_gpus(launch)
        if visible is not None:
            cluster["launch.visible_gpus"] = visible
        if launch is not None and launch.environment:
            scripts = " and ".join(item.path for item in launch.documents)
            cluster["launch.environment"] = FieldValue(
                tuple(sorted(launch.environment.items())), Origin("user", note=scripts)
            )
        if launch is not None and launch.rendezvous is not None:
            cluster["launch.meets"] = launch.rendezvous
        elif launch is None and self.scripts.can_add_option(main, "--main_process_ip"):
            note = f"the script that starts `{os.path.basename(main.document.path)}` may pass `--main_process_ip`"
            cluster["launch.meets"] = FieldValue(None, Origin("assumed", note=note))
        hardware_facts = {name: facts[name] for name in cluster_facts.HARDWARE_FACTS if name in facts}
        hardware = build_hardware({name: fact for name, fact in hardware_facts.items() if fact.value is not None})
        command_line = self.statements.command_line
        return build_run(
            RunInputs(
                main,
                variants[0],
                cluster,
                hardware,
                main.releases,
                (*self.sources.roots.list_allowed_folders(main.document.path), *command_line.model_folders),
                command_line.model_config,
                command_line.online,
                unresolved=tuple(unresolved.values()),
                variants=tuple(variants[1:]),
                conflicts=conflicts,
                sharding=launch.sharding if launch is not None else self._guess_sharding(main),
                is_sharding_known=None if launch is None else launch.is_sharding_known,
                is_resumable=self.settings_for(main.document.path).resumable,
                house_rules=self.settings_for(main.document.path).list_house_rules(main.document.path, main.framework),
                scripts=launch.documents if launch is not None and main.document.syntax != "shell" else (),
                ignored_files=tuple(self.scripts.find_ignored_files(main)),
                previous_launches=self._find_previous_launches(main, launch),
                dataset_file=self._find_dataset_file(main),
                hidden_options=self.scripts.describe_hidden_options(main),
                is_checked_elsewhere=(main.document.path, main.root) in self._partly_read
                or (bool(recipes) and all(path and self.read_configs(path) for path in recipes.values())),
                own_runs=self._find_own_runs(main.document.path).get(main.framework, {}),
            )
        )

    def _find_own_runs(self, path: str) -> Mapping[str, Mapping[str, OwnRuns]]:
        """Return the user's measured runs for a config, by framework and class of jobs.

        Raise SettingsError if their file is malformed.
        """
        settings = self.settings_for(path)
        file = settings.find_measurements(path, self.sources.roots)
        if file is None:
            return {}
        if file not in self._own_runs:
            is_present = settings.files.has(file)
            if is_present:
                from cfglint_train.settings.own_runs import load_own_runs
            self._own_runs[file] = load_own_runs(file, settings.files) if is_present else {}
        return self._own_runs[file]

    def _apply_launch_releases(self, main: Config, launches: Iterable[MergedLaunch]) -> Config:
        """Return a config with the releases that its launch scripts state or that their options show."""
        documents = dict.fromkeys(script for launch in launches for script in launch.documents)
        scripts = [script for script in documents if script is not main.document]
        keys = tuple(_list_launched_keys(main))
        if main.role != "main" or not (keys or any(pragmas.MARK in script.source for script in scripts)):
            return main
        framework = frameworks.load(main.framework)
        statements = self._collect_release_statements(framework, main.document, scripts, keys)
        main = main.replace()
        main.releases = resolve_releases(framework, main.document, main.root, statements)
        self._set_evidence(main, statements)
        main.evidence = main.evidence._replace(launched_keys=keys)
        return main

    def _find_recipes(self, main: Config) -> dict[str, str | None]:
        """Return the settings files that launches pass to the program, each with its path in the repository or None."""
        referring_file, recipes = main.document.path, dict[str, str | None]()
        for stated_path in frameworks.load(main.framework).launch_interface.list_recipes(main):
            path = self.sources.find(stated_path, referring_file) or self.repositories.get_index(
                referring_file
            ).find_by_suffix(stated_path, referring_file)
            recipes[stated_path] = None if path is None else self.sources.format_path(path, referring_file)
        return recipes

    def _find_dataset_file(self, main: Config) -> DatasetFile | None:
        """Return the file that describes the data sets of a config, or None if the repository lacks it."""
        referring_file, find_copy = main.document.path, self.forks.find_enclosing_copy
        located = frameworks.load(main.framework).traits.find_dataset_file(main) if main.role == "main" else None
        if located is None:
            return None
        stated_path, key = located
        index, assumption = self.repositories.get_index(referring_file), ""
        # The nearest folder first: examples of a copy of the framework run in that copy.
        folders, _ = self.sources.roots.list_folders_above(os.path.dirname(os.path.abspath(referring_file)))
        paths = (self.sources.find(os.path.join(folder, stated_path), referring_file) for folder in folders)
        path = next(filter(None, paths), None) or self.sources.find(stated_path, referring_file)
        if path is None:
            match = index.find_by_suffix(stated_path, referring_file) if main.has(key) else None
            if match is None:
                return None
            path = self.sources.format_path(match, referring_file)
            assumption = f"`{stated_path}` is `{path}` of this repository; write that path to be sure"
        if path not in self._dataset_files:
            from cfglint_train.repository.dataset_file import read_dataset_file  # few frameworks have such a file

            self._dataset_files[path] = read_dataset_file(path, self.sources, index, find_copy)
        dataset_file, copy = self._dataset_files[path], find_copy(path)
        is_in_copy = bool(copy) and find_copy(referring_file) == copy
        return dataset_file and dataset_file._replace(assumption=assumption, is_in_copy=is_in_copy)

    def _read_path_gpus(self, path: str) -> Mapping[str, FieldValue]:
        """Return the GPU facts that a path names, relative to the root of its repository."""
        from cfglint_train.launches.named_cards import read_path_gpus

        root, _ = self.sources.roots.find_root(path)
        return read_path_gpus(os.path.relpath(os.path.abspath(path), root))

    def _read_requested_gpus(self, path: str) -> Mapping[str, FieldValue]:
        """Return the GPUs requested by a scheduler or cloud file that names a config."""
        if not self.sources.roots.find_root(path)[1]:
            return {}
        from cfglint_train.launches.job_files import read_requested_gpus

        return read_requested_gpus(self.repositories.get_index(path), path)

    def _guess_sharding(self, main: Config) -> FieldValue | None:
        """Return a value of None with a note if no launch of a config is found but a launcher may shard its model.

        The launcher is in a script that names the config and starts a file named by a variable, or in a script that
        starts a sibling of the config. Return None if there is no launcher of this kind.
        """
        if main.role != "main" or main.document.syntax == "shell":
            return None
        script_path = self.scripts.find_sharding_script(main)
        if script_path is not None:
            launcher = "a launcher that may shard the model"
            note = f"`{script_path}` names it and starts a file named by a variable with {launcher}"
            return FieldValue(None, Origin("assumed", note=note))
        sibling = self.scripts.find_sharded_sibling(main)
        if sibling is None:
            return None
        script, name = sibling
        note = f"no script starts it, but `{script}` starts `{name}` beside it with a launcher that may shard the model"
        return FieldValue(None, Origin("assumed", note=note))

    def _find_granted_gpus(self, launch: MergedLaunch | None) -> FieldValue | None:
        """Return the GPUs per node that a job file requests for the only script that starts a run, assumed."""
        if launch is None or len(launch.documents) != 1:
            return None
        return self._read_requested_gpus(launch.documents[0].path).get("gpus-per-node")

    def _merge_launches(self, main: Config) -> MergedLaunch | None:
        """Return all launches of a config merged into one, or None if there are none."""
        return _merge_if_any(self.scripts.find_launches(main))

    def _merge_caller_launches(self, main: Config) -> MergedLaunch | None:
        """Return the merged options that callers add to a config that is itself a command, or None."""
        return _merge_if_any(self.scripts.find_caller_launches(main)) if main.role == "main" else None

    def _find_previous_launches(self, main: Config, launch: MergedLaunch | None) -> tuple[PreviousLaunch, ...]:
        """Return the launches that write into a config's output folder before its own launch."""
        is_command = main.document.syntax == "shell"
        has_several = is_command and (len(self.read_configs(main.document.path)) > 1 or b"for " in main.document.source)
        if main.role != "main" or not (has_several if is_command else launch):
            return ()
        if self._shared_output_dirs is None:
            from cfglint_train.launches.shared_output_dir import SharedOutputDirs

            self._shared_output_dirs = SharedOutputDirs(self.scripts, self.read_configs)
        return self._shared_output_dirs.find_previous(main, self.repositories.get_index(main.document.path))

    def _find_companions(
        self, main: Config, launcher: LauncherInput | None
    ) -> tuple[dict[str, Config], tuple[Unresolved, ...]]:
        """Return the companion files and sections that affect the run, by framework, and those that are missing.

        `launcher` is the config file and options of the run's launcher.
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
            launcher_input = launcher if launcher is not None and reference.framework == launcher.framework else None
            config = (
                self._find_companion(owner, reference)
                if launcher_input is None
                else self._build_launcher_config(owner, reference, launcher_input)
            )
            if config is not None and reference.overrides:
                config = config.replace(overrides={**config.overrides, **reference.overrides})
            if config is not None:
                companions[reference.framework] = config
                waiting += [
                    (config, next_reference)
                    for next_reference in frameworks.load(reference.framework).references(config)
                ]
            elif reference.path is not None and not (launcher_input is not None and launcher_input.assumption):
                place = (
                    owner.get_origin(*reference.route).place
                    if reference.route
                    else launcher_input and launcher_input.place
                )
                problem = self._find_problem(owner, reference)
                similar = self._find_similar_files(reference.path, owner.document.path) if problem == "missing" else ()
                missing = Unresolved(reference.framework, reference.path, place, similar, problem)
                unresolved.setdefault(reference.framework, missing)
        return companions, tuple(missing for name, missing in unresolved.items() if name not in companions)

    def _build_launcher_config(self, owner: Config, reference: Reference, launcher: LauncherInput) -> Config | None:
        """Return the config of a launcher: its file, overridden by its options."""
        if launcher.path is not None:
            config = self._find_companion(owner, reference)
        else:
            from cfglint_train.launches.bundled_files import (
                LauncherOptionsDocument,
            )  # few launches shard by options alone

            config = self._build_companion(owner, reference, LauncherOptionsDocument(owner.document.path, b"{}"), ())
        if config is None:
            return None
        config = config.replace(overrides=dict(launcher.settings))
        config.assumption = config.assumption or launcher.assumption
        return config

    def _find_companion(self, owner: Config, reference: Reference) -> Config | None:
        if reference.path is None:
            return self._build_companion(owner, reference, owner.document, owner.root + reference.route)
        stated_path, referring_file = reference.path, owner.document.path
        path, assumption = self.sources.find(stated_path, referring_file), ""
        if path is None and "$" not in stated_path and "{" not in stated_path:
            path = self.repositories.get_index(referring_file).find_by_suffix(stated_path, referring_file)
            if path is None:
                return self._find_replacement(owner, reference)
            path = self.sources.format_path(path, referring_file)
            assumption = f"`{stated_path}` is `{path}` of this repository; write that path to be sure"
        read_document = self.documents.read_document if "yaml" in _get_syntaxes(reference) else self.documents.read_json
        document = None if path is None else read_document(path)
        return None if document is None else self._build_companion(owner, reference, document, (), assumption)

    def _find_problem(self, owner: Config, reference: Reference) -> Literal["missing", "unreadable", "YAML"]:
        """Return the reason why a referenced file has no config; some readers of JSON refuse YAML."""
        path = self.sources.find(str(reference.path), owner.document.path)
        if path is None:
            return "missing"
        is_refused = "yaml" not in _get_syntaxes(reference) and frameworks.load(owner.framework).traits.strict_json
        return "YAML" if is_refused and path.endswith((".yaml", ".yml")) else "unreadable"

    def _find_similar_files(self, stated_path: str, referring_file: str) -> tuple[str, ...]:
        paths = self.repositories.get_index(referring_file).list_by_suffix(stated_path, referring_file)
        return tuple(self.sources.format_path(path, referring_file) for path in paths) if len(paths) > 1 else ()

    def _find_replacement(self, owner: Config, reference: Reference) -> Config | None:
        """Return the companion from the file that a script writes, else from the bundled file, or None."""
        from cfglint_train.launches.bundled_files import (
            find_bundled_file,
            find_written_file,
        )  # only if a file is missing

        stated_path = str(reference.path)
        place, document = find_written_file(
            self.scripts.find_scripts_naming(stated_path, owner.document.path), stated_path
        )
        if place:
            note = f"`{stated_path}` is the file that {place} writes; add it to the repository to be sure"
            return None if document is None else self._build_companion(owner, reference, document, (), note)
        owner_framework = frameworks.load(owner.framework)
        document = find_bundled_file(owner_framework, stated_path, owner.release)
        if document is None:
            return None
        note = f"`{document.path}` is the file that {owner_framework.title} ships; add it to the repository to be sure"
        return self._build_companion(owner, reference, document, (), note)

    def _build_companion(
        self, owner: Config, reference: Reference, document: Document, root: Route, assumption: str = ""
    ) -> Config:
        """Return the config of a companion, with the releases that its owner implies."""
        framework = frameworks.load(reference.framework)
        if document is not owner.document:
            framework.prepare(document)
        owner_framework = frameworks.load(owner.framework)
        statements = self.statements.collect_release_statements(
            owner.document if document.is_placeholder else document, self.sources
        )
        releases = resolve_companion_releases(owner.releases, owner_framework, framework, document, root, statements)
        assumption = (
            assumption or owner.assumption or (owner.get_origin(*reference.route).assumption if reference.route else "")
        )
        config = Config(reference.framework, document, releases, root, "companion", assumption=assumption)
        if not document.is_placeholder:
            self._set_evidence(config, statements)
        return config


def _get_syntaxes(reference: Reference) -> Collection[str]:
    """Return the syntaxes that a framework's files may use."""
    return list_frameworks()[reference.framework].clues.keys()


def _list_launched_keys(main: Config) -> Iterator[LaunchedKey]:
    """Yield the keys that every launch of a config sets and that show its release."""
    keys = frameworks.load(main.framework).keys
    for route, override in main.overrides.items() if keys is not None and main.document.syntax != "shell" else ():
        place, value = override.origin.place, override.value
        if place is None or value is MISSING or value is None or isinstance(value, Unknown):
            continue
        if keys is not None and keys.is_launch_evidence(main, route):
            name = str(route[-1])
            yield LaunchedKey(
                route, Entry(Scalar(place.span, name, value=name), Scalar(place.span, "")), place.document
            )


def _drop_assumption(override: Override) -> Override:
    return override._replace(origin=override.origin._replace(assumption=""))


def _merge_if_any(launches: list[Launch]) -> MergedLaunch | None:
    """Return the launches merged into one, or None if there are none."""
    if not launches:
        return None
    from cfglint_train.launches.merged_launch import merge_launches

    return merge_launches(launches)


def _ignore_unread_settings(main: Config) -> Config:
    """Return a config without the settings that the program that reads it passes to nothing."""
    keys = frameworks.get_keys(main) if main.document.syntax != "python" else None
    unread = {} if keys is None else keys.list_unread_settings(main)
    if not unread:
        return main
    ignored: dict[Route, Override] = {
        (name,): Override(MISSING, Origin("inferred", note=reason)) for name, (reason, _) in unread.items()
    }
    return main.replace(overrides={**main.overrides, **ignored})
