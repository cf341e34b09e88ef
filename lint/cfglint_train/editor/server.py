"""The language server: requests of an editor in, diagnostics, fixes, hover, completion and memory budgets out.

pygls handles the protocol. All work happens in one thread: a check takes less time than a keystroke, and edits that
arrive meanwhile are merged into the next check.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from hashlib import sha256

from lsprotocol import types
from pygls import uris

from cfglint_train import api
from cfglint_train.editor import actions, completion, convert, hover
from cfglint_train.editor.connection import Server, find_path
from cfglint_train.editor.session import resolve_path
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.redact import build_redaction
from cfglint_train.foundation.typed import Any, Final

REPORT: Final = "cfglint.report"
FIT: Final = "cfglint.fit"
_WATCHED: Final = (
    "**/*.{yaml,yml,json,jsonc,hjson,toml,txt,cfg,in,lock,sh,bash,slurm,sbatch,job,mk,env,py,md,ipynb}",
    "**/{Makefile,makefile,GNUmakefile,justfile,Justfile,.justfile,Pipfile,.gitignore,.env}",
    "**/{Dockerfile,Containerfile}*",
)
"""Files whose changes on disk lead to a new check: companions, launch scripts, pins, settings."""


def build_server() -> Server:
    """Return a server with all features; `start_io` starts it."""
    server = Server()
    for name, options, handler in _FEATURES:
        server.feature(name, options)(handler) if options is not None else server.feature(name)(handler)
    for name, command in _COMMANDS.items():
        server.command(name)(command)
    return server


def _start(server: Server, _: types.InitializedParams) -> None:
    """Ask the client to report changes on disk, if it can."""
    workspace = server.client_capabilities.workspace
    files = workspace.did_change_watched_files if workspace else None
    if files is not None and files.dynamic_registration:
        watchers = types.DidChangeWatchedFilesRegistrationOptions(list(map(types.FileSystemWatcher, _WATCHED)))
        registration = types.Registration("cfglint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watchers)
        server.client_register_capability(types.RegistrationParams([registration]))
        server.session.has_watcher = True


def _open(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    path = find_path(params.text_document.uri)
    if path is not None:
        server.uris[path] = params.text_document.uri
        server.session.put(path, server.workspace.get_text_document(params.text_document.uri).source)
        server.schedule()


def _change(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    path = find_path(params.text_document.uri)
    if path is not None and path in server.session.texts:
        server.session.put(path, server.workspace.get_text_document(params.text_document.uri).source)
        server.schedule()


def _close(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    path = find_path(params.text_document.uri)
    if path is not None and path in server.session.texts:
        server.session.close(path)
        server.budgets.pop(path, None)
        server.schedule()


def _change_disk(server: Server, _: Any) -> None:
    """Check all documents again, because a file on disk, a folder or a setting of the client changed."""
    server.session.invalidate_all()
    server.schedule()


def _shut_down(server: Server, _: None) -> None:
    """Remove the reports."""
    server.report_folder.cleanup()


def _list_actions(server: Server, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    document = server.find_document(params.text_document.uri)
    return None if document is None else list(actions.list_actions(server, *document, params))


def _resolve_action(server: Server, action: types.CodeAction) -> types.CodeAction:
    return actions.resolve_action(server, action)


def _hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    document = server.find_document(params.text_document.uri)
    if document is None:
        return None
    path, text, _ = document
    setting = server.session.find_setting(path, text.find_offset(params.position))
    if setting is None or not setting.route:
        return None
    redact = build_redaction(server.session.check_mended(path).result.raw.secrets)
    return types.Hover(_build_markdown(redact(hover.describe_setting(setting))))


def _build_markdown(text: str) -> types.MarkupContent:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def _list_lenses(server: Server, params: types.CodeLensParams) -> list[types.CodeLens] | None:
    document = server.find_document(params.text_document.uri)
    if document is None:
        return None
    _, text, check = document
    return [
        types.CodeLens(
            place,
            types.Command(
                line.text, f"cfglint.{line.command}" if line.command else "", arguments=[params.text_document.uri]
            ),
        )
        for place, line in server.list_budget_lines(check, text)
    ]


def _list_hints(server: Server, params: types.InlayHintParams) -> list[types.InlayHint] | None:
    """Return the budget as hints at line ends, for clients that show no code lenses."""
    document = server.find_document(params.text_document.uri)
    capabilities = server.client_capabilities.text_document
    if document is None or (capabilities and capabilities.code_lens):
        return None
    _, text, check = document
    hints = []
    for span, line in server.list_budget_lines(check, text):
        place = span.end
        if params.range.start.line <= place.line <= params.range.end.line and line.command != "fit":
            hints.append(types.InlayHint(place, line.text, padding_left=True))
    return hints


def _complete(server: Server, params: types.CompletionParams) -> types.CompletionList | None:
    path = find_path(params.text_document.uri)
    if path is None or path not in server.session.texts:
        return None
    text = server.get(path)
    try:
        completions = completion.complete(server.session, path, text.find_offset(params.position))
    except (UsageError, OSError):
        return None
    if completions is None:
        return None
    place = types.Range(text.find_position(completions.start), text.find_position(completions.end))
    kinds = {"key": types.CompletionItemKind.Property, "value": types.CompletionItemKind.EnumMember}
    return types.CompletionList(
        is_incomplete=False,
        items=[
            types.CompletionItem(
                suggestion.word,
                kind=kinds[suggestion.kind],
                detail=suggestion.detail or None,
                documentation=_build_markdown(suggestion.documentation) if suggestion.documentation else None,
                filter_text=suggestion.word,
                text_edit=types.TextEdit(place, suggestion.text),
            )
            for suggestion in completions.suggestions
        ],
    )


def _find_definition(server: Server, params: types.DefinitionParams) -> types.Location | None:
    """Return the file that the value at the cursor names."""
    document = server.find_document(params.text_document.uri)
    if document is None:
        return None
    path, text, check = document
    word = server.session.find_word(path, text.find_offset(params.position))
    target = None if word is None else resolve_path(path, word, check.documents)
    if target is None:
        return None
    start = types.Position(0, 0)
    return types.Location(server.uris.get(target) or uris.from_fs_path(target) or "", types.Range(start, start))


def _list_symbols(server: Server, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | None:
    document = server.find_document(params.text_document.uri)
    if document is None:
        return None
    path, text, _ = document
    tree = server.session.check_mended(path).documents.get(path)
    return None if tree is None else convert.build_symbols(tree, text)


async def _show_report(server: Server, uri: str) -> None:
    """Write the HTML report of a document into the server's temporary folder, and ask the client to show it."""
    document = server.find_document(uri)
    if document is None or server.session.is_broken(document[0]):
        server.say("this file is not checked; see its problems")
        return
    from cfglint_train.reports import html

    path, _, check = document
    page = "".join(f"{line}\n" for line in html.report(check.result.raw, check.style))
    folder = os.path.join(server.report_folder.name, sha256(os.path.dirname(path).encode()).hexdigest()[:12])
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, f"{os.path.basename(path)}.html")
    with open(target, "w", encoding="utf-8") as file:
        file.write(page)
    await server.window_show_document_async(
        types.ShowDocumentParams(uris.from_fs_path(target) or "", external=True, take_focus=True)
    )


