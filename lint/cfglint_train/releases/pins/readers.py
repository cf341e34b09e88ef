"""Requirement files of every kind, read for the known packages. Nothing is executed or resolved."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Constraint, public
from cfglint_train.frameworks.registry import packages, spellings
from cfglint_train.releases.pins import environments, requirement
from cfglint_train.releases.pins.environments import table_of
from cfglint_train.releases.pins.requirement import PACKAGES, Requirement

COPIED: Final = -1
"""What the repository holds itself, whose requirements are its own."""
LOCKED: Final = 0
"""What is installed, whatever the others allow."""
REQUIRED: Final = 1
OPTIONAL: Final = 2
"""Requirements of an extra or a group, which not every installation has."""

Read = Callable[[str], str]
"""The text of a file; empty where it cannot be read."""


class Pin(Frozen):
    """What one line of a requirement file says about a package."""

    package: str
    constraint: Constraint
    path: str
    line: int
    weight: int
    fork: str = ""
    """The repository and revision that it is installed from, if that is not upstream's."""
    unreleased: str = ""
    """Upstream's own repository and the revision that it is installed from, if that is no release."""
    former: bool = False
    """It leads to a repository that the package has left."""


def read(path: str, load: Read) -> Iterator[Pin]:
    """The pins of a requirement file, by the kind that its name implies. Nothing for a file of another kind."""
    name = os.path.basename(path).lower()
    if name.endswith((".txt", ".in")) or (name.endswith(".lock") and name.startswith("requirements")):
        found = _requirements(path, load, set())
        yield from (pin._replace(weight=OPTIONAL) for pin in found) if _BESIDE.search(name) else found
        return
    text = load(path)
    if _NAMED.search(text) is None:
        return
    if name == "pyproject.toml":
        yield from _pyproject(path, text)
        if "[tool.pixi." in text:
            yield from _of_environment(path, environments.manifest(text), REQUIRED)
    elif name in _ENVIRONMENTS:
        reader, weight = _ENVIRONMENTS[name]
        yield from _of_environment(path, reader(text), weight)
    elif name == "setup.py":
        from cfglint_train.releases.pins.setup_py import asked

        for one in asked(text):
            yield from _pinned(requirement.of_pip(one.text), path, one.line, OPTIONAL if one.optional else REQUIRED)
    elif name.endswith((".lock", ".toml")):
        yield from _lock(path, text)
    elif name.endswith((".yml", ".yaml")):
        yield from _conda(path, text)
    else:
        yield from _dockerfile(path, text)


_BESIDE: Final = re.compile(r"(?:^|[^a-z])(?:tests?|testing|ci|lint|docs?|dev)(?=[^a-z])")
"""In names of files of requirements that those have beside the others who test, write or document the project."""

_ENVIRONMENTS: Final[Mapping[str, tuple[Callable[[str], Iterator[environments.Found]], int]]] = {
    "pixi.lock": (environments.items, LOCKED),
    "conda-lock.yml": (environments.items, LOCKED),
    "conda-lock.yaml": (environments.items, LOCKED),
    "pipfile.lock": (environments.pipfile_lock, LOCKED),
    "pixi.toml": (environments.manifest, REQUIRED),
    "pipfile": (environments.manifest, REQUIRED),
    "setup.cfg": (environments.setup_cfg, REQUIRED),
}


def _of_environment(path: str, found: Iterable[environments.Found], weight: int) -> Iterator[Pin]:
    for one in found:
        yield from _pinned(one.requirement, path, one.line, OPTIONAL if one.optional else weight)


# A file in which none of the names occurs is not looked at any closer.
_NAMED: Final = re.compile("|".join(map(re.escape, (*PACKAGES, *spellings()))), re.IGNORECASE)

# --- pip -------------------------------------------------------------------------------------------------------------

_MOST_INCLUDED: Final = 100
"""Files that include each other; a chain of a thousand is no project's."""
_INCLUDE: Final = re.compile(r"(?:-r|--requirement|-c|--constraint)[ \t=]*(\S+)")


