"""What a framework's vocabulary says of the settings that a launch gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cfglint_rules.vocabulary.effect_by_release import FINE, EffectByRelease, across, window_of
from cfglint_rules.vocabulary.survey import REFUSED, is_older, target
from cfglint_schemas.fact import Fact
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Literal
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.keys import LauncherOption
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.mutations.mutations import mutations_of
from cfglint_train.plan.origin import Place

Kind = Literal["unknown", "gone", "unset", "taken"]


class Given(Frozen):
    """A setting of a launch."""

    kind: Kind
    """No release has it; other releases have it; it is below a section that the file leaves unset; it is there."""
    name: str
    """The setting, or the part of it that is not there."""
    place: Place
    releases: EffectByRelease
    status: Status | None = None
    near: str = ""
    """What an unknown one was probably meant to be."""
    unset: str = ""
    """The section that is unset."""
    value: Any = None
    fact: Fact | None = None
    """What is known of one that is there."""
    facts: Callable[[str], Fact | None] = lambda _: None
    """The same at a release."""


def given(config: Config, kind: Kind) -> Iterator[Given]:
    """The settings of some kind, each place once."""
    return (one for one in config.once(_given) if one.kind == kind)


def _given(config: Config) -> tuple[Given, ...]:
    keys = frameworks.keys_of(config)
    if keys is None or not config.launched or config.evidence.fork is not None or is_older(config):
        return ()
    judged: dict[Route, Given | None] = {}
    """By the settings alone: several launches give the same ones."""
    found: dict[tuple[str, int], Given] = {}
    for route, override in config.launched:
        place = override.origin.place
        if place is None:
            continue
        if route not in judged:
            is_own = any(map(mutations_of(config).is_own, {route[:1], route}))
            at = None if is_own else keys.launched(config, route)
            judged[route] = None if at is None else _judged(config, route, at, place)
        one = judged[route]
        if one is not None:
            found.setdefault((place.document.path, place.span.start), one._replace(place=place, value=override.value))
    return tuple(found.values())


def _judged(config: Config, route: Route, at: LauncherOption, place: Place) -> Given | None:
    """What becomes of a setting of a launch; None where one of the candidate releases has anything there, and of one
    that only means something beside another setting.
    """
    keys = frameworks.keys_of(config)
    assert keys is not None
    look = _Look(config, keys.vocabulary_of(config), keys.context(config)._replace(entry=at.entry))
    release = target(config).release
    name, window = spelled(route), window_of(config)
    if at.unset and at.stops(release):
        stops = across(window, lambda one: REFUSED if at.stops(one) else look.effect(at.route, one))
        return Given("unset", name, place, stops, unset=spelled(at.unset))
    fact: Fact | None = None
    for depth in range(at.there + 1, len(at.route) + 1):
        part = at.route[:depth]
        fact = look.known.fact(part, release, look.about)
        if fact is not None and fact.open:
            return None
        if fact is not None and fact.status().kind == PRESENT:
            continue
        if fact is not None and fact.status().kind == "gated":
            return None  # it is there, and another setting decides what it does
        releases = across(window, partial(look.effect, part))
        name = spelled(route[: len(route) - len(at.route) + depth])
        if fact is not None:
            return Given("gone", name, place, releases, fact.status())
        return (
            None
            if FINE in releases.effects
            else Given("unknown", name, place, releases, near=look.near(part, name, release))
        )
    taken = across(window, partial(look.effect, at.route))
    return Given("taken", name, place, taken, fact=fact, facts=partial(look.fact, at.route))


class _Look(Frozen):
    """A vocabulary from one of its entry points."""

    config: Config
    known: Vocabulary
    about: Context

    def fact(self, route: Route, release: str) -> Fact | None:
        """What is known of a setting at a release."""
        return self.known.fact(route, release, self.about)

    def effect(self, route: Route, release: str) -> str:
        """What becomes of a setting at a release."""
        fact, keys = self.fact(route, release), frameworks.keys_of(self.config)
        assert keys is not None
        if fact is None:
            effect = self.known.effect(route[:-1], release, self.about)
            return FINE if effect == "kept" else keys.launched_effect(effect, self.config, release)
        status = fact.status()
        if fact.open or status.kind == PRESENT:
            return FINE
        return keys.launched_effect(status.effect or REFUSED, self.config, release)

    def near(self, route: Route, name: str, release: str) -> str:
        """The name beside it that an unknown one was probably meant to be; empty where there is none."""
        from cfglint_schemas.matches import closest  # few launches have an unknown name

        names = (
            str(match.route[-1])
            for match in closest(self.known, route, release, self.about)
            if match.route[:-1] == route[:-1]
        )
        near = next(names, "")
        return near and spelled((*name.split(".")[:-1], near))
