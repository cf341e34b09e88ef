"""Plain text as Markdown that shows it unchanged, with links for the names in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_CODE = re.compile(r"(`[^`]*`)")
_LANGUAGES = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".py": "python", ".sh": "bash", ".toml": "toml", ".diff": "diff",
    ".console": "console",
}  # fmt: skip

Link = Callable[[str], str]


def format_prose(text: str, link: Link) -> str:
    """Format paragraphs and indented code; `link` marks up the words outside code."""
    lines = []
    for line in text.split("\n"):
        if line.startswith("    ") or not line:
            lines.append(line)
            continue
        parts = _CODE.split(line)
        lines.append("".join(part if part.startswith("`") else link(part.replace("<", "&lt;")) for part in parts))
    return "\n".join(_yield_with_gaps(lines))


def _yield_with_gaps(lines: list[str]) -> Iterator[str]:
    """Yield the lines with an empty line around indented code, which Markdown requires."""
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if before and line and before.startswith("    ") != line.startswith("    "):
            yield ""
        yield line


def format_code_block(text: str, name: str = "", title: str = "") -> str:
    """Return a code block in the language of a file's name or suffix (`.yaml`)."""
    dot = name.rfind(".")
    language = _LANGUAGES.get(name[dot:] if dot >= 0 else "", "text")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
    head = f'{fence}{language} title="{title}"' if title else f"{fence}{language}"
    return f"{head}\n{text.rstrip()}\n{fence}\n"


def format_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; bars inside cells are escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