def _requirements(path: str, load: Read, seen: set[str]) -> Iterator[Pin]:
    path = os.path.normpath(path)
    if path in seen or len(seen) == _MOST_INCLUDED:
        return
    seen.add(path)
    for line, text in _joined(load(path)):
        text = (re.sub(r"(?:^|\s)#.*", "", text) if "#" in text else text).strip()
        include = _INCLUDE.match(text)
        if include is not None:
            yield from _requirements(os.path.join(os.path.dirname(path), include[1]), load, seen)
        elif text:
            yield from _pinned(_asked(text), path, line, REQUIRED)


def _asked(text: str, on_disk: bool = True) -> Requirement | None:
    """A requirement on a line of its own, with or without options behind it; also as an address alone, or as a path on
    disk where those count.
    """
    if len(text) > requirement.LONGEST:
        text = re.split(r"[ \t]--hash\b", text, maxsplit=1)[0]
        if len(text) > requirement.LONGEST:
            return None
    editable = text.startswith("-")
    if editable:
        text = re.sub(r"^(?:-e|--editable)[ \t=]+", "", text)
    if "--" in text:
        text = re.split(r"[ \t]--(?:hash|config-settings|global-option)\b", text)[0]
    if _ADDRESS.match(text):
        return requirement.of_address(text)
    if text.endswith(".whl") and not text.startswith(_PATHS) and re.search(r"[\s@]", text) is None:
        text = f"./{text}"
    is_path = text.startswith(_PATHS) or (editable and "/" in text)
    return (requirement.of_path(text) if on_disk else None) if is_path else requirement.of_pip(text)


