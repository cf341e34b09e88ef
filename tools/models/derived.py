"""The command line of the tools that derive data files from built models."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import transformers


def run_command(module: str, description: str | None, path: Path, build_text: Callable[[], str]) -> int:
    """Write the file, or with `--check` only report whether it is stale; return 1 if it is, else 0."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    content = build_text()
    stale = not path.exists() or path.read_text(encoding="utf-8") != content
    if stale and not arguments.check:
        path.write_text(content, encoding="utf-8", newline="\n")
    print(f"{path.name}: {'stale' if stale and arguments.check else 'written' if stale else 'unchanged'}")
    return 1 if stale and arguments.check else 0
