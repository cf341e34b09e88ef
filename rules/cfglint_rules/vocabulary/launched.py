"""Launch overrides: look up the settings that a launch passes in the framework's vocabulary.

Keyword arguments that a script passes to the framework's classes are looked up in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cfglint_rules.vocabulary.effect_by_release import (
    ACCEPTED,
    EffectByRelease,
    compute_effects,
    find_candidate_releases,
)
from cfglint_rules.vocabulary.survey import REFUSED, get_target_release, is_older_than_vocabulary
from cfglint_rules.vocabulary.values import is_accepted
from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary
from cfglint_train.documents.document import Rename, Route, Unknown
from cfglint_train.findings.finding import Fix
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Literal
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.keys import Keys, LauncherOption
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.documents.shell.document import ShellDocument
    from cfglint_train.documents.shell.script import Invocation

LaunchedKind = Literal["unknown", "gone", "unset", "taken"]


class LaunchedSetting(Frozen):
    """A setting that a launch passes, with the verdict on it."""

    kind: LaunchedKind
    """Verdict. unknown: no release has the setting; gone: only other releases have it; unset: the file leaves its
    section unset; taken: the setting exists.
    """
    name: str
    """Name of the setting, or its leading part up to the first name that does not exist."""
    place: Place
    effects: EffectByRelease
    status: Status | None = None
    suggestion: str = ""
    """Probable correction of an unknown setting."""
    unset: str = ""
    """Section that the file leaves unset, if the kind is unset."""
    also: tuple[str, ...] = ()
    """Other arguments of the same class with the same verdict."""
    value: Any = None
    fact: KeyFact | None = None
    """Fact about the setting at the effective release, if it exists."""
    find_fact: Callable[[str], KeyFact | None] = lambda _: None
    """Lookup of the fact about the setting at a release; used if the setting exists."""


def list_launches(config: Config) -> Iterator[tuple[ShellDocument, Invocation]]:
    """Yield the invocations that start a config, each with its script."""
    if not config.launches:
        return
    from cfglint_train.documents.shell.document import ShellDocument

    for document, number in config.launches:
        if isinstance(document, ShellDocument):
            yield document, document.invocations[number]


def list_launched_settings(config: Config, kind: LaunchedKind) -> Iterator[LaunchedSetting]:
    """Return the launch settings of a kind, one per place."""
    return (setting for setting in config.compute_once(_judge_launched_settings) if setting.kind == kind)


def _judge_launched_settings(config: Config) -> tuple[LaunchedSetting, ...]:
    keys = frameworks.get_keys(config)
    if keys is None or config.evidence.fork is not None or is_older_than_vocabulary(config):
        return ()
    arguments = _judge_arguments(config, keys)
    by_route: dict[Route, LaunchedSetting | None] = {}
    """Verdicts by route, cached because several launches pass the same settings."""
    settings: dict[tuple[str, int], LaunchedSetting] = {}
    for route, override in config.launch_overrides:
        place = override.origin.place
        if place is None:
            continue
        if route not in by_route:
            is_script_setting = not keys.is_closed and any(map(get_mutations(config).is_custom, {route[:1], route}))
            option = None if is_script_setting else keys.find_launcher_option(config, route)
            by_route[route] = None if option is None else _judge_setting(config, route, option, place)
        setting = by_route[route]
        if setting is not None:
            settings.setdefault(
                (place.document.path, place.span.start), setting._replace(place=place, value=override.value)
            )
    return (*arguments, *settings.values())


def _judge_arguments(config: Config, keys: Keys) -> Iterable[LaunchedSetting]:
    """Return the keyword arguments of a script that do not exist; those that a class has lost are one setting."""
    groups: dict[Any, LaunchedSetting] = {}
    for option, place in keys.list_call_settings(config):
        setting = _judge_setting(config, option.route, option, place)
        if setting is None or setting.kind == "taken":
            continue
        is_gone = setting.kind == "gone"
        key = (option.route[0], setting.effects.spans) if is_gone else (place.document.path, place.span.start)
        first, name = groups.setdefault(key, setting), str(option.route[-1])
        if first is not setting and name not in (first.name.rpartition(".")[2], *first.also):
            groups[key] = first._replace(also=(*first.also, name))
    return groups.values()


def _judge_setting(config: Config, route: Route, option: LauncherOption, place: Place) -> LaunchedSetting | None:
    """Return the verdict on a launch setting, or None if there is none.

    There is no verdict if a release accepts any name there, or if the setting depends on a plugin or another setting.
    """
    entry_vocabulary = _build_vocabulary(config, option.entry)
    release = get_target_release(config).release
    name, candidates = format_route(route), find_candidate_releases(config)
    if option.unset_section and option.is_fatal_at(release):
        effects_if_unset = compute_effects(
            candidates,
            lambda candidate: (
                REFUSED if option.is_fatal_at(candidate) else entry_vocabulary.find_effect(option.route, candidate)
            ),
        )
        return LaunchedSetting("unset", name, place, effects_if_unset, unset=format_route(option.unset_section))
    fact: KeyFact | None = None
    for depth in range(option.class_steps + 1, len(option.route) + 1):
        part = option.route[:depth]
        fact = entry_vocabulary.vocabulary.find_fact(part, release, entry_vocabulary.context)
        if fact is not None and fact.is_open:
            return None
        if fact is not None and fact.resolve_status().kind == PRESENT:
            continue
        if fact is not None and fact.resolve_status().kind == "gated":
            return None  # the setting exists; a plugin or another setting decides whether it has an effect
        effects = compute_effects(candidates, partial(entry_vocabulary.find_effect, part))
        name = format_route(route[: len(route) - len(option.route) + depth])
        if fact is not None:
            return LaunchedSetting("gone", name, place, effects, fact.resolve_status())
        return (
            None
            if ACCEPTED in effects.effects
            else LaunchedSetting(
                "unknown", name, place, effects, suggestion=entry_vocabulary.suggest_name(part, name, release)
            )
        )
    effects_of_setting = compute_effects(candidates, partial(entry_vocabulary.find_effect, option.route))
    return LaunchedSetting(
        "taken", name, place, effects_of_setting, fact=fact, find_fact=partial(entry_vocabulary.find_fact, option.route)
    )


def build_rename(config: Config, setting: LaunchedSetting) -> Fix | None:
    """Return the fix that renames a misspelled keyword argument in the script, or None for any other setting.

    Routes in the vocabulary are the class and the argument; in the script, the argument has the call's place.
    """
    from cfglint_rules.vocabulary.proposals import find_proposals  # few scripts have an unknown argument

    if setting.place.document is not config.document:
        return None
    mappings = config.document.list_mappings()
    places = ((route, call, entry) for route, call in mappings for entry in call.entries)
    argument = next((place for place in places if place[2].key.span == setting.place.span), None)
    keys = frameworks.get_keys(config)
    if argument is None or keys is None:
        return None
    (route, call, entry), name = argument, tuple(setting.name.split("."))
    names, release = _build_vocabulary(config, "script"), get_target_release(config).release
    proposals = find_proposals(names.vocabulary, name, release, names.context, keys.is_confident)
    proposal = next(iter(proposals), None)
    if proposal is None or not proposal.has_same_words or proposal.route[:-1] != name[:-1]:
        return None
    value = config.document.build_value(entry.value)
    new_name = str(proposal.route[-1])

    def find_present(route: Route, release: str) -> KeyFact | None:
        fact = names.find_fact(route, release)
        return fact if fact is not None and fact.resolve_status().kind == PRESENT else None

    def is_accepted_at(release: str) -> bool:
        fact = find_present(proposal.route, release)
        return fact is not None and is_accepted(fact.get_schema(), value, load(config.framework).loader)

    if call.get(new_name) is not None or not is_accepted_at(release):
        return None
    # No release without the class can run the script.
    candidates = find_candidate_releases(config).releases
    releases = [candidate for candidate in candidates if find_present(name[:-1], candidate) is not None]
    is_sure = proposal.is_sure and not isinstance(value, Unknown) and all(map(is_accepted_at, releases))
    change = Rename((*route, str(entry.name)), new_name)
    return Fix("safe" if is_sure else "unsafe", f"rename {entry.name} to {new_name}", keys=((config, (change,)),))


def _build_vocabulary(config: Config, entry: str | None) -> _EntryVocabulary:
    """Return the vocabulary of a config's framework for an entry point."""
    keys = frameworks.get_keys(config)
    assert keys is not None
    return _EntryVocabulary(config, keys.get_vocabulary(config), keys.build_context(config)._replace(entry=entry))


