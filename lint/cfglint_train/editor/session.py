"""Open documents of an editor, each with the outcome of its last check.

Nothing here knows the language server protocol: paths, texts and characters in, records and documents out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from cfglint_train import api
from cfglint_train.documents.document import Document, DocumentError, Entry, Node, Route, Scalar, Sequence, Span
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.documents.python.notebook import NotebookDocument
from cfglint_train.editor.mending import MARKER, blank_broken_lines
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, TypeVar
from cfglint_train.frameworks.lens import Config
from cfglint_train.records import Finding
from cfglint_train.reports.addresses import choose_rule_pages
from cfglint_train.reports.style import Style
from cfglint_train.repository import files
from cfglint_train.request import Request, build_request
from cfglint_train.runs.run import Run
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import settings

Outcome = TypeVar("Outcome")

_ARGUMENT: Final = compile_on_use(r"[^\s\"'=;|&<>()]+")
"""Word of a script that may name a file."""


class Check(Frozen):
    """The outcome of a check of one open document."""

    path: str
    text: str
    result: api.LintResult
    read_paths: Set[str]
    """Files that the check has read: the document, its companions and scripts, open settings and requirement files."""
    style: Style
    """Style of diagnostics and reports: the rule pages that they link to."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs that the document belongs to."""
        runs: tuple[Run, ...] = self.result.raw.runs
        return runs

    @property
    def documents(self) -> dict[str, Document]:
        """Documents that the runs were read from, by path."""
        configs = (config for run in self.runs for config in run.configs)
        scripts = (script for run in self.runs for script in run.inputs.scripts)
        origins = (release.origin for run in self.runs for release in run.releases.by_package.values())
        places = (origin.place for origin in origins if origin.place is not None)
        documents = (*(config.document for config in configs), *scripts, *(place.document for place in places))
        return {document.path: document for document in documents}

    def find_config(self, path: str, route: Route) -> tuple[Run, Config] | None:
        """Return the run and the config that a place in a file belongs to, or None."""
        candidates = [
            (run, config)
            for run in self.runs
            for config in run.configs
            if config.document.path == path and route[: len(config.root)] == config.root
        ]
        return max(candidates, key=lambda candidate: len(candidate[1].root), default=None)


class Setting(Frozen):
    """A setting at the cursor: its run and config, its route from the config's root, and its node in the text."""

    run: Run
    config: Config
    route: Route
    node: Node
    style: Style
    """Style of texts about it: the rule pages that they link to."""


