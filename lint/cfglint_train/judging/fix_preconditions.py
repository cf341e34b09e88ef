"""Whether a fix would make a framework refuse what it takes now, or another fix would undo it.

A vocabulary fix gives a key the effect that its author meant it to have. Where that effect is refused beside the rest
of the configuration (a plugin beside a rival, checkpointing on a model that has none), the fix is shown and never
applied. So is a fix that changes what another one of the report changes otherwise, and one after which a rule would ask
for the former value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit, Change, Document, DocumentError, Route, Set, apply
from cfglint_train.findings.finding import SEVERITIES, Finding, Fix
from cfglint_train.foundation.typed import TypeGuard
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import naming
from cfglint_train.plan.names import Field
from cfglint_train.plan.reading import changed, same
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace

_EDITED: tuple[str, ...] = ("yaml", "json")


def guarded(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, those with a fix of keys for display only where the framework would refuse the fixed file.

    A configuration is read once more for all of its fixes together; only where that is refused, or cannot be written,
    once for each.
    """
    kept = list(findings)
    together: dict[int, list[int]] = {}
    for number, finding in enumerate(kept):
        if _is_asked(finding.intent):
            together.setdefault(id(finding.intent.keys[0][0]), []).append(number)
    for numbers in together.values():
        fixes = {number: fix for number in numbers if (fix := kept[number].intent) is not None}
        if len(fixes) > 1 and _fine_together(list(fixes.values())):
            continue
        for number, fix in fixes.items():
            kept[number] = kept[number]._replace(intent=_alone(fix))
    return kept


def refusals(workspace: Workspace, run: Run, texts: Mapping[str, bytes]) -> frozenset[str]:
    """Return why other texts of some files are refused: what would stop the run and does not stop it now, by the
    names of the entries; what a rule would undo; what would have no effect.
    """
    path, root = run.main.document.path, run.main.root
    edited = workspace.updated(texts)
    config = next((one for one in edited.configs_in(path) if one.root == root), None)
    if config is None:
        return frozenset()
    after = edited.run(config)
    fields = changed(run.base, after.base)
    return (_combinations(after) - run.once(_combinations)) | _undoing(run, after, fields) | _idle(run, after, fields)


