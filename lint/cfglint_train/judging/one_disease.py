"""One disease, one finding: merge the findings on a run that one fix settles, or that one rule leaves to another.

Rules judge a run independently of each other. Several of them may state the same verdict, such as a training step that
does not fit, each with its own cause. The user sees one finding with all causes. The others are its **parts**, which
keep their codes: whatever is suppressed or accepted, the rest is still shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cfglint_train.findings.finding import APPLICABILITIES, SEVERITIES, UNUSABLE_VALUE, Finding, Related
from cfglint_train.foundation.typed import Any
from cfglint_train.plan.origin import Place


def settle(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings on a run, with those of one disease merged into the most severe one."""
    heads: list[Finding] = []
    for atom in sorted((atom for finding in findings for atom in finding.atoms), key=_get_priority):
        number = next((number for number, head in enumerate(heads) if _is_settled_with(atom, head)), len(heads))
        heads[number : number + 1] = [_add_parts(heads[number], atom) if number < len(heads) else atom]
    heads = [_move_to_changed_place(head) if head.parts else head for head in heads]
    coverers = [_find_coverer(head, heads) for head in heads]
    for number, coverer in enumerate(coverers):
        while coverer is not None and coverers[coverer] is not None:
            coverer = coverers[coverer]
        if coverer is not None:
            heads[coverer] = _add_parts(heads[coverer], *heads[number].atoms)
    remaining = [head for head, coverer in zip(heads, coverers) if coverer is None]
    return _merge_unusable_values(remaining)


def keep(findings: Iterable[Finding], is_kept: Callable[[Finding], bool]) -> list[Finding]:
    """Return the findings and parts that are kept; the parts of a finding that is not are merged again."""
    remaining: list[Finding] = []
    for finding in findings:
        parts = [part for part in finding.parts if is_kept(part)]
        if is_kept(finding):
            remaining.append(finding._replace(parts=tuple(parts)) if finding.parts else finding)
        else:
            remaining += settle(parts)
    return remaining


def describe_parts(finding: Finding) -> Finding:
    """Return the finding with the causes, places and remedies of its parts in its notes and related places."""
    notes, related, help_text = dict.fromkeys(finding.notes), list(finding.related), finding.help
    for part in finding.parts:
        if part.quantity == UNUSABLE_VALUE or part.place is None or _is_same_place(part.place, finding.place):
            notes[f"{part.message} ({part.code})"] = None
        else:
            related.append(Related(part.place, f"{part.message} ({part.code})"))
        notes.update(dict.fromkeys(part.notes if part.quantity == finding.quantity else ()))
        remedy = part.intent or part.fix
        if remedy is not None and get_change(part) != get_change(finding):
            notes[f"{remedy.message} ({part.code})"] = None
        if part.help is not None and help_text is None and finding.intent is None and finding.fix is None:
            help_text = part.help
        elif part.help not in (None, help_text) and part.quantity != UNUSABLE_VALUE:
            notes[f"{part.help} ({part.code})"] = None
    return finding._replace(notes=tuple(notes), related=tuple(related), help=help_text)


def _find_coverer(finding: Finding, heads: Sequence[Finding]) -> int | None:
    """Return the position of the first finding that includes one of the rule that `finding` is left to, or None.

    That one must be at least as severe.
    """
    rank = SEVERITIES.index(finding.severity)
    for number, head in enumerate(heads if finding.left_to else ()):
        for atom in head.atoms:
            is_covering = atom.code == finding.left_to and atom.left_to != finding.code
            if is_covering and head is not finding and SEVERITIES.index(atom.severity) <= rank:
                return number
    return None


def _add_parts(head: Finding, *parts: Finding) -> Finding:
    return head._replace(parts=(*head.parts, *parts))


def _merge_unusable_values(findings: list[Finding]) -> list[Finding]:
    """Return the findings with those on a value that stops the estimate as a part of the error at that value."""
    parts = [finding for finding in findings if finding.quantity == UNUSABLE_VALUE]
    for part in parts:
        for position, finding in enumerate(findings):
            if finding.severity == "error" and (finding.path, finding.start) == (part.path, part.start):
                findings[position] = _add_parts(finding, part)
                findings.remove(part)
                break
    return findings


def _get_priority(finding: Finding) -> tuple[int, int, str]:
    """Return a sort key that puts the finding that stays first."""
    fix = finding.intent or finding.fix
    rank = len(APPLICABILITIES) if fix is None else APPLICABILITIES.index(fix.applicability)
    return SEVERITIES.index(finding.severity), rank, finding.code


def _is_settled_with(finding: Finding, head: Finding) -> bool:
    """Return whether two findings judge the same resource and have the same fix.

    Without a fix, they must judge the same quantity and be at the same place.
    """
    resource, _, phases = finding.quantity.partition(":")
    if not phases or resource != head.quantity.partition(":")[0]:
        return False
    change = get_change(finding)
    if change is None and not (finding.quantity == head.quantity and _is_same_place(finding.place, head.place)):
        return False
    return change == get_change(head)


def get_change(finding: Finding) -> tuple[Any, ...] | None:
    """Return what the fix of a finding changes, or None without a fix."""
    if finding.change is not None:
        return finding.change
    fix = finding.intent
    if fix is not None:
        keys = tuple((config.document.path, config.root, changes) for config, changes in fix.keys)
        texts = tuple((document.path, edit) for document, edit in fix.texts)
        return (fix.changes, keys, texts) if fix.changes or keys or texts else (fix.message,)
    return (
        None if finding.fix is None else (*((edit.path, edit.edit) for edit in finding.fix.edits), finding.fix.message)
    )


def _is_same_place(place: Place | None, other: Place | None) -> bool:
    return (
        place is not None
        and other is not None
        and (place.document.path, place.span) == (other.document.path, other.span)
    )


def _move_to_changed_place(finding: Finding) -> Finding:
    """Return the finding at the first place among its own and its parts' that its fix changes."""
    run, fix = finding.run, finding.intent
    if run is None or fix is None:
        return finding
    origins = [run.get_origin(field) for field in fix.changes]
    changed = [origin.place for origin in origins if origin is not None]
    for item in (finding, *finding.parts):
        if any(_is_same_place(item.place, place) for place in changed):
            return finding._replace(path=item.path, start=item.start, end=item.end, place=item.place)
    return finding
