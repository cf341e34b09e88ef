"""XFL003 unread-launcher-file: a launcher is given a file that it does not read.

## What it does
Reports `accelerate launch --deepspeed_config_file` without `--use_deepspeed`.

## Why is this bad?
accelerate chooses its DeepSpeed launcher by `--use_deepspeed`, or by a configuration file that says DEEPSPEED. Without
either, the file is ignored and the run is plain data parallelism: every GPU holds the whole model and all its states.

## Example
    accelerate launch --num_processes 8 --deepspeed_config_file ds.json train.py

## Use instead
    accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json train.py

## When it does not apply
Silent for launches with `--config_file`, which may state DEEPSPEED, or with options that come from elsewhere.
accelerate also takes a default configuration from the user's home directory, which may switch DeepSpeed on; that there
is none is an assumption.

## References
accelerate 1.15.0 `commands/launch.py` (launch_command, _validate_launch_command).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.certainty import Ground
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL003", "unread-launcher-file", "warning")

_DEFAULT_CONFIG: Final = "~/.cache/huggingface/accelerate/default_config.yaml"
"""File that `accelerate config` writes and `accelerate launch` reads without `--config_file`."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every place."""
    for unread in run.inputs.ignored_files:
        yield Report(
            f"`{unread.option}` is ignored without `{unread.switch}`: the run uses none of the settings in "
            f"`{unread.text}`",
            unread.place,
            help=f"add `{unread.switch}`",
            grounds=(
                Ground(
                    "launch:default",
                    _DEFAULT_CONFIG,
                    "assumed",
                    f"`{_DEFAULT_CONFIG}` does not switch it on (add `--config_file`)",
                ),
            ),
        )