_ADDRESS: Final = re.compile(r"git\+|https?://|git@")
_PATHS: Final = ("./", "../", "/", "~/", "file:")


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end joins the next one."""
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


def _pinned(found: Requirement | None, path: str, line: int, weight: int) -> Iterator[Pin]:
    if found is not None:
        yield Pin(found.package, found.constraint, path, line, weight, found.fork, found.unreleased)


# --- lock files ------------------------------------------------------------------------------------------------------

# uv, poetry, pdm and PEP 751 all write the version on the line behind the name.
_LOCKED: Final = re.compile(
    rf'^name = "({"|".join(map(re.escape, PACKAGES))})"\r?\nversion = "(\d[^"\n]*)"', re.MULTILINE
)
# uv: `source = { git = "https://host/owner/name?tag=v1#commit" }`; poetry: a table behind the package.
_GIT: Final = re.compile(
    r"^(?:source = \{ git = \"(?P<uv>[^\"]+)\"|\[package\.source\]\ntype = \"git\"\nurl = \"(?P<url>[^\"]+)\"\n"
    r"reference = \"(?P<at>[^\"]*)\")",
    re.MULTILINE,
)
_NEXT: Final = re.compile(r"\n(?:\[\[|name = )")
_MARKERS: Final = re.compile(r"^(?:resolution-markers|markers?) = (\[[^\]]*\]|\"[^\n]*\"|'[^\n]*')", re.MULTILINE)


def _lock(path: str, text: str) -> Iterator[Pin]:
    for match in _LOCKED.finditer(text):
        following = _NEXT.search(text, match.end())
        end = len(text) if following is None else following.start()
        markers = _MARKERS.search(text, match.end(), end)
        if markers is None or _on_linux(markers[1]):
            line = text.count("\n", 0, match.start()) + 1
            package, git = PACKAGES[match[1]], _GIT.search(text, match.end(), end)
            yield from _pinned(_locked(package, match[2], git), path, line, LOCKED)


def _locked(package: str, release: str, git: re.Match[str] | None) -> Requirement:
    """A package that is locked to a release, or to a revision in git."""
    locked = Requirement(package, Constraint((("==", public(release)),)))
    if git is None:
        return locked
    if git["uv"]:
        url, _, asked = git["uv"].partition("#")[0].partition("?")
        revision = asked.partition("=")[2]
    else:
        url, revision = git["url"], git["at"]
    found = requirement.of_address(requirement.git_address(url, revision), package)
    return locked if found is None or found.constraint.comparisons else found


def _on_linux(markers: str) -> bool:
    """Whether one of the markers of a package may hold; uv writes a list, the others a text."""
    alternatives = (
        re.findall(r"\"[^\"]*\"", markers) if markers.startswith("[") else [markers[1:-1].replace('\\"', "'")]
    )
    return not alternatives or any(requirement.holds_on_linux(one.strip('"')) for one in alternatives)


# --- pyproject.toml --------------------------------------------------------------------------------------------------


def _pyproject(path: str, text: str) -> Iterator[Pin]:
    from cfglint_train.foundation import toml

    try:
        table = toml.loads(text)
    except (ValueError, RecursionError):
        return
    project, tool = table_of(table, "project"), table_of(table, "tool")
    name, version = project.get("name"), project.get("version")
    own = requirement.known(name) if isinstance(name, str) else None
    if own is not None and isinstance(version, str):
        # The repository is the framework's own.
        yield from _pinned(requirement.of_pip(f"{name}=={version}"), path, _line(text, version), LOCKED)
    for weight, found in (
        (REQUIRED, project.get("dependencies")),
        *((OPTIONAL, extra) for extra in table_of(project, "optional-dependencies").values()),
        *((OPTIONAL, group) for group in table_of(table, "dependency-groups").values()),
        (REQUIRED, table_of(tool, "uv").get("constraint-dependencies")),
        (REQUIRED, table_of(tool, "uv").get("override-dependencies")),
        (OPTIONAL, table_of(tool, "uv").get("dev-dependencies")),
        *((OPTIONAL, group) for group in table_of(table_of(tool, "pdm"), "dev-dependencies").values()),
    ):
        for one in found if isinstance(found, list) else ():
            if isinstance(one, str):
                yield from _pinned(requirement.of_pip(one), path, _line(text, one), weight)
    poetry = table_of(tool, "poetry")
    yield from _stated(path, text, table_of(table_of(tool, "uv"), "sources"), REQUIRED)
    yield from _stated(path, text, table_of(poetry, "dependencies"), REQUIRED)
    for group in table_of(poetry, "group").values():
        yield from _stated(path, text, table_of(group, "dependencies"), OPTIONAL)


def _stated(path: str, text: str, table: Mapping[str, Any], weight: int) -> Iterator[Pin]:
    found = (one for name, value in table.items() for one in environments.stated(text, name, value, False))
    yield from _of_environment(path, found, weight)


def _line(text: str, part: str) -> int:
    """The line on which a text of the file first stands; the first one where it is written in another way."""
    at = text.find(part)
    return 1 if at < 0 else text.count("\n", 0, at) + 1


# --- conda -----------------------------------------------------------------------------------------------------------

_ITEM: Final = re.compile(r"^[ \t]*-[ \t]+(\"[^\"]*\"|'[^']*'|[^\s#\"':][^#]*?)[ \t]*(?:#.*)?$")


_MOST_ITEMS: Final = 20_000
"""Lines of an environment: one that is exported whole has some hundreds."""


def _conda(path: str, text: str) -> Iterator[Pin]:
    inside_pip = -1
    for number, line in enumerate(islice(text.splitlines(), _MOST_ITEMS), 1):
        indent = len(line) - len(line.lstrip())
        if "pip" in line and re.match(r"[ \t]*-[ \t]+pip[ \t]*:", line):
            inside_pip = indent
            continue
        if indent <= inside_pip and line.strip():
            inside_pip = -1
        item = _ITEM.match(line) if len(line) <= requirement.LONGEST else None
        if item is not None:
            asked = item[1].strip("\"'")
            found = _asked(asked) if inside_pip >= 0 else requirement.of_conda(asked)
            yield from _pinned(found, path, number, REQUIRED)


# --- Dockerfiles -----------------------------------------------------------------------------------------------------

_VARIABLE: Final = re.compile(r"^\s*(?:ARG|ENV)\s+(\w+)[= ]\s*[\"']?([\w.+-]{1,60})[\"']?\s*$", re.IGNORECASE)
_INSTALL: Final = re.compile(r"\b(?:pip3?|conda|mamba|micromamba)(?:\.exe)?\s+install\b([^;&|]*)")
_UV: Final = re.compile(r"\b(?:uvx|uv[ \t]+(?:run|tool[ \t]+run))\b([^;&|]*)")
_WITH: Final = re.compile(r"(?:^|\s)--(?:with|from)[= \t]+(\"[^\"]*\"|'[^']*'|\S+)")
"""What `uv run` and `uvx` install for one command."""
_CLONE: Final = re.compile(r"\bgit\s+clone\b([^;&|]*)")
_IMAGE: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)?(?:docker\.io/)?([\w.-]+/[\w.-]+):(\S+)", re.IGNORECASE)
_STARTED: Final = re.compile(r"(?:docker\.io/|docker://|(?<=[\s'\"=]))([\w.-]+/[\w.-]+):([\w][\w.-]*)")
"""An image that a command starts or pulls (`docker run IMAGE`)."""
_ENGINES: Final = re.compile(r"\b(?:docker|podman|singularity|apptainer|enroot)\b")


_FOLDER: Final = re.compile(r"^\s*WORKDIR\s+(\S+)", re.IGNORECASE)
_CONTEXT: Final = re.compile(r"^\s*(?:COPY|ADD)\s+(?:--\S+\s+)*\./?\s+(\S+)\s*$", re.IGNORECASE)
"""The folder of an image that the whole repository is copied into."""
_CHANGE: Final = re.compile(r"\bcd\s+([^\s;&|]+)")
_HERE: Final = re.compile(r"\.(?=\[|$)")
"""The folder that a command runs in, as what it installs, with or without extras."""


def _dockerfile(path: str, text: str) -> Iterator[Pin]:
    variables: dict[str, str] = {}
    folder = "/"
    held: set[str] = set()
    copied: set[str] = set()
    on_disk = _CLONE.search(text) is None
    for number, line in _joined(re.sub(r"(?m)^\s*#.*$", "", text)):
        line = re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], match[0]), line)
        variable = _VARIABLE.match(line)
        if variable is not None:
            variables[variable[1]] = variable[2]
        to = _FOLDER.match(line)
        folder = folder if to is None else posixpath.join(folder, to[1])
        context = _CONTEXT.match(line)
        copied.update(() if context is None else (posixpath.normpath(posixpath.join(folder, context[1])),))
        image = _IMAGE.match(line)
        held.update(() if image is None else (package for package, _ in _inside(image[1].lower())))
        for found in _run(line, on_disk, folder):
            if found.fork.startswith("/") and found.package in held:
                continue  # the source that the image is made of
            if posixpath.normpath(found.fork) in copied:
                continue  # the repository itself, whose own files state what it is
            yield from _pinned(found, path, number, REQUIRED)


def _run(line: str, on_disk: bool, folder: str = "") -> Iterator[Requirement]:
    """What a line installs or clones. `on_disk`: paths count, as no command before may have put a release there.
    `folder`: where the line starts, if that is known.
    """
    image = _IMAGE.match(line)
    started = _STARTED.finditer(line) if image is None and _ENGINES.search(line) is not None else ()
    for one in started if image is None else (image,):
        yield from of_image(one[1].lower(), one[2])
    for command in _INSTALL.finditer(line):
        conda = "pip" not in command[0].split()[0]
        changes = _CHANGE.findall(line, 0, command.start()) if folder else []
        here = posixpath.join(folder, *changes)
        for word in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", command[1]):
            asked = word.strip("\"'")
            asked = _HERE.sub(here, asked) if folder and _HERE.match(asked) else asked
            found = requirement.of_conda(asked) if conda else _asked(asked, on_disk)
            if found is not None:
                yield found
    for command in _UV.finditer(line):
        for word in _WITH.findall(command[1]):
            found = _asked(word.strip("\"'"), on_disk)
            if found is not None:
                yield found
    for command in _CLONE.finditer(line):
        tag = re.search(r"(?:-b|--branch)[ =]+(\S+)", command[1])
        address = re.search(r"(?:https?://|git@)\S+", command[1])
        if address is not None:
            found = requirement.of_address(
                requirement.git_address(address[0].rstrip("/"), "" if tag is None else tag[1])
            )
            if found is not None:
                yield found


def of_image(image: str, tag: str) -> Iterator[Requirement]:
    """The packages that an image holds, according to its tag."""
    for package, inside in _inside(image):
        release = re.match(r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc)\d+)?)(?=-|$)", tag)
        if release is not None:
            yield Requirement(package, Constraint((("==", release[1]),)))
        built_on = _DATED.search(tag)
        if built_on is not None and packages()[package].dates:
            yield Requirement(package, _built_on("-".join(built_on.groups()), packages()[package].dates))
        for other, pattern in inside.items():
            built = re.search(pattern, tag)
            if built is not None:
                yield Requirement(other, Constraint((("==", built[1]),)))


def _inside(image: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The packages that images of a name hold, each with the patterns of further ones in the tag."""
    for one in packages().values():
        yield from ((one.name, inside) for name, inside in one.images.items() if re.fullmatch(name, image))


