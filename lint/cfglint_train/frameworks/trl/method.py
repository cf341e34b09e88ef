"""Training method and number formats of TRL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, UnreadableError
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
    refuse_override,
    select_pending,
)
from cfglint_train.frameworks.lens_types import Custom, refuse_write
from cfglint_train.frameworks.trainer_script.names import PARTIAL_LORA_ARGUMENTS
from cfglint_train.frameworks.trl.settings import find_trainer, is_on, read_setting
from cfglint_train.plan.origin import Origin

_STAGES: Final[Mapping[str, str]] = {
    "sft": "sft", "dpo": "dpo", "grpo": "grpo", "kto": "kto", "rloo": "rloo", "reward": "rm", "orpo": "orpo",
}  # fmt: skip


def _read_stage(config: Config) -> Iterator[Triple]:
    trainer = find_trainer(config)
    if trainer is None:
        return
    stage: str | None = _STAGES.get(trainer)
    origin = Origin("inferred", note=f"TRL's {trainer} trainer")
    if trainer in ("dpo", "cpo") and config.get("loss_type") is not None:
        losses = config.get("loss_type")
        losses = [losses] if isinstance(losses, str) else losses
        if trainer == "dpo" and losses == ["ipo"]:
            stage = "ipo"
        elif trainer == "cpo" and losses == ["simpo"]:
            stage = "simpo"
        origin = config.get_origin("loss_type")
    yield "method.stage", stage, origin


def _parse_words(value: Any) -> tuple[str, ...]:
    """Parse a list of strings or a single string."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UnreadableError
    return tuple(items)


def _write_words(value: Any) -> Any:
    return "all-linear" if tuple(value) == ("all-linear",) else list(value)


WORDS: Final = Codec(_parse_words, _write_words)


def _read_adapter_words(config: Config, name: str) -> tuple[Any, Origin] | None:
    """Return the words of an adapter setting with their origin, or None if the run has no adapter.

    The words are empty if the setting is unset, and None if they are unreadable.
    """
    if not is_on(config, "use_peft"):
        return None
    value = config.get(name)
    if value is None:
        return (), build_default_origin(config, (name,))
    return WORDS.read_or_none(value), config.get_origin(name)


_ALL_LINEAR: Final = "all-linear"


def _read_targets(config: Config) -> Iterator[Triple]:
    words = _read_adapter_words(config, "lora_target_modules")
    if words is None:
        return
    targets, origin = words
    text = config.get("lora_target_modules")
    if config.document.syntax != "python" and targets is not None and len(targets) == 1:
        text = targets[0]  # `ModelConfig` unpacks a list of one item
    for argument, name in PARTIAL_LORA_ARGUMENTS.items():
        if config.get(name) not in (None, [], {}):
            note = f"no formula covers adapters with `{argument}`"
            yield "method.lora_targets", None, config.get_origin(name)._replace(note=note, key=argument)
            return
    if isinstance(text, str) and text.lower() != _ALL_LINEAR:
        # PEFT matches a single string as a regular expression against full module paths.
        yield "method.lora_targets", (), origin
        yield "method.lora_target_pattern", text, origin
    else:
        yield "method.lora_targets", (text.lower(),) if isinstance(text, str) else targets, origin


def _read_parameters(config: Config) -> Iterator[Triple]:
    words = _read_adapter_words(config, "lora_target_parameters")
    if words is not None:
        yield "method.lora_target_parameters", *words


def _read_extras(config: Config) -> Iterator[Triple]:
    words = _read_adapter_words(config, "lora_modules_to_save")
    if words is not None:
        yield "method.lora_modules_to_save", *words


def _write_targets(config: Config, changes: Changes) -> list[Change]:
    if not is_on(config, "use_peft"):
        raise CannotEdit("there is no adapter")
    if "method.lora_targets" not in changes:
        raise CannotEdit("fixes do not write patterns")
    refuse_override(config, ("lora_target_modules",))
    return [Set((*config.root, "lora_target_modules"), WORDS.write(changes["method.lora_targets"]), ("lora_r",))]


