"""SYN001 unreadable-file: the file cannot be read at all.

## What it does
Reports files that cannot be opened, and files with a framework's own keys that are not valid UTF-8.

## Why is this bad?
Nothing in the file was checked. The framework will fail at the same place or, worse, read different text.

## Example
A YAML file saved as Latin-1:

    output_dir: ./modèle        # 0xe8 is not UTF-8

## When it does not apply
When cfglint walks a folder, it reads only files whose name marks them as YAML, JSON, shell, Python, a notebook, a
Makefile or a justfile, and shell scripts without an extension.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("SYN001", "unreadable-file", "error", scope="file", reported_by_engine="file")
