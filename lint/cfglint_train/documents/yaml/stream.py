"""YAML files with several documents (manifests); cfglint reads their comments and strings, but no settings."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import MISSING, Comment, Document, Route, Span
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Any, ClassVar, Final

_DOCUMENT_START: Final = compile_on_use(rb"(?m)^---(?=[ \t\r]|$)")


class YamlStream(Document):
    """A YAML file with any number of documents."""

    syntax: ClassVar[str] = "yaml"

    def __init__(self, path: str, source: bytes) -> None:
        """Parse every document. Raise `DocumentError` if one of them cannot be parsed."""
        super().__init__(path, source)
        starts = [0, *(match.start() for match in _DOCUMENT_START.finditer(source))]
        ends = [*starts[1:], len(source)]
        self._parts = [(start, YamlDocument(path, source[start:end])) for start, end in zip(starts, ends)]

    def get_value(self, route: Route = ()) -> Any:
        """Return the values of all documents for the empty route, and MISSING for any other route."""
        return MISSING if route else [part.get_value() for _, part in self._parts]

    def list_comments(self) -> list[Comment]:
        """Return the comments of all documents, in order."""
        return [
            Comment(Span(start + comment.span.start, start + comment.span.end), comment.text)
            for start, part in self._parts
            for comment in part.list_comments()
        ]

    def list_blocks(self) -> Iterator[Span]:
        """Yield the spans of scalars that cover several lines, over all documents."""
        for start, part in self._parts:
            for span in part.list_blocks():
                yield Span(start + span.start, start + span.end)
