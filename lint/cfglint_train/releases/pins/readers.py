"""Readers for all kinds of requirement files: find pins of known packages, without executing or resolving anything."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Constraint, strip_local_label
from cfglint_train.frameworks.registry import list_packages, map_spellings
from cfglint_train.releases.pins import environments, requirement
from cfglint_train.releases.pins.environments import get_table
from cfglint_train.releases.pins.requirement import PACKAGES, Requirement

COPIED: Final = -1
"""Weight of a package whose source is copied into the repository."""
LOCKED: Final = 0
"""Weight of a locked version, which takes precedence over the releases that other files allow."""
REQUIRED: Final = 1
OPTIONAL: Final = 2
"""Weight of the requirements of an extra or a group, which are not always installed."""

ReadText = Callable[[str], str]
"""Function that returns the text of a file, or an empty string if it cannot be read."""


class Pin(Frozen):
    """A statement about a package on one line of a requirement file."""

    package: str
    constraint: Constraint
    path: str
    line: int
    weight: int
    fork: str = ""
    """Repository and revision from which the package is installed, if not upstream's."""
    unreleased: str = ""
    """Upstream's repository and the installed revision, if that is not a release."""
    is_former: bool = False
    """True if the statement is a link to a former repository of the package."""
    is_in_subfolder: bool = False
    """True if the file is in a subfolder of the folder to which its pins apply, and may serve another job."""


def read_pins(path: str, load: ReadText) -> Iterator[Pin]:
    """Yield the pins of a requirement file; its name selects the reader, and unknown names are read as Dockerfiles."""
    name = os.path.basename(path).lower()
    if name.endswith((".txt", ".in")) or (name.endswith(".lock") and name.startswith("requirements")):
        pins = _read_requirements(path, load, set())
        yield from (pin._replace(weight=OPTIONAL) for pin in pins) if _DEVELOPMENT.search(name) else pins
        return
    text = load(path)
    if _NAMED.search(text) is None:
        return
    if name == "pyproject.toml":
        yield from _read_pyproject(path, text)
        if "[tool.pixi." in text:
            yield from _build_environment_pins(path, environments.read_manifest(text), REQUIRED)
    elif name in _ENVIRONMENTS:
        reader, weight = _ENVIRONMENTS[name]
        yield from _build_environment_pins(path, reader(text), weight)
    elif name == "setup.py":
        from cfglint_train.releases.pins.setup_py import find_requirements

        for item in find_requirements(text):
            yield from _build_pins(
                requirement.parse_pip_requirement(item.text),
                path,
                item.line,
                OPTIONAL if item.is_optional else REQUIRED,
            )
    elif name.endswith((".lock", ".toml")):
        yield from _read_lock(path, text)
    elif name.endswith((".yml", ".yaml")):
        yield from _read_conda(path, text)
    else:
        yield from _read_dockerfile(path, text)


_DEVELOPMENT: Final = compile_on_use(r"(?:^|[^a-z])(?:tests?|testing|ci|lint|docs?|dev)(?=[^a-z])")
"""Pattern for requirement files that only the project's developers need, to test, lint or document the project."""

_ENVIRONMENTS: Final[Mapping[str, tuple[Callable[[str], Iterator[environments.FoundRequirement]], int]]] = {
    "pixi.lock": (environments.find_locked_packages, LOCKED),
    "conda-lock.yml": (environments.find_locked_packages, LOCKED),
    "conda-lock.yaml": (environments.find_locked_packages, LOCKED),
    "pipfile.lock": (environments.read_pipfile_lock, LOCKED),
    "pixi.toml": (environments.read_manifest, REQUIRED),
    "pipfile": (environments.read_manifest, REQUIRED),
    "setup.cfg": (environments.read_setup_cfg, REQUIRED),
}


def _build_environment_pins(
    path: str, requirements: Iterable[environments.FoundRequirement], weight: int
) -> Iterator[Pin]:
    for item in requirements:
        yield from _build_pins(item.requirement, path, item.line, OPTIONAL if item.is_optional else weight)


# A file that contains none of these names is not parsed, except pip requirement files.
_NAMED: Final = compile_on_use("|".join(map(re.escape, (*PACKAGES, *map_spellings()))), re.IGNORECASE)

# --- pip -------------------------------------------------------------------------------------------------------------

_MAX_INCLUDED: Final = 100
"""Maximum number of requirement files to read, starting from one file and following its includes."""
_INCLUDE: Final = compile_on_use(r"(?:-r|--requirement|-c|--constraint)[ \t=]*(\S+)")


