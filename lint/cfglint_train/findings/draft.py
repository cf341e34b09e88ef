"""From a fix to edits.

A rule states new values of plan fields (or changes of keys). The lenses of the configurations that own the fields turn
them into changes of keys, the documents turn those into edits. Whatever is written is read back first: the plan must
be exactly the intended one, the tree must differ exactly where it should; otherwise nothing is written.
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
    apply,
)
from cfglint_train.findings.finding import FileEdit, Fix, Remedy
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.key_availability import refusal
from cfglint_train.frameworks.lens import Config, Lens, spelled
from cfglint_train.mutations.mutations import mutations_of
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import changed
from cfglint_train.runs.run import Run

Written = list[tuple[Document, list[Change], list[Edit]]]
"""The changes and edits of one fix, per document."""


class Rewrite(Frozen):
    """The edits of one fix, per document, with the keys that they touch."""

    edits: tuple[tuple[Document, tuple[Edit, ...]], ...]
    touched: frozenset[tuple[str, str]]
    """Files and the keys in them: of a key in a section, the section."""

    def sources(self) -> dict[str, bytes]:
        """The new contents of every document that changes."""
        return {document.path: apply(document.source, edits) for document, edits in self.edits if edits}


def rewrite(run: Run | None, fix: Fix) -> Rewrite:
    """The edits that make a fix, read back. Raises CannotEdit where a lens or a document cannot write it."""
    from cfglint_train.findings import read_back  # only where a fix is written

    written = draft(run, fix)
    for document, changes, edits in written:
        read_back.check_tree(document, changes, edits)
    touched = {
        (document.path, step)
        for document, changes, edits in written
        for change in (changes if edits else ())
        for step in _sections(change)
    }
    return Rewrite(tuple((document, tuple(edits)) for document, _, edits in written), frozenset(touched))


def _sections(change: Change) -> list[str]:
    """The outermost keys that a change touches. (Positions in a list move when one of its items does.)"""
    words = [step for step in change.route if isinstance(step, str)][:1] or [""]
    return [*words, change.key] if isinstance(change, Rename) else words


def draft(run: Run | None, fix: Fix) -> Written:
    """The edits that make a fix, per document, not yet read back. Raises CannotEdit, also for a comment that they would
    make false.
    """
    from cfglint_train.findings.comments import check_comments  # only where a fix is written

    written = edited(run, fix)
    for document, changes, edits in written:
        check_comments(document, changes, edits)
    return written


def edited(run: Run | None, fix: Fix) -> Written:
    """The same, whatever comments say. What changes a field of a run with misspelt keys renames these, too."""
    from cfglint_train.findings import read_back  # only where a fix is written

    wanted: dict[int, tuple[Document, list[Change]]] = {}

    def ask(document: Document, changes: Sequence[Change]) -> None:
        wanted.setdefault(id(document), (document, []))[1].extend(changes)

    if run is not None:
        for document, written in key_changes(run, fix.changes):
            ask(document, written)
        for one in run.parts.meant if fix.changes else ():
            made = wanted.get(id(one.document), (one.document, []))[1]
            valued = {change.route for change in made if isinstance(change, Set)}
            ask(one.document, [step for step in one.rename if not (isinstance(step, Set) and step.route in valued)])
    for config, changes in fix.keys:
        ask(config.document, changes)
    configs = (*(run.configs if run is not None else ()), *(config for config, _ in fix.keys))
    for document, asked in wanted.values():
        _check_loader(document, configs)
        read_back.check_keys(document, asked)
    beside = [(document, list[Change](), [edit]) for document, edit in fix.texts]
    return [*((document, asked, document.edits(asked)) for document, asked in wanted.values()), *beside]


def _check_loader(document: Document, configs: Iterable[Config]) -> None:
    """Raise CannotEdit if the framework refuses the file: what it means is not known then."""
    if document.syntax != "yaml":
        return
    from cfglint_train.frameworks.refused_yaml import certain_refusal  # only where YAML is written

    for config in configs:
        refusal = certain_refusal(config) if config.document is document else None
        if refusal is not None:
            raise CannotEdit(f"{refusal.loader} refuses the file: {refusal.message}")


def changes_of(run: Run, changes: Mapping[Field, Any]) -> list[tuple[Config, Change]]:
    """The changes of keys that give fields new values, each with the configuration that has the key.

    Raises CannotEdit, also for a key that the release that counts does not have.
    """
    found = [(config, one) for config, lens, values in by_lens(run, changes) for one in lens.write(config, values)]
    for config, one in found:
        why = _program_refusal(config, one) or refusal(config, one)
        if why:
            raise CannotEdit(why)
    return found


def _program_refusal(config: Config, change: Change) -> str:
    """Why the program that a command starts, which may be a fork's, does not take what a change states; empty where it
    does, or where that is unknown.
    """
    route = change.route[len(config.root) :]
    if config.evidence.fork is None or not isinstance(change, Set) or config.has(*route):
        return ""
    is_refused = mutations_of(config).is_refused(route)
    return f"the program that the command starts has no `{spelled(route)}`" if is_refused else ""


def _placed(config: Config, change: Change) -> tuple[Document, list[Change]]:
    """A change with the document that it goes to: where the launch gives a setting, to the script; where a misspelt key
    does, to that key.
    """
    route = change.route[len(config.root) :]
    override = config.overrides.get(route)
    if override is None:
        around = config.override(route) if config.overrides else None
        given = None if around is None else config.overrides[around].given
        if given is not None and given.misspelt:
            raise CannotEdit(f"{spelled(given.route[len(config.root) :])} is misspelt; fix its spelling first")
        return config.document, [change]
    if override.given is None and override.origin.kind == "explicit":
        raise CannotEdit(f"{override.origin.key} is misspelt; fix its spelling first")
    if override.given is None or not isinstance(change, Set):
        raise CannotEdit(override.refusal(spelled(change.route[len(config.root) :])))
    return override.given.document, [override.given.change(change.value)]


def key_changes(run: Run, changes: Mapping[Field, Any]) -> list[tuple[Document, list[Change]]]:
    """The changes of keys that give plan fields new values, each with its document. Raises CannotEdit."""
    return [_placed(config, change) for config, change in changes_of(run, changes)]


def by_lens(run: Run, changes: Mapping[Field, Any]) -> list[tuple[Config, Lens, dict[Field, Any]]]:
    """The lens that writes each field, with the configuration that it writes to. Raises CannotEdit."""
    groups: list[tuple[Config, Lens, dict[Field, Any]]] = []
    for field, value in changes.items():
        config, lens = _owner(run, field)
        for other, known, values in groups:
            if other is config and known is lens:
                values[field] = value
                break
        else:
            groups.append((config, lens, {field: value}))
    return groups


def _owner(run: Run, field: Field) -> tuple[Config, Lens]:
    """The configuration that a field is written to, and its lens. Raises CannotEdit where there is none."""
    origin = run.origin(field)
    if origin is not None and origin.kind == "user" and not _is_in_a_script(run, origin):
        giver = f"the {origin.note}" if origin.note in ("command line", "pragma") else origin.note
        raise CannotEdit(f"{run.spell(field)} is given by {giver}")
    owner = run.owner(field)
    if owner is None:
        raise CannotEdit(f"no file of this run has a key for {field}")
    reason = frameworks.load(owner[0].framework).unwritten(field)
    if reason is not None:
        raise CannotEdit(f"{run.spell(field)} is never rewritten: {reason}")
    return owner


def _is_in_a_script(run: Run, origin: Origin) -> bool:
    """Whether a value comes from a word of a launch script that fixes change."""
    overrides = (one for config in run.configs for one in config.overrides.values())
    return any(one.given is not None and one.origin.place is origin.place for one in overrides)


def remedy(fix: Fix, written: Written) -> Remedy:
    """What a report shows of a fix that can be written."""
    edits = [
        FileEdit(document.path, edit, document.position(edit.span.start), document.position(edit.span.end), document)
        for document, _, edits in written
        for edit in edits
    ]
    return Remedy(fix.applicability, fix.message, tuple(edits))


def intended(before: Run, after: Run, changes: Mapping[Field, Any]) -> bool:
    """Put-get: what the files say now is what they said, with exactly these changes.

    A default that only holds beside a changed setting (the rank of an adapter that there was none of), or no longer
    does (the precision of a model that was trained as a whole), follows from it.
    """
    differences = {
        field: value
        for field, value in changed(before.base, after.base).items()
        if field in changes or not _follows(before, after, field)
    }
    return differences == {field: value for field, value in changes.items() if before.base.get(field) != value}


def _follows(before: Run, after: Run, field: Field) -> bool:
    origins = [origin for run in (before, after) if (origin := run.base.origin(field)) is not None]
    return len(origins) == 1 and origins[0].kind == "default"


def rebound(
    fix: Fix, find: Callable[[str, Route], Config | None], read: Callable[[str], Document | None]
) -> Fix | None:
    """The fix with its configurations and texts looked up anew after other edits; None where one is gone."""
    keys = []
    for config, changes in fix.keys:
        now = find(config.document.path, config.root)
        if now is None:
            return None
        keys.append((now, changes))
    texts = []
    for document, edit in fix.texts:
        present = read(document.path)
        if present is None or present.text(edit.span) != document.text(edit.span):
            return None
        texts.append((present, edit))
    return fix._replace(keys=tuple(keys), texts=tuple(texts))
