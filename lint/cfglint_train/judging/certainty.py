"""How sure a report is: the one place that decides it (design.md, section 7).

A rule states what happens (its severity) for the run as it was read, assumptions included. Here the same rule is asked
again where an assumed fact has its other value: a report that stands everywhere is certain; one that falls rests on
the facts at which it falls, is a warning at most, with a note. A verdict on memory that two guesses turn, each by
itself, is advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice

from cfglint_rules.rule import Rule
from cfglint_rules.syntax.broken_command import cut_off_note
from cfglint_train.findings.finding import SEVERITIES, Fix, Report, Severity
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.evidence import Evidence
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.mutations.mutations import mutations_of
from cfglint_train.plan.certainty import (
    CERTAINTIES,
    LOWERED,
    Assumption,
    Certainty,
    Ground,
    Scenario,
    grade,
    unappended,
    where,
    worst,
)
from cfglint_train.plan.fields import named
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.releases.other_releases import RELEASE
from cfglint_train.runs.assumptions import COMPANION, FORK, facts_behind, kindest, releases_behind, varying
from cfglint_train.runs.run import GPU, Run

GUESSES: Final = 2
"""Facts that no file states and each of which would turn a verdict on memory by itself: with so many, it is advice.

On public configurations, none of 21 such warnings could be confirmed, and both that rest on the card alone
were.
"""
MOST_REACHED: Final = 2048
"""Tokens of a limit (`cutoff_len` of unpacked data) that the longest sample is taken to reach: a longer one is a guess.

