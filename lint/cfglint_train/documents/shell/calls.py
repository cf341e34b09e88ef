"""Calls of shell functions: `train() { torchrun train.py "$@"; }`, then `train --lr 1`.

A function that uses its arguments is read once for each call, with the words of the call as `$1`, `$2` and `"$@"`. Its
commands replace the call, and those of the definition are left out unless a call cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cfglint_train.documents.document import DocumentError, Span
from cfglint_train.documents.shell.commands import Command, Script, join_pieces
from cfglint_train.documents.shell.outline import Assignment
from cfglint_train.documents.shell.programs import PRINTERS
from cfglint_train.documents.shell.words import Fragment, Step
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node as SyntaxNode

MAX_CALLS: Final = 100
"""Maximum number of calls in a script that are read."""
_MAX_COMMANDS: Final = 2_000
"""Maximum number of commands that the calls of a script run."""
_MAX_NESTED: Final = 5
"""Maximum depth of functions that call each other."""
_ARGUMENT: Final = compile_on_use(rb"\$(?:[@*1-9]|\{[@*1-9])")
_IDLE: Final = (*PRINTERS, "tee", "date", "exit", "return", "shift", "true", ":")
"""Commands whose words start no program."""


class _Function(Frozen):
    script: Script
    body: SyntaxNode
    step: Step
    prints: bool
    """True if the function only prints its arguments."""


def expand_calls(script: Script) -> Iterator[Command]:
    """Yield the commands of a script, with each call replaced with the commands that it runs."""
    commands = list(script.list_commands())
    functions = _find_functions(script)
    if not functions:
        yield from commands
        return
    calls, runs = _Calls(functions), dict[int, list[Command]]()
    definitions = {function.step for function in functions.values()}
    hidden, before = definitions, set[Step]()
    while hidden != before:
        for command in commands:
            if id(command) not in runs and hidden.isdisjoint(command.chain):
                runs[id(command)] = calls.expand(command, tuple(step for step in command.chain if step in definitions))
        hidden, before = calls.expanded - calls.unread, hidden
    for command in commands:
        if hidden.isdisjoint(command.chain):
            yield from runs[id(command)]


def _find_functions(script: Script) -> dict[str, _Function]:
    """Return the functions that are defined once and use arguments or variables of their calls, by name."""
    count = Counter(name for name, _, _ in script.functions)
    prefixed = {_get_name(script, node) for node, _, _ in script.simple_commands if _has_prefix(node)}
    functions = {}
    for name, node, _ in script.functions:
        body, step = node.child_by_field_name("body"), ("function", node.id)
        if body is None or count[name] > 1 or step in script.uncalled_functions:
            continue
        if name in prefixed or _ARGUMENT.search(script.text, body.start_byte, body.end_byte):
            names = (_get_name(script, command) for command, chain, _ in script.simple_commands if step in chain)
            functions[name] = _Function(script, body, step, all(inner in _IDLE for inner in names))
    return functions


def _get_name(script: Script, command: SyntaxNode) -> str:
    name = command.child_by_field_name("name")
    return "" if name is None else script.text[name.start_byte : name.end_byte].decode("utf-8", "replace")


def _has_prefix(command: SyntaxNode) -> bool:
    return bool(command.children) and command.children[0].type == "variable_assignment"


class _Calls:
    """The calls of a script's functions."""

    def __init__(self, functions: dict[str, _Function]) -> None:
        """Store the functions by name."""
        self.expanded: set[Step] = set()
        """Functions of which a call was read."""
        self.unread: set[Step] = set()
        """Functions of which a call was not read."""
        self._functions = functions
        self._count = 0
        self._commands = 0

    def expand(self, command: Command, around: tuple[Step, ...] = ()) -> list[Command]:
        """Return the commands that a command runs if it calls a function, else the command itself."""
        name = command.words[0] if command.words else None
        function = None if name is None or not name.is_known else self._functions.get(name.text)
        if function is None or function.step in around:
            return [command]
        if function.prints:
            return []
        is_within = len(around) < _MAX_NESTED and self._count < MAX_CALLS and self._commands < _MAX_COMMANDS
        self._count += 1
        body = _read_body(function, command) if is_within else None
        inner = [] if body is None else list(body.list_commands())
        if body is None or body.loses_arguments:
            self.unread.add(function.step)
            return [command]
        self.expanded.add(function.step)
        self._commands += len(inner)
        inner = [item._replace(prefix=(*item.prefix, *command.prefix)) if command.prefix else item for item in inner]
        return [run for item in inner for run in self.expand(item, (*around, function.step))]


def _read_body(function: _Function, call: Command) -> Script | None:
    """Return the body of a function as the script that a call runs, or None if it is too long."""
    pieces = tuple(function.script.read_literal(function.body.start_byte, function.body.end_byte))
    text = join_pieces(pieces)
    budget = function.script.budget
    budget.bytes -= 4 * len(text)
    if budget.bytes < 0:
        return None
    try:
        body = Script(
            text, budget, pieces, (call.script, call.at, call.chain), call.script.depth, sourced=True, call=call
        )
    except DocumentError:
        return None
    for setting in call.prefix:
        assignment = Assignment("opaque" if setting.text is None else "string", 0, 0, ())
        site = setting.span or Span(call.words[0].span.start, call.words[0].span.start)
        assignment.value = ((Fragment((setting.text or "").encode(), (site,), exact=False),),)
        body.assignments.setdefault(setting.name, []).insert(0, assignment)
    # What other functions set is as uncertain in the body as outside.
    for name, owners in function.script.owners.items():
        body.owners.setdefault(name, set()).update(owner for owner in owners if function.step not in owner)
    return body
