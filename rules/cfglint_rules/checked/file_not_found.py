"""CHK004 file-not-found: a script trains with a file that is not there, so that the run is not checked.

## What it does
Reports, once per file, a script that starts a framework with a configuration which is neither where the script says nor
anywhere in the repository: one on another machine, one that is ignored by git, or a slip in its name. It also reports
where `torchrun`, `accelerate launch` or `deepspeed` starts a training program with a YAML file, and neither is there.

## Why is this bad?
Nothing is known of the run: the repository is green because its configuration was not read.

## Example
    llamafactory-cli train /data/configs/qwen_sft.yaml

## Use instead
    llamafactory-cli train configs/qwen_sft.yaml

## When it does not apply
It never fails a run by itself; `require-checked = true` makes it count. It is silent on scripts that are a
repository's own (`python src/train.py`), on commands that do not train, on paths that cannot be determined (`$CONFIG`:
CHK005), on files that the script names elsewhere, too, as it may make them, and where any file of the repository has
the name.

## References
docs/shell-scripts.md.
"""

from __future__ import annotations

from cfglint_rules.rule import Rule
from cfglint_train.foundation.typed import Final

RULE: Final = Rule("CHK004", "file-not-found", "info", scope="file", reported_by_engine="absent", unchecked="run")
