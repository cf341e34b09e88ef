"""Manifests of the frameworks and packages, read from data before any code of a framework is needed.

A framework is a folder of `cfglint_train.frameworks.__path__` with a `framework.json`:

- `title`: its name as people write it.
- `clues`: syntax -> strings; a file that contains none of them is never parsed.
- `vocabulary`: name of its vocabulary in `cfglint_schemas`, or of the `vocabulary.json` next to it (absent: cfglint
  reports none of its keys). `entry`: its entry point there, if it is not the usual entry point. `beside`: another
  package whose releases also determine the keys.
- `tree`: layout of its source, to recognize a copy (absent: copies are ignored). `marks`: files and folders, at least
  one with Python in every copy. `parts`: files and folders that its settings are read from (empty: too many to read).
  `versions`: files that hold a copy's release, with a pattern whose groups are that release, joined by dots.
  `former`: former names of the package's folder, with the releases that had them. `suffixes`: endings of the files
  that are read, if not only Python. `programs`: folders whose programs (`main_x.py`, `x_main.py`) are read as well,
  with the YAML files of the `config` folder beside each.
- `package`: the names under which it is released, or the framework or package (`packages.json`) that includes it.
- `entries`: patterns of its own programs (commands, modules, scripts) that accept its file; absent: unknown.
- `trains`: pattern of a command: one of its own programs and the next word. A file that this command reads is a
  configuration, regardless of its keys; absent: the keys alone decide.
- `config_words`: beginnings of the words that name its file on a command (`config=`), if it is not a path alone.
- `launches`: the launcher that accepts its file as an option, if the file configures a launcher.
- `replaced_by`: packages that replace its trainers when a script imports them.
- `patched_by`: packages that keep the arguments of its trainers, but change their steps and the model, when a script
  imports them. Each has its newest known `release`, and the `range` of the framework's releases that it requires.
- `rules`: codes of rules that apply only to frameworks that list them.

`packages.json` lists the packages that are not frameworks. They have a `tree`, as above, if scripts pass settings to
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from json import load, loads

import cfglint_schemas
from cfglint_train import frameworks
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_FILE: Final = "framework.json"
_PACKAGES: Final = os.path.join(os.path.dirname(__file__), "packages.json")


class SourceLayout(Frozen):
    """Layout of a copy of a framework's source. Paths are relative to the folder on Python's path."""

    marks: tuple[str, ...]
    """Files and folders; at least one contains Python, even in a partial copy."""
    parts: tuple[str, ...]
    """Files and folders that its settings are read from; if empty, the settings of a copy cannot be determined."""
    release_files: Mapping[str, str]
    """Files that hold the release of a copy -> a pattern whose groups are the parts of that release."""
    former_names: Mapping[str, str]
    """Former names of the package's folder -> the releases that had them (`<0.8.0`)."""
    suffixes: tuple[str, ...] = (".py",)
    """Endings of the files in `parts` that are read."""
    program_folders: tuple[str, ...] = ()
    """Folders whose programs (`main_x.py`, `x_main.py`) are read too, with the `config` folders beside them."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Names that the package's folder has had, newest first."""
        return tuple(dict.fromkeys(mark.partition("/")[0] for mark in self.marks))


class FrameworkManifest(Frozen):
    """Contents of a framework's `framework.json`."""

    name: str
    title: str
    package: str
    """Package whose releases are the framework's releases."""
    clues: Mapping[str, tuple[bytes, ...]]
    vocabulary: str | None
    layout: SourceLayout | None
    default_entry: str | None
    companion_package: str | None
    launcher: str | None
    program_patterns: tuple[str, ...]
    training_pattern: str | None
    config_words: tuple[str, ...]
    replaced_by: tuple[str, ...]
    patched_by: Mapping[str, Mapping[str, str]]
    rules: frozenset[str]
    folder: str


class Package(Frozen):
    """A package whose release determines something that cfglint checks."""

    name: str
    """Name inside cfglint, in plans and in messages."""
    spellings: tuple[str, ...]
    """Names that people use when they state its release."""
    distributions: tuple[str, ...]
    """Names on PyPI and conda."""
    repositories: tuple[str, ...]
    """Repositories on GitHub, in lower case, whose tags are its releases."""
    former_repositories: tuple[str, ...]
    """Repositories that the package left before its oldest known release; a link to them means an older release."""
    images: Mapping[str, Mapping[str, str]]
    """Pattern of container images whose tags start with a release -> further packages in these images.

    Each further package has a pattern with one group, which finds its release in the tag.
    """
    release_dates: Mapping[str, str]
    """Releases and their dates, in ascending order.

    Only for a package whose images are built from the development branch and have the day in their tags.
    """


@cache
def list_frameworks() -> Mapping[str, FrameworkManifest]:
    """Return every framework by name, in alphabetical order."""
    return {name: _build_manifest(name, folder, content) for name, folder, content in _read_manifests()}


