"""The releases that a migration starts from and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import find_dependent_frameworks, find_vocabulary, list_frameworks, map_spellings
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.settings import cluster_facts


class Goal(Frozen):
    """Target and start releases by package."""

    to: Mapping[str, str]
    start: Mapping[str, str] = {}
    """Releases that the configurations were written for; missing ones are inferred from the files or the repository."""

    @property
    def frameworks(self) -> frozenset[str]:
        """Frameworks whose files are rewritten."""
        return frozenset(name for package in self.to for name in _list_frameworks(package))

    def find_package(self, framework: str) -> str:
        """Return the package whose target release the framework's keys are checked against, preferably its own."""
        packages = [package for package in self.to if framework in _list_frameworks(package)]
        return next((package for package in packages if package == list_frameworks()[framework].package), packages[0])


def _list_frameworks(package: str) -> list[str]:
    """Return the frameworks whose keys are checked against the release of a package."""
    candidates = ((name, frameworks.load(name).keys) for name in find_dependent_frameworks(package))
    return [name for name, keys in candidates if keys is not None and keys.is_checked]


def parse_goal(to: Iterable[str], start: Iterable[str] = ()) -> Goal:
    """Parse strings such as `openrlhf=0.11.2`; in `to`, a name alone means its newest release.

    Raise `UsageError` if a string is invalid, or if a package in `start` has no target.
    """
    targets = dict(_parse_release("--to", text) for text in to)
    starts = dict(_parse_release("--from", text) for text in start)
    for package in starts:
        if package not in targets:
            raise UsageError(f"--from {package} needs --to {package}=RELEASE")
    return Goal(targets, starts)


def _parse_release(flag: str, text: str) -> tuple[str, str]:
    name, sign, release = text.partition("=")
    package = map_spellings().get(name)
    if package is None or not _list_frameworks(package):
        names = [name for name, target in map_spellings().items() if _list_frameworks(target)]
        hint = suggest_name(name.lower(), names, f"known: {', '.join(names)}")
        raise UsageError(f"{flag} {text}: expected NAME=RELEASE; {hint}")
    release = release.removeprefix("=")
    if not sign and flag == "--to":
        release = _find_newest(package)
    try:
        cluster_facts.check(package, FieldValue(release, Origin("user", note="command line")))
    except cluster_facts.FactError as error:
        raise UsageError(f"{flag} {text}: {error.message}") from None
    return package, release


def _find_newest(package: str) -> str:
    if package in list_frameworks():
        return frameworks.load(package).default_release
    from cfglint_schemas.vocabulary import load

    vocabulary = find_vocabulary(package)
    assert vocabulary is not None
    return load(vocabulary).packages[package][-1]
