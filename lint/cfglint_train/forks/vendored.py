"""Copies of a framework's source in a repository, read as its vocabulary. Nothing of them is imported or run."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from hashlib import sha256
from importlib import import_module
from json import loads

import cfglint_schemas
from cfglint_schemas.form import END
from cfglint_schemas.readers.source import Source, TooManyStepsError, UndecidedError
from cfglint_schemas.readers.tree import Tree
from cfglint_schemas.vendored import VendoredVocabulary, overlaid
from cfglint_schemas.vocabulary import load, path_of
from cfglint_train import foundation
from cfglint_train.documents.python.copied_code import CopiedCode
from cfglint_train.documents.python.syntax import declared, tree_of
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.cache import Cache
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, is_final, release_key
from cfglint_train.frameworks.registry import FrameworkManifest
from cfglint_train.releases.pins.readers import COPIED, Pin
from cfglint_train.releases.pins.search import ResolvedPin
from cfglint_train.version import VERSION

MAX_FILES: Final = 500
MAX_BYTES: Final = 8 * 2**20
"""Of all the files that a copy's settings are read from."""
_PROJECT: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_HEAD: Final = 4096
"""Bytes of a file in which a copy's release is looked for."""


class UnreadTreeError(Exception):
    """A copy whose settings cannot be determined, with the reason."""

    def __init__(self, reason: str, declared: frozenset[str] = frozenset()) -> None:
        super().__init__(reason)
        self.declared = declared
        """The names of settings that it declares anyway."""


