"""Drafts of fixes: conversion of new plan values and key changes into edits of files.

A rule states new values of plan fields, or changes of keys. The lenses of the configs that own the fields convert them
into key changes, and the documents convert those into edits. Before anything is written, all edits are read back: the
plan must be exactly the intended plan, and the tree must differ exactly as intended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cfglint_train.documents.document import (
    CannotEdit,
    Change,
    Document,
    Edit,
    Rename,
    Route,
    Set,
    apply_edits,
)
from cfglint_train.findings.finding import FileEdit, Fix, Remedy
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.key_availability import explain_unavailable
from cfglint_train.frameworks.lens import Config, Lens, format_route
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import find_changed_fields
from cfglint_train.runs.run import Run

DraftedEdits = list[tuple[Document, list[Change], list[Edit]]]
"""Changes and edits of a fix, per document."""


class WrittenFix(Frozen):
    """Edits of a fix, per document, with the keys that they touch."""

    edits: tuple[tuple[Document, tuple[Edit, ...]], ...]
    touched_keys: frozenset[tuple[str, str]]
    """Pairs of file and top-level key; a nested key counts as its section."""

    def render_sources(self) -> dict[str, bytes]:
        """Return the new contents of every changed document, by path."""
        return {document.path: apply_edits(document.source, edits) for document, edits in self.edits if edits}


def write_fix(run: Run | None, fix: Fix) -> WrittenFix:
    """Return the edits of a fix after checking that the edited documents read back as intended.

    Raise `CannotEdit` if an edit cannot be made or does not read back.
    """
    from cfglint_train.findings import read_back  # imported only when a fix is written

    drafted = draft_fix(run, fix)
    for document, changes, edits in drafted:
        read_back.check_tree(document, changes, edits)
    touched = {
        (document.path, step)
        for document, changes, edits in drafted
        for change in (changes if edits else ())
        for step in _list_sections(change)
    }
    return WrittenFix(tuple((document, tuple(edits)) for document, _, edits in drafted), frozenset(touched))


def _list_sections(change: Change) -> list[str]:
    """Return the top-level keys that a change touches.

    List indices do not count, because they shift when an item is added or removed.
    """
    sections = [step for step in change.route if isinstance(step, str)][:1] or [""]
    return [*sections, change.key] if isinstance(change, Rename) else sections


def draft_fix(run: Run | None, fix: Fix) -> DraftedEdits:
    """Return the edits of a fix per document, before they are read back.

    Raise `CannotEdit` if they cannot be made or if a comment would become wrong.
    """
    from cfglint_train.findings.comments import check_comments  # imported only when a fix is written

    drafted = draft_without_comment_check(run, fix)
    for document, changes, edits in drafted:
        check_comments(document, changes, edits)
    return drafted


def draft_without_comment_check(run: Run | None, fix: Fix) -> DraftedEdits:
    """Return the edits of a fix per document, without checking comments.

    A fix that changes plan fields also renames the misspelled keys of the run. Raise `CannotEdit` if an edit is
    impossible.
    """
    from cfglint_train.findings import read_back  # imported only when a fix is written

    changes_by_document: dict[int, tuple[Document, list[Change]]] = {}

    def add_changes(document: Document, changes: Sequence[Change]) -> None:
        changes_by_document.setdefault(id(document), (document, []))[1].extend(changes)

    if run is not None:
        for document, document_changes in list_document_changes(run, fix.changes):
            add_changes(document, document_changes)
        for corrected_key in run.inputs.corrected_keys if fix.changes else ():
            planned = changes_by_document.get(id(corrected_key.document), (corrected_key.document, []))[1]
            valued = {change.route for change in planned if isinstance(change, Set)}
            add_changes(
                corrected_key.document,
                [step for step in corrected_key.rename if not (isinstance(step, Set) and step.route in valued)],
            )
    for config, changes in fix.keys:
        add_changes(config.document, changes)
    configs = (*(run.configs if run is not None else ()), *(config for config, _ in fix.keys))
    for document, changes_of_document in changes_by_document.values():
        _check_loadable(document, configs)
        read_back.check_keys(document, changes_of_document)
    text_edits = [(document, list[Change](), [edit]) for document, edit in fix.texts]
    return [
        *(
            (document, changes_of_document, document.build_edits(changes_of_document))
            for document, changes_of_document in changes_by_document.values()
        ),
        *text_edits,
    ]


def _check_loadable(document: Document, configs: Iterable[Config]) -> None:
    """Raise `CannotEdit` if the framework's loader rejects the file, because its meaning is then unknown."""
    if document.syntax != "yaml":
        return
    from cfglint_train.frameworks.refused_yaml import find_certain_refusal  # imported only when YAML is written

    for config in configs:
        refusal = find_certain_refusal(config) if config.document is document else None
        if refusal is not None:
            raise CannotEdit(f"{refusal.loader} refuses the file: {refusal.message}")


