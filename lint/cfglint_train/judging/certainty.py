"""Certainty of reports: the only place that decides how sure a report is (design.md, section 7).

A rule states the consequence (its severity) for the run as it was read, assumptions included. This module runs the same
rule again with other values of the assumed facts. A report that holds for all these values is certain. If some values
refute a report, it rests on their facts and becomes a warning at most, with a note. A memory verdict is an info
if each of two guesses alone could flip it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from cfglint_rules.rule import Rule
from cfglint_rules.syntax.broken_command import format_cut_off_note
from cfglint_train.findings.finding import SEVERITIES, Fix, Report, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.evidence import ForkEvidence
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.certainty import (
    CERTAINTIES,
    LOWERED,
    RELEASE,
    Assumption,
    Certainty,
    Ground,
    Scenario,
    assume_no_extra_options,
    describe_place,
    find_worst_grade,
    grade_origin,
)
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.assumptions import (
    COMPANION_PREFIX,
    FORK,
    find_fact_assumptions,
    find_mildest_facts,
    find_refuting,
    find_release_assumptions,
    find_varying_fields,
)
from cfglint_train.runs.run import GPU, Run

MIN_GUESSES_FOR_INFO: Final = 2
"""Minimum number of unstated facts that turn a memory verdict into an info, if each of them alone could flip it.

On public configurations, none of 21 warnings of this kind could be confirmed. Both warnings that rest on the GPU alone
were confirmed.
"""
MAX_ASSUMED_LENGTH: Final = 2048
"""Largest limit in tokens (`cutoff_len` of unpacked data) that the longest sample is assumed to reach.

For a longer limit, the length of the longest sample is a guess.

