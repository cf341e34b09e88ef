"""Findings: the statements of rules about a place in a run, with their fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cfglint_train.documents.document import Change, Document, Edit, Position
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Certainty, Ground, Scenario
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place

if TYPE_CHECKING:
    from cfglint_train.runs.run import Run

Severity = Literal["error", "warning", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "info")

Applicability = Literal["safe", "unsafe", "display"]
APPLICABILITIES: Final[tuple[Applicability, ...]] = ("safe", "unsafe", "display")


class Related(Frozen):
    """A further place of a finding."""

    place: Place
    message: str


class Fix(Frozen):
    """Remedy of a finding: new values of plan fields, or (for vocabulary rules) key changes.

    safe: fills in an unset value or replaces one that cannot work; optimisation and resuming stay as they are. unsafe:
    overrides a choice that can run, or gives something up. display: shown, never applied.
    """

    applicability: Applicability
    message: str
    changes: Mapping[Field, Any] = {}
    """Plan field -> new value; the framework's lenses write it."""
    keys: tuple[tuple[Config, tuple[Change, ...]], ...] = ()
    """Key changes, per config."""
    texts: tuple[tuple[Document, Edit], ...] = ()
    """Edits outside of keys: comments, white space after a backslash."""
    tolerated_assumptions: frozenset[str] = frozenset()
    """Facts that may be assumed without making the fix unsafe, because it costs nothing if they are wrong."""
    grounds: tuple[Ground, ...] = ()
    """Grounds of the fix besides those of its report: releases for which it has the same effect."""
    uses_estimate: bool = False
    """True if the estimate chose the values, so that all of its assumptions count."""
    is_inert: bool = False
    """True if the keys have no effect before or after the fix (it removes a key that the framework drops)."""
    advice: str = ""
    """Advice about the drawback of the fix if no file settles it; `--fix` prints it."""


class Report(Frozen):
    """A rule's statement, before the engine adds the rule's code."""

    message: str
    """Headline: what is wrong, and what happens."""
    place: Place
    severity: Severity | None = None
    """None: the rule's severity."""
    fix: Fix | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    """Remedy in one line."""
    notes: tuple[str, ...] = ()
    """Further facts, one line each, such as a breakdown."""
    min_certainty: Certainty = "assumed"
    """Lowest certainty with which the report is worth showing."""
    grounds: tuple[Ground, ...] = ()
    """Grounds besides the fields that the rule reads: releases, a vocabulary."""
    fields_read: tuple[Field, ...] | None = None
    """Plan fields that the report depends on, if data lists them; None: those that the rule has read so far."""
    claim: str | None = None
    """Claim for comparison with the reports of other scenarios; None: the message. "Exceeds the limit" is one claim for
    any number beyond it.
    """
    is_secret: bool = False
    """True if the marked text is a secret, which no report shows anywhere."""
    find_remedy: Callable[[], tuple[Fix | None, str | None]] | None = None
    """Finds the fix and the help if that is costly; called only for reports that will be shown."""

    def resolve_remedy(self) -> Report:
        """Return the report with its fix and its help."""
        if self.find_remedy is None:
            return self
        fix, help_text = self.find_remedy()
        return self._replace(fix=fix, help=help_text, find_remedy=None)


class FileEdit(Frozen):
    """One edit of a file, in byte offsets and in lines and columns."""

    path: str
    edit: Edit
    start: Position
    end: Position
    document: Document | None = None
    """Text that it edits, or None if that is not available."""


def shorten_message(text: str) -> str:
    """Return the message, with its middle cut if text from a file makes it too long to read.

    Credentials are masked first, so that none is cut in two.
    """
    if len(text) <= _MAX_MESSAGE_CHARACTERS:
        return text
    from cfglint_train.foundation.credentials import mask  # few messages are long

    text = mask(text)
    return f"{text[: _MAX_MESSAGE_CHARACTERS // 2]} [...] {text[-_MAX_MESSAGE_CHARACTERS // 2 :]}"


_MAX_MESSAGE_CHARACTERS: Final = 4000


class Remedy(Frozen):
    """A fix as edits; `refused` states why there are none."""

    applicability: Applicability
    message: str
    edits: tuple[FileEdit, ...] = ()
    refused: str | None = None
    uses_estimate: bool = False
    """True if the estimate chose the values, as in `Fix`."""


class Finding(Frozen):
    """A report with its rule's code, ready for output."""

    code: str
    name: str
    severity: Severity
    message: str
    path: str
    start: Position
    end: Position
    place: Place | None = None
    """None if the file could not be read."""
    fix: Remedy | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    notes: tuple[str, ...] = ()
    certainty: Certainty = "stated"
    """Lowest grade among the facts in `rests_on`."""
    rests_on: tuple[Ground, ...] = ()
    fields_read: tuple[Field, ...] = ()
    """Plan fields that the finding and its fix were derived from, except those of the estimate."""
    scenarios: tuple[Scenario, ...] = ()
    """Other values of assumed facts, and whether the finding holds for them."""
    run_count: int = 1
    """Number of runs that it holds for, if it points into a companion that they share."""
    intent: Fix | None = None
    """The fix as the rule stated it; the fixer writes it through `run`."""
    run: Run | None = None
    """Run of the finding, or None if it is about one config or the text."""

    @property
    def sort_key(self) -> tuple[str, Position, str, str]:
        """Sort key: file, place and code."""
        return self.path, self.start, self.code, self.message
