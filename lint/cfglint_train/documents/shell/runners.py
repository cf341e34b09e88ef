"""Runner functions, which run the command in their arguments: `run() { echo "$*"; shift; srun "$@"; }`.

A call of a runner is replaced with the command that it runs: the words before `"$@"` in the function, the words of the
call, and the words after `"$@"`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.commands import Command, Script
from cfglint_train.documents.shell.programs import partition
from cfglint_train.documents.shell.words import Step, Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_ARGUMENTS: Final = compile_on_use(r"\$(?:[@*]|\{[@*](?::([1-9][0-9]*))?\})")
"""Pattern of `"$@"`, or of `"${@:2}"` for the arguments from the second on."""
_MAX_NESTED_RUNNERS: Final = 5
"""Maximum depth of runner functions that call each other."""
_PROGRAM: Final = Word("train.py", Span(0, 0), None)


class _RunnerCommand(Frozen):
    """A command of a function that runs the function's arguments."""

    command: Command
    arguments_index: int
    """Index of `"$@"` among its words."""
    skips: int
    """Number of the function's leading arguments that are not part of the command."""


def unwrap_commands(script: Script) -> Iterator[Command]:
    """Yield the commands of a script, with runner functions unwrapped.

    A call of a runner yields the command that it runs; the command inside the runner is left out.
    """
    commands = list(script.list_commands())
    if not script.functions:
        yield from commands
        return
    runners: dict[str, _RunnerCommand] = {}
    words: Counter[str] = Counter()
    for _ in range(_MAX_NESTED_RUNNERS):
        runners = {**_find_runners(script, commands), **runners}
        calls = {id(command): runner for command in commands if (runner := _find_runner(command, runners)) is not None}
        if not calls:
            break
        words = words or Counter(word.text for command in commands for word in command.words)
        used = {id(runner.command) for runner in calls.values()}
        called_once = {id(runner.command) for name, runner in runners.items() if words[name] == 1}
        commands = [
            command if runner is None else _expand_call(command, runner, id(runner.command) in called_once)
            for command in commands
            if (runner := calls.get(id(command))) is not None or id(command) not in used
        ]
    yield from commands


def _find_runners(script: Script, commands: Sequence[Command]) -> dict[str, _RunnerCommand]:
    """Return the functions that are defined once and run their arguments in exactly one place."""
    definitions = Counter(name for name, _, _ in script.functions)
    bodies: dict[Step, list[Command]] = {}
    for command in commands:
        for step in command.chain:
            bodies.setdefault(step, []).append(command)
    runners = {}
    for name, node, outer_chain in script.functions:
        if definitions[name] > 1:
            continue
        step = ("function", node.id)
        body = bodies.get(step, [])
        running = [
            runner for command in body if (runner := _parse_runner(command, body, len(outer_chain) + 1)) is not None
        ]
        if len(running) == 1 and _find_function(running[0].command) == step:
            runners[name] = running[0]
    return runners


def _find_function(command: Command) -> Step | None:
    """Return the innermost function around a command."""
    return next((step for step in reversed(command.chain) if step[0] == "function"), None)


def _parse_runner(command: Command, body: Sequence[Command], depth: int) -> _RunnerCommand | None:
    """Return a command as a runner command, or None if it does not run the function's arguments.

    `depth` is the number of steps in a chain that enclose the whole function body.
    """
    for number, word in enumerate(command.words):
        match = _ARGUMENTS.fullmatch(word.text) if word.spreads else None
        if match is None:
            continue
        shifts = _count_shifts(command, body, depth)
        parts = partition((*command.words[:number], _PROGRAM))
        if shifts is None or (number,) not in (parts[-1].head, parts[-1].script):
            return None
        return _RunnerCommand(command, number, shifts + int(match[1] or 1) - 1)
    return None


def _count_shifts(command: Command, body: Sequence[Command], depth: int) -> int | None:
    """Return how many arguments a function drops before a command, or None if the number is unknown."""
    count = 0
    for previous in body:
        name = previous.words[0].text if previous.words else ""
        if previous.at >= command.at or name not in ("shift", "set"):
            continue
        amount = previous.words[1].text if len(previous.words) > 1 else "1"
        if name == "set":
            if "--" in [word.text for word in previous.words]:
                return None
        elif any(kind != "and" for kind, _ in previous.chain[depth:]) or not amount.isdigit():
            return None
        else:
            count += int(amount)
    return count


def _find_runner(command: Command, runners: dict[str, _RunnerCommand]) -> _RunnerCommand | None:
    """Return the runner that a command calls with a command to run, or None."""
    runner = runners.get(command.words[0].text) if command.words and command.words[0].is_known else None
    if runner is None or len(command.words) < runner.skips + 2:
        return None
    return None if any(word.loose or word.is_optional for word in command.words[: runner.skips + 1]) else runner


def _expand_call(call: Command, runner: _RunnerCommand, called_once: bool) -> Command:
    """Return the command that a call of a runner runs.

    The words of a function with several calls have no target, because an edit would affect the other calls.
    """
    inner, first = runner.command, runner.skips + 1
    words = inner.words if called_once else tuple(word._replace(target=None) for word in inner.words)
    leading, trailing = words[: runner.arguments_index], words[runner.arguments_index + 1 :]
    forwards = call.forwards
    if forwards is not None:
        forwards = max(0, forwards - first) + len(leading)
    return call._replace(
        words=(*leading, *call.words[first:], *trailing), prefix=(*inner.prefix, *call.prefix), forwards=forwards
    )
