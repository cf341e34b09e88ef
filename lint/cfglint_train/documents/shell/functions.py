"""Functions of a shell script that are never called."""

from __future__ import annotations

from cfglint_train.documents.shell.outline import Outline
from cfglint_train.documents.shell.words import Step
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

_NAME: Final = compile_on_use(rb"[^\s\"'`;|&()<>{}$=,]+")
# Command name that is composed or passed to the script, so that it may be the name of any function.
_COMPOSED_NAME: Final = compile_on_use(rb"\$\{?[0-9@*!]|[A-Za-z0-9_-]\$|\$\{\w+\}[A-Za-z0-9_-]|`|\$\(")
_VARIABLE: Final = compile_on_use(rb"\$\{?(\w+)")

# Commands that only set up the shell; a file with no others outside its functions is meant to be sourced.
_PREPARATIONS: Final = frozenset(
    b"set shopt export declare typeset readonly local source . cd echo printf trap ulimit umask module alias unset "
    b"return : [ true test ml".split()
)


def find_uncalled(outline: Outline) -> frozenset[Step]:
    """Return the functions that are never called in a script, as steps of a chain.

    A name counts as called if it occurs outside comments in code that runs. The result is empty if the file only
    defines functions, because other scripts may call them, or if the name of any command is composed at run time.
    """
    names: dict[bytes, list[SyntaxNode]] = {}
    for name, node, _ in outline.functions:
        names.setdefault(name.encode(), []).append(node)
    if not names or not _has_actions(outline):
        return frozenset()
    functions = [node for nodes in names.values() for node in nodes]
    pending = [outline.root]
    called: set[int] = set()
    while pending:
        text = _extract_text(outline, pending.pop(), functions)
        for name in set(_NAME.findall(text)) & names.keys():
            for node in names.pop(name):
                called.add(node.id)
                pending.append(node)
    uncalled_nodes = [node for node in functions if node.id not in called]
    if any(
        _can_name_any_function(outline, node)
        for node, chain, _ in outline.simple_commands
        if not _is_inside(chain, uncalled_nodes)
    ):
        return frozenset()
    return frozenset(("function", node.id) for node in uncalled_nodes)


def _has_actions(outline: Outline) -> bool:
    """Return whether a command outside all functions does more than set up the shell."""
    for node, chain, _ in outline.simple_commands:
        name = node.child_by_field_name("name")
        outside = not any(kind == "function" for kind, _ in chain)
        if name is not None and outside and outline.text[name.start_byte : name.end_byte] not in _PREPARATIONS:
            return True
    return False


def _extract_text(outline: Outline, node: SyntaxNode, functions: list[SyntaxNode]) -> bytes:
    """Return the text of a node without comments and nested functions.

    For the whole script, the text ends at a top-level `exit`.
    """
    until = outline.ends.get((), node.end_byte) if node.id == outline.root.id else node.end_byte
    text = bytearray(outline.text[node.start_byte : until])
    for inner in (*outline.comments, *(function for function in functions if function.id != node.id)):
        if node.start_byte <= inner.start_byte and inner.end_byte <= until:
            start, end = inner.start_byte - node.start_byte, inner.end_byte - node.start_byte
            text[start:end] = b" " * (end - start)
    return bytes(text)


def _can_name_any_function(outline: Outline, node: SyntaxNode) -> bool:
    """Return whether the name of a command is composed, so that it may be the name of any function."""
    name = node.child_by_field_name("name")
    text = b"" if name is None else outline.text[name.start_byte : name.end_byte]
    if b"/" in text or not (b"$" in text or b"`" in text):
        return False
    texts = [text]
    for variable in _VARIABLE.findall(text):
        for assignment in outline.assignments.get(variable.decode(), ()):
            if assignment.kind in ("array", "opaque"):
                texts.append(b"$@" if assignment.kind == "opaque" else b"")
            elif assignment.node is not None:
                texts.append(outline.text[assignment.node.start_byte : assignment.node.end_byte].split()[0:1][0])
    return any(_COMPOSED_NAME.search(assignment) for assignment in texts)


def _is_inside(chain: tuple[Step, ...], functions: list[SyntaxNode]) -> bool:
    function_steps = {("function", node.id) for node in functions}
    return any(step in function_steps for step in chain)
