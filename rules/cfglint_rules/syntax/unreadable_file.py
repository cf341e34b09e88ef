"""SYN001 unreadable-file: the file cannot be read at all.

## What it does
Reports a file that was named but cannot be opened, or whose bytes are not UTF-8.

## Why is this bad?
Nothing in it was checked. The framework will fail in the same place, or worse, read something else.

## Example
A YAML file saved as Latin-1:

    output_dir: ./modèle        # 0xe8 is not UTF-8

## When it does not apply
Files found while walking a folder are only read where their name says YAML, JSON, shell or Python.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("SYN001", "unreadable-file", "error", scope="file", reported_by_engine="file")