class Session:
    """Open documents and their checks. A check is repeated once a text that it rests on has changed."""

    def __init__(self, options: api.Options = api.DEFAULTS) -> None:
        """Start without open documents."""
        self.options = options.replace(force_exclude=True)
        self.texts: dict[str, str] = {}
        """Texts of the open documents by absolute path, unsaved changes included."""
        self.has_watcher = False
        """True if the client reports changes on the disk; otherwise every check reads the disk again."""
        self._checks: dict[str, Check] = {}
        self._mended: dict[str, tuple[Check, Check]] = {}
        """For a document whose text does not parse: its check, and a check without the lines that break it."""
        self._workspaces: dict[str, Workspace] = {}
        """Workspace of the last check in a folder, which knows the repository."""

    def put(self, path: str, text: str) -> None:
        """Open a document, or replace its text."""
        former = self.texts.get(path)
        self.texts[path] = text
        if former is None:
            self.invalidate_all()  # checks list the open files on which they rest, and may have missed this one
        elif former != text:
            self.invalidate(path)
            if os.path.basename(path) in settings.NAMES or self._list_named(former) != self._list_named(text):
                self.invalidate_all()

    def _list_named(self, text: str) -> list[str]:
        """Return the open documents whose file names are in a text, which may start them."""
        return [path for path in self.texts if os.path.basename(path) in text]

    def close(self, path: str) -> None:
        """Forget an open document; other documents use the file on disk from now on."""
        if not _is_saved(path, self.texts.pop(path)):
            self.invalidate_all()
        self._checks.pop(path, None)
        self._mended.pop(path, None)

    def invalidate(self, path: str) -> None:
        """Forget the checks that rest on a file, and the repository, if other checks rest on the file."""
        dependents = self.list_dependents(path)
        if dependents not in ([], [path]):
            self._workspaces.clear()
        for other in dependents:
            self._checks.pop(other, None)

    def invalidate_all(self) -> None:
        """Forget all checks and repositories, because a file changed that may concern any document."""
        self._checks.clear()
        self._workspaces.clear()

    def list_dependents(self, path: str) -> list[str]:
        """Return the open documents whose checks rest on a file; the document itself is one of them."""
        return [other for other, check in self._checks.items() if other == path or path in check.read_paths]

    def check(self, path: str) -> Check:
        """Return the current check of an open document. Raise UsageError if the settings are invalid."""
        if path not in self._checks:
            self._checks[path] = self._lint(path, self.texts)
        return self._checks[path]

    def list_findings(self) -> list[tuple[Check, Finding]]:
        """Return the findings of all checks, each once: a companion has those of the runs that name it.

        Equal findings at one place differ in their related places; the one with the most counts.
        """
        listed: dict[tuple[object, ...], tuple[Check, Finding]] = {}
        for check in self._checks.values():
            for finding in check.result.findings:
                identity = finding.path, finding.code, finding.line, finding.column, finding.message
                former = listed.get(identity)
                if former is None or len(finding.related) > len(former[1].related):
                    listed[identity] = check, finding
        return list(listed.values())

    def is_broken(self, path: str) -> bool:
        """Return whether the text of an open document does not parse."""
        check = self.check(path)
        syntax = detect_syntax(path, check.text)
        if path in check.documents or syntax in (None, "recipes"):
            return False
        try:
            files.parse(path, check.text.encode("utf-8", "surrogatepass"), syntax)
        except DocumentError:
            return True
        return False

    def check_mended(self, path: str) -> Check:
        """Return the check of an open document; if its text does not parse, without the lines that break it.

        These lines are blank in the text of the check. All other characters keep their places.
        """
        check = self.check(path)
        if path in check.documents or not any(failure.path == path for failure in check.result.errors):
            return check
        former, mended = self._mended.get(path, (None, check))
        if former is not check:
            text = blank_broken_lines(detect_syntax(path, check.text), check.text)
            mended = check if text is None else self._lint(path, {**self.texts, path: text})
            self._mended[path] = check, mended
        return mended

    def _lint(self, path: str, texts: dict[str, str], is_probe: bool = False) -> Check:
        """Check a document with other texts than those of `self.texts`; a probe runs no rules."""
        folder = os.path.dirname(path)
        options = self.options.replace(select=()) if is_probe else self.options
        earlier = self._workspaces.get(folder) if self.has_watcher else None

        def lint() -> tuple[Request, api.LintResult]:
            request = build_request([path], options, texts, earlier)
            return request, api.lint_request(request)

        (request, result), used = _run_with_texts(self.texts, lint)
        self._workspaces[folder] = request.workspace
        style = Style(pages=choose_rule_pages(request.workspace.settings_for(path).rule_url))
        return Check(path, texts[path], result, request.workspace.sources.read_paths | used, style)

    def call(self, function: Callable[..., Outcome], *paths: str, **arguments: Any) -> Outcome:
        """Call a function of the API on open documents, with the texts of all open documents."""
        return _run_with_texts(self.texts, lambda: function(paths, self.options, self.texts, **arguments))[0]

    def fix_all(self, path: str) -> api.FixResult:
        """Apply the safe fixes of an open document: those of its own runs, and of other runs that a file is part of.

        A companion shows the problems of every open config that names it, and all of them decide what is safe.
        """
        check = self.check(path)
        files = {path, *(finding.path for finding in check.result.findings)}
        others = [other for other, shared in self._checks.items() if not files.isdisjoint(shared.documents)]
        return self.call(api.fix, *dict.fromkeys((path, *others)), unsafe=False, within=files)

    def find_setting(self, path: str, offset: int) -> Setting | None:
        """Return the setting at a character of an open document, or None. A companion belongs to another file's run."""
        mended = self.check_mended(path)
        for check in (mended, *self._checks.values()):
            document = check.documents.get(path)
            match = None if document is None else find_route(document, _find_byte(document, mended.text, offset))
            setting = None if match is None else _build_setting(check, path, *match)
            if setting is not None:
                return setting
        return None

    def find_gap(self, path: str, text: str, start: int) -> Setting | None:
        """Return the setting at `MARKER` in a text that replaces that of a document, or None.

        The marker is behind `start`. The text at the cursor is often incomplete and does not parse; with the marker in
        its place, it does.
        """
        texts = {**self.texts, path: text}
        check = self._lint(path, texts, is_probe=True)
        document = check.documents.get(path)
        if document is None:
            return None
        offset = texts[path].index(MARKER, start)
        match = find_route(document, len(texts[path][:offset].encode()))
        return None if match is None else _build_setting(check, path, *match)

    def find_word(self, path: str, offset: int) -> str | None:
        """Return the scalar at a character of an open document, or the argument in a script, or None."""
        check = self.check_mended(path)
        document = check.documents.get(path)
        match = None if document is None else find_route(document, _find_byte(document, check.text, offset))
        if match is not None and isinstance(match[1], Scalar):
            return match[1].text
        words = _ARGUMENT.finditer(check.text) if detect_syntax(path, check.text) == "shell" else ()
        return next((word.group() for word in words if word.start() <= offset <= word.end()), None)


