"""Effects by release: the effect of a key or value for every candidate release, and its severity.

A finding is an error only if all candidate releases reject the setting. If the releases differ, the effective release
decides, because a fresh installation gets it: the finding is an info if that release accepts the setting, and a warning
that names the releases if it rejects or ignores the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from cfglint_rules.vocabulary.survey import (
    REFUSED,
    KeyOccurrence,
    get_checked_keys,
    get_context,
    get_target_release,
    get_vocabulary,
)
from cfglint_rules.vocabulary.values import format_value
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.releases import PossibleReleases

ACCEPTED: Final = "fine"
"""Effect of a setting that a release accepts as intended."""

_EFFECT_PHRASES: Final = {
    ACCEPTED: "accepted",
    "mapped": "accepted",
    "nothing": "accepted but ignored",
    "dropped": "silently ignored",
    "warning": "ignored with a warning",
    "error": "refused",
}


class EffectByRelease(Frozen):
    """Effects of a key or value for a range of candidate releases."""

    spans: tuple[tuple[str, tuple[str, ...]], ...]
    """Effects with their releases, oldest first; adjacent effects differ."""
    candidates: PossibleReleases

    @property
    def effects(self) -> frozenset[str]:
        """Set of the effects, without releases."""
        return frozenset(effect for effect, _ in self.spans)

    @property
    def is_uniform(self) -> bool:
        """True if all releases have the same effect."""
        return len(self.spans) == 1

    @property
    def grounds(self) -> tuple[Ground, ...]:
        """Ground for a finding: the candidate releases, or nothing if a release is stated."""
        return build_release_grounds(self.candidates, self.is_uniform and not self.candidates.is_too_old)

    @property
    def current_effect(self) -> str:
        """Effect for the effective release."""
        chosen = self.candidates.chosen
        return next((effect for effect, releases in self.spans if chosen in releases), self.spans[-1][0])

    def limit_severity(self, severity: Severity) -> Severity:
        """Return the severity of a finding, lowered if not all candidate releases agree.

        It is info if the effective release accepts the setting, or if the run installs a revision between releases. An
        error becomes a warning unless all candidates reject the setting and none may be older than all known releases.
        """
        if self.current_effect in (ACCEPTED, "mapped") or (self.candidates.is_revision and not self.is_uniform):
            return "info"
        is_certain = self.effects == {REFUSED} and not self.candidates.is_too_old  # older releases may accept it
        return "warning" if severity == "error" and not is_certain else severity

    def describe(self) -> str:
        """Describe the effects, newest releases first: `it is refused since 0.17.1, silently ignored before`."""
        (effect, releases), *older = reversed(self.spans)
        if not older:
            return f"it is {_EFFECT_PHRASES[effect]}"
        parts = [f"it is {_EFFECT_PHRASES[effect]} since {releases[0]}"]
        for position, (other, span) in enumerate(older, 1):
            period = "before" if position == len(older) else f"from {span[0]} to {span[-1]}"
            parts.append(f"{_EFFECT_PHRASES[other]} {period}")
        return ", ".join(parts)


def compute_effects(candidates: PossibleReleases, find_effect: Callable[[str], str]) -> EffectByRelease:
    """Return the effects for the candidate releases; `find_effect` returns the effect at a release."""
    grouped = groupby(candidates.releases, key=find_effect)
    return EffectByRelease(tuple([(effect, tuple(span)) for effect, span in grouped]), candidates)


def build_setting_ground(name: str, value: Any, assumption: str) -> Ground:
    """Return the ground for a setting whose value rests on an assumption."""
    prefix = f"`{name}`"
    note = assumption if assumption.startswith(prefix) else f"{prefix}: {assumption}"
    return Ground(f"setting:{name}", format_value(value), "assumed", note)


def build_release_grounds(candidates: PossibleReleases, is_uniform: bool) -> tuple[Ground, ...]:
    """Return the candidate releases as a ground, assumed unless they agree; nothing if a release is stated."""
    if candidates.is_stated:
        return ()
    is_uniform = is_uniform and not candidates.is_assumed
    first, last = candidates.releases[0], candidates.releases[-1]
    release_range = first if first == last else f"{first} to {last}"
    note = (
        " and ".join(candidates.reasons)
        if is_uniform
        else f"{candidates.package} {release_range} (set `{candidates.package}=RELEASE` to be sure)"
    )
    return (Ground(f"release:{candidates.package}", release_range, "followed" if is_uniform else "assumed", note),)


def find_candidate_releases(config: Config, package: str | None = None) -> PossibleReleases:
    """Return the candidate releases of a config's framework, or of another package.

    A copy of the framework in the repository counts as a single release, because its vocabulary does not vary.
    """
    framework_package = frameworks.load(config.framework).manifest.package
    if config.evidence.vocabulary is not None and package in (None, framework_package):
        release = get_target_release(config).release
        return PossibleReleases(
            framework_package,
            (release,),
            release,
            is_stated=False,
            reasons=(f"the copy in {config.evidence.vocabulary.folder}/",),
        )
    return config.releases.find_candidates(package or framework_package)


def find_effects(occurrence: KeyOccurrence) -> EffectByRelease:
    """Return the effects of a key for every candidate release; cached in the config."""
    cache, key = occurrence.config.compute_once(_create_cache), (occurrence.route, id(occurrence.entry))
    if key not in cache:
        candidates = find_candidate_releases(occurrence.config, find_deciding_package(occurrence))
        cache[key] = compute_effects(candidates, lambda release: _find_effect(occurrence, release))
    return cache[key]


def _create_cache(_: Config) -> dict[tuple[Route, int], EffectByRelease]:
    """Return a new cache for the effects of a config's keys, by route and entry."""
    return {}


