"""What a run's framework takes by default at the other releases that it may run on.

A default that all candidates share follows from the configuration; one that differs between them is assumed (design.md,
section 7). The configuration is read once more at every candidate, so that this holds for each framework, and for
defaults that code decides on as for those of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Auto, Config
from cfglint_train.frameworks.lens_types import is_fixed
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Value
from cfglint_train.plan.reading import ResolvedPlan, same

RELEASE: Final = "release:"
"""Prefix of a package of unknown release, among the facts of a run that are no plan fields."""


class Elsewhere(Frozen):
    """A candidate whose defaults are others than those of the release that counts."""

    fact: str
    chosen: str
    """The release that counts."""
    release: str
    defaults: Mapping[Field, Value | None]
    """None where it has no default."""


def elsewhere(configs: Iterable[Config], base: ResolvedPlan) -> tuple[Elsewhere, ...]:
    """One candidate, the newest, for each set of other defaults than those in what the files of a run say together."""
    return tuple(found for config in configs for package in _packages(config) for found in _each(config, package, base))


def _packages(config: Config) -> Iterator[str]:
    """The packages whose defaults a configuration takes, where the release is not stated."""
    listed = frameworks.load(config.framework).listed
    for package in (listed.package, listed.beside):
        if package in config.releases.known and not config.releases.stated(package):
            yield package


def _each(config: Config, package: str, base: ResolvedPlan) -> Iterator[Elsewhere]:
    window = config.releases.window(package)
    framework = frameworks.load(config.framework)
    here = frameworks.read(config) if len(window.releases) > 1 else ResolvedPlan()
    # A lens all of whose fields are stated has no default that could be another.
    moving = {field for lens in framework.lenses if not is_fixed(lens) for field in lens.fields}
    lenses = tuple(
        lens
        for lens in framework.lenses
        if not moving.isdisjoint(lens.fields) and any(_is_default(here.values.get(one)) for one in lens.fields)
    )
    fields = {field for lens in lenses for field in lens.fields}
    taken = {field: _plain(here.values.get(field)) for field in fields if _is_of_both(field, base, here)}
    found: list[Mapping[Field, Value | None]] = []
    for release in reversed(window.releases):
        if release == window.chosen:
            continue
        there = frameworks.read_by(lenses, config.at(package, release)).values
        defaults = {
            field: there.get(field)
            for field, own in taken.items()
            if _is_default(other := there.get(field)) and not same(own, _plain(other))
        }
        if defaults and not any(_alike(defaults, other) for other in found):
            found.append(defaults)
            yield Elsewhere(f"{RELEASE}{package}", window.chosen, release, defaults)


def _is_of_both(field: Field, base: ResolvedPlan, here: ResolvedPlan) -> bool:
    """Whether a configuration takes a default for a field, and the run with it."""
    known, own = base.values.get(field), here.values.get(field)
    return _is_default(known) and _is_default(own) and same(_plain(known), _plain(own))


def _is_default(value: Value | None) -> bool:
    return value is None or (value.origin.kind == "default" and not isinstance(value.value, Auto))


def _alike(one: Mapping[Field, Value | None], other: Mapping[Field, Value | None]) -> bool:
    return one.keys() == other.keys() and all(same(_plain(one[field]), _plain(other[field])) for field in one)


def _plain(value: Value | None) -> Any:
    return None if value is None else value.value