_DATED: Final = re.compile(r"(?:^|-)(20\d\d)-?(\d\d)-?(\d\d)(?=-|$)")
"""The day on which an image was built of the development branch."""


def _built_on(day: str, dates: Mapping[str, str]) -> Constraint:
    """The releases before and after a day, between which the development branch stood. `dates` in ascending order."""
    before = [(">=", release) for release, date in dates.items() if date <= day]
    after = [release for release, date in dates.items() if date > day]
    following = [("<=" if before else "<", after[0])] if after else []
    return Constraint((*before[-1:], *following))


# --- Commands -----------------------------------------------------------------------------------------------------

_COMMANDS: Final = ("git", "install", "docker", "podman", "singularity", "apptainer", "enroot", "uv")
_CHECKOUT: Final = re.compile(r"(?:^|&&|;)\s*(?:\$ )?git\s+checkout\s+(?:tags/)?([\w./-]+)\s*(?:$|&&|;|#|>)")
_TREE: Final = re.compile(r"https?://github\.com/([\w.-]+/[\w.-]+)/(?:tree|commit)/([\w./-]+)")
_USUAL: Final = ("main", "master")
_MOST_COMMANDS: Final = 2000
"""Of one read-me file or script: what they install or clone."""
_NEAR: Final = 3
"""Lines after a `git clone` in which `git checkout` refers to the clone."""


