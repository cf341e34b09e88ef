"""A client of the language server: a real process on the other side of two pipes, driven with pygls."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lsprotocol import types
from pygls import uris
from pygls.lsp.client import LanguageClient

CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf16]),
    text_document=types.TextDocumentClientCapabilities(
        code_lens=types.CodeLensClientCapabilities(),
        code_action=types.CodeActionClientCapabilities(
            resolve_support=types.ClientCodeActionResolveOptions(properties=["edit"])
        ),
    ),
    workspace=types.WorkspaceClientCapabilities(
        workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
        did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
    ),
)

HELIX = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(
        position_encodings=[
            types.PositionEncodingKind.Utf8,
            types.PositionEncodingKind.Utf32,
            types.PositionEncodingKind.Utf16,
        ]
    ),
    text_document=types.TextDocumentClientCapabilities(inlay_hint=types.InlayHintClientCapabilities()),
)
"""What Helix states about positions and lines above the code (helix-lsp/src/client.rs: initialize)."""


class Editor:
    """An editor with open documents, as a context manager that starts and stops the server."""

    def __init__(
        self,
        *folders: Path,
        command: Sequence[str] = ("-m", "cfglint_train", "server"),
        capabilities: types.ClientCapabilities = CAPABILITIES,
    ) -> None:
        """Prepare an editor with workspace folders; `command` is what Python runs as the server."""
        self.client_capabilities = capabilities
        self.client = LanguageClient("editor", "1")
        self.folders = folders
        self.command = command
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.history: list[types.PublishDiagnosticsParams] = []
        self.applied: list[types.WorkspaceEdit] = []
        self.shown: list[str] = []
        self.messages: list[str] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Start the server."""
        for name, method in (
            (types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, self._receive),
            (types.WORKSPACE_APPLY_EDIT, self._apply),
            (types.CLIENT_REGISTER_CAPABILITY, lambda _: None),
            (types.WINDOW_SHOW_DOCUMENT, self._show),
            (types.WINDOW_SHOW_MESSAGE, lambda message: self.messages.append(message.message)),
        ):
            self.client.feature(name)(partial(method))
        await self.client.start_io(sys.executable, *self.command, env={**os.environ, "CFGLINT_CACHE_DIR": ""})
        folders = [types.WorkspaceFolder(folder.as_uri(), folder.name) for folder in self.folders]
        params = types.InitializeParams(capabilities=self.client_capabilities, workspace_folders=folders)
        self.capabilities = (await self.client.initialize_async(params)).capabilities
        self.client.initialized(types.InitializedParams())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; it must end without an error."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        process: Any = self.client._server
        assert process is not None
        assert await asyncio.wait_for(process.wait(), 20) == 0
        await self.client.stop()  # type: ignore[no-untyped-call]

    def _receive(self, params: types.PublishDiagnosticsParams) -> None:
        self.published[params.uri] = params
        self.history.append(params)
        self._news.set()

    def _apply(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        self.applied.append(params.edit)
        return types.ApplyWorkspaceEditResult(applied=True)

    def _show(self, params: types.ShowDocumentParams) -> types.ShowDocumentResult:
        self.shown.append(params.uri)
        return types.ShowDocumentResult(success=True)

    def open(self, path: Path, text: str | None = None) -> types.TextDocumentIdentifier:
        """Open a file, with its content on disk unless a text is passed, and return its identifier."""
        uri = path.as_uri()
        self.texts[uri] = path.read_text(encoding="utf-8") if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, "yaml", 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return types.TextDocumentIdentifier(uri)

    def change(self, document: types.TextDocumentIdentifier, text: str) -> None:
        """Replace the text of an open document."""
        uri = document.uri
        self.texts[uri] = text
        self.versions[uri] += 1
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri]),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def wait(self, document: types.TextDocumentIdentifier, seconds: float = 60) -> list[types.Diagnostic]:
        """Return the diagnostics of an open document at its current version."""
        uri = document.uri
        while uri not in self.published or self.published[uri].version != self.versions[uri]:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), seconds)
        return list(self.published[uri].diagnostics)

    def locate(self, document: types.TextDocumentIdentifier, words: str, offset: int = 1) -> types.Position:
        """Return the position in UTF-16 units some characters after the first occurrence of words outside comments."""
        for number, line in enumerate(self.texts[document.uri].split("\n")):
            if words in line and not line.lstrip().startswith("#"):
                return types.Position(number, len(line[: line.index(words) + offset].encode("utf-16-le")) // 2)
        raise AssertionError(f"no {words} in {document.uri}")

    async def hover(self, document: types.TextDocumentIdentifier, words: str) -> str | None:
        """Return the hover text at the first occurrence of words."""
        answer = await self.client.text_document_hover_async(types.HoverParams(document, self.locate(document, words)))
        return None if answer is None else answer.contents.value  # type: ignore[union-attr]

    async def complete(self, document: types.TextDocumentIdentifier, position: types.Position) -> dict[str, str]:
        """Return the text that each completion inserts, by its label."""
        answer = await self.client.text_document_completion_async(types.CompletionParams(document, position))
        items = [] if answer is None else answer.items  # type: ignore[union-attr]
        return {item.label: item.text_edit.new_text for item in items if item.text_edit}

    async def list_actions(self, document: types.TextDocumentIdentifier, *only: str) -> dict[str, types.CodeAction]:
        """Return the actions for a whole document by title, each with its edit."""
        whole = types.Range(types.Position(0, 0), types.Position(1_000_000, 0))
        context = types.CodeActionContext([], list(only) or None)
        answer = await self.client.text_document_code_action_async(types.CodeActionParams(document, whole, context))
        actions = {}
        for action in answer or []:
            assert isinstance(action, types.CodeAction)
            resolved = action if action.edit else await self.client.code_action_resolve_async(action)
            actions[action.title] = resolved
        return actions

    def edit(self, edit: types.WorkspaceEdit | None) -> dict[str, str]:
        """Return the texts of the files after an edit, by URI."""
        assert edit is not None
        result = {}
        for change in edit.document_changes or []:
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            path = uris.to_fs_path(uri)
            assert path is not None
            text = self.texts.get(uri) or Path(path).read_text(encoding="utf-8")
            result[uri] = apply_edits(text, [one for one in change.edits if isinstance(one, types.TextEdit)])
        return result


def apply_edits(text: str, edits: list[types.TextEdit]) -> str:
    """Apply edits with positions in UTF-16 units, as an editor does: last edit first."""
    starts = [0, *(match.end() for match in re.finditer("\r\n|\n|\r", text))]

    def find_offset(position: types.Position) -> int:
        start = starts[min(position.line, len(starts) - 1)]
        units = text[start:].encode("utf-16-le")[: 2 * position.character]
        return start + len(units.decode("utf-16-le"))

    for edit in sorted(edits, key=lambda one: (one.range.start.line, one.range.start.character), reverse=True):
        text = text[: find_offset(edit.range.start)] + edit.new_text + text[find_offset(edit.range.end) :]
    return text
