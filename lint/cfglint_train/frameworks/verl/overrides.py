"""Hydra's override grammar: `a.b=c`, `+a.b=c`, `++a.b=c`, `~a.b`.

Source: hydra-core 1.3.2 (`grammar/OverrideLexer.g4`, `grammar/OverrideParser.g4`, `core/override_parser/`). The parser
here has the same tokens and the same rules, without ANTLR, so that a script is read without Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_train.documents.document import MAX_DIGITS, Unknown
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal

Sign = Literal["", "+", "++", "~"]

_STEP: Final = r"(?:[A-Za-z_$][\w$-]*|0|[1-9][0-9_]*)"
_HEAD: Final = compile_on_use(
    rf"(?P<sign>~|\+\+?|)(?P<key>[A-Za-z_][\w-]*(?:/[A-Za-z_][\w-]*)+|{_STEP}(?:\.{_STEP})*)"
    rf"(?:@(?P<package>{_STEP}(?:\.{_STEP})*)?)?(?P<equal>=?)",
    re.ASCII,
)


class OverrideHead(Frozen):
    """The part of an override up to its value."""

    sign: Sign
    """"" sets a key that exists, + adds one, ++ does either, ~ deletes."""
    key: str
    is_group: bool
    """True if it selects a file of a config group (`actor@a.b=dp_actor`, `hydra/launcher=x`)."""
    value_offset: int
    """Index of the value in the word; 0 if there is none."""
    package: str = ""
    """Section that a group's file is for (`a.b` in `actor@a.b=dp_actor`); empty for the group's own."""


def parse_head(text: str) -> OverrideHead | None:
    """Return the head of an override, or None if a word does not begin as an override does."""
    match = _HEAD.match(text)
    if match is None or (not match["equal"] and (match["sign"] != "~" or match.end() != len(text))):
        return None
    is_group = "/" in match["key"] or "@" in match.group()
    signs: Mapping[str, Sign] = {"": "", "+": "+", "++": "++", "~": "~"}
    offset = match.end() if match["equal"] else 0
    return OverrideHead(signs[match["sign"]], match["key"], is_group, offset, match["package"] or "")


_INT: Final = r"(?:0|[1-9](?:_?[0-9])*)"
_DIGITS: Final = r"[0-9](?:_?[0-9])*"
_POINT: Final = rf"(?:{_INT}?\.{_DIGITS}|{_INT}\.)"
_TOKENS: Final = (
    ("(", r"[ \t]*\([ \t]*"),
    (",", r"[ \t]*,[ \t]*"),
    (")", r"[ \t]*\)"),
    ("[", r"\[[ \t]*"),
    ("]", r"[ \t]*\]"),
    ("{", r"\{[ \t]*"),
    ("}", r"[ \t]*\}"),
    (":", r"[ \t]*:[ \t]*"),
    ("=", r"[ \t]*=[ \t]*"),
    ("float", rf"[+-]?(?:(?:{_POINT}|{_INT})[eE][+-]?{_DIGITS}|{_POINT}|[Ii][Nn][Ff]|[Nn][Aa][Nn])"),
    ("int", rf"[+-]?{_INT}"),
    ("bool", r"[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"),
    ("null", r"[Nn][Uu][Ll][Ll]"),
    ("char", r"[/\-\\+.$%*@?|]"),
    ("id", r"[A-Za-z_][A-Za-z0-9_-]*"),
    ("escape", r"(?:\\[\\()\[\]{}:=, \t])+"),
    ("space", r"[ \t]+"),
    ("quoted", r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"),
    ("interpolation", r"\$\{[^}]+\}"),
)
_PATTERNS: Final = tuple((kind, compile_on_use(pattern, re.DOTALL)) for kind, pattern in _TOKENS)
_WORDS: Final = frozenset(("id", "null", "int", "float", "bool", "interpolation", "char", ":", "escape", "space"))
"""Tokens of an unquoted value."""
_FUNCTIONS: Final = frozenset(
    ("bool", "choice", "extend_list", "float", "glob", "int", "interval", "json_str", "range", "shuffle", "sort", "str",
     "tag")
)  # fmt: skip
_MAX_DEPTH: Final = 50

Token = tuple[str, str]


def parse_value(text: str) -> Any:
    """Return the value of an override, typed as Hydra types it.

    A sweep (`a,b`) or a function (`choice(a,b)`) gives one value per job, and is `Unknown`. Raise ValueError if Hydra
    refuses the text.
    """
    tokens = _split_tokens(text.lstrip(" \t"))
    if not tokens:
        return ""
    parser = _ValueParser(tokens)
    value = parser.parse_element(0)
    if parser.peek() == ",":
        while parser.take(","):
            parser.parse_element(0)
        value = Unknown("a sweep of Hydra")
    if parser.peek():
        raise ValueError(f"{text!r}: {parser.tokens[parser.at][1]!r} is not expected there")
    return value


def _split_tokens(text: str) -> list[Token]:
    """Return the tokens of a value: at each place the longest, of equally long ones the first in `_TOKENS`."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        length, longest = 0, ""
        for kind, pattern in _PATTERNS:
            match = pattern.match(text, at)
            if match is not None and match.end() - at > length:
                length, longest = match.end() - at, kind
        if not longest:
            raise ValueError(f"{text!r}: {text[at]!r} needs quotes")
        tokens.append((longest, text[at : at + length]))
        at += length
    return tokens


