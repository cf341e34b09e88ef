"""Findings: reports of rules about a place in a run, with their fixes."""

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
    """An additional place of a finding."""

    place: Place
    message: str


class Fix(Frozen):
    """A remedy for a finding: new values of plan fields, or (for vocabulary rules) key changes.

    - safe: fills in an unset value or replaces a value that cannot work; optimization and resuming stay as they are.
    - unsafe: overrides a choice that can run, or gives something up.
    - display: shown, never applied.
    """

    applicability: Applicability
    message: str
    changes: Mapping[Field, Any] = {}
    """New values by plan field; the framework's lenses write them."""
    keys: tuple[tuple[Config, tuple[Change, ...]], ...] = ()
    """Key changes by config."""
    texts: tuple[tuple[Document, Edit], ...] = ()
    """Edits of text that is not a key: comments, white space after a backslash."""
    tolerated_assumptions: frozenset[str] = frozenset()
    """Facts that may be assumed without making the fix unsafe, because a wrong assumption does no harm."""
    grounds: tuple[Ground, ...] = ()
    """Grounds of the fix in addition to those of its report: releases in which it has the same effect."""
    uses_estimate: bool = False
    """True if the memory estimate determined the values, so that the fix rests on all of its assumptions."""
    is_inert: bool = False
    """True if the keys have no effect before or after the fix, as for a removed key that the framework ignores."""
    advice: str = ""
    """Advice about a drawback of the fix that the files cannot rule out; `--fix` prints it."""


UNUSABLE_VALUE: Final = "a value that stops the estimate"
"""Quantity of a report that a value of a setting stops the estimate. An error at the value covers the report."""


class Report(Frozen):
    """A report of a rule, before the engine adds the rule's code."""

    message: str
    """Headline: the problem and its consequence."""
    place: Place
    severity: Severity | None = None
    """Severity of the report, or None for the severity of the rule."""
    fix: Fix | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    """Remedy as a single line."""
    notes: tuple[str, ...] = ()
    """Additional facts, one line each, such as a breakdown."""
    min_certainty: Certainty = "assumed"
    """Lowest certainty at which the report is worth showing."""
    assumed_severity: Severity | None = None
    """Severity if the report rests on an assumption, or None for `severity`. If set, no report rests on the GPU."""
    grounds: tuple[Ground, ...] = ()
    """Grounds in addition to the fields that the rule reads: releases, a vocabulary."""
    fields_read: tuple[Field, ...] | None = None
    """Plan fields that the report depends on, or None for the fields that the rule has read so far."""
    claim: str | None = None
    """Claim to compare with the reports of other scenarios, or None to compare the message. For example,
    "exceeds the limit" is the same claim for every number above the limit.
    """
    is_secret: bool = False
    """True if the text at `place` is a secret, which no output may show."""
    confirm: Callable[[], bool] | None = None
    """Function that decides whether the report holds if that is costly; called unless an assumption refutes it."""
    find_remedy: Callable[[], tuple[Fix | None, str | None]] | None = None
    """Function that finds the fix and the help if that is costly; called only for reports that are shown."""
    quantity: str = ""
    """Quantity whose verdict the report states, or an empty string. Reports on the same one may be merged."""
    left_to: str = ""
    """Code of a rule that covers the report: if that rule has a finding on the run, the report becomes its part."""

    @property
    def is_confirmed(self) -> bool:
        """True if the report holds."""
        return self.confirm is None or self.confirm()

    def resolve_remedy(self) -> Report:
        """Return the report with its fix and help, calling `find_remedy` if it is set."""
        if self.find_remedy is None:
            return self
        fix, help_text = self.find_remedy()
        return self._replace(fix=fix, help=help_text, find_remedy=None)


class FileEdit(Frozen):
    """An edit of a file, in byte offsets and in lines and columns."""

    path: str
    edit: Edit
    start: Position
    end: Position
    document: Document | None = None
    """Document that the edit applies to, or None if it is not available."""


def shorten_message(text: str) -> str:
    """Return the message, with its middle cut out if it exceeds 4,000 characters, as when it quotes a long line.

    Credentials are masked first, so that a cut never exposes part of a credential.
    """
    if len(text) <= _MAX_MESSAGE_CHARACTERS:
        return text
    from cfglint_train.foundation.credentials import mask  # imported here because few messages are long

    text = mask(text)
    return f"{text[: _MAX_MESSAGE_CHARACTERS // 2]} [...] {text[-_MAX_MESSAGE_CHARACTERS // 2 :]}"


_MAX_MESSAGE_CHARACTERS: Final = 4000


class Remedy(Frozen):
    """A fix in the form of edits; `refused` is the reason why there are none."""

    applicability: Applicability
    message: str
    edits: tuple[FileEdit, ...] = ()
    refused: str | None = None
    uses_estimate: bool = False
    """True if the memory estimate determined the values, as in `Fix`."""


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
    """Place in the file, or None if the file could not be read."""
    fix: Remedy | None = None
    related: tuple[Related, ...] = ()
    help: str | None = None
    notes: tuple[str, ...] = ()
    certainty: Certainty = "stated"
    """Lowest certainty among the facts in `rests_on`."""
    rests_on: tuple[Ground, ...] = ()
    fields_read: tuple[Field, ...] = ()
    """Plan fields that the finding and its fix were derived from, except the fields of the estimate."""
    scenarios: tuple[Scenario, ...] = ()
    """Scenarios with other values of the assumed facts; each records whether the finding holds."""
    run_count: int = 1
    """Number of runs for which the finding holds, if it points into a companion that they share."""
    intent: Fix | None = None
    """Fix as the rule stated it; the fixer writes it through `run`."""
    change: tuple[Any, ...] | None = None
    """Changes of the fix, if the finding comes from another process and has no `intent`."""
    run: Run | None = None
    """Run of the finding, or None if the finding is about a single config or its text."""
    quantity: str = ""
    """Quantity whose verdict the finding states, as in `Report`."""
    left_to: str = ""
    """Code of a rule that covers the finding, as in `Report`."""
    parts: tuple[Finding, ...] = ()
    """Merged findings, each without parts: other causes of the same verdict, and what is left to this finding."""
    others: tuple[Finding, ...] = ()
    """Folded findings: the same cause at other places, for reports."""

    @property
    def atoms(self) -> tuple[Finding, ...]:
        """The finding without its parts, followed by its parts."""
        return (self._replace(parts=()), *self.parts) if self.parts else (self,)

    @property
    def sort_key(self) -> tuple[str, Position, str, str]:
        """Sort key: path, start, code and message."""
        return self.path, self.start, self.code, self.message
