"""Find the clauses of a table that hold for a configuration, and report them.

A clause is a statement about several settings at once. It holds where every one of its conditions does, on values that
are known: a setting whose value depends on the environment, or that could be given out of sight, satisfies none.

In messages, `[name]` becomes the setting as it is spelled in the configuration and `<name>` its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module

from cfglint_rules.vocabulary.effect_by_release import assumed_setting, grounds, window_of
from cfglint_rules.vocabulary.operators import RELATIONS, passes, relations
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import KeyOccurrence, added, own, target
from cfglint_rules.vocabulary.table import Clause, Kind, Row, VocabularyTable, clause_of, table
from cfglint_rules.vocabulary.values import shown
from cfglint_train.documents.document import MISSING, Change, Delete, Set, Unknown
from cfglint_train.findings.finding import SEVERITIES, Fix, Related, Report, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.lens import Config, Lookup
from cfglint_train.frameworks.registry import listed
from cfglint_train.mutations.mutations import mutations_of
from cfglint_train.plan.certainty import Ground, unappended

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.operators import Test


class Reach(Frozen):
    """At which of the candidate releases a clause holds."""

    gravest: Severity
    """The gravest that it can be called."""
    when: str = ""
    """The releases for which it holds, for the end of its message; empty where they are all."""
    grounds: tuple[Ground, ...] = ()
    """The releases that it rests on."""


_ALL: Final = Reach("error")


def holding(clauses: VocabularyTable, settings: Settings) -> Iterator[tuple[Clause, Reach]]:
    """The clauses that hold, each with the releases for which it does."""
    return _among(clauses.about(settings.names()), settings)


def refusals_of(config: Config, sightings: Iterable[KeyOccurrence], kind: Kind = "refusals") -> Mapping[str, Severity]:
    """The keys, by dotted names, that a refusal points at (or an entry of idle keys), with its severity. Other rules
    leave these keys to it.
    """
    names = {dotted(sighting) for sighting in sightings}
    rows = table(config.framework, kind).about({name.partition(".")[0] for name in names}) if names else ()
    own = [row for row in rows if next(iter(row["when"])) in names]
    held = _among(own, Settings(config)) if own else ()
    return {
        next(iter(clause.when)): max(clause.severity, reach.gravest, key=SEVERITIES.index) for clause, reach in held
    }


def idle_blocks(config: Config, sightings: Iterable[KeyOccurrence]) -> frozenset[str]:
    """The blocks around some keys, by dotted names, that have no effect as a whole: what is in them has none either."""
    routes = [tuple(map(str, sighting.route)) for sighting in sightings]
    names = {".".join(route[:count]) for route in routes for count in range(1, len(route))}
    rows = table(config.framework, "idle").about({name.partition(".")[0] for name in names}) if names else ()
    own = [row for row in rows if next(iter(row["when"])) in names]
    return frozenset(next(iter(clause.when)) for clause, _ in (_among(own, Settings(config)) if own else ()))


def is_inside(sighting: KeyOccurrence, blocks: Iterable[str]) -> bool:
    """Whether a key is in one of some blocks."""
    return any(dotted(sighting).startswith(f"{block}.") for block in blocks)


def dotted(sighting: KeyOccurrence) -> str:
    """A key by the name that clauses call it."""
    return ".".join(map(str, sighting.route))


def _among(rows: Iterable[Row], settings: Settings) -> Iterator[tuple[Clause, Reach]]:
    for row in rows:
        if not _holds(row, settings) or _is_filled(row, settings):
            continue
        if not _lacks_only_unknown(row, settings) and not _is_spared(row, settings):
            clause = clause_of(row)
            reach = _reached(clause, settings.config)
            if reach is not None:
                yield clause, _of_copy(clause, reach, row, settings)


def _holds(row: Row, settings: Settings) -> bool:
    return (
        _all_pass(row["when"], settings)
        and ("either" not in row or any(_all_pass(tests, settings) for tests in row["either"]))
        and ("each" not in row or bool(_given(row["each"], settings)))
        and ("also" not in row or _coded(row["also"], settings.config.framework)(settings.value))
    )


def _given(names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Those of some settings that are given."""
    return tuple(name for name in names if passes("given", settings.value(name)))


def _is_filled(row: Row, settings: Settings) -> bool:
    """Whether a script changes one of the settings before the framework sees them: then nothing is known of it. What
    is refused late, the program that parses them may have changed, too.
    """
    mutations = mutations_of(settings.config)
    homes = (settings.home(name) for name in _named(row))
    return any(
        mutations.is_set(home) or ("late" in row and bool(home) and mutations.is_assigned(str(home[0])))
        for home in homes
    )


