"""What becomes of something at every candidate release, and how grave that is.

What all of the candidate releases refuse is an error. Where they differ, the one that counts decides, which a fresh
installation gets: what it takes is information, what it refuses or ignores a warning that names the releases.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from cfglint_rules.vocabulary.survey import REFUSED, KeyOccurrence, context, keys_of, target, vocabulary
from cfglint_rules.vocabulary.values import shown
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import Route
from cfglint_train.findings.finding import Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.releases import Window

FINE: Final = "fine"
"""The effect of what a release takes as it is meant."""

_SHORT: Final = {
    FINE: "accepted",
    "mapped": "accepted",
    "nothing": "accepted but ignored",
    "dropped": "silently ignored",
    "warning": "ignored with a warning",
    "error": "refused",
}


class EffectByRelease(Frozen):
    """The effects at some releases."""

    runs: tuple[tuple[str, tuple[str, ...]], ...]
    """Effect and releases, in the order of the releases; neighbours differ."""
    window: Window

    @property
    def effects(self) -> frozenset[str]:
        """What becomes of it somewhere."""
        return frozenset(effect for effect, _ in self.runs)

    @property
    def agreed(self) -> bool:
        """Whether all releases do the same."""
        return len(self.runs) == 1

    @property
    def grounds(self) -> tuple[Ground, ...]:
        """The releases that a finding about it rests on."""
        return grounds(self.window, self.agreed and not self.window.before)

    @property
    def counting(self) -> str:
        """The effect at the release that counts."""
        chosen = self.window.chosen
        return next((effect for effect, releases in self.runs if chosen in releases), self.runs[-1][0])

    def milder(self, severity: Severity) -> Severity:
        """What is so grave at the release that counts, by all releases."""
        if self.counting in (FINE, "mapped"):
            return "info"
        certain = self.effects == {REFUSED} and not self.window.before  # an older one may take it
        return "warning" if severity == "error" and not certain else severity

    def said(self) -> str:
        """`it is refused since 0.17.1, silently ignored before`; the newest releases first."""
        (effect, releases), *older = reversed(self.runs)
        if not older:
            return f"it is {_SHORT[effect]}"
        parts = [f"it is {_SHORT[effect]} since {releases[0]}"]
        for place, (other, between) in enumerate(older, 1):
            when = "before" if place == len(older) else f"from {between[0]} to {between[-1]}"
            parts.append(f"{_SHORT[other]} {when}")
        return ", ".join(parts)


def across(window: Window, effect_at: Callable[[str], str]) -> EffectByRelease:
    """The effects at the releases of a window."""
    grouped = groupby(window.releases, key=effect_at)
    return EffectByRelease(tuple([(effect, tuple(run)) for effect, run in grouped]), window)


def assumed_setting(name: str, value: Any, assumed: str) -> Ground:
    """A setting whose value rests on an assumption."""
    said = f"`{name}`"
    note = assumed if assumed.startswith(said) else f"{said}: {assumed}"
    return Ground(f"setting:{name}", shown(value), "assumed", note)


def grounds(window: Window, agreed: bool) -> tuple[Ground, ...]:
    """The releases of a window as what a finding rests on: assumed where they differ. Nothing where one is stated."""
    if window.stated:
        return ()
    first, last = window.releases[0], window.releases[-1]
    between = first if first == last else f"{first} to {last}"
    note = (
        " and ".join(window.why)
        if agreed
        else f"{window.package} {between} (set `{window.package}=RELEASE` to be sure)"
    )
    return (Ground(f"release:{window.package}", between, "followed" if agreed else "assumed", note),)


def window_of(config: Config, package: str | None = None) -> Window:
    """The candidate releases of a configuration's framework, or of another package.

    A copy of the framework in the repository is one: its vocabulary is the same at every release.
    """
    own = frameworks.load(config.framework).listed.package
    if config.evidence.vocabulary is not None and package in (None, own):
        release = target(config).release
        return Window(
            own, (release,), release, stated=False, why=(f"the copy in {config.evidence.vocabulary.folder}/",)
        )
    return config.releases.window(package or own)


def fate(sighting: KeyOccurrence) -> EffectByRelease:
    """What becomes of a key at every candidate release."""
    known, key = sighting.config.once(_fates), (sighting.route, id(sighting.entry))
    if key not in known:
        window = window_of(sighting.config, deciding(sighting))
        known[key] = across(window, lambda release: _effect_at(sighting, release))
    return known[key]


def _fates(_: Config) -> dict[tuple[Route, int], EffectByRelease]:
    """What is known so far of the keys of a configuration."""
    return {}


def fate_of_unknown(sighting: KeyOccurrence) -> EffectByRelease | None:
    """What becomes of a key that no release has, at the candidates that show it; None where the one that counts shows
    nothing. A section whose keys are not known at a release does.
    """
    found = fate(sighting)
    if found.counting == FINE:
        return None
    return found._replace(runs=tuple(run for run in found.runs if run[0] != FINE))


def fact_at(sighting: KeyOccurrence, release: str, route: Route | None = None) -> Fact | None:
    """What is known of a key, or of another one, at a release of the package that decides about the key."""
    config, known, package = sighting.config, vocabulary(sighting.config), deciding(sighting)
    assert known is not None
    asked = route or (sighting.route if sighting.fact is None else sighting.fact.route)
    if package is None:
        return known.fact(asked, release, context(config))
    return known.fact(asked, target(config).release, context(config)._replace(releases={package: release}))


def deciding(sighting: KeyOccurrence) -> str | None:
    """The package beside the framework's own whose release decides whether a key is there; None: its own."""
    keys = keys_of(sighting.config)
    beside = None if keys is None else keys.listed.beside
    brought = beside is not None and sighting.fact is not None and sighting.fact.package == beside
    return beside if brought and beside in sighting.config.releases.known else None


def _effect_at(sighting: KeyOccurrence, release: str) -> str:
    config, keys, known = sighting.config, keys_of(sighting.config), vocabulary(sighting.config)
    assert keys is not None
    assert known is not None
    fact = fact_at(sighting, release)
    if fact is None:
        effect = known.effect(sighting.parent, release, context(config))
    else:
        status = fact.status()
        present = fact.open or (status.kind == PRESENT and status.effect is None)
        effect = "kept" if present else status.effect or "dropped"
    if effect == "kept":
        return FINE
    own = release if deciding(sighting) is None else target(config).release
    return keys.effect(effect, sighting.route, sighting.value, config, own)


def everywhere(sighting: KeyOccurrence, test: Callable[[str], bool]) -> bool:
    """Whether something holds at every candidate release of the package that decides about a key.

    Of a release older than all that are known, nothing is.
    """
    window = window_of(sighting.config, deciding(sighting))
    return not window.before and all(test(release) for release in window.releases)