def _run_with_texts(texts: Mapping[str, str], work: Callable[[], Outcome]) -> tuple[Outcome, set[str]]:
    """Run work for which texts replace files, also those that are no configs. Return the open files that it read."""
    return regular_files.run_with_texts(
        {path: text.encode("utf-8", "surrogatepass") for path, text in texts.items()}, work
    )


def detect_syntax(path: str, text: str) -> str | None:
    """Return the syntax of an open document, or None if it is unknown."""
    return files.detect_syntax(path, text.encode("utf-8", "surrogatepass"))


def _is_saved(path: str, text: str) -> bool:
    """Return whether a file on the disk has a text."""
    try:
        return regular_files.read(path).decode("utf-8-sig", "replace") == text
    except (OSError, ValueError):
        return False


def _build_setting(check: Check, path: str, route: Route, node: Node) -> Setting | None:
    owner = check.find_config(path, route)
    if owner is None:
        return None
    run, config = owner
    return Setting(run, config, route[len(config.root) :], node, check.style)


def _find_byte(document: Document, text: str, offset: int) -> int:
    """Return the number of bytes of a document before a character of its file's text."""
    if isinstance(document, NotebookDocument):
        return document.find_offset(text, offset)
    return len(text[:offset].encode())


def find_route(document: Document, offset: int) -> tuple[Route, Node] | None:
    """Return the route of the smallest setting, section or item at a byte of a document, with its node, or None.

    A section does not contain its settings in every syntax: a script's sections are where its code creates them.
    """
    covering = (
        (span.end - span.start, route, node)
        for route, node, spans in _list_places(document, document.root, ())
        for span in spans
        if span.start <= offset <= span.end
    )
    _, route, node = min(covering, key=lambda place: place[0], default=(0, (), None))
    return None if node is None else (route, node)


def _list_places(document: Document, node: Node | None, route: Route) -> Iterator[tuple[Route, Node, Iterable[Span]]]:
    """Yield the settings and items below a node, each with its route and the parts of the text that state it."""
    if isinstance(node, MappingNode):
        for entry in node.entries:
            if entry.name is not None:
                inner = (*route, entry.name)
                if not is_dotted(entry):
                    yield inner, entry.value, document.list_spans(entry)
                yield from _list_places(document, entry.value, inner)
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            inner = (*route, index)
            if isinstance(item, (MappingNode, Sequence)):
                yield from _list_places(document, item, inner)
            else:
                yield inner, item, (item.span,)


def is_dotted(entry: Entry) -> bool:
    """Return whether an entry is a section of a key with dots, as in `trainer.nnodes=2`: its value has all of it."""
    return isinstance(entry.value, MappingNode) and entry.value.span.start == entry.span.start


def resolve_path(path: str, word: str, documents: Iterable[str]) -> str | None:
    """Return the file that a word in a file names, or None.

    A document of the run is named by the end of its path. Other files are looked for from the file's folder upwards,
    to the root of the repository.
    """
    ending = os.path.normpath(word).replace(os.sep, "/").lstrip("./")
    match = next((other for other in documents if ending and f"/{other}".endswith(f"/{ending}")), None)
    if match is not None:
        return match
    folder = os.path.dirname(path)
    while word.strip():
        candidate = os.path.normpath(os.path.join(folder, word))
        if filesystem.is_file(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder or any(filesystem.exists(os.path.join(folder, mark)) for mark in filesystem.MARKS):
            return None
        folder = parent
    return None
