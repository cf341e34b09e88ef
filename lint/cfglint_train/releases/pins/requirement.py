"""Requirements in the syntax of pip, poetry and conda: the package and its allowed releases."""

from __future__ import annotations

import re

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, parse_release, strip_local_label
from cfglint_train.frameworks.registry import list_packages

PACKAGES: Final = {name: package.name for package in list_packages().values() for name in package.distributions}
"""Name on PyPI or conda -> cfglint's package name."""

REPOSITORIES: Final = {name: package.name for package in list_packages().values() for name in package.repositories}
"""GitHub repository (lower case) whose tags are releases -> its package."""
FORMER_REPOSITORIES: Final = {
    name: package.name for package in list_packages().values() for name in package.former_repositories
}
"""Former GitHub repository (lower case) -> the package that has moved elsewhere."""

_RELEASE: Final = r"v?\d+(?:\.\d+)*(?:[._-]?(?:a|b|rc|post|dev)\d*)?(?:\.?dev\d*)?(?:\+[\w.]+)?"
_REQUIREMENT: Final = compile_on_use(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)[ \t]*(?:\[[^\]]*\])?[ \t]*"
    r"(?:@[ \t]*(?P<url>\S+)|\(?[ \t]*(?P<comparisons>[^;()@#]*?)[ \t]*\)?)[ \t]*(?:;(?P<marker>.*))?"
)
# `git+https://user:token@host/owner/name.git@revision#egg=name`, `https://host/name.git`, `git@host:owner/name.git`.
_GIT: Final = compile_on_use(
    r"(?:git\+[a-z]+://|[a-z]+://(?=\S+\.git\b)|(?=git@))(?:[^/@\s]+@)?(?P<place>[^\s#?&]+)", re.IGNORECASE
)
# GitHub's archive of a branch, a tag or a commit.
_ARCHIVE: Final = compile_on_use(
    r"https://(?:github\.com|codeload\.github\.com)/([\w.-]+/[\w.-]+)/(?:archive/|zip/|tar\.gz/)"
    r"(?:refs/(?:heads|tags)/)?([\w./-]+?)(?:\.zip|\.tar\.gz)?(?:[#?].*)?$"
)
_COMPARISON: Final = compile_on_use(rf"(===|==|!=|>=|<=|~=|>|<)[ \t]*({_RELEASE}(?:\.\*)?)")


_FILE: Final = compile_on_use(rf"/([A-Za-z0-9_.]+)-({_RELEASE})(?:-[^/]*\.whl|\.tar\.gz)(?:#|$)")
"""Pattern for a wheel or source archive at the end of an address, after `%2B` is replaced with `+`."""
MAX_LENGTH: Final = 2000
"""Maximum length of a requirement in characters; longer lines are not written by hand, and are ignored."""


class Requirement(Frozen):
    """A known package and its allowed releases."""

    package: str
    constraint: Constraint
    fork: str = ""
    """Repository and revision, or folder, of an installed fork; empty for upstream."""
    unreleased: str = ""
    """Upstream's repository and the installed revision, if that is not a release; else empty."""


def parse_pip_requirement(text: str) -> Requirement | None:
    """Parse a PEP 508 requirement: `torch==2.6.0`, `axolotl[deepspeed]>=0.12; sys_platform == "linux"`, `name @ URL`.

    Return None if the package is unknown, no release is named, or the marker excludes Linux.
    """
    match = _REQUIREMENT.fullmatch(text.strip()) if len(text) <= MAX_LENGTH else None
    package = None if match is None else get_package(match["name"])
    if match is None or package is None or not can_install_on_linux(match["marker"] or ""):
        return None
    if match["url"]:
        return parse_address(match["url"], package) or (
            parse_path_requirement(match["url"], package) if match["url"].startswith("file:") else None
        )
    return _build_requirement(package, parse_comparisons(match["comparisons"] or ""))


_BETWEEN_WORDS: Final = compile_on_use(r"[-_.]+")


def get_package(name: str) -> str | None:
    """Return cfglint's package name for a distribution in any spelling, or None if it is unknown."""
    return PACKAGES.get(_BETWEEN_WORDS.sub("-", name).lower())


