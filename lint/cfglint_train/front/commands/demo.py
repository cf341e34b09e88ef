"""`cfglint demo [FOLDER]`: five broken training configs to try cfglint on."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from cfglint_train.foundation.typed import Final
from cfglint_train.front.commands.outcome import CLEAN, FINDINGS, TROUBLE
from cfglint_train.front.commands.output import print_lines, sanitize
from cfglint_train.front.commands.parser import Parser

_INTRODUCTION: Final = """\
Wrote five training configs to {folder}, each with a mistake that broke or slowed a real run:
  1-olmo-64-nodes       the first checkpoint exceeds the memory of the host
  2-llamafactory-236b   the optimizer step exceeds the memory of the GPU
  3-openrlhf-16b        the micro batch is too large for the actor's GPUs
  4-olmo-syncs          every step waits for its metrics
  5-axolotl-3b          the sequence length is misspelled and ignored"""

_TOUR: Final = (
    ("Find what is wrong", ("check", "--output-format", "concise", "{folder}")),
    ("See what --fix would change", ("check", "--diff", "{folder}")),
    ("Estimate the memory of a run", ("estimate", "{folder}/2-llamafactory-236b/zero3.yaml")),
    ("Find the smallest change that fits", ("fit", "{folder}/5-axolotl-3b/llama-3b.yaml")),
)
"""Title and command of each step."""

_NEXT: Final = """\

== Try it on your own files
cfglint .               lint all training configs below this folder
cfglint --diff .        show the fixes; `cfglint --fix .` writes them
cfglint estimate FILE   estimate the memory of a run
cfglint fit FILE        find the smallest change that makes a run fit
cfglint init            add cfglint to a repository: settings, pre-commit hook, workflow"""


def demo(argv: list[str]) -> int:
    """Write five broken configs, lint them, show fixes, estimate one run and fit another; return the exit code."""
    parser = Parser(
        prog="cfglint demo",
        description="Write five broken training configs into a new folder, then lint them, show the fixes,\n"
        "estimate one run and fit another. Exit codes: 0 done, 2 the folder cannot be created.",
    )
    parser.add_argument(
        "folder", nargs="?", default="cfglint-demo", metavar="FOLDER", help="a new folder (default: cfglint-demo)"
    )
    folder: str = parser.parse_args(argv).folder
    _write_cases(folder)
    print_lines([_INTRODUCTION.format(folder=sanitize(folder))])
    from contextlib import redirect_stderr

    from cfglint_train.front import cli

    for title, (name, *arguments) in _TOUR:
        words = [argument.format(folder=folder) for argument in arguments]
        typed = ("cfglint", *(() if name == "check" else (name,)), *words)
        print_lines(["", f"== {title}", f"$ {sanitize(shlex.join(typed))}"])
        with redirect_stderr(sys.stdout):  # remarks are part of the tour
            code = cli.load_command(name)(words)
        if code not in (CLEAN, FINDINGS):
            return TROUBLE
    print_lines([_NEXT])
    return CLEAN


def _write_cases(folder: str) -> None:
    """Copy the configs into a new folder. Raise UsageError if it exists, OSError if it cannot be written."""
    from cfglint_train.foundation.errors import UsageError

    try:
        os.mkdir(folder)
    except FileExistsError:
        raise UsageError(f"{folder} already exists; name a new folder: cfglint demo FOLDER") from None
    try:
        # `fixed` and `expected.txt` are for tests and exist only in a checkout.
        ignored = shutil.ignore_patterns("fixed", "expected.txt", "__pycache__")
        shutil.copytree(_find_cases(), folder, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _find_cases() -> str:
    """Return the folder of the configs: in the package, or in the checkout of an editable installation."""
    front = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(front, "cases")
    if os.path.isdir(installed):
        return installed
    return os.path.join(os.path.dirname(front), "..", "..", "fixtures", "cases")
