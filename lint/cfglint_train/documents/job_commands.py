"""Job files in YAML: each document becomes a shell script, with each command at its line and column.

SkyPilot has commands in `run`, dstack in `commands`, a Kubernetes container in `command` and `args`, a compose service
in `entrypoint` and `command`. The script exports the variables that the file sets for these commands (`envs`, `env`,
`environment`) and the node and GPU counts that SkyPilot sets.

Sources: SkyPilot's task YAML (`run`, `envs`, SKYPILOT_NUM_NODES, SKYPILOT_NUM_GPUS_PER_NODE), dstack's task
(`commands`, `env`), Kubernetes' container (`command` and `args` are words that may contain `$(NAME)`, `env` has names
and values), compose's service.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from cfglint_train.documents.document import DocumentError, Mapping, Node, Scalar, Sequence
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_COMMANDS: Final = ("run", "commands")
"""Settings that hold commands: a string or a list of strings."""
_WORDS: Final = ("entrypoint", "command", "args")
"""Settings that hold the words of one command, in this order: a string or a list of strings."""
_VARIABLES: Final = ("envs", "env", "environment")
_NAME: Final = compile_on_use(r"[A-Za-z_]\w*")
_MARK: Final = compile_on_use(r"(?m)^---(?:[ \t].*)?$")
_TEMPLATE: Final = compile_on_use(r"\$\{\{[^}\n]*\}\}")
_REFERENCE: Final = compile_on_use(r"\$\((\w+)\)")
_CLUSTER: Final = {
    "SKYPILOT_NUM_GPUS_PER_NODE": compile_on_use(r"(?m)^[ \t]+accelerators:[^:\n]+:[ \t]*(\d+)"),
    "SKYPILOT_NUM_NODES": compile_on_use(r"(?m)^num_nodes:[ \t]*(\d+)"),
}


class CommandPiece(Frozen):
    """A line or a word of a command, at its place in the file."""

    line: int
    column: int
    text: str
    continues: bool = False
    """True if the piece continues the command of the previous piece."""


def extract_scripts(text: str) -> Iterator[str]:
    """Yield a script for each document of the file that has commands."""
    for part in _split_documents(text):
        try:
            document = YamlDocument("", part.encode())
        except DocumentError:
            continue
        pieces = [*_collect_pieces(document, document.root)]
        if pieces:
            variables = [*_find_cluster_counts(part), *_find_variables(document.root)]
            yield _lay_out(pieces, "; ".join(_format_exports(variables)))


def _split_documents(text: str) -> Iterator[str]:
    """Yield each document of a file, preceded by empty lines so that its line numbers do not change."""
    marks = [match.span() for match in _MARK.finditer(text)]
    for (_, start), (end, _) in zip([(0, 0), *marks], [*marks, (len(text), 0)]):
        yield "\n" * text.count("\n", 0, start) + text[start:end]


def _lay_out(pieces: Iterable[CommandPiece], head: str) -> str:
    """Return a script with each piece at its line and column, and `head` on the first line."""
    lines, last = {1: head}, 1
    for piece in sorted(pieces, key=lambda item: (item.line, item.column)):
        if piece.continues:
            for number in range(last, piece.line):
                lines[number] = f"{lines.get(number, '')} \\"
        elif lines.get(piece.line):
            lines[piece.line] += " ;"
        line_before = lines.get(piece.line, "")
        lines[piece.line] = (
            f"{line_before} ".ljust(piece.column) + piece.text if line_before else " " * piece.column + piece.text
        )
        last = piece.line
    return "\n".join(lines.get(number, "") for number in range(1, last + 1))


def _collect_pieces(document: YamlDocument, node: Node | None) -> Iterator[CommandPiece]:
    """Yield the pieces of the commands below a node."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _collect_pieces(document, item)
    if not isinstance(node, Mapping):
        return
    values = {entry.name: entry.value for entry in node.entries}
    for name, value in values.items():
        if name in _COMMANDS:
            for scalar in _list_scalars(value):
                yield from _split_lines(document, scalar)
        elif name not in (*_WORDS, *_VARIABLES):
            yield from _collect_pieces(document, value)
    words = [scalar for name in _WORDS if name in values for scalar in _list_scalars(values[name])]
    previous_texts = ["", *(word.text for word in words)]
    scripts = [word for word, scalar in zip(words, previous_texts) if _is_script(word.text, scalar, len(words) == 1)]
    for scalar in scripts:
        yield from _split_lines(document, scalar)
    for number, word in enumerate(() if scripts else words):
        position = document.locate(word.span.start)
        yield CommandPiece(position.line, position.column - 1, _quote_word(word), number > 0)


def _is_script(text: str, previous: str, is_only_word: bool) -> bool:
    """Return whether a word is a script: an argument of `bash -c`, several lines, or the only word."""
    return (
        "\n" in text
        or re.fullmatch(r"-\w*c", previous) is not None
        or (is_only_word and re.search(r"\s", text) is not None)
    )


def _split_lines(document: YamlDocument, scalar: Scalar) -> Iterator[CommandPiece]:
    """Yield the lines of a scalar that holds commands."""
    position, block = document.locate(scalar.span.start), scalar.style in ("|", ">")
    for line, text in enumerate(scalar.text.split("\n"), position.line + block):
        yield CommandPiece(line, 0 if block else position.column - 1, _TEMPLATE.sub("$9", text))


def _quote_word(scalar: Scalar) -> str:
    text = _REFERENCE.sub(r"${\1}", _TEMPLATE.sub("$9", scalar.text))
    return f'"{text}"' if "$" in text else shlex.quote(text)


def _list_scalars(node: Node) -> list[Scalar]:
    return [item for item in (node.items if isinstance(node, Sequence) else [node]) if isinstance(item, Scalar)]


def _find_cluster_counts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the environment variables with node and GPU counts that SkyPilot sets for the commands of a file."""
    for name, pattern in _CLUSTER.items():
        yield from ((name, count) for count in pattern.findall(text))


def _find_variables(node: Node | None) -> Iterator[tuple[str, str]]:
    """Yield the variables that are set for commands: `NAME: value`, `- NAME=value`, `- {name: NAME, value: value}`."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _find_variables(item)
    for entry in node.entries if isinstance(node, Mapping) else ():
        if entry.name not in _VARIABLES:
            yield from _find_variables(entry.value)
            continue
        for item in entry.value.items if isinstance(entry.value, Sequence) else (entry.value,):
            if isinstance(item, Mapping):
                fields = {
                    field.name or "": field.value.text for field in item.entries if isinstance(field.value, Scalar)
                }
                yield from [(fields["name"], fields.get("value", ""))] if "name" in fields else fields.items()
            elif isinstance(item, Scalar):
                name, _, value = item.text.partition("=")
                yield name, value


def _format_exports(variables: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield `export` commands for the variables that have exactly one value."""
    values: dict[str, set[str]] = {}
    for name, value in variables:
        values.setdefault(name, set()).add(value)
    for name, (value, *others) in values.items():
        if value and not others and "\n" not in value and _NAME.fullmatch(name):
            yield f"export {name}={shlex.quote(value)}"
