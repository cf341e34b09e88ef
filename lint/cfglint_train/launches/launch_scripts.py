"""Launch scripts: find the commands of a repository that start a config."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from cfglint_train.documents.document import Document, DocumentError
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.regular_files import MAX_BYTES
from cfglint_train.foundation.roots import measure_distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import registry
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import FrameworkManifest
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents
from cfglint_train.repository.index import Repositories, RepositoryIndex

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word
    from cfglint_train.frameworks.launchers import IgnoredFile, ScriptCall
    from cfglint_train.launches.launches import Launch

    FileUse = tuple[Invocation, tuple[Word, ...]]
    ScriptUse = tuple[ShellDocument, Invocation, tuple[Word, ...]]

MAX_SIBLINGS: Final = 500
"""Maximum number of files in a config's folder that are looked up in scripts."""

_MAX_CALLS: Final = 3
"""Maximum length of a chain of scripts that start each other."""

_ASSIGNED: Final = compile_on_use(r"[A-Za-z_][\w.]*=(?:.*[)}]/)?(?:\./)?([\w.-]+(?:/[\w.-]+)*)")
"""Argument of the form `name=FILE`; the part of the path up to its last variable is ignored."""
_MODULE: Final = r"\w+(?:\.\w+)+"

_COMPOSING_OPTIONS: Final = ("--config-name", "-cn")
"""Spellings of the option by which a command names the file that Hydra composes, with or without its ending."""


