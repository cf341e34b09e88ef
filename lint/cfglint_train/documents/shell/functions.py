"""Which functions of a script are called."""

from __future__ import annotations

import re

from cfglint_train.documents.shell.outline import Outline
from cfglint_train.documents.shell.words import Step
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

_NAME: Final = re.compile(rb"[^\s\"'`;|&()<>{}$=,]+")
# A command whose name is put together, or handed to the script: any function may be meant.
_ANY: Final = re.compile(rb"\$\{?[0-9@*!]|[A-Za-z0-9_-]\$|\$\{\w+\}[A-Za-z0-9_-]|`|\$\(")
_VARIABLE: Final = re.compile(rb"\$\{?(\w+)")

# What a file does that only prepares the script that sources it.
_PREPARES: Final = frozenset(
    b"set shopt export declare typeset readonly local source . cd echo printf trap ulimit umask module alias unset "
    b"return : [ true test ml".split()
)


def uncalled(outline: Outline) -> frozenset[Step]:
    """The functions that nothing in a script calls, as steps of a chain.

    A name that occurs outside of comments, in code that runs, counts as a call. A file that does nothing but define
    functions is there for others, who may call them all.
    """
    names: dict[bytes, list[SyntaxNode]] = {}
    for name, node, _ in outline.functions:
        names.setdefault(name.encode(), []).append(node)
    if not names or not _acts(outline):
        return frozenset()
    functions = [node for nodes in names.values() for node in nodes]
    waiting = [outline.root]
    called: set[int] = set()
    while waiting:
        text = _own_text(outline, waiting.pop(), functions)
        for name in set(_NAME.findall(text)) & names.keys():
            for node in names.pop(name):
                called.add(node.id)
                waiting.append(node)
    dead = [node for node in functions if node.id not in called]
    if any(_is_open(outline, node) for node, chain, _ in outline.simple if not _inside(chain, dead)):
        return frozenset()
    return frozenset(("function", node.id) for node in dead)


def _acts(outline: Outline) -> bool:
    """Whether a command outside of all functions does more than prepare."""
    for node, chain, _ in outline.simple:
        name = node.child_by_field_name("name")
        outside = not any(kind == "function" for kind, _ in chain)
        if name is not None and outside and outline.text[name.start_byte : name.end_byte] not in _PREPARES:
            return True
    return False


def _own_text(outline: Outline, node: SyntaxNode, functions: list[SyntaxNode]) -> bytes:
    """The text of a node without comments, the functions that are defined in it, and what follows an `exit`."""
    until = outline.ends.get((), node.end_byte) if node.id == outline.root.id else node.end_byte
    text = bytearray(outline.text[node.start_byte : until])
    for inner in (*outline.comments, *(one for one in functions if one.id != node.id)):
        if node.start_byte <= inner.start_byte and inner.end_byte <= until:
            start, end = inner.start_byte - node.start_byte, inner.end_byte - node.start_byte
            text[start:end] = b" " * (end - start)
    return bytes(text)


def _is_open(outline: Outline, node: SyntaxNode) -> bool:
    """Whether the name of a command may be that of any function."""
    name = node.child_by_field_name("name")
    text = b"" if name is None else outline.text[name.start_byte : name.end_byte]
    if b"/" in text or not (b"$" in text or b"`" in text):
        return False
    made = [text]
    for variable in _VARIABLE.findall(text):
        for one in outline.assignments.get(variable.decode(), ()):
            if one.kind in ("array", "opaque"):
                made.append(b"$@" if one.kind == "opaque" else b"")
            elif one.node is not None:
                made.append(outline.text[one.node.start_byte : one.node.end_byte].split()[0:1][0])
    return any(_ANY.search(one) for one in made)


def _inside(chain: tuple[Step, ...], functions: list[SyntaxNode]) -> bool:
    dead = {("function", node.id) for node in functions}
    return any(step in dead for step in chain)
