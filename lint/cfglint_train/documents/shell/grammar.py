"""Syntax trees of shell scripts, parsed with tree-sitter's Bash grammar."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache

from cfglint_train.documents.document import DocumentError, Position, Span
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

# Error recovery is quadratic for a few constructs that real scripts lack (thousands of unclosed brackets).
_SECONDS: Final = 2.0
_SECONDS_PER_BYTE: Final = 1e-5

# Defect of the grammar: a backslash before an empty line (or the end) creates an empty ERROR node.
_DANGLING: Final = compile_on_use(rb"\\(\r?\n)(?=[ \t]*(?:\r?\n|\Z))|\\(?=\Z)")
# Placeholder that the user replaces (`<path>`). Bash reads it as redirections, and the second one swallows the next
# command. Inside quotes it is plain text. Before a plain word it may be two redirections (`sort <words.txt> sorted`),
# so there only plain words between the brackets count, except after an option or `=`.
_REPLACED: Final = rb"<([A-Za-z][^<>\n\"'`$|&;()]{0,80})(?<![ \t])>"
_PLACEHOLDER: Final = compile_on_use(
    rb"\"[^\"\n]*\"|'[^'\n]*'"
    rb"|(=|[ \t]--?\w[\w.-]*[ \t]+)" + _REPLACED + rb"(?=[ \t\r\n]|\Z)"
    rb"|(?<!\bdone)(?<!\bfi)(?<!\besac)(?<![})])([ \t]|^)"
    rb"(?:" + _REPLACED + rb"(?=[ \t]*(?:[\r\n;)]|\Z)|[ \t]+[&|#\\<-])|<([A-Za-z][\w -]{0,80})(?<![ -])>(?=[ \t]))",
    re.MULTILINE,
)
_PLACEHOLDER_CLUE: Final = compile_on_use(rb"(?:[= \t]|^)<[A-Za-z]", re.MULTILINE)
_NO_NAME: Final = compile_on_use(rb"\W")
# Comment in backticks between continued lines. In bash it expands to nothing; the grammar ends the command there.
_INLINE: Final = compile_on_use(rb"\"[^\"\n]*\"|'[^'\n]*'|((?<![^ \t\n])`[ \t]*#[^`\n]*`(?=[ \t\r\n;|&)]|\Z))")
_COMMENT: Final = compile_on_use(rb"`[ \t]*#")
_LOST: Final = compile_on_use(rb"(?<=[ \t])(\\[ \t])[ \t]*(?:#.*)?$", re.M)
# A word that closes a construct, directly after a continued line. Bash passes it to the command and then misses it.
_SWALLOWED: Final = compile_on_use(rb"(?<![\\])\\\n(?=[ \t]*(?:fi|done|esac|else)[ \t]*(?:[;&|<>#)\n]|\Z))")
_CRLF: Final = compile_on_use(rb"(\\?)\r\n")

_GRAMMAR: Final[list[Any]] = []


def _load_language() -> Any:
    """Return the grammar. It is loaded once, because loading costs as much as parsing a script."""
    if not _GRAMMAR:
        import tree_sitter_bash
        from tree_sitter import Language

        _GRAMMAR.append(Language(tree_sitter_bash.language()))
    return _GRAMMAR[0]


@lru_cache(maxsize=4)
def parse(text: bytes) -> SyntaxNode:
    """Return the syntax tree of a text.

    Raise `DocumentError` if parsing takes too long or the text contains a zero byte. The result is cached because many
    scripts source the same file.
    """
    from tree_sitter import Parser

    # Error recovery is also quadratic in zero bytes, which scripts never contain.
    nul = text.find(b"\0")
    if nul >= 0:
        line = text.count(b"\n", 0, nul) + 1
        raise DocumentError("not a shell script: byte 0x00", Position(line, nul - text.rfind(b"\n", 0, nul)))
    limit = time.monotonic() + _SECONDS + _SECONDS_PER_BYTE * len(text)
    try:
        tree = Parser(_load_language()).parse(
            lambda offset, _: text[offset : offset + 65536],
            progress_callback=lambda _, __: _is_late(limit),
        )
    except ValueError:
        raise DocumentError("the text is too deeply nested (thousands of open brackets?)") from None
    return tree.root_node


def _is_late(limit: float) -> bool:
    if time.monotonic() <= limit:
        return False
    filesystem.discard_record()
    return True


_CLOSING: Final = frozenset((b"do", b"done", b"then", b"elif", b"else", b"fi", b"esac"))
"""Words that bash rejects as a command name although the grammar accepts them."""


def count_errors(source: bytes) -> int:
    """Return the number of places in a script that bash cannot parse.

    Raise `DocumentError` as `parse` does.
    """
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
    """Return the text to parse, with the same number of bytes as the source."""
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
    if b"\\\n" in source:
        source = _SWALLOWED.sub(b" \n", source)
    return _DANGLING.sub(lambda match: b" " + (match.group(1) or b""), source)


def find_lost_blanks(text: bytes, start: int, end: int) -> Iterator[Span]:
    """Yield the escaped blanks at the end of a line, or before a comment there, that the grammar omits.

    Bash reads a backslash with a blank as a word. A blank is yielded if it belongs between `start` and `end`.
    """
    line_end = text.find(b"\n", end)
    stop = len(text) if line_end < 0 else line_end
    if text.find(b"\\", start, stop) < 0:
        return  # fast path: a line may have very many words
    for match in _LOST.finditer(text, start, stop):
        if len(text[start : match.start()].rstrip(b" \t")) < end - start:
            yield Span(*match.span(1))


def _replace_placeholder(match: re.Match[bytes]) -> bytes:
    """Replace a placeholder with a variable that is never set; leave quoted text unchanged."""
    option, value, blank, word, plain = match.groups()
    name = value or word or plain
    return match.group() if name is None else (option or blank or b"") + b"$" + _NO_NAME.sub(b"_", name) + b"_"