class LaunchScripts:
    """The shell scripts of the repositories in use, parsed on demand and cached."""

    def __init__(self, documents: Documents, repositories: Repositories, launch: str | None = None) -> None:
        """Create an empty cache of the scripts in `repositories`.

        `launch` is the path of the only script that is about to run, if it is known: no script counts that it does not
        start.
        """
        self.launch = launch
        self.documents = documents
        self.sources = documents.sources
        self.repositories = repositories
        self._parsed: dict[tuple[str, str | bytes], Document | None] = {}
        """Parsed files by path and text (examples) or by path and syntax (files on disk); None if unparsable."""
        self._uses: dict[str, tuple[ScriptUse, ...]] = {}
        self._uses_by_script: dict[tuple[ShellDocument, str], tuple[FileUse, ...]] = {}
        self._naming_scripts: dict[str, tuple[ShellDocument, ...]] = {}
        self._invocations_by_name: dict[ShellDocument, Mapping[str, Sequence[Invocation]]] = {}
        self._calls_by_script: dict[str, tuple[ScriptCall, ...]] = {}
        self._argument_scripts: dict[tuple[str, str], tuple[str, ...]] = {}
        self._sharded_siblings: dict[tuple[str, str], tuple[str, str] | None] = {}

    def replace_files(self, documents: Documents, changed: Collection[str]) -> LaunchScripts:
        """Return a copy that uses `documents`, and parses the `changed` files and the scripts that source them again.

        Files that are configs themselves belong to `documents`. Options are never read as keys here.
        """
        result = LaunchScripts(documents, self.repositories, self.launch)
        changed_paths = {os.path.abspath(path) for path in changed}
        result._parsed = {
            key: document
            for key, document in self._parsed.items()
            if os.path.abspath(key[0]) not in changed_paths and changed_paths.isdisjoint(_list_sourced(document))
        }
        return result

    def find_launches(self, main: Config) -> list[Launch]:
        """Return the launches of a config, from the strongest kind of evidence that yields any."""
        if main.role != "main":
            return []
        if main.document.syntax == "shell":
            from cfglint_train.launches.launches import find_command_launches

            return find_command_launches(main, self._find_call_chains(main.document, include_direct=False))
        path = main.document.path
        launches: list[Launch] = []
        for document in self._find_scripts(path):
            launches += self._find_script_launches(main, document, self.find_uses_in(document, path))
        return (
            launches
            or list(self._find_assigned_launches(main))
            or list(
                self._find_assumed_launches(
                    main, self._find_uses_elsewhere(path), "which names the file by a folder out of sight"
                )
            )
            or list(self._find_loop_launches(main))
            or list(
                self._find_example_launches(main)
            )  # A literal name is stronger evidence than a name with variables.
            or list(
                self._find_assumed_launches(main, self._find_variable_uses(path), "which names its file by variables")
            )
            or list(self._find_argument_launches(main))
            or list(self._find_docstring_launches(main))
        )

    def list_program_launches(self, main: Config) -> list[Launch]:
        """Return every launch of a Python script that scripts, READMEs, jobs and its docstring show."""
        path = main.document.path
        launches = [
            launch
            for document in self._find_scripts(path)
            for launch in self._find_script_launches(main, document, self.find_uses_in(document, path))
        ]
        return [
            *launches,
            *self._find_example_launches(main, every=True),
            *self._find_docstring_launches(main, every=True),
        ]

    def list_launch_words(self, path: str) -> tuple[tuple[str, ...], ...]:
        """Return the words that scripts, or else READMEs and other examples, pass to a Python script, each once.

        Launches with a word that cannot be determined are left out.
        """
        documents: list[ShellDocument] = [*self._find_scripts(path)]
        repository = self.repositories.get_index(path)
        if not documents and repository.is_repository:
            from cfglint_train.launches.examples import list_examples

            name = os.fsencode(os.path.basename(path))
            examples = [item for item in repository.compute_once(list_examples) if name in item[1]]
            documents = [item for file, text in examples if (item := self._parse_example(file, text, path)) is not None]
        uses = (words for document in documents for _, words in self.find_uses_in(document, path))
        return tuple(
            dict.fromkeys(tuple(word.text for word in words) for words in uses if all(word.is_known for word in words))
        )

    def find_caller_launches(self, main: Config) -> list[Launch]:
        """Return the launches by scripts that call the config's own script, if its command forwards the arguments.

        Their overrides are the options that the callers add.
        """
        from cfglint_train.documents.shell.document import ShellDocument

        document = main.document
        if not isinstance(document, ShellDocument) or not document.invocations[int(main.root[0])].forwards:
            return []
        from cfglint_train.launches.launches import find_caller_launches

        return find_caller_launches(main, self._find_calls(document))

    def _find_script_launches(self, main: Config, document: ShellDocument, uses: Iterable[FileUse]) -> list[Launch]:
        """Return the launches by the invocations in `uses` that may train with the config."""
        from cfglint_train.launches.entries import is_only_reading
        from cfglint_train.launches.launches import find_launches

        repository, framework = self.repositories.get_index(main.document.path), frameworks.load(main.framework)

        def find_callers(include_direct: bool) -> list[tuple[ScriptCall, ...]]:
            return self._find_call_chains(document, include_direct)

        def read_job(script: str | None) -> ShellDocument | None:
            return None if script is None else self.read_script(script, document.path)

        if main.document.syntax != "python":
            uses = [(invocation, words) for invocation, words in uses if not is_only_reading(document, invocation)]
        return find_launches(document, uses, main, framework, repository, find_callers, read_job)

    def _find_assigned_launches(self, main: Config) -> Iterator[Launch]:
        """Yield the launches that name the config through variables that the script itself sets."""
        path = main.document.path
        for document in self._find_variable_scripts(path):
            yield from self._find_script_launches(main, document, self.find_uses_in(document, path))

    def _find_assumed_launches(self, main: Config, uses: Iterable[ScriptUse], reason: str) -> Iterator[Launch]:
        """Yield the launches by invocations that may receive the config, with assumed facts."""
        for document, invocation, words in uses:
            from cfglint_train.launches.merged_launch import mark_assumed

            for launch in self._find_script_launches(main, document, [(invocation, words)]):
                yield mark_assumed(launch, reason)

    def _find_uses_elsewhere(self, path: str) -> Iterator[ScriptUse]:
        """Yield the invocations that receive a file by a missing absolute path or a path in an unknown folder."""
        for document in self._find_scripts(path):
            from cfglint_train.launches.launches import find_trailing_words_elsewhere

            repository = self.repositories.get_index(path)
            for invocation in self._list_invocations(document, path):
                words = find_trailing_words_elsewhere(document, invocation, path, repository)
                if words is not None:
                    yield document, invocation, words

    def _find_loop_launches(self, main: Config) -> Iterator[Launch]:
        """Yield the launches that start the config in an iteration of a loop over files."""
        path = main.document.path
        repository = self.repositories.get_index(path)
        if not repository.has_scripts:
            return
        from fnmatch import fnmatchcase

        from cfglint_train.launches.turns import find_loop_uses, list_loop_patterns

        name = os.path.basename(path)
        scripts = tuple(
            script
            for script, patterns in repository.compute_once(list_loop_patterns)
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        )
        scripts = self._keep_started(scripts)
        for document in self._read_scripts(scripts, path):
            yield from self._find_script_launches(main, document, find_loop_uses(document, path, repository))

    def _find_variable_uses(self, path: str) -> Iterator[ScriptUse]:
        """Yield the invocations with a file argument that contains variables and may expand to `path`."""
        for document in self._find_variable_scripts(path):
            from cfglint_train.launches.named_by_variables import find_variable_uses

            for invocation, words in find_variable_uses(document, path, self.repositories.get_index(path)):
                yield document, invocation, words

    def _find_variable_scripts(self, path: str) -> Iterator[ShellDocument]:
        """Yield the scripts that contain a path with variables that may expand to `path`."""
        repository = self.repositories.get_index(path)
        if repository.has_scripts:
            from cfglint_train.launches.named_by_variables import find_variable_scripts

            yield from self._read_scripts(self._keep_started(find_variable_scripts(repository, path)), path)

    def _find_argument_launches(self, main: Config) -> Iterator[Launch]:
        """Yield the launches by scripts that pass one of their own arguments to the framework as its config (assumed).

        Only the scripts in the config's folder are used, or those in the nearest parent folder that has any.
        """
        framework, path = frameworks.load(main.framework), main.document.path
        config_folder = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        folders = {script: os.path.dirname(script) for script in self._find_argument_scripts(framework.manifest, path)}
        parents = {script: folder for script, folder in folders.items() if f"{config_folder}/".startswith(f"{folder}/")}
        nearest = tuple(script for script, folder in parents.items() if folder == max(parents.values(), key=len))
        for document in self._read_scripts(self._keep_started(nearest), path) if nearest else ():
            from cfglint_train.launches.launches import find_argument_launches
            from cfglint_train.launches.merged_launch import convert_generic

            for launch in find_argument_launches(document, main, framework):
                yield convert_generic(launch, main)

    def _find_docstring_launches(self, main: Config, every: bool = False) -> Iterator[Launch]:
        """Yield the launches by the commands in a Python script's docstring that start the script itself.

        Only the first command counts unless `every` is true.
        """
        program = main.document
        if program.syntax != "python" or self.launch is not None:
            return
        from cfglint_train.documents.python.script import PythonScript
        from cfglint_train.launches.examples import extract_docstring_commands
        from cfglint_train.launches.merged_launch import convert_full_example

        assert isinstance(program, PythonScript)
        text = extract_docstring_commands(program)
        document = self._parse_example(program.path, text, main.document.path) if text else None
        if document is None:
            return
        from cfglint_train.launches.launches import find_trailing_words_by_name

        name = os.path.basename(program.path)  # Examples are copied together with their folder, so the path may differ.
        candidates = (
            (invocation, find_trailing_words_by_name(invocation, name))
            for invocation in self._list_invocations(document, program.path)
        )
        uses = [(invocation, words) for invocation, words in candidates if words is not None]
        for launch in self._find_script_launches(main, document, uses if every else uses[:1]):
            yield convert_full_example(launch)

    def _find_example_launches(self, main: Config, every: bool = False) -> Iterator[Launch]:
        """Yield the launches that the nearest READMEs, Makefiles and YAML jobs show.

        Only the first launch of a Python script in each file counts unless `every` is true.
        """
        path = main.document.path
        repository = self.repositories.get_index(path)
        if not repository.is_repository or self.launch is not None:
            return
        from cfglint_train.launches.examples import is_job, list_examples

        config_folder = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        name = os.fsencode(os.path.basename(path))
        launches_by_distance: dict[int, list[Launch]] = {}
        for file, text in repository.compute_once(list_examples):
            document = self._parse_example(file, text, path) if name in text else None
            if document is not None:
                from cfglint_train.launches.merged_launch import convert_example, convert_full_example

                launches = self._find_script_launches(main, document, self.find_uses_in(document, path))
                if main.document.syntax == "python":  # Most settings of a Python script come from options.
                    launches = [convert_full_example(item) for item in (launches if every else launches[:1])]
                elif is_job(file):
                    launches = [convert_full_example(item, "") for item in launches]
                else:
                    launches = [launch for item in launches if (launch := convert_example(item)) is not None]
                launches_by_distance.setdefault(sum(measure_distance(config_folder, os.path.dirname(file))), []).extend(
                    launches
                )
        yield from next(
            (launches for _, launches in sorted(launches_by_distance.items(), key=lambda item: item[0]) if launches), ()
        )

    def _parse_example(self, path: str, text: bytes, referring_file: str) -> ShellDocument | None:
        from cfglint_train.documents.shell.document import ShellDocument

        if (path, text) not in self._parsed:
            try:
                self._parsed[path, text] = files.parse(self.sources.format_path(path, referring_file), text, "shell")
            except DocumentError:
                self._parsed[path, text] = None
        document = self._parsed[path, text]
        return document if isinstance(document, ShellDocument) else None

    def find_sharded_sibling(self, main: Config) -> tuple[str, str] | None:
        """Return a script and the sibling of the config that it starts with a sharding launcher, or None.

        Return None if a launcher of any started sibling does not shard the model. Siblings count because a script
        often names one file, and users edit the script by hand to start another.
        """
        path = main.document.path
        kind = (os.path.dirname(path), os.path.splitext(path)[1])
        if kind not in self._sharded_siblings:
            self._sharded_siblings[kind] = self._find_sharded_file(*kind, path)
        return self._sharded_siblings[kind]

    def find_sharding_script(self, main: Config) -> str | None:
        """Return a script that names the config and may shard models of files named by its variables, or None."""
        for script in self._find_scripts(main.document.path):
            from cfglint_train.launches.launches import can_shard_variable_files

            if can_shard_variable_files(script):
                return script.path
        return None

    def _find_sharded_file(self, folder: str, extension: str, path: str) -> tuple[str, str] | None:
        """Return a script and the file in `folder` that it starts, or None if any file is started without sharding."""
        repository = self.repositories.get_index(path)
        try:
            with filesystem.scan(folder or ".") as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_SIBLINGS) if entry.name.endswith(extension))
        except OSError:
            return None
        first: tuple[str, str] | None = None
        for name in names:
            file = os.path.join(folder, name)
            for script in self._find_scripts(file):
                from cfglint_train.launches.launches import detect_sharding

                shardings = detect_sharding(script, file, repository)
                if not all(shardings):
                    return None
                if shardings and first is None:
                    first = (script.path, name)
        return first

    def _find_argument_scripts(self, manifest: FrameworkManifest, path: str) -> tuple[str, ...]:
        """Return the shell scripts that use their own arguments and contain the name of a program of the framework."""
        index = self.repositories.get_index(path)
        key = (manifest.name, index.root)
        if key not in self._argument_scripts:
            programs = "|".join(pattern.removeprefix("(.*/)?") for pattern in manifest.program_patterns).encode()
            texts = index.compute_once(_list_argument_scripts) if programs else ()
            self._argument_scripts[key] = tuple(script for script, text in texts if re.search(programs, text))
        return self._argument_scripts[key]

    def can_add_option(self, companion: Config, option: str) -> bool:
        """Return whether a launch may pass an option to a companion's launcher.

        The result is true if a script that names the companion contains the option anywhere, even in a string, or if no
        script names the companion, so that its launch is not visible. It is false for a main config.
        """
        if companion.role == "main":
            return False
        path, spellings = companion.document.path, (option, f"--{option[2:].replace('_', '-')}")
        repository = self.repositories.get_index(path)
        naming = repository.find_scripts_naming(os.path.basename(path))
        with_option = {script for word in spellings for script in repository.find_scripts_naming(word)}
        return not naming or not with_option.isdisjoint(naming)

    def find_ignored_files(self, config: Config) -> list[IgnoredFile]:
        """Return the launcher options that name the config's file although the launcher ignores it."""
        if config.role == "main" or config.document.syntax == "shell":
            return []
        ignored: list[IgnoredFile] = []
        path = config.document.path
        repository = self.repositories.get_index(path)
        if repository.find_scripts_naming(os.path.basename(path)):
            from cfglint_train.launches.launches import can_have_ignored_files, find_ignored_files

            # Many scripts may name a companion, so parse them only if a script uses a relevant option.
            for document in self._find_scripts(path) if can_have_ignored_files(repository) else ():
                ignored += find_ignored_files(document, config, repository)
        return ignored

    def find_foreign_program(self, main: Config) -> str | None:
        """Return a training program that receives the config, or None if a program of its framework receives it."""
        program_patterns = frameworks.load(main.framework).manifest.program_patterns
        if not program_patterns or main.document.syntax == "shell":
            return None
        invocations = self.find_invocations(main)
        if not invocations:
            return None
        from cfglint_train.launches.entries import find_foreign_program, get_program

        return find_foreign_program(
            (get_program(document, invocation) for document, invocation in invocations), program_patterns
        )

    def find_invocations(self, main: Config) -> tuple[tuple[ShellDocument, Invocation], ...]:
        """Return the invocations that receive the config's file, or the invocation that is itself the config."""
        document = main.document
        if document.syntax == "shell":
            from cfglint_train.documents.shell.document import ShellDocument

            assert isinstance(document, ShellDocument)
            return ((document, document.invocations[int(main.root[0])]),)
        if main.role != "main":
            return ()
        return self.find_file_invocations(document.path)

    def find_file_invocations(self, path: str) -> tuple[tuple[ShellDocument, Invocation], ...]:
        """Return the invocations of scripts that receive a file."""
        return tuple((script, invocation) for script, invocation, _ in self.find_uses(path))

    def describe_hidden_options(self, main: Config) -> str:
        """Return the source of the options that cfglint cannot see in any launch of the config, or an empty string.

        The result is empty if at least one launch shows all its options, if there is no launch, and for Python scripts,
        whose constants no option can change.
        """
        reason = "" if main.document.syntax == "python" else None
        for script, invocation in self.find_invocations(main) if reason is None else ():
            if not invocation.open and not (invocation.forwards and not self._find_calls(script)):
                return ""
            line = f"{os.path.basename(script.path)}:{script.locate(invocation.span.start).line}"
            reason = f"{invocation.open} in {line}" if invocation.open else f'`"$@"` in {line}'
        return reason or ""

    def list_commands(self, main: Config) -> tuple[str, ...]:
        """Return the programs that receive, or may receive, the config, each with its subcommand if there is one."""
        uses = self.find_invocations(main) or self.find_likely_uses(main.document.path)
        return _format_commands(invocation for _, invocation, *_ in uses)

    def find_likely_uses(self, path: str) -> Iterator[ScriptUse]:
        """Yield the invocations that receive a file, or may receive it by a path that is not fully known."""
        yield from self.find_uses(path) or tuple(self._find_uses_elsewhere(path)) or self._find_variable_uses(path)

    def find_assigning_program(self, path: str) -> str:
        """Return the Python program that receives a file as `name=FILE`, or an empty string.

        Option parsers do not accept this form, so the program parses the file itself. The result is empty if any launch
        passes the file in another form.
        """
        invocations = (
            ()
            if self.find_uses(path)
            else (invocation for script in self._find_scripts(path) for invocation in script.invocations)
        )
        full_path = os.path.abspath(path).replace(os.sep, "/")
        for invocation in invocations:
            for word in invocation.words if invocation.program.endswith(".py") else ():
                assigned = _ASSIGNED.fullmatch(word.text)
                if assigned is not None and full_path.endswith(f"/{assigned[1]}"):
                    return os.path.basename(invocation.program)
        return ""

    def find_uses(self, path: str) -> tuple[ScriptUse, ...]:
        """Return the invocations that receive a file, each with its script and the words after the path."""
        if path not in self._uses:
            self._uses[path] = tuple(self._search_uses(path))
        return self._uses[path]

    def _search_uses(self, path: str) -> Iterator[ScriptUse]:
        for script in self._find_scripts(path):
            for invocation, words in self.find_uses_in(script, path):
                yield script, invocation, words

    def find_uses_in(self, script: ShellDocument, path: str) -> tuple[FileUse, ...]:
        """Return the invocations of one script that receive a file, each with the words after the path."""
        key = script, path
        if key not in self._uses_by_script:
            from cfglint_train.launches.launches import find_trailing_words

            repository = self.repositories.get_index(path)
            candidates = (
                (invocation, find_trailing_words(script, invocation, path, repository))
                for invocation in self._list_invocations(script, path)
            )
            self._uses_by_script[key] = tuple(
                (invocation, words) for invocation, words in candidates if words is not None
            )
        return self._uses_by_script[key]

    def _list_invocations(self, script: ShellDocument, path: str) -> Sequence[Invocation]:
        """Return the invocations that have a word ending in the file's name; each script is searched only once."""
        if script not in self._invocations_by_name:
            from cfglint_train.launches.launches import group_by_file_name

            self._invocations_by_name[script] = group_by_file_name(script)
        return self._invocations_by_name[script].get(os.path.basename(path), ())

    def _find_call_chains(
        self, script: Document, include_direct: bool, depth: int = _MAX_CALLS
    ) -> list[tuple[ScriptCall, ...]]:
        """Return the calls of a script, each with the calls that start its own script, up to one that submits it.

        Return only chains that begin in a job, unless `include_direct` is true.
        """
        from cfglint_train.frameworks.launchers import get_submission
        from cfglint_train.launches.launches import is_job_call

        chains: list[tuple[ScriptCall, ...]] = []
        for call in self._find_calls(script) if depth else ():
            is_submitted = get_submission(*call) is not None
            outer = [] if is_submitted else self._find_call_chains(call[0], include_direct=False, depth=depth - 1)
            if outer or include_direct or is_job_call(*call):
                chains += [(call, *rest) for rest in outer or [()]]
        return chains

    def _find_calls(self, job: Document) -> tuple[ScriptCall, ...]:
        """Return the invocations in other scripts that start `job` or submit it to Slurm."""
        if job.path not in self._calls_by_script:
            from cfglint_train.launches.launches import find_calls

            repository = self.repositories.get_index(job.path)
            self._calls_by_script[job.path] = tuple(
                call
                for script in self._find_scripts(job.path)
                if script.path != job.path
                for call in find_calls(script, job.path, repository)
            )
        return self._calls_by_script[job.path]

    def read_script(self, path: str, referring_file: str) -> ShellDocument | None:
        """Return the parsed shell script at `path` as seen from `referring_file`, or None if it is unreadable."""
        return next(self._read_scripts((path,), referring_file), None)

    def find_scripts_naming(self, stated_path: str, referring_file: str) -> tuple[ShellDocument, ...]:
        """Return the scripts that contain the file name of `stated_path`, whether or not that file exists."""
        scripts = self.repositories.get_index(referring_file).find_scripts_naming(os.path.basename(stated_path))
        return tuple(self._read_scripts(scripts, referring_file)) if scripts else ()

    def _find_scripts(self, path: str) -> tuple[ShellDocument, ...]:
        """Return the scripts that name a file."""
        if self.launch is not None:
            return self._list_started_scripts(self.launch)
        if path not in self._naming_scripts:
            index, name = self.repositories.get_index(path), os.path.basename(path)
            scripts = index.find_scripts_naming(name)
            if name.endswith(".py"):  # `python -m src.train`
                package = os.path.basename(os.path.dirname(os.path.abspath(path)))
                scripts = tuple(dict.fromkeys((*scripts, *index.find_scripts_naming(f"{package}.{name[:-3]}"))))
            elif name.endswith((".yaml", ".yml")):
                composing = {script for option in _COMPOSING_OPTIONS for script in index.find_scripts_naming(option)}
                naming = index.find_scripts_naming(name.rpartition(".")[0]) if composing else ()
                scripts = tuple(dict.fromkeys((*scripts, *(script for script in naming if script in composing))))
            self._naming_scripts[path] = tuple(self._read_scripts(scripts, path)) if scripts else ()
        return self._naming_scripts[path]

    def _list_started_scripts(self, launch: str) -> tuple[ShellDocument, ...]:
        """Return the script that is about to run, and the scripts that it starts."""
        if launch not in self._naming_scripts:
            paths = (launch, *filter(files.is_shell_script, self.list_started_files(launch)))
            self._naming_scripts[launch] = tuple(self._read_scripts(tuple(dict.fromkeys(paths)), launch))
        return self._naming_scripts[launch]

    def _keep_started(self, scripts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the scripts among `scripts` that may run: all, unless the launch is known."""
        if self.launch is None:
            return scripts
        started = {os.path.abspath(document.path) for document in self._list_started_scripts(self.launch)}
        return tuple(script for script in scripts if os.path.abspath(script) in started)

    def _read_scripts(self, scripts: tuple[str, ...], referring_file: str) -> Iterator[ShellDocument]:
        from cfglint_train.documents.shell.document import ShellDocument

        for script in scripts:
            document = self._parse_script(self.sources.format_path(script, referring_file))
            if isinstance(document, ShellDocument):
                yield document

    def list_started_files(self, path: str) -> Iterator[str]:
        """Yield the repository's files that a script starts: programs, other scripts and configuration files."""
        index = self.repositories.get_index(path)
        for document in self._read_scripts((path,), path) if files.is_shell_script(path) else self._read_commands(path):
            from cfglint_train.launches.started_files import list_started_files  # few files are scripts

            yield from list_started_files(document, self.sources, index, self.read_script)

    def _read_commands(self, path: str) -> Iterator[ShellDocument]:
        """Yield the commands of a Python program, a recipe or a YAML job, as shell scripts."""
        try:
            source = self.sources.read(path)
        except (OSError, ValueError):
            return
        if not registry.can_launch(source) or len(source) > MAX_BYTES:
            return
        from cfglint_train.launches.examples import extract_scripts

        for text in extract_scripts(path, source.decode("utf-8", "replace"), self.repositories.get_index(path)):
            document = self._parse_example(path, text.encode(), path)
            if document is not None:
                yield document

    def read_program(self, path: str) -> Document | None:
        """Return the parsed Python program at `path`, or None if it cannot be read or parsed."""
        return self._parse_script(path, "python")

    def _parse_script(self, path: str, syntax: str = "shell") -> Document | None:
        """Return the parsed file at `path`, or None if it cannot be read or parsed; it need not hold a config."""
        loaded = self.documents.get_parsed(path)
        if loaded is not None:
            return loaded
        if (path, syntax) not in self._parsed:
            try:
                document = self.sources.parse(path, self.sources.read(path), syntax)
            except (DocumentError, OSError):
                document = None
            self._parsed[path, syntax] = document
        return self._parsed[path, syntax]


def _format_commands(invocations: Iterable[Invocation]) -> tuple[str, ...]:
    """Return the distinct programs of invocations, each with its subcommand if there is one."""
    words = (
        " ".join(
            (
                invocation.program,
                *(word.text for word in invocation.words[:1] if word.is_known and word.text[:1] != "-"),
            )
        )
        for invocation in invocations
    )
    return tuple(dict.fromkeys(words))


def _list_sourced(document: Document | None) -> Collection[str]:
    """Return the absolute paths at which a script looks for files that it sources."""
    return getattr(document, "sourced_paths", ())


def _list_argument_scripts(index: RepositoryIndex) -> list[tuple[str, bytes]]:
    """Return the path and text of each shell script in a repository that uses its arguments."""
    return [(path, text.encode()) for path, text in index.read_texts("arguments")]
