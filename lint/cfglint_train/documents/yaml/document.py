"""YAML documents: parsed by `compose.py`, typed by a **dialect**, edited by `write.py`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from cfglint_train.documents.document import (
    BOM,
    MISSING,
    Change,
    Comment,
    Document,
    Edit,
    Scalar,
    Span,
    decode,
    list_scalars,
)
from cfglint_train.documents.limits import MAX_SLOW_BYTES, LimitExceeded
from cfglint_train.documents.yaml.compose import START, compose
from cfglint_train.documents.yaml.dialects import PYYAML, Dialect, construct_scalar
from cfglint_train.documents.yaml.doubts import is_doubtful
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from cfglint_train.documents.yaml.refusals import Refusal


class YamlDocument(Document):
    """A YAML file with at most one document."""

    syntax: ClassVar[str] = "yaml"

    def __init__(self, path: str, source: bytes, dialect: Dialect = PYYAML) -> None:
        """Parse the source.

        Raise `DocumentError` if no loader can parse it or if it has two documents, and `LimitExceeded` if it is too
        large or nested too deeply.
        """
        super().__init__(path, source)
        self.dialect = dialect
        self.root, self._beyond_libyaml = compose(decode(source), source)
        if len(source) > MAX_SLOW_BYTES and self._is_doubtful:
            doubt = "tabs, tags, anchors or similar syntax that loaders read differently"
            raise LimitExceeded(f"more than {MAX_SLOW_BYTES >> 10} KiB with {doubt}", START)
        self._refusals: dict[str, tuple[Refusal | None, ...]] = {}

    @cached_property
    def _is_doubtful(self) -> bool:
        return is_doubtful(self.source)

    def find_refusals(self, dialect: Dialect) -> tuple[Refusal | None, ...]:
        """Return, for each loader of a dialect, the reason why it rejects the text, or None if it accepts the text.

        The result is empty if the text contains nothing doubtful.
        """
        if dialect.name not in self._refusals:
            doubtful = self._beyond_libyaml is not None or self._is_doubtful
            self._refusals[dialect.name] = self._run_loaders(dialect) if doubtful else ()
        return self._refusals[dialect.name]

    def _run_loaders(self, dialect: Dialect) -> tuple[Refusal | None, ...]:
        from cfglint_train.documents.yaml.refusals import find_refusals  # imported here because few texts need it

        return find_refusals(self, dialect, self._beyond_libyaml)

    def set_dialect(self, dialect: Dialect) -> None:
        """Set the dialect that types plain scalars from now on."""
        if dialect is not self.dialect:
            self.dialect = dialect
            for scalar in list_scalars(self.root):
                if not scalar.style:
                    scalar.value = MISSING

    def get_scalar_value(self, scalar: Scalar) -> Any:
        """Return the value that the dialect's loader constructs from a scalar."""
        if scalar.value is not MISSING:
            return scalar.value
        scalar.value = construct_scalar(scalar, self.dialect)
        return scalar.value

    def list_comments(self) -> list[Comment]:
        """Return every comment, from a `#` outside scalars to the end of its line."""
        comments = []
        spans = sorted(scalar.span for scalar in list_scalars(self.root))
        starts = [span.start for span in spans]
        for match in re.finditer(rb"(?:^|(?<=[ \t\r\n]))#[^\r\n]*", self.source.removeprefix(BOM)):
            shift = len(BOM) if self.source.startswith(BOM) else 0
            start, end = match.start() + shift, match.end() + shift
            at = bisect_left(starts, start + 1) - 1
            if at >= 0 and start < spans[at].end:
                continue
            comments.append(Comment(Span(start, end), self.get_text(Span(start, end))))
        return comments

    def list_blocks(self) -> Iterable[Span]:
        """Yield the spans of scalars that cover several lines."""
        for span in (scalar.span for scalar in list_scalars(self.root)):
            text = self.source[slice(*span)].rstrip()
            if b"\n" in text:
                yield Span(span.start, span.start + len(text))

    def build_edits(self, changes: Iterable[Change]) -> list[Edit]:
        """Return the edits that make `changes`. Raise `CannotEdit` if a change cannot be made."""
        from cfglint_train.documents.yaml.write import YamlWriter

        return YamlWriter(self).write(list(changes))
