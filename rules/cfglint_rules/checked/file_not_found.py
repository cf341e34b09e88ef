"""CHK004 file-not-found: a script trains with a file that is not in the repository, so the run is not checked.

## What it does
Reports a script that starts a framework with a configuration that is neither at the stated path nor anywhere else in
the repository. The file may be on another machine, ignored by git, or misspelled. Each file is reported once.

It also reports `torchrun`, `accelerate launch` or `deepspeed` if they start a training program with a YAML file and
neither the program nor the file exists.

It is a warning if the launch must fail: a training program, a settings file, or the file of `--config` or
`--config_file` is nowhere in the repository, although its folder has files of the same kind. A name without a folder is
judged only if a file of a similar name exists. A module (`python -m verl.trainer.main_pppo`) is judged if its package
is in the repository, has an `__init__.py`, and does not extend its path.

## Why is this bad?
Nothing is known about the run. The repository passes only because the configuration was not read. A warning names a
file that was renamed, moved or never committed, so the launch fails at once.

## Example
    llamafactory-cli train /data/configs/qwen_sft.yaml

## Use instead
    llamafactory-cli train configs/qwen_sft.yaml

## When it does not apply
An info affects the exit code only with `require-checked = true`. It stays an info if a script, program or notebook of
the repository may create or fetch the file, if git ignores it, or if the command runs in another folder or on another
machine. These are not reported:

- the repository's own scripts (`python src/train.py`)
- commands that do not train
- paths that cannot be determined (`$CONFIG`: CHK005)
- files that the script also names elsewhere, because it may create them
- files whose name exists anywhere in the repository

## References
docs/shell-scripts.md.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("CHK004", "file-not-found", "info", scope="file", reported_by_engine="absent", unchecked="run")