def parse_comparisons(text: str) -> Constraint | None:
    """Parse comparisons such as `>=4.45,<4.53`; return None if a part is not a comparison."""
    parts = []
    for part in text.split(","):
        if part.strip():
            match = _COMPARISON.fullmatch(part.strip())
            if match is None:
                return None
            parts.append((match[1], match[2] if match[2].endswith(".*") else strip_local_label(match[2])))
    return Constraint(tuple(parts))


def parse_url_release(url: str, package: str | None = None) -> str | None:
    """Return the release that an address names by a tag of the package's repository or by a file, or None."""
    tag = re.search(rf"github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?@({_RELEASE})(?:#|$)", url)
    if tag is not None and (package is None or REPOSITORIES.get(tag[1].lower()) == package):
        return strip_local_label(tag[2])
    file = _FILE.search(url.replace("%2B", "+"))
    if file is not None and package is not None and get_package(file[1]) == package:
        return strip_local_label(file[2])
    return None


def parse_address(url: str, package: str | None = None) -> Requirement | None:
    """Return the release, unreleased upstream revision, or fork that an address installs, or None.

    Without `package`, the repository, the wheel or `#egg=NAME` determines the package.
    """
    archive = _ARCHIVE.match(url)
    if archive is not None:
        url = f"git+https://github.com/{archive[1]}@{archive[2]}"
    git = _GIT.match(url)
    package = package or _find_address_package(url, git)
    if package is None:
        return None
    release = parse_url_release(url, package)
    if release is not None:
        return Requirement(package, Constraint((("==", release),)))
    if git is None:
        return None
    repository_text = format_repository(url)
    if find_upstream_package(url) == package:
        return Requirement(package, Constraint(), unreleased=repository_text)
    return Requirement(package, Constraint(), repository_text)


_PATH: Final = compile_on_use(r"(?:file:(?://)?)?([\w.~-]*/[\w./+~-]+?)/?(?:\[[\w, -]*\])?(?:#.*)?")
_WHEEL: Final = compile_on_use(rf"([A-Za-z0-9_.]+)-({_RELEASE})(?:-[\w.-]+\.whl|\.tar\.gz)")


def parse_path_requirement(text: str, package: str | None = None) -> Requirement | None:
    """Return the requirement of a local wheel or source archive, or of a folder that contains a package, or None.

    A folder counts as a fork, because its source is unknown. Its package is `package`, or else the package
    that the folder is named after.
    """
    match = _PATH.fullmatch(text.replace("%2B", "+")) if len(text) <= MAX_LENGTH else None
    if match is None:
        return None
    wheel = _WHEEL.fullmatch(match[1].rpartition("/")[2])
    if wheel is not None:
        wheel_package = get_package(wheel[1])
        return (
            None
            if wheel_package is None
            else Requirement(wheel_package, Constraint((("==", strip_local_label(wheel[2])),)))
        )
    package = package or match_package_name(match[1])
    return None if package is None else Requirement(package, Constraint(), match[1])


def format_repository(url: str) -> str:
    """Return a git address without its scheme and credentials: `github.com/owner/name@revision`."""
    git = _GIT.match(url)
    return url if git is None else re.sub(r"\.git(?=@|$)", "", git["place"].replace(":", "/", 1).rstrip("/"))


def find_upstream_package(url: str) -> str | None:
    """Return the package whose upstream repository is at a git address, at any revision, or None."""
    return REPOSITORIES.get("/".join(_strip_revision(url).lower().split("/")[-2:]))


def _strip_revision(url: str) -> str:
    """Return a repository's address without its revision."""
    return format_repository(url).partition("@")[0].removesuffix(".git")


def _find_address_package(url: str, git: re.Match[str] | None) -> str | None:
    egg = re.search(r"#(?:.*&)?egg=([\w.-]+)", url)
    if egg is not None:
        return get_package(egg[1])
    file = _FILE.search(url.replace("%2B", "+"))
    if file is not None:
        return get_package(file[1])
    return None if git is None else find_upstream_package(url) or match_package_name(_strip_revision(url))


def match_package_name(path: str) -> str | None:
    """Return the package that a repository or folder is named after, regardless of its owner, or None."""
    return _NAMESAKES.get(_normalise_name(path.rstrip("/").removesuffix(".git").rpartition("/")[2]))