A run with 2,048 tokens did run out of memory on 80 GB (OpenRLHF/OpenRLHF#392). None of the warnings on public files
that rest on a longer limit could be confirmed. A file with 4,096 tokens trains on questions of a few hundred tokens, in
micro batches of 32 that would need 298 GiB at the full length (modal-labs/llm-finetuning, config/llama-3.yml).
Published runs with 30,024 tokens would need 116 GiB (RUCAIBox/R1-Searcher). In 122 warnings, the limit was
8,192 or 65,536.
"""

_CERTAIN: Final[tuple[Certainty, ...]] = ("stated", "followed")
"""Grades that rest on no assumption."""

Check = Callable[[Any], Iterable[Report]]


class GradedReport(Frozen):
    """Severity, certainty and grounds of a report after grading, with the fix and help that remain."""

    severity: Severity
    certainty: Certainty
    rests_on: tuple[Ground, ...]
    notes: tuple[str, ...]
    fix: Fix | None
    help: str | None
    scenarios: tuple[Scenario, ...] = ()
    """Scenarios in which the rule was run again."""
    fields_read: tuple[Field, ...] = ()
    """Plan fields that the report and its fix depend on."""


def grade_report(
    rule: Rule, report: Report, main: Config, run: Run | None, check: Check, reads: Iterable[Field] = ()
) -> GradedReport | None:
    """Grade a report on a run, or on `main` alone if `run` is None; return None if it must not be reported.

    `check` is the rule's function; `reads` are the plan fields that it has read so far.
    """
    fields_read = tuple(reads) if report.fields_read is None else report.fields_read
    severity = report.severity or rule.severity
    if rule.rests_on_vocabulary and _is_behind_release_guard(report.place):
        return None
    assumptions: tuple[Assumption, ...] = ()
    refuting: tuple[Assumption, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    if run is not None:
        fields, facts = _list_dependencies(rule, report, run, fields_read)
        assumptions = find_fact_assumptions(run, fields, *facts, *_list_related_companions(report, run))
        if report.assumed_severity is not None and any(assumption.fact == GPU for assumption in assumptions):
            report = report._replace(min_certainty="followed")
        if (
            assumptions
            and report.min_certainty in _CERTAIN
            and _find_refuting_assumptions(rule, report, run, assumptions, check)[0]
        ):
            return None  # skip the releases: trying them would read the configuration once per candidate
        if report.confirm is not None:
            confirmed = report._replace(confirm=None) if report.confirm() else None
            return None if confirmed is None else grade_report(rule, confirmed, main, run, check, reads)
        assumptions = (*assumptions, *find_release_assumptions(run, fields))
        if assumptions:
            refuting, scenarios = _find_refuting_assumptions(rule, report, run, assumptions, check)
    fork_evidence = _find_fork_evidence(rule, report, main)
    if fork_evidence is not None:
        severity = "info" if fork_evidence.strength == "adds" else lower_severity(severity)
    vocabulary = (*_build_vocabulary_grounds(rule, main, fork_evidence), *_build_condition_grounds(rule, report))
    unseen_flags = () if run is None or severity != "error" else _build_unseen_flag_grounds(rule, report, run)
    rewritten = (
        () if run is None or severity == "info" else tuple(_list_rewritten_settings(rule, report, run, fields_read))
    )
    if severity != "info" and not rewritten and not rule.rests_on_vocabulary:  # vocabulary rules do this themselves
        rewritten = tuple(_list_changed_settings(report, (main,) if run is None else run.configs))
    certain_grounds = () if run is None or refuting or rewritten else _list_certain_grounds(rule, run, fields_read)
    refuting_facts = {assumption.fact for assumption in refuting}
    report_grounds = (
        ground for ground in report.grounds if ground.grade != "assumed" or ground.fact not in refuting_facts
    )
    rests_on = (
        *report_grounds,
        *vocabulary,
        *(assumption.ground for assumption in refuting),
        *rewritten,
        *certain_grounds,
    )
    certainty = find_worst_grade(tuple(ground.grade for ground in rests_on))
    if CERTAINTIES.index(certainty) > CERTAINTIES.index(report.min_certainty):
        return None
    rests_on = (*rests_on, *unseen_flags)
    certainty = find_worst_grade(tuple(ground.grade for ground in rests_on))
    report = report.resolve_remedy()
    assumed_notes = (
        ground.note for ground in rests_on if ground.grade == "assumed" and ground.note not in report.message
    )
    notes = (*report.notes, *dict.fromkeys(f"assumes {note}" for note in assumed_notes))
    fix = report.fix
    if fix is not None and fix.applicability == "safe":
        grounds = (*fix.grounds, *vocabulary, *rewritten, *unseen_flags)
        guessed_facts = {ground.fact for ground in grounds if ground.grade == "assumed"}
        guessed_facts.update(assumption.fact for assumption in refuting)
        if fix.uses_estimate:  # its effect is the same for every release for which the report is made
            guessed_facts.update(
                assumption.fact for assumption in assumptions if not assumption.fact.startswith(RELEASE)
            )
        cut_off = "" if run is None or fix.is_inert else format_cut_off_note(main)
        if cut_off:
            notes = (*notes, cut_off)
        if cut_off or guessed_facts - fix.tolerated_assumptions:
            fix = fix._replace(applicability="unsafe")
    severity = cap_severity(severity, certainty)
    if report.assumed_severity is not None and certainty not in _CERTAIN:
        severity = report.assumed_severity
    if rule.estimates and run is not None and _count_decisive_facts(scenarios, refuting, run) >= MIN_GUESSES_FOR_INFO:
        severity = "info"
    return GradedReport(
        severity, certainty, rests_on, notes, fix, report.help, scenarios, (*dict.fromkeys((*fields_read, *reads)),)
    )


def _count_decisive_facts(scenarios: tuple[Scenario, ...], refuting: tuple[Assumption, ...], run: Run) -> int:
    """Return the number of unstated facts that could each refute a report alone, with all others as assumed.

    A fork counts if the report rests on its behavior. A length limit counts if it exceeds `MAX_ASSUMED_LENGTH`.
    """
    decisive = {scenario.facts[0][0] for scenario in scenarios if len(scenario.facts) == 1 and not scenario.holds}
    decisive.update(assumption.fact for assumption in refuting if assumption.fact == FORK)
    if (run.plan.sequence.length or 0) <= MAX_ASSUMED_LENGTH:
        decisive.discard(get_field("sequence.length"))
    return len(decisive)


def cap_severity(severity: Severity, certainty: Certainty) -> Severity:
    """Return the severity, lowered to a warning if the certainty is not among `_CERTAIN`."""
    return severity if certainty in _CERTAIN else max(severity, "warning", key=SEVERITIES.index)


def _is_behind_release_guard(place: Place) -> bool:
    """Return whether a script tests the installed release before it passes the setting."""
    if place.document.syntax != "python":
        return False
    from cfglint_train.documents.python.guards import is_guarded
    from cfglint_train.documents.python.script import PythonScript

    return isinstance(place.document, PythonScript) and is_guarded(place.document, place.span)


def _build_vocabulary_grounds(rule: Rule, main: Config, fork_evidence: ForkEvidence | None) -> tuple[Ground, ...]:
    """Return a ground if a fork may be in use, or may have the keys of the report."""
    fork = main.evidence.fork
    if fork_evidence is not None:
        return (
            Ground(
                LOWERED,
                str(fork_evidence),
                "assumed",
                f"upstream's vocabulary, but {fork_evidence}",
                fork_evidence.source,
            ),
        )
    if fork is None or not rule.rests_on_vocabulary:
        return ()
    return (Ground("vocabulary", main.framework, "assumed", f"upstream's vocabulary: {fork}", fork.source),)


def _find_fork_evidence(rule: Rule, report: Report, main: Config) -> ForkEvidence | None:
    """Return evidence that the framework in use has the reported keys in addition to upstream's, or None."""
    if not main.evidence.lowering_evidence or not rule.rests_on_vocabulary:
        return None
    marked = (report.place, *(evidence.place for evidence in report.related))
    texts = (place.document.get_text(place.span) for place in marked)
    names = [match[0] for text in texts if (match := re.search(r"[\w.-]+", text)) is not None]
    return next((evidence for evidence in main.evidence.lowering_evidence if any(map(evidence.is_about, names))), None)


def lower_severity(severity: Severity) -> Severity:
    """Return the next lower severity, or "info" for an info."""
    return SEVERITIES[min(SEVERITIES.index(severity) + 1, len(SEVERITIES) - 1)]


def _build_condition_grounds(rule: Rule, report: Report) -> tuple[Ground, ...]:
    """Return a ground if a condition in the script decides whether the reported option is passed."""
    document = report.place.document
    if document.syntax != "shell" or not rule.rests_on_vocabulary:
        return ()
    from cfglint_train.documents.shell.script import ShellScript

    assert isinstance(document, ShellScript)
    conditional_option = document.find_conditional_option(report.place.span)
    if conditional_option is None:
        return ()
    option, condition = conditional_option
    return (Ground(f"option:{option}", True, "assumed", f"`{option}` is given, which {condition} decides"),)


def _build_unseen_flag_grounds(rule: Rule, report: Report, run: Run) -> tuple[Ground, ...]:
    """Return the assumption that the launch appends no unseen flags.

    Such flags could replace any of the numbers, in the launch or its file, that contradict each other.
    """
    if not rule.depends_on_unseen_flags or not run.inputs.hidden_options:
        return ()
    launch_paths = {document.path for document in (run.main.document, *run.inputs.scripts)}
    return (assume_no_extra_options(run.inputs.hidden_options),) if report.place.document.path in launch_paths else ()


def _list_rewritten_settings(rule: Rule, report: Report, run: Run, reads: tuple[Field, ...]) -> Iterable[Ground]:
    """Yield a ground for each setting that a script of the repository changes in its file before the run.

    This covers the settings behind an estimate and those that the report depends on, in the main config and its
    companions.
    """
    fields = {*(report.fields_read or ()), *(("model.id", *reads, *run.estimate.fields) if rule.estimates else ())}
    for field in map(get_field, sorted(fields)):
        field_origin = run.get_origin(field)
        if field_origin is None or field_origin.kind != "explicit":
            continue
        owner = (
            run.main
            if field_origin.framework == run.main.framework
            else run.inputs.companions.get(field_origin.framework)
        )
        if owner is not None and get_mutations(owner).is_changed(tuple(field_origin.key.split("."))):
            note = f"`{field_origin.key}` as the file has it, which a script of the repository changes"
            yield Ground(field, run.plan.get(field), "assumed", note)


def _list_changed_settings(report: Report, configs: Iterable[Config]) -> Iterable[Ground]:
    """Yield a ground for each setting that a script of the repository changes before the framework reads the file.

    Only settings at the report's places or named in its message count.
    """
    names = {*re.findall(r"`([\w.]+)", report.message)}
    places = (report.place, *(related_place.place for related_place in report.related))
    for config in configs:
        document = config.document
        spans = [place.span for place in places if place.document.path == document.path]
        if not spans or document.syntax not in ("yaml", "json"):
            continue
        for above, mapping in document.list_mappings():
            for name, entry in mapping.index.items() if above[: len(config.root)] == config.root else ():
                route = (*above[len(config.root) :], name)
                marked = any(entry.key.span.start <= span.start < entry.key.span.end for span in spans)
                if (marked or format_route(route) in names) and get_mutations(config).is_changed(route):
                    note = f"`{format_route(route)}` as the file has it, which a script of the repository changes"
                    yield Ground(format_route(route), config.get(*route), "assumed", note)


def _find_refuting_assumptions(
    rule: Rule, report: Report, run: Run, assumptions: tuple[Assumption, ...], check: Check
) -> tuple[tuple[Assumption, ...], tuple[Scenario, ...]]:
    """Return the assumptions whose other values refute the report, and the scenarios that were tried.

    An assumption without known other values always counts as refuting. No other assumption is returned if the report
    holds in all scenarios. For a report that needs certain facts, the search stops at the first refuting assumption.
    """
    open_assumptions = tuple(assumption for assumption in assumptions if not assumption.others)
    enough = 1 if report.min_certainty in _CERTAIN else len(assumptions)
    if len(open_assumptions) >= enough:
        return open_assumptions, ()
    scenarios: list[Scenario] = []

    @cache
    def check_under(*facts: tuple[str, Any]) -> tuple[Report, ...]:
        try:
            reports = check(run.build_scenario(dict(facts)))
            return tuple(other for other in reports if report.confirm is not None or other.is_confirmed)
        except Exception:  # a rule that crashes is reported on its first call
            return ()

    def is_still_reported(facts: Mapping[str, Any]) -> bool:
        kindest_facts = Scenario(
            tuple(facts.items()), any(_is_same_report(rule, report, other) for other in check_under(*facts.items()))
        )
        if kindest_facts not in scenarios:
            scenarios.append(kindest_facts)
        return kindest_facts.holds

    kindest_facts = find_mildest_facts(assumptions, rule.estimates)
    if rule.estimates:
        assumptions = tuple(
            assumption
            for assumption in assumptions
            if assumption.fact in kindest_facts or assumption.fact.startswith(RELEASE)
        )
    refuting = find_refuting(assumptions, kindest_facts, is_still_reported, enough)
    return (*open_assumptions, *refuting), tuple(scenarios)


def _list_dependencies(
    rule: Rule, report: Report, run: Run, reads: tuple[Field, ...]
) -> tuple[frozenset[Field], tuple[str, ...]]:
    """Return the plan fields that the rule or the estimate read for a report, and other facts that it depends on."""
    if not rule.estimates:
        return frozenset((*reads, *_list_derived_sources(run, report.fields_read or ()))), ()
    card = (GPU,) if "gpu" in rule.estimates else ()
    return frozenset((*reads, *run.estimate.fields)), (MODEL, *card)


def _list_related_companions(report: Report, run: Run) -> Iterable[str]:
    """Yield the facts of the companions whose settings the report names together with settings of another file."""
    places = {report.place.document.path, *(related.place.document.path for related in report.related)}
    if len(places) > 1:
        yield from (
            f"{COMPANION_PREFIX}{name}"
            for name, config in run.inputs.companions.items()
            if config.document.path in places
        )


def _list_derived_sources(run: Run, fields: Iterable[Field]) -> Iterable[Field]:
    """Return the assumed fields that an inferred field may derive from; empty if none of `fields` is inferred."""
    if all((origin := run.get_origin(field)) is None or origin.kind != "inferred" for field in fields):
        return ()
    return tuple(
        field for field, value in run.resolved_plan if value.origin.kind == "assumed" or value.origin.assumption
    )


def _is_same_report(rule: Rule, report: Report, other: Report) -> bool:
    """Return whether a report from another scenario claims at least as much as this report.

    Reports of an estimate are compared by quantity and severity, because their figures differ in every scenario. Other
    reports are compared by place and claim (or message).
    """
    if not rule.estimates:
        return (other.place, other.claim or other.message) == (report.place, report.claim or report.message)
    severity, other_severity = report.severity or rule.severity, other.severity or rule.severity
    return other.quantity == report.quantity and SEVERITIES.index(other_severity) <= SEVERITIES.index(severity)


def _list_certain_grounds(rule: Rule, run: Run, reads: tuple[Field, ...]) -> Iterable[Ground]:
    """Yield the certain facts that a report rests on: the plan fields read for it, and the GPU."""
    for field in reads:
        origin, value = run.get_origin(field), run.plan.get(field)
        if origin is not None and value is not None:
            certainty = grade_origin(origin)
            if certainty != "assumed" and not (
                certainty == "followed" and get_field(field) in find_varying_fields(run)
            ):
                yield Ground(field, value, certainty, describe_place(origin.place, origin.note))
    if "gpu" in rule.estimates and run.hardware.gpu_origin.kind != "assumed":
        origin = run.hardware.gpu_origin
        yield Ground(
            GPU, run.hardware.gpu or run.hardware.gpu_bytes, "stated", describe_place(origin.place, origin.note)
        )