A run with 2,048 did run out of memory on 80 GB (OpenRLHF/OpenRLHF#392). Of the warnings on public files none could be
confirmed that rest on a longer limit: one of 4,096 tokens trains on questions of some hundred, in micro batches of 32
that would need 298 GiB at the full length (modal-labs/llm-finetuning, config/llama-3.yml); published runs with 30,024
would need 116 GiB (RUCAIBox/R1-Searcher); 122 had limits of 8,192 and 65,536.
"""

_KNOWN: Final[tuple[Certainty, ...]] = ("stated", "followed")
"""What rests on no assumption."""

Check = Callable[[Any], Iterable[Report]]


class Grading(Frozen):
    """What a report may say."""

    severity: Severity
    certainty: Certainty
    rests_on: tuple[Ground, ...]
    notes: tuple[str, ...]
    fix: Fix | None
    help: str | None
    corners: tuple[Scenario, ...] = ()
    """What came of asking again."""
    reads: tuple[Field, ...] = ()
    """The plan fields that the report and its fix rest on."""


def graded(
    rule: Rule, report: Report, main: Config, run: Run | None, check: Check, reads: Iterable[Field] = ()
) -> Grading | None:
    """Return what a rule's report may say of a run (None: of `main` by itself), or None if it may not be said.

    `check` is the rule, `reads` the plan fields that it has read so far.
    """
    seen = tuple(reads) if report.reads is None else report.reads
    severity = report.severity or rule.severity
    if rule.rests_on_vocabulary and _is_guarded(report.place):
        return None
    found: tuple[Assumption, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    corners: tuple[Scenario, ...] = ()
    if run is not None:
        fields, facts = _asked_for(rule, report, run, seen)
        found = facts_behind(run, fields, *facts, *_pointed_at(report, run))
        if found and report.minimum in _KNOWN and _assumed(rule, report, run, found, check)[0]:
            return None  # whatever the releases do: to find that, the configuration is read at every candidate
        found = (*found, *releases_behind(run, fields))
        if found:
            assumed, corners = _assumed(rule, report, run, found, check)
    added = _added(rule, report, main)
    if added is not None:
        severity = "info" if added.strength == "adds" else milder(severity)
    vocabulary = (*_vocabulary(rule, main, added), *_conditional(rule, report))
    appended = () if run is None or severity != "error" else _appended(rule, report, run)
    rewritten = () if run is None or severity == "info" else tuple(_rewritten(rule, report, run, seen))
    if severity != "info" and not rewritten and not rule.rests_on_vocabulary:  # those ask for it themselves
        rewritten = tuple(_changed(report, (main,) if run is None else run.configs))
    read = () if run is None or assumed or rewritten else _read(rule, run, seen)
    falling = {one.fact for one in assumed}
    own = (ground for ground in report.grounds if ground.grade != "assumed" or ground.fact not in falling)
    rests_on = (*own, *vocabulary, *(one.ground for one in assumed), *rewritten, *read)
    certainty = worst(tuple(ground.grade for ground in rests_on))
    if CERTAINTIES.index(certainty) > CERTAINTIES.index(report.minimum):
        return None
    rests_on = (*rests_on, *appended)
    certainty = worst(tuple(ground.grade for ground in rests_on))
    report = report.remedied()
    told = (ground.note for ground in rests_on if ground.grade == "assumed" and ground.note not in report.message)
    notes = (*report.notes, *dict.fromkeys(f"assumes {note}" for note in told))
    fix = report.fix
    if fix is not None and fix.applicability == "safe":
        grounds = (*fix.grounds, *vocabulary, *rewritten, *appended)
        guessed = {ground.fact for ground in grounds if ground.grade == "assumed"}
        guessed.update(one.fact for one in assumed)
        if fix.measured:  # what it does is the same at every release that the report is at
            guessed.update(one.fact for one in found if not one.fact.startswith(RELEASE))
        cut = "" if run is None or fix.inert else cut_off_note(main)
        if cut:
            notes = (*notes, cut)
        if cut or guessed - fix.despite:
            fix = fix._replace(applicability="unsafe")
    severity = capped(severity, certainty)
    if rule.estimates and run is not None and _alone(corners, assumed, run) >= GUESSES:
        severity = "info"
    return Grading(severity, certainty, rests_on, notes, fix, report.help, corners, (*dict.fromkeys((*seen, *reads)),))


def _alone(corners: tuple[Scenario, ...], assumed: tuple[Assumption, ...], run: Run) -> int:
    """How many facts that no file states make a report fall by themselves, all others being as assumed.

    What a fork does is one of them where the report rests on it; a limit of the length is, unless it is short.
    """
    falling = {corner.facts[0][0] for corner in corners if len(corner.facts) == 1 and not corner.holds}
    falling.update(one.fact for one in assumed if one.fact == FORK)
    if (run.plan.sequence.length or 0) <= MOST_REACHED:
        falling.discard(named("sequence.length"))
    return len(falling)


def capped(severity: Severity, certainty: Certainty) -> Severity:
    """A severity, or the gravest that a certainty allows."""
    return severity if certainty in _KNOWN else max(severity, "warning", key=SEVERITIES.index)


def _is_guarded(place: Place) -> bool:
    """Whether a script itself asks which release is there before it gives a setting."""
    if place.document.syntax != "python":
        return False
    from cfglint_train.documents.python.guards import is_guarded
    from cfglint_train.documents.python.script import PythonScript

    return isinstance(place.document, PythonScript) and is_guarded(place.document, place.span)


def _vocabulary(rule: Rule, main: Config, added: Evidence | None) -> tuple[Ground, ...]:
    """Upstream's vocabulary, where there is evidence that a fork is in use, or has the keys of a report besides."""
    fork = main.evidence.fork
    if added is not None:
        return (Ground(LOWERED, str(added), "assumed", f"upstream's vocabulary, but {added}", added.source),)
    if fork is None or not rule.rests_on_vocabulary:
        return ()
    return (Ground("vocabulary", main.framework, "assumed", f"upstream's vocabulary: {fork}", fork.source),)


def _added(rule: Rule, report: Report, main: Config) -> Evidence | None:
    """Return the evidence that the framework in use has the keys which a report marks, beside upstream's."""
    if not main.evidence.lowering or not rule.rests_on_vocabulary:
        return None
    marked = (report.place, *(one.place for one in report.related))
    texts = (place.document.text(place.span) for place in marked)
    names = [found[0] for text in texts if (found := re.search(r"[\w.-]+", text)) is not None]
    return next((one for one in main.evidence.lowering if any(map(one.is_about, names))), None)


def milder(severity: Severity) -> Severity:
    """Return the severity one level lower."""
    return SEVERITIES[min(SEVERITIES.index(severity) + 1, len(SEVERITIES) - 1)]


def _conditional(rule: Rule, report: Report) -> tuple[Ground, ...]:
    """The option of a command that a report about keys points at, where a condition decides whether it is given."""
    document = report.place.document
    if document.syntax != "shell" or not rule.rests_on_vocabulary:
        return ()
    from cfglint_train.documents.shell.script import ShellScript

    assert isinstance(document, ShellScript)
    found = document.condition_at(report.place.span)
    if found is None:
        return ()
    option, condition = found
    return (Ground(f"option:{option}", True, "assumed", f"`{option}` is given, which {condition} decides"),)


def _appended(rule: Rule, report: Report, run: Run) -> tuple[Ground, ...]:
    """That a launch gives nothing out of sight, of numbers in it or its file that contradict each other: any of them
    may be another one then.
    """
    if not rule.depends_on_unseen_flags or not run.parts.appended:
        return ()
    own = {one.path for one in (run.main.document, *run.parts.scripts)}
    return (unappended(run.parts.appended),) if report.place.document.path in own else ()


def _rewritten(rule: Rule, report: Report, run: Run, reads: tuple[Field, ...]) -> Iterable[Ground]:
    """The settings behind an estimate, or that the report names, that a script of the repository changes in their file
    before the run, be it the run's own or a companion.
    """
    fields = {*(report.reads or ()), *(("model.id", *reads, *run.estimate.fields) if rule.estimates else ())}
    for field in map(named, sorted(fields)):
        origin = run.origin(field)
        if origin is None or origin.kind != "explicit":
            continue
        owner = run.main if origin.framework == run.main.framework else run.parts.companions.get(origin.framework)
        if owner is not None and mutations_of(owner).is_set(tuple(origin.key.split("."))):
            note = f"`{origin.key}` as the file has it, which a script of the repository changes"
            yield Ground(field, run.plan.get(field), "assumed", note)


def _changed(report: Report, configs: Iterable[Config]) -> Iterable[Ground]:
    """The settings at which a report points, or whose keys its message names, that a script of the repository changes
    in the file before the framework sees it.
    """
    names = {*re.findall(r"`([\w.]+)", report.message)}
    places = (report.place, *(one.place for one in report.related))
    for config in configs:
        document = config.document
        spans = [place.span for place in places if place.document.path == document.path]
        if not spans or document.syntax not in ("yaml", "json"):
            continue
        for above, mapping in document.mappings():
            for name, entry in mapping.index.items() if above[: len(config.root)] == config.root else ():
                route = (*above[len(config.root) :], name)
                marked = any(entry.key.span.start <= span.start < entry.key.span.end for span in spans)
                if (marked or spelled(route) in names) and mutations_of(config).is_set(route):
                    note = f"`{spelled(route)}` as the file has it, which a script of the repository changes"
                    yield Ground(spelled(route), config.get(*route), "assumed", note)


def _assumed(
    rule: Rule, report: Report, run: Run, found: tuple[Assumption, ...], check: Check
) -> tuple[tuple[Assumption, ...], tuple[Scenario, ...]]:
    """Those of the assumptions found at whose other value the report falls (none where it is at all of them), and
    the corners at which the rule was asked. Of a report that is made on known facts only, the first of them is enough.
    """
    untold = tuple(one for one in found if not one.others)
    enough = 1 if report.minimum in _KNOWN else len(found)
    if len(untold) >= enough:
        return untold, ()
    corners: list[Scenario] = []

    @cache
    def again(*facts: tuple[str, Any]) -> tuple[Report, ...]:
        try:
            return tuple(check(run.under(dict(facts))))
        except Exception:  # a rule that crashes is reported where it is asked first
            return ()

    def stands(facts: Mapping[str, Any]) -> bool:
        corner = Scenario(tuple(facts.items()), any(_same(rule, report, other) for other in again(*facts.items())))
        if corner not in corners:
            corners.append(corner)
        return corner.holds

    corner = kindest(found, rule.estimates)
    if rule.estimates:
        found = tuple(one for one in found if one.fact in corner or one.fact.startswith(RELEASE))
    # At each end: which is the kinder one may differ (a single GPU that offloads its shards has nothing to exchange).
    falls = (one for one in found if any(not stands({one.fact: other}) for other in one.others))
    falling = tuple(islice(falls, enough))
    if corner and not falling and not stands(corner):
        falling = tuple(one for one in found if one.fact in corner)
    return (*untold, *falling), tuple(corners)


def _asked_for(
    rule: Rule, report: Report, run: Run, reads: tuple[Field, ...]
) -> tuple[frozenset[Field], tuple[str, ...]]:
    """Return the fields that were read for a report, by its rule or the estimate, and the further facts."""
    if not rule.estimates:
        return frozenset((*reads, *_sources(run, report.reads or ()))), ()
    card = (GPU,) if "gpu" in rule.estimates else ()
    return frozenset((*reads, *run.estimate.fields)), (MODEL, *card)


def _pointed_at(report: Report, run: Run) -> Iterable[str]:
    """The companions whose settings a report names beside those of another file, where it rests on both."""
    places = {report.place.document.path, *(related.place.document.path for related in report.related)}
    if len(places) > 1:
        yield from (f"{COMPANION}{name}" for name, one in run.parts.companions.items() if one.document.path in places)


def _sources(run: Run, fields: Iterable[Field]) -> Iterable[Field]:
    """The fields that a derived one among some may follow from, as far as they are assumed."""
    if all((origin := run.origin(field)) is None or origin.kind != "inferred" for field in fields):
        return ()
    return tuple(field for field, value in run.reading if value.origin.kind == "assumed" or value.origin.assumed)


def _same(rule: Rule, report: Report, other: Report) -> bool:
    """Whether a report elsewhere says as much as this one does here.

    What an estimate says is its severity: its figures differ everywhere. Anything else says the same in the same words,
    or makes the same claim.
    """
    if not rule.estimates:
        return (other.place, other.claim or other.message) == (report.place, report.claim or report.message)
    severity, there = report.severity or rule.severity, other.severity or rule.severity
    return SEVERITIES.index(there) <= SEVERITIES.index(severity)


def _read(rule: Rule, run: Run, reads: tuple[Field, ...]) -> Iterable[Ground]:
    """Yield the facts that a certain report rests on: the fields that were read for it, and the card."""
    for field in reads:
        origin, value = run.origin(field), run.plan.get(field)
        if origin is not None and value is not None:
            sure = grade(origin)
            if sure != "assumed" and not (sure == "followed" and named(field) in varying(run)):
                yield Ground(field, value, sure, where(origin.place, origin.note))
    if "gpu" in rule.estimates and run.hardware.gpu_origin.kind != "assumed":
        origin = run.hardware.gpu_origin
        yield Ground(GPU, run.hardware.gpu or run.hardware.gpu_bytes, "stated", where(origin.place, origin.note))