def _read_quantization(config: Config) -> Iterator[Triple]:
    if is_on(config, "load_in_4bit"):
        kind = read_setting(config, "bnb_4bit_quant_type", "string")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, config.get_origin("load_in_4bit")
    elif is_on(config, "load_in_8bit"):
        yield "method.quantization", "int8", config.get_origin("load_in_8bit")
    else:
        yield "method.quantization", "none", find_origin(config, "load_in_4bit", "load_in_8bit")
    double = read_setting(config, "use_bnb_nested_quant", "boolean") if config.has("use_bnb_nested_quant") else False
    yield "method.double_quantization", double, find_origin(config, "use_bnb_nested_quant")


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    wanted = select_pending(QUANTIZATION, config, changes)
    if not wanted:
        return []
    if wanted != {"method.quantization": "nf4"} or not is_on(config, "use_peft") or config.document.syntax == "python":
        raise CannotEdit("only base weights under an adapter are quantised, to 4 bits, by an option or a recipe")
    refuse_override(config, ("load_in_4bit",))
    return [Set((*config.root, "load_in_4bit"), True, ("lora_r", "use_peft"))]


def _read_half_formats(config: Config) -> tuple[bool | None, bool | None]:
    """Return `bf16` and `fp16`, with TRL's default for `bf16`; a value that is not boolean is None."""
    fp16 = read_setting(config, "fp16", "boolean")
    bf16 = read_setting(config, "bf16", "boolean")
    if bf16 is None and (config.get("bf16") is None and has_bf16_default(config)):
        bf16 = None if fp16 is None else not fp16
    return bf16, fp16


def has_bf16_default(config: Config) -> bool:
    """Return whether the trainer turns bf16 on if neither format is stated (`self.bf16 = not self.fp16`).

    Trainers do so from 0.19 on. False if the trainer is unknown.
    """
    return find_trainer(config) is not None and not is_before(config, "0.19")


def _read_precision(config: Config) -> Iterator[Triple]:
    for key in ("use_cpu", "no_cuda"):
        if config.get(key) is True:  # a CPU may have no 16-bit format
            yield "precision.compute", None, config.get_origin(key)
            yield "precision.autocast", None, config.get_origin(key)
            return
    bf16, fp16 = _read_half_formats(config)
    origin = find_origin(config, *(("fp16", "bf16") if fp16 and not bf16 else ("bf16", "fp16")))
    if bf16 is None or fp16 is None:
        yield "precision.compute", None, origin
        yield "precision.autocast", None, origin
        return
    if bf16 or fp16:
        yield "precision.compute", "bf16" if bf16 else "fp16", origin
    yield "precision.autocast", bf16 or fp16, origin


def _write_precision(config: Config, changes: Changes) -> list[Change]:
    wanted = changes.get("precision.compute", "bf16")
    if wanted not in ("bf16", "fp16") or not changes.get("precision.autocast", True):
        raise CannotEdit("mixed precision is bf16 or fp16")
    other = "fp16" if wanted == "bf16" else "bf16"
    present = {field: value for field, value, _ in _read_precision(config)}
    if changes.keys() != {"precision.compute", "precision.autocast"} and not present.get("precision.autocast"):
        raise CannotEdit("mixed precision sets both the dtype and autocasting")
    key_changes: list[Change] = [Set((*config.root, wanted), True, ("learning_rate", "gradient_checkpointing"))]
    if config.get(other) is not None:
        key_changes.append(Set((*config.root, other), False))
    for key in (wanted, other):
        refuse_override(config, (key,))
    return key_changes


STAGE: Final = Custom({"method.stage": ()}, _read_stage, refuse_write, other_keys=parse_routes("loss_type"))
TARGET_MODULES: Final = Custom(
    {
        "method.lora_targets": parse_routes("lora_target_modules", *PARTIAL_LORA_ARGUMENTS.values()),
        "method.lora_target_pattern": parse_routes("lora_target_modules"),
    },
    _read_targets,
    _write_targets,
)
TARGET_PARAMETERS: Final = Custom(
    {"method.lora_target_parameters": parse_routes("lora_target_parameters")}, _read_parameters, refuse_write
)
MODULES_TO_SAVE: Final = Custom(
    {"method.lora_modules_to_save": parse_routes("lora_modules_to_save")}, _read_extras, refuse_write
)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": parse_routes("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type"),
        "method.double_quantization": parse_routes("use_bnb_nested_quant"),
    },
    _read_quantization,
    _write_quantization,
)
PRECISION: Final = Custom(
    dict.fromkeys(("precision.compute", "precision.autocast"), parse_routes("bf16", "fp16")),
    _read_precision,
    _write_precision,
)
