"""Functions of a script that run the command that they are given: `run() { echo "$*"; shift; srun "$@"; }`.

A call of one is the command that it runs: the words in front of `"$@"` in the function, then the words of the call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from cfglint_train.documents.document import Span
from cfglint_train.documents.shell.commands import Command, Script
from cfglint_train.documents.shell.programs import partition
from cfglint_train.documents.shell.words import Step, Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

_GIVEN: Final = re.compile(r"\$(?:[@*]|\{[@*](?::([1-9][0-9]*))?\})")
"""`"$@"` and `"${@:2}"`, from the second argument on."""
_DEEPEST: Final = 5
"""Functions that run each other by what they are given."""
_PROGRAM: Final = Word("train.py", Span(0, 0), None)


class _Runner(Frozen):
    """The command of a function that runs what the function is given."""

    command: Command
    given: int
    """Which of its words is `"$@"`."""
    skips: int
    """Arguments of the function in front of the command that it runs."""


def unwrapped(script: Script) -> Iterator[Command]:
    """The commands of a script; for a call of such a function the command that it runs, instead of that in the
    function.
    """
    commands = list(script.commands())
    if not script.functions:
        yield from commands
        return
    runners: dict[str, _Runner] = {}
    words: Counter[str] = Counter()
    for _ in range(_DEEPEST):
        runners = {**_runners(script, commands), **runners}
        calls = {id(one): runner for one in commands if (runner := _called(one, runners)) is not None}
        if not calls:
            break
        words = words or Counter(word.text for one in commands for word in one.words)
        used = {id(runner.command) for runner in calls.values()}
        once = {id(runner.command) for name, runner in runners.items() if words[name] == 1}
        commands = [
            one if runner is None else _run(one, runner, id(runner.command) in once)
            for one in commands
            if (runner := calls.get(id(one))) is not None or id(one) not in used
        ]
    yield from commands


def _runners(script: Script, commands: Sequence[Command]) -> dict[str, _Runner]:
    """The functions that are defined once, and run what they are given in one place."""
    times = Counter(name for name, _, _ in script.functions)
    bodies: dict[Step, list[Command]] = {}
    for one in commands:
        for step in one.chain:
            bodies.setdefault(step, []).append(one)
    found = {}
    for name, node, around in script.functions:
        if times[name] > 1:
            continue
        step = ("function", node.id)
        body = bodies.get(step, [])
        running = [runner for one in body if (runner := _runner(one, body, len(around) + 1)) is not None]
        if len(running) == 1 and _innermost(running[0].command) == step:
            found[name] = running[0]
    return found


def _innermost(command: Command) -> Step | None:
    """The function that a command is in."""
    return next((step for step in reversed(command.chain) if step[0] == "function"), None)


def _runner(command: Command, body: Sequence[Command], depth: int) -> _Runner | None:
    """A command as one that runs the function's arguments; None where it does something else with them.

    `depth`: how many steps of a chain are around all of the function.
    """
    for number, word in enumerate(command.words):
        match = _GIVEN.fullmatch(word.text) if word.spreads else None
        if match is None:
            continue
        shifted = _shifted(command, body, depth)
        parts = partition((*command.words[:number], _PROGRAM))
        if shifted is None or (number,) not in (parts[-1].head, parts[-1].script):
            return None
        return _Runner(command, number, shifted + int(match[1] or 1) - 1)
    return None


def _shifted(command: Command, body: Sequence[Command], depth: int) -> int | None:
    """How many arguments a function has dropped in front of a command; None where that depends on a condition."""
    count = 0
    for one in body:
        name = one.words[0].text if one.words else ""
        if one.at >= command.at or name not in ("shift", "set"):
            continue
        by = one.words[1].text if len(one.words) > 1 else "1"
        if name == "set":
            if "--" in [word.text for word in one.words]:
                return None
        elif any(kind != "and" for kind, _ in one.chain[depth:]) or not by.isdigit():
            return None
        else:
            count += int(by)
    return count


def _called(command: Command, runners: dict[str, _Runner]) -> _Runner | None:
    """The function that a command calls, where it is given a command to run."""
    runner = runners.get(command.words[0].text) if command.words and command.words[0].known else None
    if runner is None or len(command.words) < runner.skips + 2:
        return None
    return None if any(word.loose or word.optional for word in command.words[: runner.skips + 1]) else runner


def _run(call: Command, runner: _Runner, once: bool) -> Command:
    """The command that a call runs. What the function has is not written into where other calls use it, too."""
    inner, first = runner.command, runner.skips + 1
    own = inner.words if once else tuple(word._replace(target=None) for word in inner.words)
    before, behind = own[: runner.given], own[runner.given + 1 :]
    forwards = call.forwards
    if forwards is not None:
        forwards = max(0, forwards - first) + len(before)
    return call._replace(
        words=(*before, *call.words[first:], *behind), prefix=(*inner.prefix, *call.prefix), forwards=forwards
    )
