"""XFL002 deepspeed-replaces-trainer: the DeepSpeed file has its own scheduler or optimizer.

## What it does
Reports a `scheduler` in the DeepSpeed file if the training configuration has a different schedule or warmup length.
Also reports an `optimizer` if the training configuration has a different one.

## Why is this bad?
The Trainer uses the DeepSpeed file's scheduler or optimizer and silently ignores its own setting. For example,
`WarmupLR` never decays although you asked for cosine. If the warmup steps differ, the Trainer refuses to start, after
it has loaded the model.

## Example
    # ds_config.json
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_max_lr": 1e-5}}
    # config.yaml
    lr_scheduler_type: cosine

## Use instead
Remove `scheduler` from the DeepSpeed file.

## Fix safety
Unsafe: the run then uses a different schedule or optimizer.

## When it does not apply
If the training configuration states no schedule or optimizer, only the DeepSpeed file counts and nothing is reported.
Equivalent schedules are not reported: `WarmupDecayLR` is linear, `WarmupLR` is constant_with_warmup, `WarmupCosineLR`
is cosine.

## References
transformers 5.23.0 `integrations/deepspeed.py` (deepspeed_optim_sched, trainer_config_finalize); deepspeed 0.19.8
`runtime/lr_schedules.py`; hiyouga/LLaMA-Factory#394, deepspeedai/DeepSpeed#4846.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Delete
from cfglint_train.findings.finding import Fix, Related, Report, Severity
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import read_config
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Origin, Place
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL002", "deepspeed-replaces-trainer", "warning", fix="unsafe", inputs=("companions",))

_EQUIVALENT_SCHEDULERS: Final[Mapping[str, frozenset[str]]] = {
    "WarmupLR": frozenset(("constant_with_warmup", "constant")),
    "WarmupDecayLR": frozenset(("linear",)),
    "WarmupCosineLR": frozenset(("cosine",)),
}
"""DeepSpeed's schedulers and the names of equivalent schedulers in transformers."""
_COMPRESSED_OPTIMIZERS: Final = ("bitsandbytes", "torchao")
"""Optimizer implementations that store their states in fewer bits."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for the scheduler and one for the optimizer, if the DeepSpeed file replaces them."""
    companion = run.find_companion("deepspeed")
    if companion is None or not run.framework.traits.runs_trainer:
        return
    yield from _check_scheduler(run, companion)
    yield from _check_optimizer(run, companion)


def _check_scheduler(run: Run, companion: Config) -> Iterator[Report]:
    kind = companion.get("scheduler", "type")
    if not isinstance(kind, str):
        return
    steps, warmup = companion.get("scheduler", "params", "warmup_num_steps"), run.plan.optimizer.warmup_steps
    if isinstance(steps, int) and warmup and steps != warmup:
        key = run.spell_key("optimizer.warmup_steps")
        message = (
            f"`scheduler.params.warmup_num_steps` is {steps}, but `{key}` is {warmup}: the Trainer refuses to start"
        )
        yield _build_report(
            companion, "scheduler", message, _get_place(run.get_origin("optimizer.warmup_steps")), "error"
        )
        return
    stated_scheduler = run.plan.optimizer.scheduler
    if (
        stated_scheduler is not None
        and run.is_stated("optimizer.scheduler")
        and stated_scheduler not in _EQUIVALENT_SCHEDULERS.get(kind, frozenset())
    ):
        key = run.spell_key("optimizer.scheduler")
        message = f"the DeepSpeed file's scheduler {kind} is used, and `{key}: {stated_scheduler}` is ignored"
        yield _build_report(companion, "scheduler", message, _get_place(run.get_origin("optimizer.scheduler")))


def _check_optimizer(run: Run, companion: Config) -> Iterator[Report]:
    kind, main_values = companion.get("optimizer", "type"), read_config(run.main)
    stated_name, name = main_values.get("optimizer.stated_name"), main_values.get("optimizer.name")
    if (
        not isinstance(kind, str)
        or stated_name is None
        or name is None
        or not main_values.is_stated("optimizer.stated_name")
    ):
        return
    is_same = name == {"adam": "adamw"}.get(kind.lower(), kind.lower())
    if not is_same or main_values.get("optimizer.implementation") in _COMPRESSED_OPTIMIZERS:
        place = _get_place(main_values.get_origin("optimizer.stated_name"))
        yield _build_report(
            companion,
            "optimizer",
            f"the DeepSpeed file's optimizer {kind} is used, and `{stated_name}` of the training configuration is "
            "ignored",
            place,
        )


def _get_place(origin: Origin | None) -> Place | None:
    return None if origin is None else origin.place


def _build_report(
    companion: Config, section: str, message: str, related_place: Place | None, severity: Severity | None = None
) -> Report:
    changes = ((companion, (Delete((*companion.root, section)),)),)
    return Report(
        message,
        companion.find_place(section) or companion.find_top(),
        severity,
        Fix("unsafe", f"remove `{section}` from the DeepSpeed file", keys=changes),
        () if related_place is None else (Related(related_place, "the training configuration"),),
    )
