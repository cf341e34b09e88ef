"""The state of the server for one client: open documents, published diagnostics, edits in the client's terms."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import chain
from tempfile import TemporaryDirectory

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from cfglint_train.editor import convert
from cfglint_train.editor.budget import BudgetLine, list_budget_lines
from cfglint_train.editor.session import Check, Session, detect_syntax
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.errors import UsageError, describe_crash
from cfglint_train.foundation.typed import Final
from cfglint_train.records import Failure
from cfglint_train.settings.error import SettingsError
from cfglint_train.version import VERSION

DELAY: Final = 0.1
"""Seconds without an edit after which the documents are checked."""


PlacedLine = tuple[types.Range, BudgetLine]


class Server(LanguageServer):
    """The server with the open documents of one client."""

    def __init__(self) -> None:
        """Start without documents. Each change sends the whole text, so that no edit can be misplaced."""
        super().__init__("cfglint", VERSION, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.session = Session()
        self.uris: dict[str, str] = {}
        """URIs of the open documents by path, as the client spells them."""
        self.report_folder = TemporaryDirectory(prefix="cfglint-", ignore_cleanup_errors=True)
        """Folder of the reports, one file per config, which ends with the server."""
        self.budgets: dict[str, tuple[list[str], list[PlacedLine]]] = {}
        """Lines of the last text that parsed, and the budget lines in it, by path."""
        self._pending: asyncio.TimerHandle | None = None
        self._published: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        self._failed: dict[str, Exception] = {}
        """Errors that ended the last check of a document, by path."""

    def get(self, path: str) -> convert.Text:
        """Return the text of an open document, or of a file; an unreadable file is empty."""
        text = self.session.texts.get(path)
        if text is None:
            try:
                text = regular_files.read(path).decode("utf-8-sig", "replace")
            except OSError:
                text = ""
        kind = convert.NotebookText if detect_syntax(path, text) == "notebook" else convert.Text
        return kind(text, self.workspace.position_codec)

    def say(self, message: str) -> None:
        """Show a message to the user."""
        self.window_show_message(types.ShowMessageParams(types.MessageType.Info, f"cfglint: {message}"))

    def schedule(self) -> None:
        """Check the documents once the user pauses."""
        if self._pending is not None:
            self._pending.cancel()
        self._pending = asyncio.get_running_loop().call_later(DELAY, self.publish)

    def check(self, path: str) -> Check | None:
        """Return the current check of an open document, or None if it failed; the reason becomes a diagnostic."""
        if path not in self.session.texts:
            return None
        try:
            check = self.session.check(path)
        except Exception as error:  # a defect of cfglint must not end the server
            self._failed[path] = error
        else:
            self._failed.pop(path, None)
            return check
        return None

    def publish(self) -> None:
        """Check every document that needs it, and publish the diagnostics that changed."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        checks = [check for path in list(self.session.texts) if (check := self.check(path)) is not None]
        diagnostics: dict[str, list[types.Diagnostic]] = {path: [] for path in self.session.texts}
        for check, finding in self.session.list_findings():
            diagnostic = convert.build_diagnostic(finding, self.get(finding.path), self, check.style)
            diagnostics.setdefault(finding.path, []).append(diagnostic)
        failures = (*chain.from_iterable(map(_list_failures, checks)), *self._list_crashes())
        for failure in dict.fromkeys(failures):
            diagnostic = convert.build_failure(failure, self.get(failure.path))
            diagnostics.setdefault(failure.path, []).append(diagnostic)
        for path in [*self._published.keys() - diagnostics.keys(), *diagnostics]:
            self._publish_file(path, diagnostics.get(path))
        workspace = self.client_capabilities.workspace
        if workspace and workspace.code_lens and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)

    def _list_crashes(self) -> Iterator[Failure]:
        """Yield the errors that ended checks, in each document, and those about a setting also at the setting."""
        for path, error in self._failed.items():
            if path not in self.session.texts:
                continue
            problem = error.problem if isinstance(error, SettingsError) else None
            target = None if problem is None else regular_files.normalize_path(os.path.abspath(problem.path))
            if problem is not None and target is not None:
                yield Failure(target, problem.line, problem.column, None, problem.message)
            if target != path:
                is_defect = not isinstance(error, (UsageError, OSError))
                yield Failure(path, None, None, None, describe_crash(error) if is_defect else str(error))

    def _publish_file(self, path: str, diagnostics: list[types.Diagnostic] | None) -> None:
        """Send the diagnostics of a file if they, or its version, changed. None: the file has no document now."""
        uri = self.uris.get(path) or uris.from_fs_path(path) or ""
        version = self.workspace.get_text_document(uri).version if path in self.session.texts else None
        if self._published.get(path) == (version, diagnostics):
            return
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics or [], version=version)
        )
        if diagnostics is None:
            del self._published[path]
        else:
            self._published[path] = version, diagnostics

    def find_document(self, uri: str) -> tuple[str, convert.Text, Check] | None:
        """Return path, text and check of an open document, or None if it is not a file or its check failed."""
        path = find_path(uri)
        check = None if path is None else self.check(path)
        return None if check is None else (check.path, self.get(check.path), check)

    def list_budget_lines(self, check: Check, text: convert.Text) -> list[PlacedLine]:
        """Return the budget lines of a document, each with its range.

        While the text does not parse, they are those of the last text that did, at the lines that are left of it.
        """
        if not self.session.is_broken(check.path):
            placed = [
                (text.convert_span(line.place.document, line.place.span), line) for line in list_budget_lines(check)
            ]
            self.budgets[check.path] = text.lines, placed
            return placed
        lines, placed = self.budgets.get(check.path, ([], []))
        moved = convert.map_lines(lines, text.lines)
        return [
            (convert.move_range(range_, moved[range_.start.line]), line)
            for range_, line in placed
            if all(number in moved for number in range(range_.start.line, range_.end.line + 1))
        ]

    def build_workspace_edit(self, edits: dict[str, list[types.TextEdit]]) -> types.WorkspaceEdit:
        """Return the edit of several files, tied to the versions of the open documents if the client allows that."""
        by_uri = {self.uris.get(path) or uris.from_fs_path(path) or "": listed for path, listed in edits.items()}
        workspace = self.client_capabilities.workspace
        if not (workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes):
            return types.WorkspaceEdit(changes=by_uri)
        open_uris = set(self.uris.values())
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(
                    types.OptionalVersionedTextDocumentIdentifier(
                        uri, self.workspace.get_text_document(uri).version if uri in open_uris else None
                    ),
                    listed,
                )
                for uri, listed in by_uri.items()
            ]
        )


def _list_failures(check: Check) -> Iterator[Failure]:
    """Yield the problems of a check that are no findings; a file that does not parse is a finding and a failure."""
    shown = {(finding.path, finding.line, finding.message) for finding in check.result.findings}
    for failure in check.result.errors:
        if (failure.path, failure.line, failure.message) not in shown:
            yield failure


def find_path(uri: str) -> str | None:
    """Return the path of a file's URI, spelled as cfglint spells paths, or None for other URIs."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return None if path is None else regular_files.normalize_path(path)