def apart(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, those with a fix for display only that another fix of theirs contradicts, or that a rule
    would undo.

    Of two that give one setting different values the safe one keeps its fix, then the more severe one, then the first.
    """
    kept = list(findings)
    targets = {number: _targets(one) for number, one in enumerate(kept) if one.intent and _is_offered(one.intent)}
    taken: dict[tuple[str, Route | str], tuple[Finding, str]] = {}
    for number in sorted(targets, key=lambda number: _rank(kept[number])):
        one = kept[number]
        rivals = (
            taken[place][0] for place, value in targets[number].items() if taken.get(place, (one, value))[1] != value
        )
        rival = next((other for other in rivals if _spot(other) != _spot(one)), None)
        undoing = frozenset[str]() if rival is not None else _undoing_of(one)
        if rival is not None:
            kept[number] = _shown(one, f"{rival.code} changes the same setting")
        elif undoing:
            kept[number] = _shown(one, sorted(undoing)[0])
        else:
            for place, value in targets[number].items():
                taken.setdefault(place, (one, value))
    return kept


def _is_offered(fix: Fix) -> bool:
    return fix.applicability != "display"


def _rank(finding: Finding) -> tuple[object, ...]:
    fix = finding.intent
    return fix is None or fix.applicability != "safe", SEVERITIES.index(finding.severity), finding.order


def _spot(finding: Finding) -> tuple[object, ...]:
    """Several runs may have a finding at one place: what their fixes do to each other is seen to elsewhere."""
    return finding.code, finding.path, finding.start


def _shown(finding: Finding, why: str) -> Finding:
    assert finding.intent is not None
    fix = finding.intent._replace(applicability="display", message=f"{finding.intent.message}; not applied: {why}")
    return finding._replace(intent=fix)


def _targets(finding: Finding) -> dict[tuple[str, Route | str], str]:
    """Return what a fix sets, with the new values: fields of the plan by the file that states them, and keys."""
    fix, run = finding.intent, finding.run
    assert fix is not None
    found: dict[tuple[str, Route | str], str] = {}
    for field, value in fix.changes.items() if run is not None else ():
        owner = run.owner(field) if run is not None else None
        found[finding.path if owner is None else owner[0].document.path, field] = repr(value)
    for config, changes in fix.keys:
        for change in changes:
            if isinstance(change, Set):
                found[config.document.path, change.route] = repr(change.value)
    return found


def _undoing_of(finding: Finding) -> frozenset[str]:
    """Return why a rule would ask for the former values after a finding's fix."""
    fix, run = finding.intent, finding.run
    if fix is None or run is None or not any(map(_writers, fix.changes)):
        return frozenset()
    return _undoing(run, run.changed(fix.changes), fix.changes)


def _undoing(before: Run, after: Run, fields: Iterable[Field]) -> frozenset[str]:
    """Return why rules would give fields their former values again. Rules that estimate are not asked."""
    frameworks = [config.framework for config in after.configs]
    return frozenset(
        f"{rule.code} would ask for the former value of `{before.spell(field)}`"
        for field in fields
        for rule in _writers(field)
        if not rule.particular or not naming(rule.code).isdisjoint(frameworks)
        for report in registry.checker(rule)(after)
        if (fix := report.remedied().fix) is not None
        and field in fix.changes
        and same(fix.changes[field], before.plan.get(field))
    )


def _idle(before: Run, after: Run, fields: Iterable[Field]) -> frozenset[str]:
    """Return the new values that have no effect: the framework leaves the fields as they were (Liger's kernels for a
    model that they have none for).
    """
    return frozenset(
        f"`{before.spell(field)}` would change nothing"
        for field in fields
        if not same(after.plan.get(field), after.base.get(field))
        and same(after.plan.get(field), before.plan.get(field))
    )


@cache
def _writers(field: Field) -> tuple[Rule, ...]:
    """Return the rules that change a field and need no estimate."""
    return tuple(rule for rule in registry.RULES.values() if field in rule.writes and not rule.estimates)


def _combinations(run: Run) -> frozenset[str]:
    from cfglint_rules.vocabulary.refused_combination import stopping

    return frozenset(stopping(run))


def _is_asked(fix: Fix | None) -> TypeGuard[Fix]:
    return (
        fix is not None
        and fix.applicability != "display"
        and not fix.inert
        and len(fix.keys) == 1
        and fix.keys[0][0].document.syntax in _EDITED
    )


def _fine_together(fixes: list[Fix]) -> bool:
    """Whether the framework takes the file after the safe fixes, and after all of them."""
    config = fixes[0].keys[0][0]
    for kinds in (("safe",), ("safe", "unsafe")):
        changes = [change for fix in fixes if fix.applicability in kinds for change in fix.keys[0][1]]
        after = _changed(config, tuple(changes)) if changes else config
        if after is None or _refused(config, after):
            return False
    return True


def _alone(fix: Fix) -> Fix:
    """The fix, or the same one for display only where it would be refused."""
    ((config, changes),) = fix.keys
    after = _changed(config, changes)
    refused = None if after is None else _refused(config, after)
    if not refused:
        return fix
    return fix._replace(applicability="display", message=f"{fix.message}; not applied: {sorted(refused)[0]}")


def _refused(before: Config, after: Config) -> frozenset[str]:
    """Why the framework refuses what it took before."""
    refused = stops(after)
    return refused - stops(before) if refused else refused


def stops(config: Config) -> frozenset[str]:
    """Why the framework refuses a configuration, as far as one file shows: empty where it does not."""
    return config.once(_stops)


def _stops(config: Config) -> frozenset[str]:
    rules = [registry.module(rule) for rule in registry.RULES.values() if rule.refuses]
    return frozenset(reason for rule in rules for reason in rule.refused(config))


def _changed(config: Config, changes: tuple[Change, ...]) -> Config | None:
    """The configuration after some changes; None where they cannot be written."""
    document = config.document
    try:
        edits = document.edits(changes)
        after: Document = type(document)(document.path, apply(document.source, edits))
    except (CannotEdit, DocumentError):
        return None
    frameworks.load(config.framework).prepare(after)
    return config.altered(document=after)