class _EntryVocabulary(Frozen):
    """A vocabulary with the context of an entry point, for lookups of launch settings."""

    config: Config
    vocabulary: Vocabulary
    context: Context

    def find_fact(self, route: Route, release: str) -> KeyFact | None:
        """Return the fact about a setting at a release."""
        return self.vocabulary.find_fact(route, release, self.context)

    def find_effect(self, route: Route, release: str) -> str:
        """Return the effect of a setting at a release."""
        fact, keys = self.find_fact(route, release), frameworks.get_keys(self.config)
        assert keys is not None
        if fact is None:
            effect = self.vocabulary.find_effect(route[:-1], release, self.context)
            return ACCEPTED if effect == "kept" else keys.determine_launch_effect(effect, self.config, release)
        status = fact.resolve_status()
        if fact.is_open or status.kind == PRESENT:
            return ACCEPTED
        return keys.determine_launch_effect(status.effect or REFUSED, self.config, release)

    def suggest_name(self, route: Route, name: str, release: str) -> str:
        """Return the sibling setting that was probably intended, or an empty string."""
        from cfglint_schemas.matches import find_closest  # few launches have an unknown name

        names = (
            str(match.route[-1])
            for match in find_closest(self.vocabulary, route, release, self.context)
            if match.route[:-1] == route[:-1]
        )
        suggestion = next(names, "")
        return suggestion and format_route((*name.split(".")[:-1], suggestion))
