"""The command line: arguments in, exit code out. No other module reads argv.

Exit codes: 0 clean, 1 findings, 2 wrong usage or unreadable input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from cfglint_train.foundation import filesystem
from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import Final
from cfglint_train.front.commands.options import FLAGS
from cfglint_train.front.commands.outcome import FINDINGS, INTERRUPTED, TROUBLE
from cfglint_train.front.commands.output import sanitize

Command = Callable[[list[str]], int]

# Command -> its module below `cfglint_train.front`, which has a function with the command's name.
COMMANDS: Final = {
    "calibrate": "commands.calibrate",
    "check": "commands.check",
    "completion": "commands.completion",
    "demo": "commands.demo",
    "diff": "commands.diff",
    "estimate": "commands.estimate",
    "fit": "commands.fit",
    "init": "commands.init",
    "migrate": "migrate.command",
    "preflight": "commands.preflight",
    "rule": "commands.rules",
    "rules": "commands.rules",
    "models": "commands.models",
    "schema": "commands.schema",
    "server": "commands.server",
}


_OTHER_TOOLS: Final = {
    "lint": "check",
    "fix": "cfglint --fix",
    "format": "cfglint --fix",
    "explain": "rule",
    "list": "rules",
}
"""Commands of other tools -> the equivalent in cfglint."""


def load_command(name: str) -> Command:
    """Return the function of a command, which takes arguments and returns an exit code.

    The function raises UsageError and OSError.
    """
    function: Command = getattr(import_module(f"cfglint_train.front.{COMMANDS[name]}"), name)
    return function


def _guess_command(word: str) -> str:
    """Return the command that a word probably stands for, or an empty string."""
    from difflib import get_close_matches

    exact = [name for name in (*COMMANDS, *_OTHER_TOOLS) if name == word or sorted(name) == sorted(word)]
    match = next(iter(exact or get_close_matches(word, (*COMMANDS, *_OTHER_TOOLS), 1, 0.75)), "")
    return _OTHER_TOOLS.get(match, match)


def _find_misplaced_command(arguments: list[str]) -> str | None:
    """Return the command that follows the options, or None if there is none or a file has the command's name."""
    indexes = range(1, len(arguments))
    matches = (index for index in indexes if arguments[index] in COMMANDS and not filesystem.exists(arguments[index]))
    index = next(matches, None)
    if index is None or not arguments[0].startswith("-"):
        return None
    from cfglint_train.front.commands.check_flags import build_check_parser

    paths = build_check_parser().parse_args(arguments).paths
    return arguments[index] if paths[:1] == [arguments[index]] else None


def main(argv: list[str] | None = None) -> int:
    """Run cfglint and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else ""
    try:
        if first.isalpha() and first not in COMMANDS and not filesystem.exists(first):
            if first in ("help", "version"):
                del arguments[0]
                arguments.insert(1, f"--{first}")
                first = arguments[0]
            if first.isalpha() and first not in COMMANDS and (suggestion := _guess_command(first.lower())):
                print(f"cfglint: unknown command {first}; did you mean {suggestion}?", file=sys.stderr)
                return TROUBLE
        name = first if first in COMMANDS else _find_misplaced_command(arguments)
        if name is None:
            return _run_command(load_command("check"), arguments)
        arguments.remove(name)
        return _run_command(load_command(name), arguments)
    except BrokenPipeError:
        # The reader of the pipe has exited (head, less).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDINGS
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_command(command: Command, argv: list[str]) -> int:
    from cfglint_train.api import OptionError, SettingsError, UsageError

    frame: tuple[str, ...] = ()
    try:
        code = command(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except OptionError as error:
        message = f"{FLAGS[error.option]} {error.value}: {error.problem}"
    except SettingsError as error:
        message, frame = str(error), error.frame
    except UsageError as error:
        message = str(error)
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else ""
        message = f"{name}: {error.strerror}" if name else str(error.strerror or error)
    print(f"cfglint: {sanitize(message)}", *map(sanitize, frame), sep="\n", file=sys.stderr)
    return TROUBLE
