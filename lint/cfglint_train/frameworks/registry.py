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
    versions: Mapping[str, str]
    """Files that hold the release of a copy -> a pattern whose groups are the parts of that release."""
    former: Mapping[str, str]
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
    tree: SourceLayout | None
    entry: str | None
    beside: str | None
    launches: str | None
    entries: tuple[str, ...]
    trains: str | None
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
    former: tuple[str, ...]
    """Those of them that it left before the oldest release that cfglint knows: what leads there is of that time."""
    images: Mapping[str, Mapping[str, str]]
    """Patterns of container images whose tags start with a release -> further packages, and where the tag has theirs
    (a pattern with one group)."""
    dates: Mapping[str, str]
    """The days of releases, in ascending order, where images are built of the development branch and say on which."""


@cache
def listed() -> Mapping[str, FrameworkManifest]:
    """Every framework by name, in alphabetical order."""
    return {name: _listed(name, folder, content) for name, folder, content in _files()}


@cache
def _files() -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Name, folder and content of every framework's file."""
    found = [
        (entry.name, entry.path)
        for place in frameworks.__path__
        for entry in os.scandir(place)
        if os.path.exists(os.path.join(entry.path, _FILE))
    ]
    files = tuple((name, folder, _read(os.path.join(folder, _FILE))) for name, folder in sorted(found))
    for _, folder, content in files:
        if os.path.exists(own := os.path.join(folder, "vocabulary.json")):
            if "vocabulary" not in content:
                raise ValueError(f"{os.path.join(folder, _FILE)}: `vocabulary` must name what is in {own}")
            cfglint_schemas.files[content["vocabulary"]] = own
    return files


def _read(path: str) -> Mapping[str, Any]:
    with open(path, encoding="utf-8") as file:
        content: Mapping[str, Any] = load(file)
    return content


def _listed(name: str, folder: str, content: Mapping[str, Any]) -> FrameworkManifest:
    package = content.get("package")
    return FrameworkManifest(
        name,
        content["title"],
        package if isinstance(package, str) else name,
        {syntax: tuple(clue.encode() for clue in clues) for syntax, clues in content["clues"].items()},
        content.get("vocabulary"),
        _tree(content["tree"]) if "tree" in content else None,
        content.get("entry"),
        content.get("beside"),
        content.get("launches"),
        tuple(content.get("entries", ())),
        content.get("trains"),
        tuple(content.get("replaced_by", ())),
        frozenset(content.get("rules", ())),
        folder,
    )


def _tree(content: Mapping[str, Any]) -> SourceLayout:
    versions, former = content.get("versions", {}), content.get("former", {})
    return SourceLayout(tuple(content["marks"]), tuple(content["parts"]), versions, former)


@cache
def packages() -> Mapping[str, Package]:
    """Every package by its name inside cfglint, those of frameworks first."""
    of_frameworks = {name: content.get("package") for name, _, content in _files()}
    others = _read(_PACKAGES)
    return {name: _package(name, of) for name, of in {**of_frameworks, **others}.items() if isinstance(of, dict)}


def _package(name: str, content: Mapping[str, Any]) -> Package:
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
def handed_to() -> Mapping[str, FrameworkManifest]:
    """The packages to which scripts hand settings, as their copies are found and read."""
    trees = {name: content["tree"] for name, content in _read(_PACKAGES).items() if "tree" in content}
    stated = {name: {"title": name, "clues": {}, "vocabulary": name, "tree": tree} for name, tree in trees.items()}
    return {name: _listed(name, "", content) for name, content in stated.items()}


@cache
def copied() -> tuple[FrameworkManifest, ...]:
    """The frameworks and packages of which copies are found."""
    return (*(one for one in listed().values() if one.tree is not None), *handed_to().values())


@cache
def spellings() -> Mapping[str, str]:
    """Names by which people state a release -> the package."""
    return {spelling: one.name for one in packages().values() for spelling in one.spellings}


@cache
def naming(code: str) -> frozenset[str]:
    """The frameworks that name a rule as one that applies to them."""
    return frozenset(one.name for one in listed().values() if code in one.rules)


