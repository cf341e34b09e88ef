"""Draw docs/images/finding.svg, the picture of the README: python docs/build/finding.py.

It shows the output of cfglint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from run import REPOSITORY, copy_to_repository, run_cfglint

TARGET = REPOSITORY / "docs" / "images" / "finding.svg"
_CASE = REPOSITORY / "fixtures" / "cases" / "5-axolotl-3b"
_COMMANDS = (
    ("--select", "KEY,MEM001", "llama-3b.yaml"),
    ("--diff", "--select", "KEY,MEM001", "llama-3b.yaml"),
)
_SEQUENCE = re.compile(r"\x1b\[([\d;]*)m")
_COLOURS = {"31": "#f47067", "33": "#d8a657", "34": "#6cb6ff", "35": "#dcbdfb", "36": "#76e3ea", "32": "#8ddb8c"}
_DIFF_COLOURS = {"+": _COLOURS["32"], "-": _COLOURS["31"], "@": _COLOURS["36"]}
_SIZE, _WIDTH, _LINE, _EDGE = 13, 7.83, 18, 14
"""Font size, character width, line height and margin, in pixels."""


def draw_svg() -> str:
    """Return the picture: a terminal with the commands and their output."""
    lines = list(_yield_lines())
    longest = max(len(_SEQUENCE.sub("", line)) for line in lines)
    width, height = round(longest * _WIDTH + 2 * _EDGE), len(lines) * _LINE + 2 * _EDGE
    rows = (
        f'<text x="{_EDGE}" y="{_EDGE + _SIZE + number * _LINE}">{_format_spans(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'aria-label="cfglint reports a misspelt key and a run that does not fit, and shows the fixes of both">',
        f"<style>text{{font:{_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d1d7e0;"
        "white-space:pre}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1c2128"/>',
        *rows,
        "</svg>\n",
    ))  # fmt: skip


def _yield_lines() -> Iterator[str]:
    with copy_to_repository(_CASE) as folder:
        for number, words in enumerate(_COMMANDS):
            if number:
                yield ""
            yield f"\x1b[1m$ cfglint {' '.join(words)}\x1b[0m"
            yield from run_cfglint("--color", "always", *words, folder=folder).rstrip().split("\n")


def _format_spans(line: str) -> str:
    """Return a line as SVG text: terminal colours, and diff lines in the colours of editors."""
    if line[:1] in _DIFF_COLOURS:
        return f'<tspan fill="{_DIFF_COLOURS[line[0]]}">{escape(line)}</tspan>'
    first, *rest = _SEQUENCE.split(line)
    spans = [escape(first)]
    for codes, text in zip(rest[::2], rest[1::2], strict=True):
        style = "".join(f' fill="{_COLOURS[code]}"' for code in codes.split(";") if code in _COLOURS)
        style += ' font-weight="bold"' if "1" in codes.split(";") else ""
        spans.append(f"<tspan{style}>{escape(text)}</tspan>" if style else escape(text))
    return "".join(spans)


if __name__ == "__main__":
    TARGET.write_text(draw_svg(), encoding="utf-8")
