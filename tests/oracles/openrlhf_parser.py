"""Run the argument parsers of one OpenRLHF release: one command line per line in, a verdict per line out.

    python tests/oracles/openrlhf_parser.py FOLDER < command_lines.jsonl
    {"entry": "train_sft", "words": ["--pretrain", "gpt2"]}
    {"accepted": true, "values": {"pretrain": "gpt2", ...}, "why": null}

FOLDER holds the release's `openrlhf` package. Only those statements of an entry point run that build its parser: its
main block up to `parse_args`. Names that they borrow from elsewhere are empty objects. Neither OpenRLHF's modules nor
their imports are loaded.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import io
import json
import math
import os
import sys
from pathlib import Path
from typing import Any


class _Anything:
    def __getattr__(self, _: str) -> _Anything:
        return self

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self


class _Names(dict[str, Any]):
    """Globals in which every unknown name is an empty object."""

    def __missing__(self, name: str) -> Any:
        builtins = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
        return builtins[name] if name in builtins else _Anything()


def build_parser(text: str) -> argparse.ArgumentParser | None:
    """Return the parser that a script builds in its main block, or None if it has none or cannot build it."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test):
            return _run_statements(statement.body)
    return None


def _run_statements(statements: list[ast.stmt]) -> argparse.ArgumentParser | None:
    builders: list[ast.stmt] = []
    for statement in statements:
        if "parse_args" in ast.dump(statement):
            break
        builders.append(statement)
    names = _Names(argparse=argparse, datetime=datetime.datetime, os=os, math=math)
    try:
        exec(compile(ast.Module(builders, []), "parser", "exec"), names)
    except argparse.ArgumentError:
        return None  # the program fails at its start with any arguments
    parser = names.get("parser")
    return parser if isinstance(parser, argparse.ArgumentParser) else None


def main() -> None:
    folder = Path(sys.argv[1])
    parsers: dict[str, argparse.ArgumentParser | None] = {}
    for line in sys.stdin:
        command = json.loads(line)
        entry = command["entry"]
        if entry not in parsers:
            path = next(iter(sorted(folder.rglob(f"{entry}.py"), key=lambda path: "cli" not in path.parts)), None)
            parsers[entry] = None if path is None else build_parser(path.read_text(encoding="utf-8"))
        parser = parsers[entry]
        if parser is None:
            print(json.dumps({"accepted": None, "values": {}, "why": "it has no parser"}), flush=True)
            continue
        complaint = io.StringIO()
        try:
            with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
                values = vars(parser.parse_args(command["words"]))
        except SystemExit:
            why = complaint.getvalue().strip().rpartition("error: ")[2]
            print(json.dumps({"accepted": False, "values": {}, "why": why}), flush=True)
        else:
            print(json.dumps({"accepted": True, "values": values, "why": None}, default=str), flush=True)


if __name__ == "__main__":
    main()