@cache
def _read_manifests() -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Return name, folder and content of every framework's file."""
    folders = [
        (entry.name, entry.path)
        for place in frameworks.__path__
        for entry in os.scandir(place)
        if os.path.exists(os.path.join(entry.path, _FILE))
    ]
    files = tuple((name, folder, _read_json(os.path.join(folder, _FILE))) for name, folder in sorted(folders))
    for _, folder, content in files:
        if os.path.exists(vocabulary := os.path.join(folder, "vocabulary.json")):
            if "vocabulary" not in content:
                raise ValueError(f"{os.path.join(folder, _FILE)}: `vocabulary` must name {vocabulary}")
            cfglint_schemas.files[content["vocabulary"]] = vocabulary
    return files


def _read_json(path: str) -> Mapping[str, Any]:
    with open(path, encoding="utf-8") as file:
        content: Mapping[str, Any] = load(file)
    return content


def _build_manifest(name: str, folder: str, content: Mapping[str, Any]) -> FrameworkManifest:
    package = content.get("package")
    return FrameworkManifest(
        name,
        content["title"],
        package if isinstance(package, str) else name,
        {syntax: tuple(clue.encode() for clue in clues) for syntax, clues in content["clues"].items()},
        content.get("vocabulary"),
        _build_layout(content["tree"]) if "tree" in content else None,
        content.get("entry"),
        content.get("beside"),
        content.get("launches"),
        tuple(content.get("entries", ())),
        content.get("trains"),
        tuple(content.get("config_words", ())),
        tuple(content.get("replaced_by", ())),
        content.get("patched_by", {}),
        frozenset(content.get("rules", ())),
        folder,
    )


def _build_layout(content: Mapping[str, Any]) -> SourceLayout:
    versions, former = content.get("versions", {}), content.get("former", {})
    suffixes = tuple(content.get("suffixes", (".py",)))
    programs = tuple(content.get("programs", ()))
    return SourceLayout(tuple(content["marks"]), tuple(content["parts"]), versions, former, suffixes, programs)


@cache
def list_packages() -> Mapping[str, Package]:
    """Return every package by its name inside cfglint, those of frameworks first."""
    framework_packages = {name: content.get("package") for name, _, content in _read_manifests()}
    others = _read_json(_PACKAGES)
    return {
        name: _build_package(name, entry)
        for name, entry in {**framework_packages, **others}.items()
        if isinstance(entry, dict)
    }


def _build_package(name: str, content: Mapping[str, Any]) -> Package:
    return Package(
        name,
        tuple(content["spellings"]),
        tuple(content["distributions"]),
        tuple(content.get("repositories", ())),
        tuple(content.get("former", ())),
        content.get("images", {}),
        content.get("dates", {}),
    )


@cache
def list_called_packages() -> Mapping[str, FrameworkManifest]:
    """Return the packages that scripts pass settings to, as manifests that describe their copies."""
    trees = {name: content["tree"] for name, content in _read_json(_PACKAGES).items() if "tree" in content}
    stated = {name: {"title": name, "clues": {}, "vocabulary": name, "tree": tree} for name, tree in trees.items()}
    return {name: _build_manifest(name, "", content) for name, content in stated.items()}


@cache
def list_vendorable() -> tuple[FrameworkManifest, ...]:
    """Return the frameworks and packages whose copies are recognized."""
    return (
        *(manifest for manifest in list_frameworks().values() if manifest.layout is not None),
        *list_called_packages().values(),
    )


@cache
def map_spellings() -> Mapping[str, str]:
    """Return the package for each name that people use when they state a release."""
    return {spelling: package.name for package in list_packages().values() for spelling in package.spellings}


@cache
def find_frameworks_of_rule(code: str) -> frozenset[str]:
    """Return the frameworks whose manifests list a rule."""
    return frozenset(manifest.name for manifest in list_frameworks().values() if code in manifest.rules)


def find_vocabulary(package: str) -> str | None:
    """Return the vocabulary that lists the releases of a package, or None.

    That is the vocabulary of the framework itself, or of one that the package contains, or else of a framework whose
    keys also depend on the package.
    """
    manifests = list_frameworks()
    if package in manifests:
        return manifests[package].vocabulary
    owned = (manifest.vocabulary for manifest in manifests.values() if manifest.package == package)
    dependent = (manifest.vocabulary for manifest in manifests.values() if manifest.companion_package == package)
    return next((vocabulary for vocabulary in (*owned, *dependent) if vocabulary), None)


def find_dependent_frameworks(package: str) -> tuple[str, ...]:
    """Return the frameworks whose keys depend on the release of a package."""
    return tuple(
        manifest.name
        for manifest in list_frameworks().values()
        if manifest.vocabulary and package in (manifest.package, manifest.companion_package)
    )


@cache
def list_config_words() -> tuple[str, ...]:
    """Return the beginnings of words that name the file of any framework."""
    words = (word for manifest in list_frameworks().values() for word in manifest.config_words)
    return tuple(dict.fromkeys(words))


def remove_config_word(word: str) -> str:
    """Return the path in a word, which a framework may want to begin with a name (`config=run.yaml`)."""
    for beginning in list_config_words():
        word = word.removeprefix(beginning)
    return word


def find_launcher_framework(program: str) -> str | None:
    """Return the framework whose file a launcher accepts as an option, or None."""
    return next((manifest.name for manifest in list_frameworks().values() if manifest.launcher == program), None)