def _read_requirements(path: str, load: ReadText, seen: set[str]) -> Iterator[Pin]:
    path = os.path.normpath(path)
    if path in seen or len(seen) == _MAX_INCLUDED:
        return
    seen.add(path)
    for line, text in _join_lines(load(path)):
        text = (re.sub(r"(?:^|\s)#.*", "", text) if "#" in text else text).strip()
        include = _INCLUDE.match(text)
        if include is not None:
            yield from _read_requirements(os.path.join(os.path.dirname(path), include[1]), load, seen)
        elif text:
            yield from _build_pins(_parse_line(text), path, line, REQUIRED)


def _parse_line(text: str, on_disk: bool = True) -> Requirement | None:
    """Return the requirement on a line, including a bare address and, if `on_disk`, a path; None for any other text."""
    if len(text) > requirement.MAX_LENGTH:
        text = re.split(r"[ \t]--hash\b", text, maxsplit=1)[0]
        if len(text) > requirement.MAX_LENGTH:
            return None
    editable = text.startswith("-")
    if editable:
        text = re.sub(r"^(?:-e|--editable)[ \t=]+", "", text)
    if "--" in text:
        text = re.split(r"[ \t]--(?:hash|config-settings|global-option)\b", text)[0]
    if _ADDRESS.match(text):
        return requirement.parse_address(text)
    if text.endswith(".whl") and not text.startswith(_PATHS) and re.search(r"[\s@]", text) is None:
        text = f"./{text}"
    is_path = text.startswith(_PATHS) or (editable and "/" in text)
    return (
        (requirement.parse_path_requirement(text) if on_disk else None)
        if is_path
        else requirement.parse_pip_requirement(text)
    )


_ADDRESS: Final = compile_on_use(r"git\+|https?://|git@")
_PATHS: Final = ("./", "../", "/", "~/", "file:")


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a backslash at the end joins the next line."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1] + " "
            continue
        yield first, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending


def _build_pins(parsed: Requirement | None, path: str, line: int, weight: int) -> Iterator[Pin]:
    if parsed is not None:
        yield Pin(parsed.package, parsed.constraint, path, line, weight, parsed.fork, parsed.unreleased)


# --- lock files ------------------------------------------------------------------------------------------------------

# uv, poetry, pdm and PEP 751 write the version on the line after the name.
_LOCKED: Final = compile_on_use(
    rf'^name = "({"|".join(map(re.escape, PACKAGES))})"\r?\nversion = "(\d[^"\n]*)"', re.MULTILINE
)
# uv: `source = { git = "https://host/owner/name?tag=v1#commit" }`; poetry: a table after the package.
_GIT: Final = compile_on_use(
    r"^(?:source = \{ git = \"(?P<uv>[^\"]+)\"|\[package\.source\]\ntype = \"git\"\nurl = \"(?P<url>[^\"]+)\"\n"
    r"reference = \"(?P<at>[^\"]*)\")",
    re.MULTILINE,
)
_NEXT_PACKAGE: Final = compile_on_use(r"\n(?:\[\[|name = )")
_MARKERS: Final = compile_on_use(r"^(?:resolution-markers|markers?) = (\[[^\]]*\]|\"[^\n]*\"|'[^\n]*')", re.MULTILINE)


def _read_lock(path: str, text: str) -> Iterator[Pin]:
    for match in _LOCKED.finditer(text):
        following = _NEXT_PACKAGE.search(text, match.end())
        end = len(text) if following is None else following.start()
        markers = _MARKERS.search(text, match.end(), end)
        if markers is None or _can_hold_on_linux(markers[1]):
            line = text.count("\n", 0, match.start()) + 1
            package, git = PACKAGES[match[1]], _GIT.search(text, match.end(), end)
            yield from _build_pins(_build_locked(package, match[2], git), path, line, LOCKED)


def _build_locked(package: str, release: str, git: re.Match[str] | None) -> Requirement:
    """Return the requirement of a package that is locked to a release or a git revision."""
    locked = Requirement(package, Constraint((("==", strip_local_label(release)),)))
    if git is None:
        return locked
    if git["uv"]:
        url, _, query = git["uv"].partition("#")[0].partition("?")
        revision = query.partition("=")[2]
    else:
        url, revision = git["url"], git["at"]
    git_requirement = requirement.parse_address(requirement.format_git_address(url, revision), package)
    return locked if git_requirement is None or git_requirement.constraint.comparisons else git_requirement


def _can_hold_on_linux(markers: str) -> bool:
    """Return whether one of a package's markers may hold on Linux; uv writes a list, other tools a string."""
    alternatives = (
        re.findall(r"\"[^\"]*\"", markers) if markers.startswith("[") else [markers[1:-1].replace('\\"', "'")]
    )
    return not alternatives or any(requirement.can_install_on_linux(marker.strip('"')) for marker in alternatives)


