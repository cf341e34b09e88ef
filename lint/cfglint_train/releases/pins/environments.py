"""Environment files of pixi, conda-lock and pipenv, and setuptools' `setup.cfg`: locked and required packages.

Sources: pixi's docs (lock file versions 4 to 6, manifest); conda-lock's `conda-lock.yml`, version 1; pipenv's `Pipfile`
and `Pipfile.lock`; setuptools' declarative configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.releases.pins import requirement
from cfglint_train.releases.pins.requirement import Requirement

MAX_ITEMS: Final = 20_000
"""Maximum number of packages to read from a lock file, which lists each package once per platform."""


class FoundRequirement(Frozen):
    """A requirement with its line in a file."""

    requirement: Requirement
    line: int
    is_optional: bool = False
    """True if only an optional feature, group or extra contains the requirement."""


_ITEM: Final = compile_on_use(r"(?m)^[ \t]*- (?=(?:name|kind|conda|pypi):[ \t])")
_FIELD: Final = compile_on_use(
    r"(?m)^[ \t-]*(name|version|manager|kind|platform|subdir|conda|pypi|url):[ \t]+['\"]?([^'\"\s]{1,300})"
)
_CONDA: Final = compile_on_use(r".*/(?P<subdir>[\w-]+)/(?P<name>[^/]+)-(?P<version>[^-/]+)-[^-/]+\.(?:conda|tar\.bz2)")
_PLATFORMS: Final = ("linux-64", "linux-aarch64", "noarch")


def find_locked_packages(text: str) -> Iterator[FoundRequirement]:
    """Yield the packages of a `pixi.lock` or `conda-lock.yml` for Linux."""
    starts = list(islice(_ITEM.finditer(text), MAX_ITEMS))
    for item, following in zip(starts, [*(start.start() for start in starts[1:]), len(text)]):
        fields = {match[1]: match[2] for match in reversed(list(_FIELD.finditer(text, item.start(), following)))}
        archive = _CONDA.fullmatch(fields.get("conda", ""))
        fields.update(archive.groupdict() if archive is not None else {})
        name, version = fields.get("name", ""), fields.get("version", "")
        if not version or fields.get("subdir", fields.get("platform", _PLATFORMS[0])) not in _PLATFORMS:
            continue
        address = fields.get("pypi", fields.get("url", ""))
        parsed = _build_locked(name, version, address if address.startswith("git+") else "")
        if parsed is not None:
            yield FoundRequirement(parsed, text.count("\n", 0, item.start()) + 1)


def _build_locked(name: str, version: str, address: str) -> Requirement | None:
    """Return the requirement for a version or a git revision (`git+https://...?rev=v1#commit`), or None if unknown."""
    package = requirement.get_package(name)
    if package is None:
        return None
    if address:
        url, _, query = address.partition("#")[0].partition("?")
        revision = query.partition("=")[2] or address.partition("#")[2]
        return requirement.parse_address(f"{url.removesuffix('.git')}{revision and f'@{revision}'}", package)
    return requirement.parse_pip_requirement(f"{name}=={version}")


def read_pipfile_lock(text: str) -> Iterator[FoundRequirement]:
    """Yield the packages of a `Pipfile.lock`."""
    from json import loads

    try:
        content = loads(text)
    except (ValueError, RecursionError):
        return
    for group in ("default", "develop"):
        for name, value in get_table(content, group).items():
            yield from parse_dependency(text, name, value, group != "default")


def read_manifest(text: str) -> Iterator[FoundRequirement]:
    """Yield the packages of a `pixi.toml`, a `Pipfile`, or `[tool.pixi]` of a `pyproject.toml`."""
    from cfglint_train.foundation import toml

    try:
        document = toml.parse(text)
    except (ValueError, RecursionError):
        return
    content = get_table(get_table(document, "tool"), "pixi") or document
    features = get_table(content, "feature").values()
    linux_tables = [get_table(get_table(content, "target"), name) for name in ("linux", _PLATFORMS[0])]
    for optional, table in (
        *((False, candidate) for candidate in (content, *linux_tables)),
        *((True, candidate) for candidate in features if isinstance(candidate, dict)),
    ):
        for name, value in get_table(table, "dependencies").items():
            yield from parse_dependency(text, name, value, optional, _parse_conda)
        for group in ("pypi-dependencies", "packages"):
            for name, value in get_table(table, group).items():
                yield from parse_dependency(text, name, value, optional)
    for name, value in get_table(content, "dev-packages").items():
        yield from parse_dependency(text, name, value, True)


def _parse_conda(name: str, version: str) -> Requirement | None:
    return requirement.parse_conda_requirement(f"{name} {version}" if version[:1].isdigit() else f"{name}{version}")


def parse_dependency(
    text: str,
    name: str,
    value: Any,
    optional: bool,
    parse_version: Callable[[str, str], Requirement | None] = requirement.parse_poetry_requirement,
) -> Iterator[FoundRequirement]:
    """Yield the requirements of one dependency: a version, or a table with a version, repository, address or path.

    Nothing is yielded for an unknown package, or if the markers exclude Linux.
    """
    options = value if isinstance(value, dict) else {"version": value}
    table = {word: item for word, item in options.items() if isinstance(item, str)}
    package = requirement.get_package(name)
    if package is None or not requirement.can_install_on_linux(table.get("markers", "")):
        return
    match = re.search(rf"(?m)^[ \t]*\"?{re.escape(name)}\"?[ \t]*[:=]", text)
    line = 1 if match is None else text.count("\n", 0, match.start()) + 1
    revision = next((table[word] for word in ("tag", "rev", "ref", "branch") if word in table), "")
    for word, item in table.items():
        parsed = None
        if word == "path":
            parsed = requirement.parse_path_requirement(item if "/" in item else f"./{item}", package)
        elif word in ("url", "git"):
            address = item if word == "url" else requirement.format_git_address(item, revision)
            parsed = requirement.parse_address(address, package)
        elif word == "version" and "git" not in table:
            parsed = parse_version(name, item)
        if parsed is not None:
            yield FoundRequirement(parsed, line, optional or options.get("optional") is True)


def read_setup_cfg(text: str) -> Iterator[FoundRequirement]:
    """Yield the packages in `install_requires` and the extras of a `setup.cfg`."""
    section, optional, is_required = "", False, False
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\[([\w.:-]+)\]", line)
        if header is not None:
            section, is_required = header[1], False
            optional = section == "options.extras_require"
        elif line[:1] not in (" ", "\t", "#", ";", ""):
            key, _, line = line.partition("=")
            is_required = optional or (section == "options" and key.strip() == "install_requires")
        parsed = (
            requirement.parse_pip_requirement(line.partition(" #")[0].strip())
            if is_required and header is None
            else None
        )
        if parsed is not None:
            yield FoundRequirement(parsed, number, optional)


def get_table(content: Any, name: str) -> Mapping[str, Any]:
    """Return a nested table, or an empty table if there is none."""
    table = content.get(name) if isinstance(content, dict) else None
    return table if isinstance(table, dict) else {}
