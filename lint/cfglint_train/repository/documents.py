"""Documents of files: each file is read once, and the reason is recorded if it is not a configuration.

A file without a framework's keys is parsed only if the user named it, to explain why it is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from json import loads

from cfglint_train.documents.document import Document, DocumentError, NotText, Position, Span
from cfglint_train.documents.limits import LimitExceeded
from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen, dataclass
from cfglint_train.foundation.typed import Final, Literal
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks import registry
from cfglint_train.plan.origin import Place
from cfglint_train.repository import files
from cfglint_train.repository.sources import Sources

Cause = Literal["file", "syntax", "limit", "absent", "run"]
"""Reason why a file is not read.

In the order of the values: the file cannot be opened or decoded, cannot be parsed, exceeds a limit, is missing, or
starts a run that cannot be read.
"""

START: Final = Position(1, 1)

_MARK: Final = compile_on_use(r"@{1,3}\w{1,60}@{1,3}|%{1,3}\w{1,60}%{1,3}|%\(\w{1,60}\)[-#0 +\d.]{0,9}[a-z]")
"""Template marks that cannot begin a word of YAML or JSON."""


_MAX_NAMED: Final = 5
"""Maximum number of named files for which cfglint assumes that the user typed the names."""


class UnreadFile(Frozen):
    """A file that cannot be read."""

    path: str
    position: Position
    message: str
    cause: Cause
    place: Place | None = None
    """Text that the message is about, if it was read."""
    help: str | None = None
    is_failure: bool = False
    """True if the launch fails for the same reason."""
    is_part: bool = False
    """True if the run is checked in part."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not a configuration, with the reason (shown by --verbose)."""

    path: str
    reason: str
    named: bool = False
    """True if the user named the file itself, rather than a folder that contains it."""
    looks_like: str = ""
    """Unsupported tool that the file seems to belong to."""
    is_launch: bool = False
    """True if the user named a launch script, and the files that it starts are checked in its place."""