def forks_in(path: str, text: str) -> Iterator[Pin]:
    """The forks and unreleased revisions that a read-me file or a script has its reader install or clone, and those
    that its links lead to.
    """
    found = list(islice(commands_in(path, text), _MOST_COMMANDS))
    for number, line in enumerate(text.splitlines(), 1):
        for name, ref in _trees(line) if len(line) <= requirement.LONGEST and "github.com" in line else ():
            one = requirement.of_address(requirement.git_address(f"https://github.com/{name}", ref))
            found += _pinned(one, path, number, REQUIRED)
    yield from sorted((pin for pin in found if pin.fork or pin.unreleased), key=lambda pin: pin.line)


_REPOSITORY: Final = re.compile(r"github\.com/([\w.-]+/[\w.-]+)")


def former_in(path: str, text: str) -> Iterator[Pin]:
    """The packages to whose former repositories a read-me file leads."""
    if "github.com/" not in text:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for name in _REPOSITORY.findall(line.lower()) if len(line) <= requirement.LONGEST else ():
            package = requirement.FORMER.get(name.removesuffix(".git"))
            if package is not None:
                yield Pin(package, Constraint(), path, number, REQUIRED, former=True)


def commands_in(path: str, text: str) -> Iterator[Pin]:
    """What the commands of a text install or clone: releases, and revisions that are none."""
    cloned, at = "", 0
    for number, line in _joined(text):
        if len(line) > requirement.LONGEST or not any(word in line for word in _COMMANDS):
            continue
        checkout = _CHECKOUT.search(line)
        clone = _CLONE.search(line)
        found: list[Requirement | None] = list(_run(line, on_disk=False))
        if clone is not None and (address := re.search(r"https?://\S+", clone[1])) is not None:
            cloned, at = address[0].rstrip("/"), number
        if checkout is not None and cloned and number - at <= _NEAR:
            found.append(requirement.of_address(requirement.git_address(cloned, checkout[1])))
        for one in found:
            yield from _pinned(one, path, number, REQUIRED)


def _trees(line: str) -> Iterator[tuple[str, str]]:
    """The repositories of frameworks that links lead into, each with its revision."""
    for name, revision in _TREE.findall(line):
        revision = revision.rstrip(".")
        if requirement.REPOSITORIES.get(name.lower()) and revision.split("/")[0] not in _USUAL:
            yield name, revision
