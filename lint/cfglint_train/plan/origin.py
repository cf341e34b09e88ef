"""Origins of field values, and places in documents."""

from __future__ import annotations

from cfglint_train.documents.document import Document, Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Literal


class Place:
    """A span of a document: the place of a setting, or of a finding."""

    __slots__ = ("document", "stored_span")

    def __init__(self, document: Document, span: Span | None) -> None:
        """Store the document and the span; a subclass may compute the span later."""
        self.document = document
        self.stored_span = span

    @property
    def span(self) -> Span:
        """Byte range of the place in the document."""
        assert self.stored_span is not None
        return self.stored_span

    def __eq__(self, other: object) -> bool:
        """Compare document and span."""
        return isinstance(other, Place) and self.document is other.document and self.span == other.span

    def __hash__(self) -> int:
        """Hash the identity of the document and the span."""
        return hash((id(self.document), self.span))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place with its span."""
        return Place, (self.document, self.span)

    def __repr__(self) -> str:
        """Return the path and the span."""
        return f"Place({self.document.path!r}, {self.span})"


class Origin(Frozen):
    """The origin of a field's value.

    `kind` is explicit (stated in the configuration, at `place`), default (the framework's default in release `note`),
    inferred (from other fields, named in `note`), user (flag, pragma, setting or launch script, named in `note`) or
    assumed (not stated; `note` explains how to state it).
    """

    kind: Literal["explicit", "default", "inferred", "user", "assumed"]
    place: Place | None = None
    note: str = ""
    key: str = ""
    """The setting as its framework spells it."""
    framework: str = ""
    """Framework whose lens read the value; empty if no lens did."""
    assumption: str = ""
    """The assumption behind a stated value that is only a default: `$MBS` is 16 unless the environment sets it."""
    follows: str = ""
    """The setting of the same framework whose value this setting copies (`${device_train_microbatch_size}`)."""
    is_unsupported: bool = False
    """True if no formula covers the run, which is then not estimated; `note` gives the reason."""


class FieldValue(Frozen):
    """A field's value with its origin."""

    value: Any
    origin: Origin
