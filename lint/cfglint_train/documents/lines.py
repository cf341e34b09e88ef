"""Text files without a tree, in which findings can stand: requirement files, Makefiles, README files."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Comment, Document, Span, find_continued_lines
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import ClassVar, Final

_COMMENT: Final = compile_on_use(rb"(?m)(?:^|(?<=[ \t]))#[^\r\n]*")


class LinesDocument(Document):
    """A text without a tree. A comment starts with `#` at the start of a line or after white space."""

    syntax: ClassVar[str] = "lines"

    def list_comments(self) -> list[Comment]:
        """Return every comment of the text, in order."""
        spans = [Span(match.start(), match.end()) for match in _COMMENT.finditer(self.source)]
        return [Comment(span, self.get_text(span)) for span in spans]

    def find_extent(self, line: int) -> tuple[int, int]:
        """Return the first and the last line of the group around `line` that trailing backslashes join."""
        return find_continued_lines(self, line)

    def find_line_span(self, number: int) -> Span:
        """Return the span of a line, counted from 1, without surrounding white space; empty past the end."""
        starts = self.line_starts
        start = starts[number - 1] if 0 < number <= len(starts) else len(self.source)
        text = self.source[start : self.find_line_end(start)]
        stripped = text.strip()
        first = start + len(text) - len(text.lstrip())
        return Span(first, first + len(stripped))


_HTML: Final = compile_on_use(rb"(?m)^[ \t]*(<!--(?:(?!-->).)*-->)[ \t]*$")
_FENCED: Final = compile_on_use(rb"(?ms)^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[ \t\r]*$|\Z)")


class MarkdownDocument(Document):
    """A README file with commands in fenced blocks. Its comments are HTML comments on their own lines."""

    syntax: ClassVar[str] = "markdown"

    def __init__(self, path: str, source: bytes) -> None:
        """Find the fenced blocks."""
        super().__init__(path, source)
        self._fenced_blocks = [match.span() for match in _FENCED.finditer(source)]

    def list_comments(self) -> list[Comment]:
        """Return every comment outside fenced blocks, in order."""
        spans = (Span(*match.span(1)) for match in _HTML.finditer(self.source.replace(b"\r\n", b" \n")))
        outside = [
            comment for comment in spans if not any(start <= comment.start < end for start, end in self._fenced_blocks)
        ]
        return [Comment(span, self.get_text(span)) for span in outside]

    def list_blocks(self) -> Iterator[Span]:
        """Return the fenced blocks."""
        return (Span(start, start + len(self.source[start:end].rstrip())) for start, end in self._fenced_blocks)