# --- pyproject.toml --------------------------------------------------------------------------------------------------


def _read_pyproject(path: str, text: str) -> Iterator[Pin]:
    from cfglint_train.foundation import toml

    try:
        table = toml.parse(text)
    except (ValueError, RecursionError):
        return
    project, tool = get_table(table, "project"), get_table(table, "tool")
    name, version = project.get("name"), project.get("version")
    project_package = requirement.get_package(name) if isinstance(name, str) else None
    if project_package is not None and isinstance(version, str):
        # The repository is the framework itself.
        yield from _build_pins(
            requirement.parse_pip_requirement(f"{name}=={version}"), path, _find_line(text, version), LOCKED
        )
    for weight, requirements in (
        (REQUIRED, project.get("dependencies")),
        *((OPTIONAL, extra) for extra in get_table(project, "optional-dependencies").values()),
        *((OPTIONAL, group) for group in get_table(table, "dependency-groups").values()),
        (REQUIRED, get_table(tool, "uv").get("constraint-dependencies")),
        (REQUIRED, get_table(tool, "uv").get("override-dependencies")),
        (OPTIONAL, get_table(tool, "uv").get("dev-dependencies")),
        *((OPTIONAL, group) for group in get_table(get_table(tool, "pdm"), "dev-dependencies").values()),
    ):
        for item in requirements if isinstance(requirements, list) else ():
            if isinstance(item, str):
                yield from _build_pins(requirement.parse_pip_requirement(item), path, _find_line(text, item), weight)
    poetry = get_table(tool, "poetry")
    yield from _read_table(path, text, get_table(get_table(tool, "uv"), "sources"), REQUIRED)
    yield from _read_table(path, text, get_table(poetry, "dependencies"), REQUIRED)
    for group in get_table(poetry, "group").values():
        yield from _read_table(path, text, get_table(group, "dependencies"), OPTIONAL)


def _read_table(path: str, text: str, table: Mapping[str, Any], weight: int) -> Iterator[Pin]:
    requirements = (
        item for name, value in table.items() for item in environments.parse_dependency(text, name, value, False)
    )
    yield from _build_environment_pins(path, requirements, weight)


def _find_line(text: str, part: str) -> int:
    """Return the number of the first line that contains `part`, or 1 if the file spells it differently."""
    position = text.find(part)
    return 1 if position < 0 else text.count("\n", 0, position) + 1


# --- conda -----------------------------------------------------------------------------------------------------------

_ITEM: Final = compile_on_use(r"^[ \t]*-[ \t]+(\"[^\"]*\"|'[^']*'|[^\s#\"':][^#]*?)[ \t]*(?:#.*)?$")


_MAX_ITEMS: Final = 20_000
"""Maximum number of lines to read from an environment file; a full export has a few hundred."""


def _read_conda(path: str, text: str) -> Iterator[Pin]:
    inside_pip = -1
    for number, line in enumerate(islice(text.splitlines(), _MAX_ITEMS), 1):
        indent = len(line) - len(line.lstrip())
        if "pip" in line and re.match(r"[ \t]*-[ \t]+pip[ \t]*:", line):
            inside_pip = indent
            continue
        if indent <= inside_pip and line.strip():
            inside_pip = -1
        item = _ITEM.match(line) if len(line) <= requirement.MAX_LENGTH else None
        if item is not None:
            specification = item[1].strip("\"'")
            parsed = (
                _parse_line(specification) if inside_pip >= 0 else requirement.parse_conda_requirement(specification)
            )
            yield from _build_pins(parsed, path, number, REQUIRED)


# --- Dockerfiles -----------------------------------------------------------------------------------------------------

_VARIABLE: Final = compile_on_use(r"^\s*(?:ARG|ENV)\s+(\w+)[= ]\s*[\"']?([\w.+-]{1,60})[\"']?\s*$", re.IGNORECASE)
_INSTALL: Final = compile_on_use(r"\b(?:pip3?|conda|mamba|micromamba)(?:\.exe)?\s+install\b([^;&|]*)")
_UV: Final = compile_on_use(r"\b(?:uvx|uv[ \t]+(?:run|tool[ \t]+run))\b([^;&|]*)")
_UV_PACKAGES: Final = compile_on_use(r"(?:^|\s)--(?:with|from)[= \t]+(\"[^\"]*\"|'[^']*'|\S+)")
"""Pattern for the packages that `uv run` and `uvx` install for one command."""
_CLONE: Final = compile_on_use(r"\bgit\s+clone\b([^;&|]*)")
_IMAGE: Final = compile_on_use(r"^\s*FROM\s+(?:--\S+\s+)?(?:docker\.io/)?([\w.-]+/[\w.-]+):(\S+)", re.IGNORECASE)
_IMAGE_USE: Final = compile_on_use(r"(?:docker\.io/|docker://|(?<=[\s'\"=]))([\w.-]+/[\w.-]+):([\w][\w.-]*)")
"""Pattern for the image that a command starts or pulls (`docker run IMAGE`)."""
_ENGINES: Final = compile_on_use(r"\b(?:docker|podman|singularity|apptainer|enroot)\b")


