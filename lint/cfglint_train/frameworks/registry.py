"""The frameworks and packages there are, read from data before any code of a framework is needed.

A framework is a folder of `cfglint_train.frameworks.__path__` with a `framework.json`:

- `title`: its name as people write it.
- `clues`: syntax -> texts one of which every configuration contains; a file without any of them is never parsed.
- `vocabulary`: the name of the file of its settings in `cfglint_schemas`, or of `vocabulary.json` beside it (absent: no
  key is ever reported), and `entry`, the entry point there where it is not the usual one; `beside`: another package
  whose releases decide about keys as well.
- `tree`: what identifies a copy of its source (`marks`: files and folders in one of which there is Python) and which
  `parts` of it, files and folders, its settings are read from (none: too many to be read); absent: copies are ignored.
  `versions`: files that hold a copy's release, with a pattern whose groups are that release, put together by dots;
  `former`: names of the package that only some releases have.
- `package`: what its releases are called, or the framework or package (`packages.json`) in which it is released.
- `entries`: patterns of the programs (commands, modules, scripts) of its own that take a file of it; absent: not known.
- `trains`: the commands whose file is a configuration whatever keys it has, as a pattern of a program of its own and
  the word behind it; absent: the keys alone decide.
- `launches`: the program that takes its file as an option, where it is the file of a launcher.
- `replaced_by`: packages that put other trainers in the place of its own as a script imports them.
- `rules`: codes of the rules that apply only to frameworks that name them.

`packages.json` has the packages that no framework is; `tree` there, as above, where a script hands settings to one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from json import load, loads

import cfglint_schemas
from cfglint_train import frameworks
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_FILE: Final = "framework.json"
_PACKAGES: Final = os.path.join(os.path.dirname(__file__), "packages.json")


class SourceLayout(Frozen):
    """How a copy of a framework's source is laid out. Paths count from the folder that Python finds it in."""

    marks: tuple[str, ...]
    """There is Python in one of these files and folders, even if only a part of the source was copied."""
    parts: tuple[str, ...]
    """The files and folders that its settings are read from; none: those of a copy cannot be determined."""
    release_files: Mapping[str, str]
    """Files that hold the release of a copy -> a pattern whose groups are the parts of that release."""
    former_names: Mapping[str, str]
    """Names that the package's folder had -> the releases that had it (`<0.8.0`)."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The names that the package's folder has had, the newest first."""
        return tuple(dict.fromkeys(mark.partition("/")[0] for mark in self.marks))


class FrameworkManifest(Frozen):
    """A framework as its `framework.json` has it."""

    name: str
    title: str
    package: str
    """The package whose releases are its own."""
    clues: Mapping[str, tuple[bytes, ...]]
    vocabulary: str | None
    layout: SourceLayout | None
    default_entry: str | None
    companion_package: str | None
    launcher: str | None
    program_patterns: tuple[str, ...]
    training_pattern: str | None
    replaced_by: tuple[str, ...]
    rules: frozenset[str]
    folder: str


class Package(Frozen):
    """A package whose release decides about something."""

    name: str
    """Its name inside cfglint, in plans and in messages."""
    spellings: tuple[str, ...]
    """Names by which people state its release."""
    distributions: tuple[str, ...]
    """Names on PyPI and conda."""
    repositories: tuple[str, ...]
    """Repositories on GitHub, in lower case, whose tags are its releases."""
    former_repositories: tuple[str, ...]
    """Those of them that it left before the oldest release that cfglint knows: what leads there is of that time."""
    images: Mapping[str, Mapping[str, str]]
    """Patterns of container images whose tags start with a release -> further packages, and where the tag has theirs
    (a pattern with one group)."""
    release_dates: Mapping[str, str]
    """The days of releases, in ascending order, where images are built of the development branch and say on which."""


@cache
def list_frameworks() -> Mapping[str, FrameworkManifest]:
    """Every framework by name, in alphabetical order."""
    return {name: _build_manifest(name, folder, content) for name, folder, content in _read_manifests()}


@cache
def _read_manifests() -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Name, folder and content of every framework's file."""
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
                raise ValueError(f"{os.path.join(folder, _FILE)}: `vocabulary` must name what is in {vocabulary}")
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
        tuple(content.get("replaced_by", ())),
        frozenset(content.get("rules", ())),
        folder,
    )


def _build_layout(content: Mapping[str, Any]) -> SourceLayout:
    versions, former = content.get("versions", {}), content.get("former", {})
    return SourceLayout(tuple(content["marks"]), tuple(content["parts"]), versions, former)


@cache
def list_packages() -> Mapping[str, Package]:
    """Every package by its name inside cfglint, those of frameworks first."""
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
    """The packages to which scripts hand settings, as their copies are found and read."""
    trees = {name: content["tree"] for name, content in _read_json(_PACKAGES).items() if "tree" in content}
    stated = {name: {"title": name, "clues": {}, "vocabulary": name, "tree": tree} for name, tree in trees.items()}
    return {name: _build_manifest(name, "", content) for name, content in stated.items()}


@cache
def list_vendorable() -> tuple[FrameworkManifest, ...]:
    """The frameworks and packages of which copies are found."""
    return (
        *(manifest for manifest in list_frameworks().values() if manifest.layout is not None),
        *list_called_packages().values(),
    )


