"""Vendored copies: vocabularies read from a copy of a framework's source, without importing or running it."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from hashlib import sha256
from json import loads

import cfglint_schemas
from cfglint_schemas.form import END
from cfglint_schemas.readers.source import Source, TooManyStepsError, UndecidedError
from cfglint_schemas.readers.tree import SourceTree
from cfglint_schemas.vendored import VendoredVocabulary, build_overlay
from cfglint_schemas.vocabulary import find_schema_file, load
from cfglint_train import foundation
from cfglint_train.documents.python.copied_code import CopiedCode
from cfglint_train.documents.python.syntax import find_declared_settings, parse_tree
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.cache import Cache
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, is_final, parse_release
from cfglint_train.frameworks.registry import FrameworkManifest
from cfglint_train.releases.pins.readers import COPIED, Pin
from cfglint_train.releases.pins.search import ResolvedPin
from cfglint_train.version import VERSION

MAX_FILES: Final = 500
MAX_BYTES: Final = 8 * 2**20
"""Maximum total size in bytes of the files from which a copy's settings are read."""
_PROJECT_FILES: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_HEAD: Final = 4096
"""Number of bytes at the start of a file in which to search for a copy's release."""


class UnreadableCopyError(Exception):
    """Error that gives the reason why the settings of a copy cannot be determined."""

    def __init__(self, reason: str, declared: frozenset[str] = frozenset()) -> None:
        """Create an error with the names of settings that could be read."""
        super().__init__(reason)
        self.declared = declared
        """Names of settings that the copy declares, as far as they could be read."""


