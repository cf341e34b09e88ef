"""XFL001 deepspeed-contradicts-trainer: the DeepSpeed file and the training configuration contradict each other.

## What it does
Compares every value that the Hugging Face Trainer compares at start: batch sizes, accumulation, gradient clipping,
the optimizer's learning rate, betas, epsilon and weight decay, the scheduler's learning rate, fp16 and bf16. A
value of "auto" or a key that is not there is never compared. Of accelerate's own `deepspeed_config` the accumulation is
compared, which it hands on.

## Why is this bad?
The Trainer stops with "Please correct the following DeepSpeed config values that mismatch TrainingArguments
values", after every rank has loaded its libraries and the job has waited for its GPUs.

## Example
    # ds_config.json
    "train_micro_batch_size_per_gpu": 4
    # config.yaml
    per_device_train_batch_size: 2

## Use instead
    "train_micro_batch_size_per_gpu": "auto"

## Fix safety
Safe: the run could not have started; the value of the training configuration is the one that is kept.

## References
transformers 5.8.0 `integrations/deepspeed.py` (HfTrainerDeepSpeedConfig.fill_match, trainer_config_process);
accelerate 1.15.0 `utils/dataclasses.py` (DeepSpeedPlugin); hiyouga/LLaMA-Factory#201, #1116.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.values import is_no_number
from cfglint_train.documents.document import MISSING, Route, Set, Unknown
from cfglint_train.findings.finding import Fix, Related, Report
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load, read_fields
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL001", "deepspeed-contradicts-trainer", "error", particular=True, fix="safe")


class Pair(Frozen):
    """One key of the DeepSpeed file and the training argument that it must equal."""

    route: Route
    field: Field | None
    """The plan field that holds the argument; None: it is read by its key."""
    argument: str = ""
    """The training argument, which has its own name in every configuration."""
    default: Any = None
    """What the Trainer takes where the key is absent (transformers 5.8.0 training_args.py)."""


_PRODUCT: Final = "micro batch x accumulation x ranks"

_PAIRS: Final = (
    Pair(("train_micro_batch_size_per_gpu",), "batch.micro"),
    Pair(("gradient_accumulation_steps",), "batch.accumulation"),
    Pair(("train_batch_size",), "batch.global_"),
    Pair(("gradient_clipping",), None, "max_grad_norm", 1.0),
    Pair(("optimizer", "params", "lr"), None, "learning_rate", 5e-5),
    Pair(("optimizer", "params", "eps"), None, "adam_epsilon", 1e-8),
    Pair(("optimizer", "params", "weight_decay"), None, "weight_decay", 0.0),
    Pair(("scheduler", "params", "warmup_max_lr"), None, "learning_rate", 5e-5),
)


def check(run: Run) -> Iterator[Report]:
    """One report per value that differs."""
    companion = run.companion("deepspeed")
    if not run.framework.traits.runs_trainer:
        return
    yield from _accumulation(run, companion)
    if companion is None:
        return
    for pair in _PAIRS:
        stated = companion.value(*pair.route)
        if stated is MISSING or stated is None or stated == "auto" or is_no_number(stated):
            continue
        wanted, key = _wanted(run, pair)
        if wanted is not None and not _equal(stated, wanted):
            yield _report(run, companion, pair.route, stated, wanted, key)
    yield from _betas(run, companion)
    yield from _precision(run, companion)


def _accumulation(run: Run, file: Config | None) -> Iterator[Report]:
    """The accumulation of a launcher's own DeepSpeed section, of which it makes the DeepSpeed file."""
    others = [companion for companion in run.companions if companion is not file]
    if not others:
        return
    wanted = read_fields(run.main, run.framework, "batch.accumulation").get("batch.accumulation")
    for companion in others if wanted is not None else ():
        own = read_fields(companion, load(companion.framework), "batch.accumulation")
        stated, origin = own.get("batch.accumulation"), own.origin("batch.accumulation")
        if isinstance(stated, int) and origin is not None and origin.kind == "explicit" and stated != wanted:
            route = tuple(origin.key.split("."))
            yield _report(run, companion, route, stated, wanted, run.spell("batch.accumulation"), wanted)


def _wanted(run: Run, pair: Pair) -> tuple[Any, str]:
    """What the Trainer has for an argument, and how it is spelled; None where that cannot be determined."""
    if pair.field is None:
        return _argument(run.main, pair.argument, pair.default)
    from cfglint_train.frameworks.hf_trainer.arguments import OLDER_BATCH

    if pair.field != "batch.accumulation" and run.spell("batch.micro") in OLDER_BATCH.values():
        return None, ""  # the Trainer compares the newer spelling, which does not count (4.57.1)
    if pair.field == "batch.global_":
        batch, ranks = run.plan.batch, run.plan.data_parallel
        if not batch.micro or not batch.accumulation or ranks is None:
            return None, ""
        return batch.micro * batch.accumulation * ranks, _PRODUCT
    return run.plan.get(pair.field), run.spell(pair.field)


def _argument(config: Config, key: str, default: Any) -> tuple[Any, str]:
    value = config.get(key)
    if isinstance(value, Unknown):
        return None, key
    if isinstance(value, str):
        try:
            value = float(value)  # PyYAML reads 2e-5 as a string; pydantic makes a number of it
        except ValueError:
            return None, key
    return default if value is None else value, key


def _equal(stated: Any, wanted: Any) -> bool:
    return bool(stated == wanted) and isinstance(stated, bool) == isinstance(wanted, bool)


def _betas(run: Run, companion: Config) -> Iterator[Report]:
    route = ("optimizer", "params", "betas")
    stated = companion.value(*route)
    if not isinstance(stated, list):
        return
    first, _ = _argument(run.main, "adam_beta1", 0.9)
    second, _ = _argument(run.main, "adam_beta2", 0.999)
    if first is not None and second is not None and stated != [first, second]:
        yield _report(run, companion, route, stated, [first, second], "adam_beta1, adam_beta2")


def _precision(run: Run, companion: Config) -> Iterator[Report]:
    compute = run.plan.precision.compute
    if compute is None:
        return
    for name in ("bf16", "fp16"):
        stated = companion.value(name, "enabled")
        if isinstance(stated, bool) and stated != (compute == name):
            key = run.spell("precision.compute") if compute == name else name
            yield _report(run, companion, (name, "enabled"), stated, compute == name, key)


def _report(
    run: Run, companion: Config, route: Route, stated: Any, wanted: Any, key: str, instead: Any = "auto"
) -> Report:
    place = companion.place(*route) or companion.top()
    related: tuple[Related, ...] = ()
    change = Set((*companion.root, *route), instead)
    other = run.main.origin(key) if run.main.has(key) else None
    source = "training configuration" if other is None or other.kind == "explicit" else "command line"
    if other is not None and other.place is not None:
        related = (Related(other.place, f"the {source}"),)
    keys = key.split(", ")
    where = f"{'on' if source == 'command line' else 'in'} the {source}"
    named = key if key == _PRODUCT else " and ".join(f"`{one}`" for one in keys)
    verb = "is" if len(keys) == 1 else "are"
    return Report(
        f"`{spelled(route)}` is {_shown(stated)}, but {named} {verb} {_shown(wanted)} {where}: "
        "the Trainer refuses to start",
        place,
        fix=Fix("safe", f"{spelled(route)}: {json.dumps(instead)}", keys=((companion, (change,)),)),
        related=related,
        minimum="followed",
    )


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else f"{value}"
