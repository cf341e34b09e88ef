"""What LLaMA-Factory trains, and in which number formats."""

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
from cfglint_train.frameworks.llamafactory.settings import STAGES, is_switch, on, stage_of, tuning_of
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field


def _words(value: Any) -> tuple[str, ...]:
    """A list, or one string whose items are separated by commas."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise Unreadable
    return tuple(item.strip() for item in items)


def _targets(value: Any) -> tuple[str, ...]:
    words = _words(value)
    return ("all-linear",) if words == ("all",) else words


def _joined(value: Any) -> str:
    return "all" if tuple(value) == ("all-linear",) else ",".join(value)


WORDS: Final = Codec(_words, _joined)
TARGETS: Final = Codec(_targets, _joined)


_LOSSES: Final = {"sigmoid": "dpo", "hinge": "dpo", "kto_pair": "dpo", "ipo": "ipo", "orpo": "orpo", "simpo": "simpo"}


def _read_stage(config: Config) -> Iterator[Triple]:
    stage = stage_of(config)
    if stage == "dpo" and config.get("pref_loss") is not None:
        loss = config.get("pref_loss")
        yield "method.stage", _LOSSES.get(loss) if isinstance(loss, str) else None, config.origin("pref_loss")
    else:
        yield "method.stage", None if stage is None else STAGES[stage], origin_of(config, "stage")


def _read_targets(config: Config) -> Iterator[Triple]:
    tuning = tuning_of(config)
    # Without an adapter, what it would be put on.
    key = "oft_target" if tuning == "oft" else "lora_target"
    yield "method.lora_targets", TARGETS.readable(config.get(key, default="all")), origin_of(config, key)


_OFT: Final[Mapping[Field, tuple[str, int]]] = {
    "method.block_size": ("oft_block_size", 32),
    "method.blocks": ("oft_rank", 0),
}


def _read_blocks(config: Config) -> Iterator[Triple]:
    if tuning_of(config) != "oft":
        return
    for field, (key, default) in _OFT.items():
        yield field, PLAIN.integer.readable(config.get(key, default=default)), origin_of(config, key)


def _write_targets(config: Config, changes: Changes) -> list[Change]:
    if tuning_of(config) != "lora":
        raise CannotEdit("only LoRA's targets are written")
    refuse_override(config, ("lora_target",))
    return [Set((*config.root, "lora_target"), TARGETS.write(changes["method.lora_targets"]), ("lora_rank",))]


def _read_extras(config: Config) -> Iterator[Triple]:
    if tuning_of(config) not in ("lora", "oft"):
        return
    stated = config.get("additional_target")
    if stated is not None:
        yield "method.lora_modules_to_save", WORDS.readable(stated), config.origin("additional_target")
    elif on(config, "resize_vocab"):
        # adapter.py adds embedding and head by itself, by the names that they have in the model.
        yield "method.lora_modules_to_save", ("embed_tokens", "lm_head"), config.origin("resize_vocab")
    else:
        yield "method.lora_modules_to_save", (), granted(config, ("additional_target",))


def _read_layers(config: Config) -> Iterator[Triple]:
    if tuning_of(config) != "freeze":
        return
    origin = origin_of(config, "freeze_trainable_layers")
    modules, extra = config.get("freeze_trainable_modules", default="all"), config.get("freeze_extra_modules")
    layers = config.get("freeze_trainable_layers", default=2)
    whole = modules in ("all", ["all"]) and extra is None
    if not whole or isinstance(layers, bool) or not isinstance(layers, int):
        # Parts of layers, or modules outside of them: a number of layers does not say how much is trained.
        yield "method.trainable_layers", None, origin
    else:
        # Negative: the first ones.
        yield "method.trainable_layers", abs(layers), origin


_METHODS: Final = {"hqq": "hqq", "eetq": "eetq"}


def _bitsandbytes(config: Config) -> Any:
    """The word for bitsandbytes, which is the default: another one up to 0.9.2 (hparams/model_args.py)."""
    copy = config.evidence.vocabulary
    fact = None if copy is None else copy.fact(("quantization_method",), config.release)
    if fact is not None:
        return fact.schema().get("default")
    return "bitsandbytes" if before(config, "0.9.3") else "bnb"


def _read_quantization(config: Config) -> Iterator[Triple]:
    # Without `quantization_bit` the method, the type and double quantisation have no effect.
    bits, usual = config.get("quantization_bit"), _bitsandbytes(config)
    double = config.get("double_quantization", default=True)
    doubled = double if isinstance(double, bool) else None
    yield "method.double_quantization", doubled, origin_of(config, "double_quantization")
    method = config.get("quantization_method", default=usual)
    if bits is None:
        yield "method.quantization", "none", granted(config, ("quantization_bit",))
        return
    origin = config.origin("quantization_bit")
    if method == "bitsandbytes" != usual and config.releases.certain("llamafactory", "0.9.3") is None:
        usual = method
        note = "LLaMA-Factory before 0.9.3, whose word is `bitsandbytes`; set `llamafactory=RELEASE` to be sure"
        origin = origin._replace(assumed=note)
    if method == usual and bits == 4 and not isinstance(bits, bool):
        kind = config.get("quantization_type", default="nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, origin
    elif method == usual and bits == 8:
        yield "method.quantization", "int8", origin
    else:
        known = isinstance(bits, int) and isinstance(method, str)
        if known and method not in _METHODS:
            origin = origin_of(config, "quantization_method")
        yield "method.quantization", _METHODS.get(method) if known else None, origin


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    wanted = pending(QUANTIZATION, config, changes)
    if not wanted:
        return []
    plain = config.get("quantization_method", default=_bitsandbytes(config)) == _bitsandbytes(config)
    if wanted != {"method.quantization": "nf4"} or not plain or tuning_of(config) != "lora":
        raise CannotEdit("only the weights below an adapter are quantised, to 4 bits by bitsandbytes")
    refuse_override(config, ("quantization_bit",))
    return [Set((*config.root, "quantization_bit"), 4, ("lora_rank", "finetuning_type"))]


def _read_frozen(config: Config) -> Iterator[Triple]:
    if before(config, "0.9.2"):
        projector_only = on(config, "train_mm_proj_only")
        origin = origin_of(config, "train_mm_proj_only")
        vision = config.get("freeze_vision_tower", default=True)
        frozen = True if projector_only else vision if isinstance(vision, bool) else None
        yield "model.frozen_vision", frozen, origin_of(config, "freeze_vision_tower")
        yield "model.frozen_projector", False, origin
        yield "model.frozen_language", projector_only, origin
        return
    for field, key in _FROZEN_KEYS.items():
        default = field != "model.frozen_language"
        value = default if not config.has(key) else config.get(key) or False
        yield field, value if isinstance(value, bool) else None, origin_of(config, key)


_FROZEN_KEYS: Final[Mapping[Field, str]] = {
    "model.frozen_vision": "freeze_vision_tower",
    "model.frozen_projector": "freeze_multi_modal_projector",
    "model.frozen_language": "freeze_language_model",
}


def _write_frozen(config: Config, changes: Changes) -> list[Change]:
    if before(config, "0.9.2"):
        raise CannotEdit("before 0.9.2 one key freezes several parts")
    for field in changes:
        refuse_override(config, (_FROZEN_KEYS[field],))
    return [Set((*config.root, _FROZEN_KEYS[field]), value, ("finetuning_type",)) for field, value in changes.items()]


def _read_precision(config: Config) -> Iterator[Triple]:
    bf16, fp16, pure = on(config, "bf16"), on(config, "fp16"), on(config, "pure_bf16")
    wrong = next((key for key in ("bf16", "fp16", "pure_bf16") if not is_switch(config, key)), None)
    if wrong is not None:
        # "false" in quotes is true to Python, 1 is too: what comes of it depends on who asks.
        yield "precision.compute", None, config.origin(wrong)
        yield "precision.autocast", None, config.origin(wrong)
        return
    if on(config, "fp8") and stage_of(config) in ("pt", "sft") and not before(config, "0.9.4"):
        yield "precision.compute", "fp8", config.origin("fp8")
    elif bf16 or pure:
        yield "precision.compute", "bf16", config.origin("bf16" if bf16 else "pure_bf16")
    elif fp16:
        yield "precision.compute", "fp16", config.origin("fp16")
    elif tuning_of(config) in ("full", "freeze"):
        yield "precision.compute", "fp32", granted(config, ("bf16",))
    # An adapter without mixed precision: the format of the checkpoint decides, see `infer`.
    yield "precision.autocast", bf16 or fp16, origin_of(config, "bf16", "fp16")


def _write_precision(config: Config, changes: Changes) -> list[Change]:
    wanted = changes.get("precision.compute", "bf16")
    if wanted not in ("bf16", "fp16") or not changes.get("precision.autocast", True) or on(config, "fp8"):
        raise CannotEdit("LLaMA-Factory's own default is the only other format")
    for key in ("bf16", "fp16", "pure_bf16"):
        if not is_switch(config, key):
            raise CannotEdit(f"{key} is neither true nor false")
    if on(config, "pure_bf16"):
        raise CannotEdit("pure_bf16 settles the format")
    if changes.keys() != {"precision.compute", "precision.autocast"} and not (on(config, "bf16") or on(config, "fp16")):
        raise CannotEdit("mixed precision settles the format and autocasting at once")
    other = "fp16" if wanted == "bf16" else "bf16"
    written: list[Change] = [Set((*config.root, wanted), True, ("warmup_ratio", "lr_scheduler_type", "learning_rate"))]
    if config.get(other) is not None:
        written.append(Set((*config.root, other), False))
    for key in (wanted, other):
        refuse_override(config, (key,))
    return written


STAGE: Final = Custom({"method.stage": names("stage", "pref_loss")}, _read_stage, read_only)
TARGET_MODULES: Final = Custom(
    {"method.lora_targets": names("lora_target")}, _read_targets, _write_targets, also=names("oft_target")
)
OFT: Final = Custom({field: names(key) for field, (key, _) in _OFT.items()}, _read_blocks, read_only)
MODULES_TO_SAVE: Final = Custom(
    {"method.lora_modules_to_save": names("additional_target", "resize_vocab")}, _read_extras, read_only
)
TRAINABLE_LAYERS: Final = Custom(
    {"method.trainable_layers": names("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")},
    _read_layers,
    read_only,
)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": names("quantization_bit", "quantization_method", "quantization_type"),
        "method.double_quantization": names("double_quantization"),
    },
    _read_quantization,
    _write_quantization,
)
FROZEN: Final = Custom(
    {field: names(key) for field, key in _FROZEN_KEYS.items()},
    _read_frozen,
    _write_frozen,
    also=names("train_mm_proj_only"),
)
PRECISION: Final = Custom(
    {
        "precision.compute": names("bf16", "fp16", "pure_bf16", "fp8"),
        "precision.autocast": names("bf16", "fp16"),
    },
    _read_precision,
    _write_precision,
)
