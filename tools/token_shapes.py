"""Write the shapes of access tokens, by which cfglint recognises a credential wherever it is.

Usage: `python -m tools.token_shapes CHECKOUT`, a checkout of https://github.com/gitleaks/gitleaks (MIT), which keeps a
list of the tokens of some hundred services. What is taken are facts: the prefix of a token, its characters and its
length. Tokens without a prefix of their own are not: they are recognised there by words around them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

TARGET = Path(__file__).parents[1] / "lint" / "cfglint_train" / "foundation" / "token_shapes.json"
SOURCE = "https://github.com/gitleaks/gitleaks"
MIN_PREFIX = 3
MIN_RANDOM = 16
"""Characters behind the prefix: fewer may be a word."""
MAX_REPEAT = 400
"""Bounds keep a search linear."""
LEFT_OUT = (
    "flutterwave-public-key",  # no secret
    "jwt-base64",  # a token inside a text that is encoded twice
    "microsoft-teams-webhook",  # an address, as cfglint recognises it itself
)

_ALNUM = frozenset(map(ord, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
_WORD = _ALNUM | {ord("_")}

Part = tuple[frozenset[int], int, int]
"""Characters, and how many of them at least and at most."""


class Unsupported(Exception):
    """A pattern is no sequence of characters."""


def sequences(tree: Any, ignoring_case: bool) -> list[list[Part]]:
    """Return the sequences that a parsed pattern means, one for each alternative. Raise Unsupported."""
    found: list[list[Part]] = [[]]
    for kind, value in tree:
        if kind is _constants.AT:
            continue
        if kind is _constants.LITERAL:
            after = [[(cased({value}, ignoring_case), 1, 1)]]
        elif kind is _constants.IN:
            after = [[(cased(members(value), ignoring_case), 1, 1)]]
        elif kind is _constants.SUBPATTERN:
            _, added, removed, inner = value
            after = sequences(inner, bool(added & re.I) or (ignoring_case and not removed & re.I))
        elif kind is _constants.BRANCH:
            after = [one for branch in value[1] for one in sequences(branch, ignoring_case)]
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, inner = value
            after = []
            for one in sequences(inner, ignoring_case):
                if len(one) == 1 and one[0][1:] == (1, 1):
                    after.append([(one[0][0], least, min(int(most), MAX_REPEAT))])
                elif least == most:
                    after.append(one * least)
                else:
                    raise Unsupported
        else:
            raise Unsupported
        found = [before + one for before in found for one in after]
    return found


def members(items: Any) -> set[int]:
    """Return the characters of a class. Raise Unsupported."""
    found: set[int] = set()
    for kind, value in items:
        if kind is _constants.LITERAL:
            found.add(value)
        elif kind is _constants.RANGE:
            found.update(range(value[0], value[1] + 1))
        elif kind is _constants.CATEGORY and value is _constants.CATEGORY_WORD:
            found |= _WORD
        elif kind is _constants.CATEGORY and value is _constants.CATEGORY_DIGIT:
            found.update(map(ord, "0123456789"))
        else:
            raise Unsupported
    return found


def cased(characters: set[int], ignoring_case: bool) -> frozenset[int]:
    """Return characters with those of the other case."""
    if not ignoring_case:
        return frozenset(characters)
    return frozenset(ord(one) for code in characters for one in (chr(code).lower(), chr(code).upper()))


def shape(parts: list[Part]) -> tuple[str, str] | None:
    """Return the prefix of a token in lower case and the pattern of the token, or None if they are too short."""
    prefix = ""
    at = 0
    while at < len(parts) and parts[at][1:] == (1, 1) and (len(parts[at][0]) == 1 or len(set(spelled(parts[at]))) == 1):
        prefix += spelled(parts[at])[0]
        at += 1
    rest = parts[at:]
    least = sum(part[1] for part in rest if len(part[0]) > 1)
    if len(prefix) < MIN_PREFIX or least < MIN_RANDOM or prefix.isdigit():
        return None
    return prefix, "".join(map(pattern, merged(parts)))


def spelled(part: Part) -> list[str]:
    """Return the characters of a part; a prefix is compared in lower case."""
    return sorted(chr(code).lower() for code in part[0])


def merged(parts: list[Part]) -> list[Part]:
    """Return the parts, neighbours with the same characters as one."""
    found: list[Part] = []
    for characters, least, most in parts:
        if found and found[-1][0] == characters:
            _, before, up_to = found.pop()
            least, most = least + before, most + up_to
        found.append((characters, least, most))
    return found


def pattern(part: Part) -> str:
    """Return a part as a regular expression."""
    characters, least, most = part
    times = "" if least == most == 1 else f"{{{least}}}" if least == most else f"{{{least},{most}}}"
    if len(characters) == 1:
        return re.escape(chr(*characters)) + times
    text = ""
    codes = sorted(characters)
    while codes:
        run = [code for at, code in enumerate(codes) if code == codes[0] + at]
        first, last = (f"\\{chr(code)}" if chr(code) in "\\]^-" else chr(code) for code in (run[0], run[-1]))
        text += first if len(run) == 1 else first + last if len(run) == 2 else f"{first}-{last}"
        codes = codes[len(run) :]
    return f"[{text}]{times}"


def in_python(text: str) -> str:
    """Return a pattern of Go's regexp as one of Python's, without what follows a token."""
    text = re.sub(r"\(\?:\[\\x60'\"\\s;\]\|\\\\\[nr\]\|\$[^)]*\)$", "", text)
    text = re.sub(r"\(\?:\[\^[^\]]*\]\|\\z\)$", "", text)
    text = text.replace("[[:alnum:]]", "[a-zA-Z0-9]").replace(r"(?-i:acc)", "acc")
    while "(?i)" in text:
        before, _, after = text.partition("(?i)")
        depth, end = 0, len(after)
        for at, one in enumerate(after):
            depth += (one == "(") - (one == ")")
            if depth < 0:
                end = at
                break
        text = f"{before}(?i:{after[:end]}){after[end:]}"
    return text


def main() -> None:
    """Write the data file."""
    checkout = Path(sys.argv[1])
    ask = ("git", "-C", str(checkout))
    rules = tomllib.loads(
        subprocess.run((*ask, "show", "HEAD:config/gitleaks.toml"), capture_output=True, text=True, check=True).stdout
    )["rules"]
    commit = subprocess.run((*ask, "rev-parse", "HEAD"), capture_output=True, text=True, check=True).stdout.strip()
    shapes: dict[str, set[str]] = {}
    for rule in rules:
        if "regex" not in rule or rule["id"] in LEFT_OUT or "{0,50}?" in rule["regex"]:
            continue
        try:
            found = list(map(shape, sequences(_parser.parse(in_python(rule["regex"])), False)))
        except (Unsupported, re.error):
            continue
        for prefix, whole in filter(None, found):
            shapes.setdefault(prefix, set()).add(whole)
    data = {
        "source": f"{SOURCE}/blob/{commit}/config/gitleaks.toml",
        "licence": "MIT",
        "shapes": {prefix: "|".join(sorted(wholes)) for prefix, wholes in sorted(shapes.items())},
    }
    TARGET.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
