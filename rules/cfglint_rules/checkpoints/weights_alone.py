"""CKP006 resumed-without-states: the run resumes from checkpoints without optimizer state.

## What it does
Reports `save_only_model` if the run is set to resume from its own checkpoints: from a folder inside its output folder,
or from the newest checkpoint.

## Why is this bad?
Under DeepSpeed, the Trainer finds no optimizer state in the checkpoint and stops with "Can't find a valid checkpoint".
Otherwise the run continues with a fresh optimizer and a fresh schedule, without a warning.

## Symptoms
Loss jumps after a resume, optimizer state missing.

## Example
    save_only_model: true
    resume_from_checkpoint: saves/run/checkpoint-500
    output_dir: saves/run

## Use instead
    save_only_model: false

## Fix safety
Unsafe: each checkpoint grows by the optimizer state, which is several times as large as the weights.

## When it does not apply
Silent for another run's checkpoint, which may include the optimizer state. Ignore the rule if this run wrote the
checkpoint before you set `save_only_model`: that checkpoint is complete. LLaMA-Factory looks in the output folder by
default, which does not count as a request to resume.

## References
transformers 5.23.0 `training_args.py` (save_only_model), `integrations/deepspeed.py` (deepspeed_load_checkpoint),
`trainer.py` (_load_optimizer_and_scheduler); hiyouga/LLaMA-Factory#5497.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.checkpoints.resuming import find_resume_field
from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "CKP006",
    "resumed-without-states",
    "warning",
    fix="unsafe",
    needs={"checkpoint.model_only": (True,)},
    writes=("checkpoint.model_only",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the checkpoints lack the optimizer state that resuming needs."""
    resume_field = find_resume_field(run)
    if resume_field is None or not run.framework.traits.runs_trainer:
        return
    key, strategy = run.spell_key("checkpoint.model_only"), run.plan.parallel.strategy
    if strategy is None:
        return
    outcome = "DeepSpeed cannot resume" if strategy == "zero" else "the run resumes with a fresh optimizer"
    yield Report(
        f"`{key}` leaves out the optimizer state, but `{run.spell_key(resume_field)}` needs it: {outcome}",
        run.find_place("checkpoint.model_only"),
        fix=Fix("unsafe", f"{key}: false, which also saves the optimizer state", {"checkpoint.model_only": False}),
        related=(Related(run.find_place(resume_field), "resumes here"),),
    )