def _lacks_only_unknown(row: Row, settings: Settings) -> bool:
    """Whether all that is missing are settings that a copy of the framework does not have, as it does without them, or
    may give by settings of its own.
    """
    if settings.config.evidence.vocabulary is None:
        return False
    missing = [name for name in _named(row) if settings.value(name) is MISSING]
    return bool(missing) and (all(map(settings.unheard_of, missing)) or _is_given_otherwise(missing, settings.config))


def _is_spared(row: Row, settings: Settings) -> bool:
    """Whether a condition in the code of a copy of the framework names the very word that a clause holds for as one of
    the others: it makes an exception of it.
    """
    copy = settings.config.evidence.vocabulary
    if copy is None:
        return False
    words = set(_words_tested(row, settings))
    return any(
        isinstance(value := settings.value(name), str) and copy.code.asks({*words, *listed, value}, True)
        for name, test in row["when"].items()
        if not isinstance(test, str) and (listed := test.get("other-than"))
    )


def _is_given_otherwise(missing: Iterable[str], config: Config) -> bool:
    """Whether the file gives a setting that only the copy has, and that is named like one that is missing."""
    lacking = {word for name in missing for word in _words(name)}
    return any(not lacking.isdisjoint(_words(name)) for name in added(config))


def _words(name: str) -> Iterable[str]:
    """The words of a name: `eval` and `dataset` of `--eval.dataset`."""
    return (word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def _named(row: Row) -> Iterator[str]:
    """The settings that a clause tests."""
    return (name for tests in (row["when"], *row.get("either", ())) for name in tests if not name.startswith("@"))


def _all_pass(tests: Mapping[str, Test], settings: Settings) -> bool:
    for name, test in tests.items():
        value = settings.value(name)
        if isinstance(value, Unknown) or not passes(test, value):
            return False
        for relation, other in relations(test):
            against = settings.value(other)
            if isinstance(against, Unknown) or not RELATIONS[relation](value, against):
                return False
    return True


def _coded(name: str, framework: str) -> Callable[[Lookup], bool]:
    """A condition that is code, in the framework's own folder."""
    found: Callable[[Lookup], bool] = getattr(import_module(f"cfglint_train.frameworks.{framework}.conditions"), name)
    return found


def _reached(clause: Clause, config: Config) -> Reach | None:
    """The releases in question among the clause's own; None where the one that counts is not among them."""
    if clause.since is None and clause.before is None:
        own = window_of(config)
        if config.evidence.fork is not None:
            return Reach("info")  # it may have another way to give what is missing
        return Reach("warning", grounds=grounds(own, agreed=False)) if own.before else _ALL  # an older one may take it
    if clause.package is not None and clause.package not in config.releases.known:
        if clause.since is None or clause.before is not None:
            return None  # it may be a later one
        known = config.releases.certain(clause.package, clause.since)
        note = f"a {clause.package} of {clause.since} (set `{clause.package}=RELEASE` to be sure)"
        guess = Ground(f"release:{clause.package}", clause.since, "assumed", note)
        return None if known is False else _ALL if known else Reach("error", grounds=(guess,))
    window = window_of(config, clause.package)
    if not _covers(clause, window.chosen):
        return None
    outside = [release for release in window.releases if not _covers(clause, release)]
    when = " ".join((
        *((f"since {clause.package or target(config).title} {clause.since}",) if clause.since is not None else ()),
        *((f"before {clause.package or target(config).title} {clause.before}",) if clause.before is not None else ()),
    ))  # fmt: skip
    is_forked = config.evidence.fork is not None and clause.since is not None  # it may come from an older release
    gravest: Severity = "info" if is_forked else "error"
    differ = bool(outside) or (window.earlier and clause.since is not None)
    return Reach(gravest, f" ({when})" if differ else "", grounds(window, agreed=not differ))


def _of_copy(clause: Clause, reach: Reach, row: Row, settings: Settings) -> Reach:
    """The reach of a clause in a copy of the framework whose code is not upstream's: it need not do the same, and may
    have another way to give what a run cannot do without. Where a condition of its code has all the settings and words
    that the clause tests, it does what upstream does.
    """
    name = own(settings.config)
    copy = settings.config.evidence.vocabulary
    if not name or copy is None:
        return reach
    refuses = clause.severity == "error"
    if clause.severity != "info" and copy.code.asks(set(_words_tested(row, settings)), refuses):
        return reach
    note = f"the copy in `{copy.folder}`, which has a setting of its own (`{name}`), does what its release does"
    lacks = refuses and any(settings.value(one) is MISSING for one in _named(row))
    unlike = clause.severity == "warning" and clause.package is None
    gravest = max("info" if lacks or unlike else "error", reach.gravest, key=SEVERITIES.index)
    return reach._replace(gravest=gravest, grounds=(*reach.grounds, Ground("vocabulary", copy.folder, "assumed", note)))


def _words_tested(row: Row, settings: Settings) -> Iterator[str]:
    """What a condition of code has that tests the same as a clause: the last names of its settings, as they are spelled
    here, and those of their values that the clause lists. What makes a setting idle is tested without what is absent.
    """
    for name, test in row["when"].items():
        value = settings.value(name)
        if name.startswith("@") or ("severity" in row and (value is MISSING or value is None)):
            continue
        yield settings.shown(name).lstrip("-").rpartition(".")[2]
        if isinstance(value, str) and not isinstance(test, str) and value in test.get("in", ()):
            yield value


def _covers(clause: Clause, release: str) -> bool:
    key = release_key(release)
    after = clause.since is None or key >= release_key(clause.since)
    return after and (clause.before is None or key < release_key(clause.before))


def report(clause: Clause, settings: Settings, reach: Reach) -> Report | None:
    """The report of a clause that holds; None where none of its settings is in the file."""
    places = [(name, settings.place(name)) for name in (*_given(clause.each, settings), *clause.when)]
    standing = next((place for name, place in places if place is not None and not name.startswith("@")), None)
    if standing is None:
        return None
    chosen = next((place for name, place in places if name == clause.at and place is not None), standing)
    standing = standing if chosen.document.stands_in else chosen
    related = [
        Related(place, "set here" if name.startswith(("@", "_")) else f"`{settings.shown(name)}` is here")
        for name, place in places
        if place is not None and place.span != standing.span
    ]
    fix = _fix(clause, settings)
    on = (*reach.grounds, *_doubts(clause, settings))
    return Report(
        said(clause, settings) + reach.when,
        standing,
        max(clause.severity, reach.gravest, key=SEVERITIES.index),
        None if fix is None else fix._replace(grounds=on),
        tuple(related),
        None if clause.help is None else _worded(clause.help, clause, settings),
        grounds=on,
    )


def _doubts(clause: Clause, settings: Settings) -> Iterator[Ground]:
    """What is assumed of the settings that a clause tests, as where a condition of a script decides."""
    appended = "" if settings.run is None else settings.run.parts.appended
    if appended and clause.severity != "info" and any(map(settings.lacks, _tested(clause))):
        yield unappended(appended)
    met = set()
    for name in (*clause.when, *_given(clause.each, settings)):
        route = None if name.startswith("@") else settings.route(name)
        assumed = "" if route is None else settings.config.origin(*route).assumed
        if assumed and assumed not in met:
            met.add(assumed)
            yield assumed_setting(settings.shown(name), settings.value(name), assumed)


def _tested(clause: Clause) -> Iterator[str]:
    """The names that a clause tests, or compares others with."""
    for name, test in clause.when.items():
        yield from (name, *(other for _, other in relations(test)))


def said(clause: Clause, settings: Settings) -> str:
    """A clause's message, with settings as they are spelled here."""
    return _worded(clause.message, clause, settings)


def _worded(message: str, clause: Clause, settings: Settings) -> str:
    """A text of a clause with settings as they are spelled here, and their values."""
    parts: list[str] = []
    rest = message
    while True:
        at = min((place for place in (rest.find("["), rest.find("<")) if place >= 0), default=-1)
        if at < 0:
            return "".join((*parts, rest))
        closing = rest.index("]" if rest[at] == "[" else ">", at)
        name = rest[at + 1 : closing]
        if name == "each":
            shown_ = ", ".join(settings.shown(one) for one in _given(clause.each, settings))
        else:
            shown_ = settings.shown(name) if rest[at] == "[" else _value(name, settings.value(name))
        parts += (rest[:at], shown_)
        rest = rest[closing + 1 :]


def _value(name: str, value: Any) -> str:
    if name == "@host":
        return listed()[value].title
    return "absent" if value is MISSING else value if isinstance(value, str) else shown(value)


def _fix(clause: Clause, settings: Settings) -> Fix | None:
    cure, config = clause.cure, settings.config
    if cure is None:
        return None
    changes: list[Change] = []
    for name in cure.gone:
        route = settings.route(name)
        if route is not None:
            if config.override(route) is not None:
                return None
            changes.append(Delete((*config.root, *route)))
    for name, value in cure.values.items():
        route = settings.home(name)
        if config.override(route) is not None:
            return None
        changes.append(Set((*config.root, *route), value, tuple(str(settings.home(one)[0]) for one in clause.when)))
    return Fix(cure.applicability, _worded(cure.message, clause, settings), keys=((config, tuple(changes)),))
