"""Mutated files: changes to bytes, lines and values of real files, by a seed."""

from __future__ import annotations

import random
import re
from pathlib import Path

SYNTAXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "shell", ".py": "python"}
TOKENS = [
    b"null", b"~", b"true", b"NO", b"1e5", b"0o17", b"1:30", b".inf", b".nan", b"1_000", b"2024-01-01", b'"a"', b"'b'",
    b"[]", b"{}", b"[1, 2]", b"{a: 1}", b"[{a: 1}]", b"{1: 2}", b"[[a], null, 1]",
    b"&a 1", b"*a", b"&a [*a]", b"<<: *a", b"!!str 1", b"!!timestamp x", b"!foo 1",
    b"|\n  x", b">-\n  x", b"# c", b"---", b"...", b"%YAML 1.1", b"\t", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\x00",
    b"\xff", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"{{ x }}", b"${x}", b"${oc.env:X}",
    b'"', b"'", b": ", b",", b"- ", b"? a", b"[", b"]", b"{", b"}", b"\\", b"$(", b")", b"`", b"<<EOF", b"EOF", b";",
    b"&&", b"0", b"-1", b"99999999999999999999999", b"-0.0", b"1e400", b"auto", b"bf16", b"# cfglint: ignore[MEM001]",
    b"# cfglint: gpu=H100 nodes=2", b"\n", b"  ", b"//", b"/*", b"*/", b"10**9", b"lambda: 0", b"*args", b"9" * 320,
]  # fmt: skip
_VALUE = re.compile(rb"^(\s*(?:- )?[^\s#:][^:#\n]*:[ \t]+)([^\n#]*?)([ \t]*(?:#.*)?)$")


def list_seed_files(*folders: Path, largest: int = 7000) -> list[Path]:
    """Return the files to mutate."""
    paths = (path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in SYNTAXES)
    return [path for path in paths if path.is_file() and path.stat().st_size < largest]


def mutate(source: bytes, draw: random.Random, byte_probability: float = 0.4, other: bytes = b"") -> bytes:
    """Return one mutant of bytes with probability `byte_probability`, else of lines, some of them from `other`."""
    return _mutate_bytes(source, draw) if draw.random() < byte_probability else _mutate_lines(source, draw, other)


def _mutate_bytes(source: bytes, draw: random.Random) -> bytes:
    text = bytearray(source)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at = draw.randrange(len(text) + 1)
        kind = draw.random()
        if kind < 0.2 and at < len(text):
            text[at] = draw.randrange(256)
        elif kind < 0.4:
            del text[at : at + draw.choice((1, 2, 5, 20))]
        elif kind < 0.8:
            text[at:at] = draw.choice(TOKENS)
        elif kind < 0.95:
            other = draw.randrange(len(text) + 1)
            text[at:at] = text[other : other + draw.randrange(1, 60)]
        else:
            del text[at:]
    return bytes(text)


def _mutate_lines(source: bytes, draw: random.Random, other: bytes) -> bytes:
    lines = source.split(b"\n")
    others = other.split(b"\n") if other else lines
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        at = draw.randrange(len(lines))
        kind = draw.random()
        if kind < 0.15 and len(lines) > 1:
            del lines[at]
        elif kind < 0.4:
            lines.insert(at, draw.choice(others))
        elif kind < 0.5:
            lines[at] = b" " * draw.randrange(1, 5) + lines[at]
        else:
            value = _VALUE.match(lines[at])
            token = draw.choice(TOKENS)
            lines[at] = lines[at] + b" " + token if value is None else value[1] + token + value[3]
    return b"\n".join(lines)
