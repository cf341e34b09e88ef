"""XFL003 unread-launcher-file: a launcher ignores a file that is passed to it.

## What it does
Reports `accelerate launch --deepspeed_config_file` without `--use_deepspeed`.

## Why is this bad?
accelerate uses its DeepSpeed launcher only with `--use_deepspeed`, or with a configuration file that selects DEEPSPEED.
Otherwise accelerate ignores the DeepSpeed file, and the run uses plain data parallelism. Every GPU then holds the whole
model and all of its states.

## Example
    accelerate launch --num_processes 8 --deepspeed_config_file ds.json train.py

## Use instead
    accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json train.py

## When it does not apply
Silent if the launch has `--config_file`, which may select DEEPSPEED, or options that cfglint cannot determine. Silent
if the script mentions `ACCELERATE_USE_DEEPSPEED`.

accelerate also reads a default configuration in the user's home directory, which may switch DeepSpeed on. cfglint
assumes that there is none.

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

RULE: Final = Rule("XFL003", "unread-launcher-file", "warning", inputs=("ignored_files",))

_DEFAULT_CONFIG: Final = "~/.cache/huggingface/accelerate/default_config.yaml"
"""File that `accelerate config` writes, and that `accelerate launch` reads if `--config_file` is not set."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every file that a launcher of the run ignores."""
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
                    f"`{_DEFAULT_CONFIG}` does not enable DeepSpeed (add `--config_file`)",
                ),
            ),
        )
