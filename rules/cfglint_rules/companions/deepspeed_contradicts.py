"""XFL001 deepspeed-contradicts-trainer: the DeepSpeed file and the training configuration contradict each other.

## What it does
Compares every value that the Hugging Face Trainer compares at startup:

- batch sizes and gradient accumulation
- gradient clipping
- the optimizer's learning rate, betas, epsilon and weight decay
- the scheduler's maximum learning rate (`warmup_max_lr`)
- fp16 and bf16; a text such as "false" never equals the Trainer's boolean

The rule never compares missing keys or the value "auto". In accelerate's own `deepspeed_config`, it compares only the
accumulation, because accelerate passes that on.

## Why is this bad?
The Trainer stops with "Please correct the following DeepSpeed config values that mismatch TrainingArguments values". By
then the job has waited for its GPUs and every rank has loaded its libraries.

## Example
    # ds_config.json
    "train_micro_batch_size_per_gpu": 4
    # config.yaml
    per_device_train_batch_size: 2

## Use instead
    "train_micro_batch_size_per_gpu": "auto"

## Fix safety
Safe: the run could not have started. The fix keeps the value of the training configuration. If that leaves `bf16` and
`fp16` off, the fix turns on the format of the DeepSpeed file instead. There is no fix if it states `false`.

## References
transformers 5.8.0 `integrations/deepspeed.py` (HfTrainerDeepSpeedConfig.fill_match, trainer_config_process);
accelerate 1.15.0 `utils/dataclasses.py` (DeepSpeedPlugin); hiyouga/LLaMA-Factory#201, #1116.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.values import is_number_placeholder
from cfglint_train.documents.document import MISSING, Route, Set, Unknown
from cfglint_train.findings.finding import Fix, Related, Report
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load, read_fields
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL001", "deepspeed-contradicts-trainer", "error", particular=True, fix="safe")


class KeyPair(Frozen):
    """A key of the DeepSpeed file and the training argument that it must equal."""

    route: Route
    field: Field | None
    """Plan field that holds the argument, or None to read `argument` from the config."""
    argument: str = ""
    """Key of the training argument; used only without a plan field."""
    default: Any = None
    """The Trainer's default for `argument` (transformers 5.8.0 training_args.py)."""


_PRODUCT: Final = "micro batch x accumulation x ranks"