async def _fit(server: Server, uri: str) -> None:
    """Make the smallest change with which a document's runs fit."""
    document = server.find_document(uri)
    if document is None or server.session.is_broken(document[0]):
        server.say("this file is not checked; see its problems")
        return
    result = server.session.call(api.fit, document[0], change=True)
    edits = actions.build_file_edits(server, result.sources)
    if not edits:
        server.say("no change to this file makes it fit; see the report")
        return
    await server.workspace_apply_edit_async(
        types.ApplyWorkspaceEditParams(server.build_workspace_edit(edits), "cfglint: smallest change that fits")
    )


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {REPORT: _show_report, FIT: _fit}

_FEATURES: Final[Iterable[tuple[str, Any, Callable[..., Any]]]] = (
    (types.INITIALIZED, None, _start),
    (types.SHUTDOWN, None, _shut_down),
    (types.TEXT_DOCUMENT_DID_OPEN, None, _open),
    (types.TEXT_DOCUMENT_DID_CHANGE, None, _change),
    (types.TEXT_DOCUMENT_DID_CLOSE, None, _close),
    (types.TEXT_DOCUMENT_DID_SAVE, None, _change_disk),
    (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, None, _change_disk),
    (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, None, _change_disk),
    (types.WORKSPACE_DID_CHANGE_CONFIGURATION, None, _change_disk),
    (
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(
            [types.CodeActionKind.QuickFix, f"{types.CodeActionKind.SourceFixAll.value}.cfglint"],
            resolve_provider=True,
        ),
        _list_actions,
    ),
    (types.CODE_ACTION_RESOLVE, None, _resolve_action),
    (types.TEXT_DOCUMENT_HOVER, None, _hover),
    (types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False), _list_lenses),
    (types.TEXT_DOCUMENT_INLAY_HINT, None, _list_hints),
    (types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["-", '"', ".", ":"]), _complete),
    (types.TEXT_DOCUMENT_DEFINITION, None, _find_definition),
    (types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, None, _list_symbols),
)