def list_key_changes(run: Run, changes: Mapping[Field, Any]) -> list[tuple[Config, Change]]:
    """Return the key changes that give fields new values, each with the config that holds the key.

    Raise `CannotEdit` if a field cannot be written or the target release lacks a key.
    """
    key_changes = [
        (config, change)
        for config, lens, values in group_by_lens(run, changes)
        for change in lens.write(config, values)
    ]
    for config, change in key_changes:
        reason = _find_program_refusal(config, change) or explain_unavailable(config, change)
        if reason:
            raise CannotEdit(reason)
    return key_changes


def has_value(config: Config, change: Change) -> bool:
    """Return whether a change sets a setting to the value that it already has."""
    if not isinstance(change, Set):
        return False
    value = config.get_value(*change.route[len(config.root) :])
    return type(value) is type(change.value) and bool(value == change.value)


def _find_program_refusal(config: Config, change: Change) -> str:
    """Return the reason why a forked training program rejects a change.

    Return "" if the program is not a fork, if it accepts the change, or if that is unknown.
    """
    route = change.route[len(config.root) :]
    if config.evidence.fork is None or not isinstance(change, Set) or config.has(*route):
        return ""
    is_refused = get_mutations(config).is_refused(route)
    return f"the program that the command starts has no `{format_route(route)}`" if is_refused else ""


def _locate_change(config: Config, change: Change) -> tuple[Document, list[Change]]:
    """Return the document that a change applies to, with the change in terms of that document.

    A setting that the launch passes is changed in the launch script. Raise `CannotEdit` if the setting comes from a
    misspelled key or if the launch cannot be changed.
    """
    route = change.route[len(config.root) :]
    override = config.overrides.get(route)
    if override is None:
        enclosing_route = config.find_override(route) if config.overrides else None
        argument = None if enclosing_route is None else config.overrides[enclosing_route].argument
        if argument is not None and argument.misspelt:
            raise CannotEdit(f"{format_route(argument.route[len(config.root) :])} is misspelt; fix its spelling first")
        return config.document, [change]
    if override.argument is None and override.origin.kind == "explicit":
        raise CannotEdit(f"{override.origin.key} is misspelt; fix its spelling first")
    if override.argument is None or not isinstance(change, Set):
        raise CannotEdit(override.explain_refusal(format_route(change.route[len(config.root) :])))
    return override.argument.document, [override.argument.build_change(change.value)]


def list_document_changes(run: Run, values: Mapping[Field, Any]) -> list[tuple[Document, list[Change]]]:
    """Return the key changes that give plan fields new values, each with its document.

    Raise `CannotEdit` if a field cannot be written.
    """
    return [_locate_change(config, change) for config, change in list_key_changes(run, values)]