class _ValueParser:
    """Recursive descent over the tokens of a value."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str:
        """Return the kind of the next token, or an empty string at the end."""
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, kind: str) -> bool:
        """Skip the next token if it is of a kind."""
        if self.peek() != kind:
            return False
        self.at += 1
        return True

    def expect(self, kind: str) -> None:
        """Skip a token. Raise ValueError if it is not next."""
        if not self.take(kind):
            raise ValueError(f"{''.join(text for _, text in self.tokens)!r}: {kind!r} is missing")

    def parse_element(self, depth: int) -> Any:
        """Return a list, a mapping, a function's result (`Unknown`) or a scalar."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        if self.take("["):
            return self._parse_list(depth)
        if self.take("{"):
            return self._parse_mapping(depth)
        if self.peek() == "id" and self.tokens[self.at + 1 : self.at + 2] and self.tokens[self.at + 1][0] == "(":
            return self._parse_function(depth)
        if self.peek() == "quoted":
            text = self.tokens[self.at][1]
            self.at += 1
            return _unquote(text)
        return self._parse_words(_WORDS)

    def _parse_list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if not self.take("]"):
            items.append(self.parse_element(depth + 1))
            while self.take(","):
                items.append(self.parse_element(depth + 1))
            self.expect("]")
        return items

    def _parse_mapping(self, depth: int) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        if not self.take("}"):
            while True:
                key = self._parse_words(_WORDS - {":", "interpolation"})
                self.expect(":")
                entries[key] = self.parse_element(depth + 1)
                if not self.take(","):
                    break
            self.expect("}")
        return entries

    def _parse_function(self, depth: int) -> Any:
        name = self.tokens[self.at][1]
        if name not in _FUNCTIONS:
            raise ValueError(f"Hydra has no function {name}()")
        self.at += 2
        while not self.take(")"):
            if self.peek() == "id" and self.tokens[self.at + 1 : self.at + 2] == [("=", "=")]:
                self.at += 2
            self.parse_element(depth + 1)
            if self.peek() != ")":
                self.expect(",")
        return Unknown(f"Hydra's {name}()")

    def _parse_words(self, kinds: frozenset[str]) -> Any:
        """Return the scalar that the next tokens form: a typed one alone, or else their text."""
        start = self.at
        while self.peek() in kinds:
            self.at += 1
        words = self.tokens[start : self.at]
        if not words:
            raise ValueError(f"{''.join(text for _, text in self.tokens)!r}: a value is missing")
        while len(words) > 1 and words[0][0] == "space":
            del words[0]
        while len(words) > 1 and words[-1][0] == "space":
            del words[-1]
        if len(words) == 1:
            return _convert_token(*words[0])
        return "".join(_unescape(text) if kind == "escape" else text for kind, text in words)


def _convert_token(kind: str, text: str) -> Any:
    """Return the value of a token that stands alone."""
    if kind == "int":
        return text if len(text) > MAX_DIGITS else int(text)
    if kind == "float":
        return float(text)
    if kind == "bool":
        return text.lower() == "true"
    if kind == "null":
        return None
    return _unescape(text) if kind == "escape" else "" if kind == "space" else text


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _unquote(text: str) -> str:
    """Return the text between quotes: a backslash escapes the quote, and backslashes before a quote."""
    quote, inner = text[0], text[1:-1]
    inner = re.sub(rf"(\\+)({quote})", lambda match: "\\" * (len(match[1]) // 2) + match[2], inner)
    return re.sub(r"\\+$", lambda match: "\\" * (len(match[0]) // 2), inner)
