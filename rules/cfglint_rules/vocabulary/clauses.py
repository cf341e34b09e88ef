"""Clauses: find the clauses of a table that match a config, and report them.

A clause is a statement about several settings at once. It matches if all of its conditions hold. A condition never
holds for a setting whose value depends on the environment, or that unseen flags could set.

In messages, `[name]` stands for the setting as the config spells it, and `<name>` for its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_rules.vocabulary.effect_by_release import (
    build_release_grounds,
    build_setting_ground,
    find_candidate_releases,
)
from cfglint_rules.vocabulary.operators import RELATIONS, evaluate_test, list_relations
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.survey import (
    KeyOccurrence,
    find_added_setting,
    get_checked_keys,
    get_target_release,
    is_unused_default,
    list_added_names,
)
from cfglint_rules.vocabulary.table import INHERITED, Clause, Row, TableKind, VocabularyTable, build_clause, load_table
from cfglint_rules.vocabulary.values import format_value
from cfglint_train.documents.document import MISSING, Change, Delete, Set, Unknown
from cfglint_train.findings.finding import SEVERITIES, Fix, Related, Report, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.lens import Config, Lookup
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.certainty import Ground, assume_no_extra_options

if TYPE_CHECKING:
    from cfglint_rules.vocabulary.operators import Test


class ClauseScope(Frozen):
    """Releases at which a clause holds, and the certainty that follows from them."""

    max_severity: Severity
    """Highest severity that a report on the clause may have."""
    condition: str = ""
    """Releases at which the clause holds, as a suffix of the message; empty if it holds at all of them."""
    grounds: tuple[Ground, ...] = ()
    """Grounds that a report on the clause rests on, such as releases."""
    is_past: bool = False
    """True if only older candidates than the effective release reject the settings: no fix is needed to run."""


_ALL_RELEASES: Final = ClauseScope("error")


def find_matching_clauses(
    clauses: VocabularyTable, settings: Settings, with_past: bool = False
) -> Iterator[tuple[Clause, ClauseScope]]:
    """Yield the clauses that match the settings, each with the releases at which it holds.

    With `with_past`, this includes refusals by candidate releases before the effective one.
    """
    return match_rows(clauses.list_candidates(settings.list_names()), settings, with_past)


def find_refused_keys(
    config: Config, occurrences: Iterable[KeyOccurrence], kind: TableKind = "refusals"
) -> Mapping[str, Severity]:
    """Return the keys that a refusal (or an idle entry) already reports: dotted name and severity.

    Other rules skip these keys.
    """
    names = {get_dotted_name(occurrence) for occurrence in occurrences}
    rows = (
        load_table(config.framework, kind).list_candidates({name.partition(".")[0] for name in names}) if names else ()
    )
    rows_of_keys = [row for row in rows if next(iter(row["when"])) in names]
    matching = match_rows(rows_of_keys, Settings(config)) if rows_of_keys else ()
    return {
        next(iter(clause.when)): max(clause.severity, scope.max_severity, key=SEVERITIES.index)
        for clause, scope in matching
    }


def find_idle_blocks(config: Config, occurrences: Iterable[KeyOccurrence]) -> frozenset[str]:
    """Return the dotted names of the blocks around some keys that have no effect as a whole.

    The keys in such a block have no effect either.
    """
    routes = [tuple(map(str, occurrence.route)) for occurrence in occurrences]
    names = {".".join(route[:count]) for route in routes for count in range(1, len(route))}
    rows = (
        load_table(config.framework, "idle").list_candidates({name.partition(".")[0] for name in names})
        if names
        else ()
    )
    rows_of_blocks = [row for row in rows if next(iter(row["when"])) in names]
    return frozenset(
        next(iter(clause.when))
        for clause, _ in (match_rows(rows_of_blocks, Settings(config)) if rows_of_blocks else ())
    )


def is_in_block(occurrence: KeyOccurrence, blocks: Iterable[str]) -> bool:
    """Return whether a key is inside any of the blocks, given by dotted names."""
    return any(get_dotted_name(occurrence).startswith(f"{block}.") for block in blocks)


def get_dotted_name(occurrence: KeyOccurrence) -> str:
    """Return the dotted name of a key, as clauses spell it."""
    return ".".join(map(str, occurrence.route))


def match_rows(
    rows: Iterable[Row], settings: Settings, with_past: bool = False
) -> Iterator[tuple[Clause, ClauseScope]]:
    """Yield the clauses among `rows` that match the settings, each with the releases at which it holds."""
    for row in rows:
        if not _is_match(row, settings) or _is_changed_by_script(row, settings) or not _is_reached(row, settings):
            continue
        if not _is_missing_only_unknown(row, settings) and not _is_exempt(row, settings):
            clause = build_clause(row)
            scope = find_scope(clause, settings.config)
            scope = None if scope is None else _limit_for_copy(clause, scope, row, settings)
            if scope is not None and (with_past or not scope.is_past):
                yield clause, _limit_for_program(scope, row, settings)


def _is_match(row: Row, settings: Settings) -> bool:
    return (
        check_tests(row["when"], settings)
        and ("either" not in row or any(check_tests(tests, settings) for tests in row["either"]))
        and ("each" not in row or bool(_list_given(row["each"], settings)))
        and ("also" not in row or _load_condition(row["also"], settings.config.framework)(settings.get_value))
    )


def _is_reached(row: Row, settings: Settings) -> bool:
    """Return whether the settings of the config reach the code that the clause is about.

    A program may parse other classes, pass a setting to nothing, or have a trainer of its own. The default of a
    script's option reaches it only if a known launch uses the default.
    """
    config, keys = settings.config, get_checked_keys(settings.config)
    if keys is None:
        return True
    given_names = [name for name in _list_tested_names(row) if settings.get_value(name) is not MISSING]
    routes = [route for name in given_names if (route := settings.find_route(name)) is not None]
    return (
        keys.has_trainer(config, INHERITED in row)
        and all(keys.is_parsed(config, name.partition(".")[0]) for name in given_names)
        and keys.list_unread_settings(config).keys().isdisjoint(given_names)
        and not any(is_unused_default(config, route) for route in routes)
    )


def _list_given(names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """Return the names whose settings the config sets."""
    return tuple(name for name in names if evaluate_test("given", settings.get_value(name)))


def _is_changed_by_script(row: Row, settings: Settings) -> bool:
    """Return whether a program changes a tested setting before the framework reads it, so that its value is unknown.

    For a refusal marked "late", it is enough that the program that parses the settings assigns the setting.
    """
    mutations = get_mutations(settings.config)
    routes = (settings.find_home(name) for name in _list_tested_names(row))
    return any(
        mutations.is_changed(route) or ("late" in row and bool(route) and mutations.is_assigned(str(route[0])))
        for route in routes
    )


def _is_missing_only_unknown(row: Row, settings: Settings) -> bool:
    """Return whether the copy of the framework lacks all missing settings, or the file sets a similar one of the copy.

    The copy works without these settings, so their absence means nothing.
    """
    if settings.config.evidence.vocabulary is None:
        return False
    missing = [name for name in _list_tested_names(row) if settings.get_value(name) is MISSING]
    return bool(missing) and (
        all(map(settings.is_unknown_to_copy, missing)) or _has_similar_setting(missing, settings.config)
    )


def _is_exempt(row: Row, settings: Settings) -> bool:
    """Return whether a condition in the copy's code lists a value that the clause rejects with `other-than`."""
    copy = settings.config.evidence.vocabulary
    if copy is None:
        return False
    tested_words = set(_list_tested_words(row, settings))
    return any(
        isinstance(value := settings.get_value(name), str)
        and copy.code.has_condition({*tested_words, *listed, value}, True)
        for name, test in row["when"].items()
        if not isinstance(test, str) and (listed := test.get("other-than"))
    )