@cache
def map_spellings() -> Mapping[str, str]:
    """Names by which people state a release -> the package."""
    return {spelling: package.name for package in list_packages().values() for spelling in package.spellings}


@cache
def find_frameworks_of_rule(code: str) -> frozenset[str]:
    """The frameworks that name a rule as one that applies to them."""
    return frozenset(manifest.name for manifest in list_frameworks().values() if code in manifest.rules)


def find_vocabulary(package: str) -> str | None:
    """The vocabulary that lists the releases of a package: its own framework's, or one that rests on it."""
    framework = list_frameworks().get(package)
    if framework is not None:
        return framework.vocabulary
    return next(
        (manifest.vocabulary for manifest in list_frameworks().values() if manifest.companion_package == package), None
    )


def find_dependent_frameworks(package: str) -> tuple[str, ...]:
    """The frameworks whose keys depend on the release of a package."""
    return tuple(
        manifest.name
        for manifest in list_frameworks().values()
        if manifest.vocabulary and package in (manifest.package, manifest.companion_package)
    )


def find_launcher_framework(program: str) -> str | None:
    """The framework whose file a launcher takes as an option."""
    return next((manifest.name for manifest in list_frameworks().values() if manifest.launcher == program), None)


@cache
def _list_clues(syntax: str) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    return tuple(
        (manifest.name, manifest.clues[syntax]) for manifest in list_frameworks().values() if syntax in manifest.clues
    )


@lru_cache(maxsize=4096)
def find_framework_of_program(program: str) -> FrameworkManifest | None:
    """The framework that a program (command, module or script) is an entry point of."""
    matches = (
        manifest
        for manifest in list_frameworks().values()
        for entry in manifest.program_patterns
        if re.fullmatch(entry, program)
    )
    return next(matches, None)


def find_candidates(source: bytes, syntax: str) -> list[str]:
    """The frameworks whose clues occur in a text."""
    return [name for name, clues in _list_clues(syntax) if any(clue in source for clue in clues)]


def can_start_framework(source: bytes) -> bool:
    """Whether a command or a module of a framework that takes a file may be named in a text."""
    return _compile_command_pattern().search(source) is not None


_PROGRAM: Final = rb"(?<![\w./-])[\w./-]+\.py\b|(?<=-m )[\w.]+|(?<=--module )[\w.]+"


def can_start_other_program(source: bytes) -> bool:
    """Whether a text may name a Python program that no framework has: any file may be the repository's own."""
    return any(
        program.endswith(b".py") or not _compile_program_pattern().fullmatch(program)
        for program in re.findall(_PROGRAM, source)
    )


PYTHON_STARTS: Final = (b"subprocess", b"os.system", b"os.popen", b"os.exec")
"""One of these is in every Python program that starts commands."""
_TRAINING_COMMAND: Final = re.compile(rb"\b(?:accelerate|deepspeed|executable|python3?|torchrun)\b|\.py\b")


def can_start_from_python(source: bytes) -> bool:
    """Whether a Python program may start a command that trains."""
    if not any(sign in source for sign in PYTHON_STARTS):
        return False
    return can_start_framework(source) or _TRAINING_COMMAND.search(source) is not None


_LAUNCH_OF_SCRIPT: Final = re.compile(rb"\b(?:accelerate launch|deepspeed|python3?|torchrun)\b[^\n\"]{0,300}\.py\b")


def can_launch(source: bytes) -> bool:
    """Whether a text that is no script may have a command that trains."""
    if find_candidates(source, "shell") or can_start_framework(source) or _LAUNCH_OF_SCRIPT.search(source) is not None:
        return True
    return can_start_from_python(source)


_JOB_KEY: Final = re.compile(rb"(?m)^[ \t-]*(?:run|commands?|args|entrypoint)[ \t]*:")


def is_job(source: bytes) -> bool:
    """Whether a text of YAML may describe a job by its commands."""
    return _JOB_KEY.search(source) is not None


@cache
def _compile_program_pattern() -> re.Pattern[bytes]:
    return re.compile(
        "|".join(entry for manifest in list_frameworks().values() for entry in manifest.program_patterns).encode()
    )


@cache
def _compile_command_pattern() -> re.Pattern[bytes]:
    """The words with which commands and modules begin; paths of scripts are no evidence."""
    entries = (
        entry
        for manifest in list_frameworks().values()
        for entry in manifest.program_patterns
        if not entry.startswith("(")
    )
    heads = {re.match(r"[\w-]*", entry)[0] for entry in entries}  # type: ignore[index]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(heads)))})\b".encode())


def is_probable_config(source: bytes, syntax: str) -> bool:
    """Whether a text that cannot be parsed was probably meant for a framework: one of its clues is a key, or in a shell
    script a word outside of comments.

    In JSON, keys may be behind a brace or a comma, too, as long as the first line is no record of its own.
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
    """Whether the first line is a whole JSON value and more lines follow: data, one record a line."""
    first, _, rest = source.partition(b"\n")
    if not rest.strip():
        return False
    try:
        loads(first)
    except (ValueError, RecursionError):
        return False
    return True
