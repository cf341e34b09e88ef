"""Write the shapes of access tokens, by which cfglint recognises credentials in any text.

Usage: `python -m tools.token_shapes CHECKOUT`, a checkout of https://github.com/gitleaks/gitleaks (MIT), which lists
the tokens of about a hundred services. Only facts are copied: a token's prefix, characters and length. Tokens without a
prefix are left out, because gitleaks recognises them by the words around them.
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
"""Minimum number of characters after the prefix: fewer may be a word."""
MAX_REPEAT = 400
"""Maximum repetition, so that a search stays linear."""
EXCLUDED_RULES = (
    "flutterwave-public-key",  # not a secret
    "jwt-base64",  # a token inside a text that is encoded twice
    "microsoft-teams-webhook",  # a URL, which cfglint recognises separately
)

_ALNUM = frozenset(map(ord, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
_WORD = _ALNUM | {ord("_")}

Part = tuple[frozenset[int], int, int]
"""Character codes, with the minimum and maximum number of repetitions."""


class UnsupportedPattern(Exception):
    """A pattern that is not a sequence of characters."""


def list_sequences(tree: Any, ignore_case: bool) -> list[list[Part]]:
    """Return the sequences that a parsed pattern matches, one per alternative; otherwise raise UnsupportedPattern."""
    prefixes: list[list[Part]] = [[]]
    for kind, value in tree:
        if kind is _constants.AT:
            continue
        if kind is _constants.LITERAL:
            suffixes = [[(add_cases({value}, ignore_case), 1, 1)]]
        elif kind is _constants.IN:
            suffixes = [[(add_cases(list_members(value), ignore_case), 1, 1)]]
        elif kind is _constants.SUBPATTERN:
            _, added, removed, inner = value
            suffixes = list_sequences(inner, bool(added & re.I) or (ignore_case and not removed & re.I))
        elif kind is _constants.BRANCH:
            suffixes = [sequence for branch in value[1] for sequence in list_sequences(branch, ignore_case)]
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            minimum, maximum, inner = value
            suffixes = []
            for sequence in list_sequences(inner, ignore_case):
                if len(sequence) == 1 and sequence[0][1:] == (1, 1):
                    suffixes.append([(sequence[0][0], minimum, min(int(maximum), MAX_REPEAT))])
                elif minimum == maximum:
                    suffixes.append(sequence * minimum)
                else:
                    raise UnsupportedPattern
        else:
            raise UnsupportedPattern
        prefixes = [prefix + sequence for prefix in prefixes for sequence in suffixes]
    return prefixes


def list_members(items: Any) -> set[int]:
    """Return the character codes of a class; raise UnsupportedPattern if the class contains anything else."""
    characters: set[int] = set()
    for kind, value in items:
        if kind is _constants.LITERAL:
            characters.add(value)
        elif kind is _constants.RANGE:
            characters.update(range(value[0], value[1] + 1))
        elif kind is _constants.CATEGORY and value is _constants.CATEGORY_WORD:
            characters |= _WORD
        elif kind is _constants.CATEGORY and value is _constants.CATEGORY_DIGIT:
            characters.update(map(ord, "0123456789"))
        else:
            raise UnsupportedPattern
    return characters


def add_cases(characters: set[int], ignore_case: bool) -> frozenset[int]:
    """Return the characters, in both cases if case is ignored."""
    if not ignore_case:
        return frozenset(characters)
    return frozenset(ord(character) for code in characters for character in (chr(code).lower(), chr(code).upper()))


def build_shape(parts: list[Part]) -> tuple[str, str] | None:
    """Return a token's prefix in lower case and its pattern, or None if the token is too short to be recognised."""
    prefix = ""
    index = 0
    while (
        index < len(parts)
        and parts[index][1:] == (1, 1)
        and (len(parts[index][0]) == 1 or len(set(list_lower(parts[index]))) == 1)
    ):
        prefix += list_lower(parts[index])[0]
        index += 1
    remaining = parts[index:]
    minimum = sum(part[1] for part in remaining if len(part[0]) > 1)
    if len(prefix) < MIN_PREFIX or minimum < MIN_RANDOM or prefix.isdigit():
        return None
    return prefix, "".join(map(format_pattern, merge_parts(parts)))


def list_lower(part: Part) -> list[str]:
    """Return the characters of a part in lower case, because prefixes are compared in lower case."""
    return sorted(chr(code).lower() for code in part[0])


def merge_parts(parts: list[Part]) -> list[Part]:
    """Return the parts; adjacent parts with the same characters are merged."""
    result: list[Part] = []
    for characters, minimum, maximum in parts:
        if result and result[-1][0] == characters:
            _, old_minimum, old_maximum = result.pop()
            minimum, maximum = minimum + old_minimum, maximum + old_maximum
        result.append((characters, minimum, maximum))
    return result


def format_pattern(part: Part) -> str:
    """Return a part as a regular expression."""
    characters, minimum, maximum = part
    quantifier = (
        "" if minimum == maximum == 1 else f"{{{minimum}}}" if minimum == maximum else f"{{{minimum},{maximum}}}"
    )
    if len(characters) == 1:
        return re.escape(chr(*characters)) + quantifier
    text = ""
    codes = sorted(characters)
    while codes:
        run = [code for at, code in enumerate(codes) if code == codes[0] + at]
        first, last = (f"\\{chr(code)}" if chr(code) in "\\]^-" else chr(code) for code in (run[0], run[-1]))
        text += first if len(run) == 1 else first + last if len(run) == 2 else f"{first}-{last}"
        codes = codes[len(run) :]
    return f"[{text}]{quantifier}"


def convert_go_pattern(text: str) -> str:
    """Convert a Go regular expression to Python, without the part that matches the end of a token."""
    text = re.sub(r"\(\?:\[\\x60'\"\\s;\]\|\\\\\[nr\]\|\$[^)]*\)$", "", text)
    text = re.sub(r"\(\?:\[\^[^\]]*\]\|\\z\)$", "", text)
    text = text.replace("[[:alnum:]]", "[a-zA-Z0-9]").replace(r"(?-i:acc)", "acc")
    while "(?i)" in text:
        before, _, after = text.partition("(?i)")
        depth, end = 0, len(after)
        for at, character in enumerate(after):
            depth += (character == "(") - (character == ")")
            if depth < 0:
                end = at
                break
        text = f"{before}(?i:{after[:end]}){after[end:]}"
    return text


def main() -> None:
    """Write the data file."""
    checkout = Path(sys.argv[1])
    command = ("git", "-C", str(checkout))
    rules = tomllib.loads(
        subprocess.run(
            (*command, "show", "HEAD:config/gitleaks.toml"), capture_output=True, text=True, check=True
        ).stdout
    )["rules"]
    commit = subprocess.run((*command, "rev-parse", "HEAD"), capture_output=True, text=True, check=True).stdout.strip()
    shapes: dict[str, set[str]] = {}
    for rule in rules:
        if "regex" not in rule or rule["id"] in EXCLUDED_RULES or "{0,50}?" in rule["regex"]:
            continue
        try:
            token_shapes = list(
                map(build_shape, list_sequences(_parser.parse(convert_go_pattern(rule["regex"])), False))
            )
        except (UnsupportedPattern, re.error):
            continue
        for prefix, token_pattern in filter(None, token_shapes):
            shapes.setdefault(prefix, set()).add(token_pattern)
    data = {
        "source": f"{SOURCE}/blob/{commit}/config/gitleaks.toml",
        "licence": "MIT",
        "shapes": {prefix: "|".join(sorted(patterns)) for prefix, patterns in sorted(shapes.items())},
    }
    TARGET.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