_WORKDIR: Final = compile_on_use(r"^\s*WORKDIR\s+(\S+)", re.IGNORECASE)
_COPY_ALL: Final = compile_on_use(r"^\s*(?:COPY|ADD)\s+(?:--\S+\s+)*\./?\s+(\S+)\s*$", re.IGNORECASE)
"""Pattern for the folder of an image into which the whole repository is copied."""
_CD: Final = compile_on_use(r"\bcd\s+([^\s;&|]+)")
_CURRENT_FOLDER: Final = compile_on_use(r"\.(?=\[|$)")
"""Pattern for the current folder as an install target, with or without extras."""


def _read_dockerfile(path: str, text: str) -> Iterator[Pin]:
    variables: dict[str, str] = {}
    folder = "/"
    in_image: set[str] = set()
    copied: set[str] = set()
    on_disk = _CLONE.search(text) is None
    for number, line in _join_lines(re.sub(r"(?m)^\s*#.*$", "", text)):
        line = re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], match[0]), line)
        variable = _VARIABLE.match(line)
        if variable is not None:
            variables[variable[1]] = variable[2]
        workdir = _WORKDIR.match(line)
        folder = folder if workdir is None else posixpath.join(folder, workdir[1])
        context = _COPY_ALL.match(line)
        copied.update(() if context is None else (posixpath.normpath(posixpath.join(folder, context[1])),))
        image = _IMAGE.match(line)
        in_image.update(() if image is None else (package for package, _ in _find_image_packages(image[1].lower())))
        for parsed in _parse_command(line, on_disk, folder):
            if parsed.fork.startswith("/") and parsed.package in in_image:
                continue  # the source of the image itself
            if posixpath.normpath(parsed.fork) in copied:
                continue  # the repository itself, which has its own requirement files
            yield from _build_pins(parsed, path, number, REQUIRED)


def _parse_command(line: str, on_disk: bool, folder: str = "") -> Iterator[Requirement]:
    """Yield the packages that a line installs or clones.

    Paths count if `on_disk`, that is, if no earlier command can have put a release there. `folder` is the
    working directory at the start of the line, if known.
    """
    image = _IMAGE.match(line)
    images = _IMAGE_USE.finditer(line) if image is None and _ENGINES.search(line) is not None else ()
    for match in images if image is None else (image,):
        yield from parse_image_tag(match[1].lower(), match[2])
    for command in _INSTALL.finditer(line):
        is_conda = "pip" not in command[0].split()[0]
        changes = _CD.findall(line, 0, command.start()) if folder else []
        folder_now = posixpath.join(folder, *changes)
        for word in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", command[1]):
            argument = word.strip("\"'")
            argument = (
                _CURRENT_FOLDER.sub(folder_now, argument) if folder and _CURRENT_FOLDER.match(argument) else argument
            )
            parsed = requirement.parse_conda_requirement(argument) if is_conda else _parse_line(argument, on_disk)
            if parsed is not None:
                yield parsed
    for command in _UV.finditer(line):
        for word in _UV_PACKAGES.findall(command[1]):
            parsed = _parse_line(word.strip("\"'"), on_disk)
            if parsed is not None:
                yield parsed
    for command in _CLONE.finditer(line):
        tag = re.search(r"(?:-b|--branch)[ =]+(\S+)", command[1])
        address = re.search(r"(?:https?://|git@)\S+", command[1])
        if address is not None:
            parsed = requirement.parse_address(
                requirement.format_git_address(address[0].rstrip("/"), "" if tag is None else tag[1])
            )
            if parsed is not None:
                yield parsed


