"""Releases on PyPI: download them with pip and open them as source trees, without installing or importing them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from cfglint_schemas.readers.tree import SourceTree

_WHEELS: Final = tuple(
    ("--only-binary=:all:", f"--python-version={python}", *platforms)
    for python in ("3.13", "3.12", "3.11", "3.10")
    for platforms in ((), ("--platform=any", "--platform=manylinux1_x86_64", "--platform=manylinux2014_x86_64"))
)
_SUFFIXES: Final = (".py", ".yaml")
_SDIST: Final = (("--no-binary=:all:",),)


class FetchError(Exception):
    """Error for a release that cannot be fetched, or an archive without the expected package."""


def list_releases(package: str) -> list[str]:
    """Return every release of a package that pip lists, oldest first; raise FetchError if pip lists none."""
    answer = _run_pip("index", "versions", package, "--python-version=3.13")
    if answer.returncode:
        answer = _run_pip("index", "versions", package)
    lines = answer.stdout.splitlines()
    releases = next((line.partition(":")[2] for line in lines if line.startswith("Available versions:")), "")
    if not releases:
        raise FetchError(f"pip has no release of {package}: {answer.stderr.strip()}")
    return [release.strip() for release in reversed(releases.split(","))]


def fetch_tree(package: str, release: str, cache: Path, module: str, wheels: bool = True) -> SourceTree:
    """Return a release's source from `cache` or from PyPI; `module` is its import name.

    With `wheels`, try wheels before the source archive. For a source archive, pip runs the archive's `setup.py` to read
    its metadata. Raises FetchError if no archive of the release is available.
    """
    folder = cache / f"{package}-{release}"
    if not (folder.is_dir() and any(folder.iterdir())):
        folder.mkdir(parents=True, exist_ok=True)
        _download_release(package, release, folder, wheels)
    return open_tree(next(iter(sorted(folder.iterdir()))), package, release, module)


def _download_release(package: str, release: str, folder: Path, wheels: bool) -> None:
    complaint = ""
    for options in (*_WHEELS, *_SDIST) if wheels else _SDIST:
        with tempfile.TemporaryDirectory(dir=folder.parent) as destination:
            answer = _run_pip("download", "--no-deps", f"--dest={destination}", *options, f"{package}=={release}")
            complaint = answer.stderr.strip()
            for archive in sorted(Path(destination).iterdir()):
                archive.rename(folder / archive.name)
                return
    folder.rmdir()
    raise FetchError(f"pip cannot download {package}=={release}: {complaint}")


def _run_pip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)


def open_tree(path: Path, package: str, release: str, module: str) -> SourceTree:
    """Return the Python and YAML files of `module` in a folder or an archive, with paths from the import root.

    Raises FetchError if `module` is missing.
    """
    if path.is_dir():
        texts = {
            file.relative_to(path).as_posix(): file.read_bytes()
            for file in path.rglob("*.*")
            if file.suffix in _SUFFIXES and not {"tests", ".git"} & set(file.relative_to(path).parts)
        }
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            texts = {name: archive.read(name) for name in archive.namelist() if _is_module_file(name, module)}
    else:
        with tarfile.open(path) as sources:
            members = [member for member in sources if member.isfile() and _is_module_file(member.name, module)]
            texts = {member.name: _read_member(sources, member) for member in members}
    marker = f"{module}/__init__.py"
    roots = [name[: -len(marker)] for name in texts if name == marker or name.endswith("/" + marker)]
    if not roots:
        raise FetchError(f"{path} does not hold the package {module}")
    root = min(roots, key=len)
    files = {
        name[len(root) :]: data.decode("utf-8", "replace")
        for name, data in sorted(texts.items())
        if name.startswith(f"{root}{module}/")
    }
    return SourceTree(package, release, files)


def _is_module_file(name: str, module: str) -> bool:
    return name.endswith(_SUFFIXES) and f"/{module}/" in f"/{name}"


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return b"" if stream is None else stream.read()
