"""Code actions: the fixes of findings, all safe fixes of a file, comments that ignore a finding, and stated facts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from lsprotocol import types

from cfglint_train import api
from cfglint_train.editor import convert
from cfglint_train.editor.budget import list_budget_lines
from cfglint_train.editor.connection import Server
from cfglint_train.editor.session import Check
from cfglint_train.hardware import gpus
from cfglint_train.judging.suppressions import UNUSED_SUPPRESSION
from cfglint_train.records import Finding
from cfglint_train.repository.files import SYNTAXES
from cfglint_train.runs.assumptions import list_assumptions

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.cfglint"
_FACT_NAMES = {"launch.nodes": "nodes", "launch.gpus_per_node": "gpus-per-node"}
"""Names, in comments, of facts that are plan fields."""
_WITHOUT_COMMENTS = ("json", "notebook")
"""Syntaxes in which no comment can ignore a finding or state a fact."""
_MAX_COMPUTED = 10
"""Number of comments computed for a client that cannot ask for them later; each takes a check."""


def list_actions(
    server: Server, path: str, text: convert.Text, check: Check, params: types.CodeActionParams
) -> Iterator[types.CodeAction]:
    """Yield the actions at a range of a document."""
    wanted = params.context.only
    if _wants(wanted, types.CodeActionKind.QuickFix):
        listed = server.session.list_findings()
        findings = [(owner, finding) for owner, finding in listed if _is_within(finding, path, text, params.range)]
        for owner, finding in findings:
            yield from _list_fixes(server, finding, text, owner)
        if not _lacks_comments(path):
            ignorable = {
                _identify(finding): (owner, finding)
                for owner, finding in findings
                if finding.code != UNUSED_SUPPRESSION.code
            }
            for owner, finding in list(ignorable.values())[: None if _can_resolve(server) else _MAX_COMPUTED]:
                action = _build_ignore_action(server, path, finding, text, owner)
                if action.edit is None or action.edit.changes or action.edit.document_changes:
                    yield action
        yield from _state_facts(server, path, text, check, params.range)
    shown = (finding for _, finding in server.session.list_findings() if finding.path == path)
    has_safe_fix = any(
        finding.fix is not None and finding.fix.edits and finding.fix.applicability == "safe"
        for finding in (*check.result.findings, *shown)
    )
    if has_safe_fix and _wants(wanted, FIX_ALL):
        action = types.CodeAction("Fix all safe problems (cfglint)", kind=FIX_ALL, data={"uri": server.uris[path]})
        yield _resolve_if_needed(server, action)


def resolve_action(server: Server, action: types.CodeAction) -> types.CodeAction:
    """Return the action with its edit: the fixes of a whole file, or a comment that ignores a finding."""
    data = action.data if isinstance(action.data, dict) else {}
    document = server.find_document(data["uri"]) if "uri" in data else None
    if document is None:
        return action
    path = document[0]
    if "finding" not in data:
        outcome = server.session.fix_all(path)
    else:
        identity = path, *data["finding"]
        listed = server.session.list_findings()
        matches = [(owner, finding) for owner, finding in listed if (finding.path, *_identify(finding)) == identity]
        if not matches:
            return action  # the text has changed since the action was offered
        owner, finding = matches[0]
        outcome = server.session.call(api.ignore, owner.path, only=finding)
        if not outcome.sources and outcome.refused and _can_resolve(server):
            server.say(f"no comment can ignore {finding.code} here: {outcome.refused[0].reason}")
    action.edit = server.build_workspace_edit(build_file_edits(server, outcome.sources))
    return action


def _resolve_if_needed(server: Server, action: types.CodeAction) -> types.CodeAction:
    """Return the action with its edit if the client cannot ask for the edit later."""
    return action if _can_resolve(server) else resolve_action(server, action)


def _lacks_comments(path: str) -> bool:
    """Return whether the syntax of a file has no comments."""
    return SYNTAXES.get(os.path.splitext(path)[1].lower()) in _WITHOUT_COMMENTS


def _can_resolve(server: Server) -> bool:
    """Return whether the client asks for the edit of an action once the user chooses it."""
    capabilities = server.client_capabilities.text_document
    support = capabilities.code_action.resolve_support if capabilities and capabilities.code_action else None
    return support is not None and "edit" in support.properties


def _identify(finding: Finding) -> tuple[str, int, int]:
    """Return the code and the place of a finding, as data of an action."""
    return finding.code, finding.line, finding.column


def build_file_edits(server: Server, sources: Mapping[str, bytes]) -> dict[str, list[types.TextEdit]]:
    """Return the edits that give files their new contents, by path; a byte-order mark that a client sent stays."""
    edits = {}
    for path, source in sources.items():
        before = server.get(path)
        edits[path] = convert.build_edits(before, before.text[: before.start] + source.decode("utf-8-sig"))
    return edits


def _wants(only: object, kind: str) -> bool:
    """Return whether a client that asks for some kinds of actions wants a kind; a kind includes those below it."""
    return not only or any(f"{kind}.".startswith(f"{wanted}.") for wanted in map(_name, only))  # type: ignore[call-overload]


def _name(kind: object) -> str:
    return str(getattr(kind, "value", kind))


def _is_within(finding: Finding, path: str, text: convert.Text, place: types.Range) -> bool:
    """Return whether a finding in a file touches the lines of a range."""
    if finding.path != path:
        return False
    return _overlap(text.convert_range(finding), place)


def _overlap(lines: types.Range, place: types.Range) -> bool:
    """Return whether two ranges have a line in common."""
    return lines.start.line <= place.end.line and place.start.line <= lines.end.line


def _list_fixes(server: Server, finding: Finding, text: convert.Text, check: Check) -> Iterator[types.CodeAction]:
    fix = finding.fix
    if fix is None or not fix.edits:
        return
    edits: dict[str, list[types.TextEdit]] = {}
    for edit in fix.edits:
        place = server.get(edit.path).convert_range(edit)
        edits.setdefault(edit.path, []).append(types.TextEdit(place, edit.content))
    title = f"Fix: {fix.message}"
    yield types.CodeAction(
        title if fix.applicability == "safe" else f"{title} (unsafe: changes the run)",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[convert.build_diagnostic(finding, text, server, check.style)],
        edit=server.build_workspace_edit(edits),
        is_preferred=fix.applicability == "safe",
    )


def _build_ignore_action(
    server: Server, path: str, finding: Finding, text: convert.Text, check: Check
) -> types.CodeAction:
    """Return the action that silences one finding with a comment."""
    action = types.CodeAction(
        f"Ignore {finding.code} ({finding.name}) here",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[convert.build_diagnostic(finding, text, server, check.style)],
        data={"uri": server.uris[path], "finding": _identify(finding)},
    )
    return _resolve_if_needed(server, action)


def _state_facts(
    server: Server, path: str, text: convert.Text, check: Check, place: types.Range
) -> Iterator[types.CodeAction]:
    """Yield actions that state, in a comment at the top, an assumed fact on which a finding or a budget line rests."""
    if _lacks_comments(path):
        return
    findings = (finding for finding in check.result.findings if _is_within(finding, path, text, place))
    facts = {ground.fact for finding in findings for ground in finding.rests_on}
    spans = (text.convert_span(line.place.document, line.place.span) for line in list_budget_lines(check))
    is_budget = any(_overlap(span, place) for span in spans)
    assumed = {
        assumption.fact: assumption.value
        for run in check.runs
        for assumption in list_assumptions(run)
        if is_budget or assumption.fact in facts
    }
    for fact, value in assumed.items():
        for stated in _list_values(fact, value):
            ending = "\r\n" if "\r\n" in text.text else "\n"
            comment = f"# cfglint: {stated}{ending}"
            start = text.text.index("\n") + 1 if text.text.startswith("#!") and "\n" in text.text else text.start
            top = text.find_position(start)
            edit = types.TextEdit(types.Range(top, top), comment)
            yield types.CodeAction(
                f"State that {stated.replace('=', ' is ')}",
                kind=types.CodeActionKind.QuickFix,
                edit=server.build_workspace_edit({path: [edit]}),
            )


def _list_values(fact: str, value: object) -> list[str]:
    """Return the comments that may state a fact: the assumed number, or the GPUs with the assumed memory."""
    if fact in _FACT_NAMES:
        return [f"{_FACT_NAMES[fact]}={value}"]
    return [f"gpu={name}" for name in gpus.list_similar(str(value))] if fact == "gpu" else []
