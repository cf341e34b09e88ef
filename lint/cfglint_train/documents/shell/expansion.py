"""Expansion of a word as in bash: remove quotes, replace variables, evaluate arithmetic.

Text that cannot be determined without running the script becomes a fragment with `why`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.words import NAME, Chain, Fragment, add_use_site
from cfglint_train.foundation.credentials import shorten
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from cfglint_train.documents.shell.outline import Assignment

# Maximum nesting of expansions; deeper expansions are unknown.
MAX_DEPTH: Final = 12

_PARAMETER: Final = compile_on_use(rb"([!#]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!_-])")
_ARRAY: Final = compile_on_use(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)\[([@*])\]\}")
_OPERATOR: Final = compile_on_use(rb"(:?)([-=+?])")
_ANSI: Final = compile_on_use(rb"\$'((?:[^'\\]|\\.)*)'", re.S)
_ANSI_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?"}
_PROBE: Final = compile_on_use(
    rb"\$\((?P<probe>(?:[^&|;\n]|>&|&>)*)&&\s*echo\s+[\w.-]+\s*\|\|\s*echo\s+(?P<otherwise>[\w.-]+)\s*\)"
)
"""`$(probe && echo x || echo otherwise)`."""
_NPU: Final = compile_on_use(rb"\b(?:torch_npu|npu-smi)\b")
"""Software of Ascend NPUs, without which a machine is assumed to have GPUs."""
_BRACES: Final = compile_on_use(rb"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_NESTING: Final = compile_on_use(rb"[\\\"'(){}\[\]$]")
"""Characters that open or close brackets and quotes."""
_ARITHMETIC: Final = compile_on_use(rb"\s*(?:([0-9]+)|\$?\{?([A-Za-z_][A-Za-z0-9_]*)\}?|([-+*/%()]))")
_LITERAL: Final = {
    "plain": compile_on_use(rb"[^\\'\"$`]+"),
    "double": compile_on_use(rb"[^\\\"$`]+"),
    "here": compile_on_use(rb"[^\\$`]+"),
    "operand": compile_on_use(rb"[^\\\"$`]+"),
}
_ESCAPED: Final = {"double": b'$`"\\', "here": b"$`\\", "operand": b'$`"\\}'}


class ExpandableScript(Protocol):
    """Interface of a script that expansion uses."""

    text: bytes
    assignments: dict[str, list[Assignment]]

    def read_literal(self, start: int, end: int) -> list[Fragment]:
        """Return the bytes `start` to `end` of the text, with their places in the file."""

    def find_sites(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the places in the file from which the bytes `start` to `end` of the text come."""

    def resolve_variable(self, name: str, at: int, chain: Chain, depth: int = 0) -> tuple[Fragment, ...] | None:
        """Return the value of a variable at a place, or None if it is unknown."""

    def resolve_array(
        self, name: str, at: int, chain: Chain, depth: int = 0
    ) -> tuple[tuple[Fragment, ...], ...] | None:
        """Return the elements of an array at a place, or None if they are unknown."""

    def resolve_argument(self, number: int, at: int, chain: Chain) -> tuple[Fragment, ...] | None:
        """Return the value of `$1`, `$2` and so on at a place, or None if it is unknown."""

    def is_set_outside(self, name: str, at: int, chain: Chain) -> bool:
        """Return whether a variable can be set only by the caller of the script, not by the script before a place."""

    def build_unknown(self, start: int, end: int, why: str, split: bool = True) -> Fragment:
        """Return a fragment whose text is unknown for the reason `why`."""


