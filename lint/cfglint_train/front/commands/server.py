"""`cfglint server`: the language server for editors, on standard input and output."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

from cfglint_train.foundation.errors import UsageError
from cfglint_train.front.commands.outcome import CLEAN
from cfglint_train.front.commands.parser import Parser


def server(argv: list[str]) -> int:
    """Run the server until the editor disconnects, and return the exit code."""
    about = "Run the language server for editors on standard input and output."
    parser = Parser(prog="cfglint server", description=about)
    parser.add_argument("--stdio", action="store_true", help="ignored: the only channel, which some editors name")
    parser.parse_args(argv)
    try:
        from cfglint_train.editor.server import build_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cfglint"):
            raise
        raise UsageError(f"the language server needs {error.name}: pip install 'cfglint-train[editor]'") from None
    # Text that something prints by mistake must not end up between the messages.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as channel, redirect_stdout(sys.stderr):
        build_server().start_io(sys.stdin.buffer, channel)
    return CLEAN
