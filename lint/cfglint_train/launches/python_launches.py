"""Commands that a Python program starts (`subprocess.run(["torchrun", "train.py"])`), as a script.

Commands keep their line numbers in the program. Values that are not constant become unset variables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.documents.python.syntax import get_callee_name, map_imports, parse_tree, resolve_dotted_name
from cfglint_train.documents.python.words import NameValues, ProgramWord
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_MODULES: Final = ("subprocess", "os")
_STARTS: Final = compile_on_use(
    r"run|call|check_call|check_output|Popen|getoutput|getstatusoutput|system|popen|execv[pe]*"
)
_LISTS: Final = compile_on_use(r"execl[pe]*")
"""Functions that take each word of the command as a separate argument, after the program."""
_REPLACES: Final = compile_on_use(r"exec[vlpe]+")
"""Functions that take the program, then its words, starting with its name."""
MAX_CALLS: Final = 100
"""Maximum number of calls to examine of one function that receives a command as a parameter."""
_MAX_DEPTH: Final = 2
"""Maximum number of nested functions through which a command passed as a parameter is followed."""


def extract_commands(text: str, name: str = "") -> str:
    """Return the commands that a Python program starts, or an empty string if it starts none or does not parse.

    `name`: the file name of the program, which `__file__` stands for.
    """
    try:
        return _render_script(
            sorted(_list_commands(parse_tree(text), name), key=lambda words: (words[0].line, words[0].column))
        )
    except RecursionError:
        return ""


def _list_commands(tree: ast.Module, name: str) -> Iterator[list[ProgramWord]]:
    """Yield the words of each command."""
    names = map_imports(ast.walk(tree))
    calls = {call: _get_command_arguments(call, names) for call in ast.walk(tree) if isinstance(call, ast.Call)}
    command_arguments = [arguments for arguments in calls.values() if arguments]
    values = NameValues(tree if command_arguments else ast.Module([], []), name)
    other_calls: dict[str, list[ast.Call]] = {}
    for call, arguments in calls.items():
        if not arguments:
            other_calls.setdefault(get_callee_name(call), []).append(call)
    for arguments in command_arguments:
        yield from _follow_command(arguments, other_calls, values, _MAX_DEPTH)


def _follow_command(
    arguments: list[ast.expr], other_calls: dict[str, list[ast.Call]], values: NameValues, depth: int
) -> Iterator[list[ProgramWord]]:
    """Yield the words of a command, or those that each caller passes if the command is a function's parameter."""
    parameter_match = values.find_parameter(arguments[0]) if len(arguments) == 1 and depth else None
    if parameter_match is None:
        words = [word for item in arguments for word in _read_words(item, len(arguments) == 1, values)]
        if words:
            yield words
        return
    name, place, parameter = parameter_match
    for call in other_calls.get(name, ())[:MAX_CALLS]:
        passed_arguments = [item.value for item in call.keywords if item.arg == parameter] or call.args[
            place : place + 1
        ]
        if passed_arguments:
            yield from _follow_command(passed_arguments, other_calls, values, depth - 1)


def _read_words(node: ast.expr, alone: bool, values: NameValues) -> list[ProgramWord]:
    if alone and not values.is_list(node):
        return [ProgramWord(values.build_text(node), node.lineno, node.col_offset)]
    return values.list_words(node)


def _get_command_arguments(call: ast.Call, names: dict[str, str]) -> list[ast.expr]:
    """Return the arguments of a call that form a command, or nothing if the call starts none."""
    owner, _, name = resolve_dotted_name(call.func, names).rpartition(".")
    if owner not in _MODULES:
        return []
    if _LISTS.fullmatch(name):
        return call.args[1:]
    if not _STARTS.fullmatch(name):
        return []
    by_name = [keyword.value for keyword in call.keywords if keyword.arg in ("args", "cmd")]
    return (by_name or call.args[1 if _REPLACES.fullmatch(name) else 0 :])[:1]


def _render_script(commands: list[list[ProgramWord]]) -> str:
    """Return a script with each word at its line and column; multi-line commands are continued with backslashes.

    If a line already has a command, the next command follows it after a semicolon.
    """
    lines = [""]
    for words in commands:
        first = True
        for word in words:
            if word.line > len(lines):
                lines[-1] += "" if first or not lines[-1] else " \\"
                gap = word.line - len(lines)
                lines += ["" if first else "\\"] * (gap - 1) + [""]
            elif lines[-1]:
                lines[-1] += "; " if first else " "
            lines[-1] = lines[-1].ljust(word.column)
            before, *after = word.text.split("\n")
            lines[-1] += before
            lines += after
            first = False
    return "\n".join(lines) + "\n" if commands else ""
