"""The launch scripts of a repository that start a configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from cfglint_train.documents.document import Document, DocumentError
from cfglint_train.foundation.roots import distance
from cfglint_train.foundation.typed import TYPE_CHECKING, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import FrameworkManifest
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents
from cfglint_train.repository.index import Repositories, RepositoryIndex

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation
    from cfglint_train.documents.shell.words import Word
    from cfglint_train.frameworks.launchers import Submission, Unread
    from cfglint_train.launches.launches import Call, Launch

    Given = tuple[Invocation, tuple[Word, ...]]
    Handed = tuple[ShellDocument, Invocation, tuple[Word, ...]]

MAX_BESIDE: Final = 500
"""Files of a configuration's folder that are looked for in scripts."""

_ASSIGNED: Final = re.compile(r"[A-Za-z_][\w.]*=(?:.*[)}]/)?(?:\./)?([\w.-]+(?:/[\w.-]+)*)")
"""`name=FILE`; what is in front of the last variable of a path may be any folder."""
_MODULE: Final = r"\w+(?:\.\w+)+"


class LaunchScripts:
    """The shell scripts of the repositories that were asked for."""

    def __init__(self, documents: Documents, repositories: Repositories) -> None:
        self.documents = documents
        self.sources = documents.sources
        self.repositories = repositories
        self._launchers: dict[tuple[str, str | bytes], Document | None] = {}
        """By path and text, or by path and syntax of the file."""
        self._handed: dict[str, tuple[Handed, ...]] = {}
        self._handed_in: dict[tuple[ShellDocument, str], tuple[Given, ...]] = {}
        self._found: dict[str, tuple[ShellDocument, ...]] = {}
        self._by_name: dict[ShellDocument, Mapping[str, Sequence[Invocation]]] = {}
        self._called: dict[str, tuple[Call, ...]] = {}
        self._taking_arguments: dict[tuple[str, str], tuple[str, ...]] = {}
        self._beside: dict[tuple[str, str], tuple[str, str] | None] = {}

    def updated(self, documents: Documents, changed: Collection[str]) -> LaunchScripts:
        """The same scripts, of which some have new contents."""
        after = LaunchScripts(documents, self.repositories)
        after._launchers = {key: document for key, document in self._launchers.items() if key[0] not in changed}
        return after

    def starts(self, main: Config) -> list[Launch]:
        """The places where scripts start a configuration."""
        if main.role != "main":
            return []
        if main.document.syntax == "shell":
            from cfglint_train.launches.launches import own_start

            return own_start(main, self._submissions(main.document))
        path = main.document.path
        found: list[Launch] = []
        for document in self._naming(path):
            found += self._starts(main, document, self.handed_in(document, path))
        return (
            found
            or list(self._assembled(main))
            or list(self._supposed(main, self._elsewhere(path), "which names the file by a folder out of sight"))
            or list(self._turns(main))
            or list(self._shown(main))  # by its name, which says more than a name with variables
            or list(self._supposed(main, self._by_variables(path), "which names its file by variables"))
            or list(self._taking(main))
            or list(self._described(main))
        )

    def argued(self, main: Config) -> list[Launch]:
        """What the scripts add that start the script that a configuration is, where it hands its arguments on."""
        from cfglint_train.documents.shell.document import ShellDocument

        document = main.document
        if not isinstance(document, ShellDocument) or not document.invocations[int(main.root[0])].forwards:
            return []
        from cfglint_train.launches.launches import argued

        return argued(main, self._calls(document))

    def _starts(self, main: Config, document: ShellDocument, given: Iterable[Given]) -> list[Launch]:
        """What the invocations of a script come to that are given a configuration, and may train with it."""
        from cfglint_train.launches.entries import only_reads
        from cfglint_train.launches.launches import starts

        repository, framework = self.repositories.index(main.document.path), frameworks.load(main.framework)

        def calls(all_of_them: bool) -> tuple[Call, ...]:
            return self._calls(document) if all_of_them else self._submitting(document)

        def job(script: str | None) -> ShellDocument | None:
            return None if script is None else self.script(script, document.path)

        if main.document.syntax != "python":
            given = [(one, words) for one, words in given if not only_reads(document, one)]
        return starts(document, given, main, framework, repository, calls, job)

    def _assembled(self, main: Config) -> Iterator[Launch]:
        """The places in scripts that start a configuration by a name with variables that they set themselves."""
        path = main.document.path
        for document in self._naming_by_variables(path):
            yield from self._starts(main, document, self.handed_in(document, path))

    def _supposed(self, main: Config, places: Iterable[Handed], why: str) -> Iterator[Launch]:
        """What places come to that may be given a configuration."""
        for document, invocation, words in places:
            from cfglint_train.launches.merged_launch import supposed

            for start in self._starts(main, document, [(invocation, words)]):
                yield supposed(start, why)

    def _elsewhere(self, path: str) -> Iterator[Handed]:
        """The invocations in scripts that are given a file by its path in a folder out of sight."""
        for document in self._naming(path):
            from cfglint_train.launches.launches import behind_elsewhere

            repository = self.repositories.index(path)
            for one in self._with(document, path):
                words = behind_elsewhere(document, one, path, repository)
                if words is not None:
                    yield document, one, words

    def _turns(self, main: Config) -> Iterator[Launch]:
        """The places in scripts that start a configuration in a turn of a loop over files."""
        path = main.document.path
        repository = self.repositories.index(path)
        if not repository.has_scripts:
            return
        from cfglint_train.launches.turns import looping, turned

        name = os.path.basename(path)
        scripts = tuple(
            script
            for script, patterns in repository.once(looping)
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        )
        for document in self._read(scripts, path):
            yield from self._starts(main, document, turned(document, path, repository))

    def _by_variables(self, path: str) -> Iterator[Handed]:
        """The invocations in scripts that are given files by names with variables, where a file may be one of them."""
        for document in self._naming_by_variables(path):
            from cfglint_train.launches.named_by_variables import given

            for invocation, words in given(document, path, self.repositories.index(path)):
                yield document, invocation, words

    def _naming_by_variables(self, path: str) -> Iterator[ShellDocument]:
        """The scripts with a name that is a file's for some values of the variables in it."""
        repository = self.repositories.index(path)
        if repository.has_scripts:
            from cfglint_train.launches.named_by_variables import scripts_naming

            yield from self._read(scripts_naming(repository, path), path)

    def _taking(self, main: Config) -> Iterator[Launch]:
        """The places in scripts that start a program of the framework with a file that they are handed: in those of the
        configuration's folder, or of the nearest one above.
        """
        framework, path = frameworks.load(main.framework), main.document.path
        own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        folders = {one: os.path.dirname(one) for one in self._with_arguments(framework.listed, path)}
        above = {one: folder for one, folder in folders.items() if f"{own}/".startswith(f"{folder}/")}
        nearest = tuple(one for one, folder in above.items() if folder == max(above.values(), key=len))
        for document in self._read(nearest, path) if nearest else ():
            from cfglint_train.launches.launches import taking
            from cfglint_train.launches.merged_launch import supposed

            for start in taking(document, main, framework):
                yield supposed(start, "which takes its file as an argument")

    def _described(self, main: Config) -> Iterator[Launch]:
        """How the docstring of a Python script starts it: by the first of its commands."""
        script = main.document
        if script.syntax != "python":
            return
        from cfglint_train.documents.python.script import PythonScript
        from cfglint_train.launches.examples import described
        from cfglint_train.launches.merged_launch import shown_whole

        assert isinstance(script, PythonScript)
        text = described(script)
        document = self._example(script.path, text, main.document.path) if text else None
        if document is None:
            return
        from cfglint_train.launches.launches import behind_name

        name = os.path.basename(script.path)  # examples are copied with their folder
        found = ((one, behind_name(one, name)) for one in self._with(document, script.path))
        given = [(one, words) for one, words in found if words is not None]
        for start in self._starts(main, document, given[:1]):
            yield shown_whole(start)

    def _shown(self, main: Config) -> Iterator[Launch]:
        """What the nearest read-me files, Makefiles and jobs in YAML show of how a configuration is started."""
        path = main.document.path
        repository = self.repositories.index(path)
        if not repository.rooted:
            return
        from cfglint_train.launches.examples import examples, is_job

        own = os.path.dirname(os.path.abspath(path)).replace(os.sep, "/")
        name = os.fsencode(os.path.basename(path))
        found: dict[int, list[Launch]] = {}
        for file, text in repository.once(examples):
            document = self._example(file, text, path) if name in text else None
            if document is not None:
                from cfglint_train.launches.merged_launch import shown, shown_whole

                starts = self._starts(main, document, self.handed_in(document, path))
                if main.document.syntax == "python":  # its options are most of what there is to know
                    starts = [shown_whole(one) for one in starts[:1]]
                elif is_job(file):
                    starts = [shown_whole(one, "") for one in starts]
                else:
                    starts = [start for one in starts if (start := shown(one)) is not None]
                found.setdefault(sum(distance(own, os.path.dirname(file))), []).extend(starts)
        yield from next((starts for _, starts in sorted(found.items(), key=lambda one: one[0]) if starts), ())

    def _example(self, path: str, text: bytes, beside: str) -> ShellDocument | None:
        from cfglint_train.documents.shell.document import ShellDocument

        if (path, text) not in self._launchers:
            try:
                self._launchers[path, text] = files.parse(self.sources.named(path, beside), text, "shell")
            except DocumentError:
                self._launchers[path, text] = None
        document = self._launchers[path, text]
        return document if isinstance(document, ShellDocument) else None

    def beside(self, main: Config) -> tuple[str, str] | None:
        """A script and the file beside a configuration that it starts, where launchers shard all such files.

        Of the files of a folder often one is in the script, and is exchanged for the others by hand.
        """
        path = main.document.path
        kind = (os.path.dirname(path), os.path.splitext(path)[1])
        if kind not in self._beside:
            self._beside[kind] = self._launched_in(*kind, path)
        return self._beside[kind]

    def naming(self, main: Config) -> str | None:
        """A script that names a configuration, and starts what it does not name with a launcher that may shard it."""
        for script in self._naming(main.document.path):
            from cfglint_train.launches.launches import shards_unknown

            if shards_unknown(script):
                return script.path
        return None

    def _launched_in(self, folder: str, extension: str, path: str) -> tuple[str, str] | None:
        """A script and a file of a folder that it starts, if each of those that are started may be sharded."""
        repository = self.repositories.index(path)
        try:
            with os.scandir(folder or ".") as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_BESIDE) if entry.name.endswith(extension))
        except OSError:
            return None
        first: tuple[str, str] | None = None
        for name in names:
            one = os.path.join(folder, name)
            for script in self._naming(one):
                from cfglint_train.launches.launches import sharded

                ways = sharded(script, one, repository)
                if not all(ways):
                    return None
                if ways and first is None:
                    first = (script.path, name)
        return first

    def _with_arguments(self, listed: FrameworkManifest, path: str) -> tuple[str, ...]:
        """The shell scripts around a file that use what they are handed, and name a program of a framework."""
        index = self.repositories.index(path)
        key = (listed.name, index.root)
        if key not in self._taking_arguments:
            programs = "|".join(pattern.removeprefix("(.*/)?") for pattern in listed.entries)
            named = re.compile(programs.encode()) if programs else None
            found = index.once(_with_arguments) if named is not None else ()
            self._taking_arguments[key] = tuple(
                script for script, text in found if named is not None and named.search(text)
            )
        return self._taking_arguments[key]

    def may_give(self, companion: Config, option: str) -> bool:
        """Whether a launch may give a companion's launcher an option: a script that names it has the option, be it in a
        text put together, or none names it and the launch is out of sight.
        """
        if companion.role == "main":
            return False
        path, spellings = companion.document.path, (option, f"--{option[2:].replace('_', '-')}")
        repository = self.repositories.index(path)
        naming = repository.scripts_naming(os.path.basename(path))
        having = {script for word in spellings for script in repository.scripts_naming(word)}
        return not naming or not having.isdisjoint(naming)

    def unread(self, config: Config) -> list[Unread]:
        """The places where launchers are given a configuration's file and do not read it."""
        if config.role == "main" or config.document.syntax == "shell":
            return []
        found: list[Unread] = []
        path = config.document.path
        repository = self.repositories.index(path)
        if repository.scripts_naming(os.path.basename(path)):
            from cfglint_train.launches.launches import may_be_unread, unread

            # Every script of a repository may name a companion.
            for document in self._naming(path) if may_be_unread(repository) else ():
                found += unread(document, config, repository)
        return found

    def foreign(self, main: Config) -> str | None:
        """The program that scripts hand a configuration to, where its framework has none of that name."""
        own = frameworks.load(main.framework).listed.entries
        if not own or main.document.syntax == "shell":
            return None
        given = self.given(main)
        if not given:
            return None
        from cfglint_train.launches.entries import foreign, program

        return foreign((program(document, invocation) for document, invocation in given), own)

    def given(self, main: Config) -> tuple[tuple[ShellDocument, Invocation], ...]:
        """The invocations of scripts that a configuration's file is given to, or that are the configuration."""
        document = main.document
        if document.syntax == "shell":
            from cfglint_train.documents.shell.document import ShellDocument

            assert isinstance(document, ShellDocument)
            return ((document, document.invocations[int(main.root[0])]),)
        if main.role != "main":
            return ()
        return self.handed_to(document.path)

    def handed_to(self, path: str) -> tuple[tuple[ShellDocument, Invocation], ...]:
        """Return the invocations of scripts that are given a file."""
        return tuple((script, invocation) for script, invocation, _ in self.handed(path))

    def appended(self, main: Config) -> str:
        """What may give each launch of a configuration further options, out of sight; empty where one has all of its
        options in sight. What a Python script states itself, no option changes.
        """
        found = "" if main.document.syntax == "python" else None
        for script, one in self.given(main) if found is None else ():
            if not one.open and not (one.forwards and not self._calls(script)):
                return ""
            line = f"{os.path.basename(script.path)}:{script.position(one.span.start).line}"
            found = f"{one.open} in {line}" if one.open else f'`"$@"` in {line}'
        return found or ""

    def commands(self, main: Config) -> tuple[str, ...]:
        """The programs that a configuration is given to, or may be, each with the word behind its name where that is no
        option.
        """
        places = self.given(main) or self.likely(main.document.path)
        return _programs(one for _, one, *_ in places)

    def likely(self, path: str) -> Iterator[Handed]:
        """The invocations of scripts that a file is given to, or may be, by a name with variables."""
        yield from self.handed(path) or tuple(self._elsewhere(path)) or self._by_variables(path)

    def assigned(self, path: str) -> str:
        """The program that is given a file as `name=FILE`, which no parser of options takes: it reads the file in its
        own way. Empty where none is, or a launch gives the file otherwise.
        """
        given = () if self.handed(path) else (one for script in self._naming(path) for one in script.invocations)
        whole = os.path.abspath(path).replace(os.sep, "/")
        for one in given:
            for word in one.words if one.program.endswith(".py") else ():
                assigned = _ASSIGNED.fullmatch(word.text)
                if assigned is not None and whole.endswith(f"/{assigned[1]}"):
                    return os.path.basename(one.program)
        return ""

    def handed(self, path: str) -> tuple[Handed, ...]:
        """The invocations of scripts that a file is given to, each with the words behind it."""
        if path not in self._handed:
            self._handed[path] = tuple(self._handing(path))
        return self._handed[path]

    def _handing(self, path: str) -> Iterator[Handed]:
        for script in self._naming(path):
            for invocation, words in self.handed_in(script, path):
                yield script, invocation, words

    def handed_in(self, script: ShellDocument, path: str) -> tuple[Given, ...]:
        """The invocations of one script that a file is given to, each with the words behind it."""
        key = script, path
        if key not in self._handed_in:
            from cfglint_train.launches.launches import behind

            repository = self.repositories.index(path)
            found = ((one, behind(script, one, path, repository)) for one in self._with(script, path))
            self._handed_in[key] = tuple((one, words) for one, words in found if words is not None)
        return self._handed_in[key]

    def _with(self, script: ShellDocument, path: str) -> Sequence[Invocation]:
        """The invocations of a script with a word that ends in a file's name. Each script is gone through once."""
        if script not in self._by_name:
            from cfglint_train.launches.launches import by_name

            self._by_name[script] = by_name(script)
        return self._by_name[script].get(os.path.basename(path), ())

    def _submissions(self, job: Document) -> list[Submission]:
        """The places where other scripts submit a job script to Slurm."""
        from cfglint_train.launches.launches import submission_of

        return [one for call in self._submitting(job) if (one := submission_of(*call)) is not None]

    def _submitting(self, job: Document) -> tuple[Call, ...]:
        """The places where other scripts start a job script by way of Slurm."""
        from cfglint_train.launches.launches import submission_of

        if not any(script.path != job.path and b"sbatch" in script.source for script in self._naming(job.path)):
            return ()
        return tuple(call for call in self._calls(job) if submission_of(*call) is not None)

    def _calls(self, job: Document) -> tuple[Call, ...]:
        """The places where other scripts start a script."""
        if job.path not in self._called:
            from cfglint_train.launches.launches import calls_of

            repository = self.repositories.index(job.path)
            self._called[job.path] = tuple(
                one
                for script in self._naming(job.path)
                if script.path != job.path
                for one in calls_of(script, job.path, repository)
            )
        return self._called[job.path]

    def script(self, path: str, beside: str) -> ShellDocument | None:
        """A script, whatever it starts, as it is named beside a file."""
        return next(self._read((path,), beside), None)

    def naming_file(self, stated: str, beside: str) -> tuple[ShellDocument, ...]:
        """The scripts that name a file as another one states it, be it there or not."""
        scripts = self.repositories.index(beside).scripts_naming(os.path.basename(stated))
        return tuple(self._read(scripts, beside)) if scripts else ()

    def _naming(self, path: str) -> tuple[ShellDocument, ...]:
        """The scripts that name a file."""
        if path not in self._found:
            scripts = self.repositories.index(path).scripts_naming(os.path.basename(path))
            self._found[path] = tuple(self._read(scripts, path)) if scripts else ()
        return self._found[path]

    def _read(self, scripts: tuple[str, ...], beside: str) -> Iterator[ShellDocument]:
        from cfglint_train.documents.shell.document import ShellDocument

        for script in scripts:
            document = self._launcher(self.sources.named(script, beside))
            if isinstance(document, ShellDocument):
                yield document

    def started_by(self, path: str) -> Iterator[str]:
        """Return the programs of the repository that a script starts, and the files that it gives to programs."""
        from cfglint_train.documents.shell.folders import folder_of
        from cfglint_train.launches.entries import file_of

        index = self.repositories.index(path)
        for document in self._read((path,), path):
            for one in document.invocations:
                words = (word.text.rpartition("=")[2] for word in one.words)
                given = (
                    os.path.join(folder_of(document, one), word)
                    for word in words
                    if word.endswith(files.CONFIGURATIONS)
                )
                found = (
                    file_of(document, one, self.sources, index),
                    *(self.sources.find(word, path) for word in given),
                )
                yield from (file for file in found if file is not None)

    def program(self, path: str) -> Document | None:
        """A Python program that a configuration is given to, whether or not it holds one itself."""
        return self._launcher(path, "python")

    def _launcher(self, path: str, syntax: str = "shell") -> Document | None:
        """A script that names a configuration, whether or not it holds one itself."""
        known = self.documents.known(path)
        if known is not None:
            return known
        if (path, syntax) not in self._launchers:
            try:
                document = files.parse(path, self.sources.read(path), syntax, self.sources.beside(path))
            except (DocumentError, OSError):
                document = None
            self._launchers[path, syntax] = document
        return self._launchers[path, syntax]


def _programs(invocations: Iterable[Invocation]) -> tuple[str, ...]:
    """The programs that are started, each with the word behind its name where that is no option."""
    words = (
        " ".join((one.program, *(word.text for word in one.words[:1] if word.known and word.text[:1] != "-")))
        for one in invocations
    )
    return tuple(dict.fromkeys(words))


def _with_arguments(index: RepositoryIndex) -> list[tuple[str, bytes]]:
    """The shell scripts of a repository that use what they are handed."""
    return [(path, text.encode()) for path, text in index.texts("arguments")]