def _normalise_name(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


_NAMESAKES: Final = {
    _normalise_name(name.rpartition("/")[2]): package for name, package in (*PACKAGES.items(), *REPOSITORIES.items())
}


def parse_poetry_requirement(name: str, text: str) -> Requirement | None:
    """Parse a version of `[tool.poetry.dependencies]`: `^2.4`, `~2.4`, `2.4.*`, `2.4.0`, `>=2.4,<2.6`.

    Return None if the package is unknown, or the version is invalid or unrestricted.
    """
    package = get_package(name)
    if package is None:
        return None
    parts: list[tuple[str, str]] = []
    for part in text.split(","):
        part = part.strip()
        caret = re.fullmatch(rf"([\^~]?)[ \t]*({_RELEASE})", part)
        if caret is not None:
            parts += (
                _expand_caret(caret[1], strip_local_label(caret[2]))
                if caret[1]
                else [("==", strip_local_label(caret[2]))]
            )
        elif re.fullmatch(r"\d+(?:\.\d+)*\.\*", part):
            parts.append(("==", part))
        elif part not in ("", "*"):
            plain = parse_comparisons(part)
            if plain is None:
                return None
            parts += plain.comparisons
    return _build_requirement(package, Constraint(tuple(parts)))


def _expand_caret(sign: str, release: str) -> list[tuple[str, str]]:
    """Return the bounds of a caret or tilde: `^` fixes the first nonzero number, `~` the first two numbers."""
    numbers = [int(part) for part in re.findall(r"\d+", release)[: release.count(".") + 1]]
    kept_index = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    if sign == "~":
        kept_index = min(1, len(numbers) - 1)
    following = [*numbers[:kept_index], numbers[kept_index] + 1]
    return [(">=", release), ("<", ".".join(map(str, following)))]


_SPECIFICATION: Final = compile_on_use(r"(?:[\w./-]+::)?(?P<name>[A-Za-z0-9._-]+)[ \t]*(?P<rest>[^#]*)")


def parse_conda_requirement(text: str) -> Requirement | None:
    """Parse a conda match specification, or return None if the package is unknown or no release is named.

    Examples: `pytorch=2.4`, `pytorch::pytorch==2.4.1=py3.11_cuda12.4*`, `transformers>=4.45`.
    """
    if len(text) > MAX_LENGTH:
        return None
    match = _SPECIFICATION.fullmatch(text.strip())
    package = get_package(match["name"]) if match is not None else None
    if match is None or package is None:
        return None
    rest = match["rest"].strip()
    version_match = re.fullmatch(rf"(==?|[ \t])?[ \t]*({_RELEASE})(\.?\*)?(?:[= \t].*)?", rest)
    if version_match is None:
        return _build_requirement(package, parse_comparisons(rest))
    release = strip_local_label(version_match[2])
    exact = version_match[1] == "==" or (not version_match[3] and release.count(".") >= 2)
    return Requirement(package, Constraint((("==", release if exact else f"{release}.*"),)))


def _build_requirement(package: str, constraint: Constraint | None) -> Requirement | None:
    if constraint is None or not constraint.comparisons:
        return None
    for operator, bound in constraint.comparisons:
        if operator == "~=" and "." not in bound:
            return None  # pip rejects it
        parse_release(bound)
    return Requirement(package, constraint)


# --- markers ---------------------------------------------------------------------------------------------------------

# Training runs on Linux; other markers are unknown.
_LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
_MARKER_TEST: Final = compile_on_use(r"(\w+)\s*(==|!=)\s*['\"]([^'\"]*)['\"]|['\"]([^'\"]*)['\"]\s*(==|!=)\s*(\w+)")


def can_install_on_linux(marker: str) -> bool:
    """Return whether a marker may hold on Linux; False only if it certainly does not."""
    alternatives = re.split(r"\bor\b", marker)
    return any(all(_can_hold(test) for test in re.split(r"\band\b", alternative)) for alternative in alternatives)


def _can_hold(test: str) -> bool:
    match = _MARKER_TEST.fullmatch(test.strip(" \t()"))
    if match is None:
        return True
    name, operator, value = (match[1], match[2], match[3]) if match[1] else (match[6], match[5], match[4])
    return name not in _LINUX or (_LINUX[name] == value) == (operator == "==")


def format_git_address(url: str, revision: str) -> str:
    """Return a repository at a revision (empty: its default branch) in pip's syntax."""
    plain = url if "://" in url else f"ssh://{url.replace(':', '/', 1)}"
    return f"git+{plain.removesuffix('.git')}{revision and f'@{revision}'}"
