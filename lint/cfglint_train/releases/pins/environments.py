"""Environments of pixi, conda-lock, pipenv and setuptools' `setup.cfg`: what they lock and what they ask for.

Sources: pixi's docs (lock file versions 4 to 6, manifest); conda-lock's `conda-lock.yml`, version 1; pipenv's `Pipfile`
and `Pipfile.lock`; setuptools' declarative configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.releases.pins import requirement
from cfglint_train.releases.pins.requirement import Requirement

MOST_ITEMS: Final = 20_000
"""Packages of one lock file, each counted once for each platform."""


class Found(Frozen):
    """A package that a file names."""

    requirement: Requirement
    line: int
    optional: bool = False
    """Only a feature, a group or an extra has it."""


_ITEM: Final = re.compile(r"(?m)^[ \t]*- (?=(?:name|kind|conda|pypi):[ \t])")
_FIELD: Final = re.compile(
    r"(?m)^[ \t-]*(name|version|manager|kind|platform|subdir|conda|pypi|url):[ \t]+['\"]?([^'\"\s]{1,300})"
)
_CONDA: Final = re.compile(r".*/(?P<subdir>[\w-]+)/(?P<name>[^/]+)-(?P<version>[^-/]+)-[^-/]+\.(?:conda|tar\.bz2)")
_HERE: Final = ("linux-64", "linux-aarch64", "noarch")


def items(text: str) -> Iterator[Found]:
    """The packages of a `pixi.lock` or `conda-lock.yml` that Linux installs."""
    starts = list(islice(_ITEM.finditer(text), MOST_ITEMS))
    for one, following in zip(starts, [*(start.start() for start in starts[1:]), len(text)]):
        fields = {match[1]: match[2] for match in reversed(list(_FIELD.finditer(text, one.start(), following)))}
        archive = _CONDA.fullmatch(fields.get("conda", ""))
        fields.update(archive.groupdict() if archive is not None else {})
        name, version = fields.get("name", ""), fields.get("version", "")
        if not version or fields.get("subdir", fields.get("platform", _HERE[0])) not in _HERE:
            continue
        address = fields.get("pypi", fields.get("url", ""))
        found = _locked(name, version, address if address.startswith("git+") else "")
        if found is not None:
            yield Found(found, text.count("\n", 0, one.start()) + 1)


def _locked(name: str, version: str, address: str) -> Requirement | None:
    """A package at a version, or at a revision of a repository (`git+https://...?rev=v1#commit`)."""
    package = requirement.known(name)
    if package is None:
        return None
    if address:
        url, _, asked = address.partition("#")[0].partition("?")
        revision = asked.partition("=")[2] or address.partition("#")[2]
        return requirement.of_address(f"{url.removesuffix('.git')}{revision and f'@{revision}'}", package)
    return requirement.of_pip(f"{name}=={version}")


def pipfile_lock(text: str) -> Iterator[Found]:
    """The packages of a `Pipfile.lock`."""
    from json import loads

    try:
        content = loads(text)
    except (ValueError, RecursionError):
        return
    for group in ("default", "develop"):
        for name, value in table_of(content, group).items():
            yield from stated(text, name, value, group != "default")


def manifest(text: str) -> Iterator[Found]:
    """The packages of a `pixi.toml`, a `Pipfile`, or `[tool.pixi]` of a `pyproject.toml`."""
    from cfglint_train.foundation import toml

    try:
        whole = toml.loads(text)
    except (ValueError, RecursionError):
        return
    content = table_of(table_of(whole, "tool"), "pixi") or whole
    features = table_of(content, "feature").values()
    of_linux = [table_of(table_of(content, "target"), name) for name in ("linux", _HERE[0])]
    for optional, table in (
        *((False, one) for one in (content, *of_linux)),
        *((True, one) for one in features if isinstance(one, dict)),
    ):
        for name, value in table_of(table, "dependencies").items():
            yield from stated(text, name, value, optional, _of_conda)
        for group in ("pypi-dependencies", "packages"):
            for name, value in table_of(table, group).items():
                yield from stated(text, name, value, optional)
    for name, value in table_of(content, "dev-packages").items():
        yield from stated(text, name, value, True)


def _of_conda(name: str, version: str) -> Requirement | None:
    return requirement.of_conda(f"{name} {version}" if version[:1].isdigit() else f"{name}{version}")


def stated(
    text: str,
    name: str,
    value: Any,
    optional: bool,
    read: Callable[[str, str], Requirement | None] = requirement.of_poetry,
) -> Iterator[Found]:
    """A package by its version, or by a table with that, with a repository, an address or a path."""
    given = value if isinstance(value, dict) else {"version": value}
    table = {word: one for word, one in given.items() if isinstance(one, str)}
    package = requirement.known(name)
    if package is None or not requirement.holds_on_linux(table.get("markers", "")):
        return
    at = re.search(rf"(?m)^[ \t]*\"?{re.escape(name)}\"?[ \t]*[:=]", text)
    line = 1 if at is None else text.count("\n", 0, at.start()) + 1
    revision = next((table[word] for word in ("tag", "rev", "ref", "branch") if word in table), "")
    for word, one in table.items():
        found = None
        if word == "path":
            found = requirement.of_path(one if "/" in one else f"./{one}", package)
        elif word in ("url", "git"):
            address = one if word == "url" else requirement.git_address(one, revision)
            found = requirement.of_address(address, package)
        elif word == "version" and "git" not in table:
            found = read(name, one)
        if found is not None:
            yield Found(found, line, optional or given.get("optional") is True)


def setup_cfg(text: str) -> Iterator[Found]:
    """What `install_requires` and the extras of a `setup.cfg` require."""
    section, optional, asks = "", False, False
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\[([\w.:-]+)\]", line)
        if header is not None:
            section, asks = header[1], False
            optional = section == "options.extras_require"
        elif line[:1] not in (" ", "\t", "#", ";", ""):
            key, _, line = line.partition("=")
            asks = optional or (section == "options" and key.strip() == "install_requires")
        found = requirement.of_pip(line.partition(" #")[0].strip()) if asks and header is None else None
        if found is not None:
            yield Found(found, number, optional)


def table_of(content: Any, name: str) -> Mapping[str, Any]:
    """A table of another one; an empty one where it has none of the name."""
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
