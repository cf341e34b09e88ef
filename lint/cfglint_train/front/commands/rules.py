"""`cfglint rule CODE` and `cfglint rules`: the documentation of the rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.frameworks.registry import find_frameworks_of_rule
from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.output import print_lines
from cfglint_train.front.commands.parser import Parser, add_output_format

if TYPE_CHECKING:
    from cfglint_rules.rule import Rule
    from cfglint_train.reports.style import Style


def rule(argv: list[str]) -> int:
    """Print the documentation of rules and return the exit code."""
    parser = Parser(prog="cfglint rule")
    parser.add_argument("code", nargs="+", help="codes or names of rules, a family (MEM), or words to search for")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default: only on a terminal"
    )
    options = parser.parse_args(argv)
    words = [word for text in options.code for word in text.split(",") if word]
    from cfglint_rules import registry
    from cfglint_train.foundation.errors import UsageError

    matches = [match for word in words if (match := registry.find_rule(word)) is not None]
    if len(matches) == len(words):
        from cfglint_train.front.terminal import detect_style

        style = detect_style(sys.stdout, options.color)
        for number, match in enumerate({match.code: match for match in matches}.values()):
            print_lines([""] * 2 if number else [])
            print_lines(_render_documentation(registry.load_module(match).__doc__.strip(), style))
        return CLEAN
    codes = {code for word in words for code in registry.match_selector(word)}
    matching_rules = (
        [match for match in registry.RULES.values() if match.code in codes]
        if all(map(registry.match_selector, words))
        else []
    )
    if not matching_rules and not " ".join(words).isupper():
        matching_rules = registry.search_rules(" ".join(words))
    if not matching_rules:
        is_code = matches or " ".join(words).isupper()
        unknown_word = next(word for word in words if not registry.match_selector(word)) if is_code else " ".join(words)
        raise UsageError(registry.describe_unknown(unknown_word))
    print_lines(map(_format_line, matching_rules))
    return CLEAN


def _render_documentation(text: str, style: Style) -> Iterator[str]:
    """Yield a rule's documentation, wrapped at the width of the terminal, with bold headings and colored examples."""
    from itertools import groupby
    from textwrap import wrap

    def classify(line: str) -> str:
        return "heading" if line.startswith("#") else "code" if line.startswith("    ") else "text" if line else ""

    title, _, rest = text.partition("\n")
    yield style.paint(title, "1")
    for line_kind, group in groupby(rest.split("\n"), classify):
        lines = list(group)
        if line_kind == "text" and style.width is not None:
            for item in _join_items(lines):
                indent = "  " if item.startswith(("- ", "* ")) else ""
                yield from wrap(
                    item, style.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
                )
            continue
        color = {"heading": "1", "code": "36"}.get(line_kind)
        yield from (style.paint(line, color) if color is not None else line for line in lines)


def _join_items(lines: list[str]) -> Iterator[str]:
    """Yield each paragraph and list item as one line. Rows of a table stay separate."""
    piece = ""
    for line in lines:
        if piece and (line.startswith(("- ", "* ", "|")) or piece.startswith("|")):
            yield piece
            piece = ""
        piece = f"{piece} {line.strip()}" if piece else line
    yield piece


def rules(argv: list[str]) -> int:
    """Print one line per rule and return the exit code."""
    parser = Parser(prog="cfglint rules")
    add_output_format(parser, ("text", "json"))
    output = parser.parse_args(argv).output_format
    from cfglint_rules import registry

    if output == "json":
        from json import dumps

        print_lines(
            [
                dumps(
                    [_describe_rule(item, registry.load_module(item).__doc__) for item in registry.RULES.values()],
                    indent=2,
                )
            ]
        )
        return CLEAN
    for item in registry.RULES.values():
        print_lines([_format_line(item)])
    return CLEAN


def _format_line(rule: Rule) -> str:
    fixable = f"fix: {rule.fix}" if rule.fix is not None else ""
    return f"{rule.code}  {rule.name:<34} {rule.severity:<8} {fixable}".rstrip()


def _describe_rule(rule: Rule, documentation: str) -> dict[str, object]:
    """Return a rule's JSON object; `frameworks` is null if the rule applies to all frameworks."""
    documentation = documentation.strip()
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": documentation.partition("\n")[0].partition(": ")[2].rstrip("."),
        "severity": rule.severity,
        "frameworks": sorted(find_frameworks_of_rule(rule.code)) if rule.particular else None,
        "fix": rule.fix,
        "since": rule.since,
        "documentation": documentation,
    }
