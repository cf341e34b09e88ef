"""`python -m tools.schemas FRAMEWORK`: read releases and update the framework's schema file."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from cfglint_schemas.readers.source import Source, UndecidedError
from cfglint_schemas.readers.tree import SourceTree
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.versions import parse_release
from tools.schemas import form, patch
from tools.schemas.fetch import FetchError, fetch_tree, list_releases, open_tree
from tools.schemas.fold import Tables, fold, unfold

SCHEMAS: Final = Path(__file__).resolve().parents[2] / "schemas" / "cfglint_schemas"


class Package(Frozen):
    """A package whose releases define a vocabulary."""

    name: str
    module: str
    oldest: str
    """Oldest release to read."""
    wheels: bool = True
    """True if the project publishes wheels; for a source archive, pip runs the archive's `setup.py`."""
    minors: bool = False
    """True to only read the first release of each minor version, and the newest release."""


# The first package is the framework itself.
FRAMEWORKS: Final[dict[str, tuple[Package, ...]]] = {
    "axolotl": (Package("axolotl", "axolotl", "0.5.2"),),
    "llamafactory": (
        Package("llamafactory", "llamafactory", "0.7.1"),
        Package("transformers", "transformers", "4.41.0", minors=True),
    ),
    "openrlhf": (Package("openrlhf", "openrlhf", "0.3.6.post1"),),
    "olmo": (Package("ai2-olmo", "olmo", "0.1.0"),),
    "olmo_core": (Package("ai2-olmo-core", "olmo_core", "1.0.0"),),
    "deepspeed": (Package("deepspeed", "deepspeed", "0.10.0", wheels=False),),
    "accelerate": (Package("accelerate", "accelerate", "0.26.0"),),
    "trl": (
        Package("trl", "trl", "0.9.2"),
        Package("transformers", "transformers", "4.41.0", minors=True),
    ),
    "verl": (Package("verl", "verl", "0.3.0.post1"),),
    "easyr1": (Package("easyr1", "verl", "0.3.0"),),
    "transformers": (Package("transformers", "transformers", "4.26.0", minors=True),),
    "peft": (Package("peft", "peft", "0.4.0", minors=True),),
    "trl_api": (Package("trl", "trl", "0.9.2"),),
    "transformers_api": (Package("transformers", "transformers", "4.26.0", minors=True),),
}


NOT_COPIED: Final = ("accelerate", "deepspeed", "transformers", "transformers_api", "trl_api")
"""Frameworks whose vendored copies cfglint does not read, so their readers are not shipped with it."""


def main(words: list[str] | None = None) -> int:
    """Update a schema file; return 0 if it is now up to date, or 1 if a release or a patch cannot be read."""
    options = _build_parser().parse_args(words)
    packages = {package.name: package for package in FRAMEWORKS[options.framework]}
    package = packages[options.package] if options.package else next(iter(packages.values()))
    path = options.schemas / f"{options.framework}.json"
    tables: Tables = unfold(form.load_schema(path)) if path.exists() else {}
    for name in packages:
        tables.setdefault(name, {})
    patches = patch.load_patches(options.framework)
    try:
        with _open_cache(options.cache) as cache:
            for tree in _fetch_trees(options, package, tables[package.name], patches.get("broken", {}), cache):
                folder = "tools.schemas.readers" if options.framework in NOT_COPIED else "cfglint_schemas.readers"
                reader = import_module(f"{folder}.{options.framework}")
                tables[package.name][tree.release] = reader.read(package.name, Source(tree))
                print(f"read {package.name} {tree.release}")
        changed = form.save_schema(path, patch.apply_patches(fold(tables, options.framework), patches))
    except (FetchError, UndecidedError, patch.PatchError) as problem:
        print(f"{options.framework}: {problem}", file=sys.stderr)
        return 1
    print(f"{path.name}: {'updated' if changed else 'unchanged'}")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.schemas", description=__doc__)
    parser.add_argument("framework", choices=sorted(FRAMEWORKS))
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        "--releases", help="releases to read, separated by commas; without any, patches are applied anew"
    )
    selection.add_argument("--new", action="store_true", help="read every release that is newer than the newest known")
    selection.add_argument(
        "--all", action="store_true", help="read every release on PyPI that the framework's table covers"
    )
    parser.add_argument("--package", help="the package that the releases are of, where a vocabulary rests on several")
    parser.add_argument("--from", dest="folder", type=Path, help="read the one release from this folder or archive")
    parser.add_argument("--cache", type=Path, help="keep what is downloaded here")
    parser.add_argument("--schemas", type=Path, default=SCHEMAS, help="where the schema files are")
    return parser


@contextmanager
def _open_cache(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def _fetch_trees(
    options: Any, package: Package, tables: dict[str, Any], broken: Any, cache: Path
) -> Iterator[SourceTree]:
    skipped = broken.get(package.name, {})
    if options.releases:
        releases = options.releases.split(",")
        if options.folder and len(releases) != 1:
            raise FetchError("--from takes exactly one release")
    elif options.new or options.all:
        releases = [
            release for release in choose_releases(package, list_releases(package.name)) if release not in skipped
        ]
        if options.new and tables:
            newest = max(map(parse_release, tables))
            releases = [release for release in releases if parse_release(release) > newest]
    else:
        releases = []
    for release in releases:
        if options.folder:
            yield open_tree(options.folder, package.name, release, package.module)
        else:
            yield fetch_tree(package.name, release, cache, package.module, package.wheels)


def choose_releases(package: Package, available_releases: list[str]) -> list[str]:
    """Return the releases that a package's vocabulary covers, oldest first; with `minors`, a selection."""
    supported = [release for release in available_releases if parse_release(release) >= parse_release(package.oldest)]
    if not package.minors:
        return supported
    first_of_minor: dict[tuple[int, ...], str] = {}
    for release in supported:
        first_of_minor.setdefault((*parse_release(release)[0], 0, 0)[:2], release)
    return list(dict.fromkeys([*first_of_minor.values(), *supported[-1:]]))


if __name__ == "__main__":
    raise SystemExit(main())