def find_unknown_key_effects(occurrence: KeyOccurrence) -> EffectByRelease | None:
    """Return the effects of an unknown key for the releases that do not accept it, or None if the effective one does.

    A release that accepts any key in the section is no evidence about the key and is left out.
    """
    effects = find_effects(occurrence)
    if effects.current_effect == ACCEPTED:
        return None
    return effects._replace(spans=tuple(span for span in effects.spans if span[0] != ACCEPTED))


def find_fact(occurrence: KeyOccurrence, release: str, route: Route | None = None) -> KeyFact | None:
    """Return the fact about a key (or about `route`) at a release of the package that defines the key."""
    config, framework_vocabulary, package = (
        occurrence.config,
        get_vocabulary(occurrence.config),
        find_deciding_package(occurrence),
    )
    assert framework_vocabulary is not None
    key_route = route or (occurrence.route if occurrence.fact is None else occurrence.fact.route)
    if package is None:
        return framework_vocabulary.find_fact(key_route, release, get_context(config))
    return framework_vocabulary.find_fact(
        key_route, get_target_release(config).release, get_context(config)._replace(releases={package: release})
    )


def find_deciding_package(occurrence: KeyOccurrence) -> str | None:
    """Return the secondary package if its release decides whether a key exists, or None if the framework's does."""
    keys = get_checked_keys(occurrence.config)
    secondary = None if keys is None else keys.manifest.companion_package
    is_from_secondary = secondary is not None and occurrence.fact is not None and occurrence.fact.package == secondary
    return secondary if is_from_secondary and secondary in occurrence.config.releases.by_package else None


def _find_effect(occurrence: KeyOccurrence, release: str) -> str:
    config, keys, framework_vocabulary = (
        occurrence.config,
        get_checked_keys(occurrence.config),
        get_vocabulary(occurrence.config),
    )
    assert keys is not None
    assert framework_vocabulary is not None
    fact = find_fact(occurrence, release)
    if fact is None:
        effect = framework_vocabulary.find_effect(occurrence.parent, release, get_context(config))
    else:
        status = fact.resolve_status()
        is_present = fact.is_open or (status.kind == PRESENT and status.effect is None)
        effect = "kept" if is_present else status.effect or "dropped"
    if effect == "kept":
        return ACCEPTED
    framework_release = release if find_deciding_package(occurrence) is None else get_target_release(config).release
    return keys.determine_effect(effect, occurrence.route, occurrence.value, config, framework_release)


def is_true_for_all_releases(occurrence: KeyOccurrence, test: Callable[[str], bool]) -> bool:
    """Return whether a test holds for every candidate release of the package that defines a key.

    Return False if the release may be older than all known ones.
    """
    candidates = find_candidate_releases(occurrence.config, find_deciding_package(occurrence))
    return not candidates.is_too_old and all(test(release) for release in candidates.releases)
