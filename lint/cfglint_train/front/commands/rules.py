"""`cfglint rule CODE` and `cfglint rules`: the documentation of the rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.frameworks.registry import naming
from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.output import put
from cfglint_train.front.commands.parser import Parser, add_output_format

if TYPE_CHECKING:
    from cfglint_rules.rule import Rule
    from cfglint_train.reports.style import Style


def rule(argv: list[str]) -> int:
    """`cfglint rule CODE...`: the documentation of rules."""
    parser = Parser(prog="cfglint rule")
    parser.add_argument(
        "code", nargs="+", help="codes or names of rules, or a family (MEM); or words, to find the rules about them"
    )
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    options = parser.parse_args(argv)
    words = [word for text in options.code for word in text.split(",") if word]
    from cfglint_rules import registry
    from cfglint_train.foundation.errors import UsageError

    found = [one for word in words if (one := registry.find(word)) is not None]
    if len(found) == len(words):
        from cfglint_train.front.terminal import style_of

        style = style_of(sys.stdout, options.color)
        for number, one in enumerate({one.code: one for one in found}.values()):
            put([""] * 2 if number else [])
            put(_laid_out(registry.module(one).__doc__.strip(), style))
        return CLEAN
    codes = {code for word in words for code in registry.meant(word)}
    named = [one for one in registry.RULES.values() if one.code in codes] if all(map(registry.meant, words)) else []
    if not named and not " ".join(words).isupper():
        named = registry.about(" ".join(words))
    if not named:
        known = found or " ".join(words).isupper()
        wrong = next(word for word in words if not registry.meant(word)) if known else " ".join(words)
        raise UsageError(registry.unknown(wrong))
    put(map(_line, named))
    return CLEAN


def _laid_out(text: str, style: Style) -> Iterator[str]:
    """A rule's documentation: paragraphs as wide as the terminal, title and headings bold, examples in a colour."""
    from itertools import groupby
    from textwrap import wrap

    def kind(line: str) -> str:
        return "heading" if line.startswith("#") else "code" if line.startswith("    ") else "text" if line else ""

    title, _, rest = text.partition("\n")
    yield style.paint(title, "1")
    for what, group in groupby(rest.split("\n"), kind):
        lines = list(group)
        if what == "text" and style.width is not None:
            for item in _items(lines):
                indent = "  " if item.startswith(("- ", "* ")) else ""
                yield from wrap(
                    item, style.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
                )
            continue
        color = {"heading": "1", "code": "36"}.get(what)
        yield from (style.paint(line, color) if color is not None else line for line in lines)


def _items(lines: list[str]) -> Iterator[str]:
    """Paragraphs, and items of lists, each in one piece. Rows of a table stay apart."""
    piece = ""
    for line in lines:
        if piece and (line.startswith(("- ", "* ", "|")) or piece.startswith("|")):
            yield piece
            piece = ""
        piece = f"{piece} {line.strip()}" if piece else line
    yield piece


def rules(argv: list[str]) -> int:
    """`cfglint rules`: one line per rule."""
    parser = Parser(prog="cfglint rules")
    add_output_format(parser, ("text", "json"))
    output = parser.parse_args(argv).output_format
    from cfglint_rules import registry

    if output == "json":
        from json import dumps

        put([dumps([_described(one, registry.module(one).__doc__) for one in registry.RULES.values()], indent=2)])
        return CLEAN
    for one in registry.RULES.values():
        put([_line(one)])
    return CLEAN


def _line(rule: Rule) -> str:
    fixable = f"fix: {rule.fix}" if rule.fix is not None else ""
    return f"{rule.code}  {rule.name:<34} {rule.severity:<8} {fixable}".rstrip()


def _described(rule: Rule, documentation: str) -> dict[str, object]:
    """One rule as the JSON listing shows it; `frameworks` is null where it applies to all of them."""
    documentation = documentation.strip()
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": documentation.partition("\n")[0].partition(": ")[2].rstrip("."),
        "severity": rule.severity,
        "frameworks": sorted(naming(rule.code)) if rule.particular else None,
        "fix": rule.fix,
        "since": rule.since,
        "documentation": documentation,
    }
