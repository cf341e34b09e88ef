"""Parsing of the newest Python syntax with the running Python, because the version that runs the job is unknown.

Constructs that an older `ast` rejects are replaced with accepted text of as many bytes: an f-string with another that
has an unknown value, type parameters with blanks. Sources: PEP 695 and 701 (Python 3.12), 750 and 758 (3.14), 810
(3.15).
"""

from __future__ import annotations

import ast
import re
import warnings

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_STRING: Final = compile_on_use(r"((?i:[rubft]|r[bft]|[bft]r)?)('''|\"\"\"|'|\")")
_NAME: Final = compile_on_use(r"[^\W\d]\w*")
_TYPE: Final = compile_on_use(r"type[ \t]+([^\W\d]\w*)[ \t]*(?=\[|=(?!=))")
_LAZY: Final = compile_on_use(r"lazy[ \t]+((?:import|from)[ \t][^\n;#]*)")
_EXCEPT: Final = compile_on_use(r"except\*?[ \t]+([^\n:#()\[\]\"']+?)[ \t]*:")
_OPENING: Final = "([{"
_CLOSING: Final = ")]}"
# Maximum depth of nested replacement fields; Python itself accepts two levels in a format specification.
_MAX_FIELDS: Final = 20


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a Python source.

    Raise the error of `ast.parse` for the original text if the replacements do not make it parse.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError as error:
            lowered = _Lowering(text).run()
            if lowered == text:
                raise
            try:
                return ast.parse(lowered)
            except SyntaxError:
                raise error from None


class _Broken(Exception):
    """Error for a string or bracket that is not closed."""


