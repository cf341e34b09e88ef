"""SYN001 unreadable-file: the file cannot be read at all.

## What it does
Reports any file that is not valid UTF-8, and a file that you named if it cannot be opened.

## Why is this bad?
Nothing in the file was checked. The framework will fail at the same place or, worse, read different text.

## Example
A YAML file saved as Latin-1:

    output_dir: ./modèle        # 0xe8 is not UTF-8

## When it does not apply
When cfglint walks a folder, it reads only files whose name marks them as YAML, JSON, shell or Python.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("SYN001", "unreadable-file", "error", scope="file", reported_by_engine="file")