def group_by_lens(run: Run, changes: Mapping[Field, Any]) -> list[tuple[Config, Lens, dict[Field, Any]]]:
    """Return the lens that writes each field, with its config and the new values.

    Raise `CannotEdit` if a field has no lens.
    """
    groups: list[tuple[Config, Lens, dict[Field, Any]]] = []
    for field, value in changes.items():
        config, lens = _find_owner(run, field)
        for other_config, other_lens, values in groups:
            if other_config is config and other_lens is lens:
                values[field] = value
                break
        else:
            groups.append((config, lens, {field: value}))
    return groups


def _find_owner(run: Run, field: Field) -> tuple[Config, Lens]:
    """Return the config that a field is written to, with its lens.

    Raise `CannotEdit` if the field is set elsewhere (on the command line, by a pragma) or has no lens.
    """
    origin = run.get_origin(field)
    if origin is not None and origin.kind == "user" and not _is_in_script(run, origin):
        source = f"the {origin.note}" if origin.note in ("command line", "pragma") else origin.note
        raise CannotEdit(f"{run.spell_key(field)} is set by {source}")
    owner = run.find_owner(field)
    if owner is None:
        raise CannotEdit(f"no file of this run has a key for {field}")
    reason = frameworks.load(owner[0].framework).explain_unwritable(field)
    if reason is not None:
        raise CannotEdit(f"{run.spell_key(field)} is never rewritten: {reason}")
    return owner


def _is_in_script(run: Run, origin: Origin) -> bool:
    """Return whether a value comes from a word of a launch script, which a fix can change."""
    overrides = (override for config in run.configs for override in config.overrides.values())
    return any(override.argument is not None and override.origin.place is origin.place for override in overrides)


def build_remedy(fix: Fix, drafted: DraftedEdits) -> Remedy:
    """Convert a drafted fix into the `Remedy` of a finding."""
    edits = [
        FileEdit(document.path, edit, document.locate(edit.span.start), document.locate(edit.span.end), document)
        for document, _, edits in drafted
        for edit in edits
    ]
    return Remedy(fix.applicability, fix.message, tuple(edits))


_DEPENDS_ON: Final[Mapping[Field, Field]] = {
    "parallel.broadcasts_weights": "parallel.cpu_efficient_loading",
    "parallel.wrapped_classes": "parallel.wrapping",
}
"""Fields that are written together with another field, or that the framework reads only with it."""


def is_intended(before: Run, after: Run, changes: Mapping[Field, Any]) -> bool:
    """Return whether the plan read back differs from the previous plan by exactly the intended changes.

    Defaults that depend on a changed setting may differ as well: a new adapter adds its default rank, and a model that
    is no longer fully trained loses its default precision.
    """
    differences = {
        field: value
        for field, value in find_changed_fields(before.stated_plan, after.stated_plan).items()
        if field in changes or not (_is_consequence(before, after, field) or _DEPENDS_ON.get(field) in changes)
    }
    return differences == {field: value for field, value in changes.items() if before.stated_plan.get(field) != value}


def _is_consequence(before: Run, after: Run, field: Field) -> bool:
    origins = [origin for run in (before, after) if (origin := run.stated_plan.get_origin(field)) is not None]
    return len(origins) == 1 and origins[0].kind == "default"


def rebind_fix(
    fix: Fix, find_config: Callable[[str, Route], Config | None], read_document: Callable[[str], Document | None]
) -> Fix | None:
    """Return the fix with its configs and documents looked up again after other edits.

    Return None if a config no longer exists or if the text that an edit replaces has changed.
    """
    keys = []
    for config, changes in fix.keys:
        current_config = find_config(config.document.path, config.root)
        if current_config is None:
            return None
        keys.append((current_config, changes))
    texts = []
    for document, edit in fix.texts:
        current_document = read_document(document.path)
        if current_document is None or current_document.get_text(edit.span) != document.get_text(edit.span):
            return None
        texts.append((current_document, edit))
    return fix._replace(keys=tuple(keys), texts=tuple(texts))
