"""Reports of a migration as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Position
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.foundation.typed import Any
from cfglint_train.front.migrate.goal import Goal
from cfglint_train.front.migrate.rewrite import Item, MigratedFile, Outcome
from cfglint_train.reports.escape import escape_data, escape_line_start, escape_text


def render_text(outcome: Outcome, goal: Goal, written: bool) -> Iterator[str]:
    """Yield a line `path:line:column: kind: message` per item, with its position in the text on disk, and a summary."""
    redact = build_redaction(outcome.secrets)
    paths_by_message: dict[str, dict[str, None]] = {}
    for file in outcome.files:
        for item, position in _locate_items(file, written):
            if position is None:
                paths_by_message.setdefault(item.message, {})[file.path] = None
                continue
            code = f"{item.code} " if item.code else ""
            yield escape_line_start(
                f"{file.path}:{position.line}:{position.column}: {item.kind}: {code}{redact(item.message)}"
            )
    for message, paths in paths_by_message.items():
        first, *others = paths
        location = f"{first} and {len(others)} more" if others else first
        yield escape_line_start(f"{location}: review: {message}")
    for hint in outcome.hints:
        yield escape_line_start(f"human: {hint}")
    yield _format_summary(outcome, goal, written)


def render_json(outcome: Outcome, goal: Goal, written: bool) -> str:
    """Return a JSON object with the goal, every file with its items, and hints about other files."""
    from json import dumps

    redact = build_redaction(outcome.secrets)
    files: list[dict[str, Any]] = []
    for file in outcome.files:
        items = []
        for item, position in _locate_items(file, written):
            place = None if position is None else {"line": position.line, "column": position.column}
            items.append(
                {"kind": item.kind, "code": item.code, "message": escape_data(redact(item.message)), "place": place}
            )
        files.append(
            {
                "path": escape_data(file.path),
                "framework": file.framework,
                "from": escape_data(file.start),
                "changes": file.has_changes,
                "items": items,
            }
        )
    report = {
        "version": 1,
        "to": dict(goal.to),
        "written": written,
        "files": files,
        "hints": [*map(escape_data, outcome.hints)],
    }
    return dumps(report, indent=2, ensure_ascii=True)


def _locate_items(file: MigratedFile, written: bool) -> list[tuple[Item, Position | None]]:
    """Return the items with their positions, in the order of the text on disk."""
    document = file.original
    if written and file.has_changes:
        document = type(document)(document.path, file.source)
    offsets = [(item.after if written and file.has_changes else item.before, item) for item in file.items]
    offsets.sort(key=lambda pair: (pair[0] is not None, pair[0] or 0))
    return [(item, None if offset is None else document.locate(offset)) for offset, item in offsets]


def _format_summary(outcome: Outcome, goal: Goal, written: bool) -> str:
    changed = [file for file in outcome.files if file.has_changes]
    items = [item for file in outcome.files for item in file.items]
    count = {kind: sum(item.kind == kind and item.before is not None for item in items) for kind in _KINDS}
    count["review"] += len({item.message for item in items if item.before is None})
    count["human"] += len(outcome.hints)
    to = ", ".join(f"{package} {release}" for package, release in goal.to.items())
    verb = "rewritten" if written else "would change"
    parts = [f"{len(changed)} of {len(outcome.files)} files {verb} for {to}"]
    parts += [f"{number} {_KINDS[kind]}" for kind, number in count.items() if number]
    return escape_text("; ".join(parts) + ".")


_KINDS = {"changed": "changed", "review": "to review", "human": "left for you"}