def _has_similar_setting(missing: Iterable[str], config: Config) -> bool:
    """Return whether the file sets a key that only the copy has and whose name shares a word with a missing key."""
    missing_words = {word for name in missing for word in _split_words(name)}
    return any(not missing_words.isdisjoint(_split_words(name)) for name in list_added_names(config))


def _split_words(name: str) -> Iterable[str]:
    """Split a name into words: `eval` and `dataset` for `--eval.dataset`."""
    return (word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def _list_tested_names(row: Row) -> Iterator[str]:
    """Return the names of the settings that a clause tests, without special names (`@host`)."""
    return (name for tests in (row["when"], *row.get("either", ())) for name in tests if not name.startswith("@"))


def check_tests(tests: Mapping[str, Test], settings: Settings) -> bool:
    """Return whether all settings pass their tests; a setting with an unknown value passes none."""
    for name, test in tests.items():
        value = settings.get_value(name)
        if isinstance(value, Unknown) or not evaluate_test(test, value):
            return False
        for relation, other in list_relations(test):
            other_value = settings.get_value(other)
            if isinstance(other_value, Unknown) or not RELATIONS[relation](value, other_value):
                return False
    return True


def _load_condition(name: str, framework: str) -> Callable[[Lookup], bool]:
    """Return a condition that is written in Python, from the `conditions` module of the framework."""
    condition: Callable[[Lookup], bool] = getattr(
        import_module(f"cfglint_train.frameworks.{framework}.conditions"), name
    )
    return condition


def find_scope(clause: Clause, config: Config) -> ClauseScope | None:
    """Return the releases at which a clause holds, or None if the effective release is not among them."""
    if clause.since is None and clause.before is None:
        candidates = find_candidate_releases(config)
        if config.evidence.fork is not None:
            return ClauseScope("info")  # a fork may set a missing value in another way
        return (
            ClauseScope("warning", grounds=build_release_grounds(candidates, is_uniform=False))
            if candidates.is_too_old and not clause.ever
            else _ALL_RELEASES
        )  # older releases may accept the settings
    if clause.package is not None and clause.package not in config.releases.by_package:
        if clause.since is None or clause.before is not None:
            return None  # the release may be later than `before`
        is_after_since = config.releases.is_certainly_at_least(clause.package, clause.since)
        note = f"a {clause.package} of {clause.since} (set `{clause.package}=RELEASE` to be sure)"
        assumption = Ground(f"release:{clause.package}", clause.since, "assumed", note)
        return (
            None
            if is_after_since is False
            else _ALL_RELEASES
            if is_after_since
            else ClauseScope("error", grounds=(assumption,))
        )
    candidates_of_package = find_candidate_releases(config, clause.package)
    is_past = not _is_release_covered(clause, candidates_of_package.chosen)
    if is_past and (
        clause.severity != "error"
        or clause.before is None
        or config.evidence.fork is not None
        or not any(_is_release_covered(clause, release) for release in candidates_of_package.releases)
    ):
        return None
    outside = [release for release in candidates_of_package.releases if not _is_release_covered(clause, release)]
    subject = clause.package or get_target_release(config).title
    bounds = (("since", clause.since), ("before", clause.before))
    condition_text = " ".join(f"{word} {subject} {bound}" for word, bound in bounds if bound is not None)
    is_forked = config.evidence.fork is not None and clause.since is not None  # the fork may be older
    is_unknown = candidates_of_package.is_revision and bool(outside)
    max_severity: Severity = "info" if is_forked or is_past or is_unknown else "error"
    is_release_dependent = bool(outside) or (candidates_of_package.can_be_older and clause.since is not None)
    return ClauseScope(
        max_severity,
        f" ({condition_text})" if is_release_dependent else "",
        build_release_grounds(candidates_of_package, is_uniform=not is_release_dependent),
        is_past,
    )


def _limit_for_copy(clause: Clause, scope: ClauseScope, row: Row, settings: Settings) -> ClauseScope | None:
    """Return the scope of a clause, limited if the run uses a changed copy of the framework, or None if it accepts.

    The copy may behave differently, or set a required value in another way. It counts as upstream if a condition in its
    code contains all settings and words that the clause tests. A copy that tests each of them, but does not compare
    them as the clause does, accepts the settings.
    """
    copy = settings.config.evidence.vocabulary
    if copy is None:
        return scope
    if clause.guard and copy.code.has_condition(clause.guard, stops=True, calls=True):
        return None
    is_refusal = clause.severity == "error"
    words = set(_list_tested_words(row, settings))
    if clause.severity != "info" and copy.code.has_condition(words, is_refusal):
        return scope
    is_comparison = is_refusal and any(any(list_relations(test)) for test in row["when"].values())
    if is_comparison and all(copy.code.has_condition((word,), stops=True) for word in words):
        return None
    added_setting = find_added_setting(settings.config)
    if not added_setting:
        return scope
    note = (
        f"the copy in `{copy.folder}`, which has a setting of its own (`{added_setting}`), does what its release does"
    )
    is_lacking = is_refusal and any(_is_left_open(tested_name, settings) for tested_name in _list_tested_names(row))
    is_uncertain = clause.severity == "warning" and clause.package is None
    max_severity = max("info" if is_lacking or is_uncertain else "error", scope.max_severity, key=SEVERITIES.index)
    return scope._replace(
        max_severity=max_severity, grounds=(*scope.grounds, Ground("vocabulary", copy.folder, "assumed", note))
    )


def _is_left_open(name: str, settings: Settings) -> bool:
    """Return whether a setting is missing or written as null, so that the user may rely on the copy to set it."""
    value = settings.get_value(name)
    return value is MISSING or (value is None and settings.find_route(name) is not None)


def _limit_for_program(scope: ClauseScope, row: Row, settings: Settings) -> ClauseScope:
    """Return the scope of a clause, with an assumption if a user's program may set a missing setting in its own way.

    This is possible if the framework checks the settings after the program has parsed them ("late").
    """
    keys = get_checked_keys(settings.config)
    missing = [name for name in _list_tested_names(row) if settings.get_value(name) is MISSING] if "late" in row else ()
    if not missing or keys is None or not keys.can_be_read_by_user(settings.config):
        return scope
    note = f"the program that reads the file does not replace the missing `{settings.format_name(missing[0])}`"
    return scope._replace(grounds=(*scope.grounds, Ground(f"setting:{missing[0]}", None, "assumed", note)))


def _list_tested_words(row: Row, settings: Settings) -> Iterator[str]:
    """Yield the words that an equivalent condition in the framework's code would contain.

    These are the settings' names with their innermost groups, as the config spells them, also of settings that limit
    others, and those of their values that the clause lists. Absent settings are skipped for idle entries.
    """
    for name, test in row["when"].items():
        value = settings.get_value(name)
        if name.startswith("@") or ("severity" in row and (value is MISSING or value is None)):
            continue
        limits = [] if isinstance(test, str) else [test.get("above"), test.get("below")]
        for tested in (name, *(limit for limit in limits if isinstance(limit, str) and limit.startswith("="))):
            yield ".".join(settings.format_name(tested).lstrip("-").split(".")[-2:])
        if isinstance(value, str) and not isinstance(test, str) and value in test.get("in", ()):
            yield value


def _is_release_covered(clause: Clause, release: str) -> bool:
    key = parse_release(release)
    is_since = clause.since is None or key >= parse_release(clause.since)
    return is_since and (clause.before is None or key < parse_release(clause.before))


def build_report(clause: Clause, settings: Settings, scope: ClauseScope) -> Report | None:
    """Return the report on a matching clause, or None if no file contains any of its settings."""
    places = [(name, settings.find_place(name)) for name in (*_list_given(clause.each, settings), *clause.when)]
    marked = next((place for name, place in places if place is not None and not name.startswith("@")), None)
    if marked is None:
        return None
    preferred = next((place for name, place in places if name == clause.at and place is not None), marked)
    marked = marked if preferred.document.is_placeholder else preferred
    related = [
        Related(place, "set here" if name.startswith(("@", "_")) else f"`{settings.format_name(name)}` is here")
        for name, place in places
        if place is not None and not (name.startswith("@") and (clause.each or clause.when[name] == "known"))
    ]
    fix = None if scope.is_past else _build_fix(clause, settings)
    all_grounds = (*scope.grounds, *_list_assumptions(clause, settings))
    return Report(
        format_message(clause, settings) + scope.condition,
        marked,
        max(clause.severity, scope.max_severity, key=SEVERITIES.index),
        None if fix is None else fix._replace(grounds=all_grounds),
        tuple(related),
        None if clause.help is None else _fill_template(clause.help, clause, settings),
        grounds=all_grounds,
    )


def _list_assumptions(clause: Clause, settings: Settings) -> Iterator[Ground]:
    """Yield the assumptions about the settings that a clause tests, such as that a condition in a script holds."""
    appended = "" if settings.run is None else settings.run.inputs.hidden_options
    if appended and clause.severity != "info" and any(map(settings.is_missing, _list_compared_names(clause))):
        yield assume_no_extra_options(appended)
    if any(map(settings.has_varying_default, _list_compared_names(clause))):
        yield from build_release_grounds(find_candidate_releases(settings.config), is_uniform=False)
    reported = set()
    for name in (*clause.when, *_list_given(clause.each, settings)):
        route = None if name.startswith("@") else settings.find_route(name)
        assumption = "" if route is None else settings.config.get_origin(*route).assumption
        if assumption and assumption not in reported:
            reported.add(assumption)
            yield build_setting_ground(settings.format_name(name), settings.get_value(name), assumption)


def _list_compared_names(clause: Clause) -> Iterator[str]:
    """Yield the names of the settings that a clause tests or compares with each other."""
    for name, test in clause.when.items():
        yield from (name, *(other for _, other in list_relations(test)))


def format_message(clause: Clause, settings: Settings) -> str:
    """Return the message of a clause with the settings and values of the config."""
    return _fill_template(clause.message, clause, settings)


def _fill_template(message: str, clause: Clause, settings: Settings) -> str:
    """Replace `[name]` by the setting as the config spells it, `<name>` by its value, `each` by all that are set."""
    parts: list[str] = []
    rest = message
    while True:
        start = min((index for index in (rest.find("["), rest.find("<")) if index >= 0), default=-1)
        if start < 0:
            return "".join((*parts, rest))
        closing = rest.index("]" if rest[start] == "[" else ">", start)
        name = rest[start + 1 : closing]
        if name == "each":
            text = "`, `".join(settings.format_name(given_name) for given_name in _list_given(clause.each, settings))
        else:
            text = (
                settings.format_name(name)
                if rest[start] == "["
                else _format_clause_value(name, settings.get_value(name))
            )
        parts += (rest[:start], text)
        rest = rest[closing + 1 :]


def _format_clause_value(name: str, value: Any) -> str:
    if name == "@host":
        return list_frameworks()[value].title
    return "absent" if value is MISSING else value if isinstance(value, str) else format_value(value)


def _build_fix(clause: Clause, settings: Settings) -> Fix | None:
    cure, config = clause.fix, settings.config
    if cure is None:
        return None
    changes: list[Change] = []
    for name in cure.removed:
        route = settings.find_route(name)
        if route is not None:
            if config.find_override(route) is not None:
                return None
            changes.append(Delete((*config.root, *route)))
    for name, value in cure.values.items():
        route = settings.find_home(name)
        if config.find_override(route) is not None:
            return None
        changes.append(
            Set(
                (*config.root, *route),
                value,
                tuple(str(settings.find_home(tested_name)[0]) for tested_name in clause.when),
            )
        )
    return Fix(cure.applicability, _fill_template(cure.message, clause, settings), keys=((config, tuple(changes)),))
