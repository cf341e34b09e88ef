"""Preconditions of fixes: the framework accepts the fixed file, and no other fix or rule undoes the change.

A vocabulary fix gives a key the effect that its author intended. If the framework rejects that effect together with the
rest of the config (a plugin beside an incompatible one, checkpointing for a model that does not support it), the fix is
shown but never applied. The same holds for fixes that set one setting to different values, and for a fix after which a
rule would ask for the former value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit, Change, Document, DocumentError, Route, Set, apply_edits
from cfglint_train.findings.finding import SEVERITIES, Finding, Fix
from cfglint_train.foundation.typed import TypeGuard
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import find_frameworks_of_rule
from cfglint_train.plan.names import Field
from cfglint_train.plan.reading import find_changed_fields, is_equal
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace

_EDITABLE_SYNTAXES: tuple[str, ...] = ("yaml", "json")


def drop_rejected_fixes(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a key fix after which the framework would reject the file is only displayed.

    A config is read once more with all of its fixes together. If this version is rejected or cannot be written, the
    config is read once for each fix.
    """
    checked = list(findings)
    numbers_by_config: dict[int, list[int]] = {}
    for number, finding in enumerate(checked):
        if _needs_check(finding.intent):
            numbers_by_config.setdefault(id(finding.intent.keys[0][0]), []).append(number)
    for numbers in numbers_by_config.values():
        fixes = {number: fix for number in numbers if (fix := checked[number].intent) is not None}
        if len(fixes) > 1 and _is_accepted_together(list(fixes.values())):
            continue
        for number, fix in fixes.items():
            checked[number] = checked[number]._replace(intent=_check_single_fix(fix))
    return checked


def find_refusals(workspace: Workspace, run: Run, texts: Mapping[str, bytes]) -> frozenset[str]:
    """Return the reasons against replacing the texts of some files, or an empty set.

    Reasons are the names of `refusals.json` entries that would newly stop the run, changes that a rule would undo, and
    changes without effect.
    """
    path, root = run.main.document.path, run.main.root
    edited = workspace.replace_files(texts)
    config = next((edited_config for edited_config in edited.read_configs(path) if edited_config.root == root), None)
    if config is None:
        return frozenset()
    after = edited.resolve_run(config)
    fields = find_changed_fields(run.stated_plan, after.stated_plan)
    return (
        (_find_refused_combinations(after) - run.compute_once(_find_refused_combinations))
        | _find_undoing_rules(run, after, fields)
        | _find_ineffective_changes(run, after, fields)
    )