class Expansion:
    """Expansion of the bytes of one word."""

    __slots__ = ("at", "chain", "depth", "end", "out", "script", "shape", "text")

    def __init__(
        self, script: ExpandableScript, end: int, at: int, chain: Chain, depth: int, out: list[Fragment]
    ) -> None:
        """Prepare to expand up to `end`; `run` appends the fragments to `out`."""
        self.script = script
        self.text = script.text
        self.end = end
        self.at = at
        self.chain = chain
        self.depth = depth
        self.out = out
        # Unquoted text, searched for brace expansion.
        self.shape: list[bytes] = []

    def run(self, start: int, mode: str) -> None:
        """Expand everything from `start` to `end`."""
        index = start
        while index < self.end:
            index = self._expand_next(index, mode)
        if mode == "plain" and _BRACES.search(b"".join(self.shape)):
            written = self.text[start : self.end].decode("utf-8", "replace")
            self.out[:] = [self.script.build_unknown(start, self.end, written)]

    def _expand_next(self, index: int, mode: str) -> int:
        """Expand the construct at `index` and return the index after it."""
        text = self.text
        run = _LITERAL[mode].match(text, index, self.end)
        if run is not None:
            self._append_literal(index, run.end(), quoted=mode != "plain")
            return run.end()
        first = text[index : index + 1]
        if first == b"\\":
            return self._expand_escape(index, mode)
        if first == b"'":
            close = text.find(b"'", index + 1, self.end)
            close = self.end if close < 0 else close
            self._append_literal(index + 1, close)
            return close + 1
        if first == b'"':
            return self._expand_double_quotes(index + 1)
        if first == b"`":
            close = index + 1
            while close < self.end and text[close : close + 1] != b"`":
                close += 2 if text[close : close + 1] == b"\\" else 1
            return self._append_unknown(index, min(close + 1, self.end), mode)
        return self._expand_dollar(index, mode)

    def _append_literal(self, start: int, end: int, quoted: bool = True) -> None:
        self.out += self.script.read_literal(start, end)
        if not quoted:
            self.shape.append(self.text[start:end])

    def _append_unknown(self, start: int, end: int, mode: str, why: str = "") -> int:
        written = why or self.text[start:end].decode("utf-8", "replace")
        self.out.append(self.script.build_unknown(start, end, written, split=mode == "plain"))
        return end

    def _expand_escape(self, index: int, mode: str) -> int:
        following = self.text[index + 1 : min(index + 2, self.end)]
        if following == b"\n":
            return index + 2
        if mode == "plain" or (following and following in _ESCAPED[mode]):
            if following:
                self.out.append(Fragment(following, self.script.find_sites(index, index + 2), exact=False))
            return index + 2
        self._append_literal(index, min(index + 1 + len(following), self.end))
        return index + 1 + len(following)

    def _expand_double_quotes(self, index: int) -> int:
        """Expand up to the closing quote and return the index after it."""
        count, start = len(self.out), index
        while index < self.end and self.text[index : index + 1] != b'"':
            index = self._expand_next(index, "double")
        if len(self.out) == count:
            self._append_literal(start, start)
        return index + 1

    def _expand_dollar(self, index: int, mode: str) -> int:
        text = self.text
        second = text[index + 1 : min(index + 2, self.end)]
        if second == b"'" and mode == "plain":
            return self._expand_ansi(index)
        if second == b'"' and mode == "plain":
            return self._expand_double_quotes(index + 2)
        if second == b"(":
            close = find_closing(text, index + 1, self.end)
            if text[index + 2 : index + 3] == b"(" and text[close - 2 : close] == b"))":
                return self._expand_arithmetic(text[index + 3 : close - 2], index, close, mode)
            probe = _PROBE.fullmatch(text, index, close)
            if probe is not None and (software := _NPU.search(probe["probe"])) is not None:
                note = f"`{software.group().decode()}` is missing, because the machine has GPUs"
                sites = self.script.find_sites(index, close)
                self.out.append(Fragment(probe["otherwise"], sites, exact=False, names=("$(",), assumptions=(note,)))
                return close
            return self._append_unknown(index, close, mode)
        if second == b"[":  # an older form of `$((...))`
            close = find_closing(text, index + 1, self.end)
            return self._expand_arithmetic(text[index + 2 : close - 1], index, close, mode)
        if second == b"{":
            close = find_closing(text, index + 1, self.end)
            return self._expand_braces(index, close, mode)
        match = _PARAMETER.match(text, index + 1, self.end)
        if match is None or match.group(1):
            self._append_literal(index, index + 1)
            return index + 1
        # Without braces, only one digit counts: $12 is ${1}2.
        end = index + 2 if match.group(2)[:1].isdigit() else match.end()
        return self._expand_variable(text[index + 1 : end], index, end, mode)

    def _expand_arithmetic(self, expression: bytes, start: int, end: int, mode: str) -> int:
        """Expand `$((...))` and return the index after it."""
        assumptions: list[str] = []
        number = self._evaluate_arithmetic(expression, assumptions)
        if number is None:
            return self._append_unknown(start, end, mode)
        sites, notes = self.script.find_sites(start, end), tuple(dict.fromkeys(assumptions))
        self.out.append(Fragment(b"%d" % number, sites, exact=False, names=("$((",), assumptions=notes))
        return end

    def _expand_ansi(self, index: int) -> int:
        match = _ANSI.match(self.text, index, self.end)
        if match is None:
            return self._append_unknown(index, self.end, "plain")
        body = match.group(1)
        is_supported = all(escape in _ANSI_ESCAPES for escape in re.findall(rb"\\(.)", body, re.S))
        if not is_supported:
            return self._append_unknown(index, match.end(), "double")
        text = re.sub(rb"\\(.)", lambda escape: _ANSI_ESCAPES[escape.group(1)], body, flags=re.S)
        self.out.append(Fragment(text, self.script.find_sites(index, match.end()), exact=False))
        return match.end()

    def _expand_variable(self, name: bytes, start: int, end: int, mode: str) -> int:
        value = self._resolve_value(name)
        if value is None:
            return self._append_unknown(start, end, mode)
        sites = self.script.find_sites(start, end)
        self._append_value(value, sites, name.decode(), mode)
        return end

    def _resolve_value(self, name: bytes) -> tuple[Fragment, ...] | None:
        if name.isdigit():
            return self.script.resolve_argument(int(name), self.at, self.chain)
        if NAME.fullmatch(name) is None:
            return None
        return self.script.resolve_variable(name.decode(), self.at, self.chain, self.depth + 1)

    def _append_value(self, value: Iterable[Fragment], sites: tuple[Span, ...], name: str, mode: str) -> None:
        self.out += [add_use_site(fragment, sites, name, split=mode == "plain") for fragment in value]

    def _expand_braces(self, start: int, end: int, mode: str) -> int:
        """Expand `${NAME}`, `${NAME:-word}` and similar, and return the index after them."""
        array = _ARRAY.fullmatch(self.text, start, end)
        if array is not None:
            return self._expand_elements(array.group(1).decode(), start, end, mode, one_word=array.group(2) == b"*")
        match = _PARAMETER.match(self.text, start + 2, end - 1)
        if match is None or match.group(1) or self.text[end - 1 : end] != b"}":
            return self._append_unknown(start, end, mode)
        name, name_end = match.group(2), match.end()
        if name_end == end - 1:
            return self._expand_variable(name, start, end, mode)
        operator = _OPERATOR.match(self.text, name_end, end - 1)
        if operator is None or self.depth >= MAX_DEPTH:
            return self._append_unknown(start, end, mode)
        colon, kind = operator.groups()
        value = self._resolve_value(name)
        if value is None and kind in b"-=" and self.script.is_set_outside(name.decode(), self.at, self.chain):
            return self._expand_default(name.decode(), name.decode(), start, operator.end(), end, mode)
        if value is not None and len(value) == 1 and value[0].default_blank and kind in b"-=" and colon:
            return self._expand_default(name.decode(), value[0].default_blank, start, operator.end(), end, mode)
        if value is None or not all(fragment.is_known for fragment in value):
            return self._append_unknown(start, end, mode)
        has_text = any(fragment.text for fragment in value)
        if not (colon or has_text) and name.isdigit():
            return self._append_unknown(start, end, mode)  # an empty argument, or none
        is_set = bool(colon == b"" or has_text)
        sites = self.script.find_sites(start, end)
        assumptions = tuple(note for fragment in value for note in fragment.assumptions)
        if (kind != b"+") is is_set:
            self._append_value(value, sites, name.decode(), mode)
        elif kind in b"-=+":
            operand = self._expand_operand(operator.end(), end - 1, assumptions, mode)
            self._append_value(operand, sites, name.decode(), mode)
        else:
            return self._append_unknown(start, end, mode)
        return end

    def _expand_elements(self, name: str, start: int, end: int, mode: str, one_word: bool) -> int:
        """Expand `${NAME[@]}` within a longer word and return the index after it.

        Each element becomes a word, unless quotes and `${NAME[*]}` join them.
        """
        elements = self.script.resolve_array(name, self.at, self.chain, self.depth + 1)
        if elements is None or "IFS" in self.script.assignments:
            return self._append_unknown(start, end, mode)
        sites = self.script.find_sites(start, end)
        for number, element in enumerate(elements):
            if number:
                blank = Fragment(b" ", sites, exact=False, split=mode == "plain" or not one_word, names=(name,))
                self.out.append(blank)
            self._append_value(element, sites, name, mode)
        return end

    def _expand_default(self, name: str, origin: str, start: int, word: int, end: int, mode: str) -> int:
        """Expand `${NAME:-word}` of a variable whose value only `origin` can set: an argument or the environment."""
        inner = self._expand_operand(word, end - 1, (), mode)
        text = b"".join(fragment.text for fragment in inner).decode("utf-8", "replace")
        is_known = all(fragment.is_known for fragment in inner)
        if not text or not (is_known or _is_in_unknown_folder(inner)):
            self._append_unknown(start, end, mode)
            if is_known:
                self.out[-1] = self.out[-1]._replace(default_blank=origin)
            return end
        condition = "it is passed as an argument" if origin.isdigit() else "the environment sets it"
        note = f"`${origin}` is {shorten(text, 60)} unless {condition}"
        sites = self.script.find_sites(start, end)
        fragments = [fragment._replace(assumptions=(note, *fragment.assumptions)) for fragment in inner]
        self._append_value(fragments, sites, name, mode)
        return end

    def _expand_operand(self, start: int, end: int, assumptions: tuple[str, ...], mode: str) -> list[Fragment]:
        """Expand the word after the operator of `${NAME:-word}`; inside double quotes, single quotes are text."""
        inner: list[Fragment] = []
        expansion = Expansion(self.script, end, self.at, self.chain, self.depth + 1, inner)
        expansion.run(start, "plain" if mode == "plain" else "operand")
        return (
            [fragment._replace(assumptions=(*assumptions, *fragment.assumptions)) for fragment in inner]
            if assumptions
            else inner
        )

    def _evaluate_arithmetic(self, text: bytes, assumptions: list[str]) -> int | None:
        """Evaluate `+ - * / %` over integers and known variables; return None if the result cannot be determined.

        Notes on the defaults that the variables rely on are appended to `assumptions`.
        """
        tokens: list[str] = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = _ARITHMETIC.match(text, at)
            if match is None or match.end() == at or len(tokens) > 200:
                return None
            number, name, sign = match.groups()
            if name is not None:
                value = self._resolve_value(name)
                joined = b"".join(fragment.text for fragment in value or ()).strip()
                if (
                    value is None
                    or any(fragment.why or fragment.condition for fragment in value)
                    or not joined.isdigit()
                ):
                    return None
                assumptions += [note for fragment in value for note in fragment.assumptions]
                number = joined
            token = number or sign
            # Bash reads a leading zero as octal.
            if token.isdigit() and (len(token) > 18 or (len(token) > 1 and token.startswith(b"0"))):
                return None
            tokens.append(token.decode())
            at = match.end()
        return _evaluate_tokens(tokens)