def parse_image_tag(image: str, tag: str) -> Iterator[Requirement]:
    """Yield the packages of an image whose releases its tag names."""
    for package, patterns in _find_image_packages(image):
        release = re.match(r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc)\d+)?)(?=-|$)", tag)
        if release is not None:
            yield Requirement(package, Constraint((("==", release[1]),)))
        built_on = _DATED.search(tag)
        if built_on is not None and list_packages()[package].release_dates:
            yield Requirement(
                package, _build_date_constraint("-".join(built_on.groups()), list_packages()[package].release_dates)
            )
        for other, pattern in patterns.items():
            match = re.search(pattern, tag)
            if match is not None:
                yield Requirement(other, Constraint((("==", match[1]),)))


def _find_image_packages(image: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the packages that an image contains, each with the patterns that find other packages in its tag."""
    for package in list_packages().values():
        yield from ((package.name, patterns) for name, patterns in package.images.items() if re.fullmatch(name, image))


_DATED: Final = compile_on_use(r"(?:^|-)(20\d\d)-?(\d\d)-?(\d\d)(?=-|$)")
"""Pattern for the date on which an image was built from the development branch."""


def _build_date_constraint(day: str, dates: Mapping[str, str]) -> Constraint:
    """Return the releases around the day of a development build. `dates` are in ascending order."""
    before = [(">=", release) for release, date in dates.items() if date <= day]
    after = [release for release, date in dates.items() if date > day]
    following = [("<=" if before else "<", after[0])] if after else []
    return Constraint((*before[-1:], *following))


# --- Commands -----------------------------------------------------------------------------------------------------

_COMMANDS: Final = ("git", "install", "docker", "podman", "singularity", "apptainer", "enroot", "uv")
_CHECKOUT: Final = compile_on_use(r"(?:^|&&|;)\s*(?:\$ )?git\s+checkout\s+(?:tags/)?([\w./-]+)\s*(?:$|&&|;|#|>)")
_TREE: Final = compile_on_use(r"https?://github\.com/([\w.-]+/[\w.-]+)/(?:tree|commit)/([\w./-]+)")
_DEFAULT_BRANCHES: Final = ("main", "master")
_MAX_COMMANDS: Final = 2000
"""Maximum number of installs and clones in one README or script."""
_MAX_DISTANCE: Final = 3
"""Number of lines after a `git clone` within which `git checkout` refers to the clone."""


def find_forks(path: str, text: str) -> Iterator[Pin]:
    """Yield the forks and unreleased revisions that a README or script installs, clones or links to."""
    pins = list(islice(find_command_pins(path, text), _MAX_COMMANDS))
    for number, line in enumerate(text.splitlines(), 1):
        for name, ref in _find_tree_links(line) if len(line) <= requirement.MAX_LENGTH and "github.com" in line else ():
            parsed = requirement.parse_address(requirement.format_git_address(f"https://github.com/{name}", ref))
            pins += _build_pins(parsed, path, number, REQUIRED)
    yield from sorted((pin for pin in pins if pin.fork or pin.unreleased), key=lambda pin: pin.line)


_REPOSITORY: Final = compile_on_use(r"github\.com/([\w.-]+/[\w.-]+)")


def find_former_repositories(path: str, text: str) -> Iterator[Pin]:
    """Yield the packages whose former repositories a README links to."""
    if "github.com/" not in text:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for name in _REPOSITORY.findall(line.lower()) if len(line) <= requirement.MAX_LENGTH else ():
            package = requirement.FORMER_REPOSITORIES.get(name.removesuffix(".git"))
            if package is not None:
                yield Pin(package, Constraint(), path, number, REQUIRED, is_former=True)


def find_command_pins(path: str, text: str) -> Iterator[Pin]:
    """Yield the packages that the commands in `text` install or clone, including unreleased revisions."""
    cloned, clone_line = "", 0
    for number, line in _join_lines(text):
        if len(line) > requirement.MAX_LENGTH or not any(word in line for word in _COMMANDS):
            continue
        checkout = _CHECKOUT.search(line)
        clone = _CLONE.search(line)
        requirements: list[Requirement | None] = list(_parse_command(line, on_disk=False))
        if clone is not None and (address := re.search(r"https?://\S+", clone[1])) is not None:
            cloned, clone_line = address[0].rstrip("/"), number
        if checkout is not None and cloned and number - clone_line <= _MAX_DISTANCE:
            requirements.append(requirement.parse_address(requirement.format_git_address(cloned, checkout[1])))
        for parsed in requirements:
            yield from _build_pins(parsed, path, number, REQUIRED)


def _find_tree_links(line: str) -> Iterator[tuple[str, str]]:
    """Yield the framework repositories that tree and commit links point to, each with its revision."""
    for name, revision in _TREE.findall(line):
        revision = revision.rstrip(".")
        if requirement.REPOSITORIES.get(name.lower()) and revision.split("/")[0] not in _DEFAULT_BRANCHES:
            yield name, revision