class _Lowering:
    """A single pass over a source that replaces newer constructs."""

    def __init__(self, text: str) -> None:
        """Prepare to lower `text`."""
        self.text = text
        self.edits: list[tuple[int, int, str]] = []

    def run(self) -> str:
        """Return the text with newer constructs replaced, or unchanged if a string or bracket is not closed."""
        try:
            self._scan()
        except _Broken:
            return self.text
        parts, at = [], 0
        for start, end, text in self.edits:
            parts += [self.text[at:start], text]
            at = end
        return "".join(parts) + self.text[at:]

    def _scan(self) -> None:
        at, depth, is_statement_start, is_definition = 0, 0, True, False
        while at < len(self.text):
            mark = self.text[at]
            string = _STRING.match(self.text, at)
            name = _NAME.match(self.text, at) if string is None else None
            if mark == "#":
                at = self._find_line_end(at)
            elif string is not None:
                at, is_statement_start = self._lower_string(string), False
            elif name is not None:
                start = at
                at = (self._lower_statement(at) if is_statement_start else 0) or name.end()
                if is_definition and self.text.startswith("[", name.end()):
                    at = self._skip_brackets(name.end())
                    self._clear(name.end(), at)
                is_definition = name.group() in ("def", "class") and at == name.end()
                is_statement_start = is_statement_start and self.text[start:at] == "async"
            else:
                depth += (mark in _OPENING) - (mark in _CLOSING)
                if mark == "\\":
                    at += 1
                elif mark in "\r\n":
                    is_statement_start = depth <= 0
                elif mark == ";":
                    is_statement_start = True
                elif mark not in " \t\f":
                    is_statement_start = False
                at += 1

    def _lower_statement(self, at: int) -> int:
        """Lower the statement at `at`: a lazy import, a type alias or an `except` without parentheses.

        Return the index after the lowered part, or 0 if there is nothing to lower.
        """
        lazy = _LAZY.match(self.text, at)
        if lazy is not None:
            self._replace(at, lazy.end(), lazy.group(1))
            return lazy.end()
        alias = _TYPE.match(self.text, at)
        if alias is not None:
            end = self._skip_brackets(alias.end()) if self.text.startswith("[", alias.end()) else alias.end()
            self._replace(at, end, alias.group(1))
            return end
        caught = _EXCEPT.match(self.text, at)
        if caught is not None and "," in caught.group(1) and not re.search(r"\bas\b", caught.group(1)):
            first = caught.group(1).index(",")
            self._clear(caught.start(1) + first, caught.end(1))
            return caught.end(1)
        return 0

    def _skip_brackets(self, at: int) -> int:
        """Return the index after the bracket that closes the bracket at `at`."""
        depth = 0
        while at < len(self.text):
            string = _STRING.match(self.text, at)
            name = _NAME.match(self.text, at) if string is None else None
            if string is not None:
                at = self._find_string_end(string, 0)
                continue
            if name is not None:
                at = name.end()
                continue
            mark = self.text[at]
            depth += (mark in _OPENING) - (mark in _CLOSING)
            at = self._find_line_end(at) if mark == "#" else at + 1
            if depth == 0:
                return at
        raise _Broken

    def _lower_string(self, string: re.Match[str]) -> int:
        """Lower a t-string, or an f-string that this Python rejects; return the index after the string."""
        start, end = string.start(), self._find_string_end(string, 0)
        prefix = string.group(1).lower()
        if "t" in prefix or ("f" in prefix and not _is_accepted(self.text[start:end])):
            quote = string.group(2)
            opening = re.sub("[tT]", "f", string.group(1)) + quote
            inside = self.text[string.end() : end - len(quote)]
            self.edits.append((start, end, opening + _build_unknown(inside, len(quote) == 3) + quote))
        return end

    def _find_string_end(self, string: re.Match[str], fields: int) -> int:
        """Return the index after a string, as the newest Python reads it; `fields`: depth of replacement fields."""
        prefix, quote = string.group(1).lower(), string.group(2)
        formatted = "f" in prefix or "t" in prefix
        at = string.end()
        while not self.text.startswith(quote, at):
            mark = self.text[at : at + 1]
            if not mark or (mark in "\r\n" and len(quote) == 1) or fields > _MAX_FIELDS:
                raise _Broken
            if mark == "\\":
                following = self.text[at + 1 : at + 2]
                if formatted and following == "N" and "r" not in prefix and self.text.startswith("{", at + 2):
                    at = self.text.find("}", at) + 1 or len(self.text)
                else:
                    at += 1 if formatted and following and following in "{}" else 2
            elif formatted and self.text.startswith(("{{", "}}"), at):
                at += 2
            elif formatted and mark == "{":
                at = self._skip_field(at + 1, fields + 1)
            else:
                at += 1
        return at + len(quote)

    def _skip_field(self, at: int, fields: int) -> int:
        """Return the index after the replacement field whose content begins at `at`."""
        depth = 0
        while at < len(self.text):
            mark = self.text[at]
            string = _STRING.match(self.text, at)
            name = _NAME.match(self.text, at) if string is None else None
            if string is not None:
                at = self._find_string_end(string, fields + 1)
            elif name is not None:
                at = name.end()
            elif mark == "#":
                at = self._find_line_end(at)
            elif depth == 0 and mark == "}":
                return at + 1
            elif depth == 0 and mark == ":":
                return self._skip_format(at + 1, fields)
            else:
                depth += (mark in _OPENING) - (mark in _CLOSING)
                at += 1
        raise _Broken

    def _skip_format(self, at: int, fields: int) -> int:
        """Return the index after the replacement field whose format specification begins at `at`."""
        while at < len(self.text) and fields <= _MAX_FIELDS:
            mark = self.text[at]
            if mark == "}":
                return at + 1
            at = self._skip_field(at + 1, fields + 1) if mark == "{" else at + 1
        raise _Broken

    def _find_line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def _replace(self, start: int, end: int, text: str) -> None:
        """Replace a range with a part of its text, padded with blanks to the same number of bytes."""
        padding = len(self.text[start:end].encode()) - len(text.encode())
        self.edits.append((start, end, text + " " * padding))

    def _clear(self, start: int, end: int) -> None:
        self.edits.append((start, end, _build_blanks(self.text[start:end])))


def _is_accepted(string: str) -> bool:
    """Return whether this Python accepts an f-string."""
    try:
        ast.parse(f"({string})", mode="eval")
    except SyntaxError:
        return False
    return True


def _build_blanks(text: str) -> str:
    """Return as many blanks as `text` has bytes, with the same line breaks."""
    return "".join(mark if mark in "\r\n" else " " * len(mark.encode()) for mark in text)


def _build_unknown(text: str, several_lines: bool) -> str:
    """Return the inside of an f-string with an unknown value and as many bytes and lines as `text`.

    Return the text unchanged if the replacement does not fit.
    """
    lines = _build_blanks(text).split("\n")
    last = len(lines) - 1
    reserved = 0 if several_lines else 1  # outside triple quotes, every line except the last ends in a backslash
    place = next((number for number, line in enumerate(lines) if len(line) >= 3 + reserved * (number < last)), None)
    if place is None or (reserved and not all(lines[:last])):
        return text
    lines[place] = "{_}" + lines[place][3:]
    return "\n".join(f"{line[:-1]}\\" if reserved and number < last else line for number, line in enumerate(lines))
