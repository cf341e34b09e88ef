"""What TRL trains, and in which number formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, Unreadable
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    before,
    granted,
    names,
    origin_of,
    pending,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import Custom, read_only
from cfglint_train.frameworks.trainer_script.names import PARTIAL
from cfglint_train.frameworks.trl.settings import on, stated, trainer_of
from cfglint_train.plan.origin import Origin

_STAGES: Final[Mapping[str, str]] = {
    "sft": "sft", "dpo": "dpo", "grpo": "grpo", "kto": "kto", "rloo": "rloo", "reward": "rm", "orpo": "orpo",
}  # fmt: skip


def _read_stage(config: Config) -> Iterator[Triple]:
    trainer = trainer_of(config)
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
        origin = config.origin("loss_type")
    yield "method.stage", stage, origin


def _words(value: Any) -> tuple[str, ...]:
    """A list, or one word; options of a command line give a list."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise Unreadable
    return tuple(items)


def _write_words(value: Any) -> Any:
    return "all-linear" if tuple(value) == ("all-linear",) else list(value)


WORDS: Final = Codec(_words, _write_words)


def _read_words(config: Config, name: str) -> tuple[Any, Origin] | None:
    """The words of a setting of the adapter, empty where it is unset; None without an adapter."""
    if not on(config, "use_peft"):
        return None
    value = config.get(name)
    if value is None:
        return (), granted(config, (name,))
    return WORDS.readable(value), config.origin(name)


_ALL_LINEAR: Final = "all-linear"


def _read_targets(config: Config) -> Iterator[Triple]:
    found = _read_words(config, "lora_target_modules")
    if found is None:
        return
    targets, origin = found
    text = config.get("lora_target_modules")
    if config.document.syntax != "python" and targets is not None and len(targets) == 1:
        text = targets[0]  # `ModelConfig` takes a list of one apart
    for argument, name in PARTIAL.items():
        if config.get(name) not in (None, [], {}):
            note = f"no formula covers adapters with `{argument}`"
            yield "method.lora_targets", None, config.origin(name)._replace(note=note, key=argument)
            return
    if isinstance(text, str) and text.lower() != _ALL_LINEAR:
        # To PEFT one string is a regular expression over whole paths.
        yield "method.lora_targets", (), origin
        yield "method.lora_target_pattern", text, origin
    else:
        yield "method.lora_targets", (text.lower(),) if isinstance(text, str) else targets, origin


def _read_parameters(config: Config) -> Iterator[Triple]:
    found = _read_words(config, "lora_target_parameters")
    if found is not None:
        yield "method.lora_target_parameters", *found


def _read_extras(config: Config) -> Iterator[Triple]:
    found = _read_words(config, "lora_modules_to_save")
    if found is not None:
        yield "method.lora_modules_to_save", *found


def _write_targets(config: Config, changes: Changes) -> list[Change]:
    if not on(config, "use_peft"):
        raise CannotEdit("there is no adapter")
    if "method.lora_targets" not in changes:
        raise CannotEdit("a pattern is not written")
    refuse_override(config, ("lora_target_modules",))
    return [Set((*config.root, "lora_target_modules"), WORDS.write(changes["method.lora_targets"]), ("lora_r",))]


def _read_quantization(config: Config) -> Iterator[Triple]:
    if on(config, "load_in_4bit"):
        kind = stated(config, "bnb_4bit_quant_type", "string")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, config.origin("load_in_4bit")
    elif on(config, "load_in_8bit"):
        yield "method.quantization", "int8", config.origin("load_in_8bit")
    else:
        yield "method.quantization", "none", origin_of(config, "load_in_4bit", "load_in_8bit")
    double = stated(config, "use_bnb_nested_quant", "boolean") if config.has("use_bnb_nested_quant") else False
    yield "method.double_quantization", double, origin_of(config, "use_bnb_nested_quant")


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    wanted = pending(QUANTIZATION, config, changes)
    if not wanted:
        return []
    if wanted != {"method.quantization": "nf4"} or not on(config, "use_peft") or config.document.syntax == "python":
        raise CannotEdit("only the weights below an adapter are quantised, to 4 bits, by an option or a recipe")
    refuse_override(config, ("load_in_4bit",))
    return [Set((*config.root, "load_in_4bit"), True, ("lora_r", "use_peft"))]


def _half(config: Config) -> tuple[bool | None, bool | None]:
    """`bf16` and `fp16`, as TRL's classes fill the former in; None where one of them is no switch."""
    fp16 = stated(config, "fp16", "boolean")
    bf16 = stated(config, "bf16", "boolean")
    if bf16 is None and (config.get("bf16") is None and fills_bf16(config)):
        bf16 = None if fp16 is None else not fp16
    return bf16, fp16


def fills_bf16(config: Config) -> bool:
    """Whether bf16 is on where neither format is stated (`self.bf16 = not self.fp16`): from 0.19 on."""
    return trainer_of(config) is not None and not before(config, "0.19")


def _read_precision(config: Config) -> Iterator[Triple]:
    bf16, fp16 = _half(config)
    origin = origin_of(config, *(("fp16", "bf16") if fp16 and not bf16 else ("bf16", "fp16")))
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
        raise CannotEdit("bf16 and fp16 are the formats of mixed precision")
    other = "fp16" if wanted == "bf16" else "bf16"
    present = {field: value for field, value, _ in _read_precision(config)}
    if changes.keys() != {"precision.compute", "precision.autocast"} and not present.get("precision.autocast"):
        raise CannotEdit("mixed precision settles the format and autocasting at once")
    written: list[Change] = [Set((*config.root, wanted), True, ("learning_rate", "gradient_checkpointing"))]
    if config.get(other) is not None:
        written.append(Set((*config.root, other), False))
    for key in (wanted, other):
        refuse_override(config, (key,))
    return written


STAGE: Final = Custom({"method.stage": ()}, _read_stage, read_only, also=names("loss_type"))
TARGET_MODULES: Final = Custom(
    {
        "method.lora_targets": names("lora_target_modules", *PARTIAL.values()),
        "method.lora_target_pattern": names("lora_target_modules"),
    },
    _read_targets,
    _write_targets,
)
TARGET_PARAMETERS: Final = Custom(
    {"method.lora_target_parameters": names("lora_target_parameters")}, _read_parameters, read_only
)
MODULES_TO_SAVE: Final = Custom({"method.lora_modules_to_save": names("lora_modules_to_save")}, _read_extras, read_only)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": names("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type"),
        "method.double_quantization": names("use_bnb_nested_quant"),
    },
    _read_quantization,
    _write_quantization,
)
PRECISION: Final = Custom(
    dict.fromkeys(("precision.compute", "precision.autocast"), names("bf16", "fp16")),
    _read_precision,
    _write_precision,
)
