"""The commands of jobs that YAML describes, each document of a file as a script: each command at its own place.

SkyPilot has them in `run`, dstack in `commands`, a container of Kubernetes in `command` and `args`, a service of
compose in `entrypoint` and `command`. What a file sets for them (`envs`, `env`, `environment`) are variables of the
script, and so are the counts that SkyPilot sets.

Sources: SkyPilot's task YAML (`run`, `envs`, SKYPILOT_NUM_NODES, SKYPILOT_NUM_GPUS_PER_NODE), dstack's task
(`commands`, `env`), Kubernetes' container (`command` and `args` are words with `$(NAME)` in them, `env` has names and
values), compose's service.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from cfglint_train.documents.document import DocumentError, Mapping, Node, Scalar, Sequence
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_COMMANDS: Final = ("run", "commands")
"""Settings with commands: one text, or a list of them."""
_WORDS: Final = ("entrypoint", "command", "args")
"""Settings with the words of one command, which follow each other: one text, or a list."""
_VARIABLES: Final = ("envs", "env", "environment")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_MARK: Final = re.compile(r"(?m)^---(?:[ \t].*)?$")
_TEMPLATE: Final = re.compile(r"\$\{\{[^}\n]*\}\}")
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")
_CLUSTER: Final = {
    "SKYPILOT_NUM_GPUS_PER_NODE": re.compile(r"(?m)^[ \t]+accelerators:[^:\n]+:[ \t]*(\d+)"),
    "SKYPILOT_NUM_NODES": re.compile(r"(?m)^num_nodes:[ \t]*(\d+)"),
}


class Piece(Frozen):
    """A line of a command, or a word of it."""

    line: int
    column: int
    text: str
    continues: bool = False
    """It is a further word of the command in front of it."""


def scripts(text: str) -> Iterator[str]:
    """The commands of each document of a file that has some."""
    for part in _documents(text):
        try:
            document = YamlDocument("", part.encode())
        except DocumentError:
            continue
        pieces = [*_pieces(document, document.root)]
        if pieces:
            variables = [*_of_the_cluster(part), *_assigned(document.root)]
            yield _placed(pieces, "; ".join(_agreed(variables)))


def _documents(text: str) -> Iterator[str]:
    """Each document of a file, with empty lines in place of those before it."""
    marks = [one.span() for one in _MARK.finditer(text)]
    for (_, start), (end, _) in zip([(0, 0), *marks], [*marks, (len(text), 0)]):
        yield "\n" * text.count("\n", 0, start) + text[start:end]


def _placed(pieces: Iterable[Piece], head: str) -> str:
    """A script with each piece in its place, behind a head on its first line."""
    lines, last = {1: head}, 1
    for piece in sorted(pieces, key=lambda one: (one.line, one.column)):
        if piece.continues:
            for number in range(last, piece.line):
                lines[number] = f"{lines.get(number, '')} \\"
        elif lines.get(piece.line):
            lines[piece.line] += " ;"
        before = lines.get(piece.line, "")
        lines[piece.line] = f"{before} ".ljust(piece.column) + piece.text if before else " " * piece.column + piece.text
        last = piece.line
    return "\n".join(lines.get(number, "") for number in range(1, last + 1))


def _pieces(document: YamlDocument, node: Node | None) -> Iterator[Piece]:
    """The commands below a node."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _pieces(document, item)
    if not isinstance(node, Mapping):
        return
    values = {entry.name: entry.value for entry in node.entries}
    for name, value in values.items():
        if name in _COMMANDS:
            for one in _scalars(value):
                yield from _lines(document, one)
        elif name not in (*_WORDS, *_VARIABLES):
            yield from _pieces(document, value)
    words = [one for name in _WORDS if name in values for one in _scalars(values[name])]
    before = ["", *(word.text for word in words)]
    whole = [word for word, one in zip(words, before) if _is_script(word.text, one, len(words) == 1)]
    for one in whole:
        yield from _lines(document, one)
    for number, word in enumerate(() if whole else words):
        place = document.position(word.span.start)
        yield Piece(place.line, place.column - 1, _word(word), number > 0)


def _is_script(text: str, before: str, alone: bool) -> bool:
    """Whether a word is a script: what `bash -c` is given, several lines, or all that there is."""
    return "\n" in text or re.fullmatch(r"-\w*c", before) is not None or (alone and re.search(r"\s", text) is not None)


def _lines(document: YamlDocument, scalar: Scalar) -> Iterator[Piece]:
    """The lines of a text with commands."""
    place, block = document.position(scalar.span.start), scalar.style in ("|", ">")
    for line, text in enumerate(scalar.text.split("\n"), place.line + block):
        yield Piece(line, 0 if block else place.column - 1, _TEMPLATE.sub("$9", text))


def _word(scalar: Scalar) -> str:
    text = _REFERENCE.sub(r"${\1}", _TEMPLATE.sub("$9", scalar.text))
    return f'"{text}"' if "$" in text else shlex.quote(text)


def _scalars(node: Node) -> list[Scalar]:
    return [one for one in (node.items if isinstance(node, Sequence) else [node]) if isinstance(one, Scalar)]


def _of_the_cluster(text: str) -> Iterator[tuple[str, str]]:
    """What the commands of a file of SkyPilot find in their environment."""
    for name, pattern in _CLUSTER.items():
        yield from ((name, count) for count in pattern.findall(text))


def _assigned(node: Node | None) -> Iterator[tuple[str, str]]:
    """The variables that are set for commands: `NAME: value`, `- NAME=value`, `- {name: NAME, value: value}`."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _assigned(item)
    for entry in node.entries if isinstance(node, Mapping) else ():
        if entry.name not in _VARIABLES:
            yield from _assigned(entry.value)
            continue
        for item in entry.value.items if isinstance(entry.value, Sequence) else (entry.value,):
            if isinstance(item, Mapping):
                found = {one.name or "": one.value.text for one in item.entries if isinstance(one.value, Scalar)}
                yield from [(found["name"], found.get("value", ""))] if "name" in found else found.items()
            elif isinstance(item, Scalar):
                name, _, value = item.text.partition("=")
                yield name, value


def _agreed(variables: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The assignments of variables that have one value."""
    values: dict[str, set[str]] = {}
    for name, value in variables:
        values.setdefault(name, set()).add(value)
    for name, (value, *others) in values.items():
        if value and not others and "\n" not in value and _NAME.fullmatch(name):
            yield f"export {name}={shlex.quote(value)}"