def _is_in_unknown_folder(fragments: list[Fragment]) -> bool:
    """Return whether fragments are a path of which only the folder is unknown (`$MODELS/Qwen`)."""
    first, *others = fragments
    is_rest_known = bool(others) and all(fragment.is_known for fragment in others)
    return is_rest_known and not first.is_known and not first.condition and others[0].text.startswith(b"/")


def _evaluate_tokens(tokens: list[str]) -> int | None:
    """Evaluate tokens by precedence climbing, or return None if they are not a valid expression."""
    position = 0

    def parse_primary(depth: int) -> int:
        nonlocal position
        token = tokens[position]
        position += 1
        if token == "(":
            if depth > MAX_DEPTH:
                raise ValueError
            value = parse_sum(depth + 1)
            if tokens[position] != ")":
                raise ValueError
            position += 1
            return value
        return int(token)

    def parse_product(depth: int) -> int:
        nonlocal position
        value = parse_primary(depth)
        while position < len(tokens) and tokens[position] in "*/%":
            sign = tokens[position]
            position += 1
            right = parse_primary(depth)
            if sign == "*":
                value *= right
            else:
                # Bash truncates toward zero.
                quotient = abs(value) // abs(right) * (1 if (value < 0) is (right < 0) else -1)
                value = quotient if sign == "/" else value - quotient * right
        return value

    def parse_sum(depth: int) -> int:
        nonlocal position
        value = parse_product(depth)
        while position < len(tokens) and tokens[position] in "+-":
            sign = tokens[position]
            position += 1
            right = parse_product(depth)
            value = value + right if sign == "+" else value - right
        return value

    try:
        value = parse_sum(0)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return value if position == len(tokens) and abs(value) < 2**63 else None


def find_closing(text: bytes, opening: int, end: int) -> int:
    """Return the index after the bracket that closes the bracket at `opening`, or `end`; quoted text is skipped."""
    pairs = {b"(": b")", b"{": b"}", b"[": b"]"} if text[opening : opening + 1] == b"[" else {b"(": b")", b"{": b"}"}
    expected = [pairs[text[opening : opening + 1]]]
    index = opening + 1
    while (sign := _NESTING.search(text, index, end)) is not None:
        index, character = sign.start(), sign.group()
        if character == b"\\":
            index += 1
        elif character == expected[-1]:
            expected.pop()
            if not expected:
                return index + 1
        elif expected[-1] == b'"':
            if character == b"$" and text[index + 1 : index + 2] in pairs:
                index += 1
                expected.append(pairs[text[index : index + 1]])
        elif character == b"'":
            close = text.find(b"'", index + 1, end)
            index = end if close < 0 else close
        elif character == b'"':
            expected.append(b'"')
        elif character in pairs:
            expected.append(pairs[character])
        index += 1
    return end