def drop_conflicting_fixes(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a fix that conflicts with another fix, or that a rule would undo, is only displayed.

    If two fixes set one setting to different values, the safe one wins, then the more severe one, then the first.
    """
    checked = list(findings)
    targets = {
        number: _list_targets(finding)
        for number, finding in enumerate(checked)
        if finding.intent and _is_offered(finding.intent)
    }
    claims: dict[tuple[str, Route | str], tuple[Finding, str]] = {}
    for number in sorted(targets, key=lambda number: _get_priority(checked[number])):
        finding = checked[number]
        rivals = (
            claims[place][0]
            for place, value in targets[number].items()
            if claims.get(place, (finding, value))[1] != value
        )
        rival = next((other for other in rivals if _get_location(other) != _get_location(finding)), None)
        reasons = frozenset[str]() if rival is not None else _find_undoing_rules_for_fix(finding)
        if rival is not None:
            checked[number] = _demote_fix(finding, f"{rival.code} changes the same setting")
        elif reasons:
            checked[number] = _demote_fix(finding, sorted(reasons)[0])
        else:
            for place, value in targets[number].items():
                claims.setdefault(place, (finding, value))
    return checked


def _is_offered(fix: Fix) -> bool:
    return fix.applicability != "display"


def _get_priority(finding: Finding) -> tuple[object, ...]:
    fix = finding.intent
    return fix is None or fix.applicability != "safe", SEVERITIES.index(finding.severity), finding.sort_key


def _get_location(finding: Finding) -> tuple[object, ...]:
    """Return the code and place of a finding; findings of several runs with the same ones are merged elsewhere."""
    return finding.code, finding.path, finding.start


def _demote_fix(finding: Finding, reason: str) -> Finding:
    assert finding.intent is not None
    fix = finding.intent._replace(applicability="display", message=f"{finding.intent.message}; not applied: {reason}")
    return finding._replace(intent=fix)


def _list_targets(finding: Finding) -> dict[tuple[str, Route | str], str]:
    """Return the plan fields and keys that a fix sets, each with its file, and their new values."""
    fix, run = finding.intent, finding.run
    assert fix is not None
    targets: dict[tuple[str, Route | str], str] = {}
    for field, value in fix.changes.items() if run is not None else ():
        owner = run.find_owner(field) if run is not None else None
        targets[finding.path if owner is None else owner[0].document.path, field] = repr(value)
    for config, changes in fix.keys:
        for change in changes:
            if isinstance(change, Set):
                targets[config.document.path, change.route] = repr(change.value)
    return targets


def _find_undoing_rules_for_fix(finding: Finding) -> frozenset[str]:
    """Return the reasons why a rule would ask for the former values after a finding's fix."""
    fix, run = finding.intent, finding.run
    if fix is None or run is None or not any(map(_list_writing_rules, fix.changes)):
        return frozenset()
    return _find_undoing_rules(run, run.replace_fields(fix.changes), fix.changes)


def _find_undoing_rules(before: Run, after: Run, fields: Iterable[Field]) -> frozenset[str]:
    """Return the reasons why rules would ask for the former values. Rules that need an estimate are not run."""
    framework_names = [config.framework for config in after.configs]
    return frozenset(
        f"{rule.code} would require the old value of `{before.spell_key(field)}`"
        for field in fields
        for rule in _list_writing_rules(field)
        if not rule.particular or not find_frameworks_of_rule(rule.code).isdisjoint(framework_names)
        for report in registry.get_checker(rule)(after)
        if report.is_confirmed
        and (fix := report.resolve_remedy().fix) is not None
        and field in fix.changes
        and is_equal(fix.changes[field], before.plan.get(field))
    )


def _find_ineffective_changes(before: Run, after: Run, fields: Iterable[Field]) -> frozenset[str]:
    """Return a message for each changed field whose new value has no effect.

    The framework leaves the field as it was, for example Liger kernels for a model that has none.
    """
    return frozenset(
        f"`{before.spell_key(field)}` would have no effect"
        for field in fields
        if not is_equal(after.plan.get(field), after.stated_plan.get(field))
        and is_equal(after.plan.get(field), before.plan.get(field))
    )


@cache
def _list_writing_rules(field: Field) -> tuple[Rule, ...]:
    """Return the rules that need no estimate and whose fixes change the field."""
    return tuple(rule for rule in registry.RULES.values() if field in rule.writes and not rule.estimates)


def _find_refused_combinations(run: Run) -> frozenset[str]:
    from cfglint_rules.vocabulary.refused_combination import list_stopping_entries

    return frozenset(list_stopping_entries(run))


def _needs_check(fix: Fix | None) -> TypeGuard[Fix]:
    return (
        fix is not None
        and fix.applicability != "display"
        and not fix.is_inert
        and len(fix.keys) == 1
        and fix.keys[0][0].document.syntax in _EDITABLE_SYNTAXES
    )


def _is_accepted_together(fixes: list[Fix]) -> bool:
    """Return whether the framework accepts the file after the safe fixes, and after all fixes."""
    config = fixes[0].keys[0][0]
    for kinds in (("safe",), ("safe", "unsafe")):
        changes = [change for fix in fixes if fix.applicability in kinds for change in fix.keys[0][1]]
        edited = _apply_changes(config, tuple(changes)) if changes else config
        if edited is None or _find_new_refusals(config, edited):
            return False
    return True


def _check_single_fix(fix: Fix) -> Fix:
    """Return the fix; if the framework would reject its result, its applicability becomes "display"."""
    ((config, changes),) = fix.keys
    edited = _apply_changes(config, changes)
    reasons = None if edited is None else _find_new_refusals(config, edited)
    if not reasons:
        return fix
    return fix._replace(applicability="display", message=f"{fix.message}; not applied: {sorted(reasons)[0]}")


def _find_new_refusals(before: Config, after: Config) -> frozenset[str]:
    """Return the reasons why the framework rejects `after` that do not hold for `before`."""
    reasons = find_config_refusals(after)
    return reasons - find_config_refusals(before) if reasons else reasons


def find_config_refusals(config: Config) -> frozenset[str]:
    """Return the reasons why the framework rejects a config, as far as one file shows; empty if it is accepted."""
    return config.compute_once(_find_config_refusals)


def _find_config_refusals(config: Config) -> frozenset[str]:
    rules = [registry.load_module(rule) for rule in registry.RULES.values() if rule.refuses]
    return frozenset(reason for rule in rules for reason in rule.refused(config))


def _apply_changes(config: Config, changes: tuple[Change, ...]) -> Config | None:
    """Return the config after some changes, or None if they cannot be written."""
    document = config.document
    try:
        edits = document.build_edits(changes)
        edited_document: Document = type(document)(document.path, apply_edits(document.source, edits))
    except (CannotEdit, DocumentError):
        return None
    frameworks.load(config.framework).prepare(edited_document)
    return config.replace(document=edited_document)
