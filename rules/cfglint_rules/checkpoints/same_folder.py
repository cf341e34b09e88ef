"""CKP007 same-folder: a script starts several runs that write to the same folder.

## What it does
Reports a run if an earlier launch of the same script writes to the same output folder. There are three cases: the same
file with other settings, another file with the same output folder, or a loop that does not change the folder.

## Why is this bad?
Only the last run's weights remain, and the checkpoints of all runs are mixed in one folder. If a run looks for the
newest checkpoint, it finds the previous run's last one, continues from there and trains nothing. A sweep then compares
a model with itself.

## Example
    for lr in 1e-5 2e-5 5e-5; do
      axolotl train run.yaml --learning-rate $lr
    done

## Use instead
    for lr in 1e-5 2e-5 5e-5; do
      axolotl train run.yaml --learning-rate $lr --output-dir out/lr-$lr
    done

## When it does not apply
The rule is silent:

- if only one of the launches may run (two scripts, or two branches of a condition)
- for launches with equal settings, and for a launch that continues the previous one
- if the script sets the folder elsewhere, moves it, or changes its working directory

## References
transformers 5.23.0 `trainer.py` (_save_checkpoint, save_model); LLaMA-Factory 0.9.5 `hparams/parser.py`
(get_last_checkpoint of output_dir); OpenRLHF 0.11.2 `cli/train_sft.py` (strategy.save_model).
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule("CKP007", "same-folder", "warning", inputs=("previous_launches",))

_PATHS: Final[tuple[Field, ...]] = ("checkpoint.final_path", "checkpoint.path")


def check(run: Run) -> Iterator[Report]:
    """Yield a report if an earlier launch writes to the run's output folder."""
    earlier_launches, checkpoint = run.inputs.previous_launches, run.plan.checkpoint
    field = next((item for item in _PATHS if run.find_owner(item) is not None), None)
    if not earlier_launches or field is None or run.plan.get(field) is None:
        return
    if checkpoint.strategy == "no" and (checkpoint.resume_latest or checkpoint.final is False):
        return  # there is no checkpoint to find, or none is written
    if checkpoint.resume_latest:
        outcome = "it resumes from the previous run"
    elif checkpoint.overwrite is False:
        return  # the framework rejects an existing folder
    else:
        outcome = "it overwrites the previous run"
    place = earlier_launches[0].place
    script = basename(place.document.path)
    if earlier_launches[0].is_same_command:
        subject, label = f"each iteration of the loop in {script} writes", "started here, in a loop"
    elif (count := sum(item.place.document is place.document for item in earlier_launches)) == 1:
        subject, label = f"{script} starts another run before this one, and both write", "the previous run"
    else:
        subject, label = f"{script} starts {count} runs before this one, and all write", "a previous run"
    key = run.spell_key(field)
    yield Report(
        f"{subject} to {run.plan.get(field)} (`{key}`): {outcome}",
        run.find_place(field),
        related=tuple(Related(item.place, label) for item in earlier_launches),
        help=f"give each run its own folder (`{key}`)",
    )