def vocabulary_of(package: str) -> str | None:
    """The vocabulary that lists the releases of a package: its own framework's, or one that rests on it."""
    own = listed().get(package)
    if own is not None:
        return own.vocabulary
    return next((one.vocabulary for one in listed().values() if one.beside == package), None)


def keyed_by(package: str) -> tuple[str, ...]:
    """The frameworks whose keys depend on the release of a package."""
    return tuple(one.name for one in listed().values() if one.vocabulary and package in (one.package, one.beside))


def launched_by(program: str) -> str | None:
    """The framework whose file a launcher takes as an option."""
    return next((one.name for one in listed().values() if one.launches == program), None)


@cache
def _clues(syntax: str) -> tuple[tuple[str, tuple[bytes, ...]], ...]:
    return tuple((one.name, one.clues[syntax]) for one in listed().values() if syntax in one.clues)


@lru_cache(maxsize=4096)
def of_program(program: str) -> FrameworkManifest | None:
    """The framework that a program (command, module or script) is an entry point of."""
    of_entry = (one for one in listed().values() for entry in one.entries if re.fullmatch(entry, program))
    return next(of_entry, None)


def candidates(source: bytes, syntax: str) -> list[str]:
    """The frameworks whose clues occur in a text."""
    return [name for name, clues in _clues(syntax) if any(clue in source for clue in clues)]


def may_start(source: bytes) -> bool:
    """Whether a command or a module of a framework that takes a file may be named in a text."""
    return _commands().search(source) is not None


_PROGRAM: Final = rb"(?<![\w./-])[\w./-]+\.py\b|(?<=-m )[\w.]+|(?<=--module )[\w.]+"


def may_start_others(source: bytes) -> bool:
    """Whether a text may name a Python program that no framework has: any file may be the repository's own."""
    return any(one.endswith(b".py") or not _entries().fullmatch(one) for one in re.findall(_PROGRAM, source))


PYTHON_STARTS: Final = (b"subprocess", b"os.system", b"os.popen", b"os.exec")
"""One of these is in every Python program that starts commands."""
_STARTED: Final = re.compile(rb"\b(?:accelerate|deepspeed|executable|python3?|torchrun)\b|\.py\b")


def python_may_start(source: bytes) -> bool:
    """Whether a Python program may start a command that trains."""
    if not any(sign in source for sign in PYTHON_STARTS):
        return False
    return may_start(source) or _STARTED.search(source) is not None


_LAUNCHED: Final = re.compile(rb"\b(?:accelerate launch|deepspeed|python3?|torchrun)\b[^\n\"]{0,300}\.py\b")


def may_launch(source: bytes) -> bool:
    """Whether a text that is no script may have a command that trains."""
    if candidates(source, "shell") or may_start(source) or _LAUNCHED.search(source) is not None:
        return True
    return python_may_start(source)


_JOB: Final = re.compile(rb"(?m)^[ \t-]*(?:run|commands?|args|entrypoint)[ \t]*:")


def is_job(source: bytes) -> bool:
    """Whether a text of YAML may describe a job by its commands."""
    return _JOB.search(source) is not None


@cache
def _entries() -> re.Pattern[bytes]:
    return re.compile("|".join(entry for one in listed().values() for entry in one.entries).encode())


@cache
def _commands() -> re.Pattern[bytes]:
    """The words with which commands and modules begin; paths of scripts are no evidence."""
    entries = (entry for one in listed().values() for entry in one.entries if not entry.startswith("("))
    heads = {re.match(r"[\w-]*", entry)[0] for entry in entries}  # type: ignore[index]
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(heads)))})\b".encode())


def looks_like_configuration(source: bytes, syntax: str) -> bool:
    """Whether a text that cannot be parsed was probably meant for a framework: one of its clues is a key, or in a shell
    script a word outside of comments.

    In JSON, keys may be behind a brace or a comma, too, as long as the first line is no record of its own.
    """
    found = [clue for _, clues in _clues(syntax) for clue in clues if clue in source]
    if not found:
        return False
    clues = b"|".join(map(re.escape, found))
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