@cache
def _list_clues(syntax: str) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    return tuple(
        (manifest.name, manifest.clues[syntax]) for manifest in list_frameworks().values() if syntax in manifest.clues
    )


@lru_cache(maxsize=4096)
def find_framework_of_program(program: str) -> FrameworkManifest | None:
    """Return the framework that has a program (command, module or script) as an entry point, or None."""
    matches = (
        manifest
        for manifest in list_frameworks().values()
        for entry in manifest.program_patterns
        if re.fullmatch(entry, program)
    )
    return next(matches, None)


def find_candidates(source: bytes, syntax: str) -> list[str]:
    """Return the frameworks whose clues occur in a source."""
    return [name for name, clues in _list_clues(syntax) if any(clue in source for clue in clues)]


def can_start_framework(source: bytes) -> bool:
    """Return whether a source may name a framework's command or module that accepts a file."""
    return (
        any(head in source for head in _list_command_heads()) and _compile_command_pattern().search(source) is not None
    )


_PROGRAM: Final = rb"(?<![\w./-])[\w./-]+\.py\b|(?<=-m )[\w.]+|(?<=--module )[\w.]+"


def can_start_other_program(source: bytes) -> bool:
    """Return whether a source may name a Python program that does not belong to a framework.

    Every `.py` file counts, because it may be the repository's own program.
    """
    return any(
        program.endswith(b".py") or not _compile_program_pattern().fullmatch(program)
        for program in re.findall(_PROGRAM, source)
    )


PYTHON_STARTS: Final = (b"subprocess", b"os.system", b"os.popen", b"os.exec")
"""Substrings of Python programs that start commands; each of these programs contains at least one substring."""
_TRAINING_COMMAND: Final = compile_on_use(rb"\b(?:accelerate|deepspeed|executable|python3?|torchrun)\b|\.py\b")


def can_start_from_python(source: bytes) -> bool:
    """Return whether a Python program may start a command that trains."""
    if not any(sign in source for sign in PYTHON_STARTS):
        return False
    return can_start_framework(source) or _TRAINING_COMMAND.search(source) is not None


_LAUNCH_OF_SCRIPT: Final = compile_on_use(rb"\b(?:accelerate launch|deepspeed|python3?|torchrun)\b[^\n\"]{0,300}\.py\b")


def can_launch(source: bytes) -> bool:
    """Return whether a file other than a script may contain a command that trains."""
    if find_candidates(source, "shell") or can_start_framework(source):
        return True
    return (b".py" in source and _LAUNCH_OF_SCRIPT.search(source) is not None) or can_start_from_python(source)


_JOB_KEY: Final = compile_on_use(rb"(?m)^[ \t-]*(?:run|commands?|args|entrypoint)[ \t]*:")


def is_job(source: bytes) -> bool:
    """Return whether a YAML file may define a job with commands."""
    return _JOB_KEY.search(source) is not None


@cache
def _compile_program_pattern() -> re.Pattern[bytes]:
    return re.compile(
        "|".join(entry for manifest in list_frameworks().values() for entry in manifest.program_patterns).encode()
    )


@cache
def _list_command_heads() -> tuple[bytes, ...]:
    """Return the names of commands and modules, sorted; script paths are left out, because they are not evidence."""
    entries = (
        entry.encode()
        for manifest in list_frameworks().values()
        for entry in manifest.program_patterns
        if not entry.startswith("(")
    )
    return tuple(sorted({re.match(rb"[\w-]*", entry)[0] for entry in entries}))  # type: ignore[index]


@cache
def _compile_command_pattern() -> re.Pattern[bytes]:
    return re.compile(rb"\b(?:%b)\b" % b"|".join(map(re.escape, _list_command_heads())))


def is_probable_config(source: bytes, syntax: str) -> bool:
    """Return whether a file that cannot be parsed was probably written for a framework.

    One of the framework's clues must be a key or, in a shell script, a word outside comments. In JSON, keys may also
    follow a brace or a comma, unless the first line is a record by itself.
    """
    present = [clue for _, clues in _list_clues(syntax) for clue in clues if clue in source]
    if not present:
        return False
    clues = b"|".join(map(re.escape, present))
    if syntax == "python":
        return re.search(rb"^[ \t]*(?:from|import)[ \t]+(?:" + clues + rb")\b", source, re.M) is not None
    if syntax == "shell":
        return re.search(rb"^[^#\n]*(?<![\w-])(?:" + clues + rb")(?![\w-])", source, re.M) is not None
    if re.search(rb"^[ \t]*[\"']?(?:" + clues + rb")[\"']?[ \t]*:", source, re.M) is not None:
        return True
    key = rb"[{,][ \t]*\"(?:" + clues + rb")\"[ \t]*:"
    return syntax == "json" and not _is_record(source) and re.search(key, source) is not None


def _is_record(source: bytes) -> bool:
    """Return whether the first line is a complete JSON value and more lines follow: one record per line."""
    first, _, rest = source.partition(b"\n")
    if not rest.strip():
        return False
    try:
        loads(first)
    except (ValueError, RecursionError):
        return False
    return True
