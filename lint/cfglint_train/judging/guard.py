"""Whether a fix would make a framework refuse what it takes now.

A vocabulary fix gives a key the effect that its author meant it to have. Where that effect is refused beside the rest
of the configuration (a plugin beside a rival, checkpointing on a model that has none), the fix is shown and never
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_rules import registry
from cfglint_train.documents.document import CannotEdit, Change, Document, DocumentError, apply
from cfglint_train.findings.finding import Finding, Fix
from cfglint_train.foundation.typed import TypeGuard
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.project.run import Run
from cfglint_train.project.workspace import Workspace

_EDITED: tuple[str, ...] = ("yaml", "json")
_COMBINATIONS = registry.RULES["KEY006"]


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
    """What would stop a run with other texts of some files, and does not stop it now: the names of the entries."""
    path, root = run.main.document.path, run.main.root
    edited = workspace.updated(texts)
    config = next((one for one in edited.configs_in(path) if one.root == root), None)
    return frozenset() if config is None else _combinations(edited.run(config)) - run.once(_combinations)


def _combinations(run: Run) -> frozenset[str]:
    return frozenset(registry.module(_COMBINATIONS).stopping(run))


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
