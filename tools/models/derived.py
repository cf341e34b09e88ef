"""The command line of data files that are derived from built models."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import transformers


def run_command(module: str, description: str | None, path: Path, build_text: Callable[[], str]) -> int:
    """Rewrite the file or, with `--check`, report whether it would change; return the exit status."""
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
