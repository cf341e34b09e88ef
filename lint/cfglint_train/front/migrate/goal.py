"""The releases that a migration goes to, and those that it comes from where they are stated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.wording import did_you_mean
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.registry import keyed_by, listed, spellings, vocabulary_of
from cfglint_train.plan.origin import Origin, Value
from cfglint_train.settings import cluster_facts


class Goal(Frozen):
    """Releases by package."""

    to: Mapping[str, str]
    start: Mapping[str, str] = {}
    """What the configurations are written for; where it is not here, they or their repository determine it."""

    @property
    def frameworks(self) -> frozenset[str]:
        """The frameworks whose files are rewritten."""
        return frozenset(name for package in self.to for name in _frameworks(package))

    def package(self, framework: str) -> str:
        """The package of the goal that a framework's keys are checked against, its own first."""
        named = [package for package in self.to if framework in _frameworks(package)]
        return next((package for package in named if package == listed()[framework].package), named[0])


def _frameworks(package: str) -> list[str]:
    """The frameworks whose files are rewritten for a release of a package: those that have their keys checked."""
    found = ((name, frameworks.load(name).keys) for name in keyed_by(package))
    return [name for name, keys in found if keys is not None and keys.checked]


def goal(to: Iterable[str], start: Iterable[str] = ()) -> Goal:
    """Read `openrlhf=0.11.2` (a name alone is its newest release). Raises UsageError."""
    wanted = dict(_read("--to", text) for text in to)
    before = dict(_read("--from", text) for text in start)
    for package in before:
        if package not in wanted:
            raise UsageError(f"--from {package}: the release to migrate to is not stated (--to {package}=RELEASE)")
    return Goal(wanted, before)


def _read(flag: str, text: str) -> tuple[str, str]:
    name, sign, release = text.partition("=")
    package = spellings().get(name)
    if package is None or not _frameworks(package):
        known = [name for name, of in spellings().items() if _frameworks(of)]
        hint = did_you_mean(name.lower(), known, f"the names are {', '.join(known)}")
        raise UsageError(f"{flag} {text}: expected NAME=RELEASE; {hint}")
    release = release.removeprefix("=")
    if not sign and flag == "--to":
        release = _newest(package)
    try:
        cluster_facts.check(package, Value(release, Origin("user", note="command line")))
    except cluster_facts.FactError as error:
        raise UsageError(f"{flag} {text}: {error.message}") from None
    return package, release


def _newest(package: str) -> str:
    if package in listed():
        return frameworks.load(package).newest
    from cfglint_schemas.vocabulary import load

    vocabulary = vocabulary_of(package)
    assert vocabulary is not None
    return load(vocabulary).packages[package][-1]
