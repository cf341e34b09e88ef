"""What a rule says: a statement about a run at one place, and perhaps a fix."""

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
    """What would settle a finding: new values of plan fields, or (for vocabulary rules) changes of keys.

    safe: fills in what was left unsaid or replaces what cannot work; optimisation and resuming stay as they are.
    unsafe: overrides a choice that can run, or gives something up. display: shown, never applied.
    """

    applicability: Applicability
    message: str
    changes: Mapping[Field, Any] = {}
    """Plan field -> new value; the framework's lenses write it."""
    keys: tuple[tuple[Config, tuple[Change, ...]], ...] = ()
    """Changes of keys, per configuration."""
    texts: tuple[tuple[Document, Edit], ...] = ()
    """Edits of what is no key: comments, white space behind a backslash."""
    tolerated_assumptions: frozenset[str] = frozenset()
    """Facts that may be assumed without making it unsafe: it costs nothing where they are otherwise."""
    grounds: tuple[Ground, ...] = ()
    """What it rests on beside what its report does: releases that mean the same by it."""
    uses_estimate: bool = False
    """Its values were chosen by the estimate, so that each assumption of that counts."""
    is_inert: bool = False
    """The keys have no effect as they are and none afterwards (one that the framework drops is removed)."""
    advice: str = ""
    """How to settle what it gives up, where nothing states that: `--fix` prints it. Empty for other fixes."""


class Report(Frozen):
    """A rule's statement before the engine signs it with the rule's code."""

    message: str
    """The headline: what is wrong, and what happens."""
    place: Place
    severity: Severity | None = None
    """None: the rule's own."""
    fix: Fix | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    """What to do, in one line."""
    notes: tuple[str, ...] = ()
    """Further facts, one line each: a breakdown."""
    min_certainty: Certainty = "assumed"
    """The lowest grade of facts on which it is worth saying."""
    grounds: tuple[Ground, ...] = ()
    """What it rests on beside the fields that its rule reads: releases, a vocabulary."""
    fields_read: tuple[Field, ...] | None = None
    """The plan fields that it rests on, where data names them; None: those that its rule has read by then."""
    claim: str | None = None
    """What it says, for comparison where facts are otherwise; None: its message. Any number beyond a limit
    exceeds it."""
    is_secret: bool = False
    """The marked text is a credential: no report shows it, wherever it is."""
    find_remedy: Callable[[], tuple[Fix | None, str | None]] | None = None
    """Finds its fix and its help, where that is costly: asked only once it is certain that the report is made."""

    def resolve_remedy(self) -> Report:
        """The report with its fix and its help."""
        if self.find_remedy is None:
            return self
        fix, help_text = self.find_remedy()
        return self._replace(fix=fix, help=help_text, find_remedy=None)


class FileEdit(Frozen):
    """One edit of one file, in byte offsets and in lines and columns."""

    path: str
    edit: Edit
    start: Position
    end: Position
    document: Document | None = None
    """The text that it edits; None where that is not at hand."""


def shorten_message(text: str) -> str:
    """A text for a message, its middle left out where a file has made it too long to read.

    Credentials are masked before, so that none is cut in two.
    """
    if len(text) <= _MAX_MESSAGE_CHARACTERS:
        return text
    from cfglint_train.foundation.credentials import mask  # few messages are long

    text = mask(text)
    return f"{text[: _MAX_MESSAGE_CHARACTERS // 2]} [...] {text[-_MAX_MESSAGE_CHARACTERS // 2 :]}"


_MAX_MESSAGE_CHARACTERS: Final = 4000


class Remedy(Frozen):
    """A fix that the lenses could write: its edits. `refused` says why there are none."""

    applicability: Applicability
    message: str
    edits: tuple[FileEdit, ...] = ()
    refused: str | None = None
    uses_estimate: bool = False
    """As in `Fix`."""


class Finding(Frozen):
    """A signed statement, ready to be reported."""

    code: str
    name: str
    severity: Severity
    message: str
    path: str
    start: Position
    end: Position
    place: Place | None = None
    """None where the file could not be read at all."""
    fix: Remedy | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    notes: tuple[str, ...] = ()
    certainty: Certainty = "stated"
    """The lowest grade among the facts of `rests_on`."""
    rests_on: tuple[Ground, ...] = ()
    fields_read: tuple[Field, ...] = ()
    """The plan fields that it and its fix were made from, but for those of the estimate."""
    scenarios: tuple[Scenario, ...] = ()
    """Other values of assumed facts, and whether it holds there."""
    run_count: int = 1
    """How many runs it holds for, where it points into a companion that they share."""
    intent: Fix | None = None
    """The fix as the rule stated it; the fixer writes from it, through `run`."""
    run: Run | None = None
    """The run of the finding; None where it is about one configuration or the text."""

    @property
    def sort_key(self) -> tuple[str, Position, str, str]:
        """Findings are reported by file, place and code."""
        return self.path, self.start, self.code, self.message
