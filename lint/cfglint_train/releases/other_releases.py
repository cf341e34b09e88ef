"""Other releases: defaults that a run would have at the other candidate releases of its packages.

A default that all candidates share follows from the config; a default that differs between them is assumed (design.md,
section 7). cfglint reads the config again at every candidate, so this covers every framework, and defaults in code as
well as in tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Auto, Config, Lens
from cfglint_train.frameworks.lens_types import has_fixed_default
from cfglint_train.plan.certainty import RELEASE
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue
from cfglint_train.plan.reading import ResolvedPlan, is_equal
from cfglint_train.plan.releases import Releases


class AlternativeDefaults(Frozen):
    """A candidate release whose defaults differ from those of the chosen release."""

    fact: str
    chosen: str
    """Release whose defaults are used."""
    release: str
    defaults: Mapping[Field, FieldValue | None]
    """Default by field; None for a field without a default at `release`."""


class _ReleaseProbe(Config):
    """A config that records whether its releases are read, so that lenses without this need are read once."""

    __slots__ = ("_dependent", "_releases", "is_release_read")

    def __init__(self, config: Config, releases: Releases) -> None:
        """Copy a config with other releases."""
        self.is_release_read = False
        self._dependent: set[Hashable] = set()
        super().__init__(config.framework, config.document, releases, config.root, config.role, config.overrides)
        self.adopt_facts(config)

    @property
    def releases(self) -> Releases:
        """Releases; the read is recorded."""
        self.is_release_read = True
        return self._releases

    @releases.setter
    def releases(self, releases: Releases) -> None:
        self._releases = releases

    @property
    def default_note(self) -> str:
        """Note on the origin of the framework's defaults, which decides no value."""
        return f"{self.framework} {self._releases.by_package[self.framework].version}"

    def compute_once(self, work: Callable[..., Any], *arguments: Hashable) -> Any:
        """Return the cached result of `work`; if its computation read the releases, so does every use."""
        key = (work, *arguments)
        was_read, self.is_release_read = self.is_release_read, key in self._dependent
        result = super().compute_once(work, *arguments)
        if self.is_release_read:
            self._dependent.add(key)
        self.is_release_read |= was_read
        return result


def find_alternative_defaults(configs: Iterable[Config], base: ResolvedPlan) -> tuple[AlternativeDefaults, ...]:
    """Return the releases at which the defaults of a run's configs differ from those in use.

    For each package and each distinct set of defaults, only the newest candidate is returned.
    """
    return tuple(
        alternative
        for config in configs
        for package in _list_packages(config)
        for alternative in _find_for_package(config, package, base)
    )


def _list_packages(config: Config) -> Iterator[str]:
    """Yield the packages whose defaults a config uses and whose release is not stated."""
    manifest = frameworks.load(config.framework).manifest
    for package in (manifest.package, manifest.companion_package):
        if package in config.releases.by_package and not config.releases.is_stated(package):
            yield package


def _find_for_package(config: Config, package: str, base: ResolvedPlan) -> Iterator[AlternativeDefaults]:
    window = config.releases.find_candidates(package)
    framework = frameworks.load(config.framework)
    current = frameworks.read_config(config) if len(window.releases) > 1 else ResolvedPlan()
    # A lens whose fields are all stated has no default that could differ.
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
    values: Mapping[Field, FieldValue]
    is_probed = False
    for release in reversed(window.releases):
        if release == window.chosen:
            continue
        if is_probed:
            values = frameworks.read_lenses(lenses, config.replace_release(package, release)).values
        else:
            probe, is_probed = _ReleaseProbe(config, config.releases.replace_release(package, release)), True
            values, moving_fields = _read_and_probe(lenses, probe)
            current_defaults = {field: value for field, value in current_defaults.items() if field in moving_fields}
            # A later lens may override a field, so all lenses of a field are read.
            lenses = tuple(lens for lens in lenses if not moving_fields.isdisjoint(lens.fields))
        defaults = {
            field: values.get(field)
            for field, default in current_defaults.items()
            if _is_default(other := values.get(field)) and not is_equal(default, _get_value(other))
        }
        if defaults and not any(_is_same(defaults, other) for other in seen):
            seen.append(defaults)
            yield AlternativeDefaults(f"{RELEASE}{package}", window.chosen, release, defaults)


def _read_and_probe(lenses: Iterable[Lens], config: _ReleaseProbe) -> tuple[Mapping[Field, FieldValue], Set[Field]]:
    """Return the fields that `lenses` read in a config, and those of the lenses that read its releases."""
    plan = ResolvedPlan()
    moving_fields: set[Field] = set()
    for lens in lenses:
        config.is_release_read = False
        plan.update(frameworks.read_lenses((lens,), config))
        if config.is_release_read:
            moving_fields.update(lens.fields)
    return plan.values, moving_fields


def _is_default_in_both(field: Field, base: ResolvedPlan, config_plan: ResolvedPlan) -> bool:
    """Return whether both the config and the run use a field's default, and the same value."""
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