class Documents:
    """The documents of the files to check.

    `find_copy` returns the copy of a framework that contains a file, or "". In a copy, files of other training tools
    and unreadable runs are not reported. `is_replaced` returns whether a script in the file's repository replaces a
    template mark (`@NAME@`) in the file.
    """

    def __init__(
        self, sources: Sources, find_copy: Callable[[str], str], is_replaced: Callable[[str, str], bool]
    ) -> None:
        """Start without documents; files are read on request."""
        self.sources = sources
        self._find_copy = find_copy
        self._is_replaced = is_replaced
        self.skipped: list[SkippedFile] = []
        self.unread: list[UnreadFile] = []
        self.candidates: dict[str, list[str]] = {}
        """Path -> the frameworks whose keys occur in the text."""
        self.starting_scripts: set[str] = set()
        """Scripts that may start a framework with a configuration file."""
        self.launching_scripts: set[str] = set()
        """Scripts that may start a training program."""
        self._documents: dict[str, Document | None] = {}

    def replace_sources(self, sources: Sources, changed: Collection[str]) -> Documents:
        """Return a copy with new sources, without the documents of changed files."""
        copy = Documents(sources, self._find_copy, self._is_replaced)
        copy.skipped = [skipped for skipped in self.skipped if skipped.path not in changed]
        copy.unread = [unread for unread in self.unread if unread.path not in changed]
        copy.candidates = dict(self.candidates)
        copy.starting_scripts = self.starting_scripts.difference(changed)
        copy.launching_scripts = self.launching_scripts.difference(changed)
        copy._documents = {path: document for path, document in self._documents.items() if path not in changed}
        return copy

    def get_parsed(self, path: str) -> Document | None:
        """Get the document of a file, or None if it was not read."""
        return self._documents.get(path)

    def read_document(self, path: str) -> Document | None:
        """Read the document of a configuration file.

        If the file is not a configuration or cannot be read, record the reason and return None.
        """
        if path not in self._documents:
            self._documents[path] = self._open(path)
        return self._documents[path]

    def read_commented(self, path: str, mark: bytes = b"") -> Document | None:
        """Read a file for its comments.

        Return None if it is unreadable, if its kind of file has no comments, or if it does not contain `mark`.
        """
        document = self._documents.get(path)
        if document is not None and not path.endswith(".ipynb"):
            return document if mark in document.source else None
        try:
            source = self.sources.read(path)
            return files.parse_commented(path, source, self.sources.build_reader(path)) if mark in source else None
        except (OSError, ValueError, DocumentError):
            return None

    def read_json(self, path: str) -> Document | None:
        """Read a file whose reader requires JSON; parse it as JSON even if it is named like YAML.

        Return None if it is not valid JSON or, unless it is named like YAML, if it is not a configuration.
        """
        if not path.endswith((".yaml", ".yml")):
            return self.read_document(path)
        try:
            source = self.sources.read(path)
            loads(source)
            return files.parse(path, source, "json")
        except (OSError, ValueError, RecursionError, DocumentError):
            return None

    def skip(self, path: str, reason: str, source: bytes = b"", tool: str = "") -> None:
        """Record a file that is not a configuration.

        `source` is its text if it may belong to another tool; `tool` is that tool, if it was identified.
        """
        from cfglint_train.repository.lookalikes import identify_tool  # only needed for skipped files

        tool = tool or identify_tool(path, source)
        if tool and self._find_copy(path):
            tool = ""
        started = self.sources.started_files.get(path)
        if started is not None:
            reason, tool = f"it starts `{started}`, which is checked", ""
        self.skipped.append(SkippedFile(path, reason, path in self.sources.named_paths, tool, started is not None))

    def note_run(self, document: Document, span: Span | None, why: str, is_part: bool = False) -> None:
        """Record a run that cannot be read for the reason `why`, or skip the document in a copy of a framework.

        `is_part`: what the document shows of the run is checked.
        """
        path = document.path
        copy = self._find_copy(path)
        if copy:
            self.ignore(path, f"it is part of the copy in `{copy}`")
            return
        place = None if span is None else Place(document, span)
        position = START if place is None else document.locate(place.span.start)
        state = "run checked only in part" if is_part else "run not checked"
        self.unread.append(UnreadFile(path, position, f"{state}: {why}", "run", place, is_part=is_part))

    def ignore(self, path: str, reason: str) -> None:
        """Record a file that is skipped, without looking for the tool it belongs to."""
        self.skipped.append(SkippedFile(path, reason))

    def _open(self, path: str) -> Document | None:
        try:
            source = self.sources.read(path)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            reason = getattr(error, "strerror", None) or str(error)
            hint = (
                _suggest_path(path) if isinstance(error, FileNotFoundError) and path in self.sources.named_paths else ""
            )
            self.unread.append(UnreadFile(path, START, reason + (hint and f"; {hint}"), "file"))
            return None
        syntax = files.detect_syntax(path, source)
        if syntax is None:
            self.skip(path, "neither YAML, JSON, shell nor Python")
            return None
        if len(source) > regular_files.MAX_BYTES:
            size = f"larger than {regular_files.MAX_BYTES >> 20} MiB"
            if registry.is_probable_config(source, syntax):
                self.unread.append(UnreadFile(path, START, size, "limit"))
            else:
                self.skip(path, f"{size}: data, not a configuration")
            return None
        if syntax in ("notebook", "recipes"):
            if registry.find_candidates(source, "python") or registry.can_launch(source):
                self.launching_scripts.add(path)
            document = self._open_notebook(path, source) if syntax == "notebook" else None
            if document is None:
                self.skip(path, "only the runs that it starts are listed")
            return document
        if syntax == "yaml" and registry.is_job(source) and registry.can_launch(source):
            self.launching_scripts.add(path)
        decoded = files.decode_utf_16(source)
        if decoded is not None and registry.is_probable_config(decoded, syntax):
            self.unread.append(UnreadFile(path, START, "not UTF-8: the text is UTF-16 or UTF-32", "file"))
            return None
        self.candidates[path] = registry.find_candidates(source, syntax)
        if syntax == "shell" and registry.can_start_other_program(source):
            self.launching_scripts.add(path)
        if syntax == "shell" and registry.can_start_framework(source):
            self.starting_scripts.add(path)
        if syntax == "python" and registry.can_start_from_python(source):
            self.launching_scripts.add(path)
        if not self.candidates[path]:
            started = (
                self._describe_started(path, source) if syntax == "shell" and path in self.sources.named_paths else ""
            )
            broken = (
                self._describe_syntax_error(path, source)
                if syntax == "yaml" and path in self.sources.named_paths
                else ""
            )
            self.skip(path, started or f"it has no keys of a supported framework{broken}", source)
            return None
        try:
            return self.sources.parse(path, source, syntax)
        except DocumentError as error:
            if not registry.is_probable_config(source, syntax):
                self.skip(path, f"not read: {error.message}", source)
            elif _is_template_at(source, error.stop) or self._is_replaced_mark(path, source, error.stop):
                self.skip(path, f"a template, which becomes {syntax.upper()} when it is filled in")
            else:
                cause = _classify_error(error)
                self.unread.append(UnreadFile(path, error.position, error.message, cause, help=error.help))
            return None

    def _open_notebook(self, path: str, source: bytes) -> Document | None:
        """Return the code of a notebook's cells, or None if it has no keys of a supported framework."""
        if not registry.find_candidates(source.replace(b'\\"', b'"'), "python"):
            return None
        try:
            document = files.parse(path, source, "notebook")
        except DocumentError:
            return None
        self.candidates[path] = registry.find_candidates(document.source, "python")
        return document if self.candidates[path] else None

    def _describe_syntax_error(self, path: str, source: bytes) -> str:
        """Describe the YAML syntax error of a file that the user named.

        Return "" if there is none, or if many files are named.
        """
        if len(self.sources.named_paths) > _MAX_NAMED:
            return ""
        try:
            files.parse(path, source, "yaml")
        except DocumentError as error:
            return f", and is not valid YAML at line {error.position.line}: {error.message}"
        return ""

    def _is_replaced_mark(self, path: str, source: bytes, position: Position) -> bool:
        """Return whether a parser failed at a mark (`@NAME@`, `%NAME%`, `%(name)s`) that a script replaces."""
        line = b"".join(source.split(b"\n")[position.line - 1 : position.line])
        return any(self._is_replaced(path, mark) for mark in _MARK.findall(line.decode("utf-8", "replace")))

    def _describe_started(self, path: str, source: bytes) -> str:
        """Describe the run that a user-named script starts, or return "" if the program is unknown."""
        from cfglint_train.documents.shell.document import ShellDocument
        from cfglint_train.repository.started import describe_started

        try:
            document = self.sources.parse(path, source, "shell")
        except DocumentError:
            return ""
        return describe_started(document, self.sources) if isinstance(document, ShellDocument) else ""


def _suggest_path(path: str) -> str:
    """Return `did you mean PATH?` for a nonexistent path, with the most similar name in its folder, or ""."""
    folder = os.path.dirname(path)
    try:
        names = filesystem.list_names(folder or os.curdir)
    except OSError:
        return ""
    return suggest_name(path, [os.path.join(folder, name) for name in sorted(names)], cutoff=0.8)


def _classify_error(error: DocumentError) -> Cause:
    return "limit" if isinstance(error, LimitExceeded) else "file" if isinstance(error, NotText) else "syntax"


def _is_template_at(source: bytes, position: Position) -> bool:
    """Return whether a parser failed at a template mark (Helm, Jinja), on its line or the line before."""
    lines = source.split(b"\n")[max(0, position.line - 2) : position.line]
    return any(mark in line for line in lines for mark in (b"{{", b"{%"))
