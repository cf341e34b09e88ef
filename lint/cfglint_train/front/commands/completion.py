"""`cfglint completion SHELL`: completion of commands, flags and codes in a shell."""

from __future__ import annotations

import os

from cfglint_train.front import cli
from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.output import print_lines
from cfglint_train.front.commands.parser import Parser


def completion(argv: list[str]) -> int:
    """Print the completion script of a shell and return the exit code."""
    from cfglint_train.front import completion as shells

    parser = Parser(prog="cfglint completion", description='For example: eval "$(cfglint completion bash)"')
    parser.add_argument("shell", choices=shells.SHELLS)
    shell = parser.parse_args(argv).shell
    from cfglint_rules import registry

    codes = [*registry.RULES, *dict.fromkeys(code[:3] for code in registry.RULES)]
    names = ["check", *sorted(name for name in cli.COMMANDS if name != "check")]
    print_lines(shells.render_script(shell, [shells.parse_command(name, capture_help(name), codes) for name in names]))
    return CLEAN


def capture_help(name: str) -> str:
    """Return the output of a command's `--help-all`, with each description on one line."""
    from contextlib import redirect_stdout, suppress
    from io import StringIO

    output = StringIO()
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "400"
    try:
        with redirect_stdout(output), suppress(SystemExit):
            cli.load_command(name)(["--help-all"])
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width
    return output.getvalue()