_PAIRS: Final = (
    KeyPair(("train_micro_batch_size_per_gpu",), "batch.micro"),
    KeyPair(("gradient_accumulation_steps",), "batch.accumulation"),
    KeyPair(("train_batch_size",), "batch.global_"),
    KeyPair(("gradient_clipping",), None, "max_grad_norm", 1.0),
    KeyPair(("optimizer", "params", "lr"), None, "learning_rate", 5e-5),
    KeyPair(("optimizer", "params", "eps"), None, "adam_epsilon", 1e-8),
    KeyPair(("optimizer", "params", "weight_decay"), None, "weight_decay", 0.0),
    KeyPair(("scheduler", "params", "warmup_max_lr"), None, "learning_rate", 5e-5),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every DeepSpeed value that differs from the training configuration."""
    companion = run.find_companion("deepspeed")
    if not run.framework.traits.runs_trainer:
        return
    yield from _check_accumulation(run, companion)
    if companion is None:
        return
    for pair in _PAIRS:
        value = companion.get_value(*pair.route)
        if value is MISSING or value is None or value == "auto" or is_number_placeholder(value):
            continue
        expected, key = _find_expected(run, pair)
        if expected is not None and not _is_equal(value, expected):
            yield _build_report(run, companion, pair.route, value, expected, key)
    yield from _check_betas(run, companion)
    yield from _check_precision(run, companion)


def _check_accumulation(run: Run, file: Config | None) -> Iterator[Report]:
    """Yield a report if the accumulation in a launcher's own DeepSpeed section differs.

    The launcher builds the DeepSpeed file from that section.
    """
    others = [companion for companion in run.companions if companion is not file]
    if not others:
        return
    expected = read_fields(run.main, run.framework, "batch.accumulation").get("batch.accumulation")
    for companion in others if expected is not None else ():
        section_values = read_fields(companion, load(companion.framework), "batch.accumulation")
        value, origin = section_values.get("batch.accumulation"), section_values.get_origin("batch.accumulation")
        if isinstance(value, int) and origin is not None and origin.kind == "explicit" and value != expected:
            route = tuple(origin.key.split("."))
            yield _build_report(run, companion, route, value, expected, run.spell_key("batch.accumulation"), expected)


def _find_expected(run: Run, pair: KeyPair) -> tuple[Any, str]:
    """Return the Trainer's value of an argument and its key; the value is None if it cannot be determined."""
    if pair.field is None:
        return _read_argument(run.main, pair.argument, pair.default)
    from cfglint_train.frameworks.hf_trainer.arguments import OLDER_BATCH_KEYS

    if pair.field != "batch.accumulation" and run.spell_key("batch.micro") in OLDER_BATCH_KEYS.values():
        return None, ""  # the Trainer compares the newer, unused spelling (4.57.1)
    if pair.field == "batch.global_":
        batch, ranks = run.plan.batch, run.plan.data_parallel
        if not batch.micro or not batch.accumulation or ranks is None:
            return None, ""
        return batch.micro * batch.accumulation * ranks, _PRODUCT
    return run.plan.get(pair.field), run.spell_key(pair.field)


def _read_argument(config: Config, key: str, default: Any) -> tuple[Any, str]:
    value = config.get(key)
    if isinstance(value, Unknown):
        return None, key
    if isinstance(value, str):
        try:
            value = float(value)  # PyYAML reads 2e-5 as a string, which pydantic converts
        except ValueError:
            return None, key
    return default if value is None else value, key


def _is_equal(value: Any, expected: Any) -> bool:
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


def _check_betas(run: Run, companion: Config) -> Iterator[Report]:
    route = ("optimizer", "params", "betas")
    value = companion.get_value(*route)
    if not isinstance(value, list):
        return
    first, _ = _read_argument(run.main, "adam_beta1", 0.9)
    second, _ = _read_argument(run.main, "adam_beta2", 0.999)
    if first is not None and second is not None and value != [first, second]:
        yield _build_report(run, companion, route, value, [first, second], "adam_beta1, adam_beta2")


def _check_precision(run: Run, companion: Config) -> Iterator[Report]:
    is_off = _is_mixed_precision_off(run)
    compute = "fp32" if is_off else run.plan.precision.compute
    if compute is None:
        return
    for name in ("bf16", "fp16"):
        value, expected = companion.get_value(name, "enabled"), compute == name
        key = run.spell_key("precision.compute") if expected else name
        if isinstance(value, str) and value.lower() in ("true", "false"):
            report = _build_report(run, companion, (name, "enabled"), value, expected, key)
            yield report._replace(
                message=f"`{name}.enabled` is the text {_format_value(value)}, which never equals the "
                f"{_format_value(expected)} of the training configuration: the Trainer stops"
            )
        elif isinstance(value, bool) and value != expected:
            report = _build_report(run, companion, (name, "enabled"), value, expected, key)
            if is_off:  # "auto" would become false, and the run would compute in fp32
                fix = _build_precision_fix(run, name)
                report = report._replace(fix=fix, help=f"set `{name}: true`" if fix is None else None)
            yield report


def _is_mixed_precision_off(run: Run) -> bool:
    """Return whether the training configuration leaves `bf16` and `fp16` off, whatever the DeepSpeed file says."""
    if any(run.main.get(f"{name}_full_eval") not in (None, False) for name in ("bf16", "fp16")):
        return False
    if any(companion.get("mixed_precision") in ("bf16", "fp16") for companion in run.companions):
        return False
    main_fields = read_fields(run.main, run.framework, "precision.compute", "precision.autocast")
    return main_fields.get("precision.autocast") is False and main_fields.get("precision.compute") in (None, "fp32")


def _build_precision_fix(run: Run, name: str) -> Fix | None:
    """Return the fix that gives the Trainer the file's format, or None if the training configuration states another."""
    if run.main.document.syntax not in ("yaml", "json") or any(run.main.has(key) for key in ("bf16", "fp16")):
        return None
    return Fix("safe", f"set {name}: true", keys=((run.main, (Set((*run.main.root, name), True),)),))


def _build_report(
    run: Run, companion: Config, route: Route, value: Any, expected: Any, key: str, new_value: Any = "auto"
) -> Report:
    place = companion.find_place(*route) or companion.find_top()
    related: tuple[Related, ...] = ()
    change = Set((*companion.root, *route), new_value)
    argument_origin = run.main.get_origin(key) if run.main.has(key) else None
    source = (
        "training configuration" if argument_origin is None or argument_origin.kind == "explicit" else "command line"
    )
    if argument_origin is not None and argument_origin.place is not None:
        related = (Related(argument_origin.place, f"the {source}"),)
    keys = key.split(", ")
    location = f"{'on' if source == 'command line' else 'in'} the {source}"
    names = key if key == _PRODUCT else " and ".join(f"`{name}`" for name in keys)
    verb = "is" if len(keys) == 1 else "are"
    return Report(
        f"`{format_route(route)}` is {_format_value(value)}, but {names} {verb} {_format_value(expected)} {location}: "
        "the Trainer stops",
        place,
        fix=Fix("safe", f"set {format_route(route)}: {json.dumps(new_value)}", keys=((companion, (change,)),)),
        related=related,
        min_certainty="followed",
    )


def _format_value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else f"{value}"