class Copy(Frozen):
    """A copy of a framework in a repository."""

    folder: str
    """Folder of the package."""
    files: dict[str, str]
    """Texts of the files that define its settings, by path relative to the package's parent folder."""

    @property
    def digest(self) -> str:
        """SHA-256 of the files; copies with equal digests have the same vocabulary."""
        sha = sha256()
        for path, text in sorted(self.files.items()):
            sha.update(f"{path}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
        return sha.hexdigest()


def is_copy(root: str, manifest: FrameworkManifest) -> bool:
    """Return whether a folder contains the framework's source and not just a package of the same name."""
    return manifest.layout is not None and next(_list_files(root, manifest.layout.marks), None) is not None


def load_renamed_copy(root: str, name: str, manifest: FrameworkManifest) -> Copy:
    """Return a copy that has another package name, with that name replaced by the framework's.

    Raise `UnreadableCopyError` if it cannot be read.
    """
    assert manifest.layout is not None
    package, pattern = manifest.layout.packages[0], re.compile(rf"\b{re.escape(name)}\b")
    parts = [f"{name}/{part.partition('/')[2]}" for part in manifest.layout.parts if part.startswith(f"{package}/")]
    files = _read_texts(root, parts, manifest.layout.suffixes)
    return Copy(
        f"{root.rstrip('/')}/{name}",
        {f"{package}{path.removeprefix(name)}": pattern.sub(package, text) for path, text in files.items()},
    )


def load_copy(root: str, manifest: FrameworkManifest) -> Copy:
    """Return the copy whose package is in the folder `root`, or raise `UnreadableCopyError`."""
    assert manifest.layout is not None
    files = _read_texts(root, manifest.layout.parts, manifest.layout.suffixes)
    programs = [path for folder in manifest.layout.program_folders for path in _list_programs(root, folder)]
    if programs:
        with contextlib.suppress(UnreadableCopyError):
            files.update(_read_texts(root, dict.fromkeys(programs), manifest.layout.suffixes))
    return Copy(get_package_folder(root, manifest), files)


def _read_texts(root: str, parts: Collection[str], suffixes: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of the files in `parts` by path below `root`, or raise `UnreadableCopyError`."""
    if not parts:
        raise UnreadableCopyError("is not read")
    files: dict[str, str] = {}
    size = 0
    for path in _list_modules(root, parts, suffixes):
        try:
            text = regular_files.read(f"{root}/{path}")
        except OSError:
            continue
        size += len(text)
        if len(files) == MAX_FILES or size > MAX_BYTES:
            raise UnreadableCopyError("is too large to be read")
        files[path] = text.decode("utf-8-sig", "replace")
    return files


def get_package_folder(root: str, manifest: FrameworkManifest) -> str:
    """Return the folder of a framework's package in `root`, under the first of its names that exists there."""
    assert manifest.layout is not None
    candidates = [f"{root.rstrip('/')}/{package}" for package in manifest.layout.packages]
    return next((folder for folder in candidates if filesystem.is_folder(folder)), candidates[0])


def get_project_folder(root: str) -> str:
    """Return the project folder of the packages in `root`: its parent if `root` is named `src`, otherwise `root`."""
    return os.path.dirname(root) if os.path.basename(root) == "src" else root


def is_project(folder: str) -> bool:
    """Return whether a folder is a Python project: has a `pyproject.toml`, `setup.py` or `setup.cfg`."""
    return any(filesystem.exists(f"{folder}/{name}") for name in _PROJECT_FILES)


def get_copy_folder(root: str, manifest: FrameworkManifest, repository: str) -> str:
    """Return the project folder of a copy if it lies inside the repository, otherwise the package folder."""
    project = get_project_folder(root)
    return (
        project if project.startswith(f"{repository}/") and is_project(project) else get_package_folder(root, manifest)
    )


def read_release(root: str, manifest: FrameworkManifest) -> ResolvedPin | None:
    """Return the release that a file of a copy states, or None.

    For a development version, the result allows every release between the neighboring final releases.
    """
    assert manifest.layout is not None
    for name, pattern in manifest.layout.release_files.items():
        path = os.path.normpath(f"{root}/{name}")
        try:
            text = regular_files.read(path)[:_HEAD].decode("utf-8", "replace")
        except OSError:
            continue
        match = re.search(pattern, text, re.MULTILINE)
        if match is not None:
            constraint = _build_constraint(manifest, ".".join(match.groups()))
            pin = Pin(manifest.package, constraint, path, text.count("\n", 0, match.start()) + 1, COPIED)
            return ResolvedPin(constraint, (pin,), is_optional=False, is_consistent=True)
    return None


def estimate_releases(copy: VendoredVocabulary | None, root: str, manifest: FrameworkManifest) -> ResolvedPin | None:
    """Return the range of releases that a copy without a version may be based on, or None if any is possible.

    The range follows from the package's name and from the releases with the most similar settings. It extends to the
    final releases before and after these, because the copy may be any commit in between.
    """
    assert manifest.layout is not None
    assert manifest.vocabulary is not None
    folder, upstream = get_package_folder(root, manifest), load(manifest.vocabulary)
    former_range = manifest.layout.former_names.get(os.path.basename(folder))
    name_constraint = Constraint() if former_range is None else Constraint.parse(former_range)
    allowed_releases = [
        release for release in upstream.releases if is_final(release) and name_constraint.is_satisfied_by(release)
    ]
    similar = (
        () if copy is None else tuple(filter(name_constraint.is_satisfied_by, copy.find_similar_releases(upstream)))
    )
    before = allowed_releases[: allowed_releases.index(similar[0])] if similar else []
    after = allowed_releases[allowed_releases.index(similar[-1]) + 1 :] if similar else []
    bounds = (*((">=", release) for release in before[-1:]), *(("<=", release) for release in after[:1]))
    constraint = Constraint((*name_constraint.comparisons, *bounds))
    if not constraint.comparisons:
        return None
    return ResolvedPin(
        constraint, (Pin(manifest.package, constraint, folder, 0, COPIED),), is_optional=False, is_consistent=True
    )


def _build_constraint(manifest: FrameworkManifest, version: str) -> Constraint:
    """Return a constraint that allows exactly a final version, or the range of releases around a pre-release.

    A pre-release that is older than all known releases allows only itself.
    """
    assert manifest.vocabulary is not None
    releases = [release for release in load(manifest.vocabulary).releases if is_final(release)]
    older = [(">=", release) for release in releases if parse_release(release) < parse_release(version)][-1:]
    if is_final(version) or not older:
        return Constraint((("==", version),))
    newer = [("<=", release) for release in releases if parse_release(release) > parse_release(version)][:1]
    return Constraint((*older, *newer))


def _list_modules(root: str, parts: Iterable[str], suffixes: tuple[str, ...]) -> Iterator[str]:
    """Yield the files in `parts` below `root`, after the `__init__.py` of the folders that contain the parts."""
    parents = {part.rpartition("/")[0] for part in parts}
    yield from sorted(path for folder in parents if filesystem.is_file(f"{root}/{(path := f'{folder}/__init__.py')}"))
    yield from _list_files(root, parts, suffixes)


def _list_files(root: str, parts: Iterable[str], suffixes: tuple[str, ...] = (".py",)) -> Iterator[str]:
    """Yield the files with any of the suffixes in `parts`, which are files or folders, as paths below `root`.

    Files in folders that cannot be imported, such as `.ipynb_checkpoints`, are left out.
    """
    for part in parts:
        if filesystem.is_file(f"{root}/{part}"):
            yield part
        for folder, folders, names in filesystem.walk(f"{root}/{part}"):
            folders[:] = sorted(name for name in folders if "." not in name)
            relative = regular_files.normalize_path(os.path.relpath(folder, root))
            modules = (name for name in sorted(names) if name.endswith(suffixes) and name.count(".") == 1)
            yield from (f"{relative}/{name}" for name in modules)


def _list_programs(root: str, folder: str) -> Iterator[str]:
    """Yield the programs below a folder (`main_x.py`, `x_main.py`) and the folders with YAML beside them."""
    for path in _list_files(root, (folder,)):
        place, _, name = path.rpartition("/")
        if name.startswith("main") or name.endswith("_main.py"):
            yield path
            yield f"{place}/config"


def build_vocabulary(
    copy: Copy, manifest: FrameworkManifest, shown_folder: str, cache_folder: str | None
) -> VendoredVocabulary:
    """Return the vocabulary of a copy, from the cache if possible, or raise `UnreadableCopyError`."""
    assert manifest.vocabulary is not None
    stored = Cache("vocabulary", cache_folder)
    digest = f"{VERSION}-{manifest.vocabulary}-{sha256(f'{_compute_build_digest()}{copy.digest}'.encode()).hexdigest()}"
    text = stored.get(digest)
    if text is None or not text.endswith(END):  # truncated cache entry
        text = _read_table(copy, manifest)
        stored.put(digest, text)
    return VendoredVocabulary(manifest.vocabulary, text, shown_folder, CopiedCode(copy.folder))


@cache
def _compute_build_digest() -> str:
    """Return a digest of the code that builds vocabularies: cfglint's readers, their imports and the upstream tables.

    The version is not enough, because builds of a version may differ. Takes 2 ms; called only if there is a copy.
    """
    folders = (*cfglint_schemas.__path__, *foundation.__path__)
    paths = (os.path.join(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names)
    sha = sha256()
    for path in (__file__, *sorted(path for path in paths if path.endswith((".py", ".json")))):
        with open(path, "rb") as file:
            sha.update(file.read())
    return sha.hexdigest()


def _list_declared(copy: Copy) -> Iterator[str]:
    """Yield the names of the flags and class fields in a copy that cannot be read as a whole."""
    for text in copy.files.values():
        yield from (name for name, _ in find_declared_settings(parse_tree(text)))


def _read_table(copy: Copy, manifest: FrameworkManifest) -> str:
    assert manifest.vocabulary is not None
    with open(find_schema_file(manifest.vocabulary), encoding="utf-8") as file:
        upstream = loads(file.read())
    reader = import_module(f"cfglint_schemas.readers.{manifest.vocabulary}")
    was_enabled = gc.isenabled()
    gc.disable()  # reading makes many small objects without cycles, and collecting them more than doubles the time
    try:
        table = reader.read(manifest.package, Source(SourceTree(manifest.package, "0", copy.files)))
    except (UndecidedError, TooManyStepsError, SyntaxError, ValueError, RecursionError):
        raise UnreadableCopyError("cannot be read", frozenset(_list_declared(copy))) from None
    finally:
        if was_enabled:
            gc.enable()
    return build_overlay(upstream, table)
