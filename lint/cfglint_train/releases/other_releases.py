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
from cfglint_train.frameworks.lens_types import has_fixed_default
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue
from cfglint_train.plan.reading import ResolvedPlan, is_equal

RELEASE: Final = "release:"
"""Prefix of a package of unknown release, among the facts of a run that are no plan fields."""


class AlternativeDefaults(Frozen):
    """A candidate whose defaults are others than those of the release that counts."""

    fact: str
    chosen: str
    """The release that counts."""
    release: str
    defaults: Mapping[Field, FieldValue | None]
    """None where it has no default."""


def find_alternative_defaults(configs: Iterable[Config], base: ResolvedPlan) -> tuple[AlternativeDefaults, ...]:
    """One candidate, the newest, for each set of other defaults than those in what the files of a run say together."""
    return tuple(
        alternative
        for config in configs
        for package in _list_packages(config)
        for alternative in _find_for_package(config, package, base)
    )


def _list_packages(config: Config) -> Iterator[str]:
    """The packages whose defaults a configuration takes, where the release is not stated."""
    manifest = frameworks.load(config.framework).manifest
    for package in (manifest.package, manifest.companion_package):
        if package in config.releases.by_package and not config.releases.is_stated(package):
            yield package


def _find_for_package(config: Config, package: str, base: ResolvedPlan) -> Iterator[AlternativeDefaults]:
    window = config.releases.find_candidates(package)
    framework = frameworks.load(config.framework)
    current = frameworks.read_config(config) if len(window.releases) > 1 else ResolvedPlan()
    # A lens all of whose fields are stated has no default that could be another.
    default_fields = {field for lens in framework.lenses if not has_fixed_default(lens) for field in lens.fields}
    lenses = tuple(
        lens
        for lens in framework.lenses
        if not default_fields.isdisjoint(lens.fields)
        and any(_is_default(current.values.get(name)) for name in lens.fields)
    )
    fields = {field for lens in lenses for field in lens.fields}
    current_defaults = {
        field: _get_value(current.values.get(field)) for field in fields if _is_default_in_both(field, base, current)
    }
    seen: list[Mapping[Field, FieldValue | None]] = []
    for release in reversed(window.releases):
        if release == window.chosen:
            continue
        other_values = frameworks.read_lenses(lenses, config.replace_release(package, release)).values
        defaults = {
            field: other_values.get(field)
            for field, default in current_defaults.items()
            if _is_default(other := other_values.get(field)) and not is_equal(default, _get_value(other))
        }
        if defaults and not any(_is_same(defaults, other) for other in seen):
            seen.append(defaults)
            yield AlternativeDefaults(f"{RELEASE}{package}", window.chosen, release, defaults)


def _is_default_in_both(field: Field, base: ResolvedPlan, config_plan: ResolvedPlan) -> bool:
    """Whether a configuration takes a default for a field, and the run with it."""
    run_value, config_value = base.values.get(field), config_plan.values.get(field)
    return (
        _is_default(run_value)
        and _is_default(config_value)
        and is_equal(_get_value(run_value), _get_value(config_value))
    )


def _is_default(value: FieldValue | None) -> bool:
    return value is None or (value.origin.kind == "default" and not isinstance(value.value, Auto))


def _is_same(first: Mapping[Field, FieldValue | None], second: Mapping[Field, FieldValue | None]) -> bool:
    return first.keys() == second.keys() and all(
        is_equal(_get_value(first[field]), _get_value(second[field])) for field in first
    )


def _get_value(value: FieldValue | None) -> Any:
    return None if value is None else value.value
