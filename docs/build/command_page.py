"""Command line reference: the output of `--help-all`, command by command."""

from __future__ import annotations

from markdown_text import format_code_block
from run import run_cfglint

from cfglint_train.front import cli


def build_pages() -> dict[str, str]:
    """Return the page by its path below docs/."""
    parts = [
        "# Command line\n",
        "`cfglint` without a command checks: `cfglint configs/` is `cfglint check configs/`.\n",
    ]
    for name in cli.COMMANDS:
        command = cli.load_command(name)
        usage = (command.__doc__ or "").partition(": ")[2].strip()
        parts += [
            f"## cfglint {name}\n",
            f"{usage[:1].upper()}{usage[1:]}\n",
            format_code_block(run_cfglint(name, "--help-all")),
        ]
    return {"command-line.md": "\n".join(parts)}
