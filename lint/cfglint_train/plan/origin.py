"""Where the value of a field comes from, and how sure it is."""

from __future__ import annotations

from cfglint_train.documents.document import Document, Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Literal


class Place:
    """A span of a document: where a setting stands, or where a finding points."""

    __slots__ = ("document", "stored_span")

    def __init__(self, document: Document, span: Span | None) -> None:
        self.document = document
        self.stored_span = span

    @property
    def span(self) -> Span:
        """The bytes of the place."""
        assert self.stored_span is not None
        return self.stored_span

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.document is other.document and self.span == other.span

    def __hash__(self) -> int:
        return hash((id(self.document), self.span))

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.document, self.span)

    def __repr__(self) -> str:
        return f"Place({self.document.path!r}, {self.span})"


class Origin(Frozen):
    """Where a field's value comes from.

    `kind`: explicit (the configuration states it, at `place`), default (the framework's own, of release `note`),
    inferred (from other fields, named in `note`), user (flag, pragma, setting or launch script, named in `note`),
    assumed (not stated; `note` says how to state it).
    """

    kind: Literal["explicit", "default", "inferred", "user", "assumed"]
    place: Place | None = None
    note: str = ""
    key: str = ""
    """The setting as its framework spells it."""
    framework: str = ""
    """The framework whose lens read it; empty for what no lens says."""
    assumption: str = ""
    """What a stated value rests on where it is only a default: `$MBS` is 16 unless the environment sets it."""
    is_unsupported: bool = False
    """No formula covers what the run does, as `note` says: whatever else is stated, it is not estimated."""


class FieldValue(Frozen):
    """A field's value with its origin."""

    value: Any
    origin: Origin
