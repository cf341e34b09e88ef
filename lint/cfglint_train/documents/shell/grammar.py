"""The syntax tree of a shell script, by tree-sitter's grammar of Bash."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache

from cfglint_train.documents.document import DocumentError, Position, Span
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

# The grammar's error recovery is quadratic in a few shapes that no script has (thousands of unclosed brackets).
_SECONDS: Final = 2.0
_SECONDS_PER_BYTE: Final = 1e-5

# The one defect of the grammar: a backslash before an empty line (or the end) makes an empty ERROR node.
_DANGLING: Final = re.compile(rb"\\(\r?\n)(?=[ \t]*(?:\r?\n|\Z))|\\(?=\Z)")
# A mark that people write to be replaced. Bash takes it for redirections, and the second swallows the next command.
# In quotation marks it is a text.
_PLACEHOLDER: Final = re.compile(
    rb"\"[^\"\n]*\"|'[^'\n]*'"
    rb"|(=|[ \t]--?\w[\w.-]*[ \t]+)<([A-Za-z][^<>\n\"'`$|&;()]{0,80})(?<![ \t])>(?=[ \t\r\n]|\Z)"
)
_PLACEHOLDER_CLUE: Final = re.compile(rb"[= \t]<[A-Za-z]")
_NO_NAME: Final = re.compile(rb"\W")
# A comment between continued lines: bash runs no command and has no word. The grammar ends the command there.
_INLINE: Final = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'|((?<![^ \t\n])`[ \t]*#[^`\n]*`(?=[ \t\r\n;|&)]|\Z))")
_COMMENT: Final = re.compile(rb"`[ \t]*#")
_LOST: Final = re.compile(rb"(?<=[ \t])(\\[ \t])[ \t]*(?:#.*)?$", re.M)
_CRLF: Final = re.compile(rb"(\\?)\r\n")

_GRAMMAR: Final[list[Any]] = []


def _load_language() -> Any:
    """The grammar, made once: that costs as much as parsing a script."""
    if not _GRAMMAR:
        import tree_sitter_bash
        from tree_sitter import Language

        _GRAMMAR.append(Language(tree_sitter_bash.language()))
    return _GRAMMAR[0]


@lru_cache(maxsize=4)
def parse(text: bytes) -> SyntaxNode:
    """The syntax tree of a text; many scripts source the same one. Raises DocumentError where it takes for ever."""
    from tree_sitter import Parser

    # Error recovery is also quadratic in these bytes, and no script has them.
    nul = text.find(b"\0")
    if nul >= 0:
        line = text.count(b"\n", 0, nul) + 1
        raise DocumentError("not a shell script: byte 0x00", Position(line, nul - text.rfind(b"\n", 0, nul)))
    limit = time.monotonic() + _SECONDS + _SECONDS_PER_BYTE * len(text)
    try:
        tree = Parser(_load_language()).parse(
            lambda offset, _: text[offset : offset + 65536],
            progress_callback=lambda _, __: time.monotonic() > limit,
        )
    except ValueError:
        raise DocumentError("the text is too tangled to be read (thousands of open brackets?)") from None
    return tree.root_node


_CLOSING: Final = frozenset((b"do", b"done", b"then", b"elif", b"else", b"fi", b"esac"))
"""Words that bash refuses as the name of a command, where the grammar takes them."""


def count_errors(source: bytes) -> int:
    """Return the number of places of a script that bash would not parse. Raises DocumentError as `parse` does."""
    errors, pending = 0, [parse(normalize_source(source))]
    while pending:
        node = pending.pop()
        if node.type == "command_name":
            errors += node.text in _CLOSING
        else:
            errors += node.type == "ERROR" or node.is_missing
            pending += node.children
    return errors


def normalize_source(source: bytes) -> bytes:
    """The text as it is parsed, byte for byte as long as the source."""
    if source.startswith(b"\xef\xbb\xbf"):
        source = b"   " + source[3:]
    if b"\r\n" in source:
        source = _CRLF.sub(lambda match: b" " + match.group(1) + b"\n", source)
    if _PLACEHOLDER_CLUE.search(source) is not None:
        source = _PLACEHOLDER.sub(_replace_placeholder, source)
    if _COMMENT.search(source) is not None:
        source = _INLINE.sub(
            lambda match: match.group() if match.group(1) is None else b" " * len(match.group()), source
        )
    return _DANGLING.sub(lambda match: b" " + (match.group(1) or b""), source)


def find_lost_blanks(text: bytes, start: int, end: int) -> Iterator[Span]:
    """Blanks behind a backslash at the end of a line, or before a comment there, between two words: words of bash that
    the grammar leaves out.
    """
    line_end = text.find(b"\n", end)
    stop = len(text) if line_end < 0 else line_end
    if text.find(b"\\", start, stop) < 0:
        return  # a line may have very many words
    for match in _LOST.finditer(text, start, stop):
        if len(text[start : match.start()].rstrip(b" \t")) < end - start:
            yield Span(*match.span(1))


def _replace_placeholder(match: re.Match[bytes]) -> bytes:
    """A mark as a variable that nothing sets; a text as it is."""
    prefix, name = match.groups()
    return match.group() if name is None else prefix + b"$" + _NO_NAME.sub(b"_", name) + b"_"