class Copy(Frozen):
    """A copy of a framework."""

    folder: str
    """The folder of the package."""
    files: dict[str, str]
    """The text of what its settings are read from, by path from the folder above."""

    @property
    def digest(self) -> str:
        """The same for copies that read alike."""
        found = sha256()
        for path, text in sorted(self.files.items()):
            found.update(f"{path}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
        return found.hexdigest()


def is_copy(root: str, listed: FrameworkManifest) -> bool:
    """Whether a folder holds source of a framework, and no mere namesake of its package."""
    return listed.tree is not None and next(_inside(root, listed.tree.marks), None) is not None


def renamed_copy(root: str, name: str, listed: FrameworkManifest) -> Copy:
    """The copy of a framework whose package has another name, read as if it had the framework's. Raises
    UnreadTreeError.
    """
    assert listed.tree is not None
    package, own = listed.tree.packages[0], re.compile(rf"\b{re.escape(name)}\b")
    parts = [f"{name}/{part.partition('/')[2]}" for part in listed.tree.parts if part.startswith(f"{package}/")]
    files = _texts(root, parts)
    return Copy(
        f"{root.rstrip('/')}/{name}",
        {f"{package}{path.removeprefix(name)}": own.sub(package, text) for path, text in files.items()},
    )


def copy_at(root: str, listed: FrameworkManifest) -> Copy:
    """The copy of a framework whose package is in a folder. Raises UnreadTreeError."""
    assert listed.tree is not None
    return Copy(folder_at(root, listed), _texts(root, listed.tree.parts))


def _texts(root: str, parts: Collection[str]) -> dict[str, str]:
    """The texts of some parts of a copy, by path from its folder. Raises UnreadTreeError."""
    if not parts:
        raise UnreadTreeError("is not read")
    files: dict[str, str] = {}
    size = 0
    for path in _modules(root, parts):
        try:
            text = regular_files.read(f"{root}/{path}")
        except OSError:
            continue
        size += len(text)
        if len(files) == MAX_FILES or size > MAX_BYTES:
            raise UnreadTreeError("is too large to be read")
        files[path] = text.decode("utf-8-sig", "replace")
    return files


def folder_at(root: str, listed: FrameworkManifest) -> str:
    """The folder of a framework's package below the folder that Python finds it in."""
    assert listed.tree is not None
    found = [f"{root.rstrip('/')}/{package}" for package in listed.tree.packages]
    return next((folder for folder in found if os.path.isdir(folder)), found[0])


def base_of(root: str) -> str:
    """Return the folder of the project whose packages are in a folder, which may be its `src`."""
    return os.path.dirname(root) if os.path.basename(root) == "src" else root


def is_project(folder: str) -> bool:
    """Return whether a folder is that of a Python project."""
    return any(os.path.exists(f"{folder}/{name}") for name in _PROJECT)


def whole(root: str, listed: FrameworkManifest, repository: str) -> str:
    """The folder of a copy: of the project that its package is in, where the repository holds that in a folder of its
    own, else of the package.
    """
    project = base_of(root)
    return project if project.startswith(f"{repository}/") and is_project(project) else folder_at(root, listed)


def release_of(root: str, listed: FrameworkManifest) -> ResolvedPin | None:
    """The release that a file of a copy says it is; None where none does.

    A development version is between two releases, and may be any state of the source between them.
    """
    assert listed.tree is not None
    for name, pattern in listed.tree.versions.items():
        path = os.path.normpath(f"{root}/{name}")
        try:
            text = regular_files.read(path)[:_HEAD].decode("utf-8", "replace")
        except OSError:
            continue
        found = re.search(pattern, text, re.MULTILINE)
        if found is not None:
            constraint = _between(listed, ".".join(found.groups()))
            pin = Pin(listed.package, constraint, path, text.count("\n", 0, found.start()) + 1, COPIED)
            return ResolvedPin(constraint, (pin,), optional=False, agreed=True)
    return None


def likely_releases(copy: VendoredVocabulary | None, root: str, listed: FrameworkManifest) -> ResolvedPin | None:
    """The releases that a copy without one may be, by the name of its folder and by its settings; None for any.

    A copy may be any state of the source next to the releases that it is most like.
    """
    assert listed.tree is not None
    assert listed.vocabulary is not None
    folder, upstream = folder_at(root, listed), load(listed.vocabulary)
    former = listed.tree.former.get(os.path.basename(folder))
    named = Constraint() if former is None else Constraint.of(former)
    known = [one for one in upstream.releases if is_final(one) and named.allows(one)]
    alike = () if copy is None else tuple(filter(named.allows, copy.like(upstream)))
    before = known[: known.index(alike[0])] if alike else []
    after = known[known.index(alike[-1]) + 1 :] if alike else []
    bounds = (*((">=", one) for one in before[-1:]), *(("<=", one) for one in after[:1]))
    constraint = Constraint((*named.comparisons, *bounds))
    if not constraint.comparisons:
        return None
    return ResolvedPin(constraint, (Pin(listed.package, constraint, folder, 0, COPIED),), optional=False, agreed=True)


def _between(listed: FrameworkManifest, version: str) -> Constraint:
    """A release, or the releases next to one that is not finished; itself where it is older than all that are known."""
    assert listed.vocabulary is not None
    known = [one for one in load(listed.vocabulary).releases if is_final(one)]
    older = [(">=", one) for one in known if release_key(one) < release_key(version)][-1:]
    if is_final(version) or not older:
        return Constraint((("==", version),))
    newer = [("<=", one) for one in known if release_key(one) > release_key(version)][:1]
    return Constraint((*older, *newer))


def _modules(root: str, parts: Iterable[str]) -> Iterator[str]:
    """The Python files among some files and folders below a root, and the packages that these are in."""
    above = {part.rpartition("/")[0] for part in parts}
    yield from sorted(path for folder in above if os.path.isfile(f"{root}/{(path := f'{folder}/__init__.py')}"))
    yield from _inside(root, parts)


def _inside(root: str, parts: Iterable[str]) -> Iterator[str]:
    """The Python files among some files and folders below a root, without those that no import reaches (an editor's
    copies in `.ipynb_checkpoints`).
    """
    for part in parts:
        if os.path.isfile(f"{root}/{part}"):
            yield part
        for folder, folders, names in os.walk(f"{root}/{part}"):
            folders[:] = sorted(name for name in folders if "." not in name)
            inside = regular_files.tidy(os.path.relpath(folder, root))
            modules = (name for name in sorted(names) if name.endswith(".py") and name.count(".") == 1)
            yield from (f"{inside}/{name}" for name in modules)


def vocabulary(copy: Copy, listed: FrameworkManifest, shown: str, cache_folder: str | None) -> VendoredVocabulary:
    """What a copy takes. Raises UnreadTreeError."""
    assert listed.vocabulary is not None
    kept = Cache("vocabulary", cache_folder)
    digest = f"{VERSION}-{listed.vocabulary}-{sha256(f'{_build()}{copy.digest}'.encode()).hexdigest()}"
    text = kept.get(digest)
    if text is None or not text.endswith(END):  # it was cut off
        text = _read(copy, listed)
        kept.put(digest, text)
    return VendoredVocabulary(listed.vocabulary, text, shown, CopiedCode(copy.folder))


@cache
def _build() -> str:
    """The digest of what makes the text of a vocabulary: cfglint's readers, what they use, and upstream's tables.

    Builds of one release may differ. 2 ms, which only a copy of a framework costs.
    """
    folders = (*cfglint_schemas.__path__, *foundation.__path__)
    walked = (os.path.join(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names)
    found = sha256()
    for path in (__file__, *sorted(path for path in walked if path.endswith((".py", ".json")))):
        with open(path, "rb") as file:
            found.update(file.read())
    return found.hexdigest()


def _declared(copy: Copy) -> Iterator[str]:
    """The flags in a copy of which not all is there, and the fields of its classes."""
    for text in copy.files.values():
        yield from (name for name, _ in declared(tree_of(text)))


def _read(copy: Copy, listed: FrameworkManifest) -> str:
    assert listed.vocabulary is not None
    with open(path_of(listed.vocabulary), encoding="utf-8") as file:
        upstream = loads(file.read())
    reader = import_module(f"cfglint_schemas.readers.{listed.vocabulary}")
    collected = gc.isenabled()
    gc.disable()  # syntax trees are many small objects without circles: collecting more than doubles the time
    try:
        table = reader.read(listed.package, Source(Tree(listed.package, "0", copy.files)))
    except (UndecidedError, TooManyStepsError, SyntaxError, ValueError, RecursionError):
        raise UnreadTreeError("cannot be read", frozenset(_declared(copy))) from None
    finally:
        if collected:
            gc.enable()
    return overlaid(upstream, table)
