"""Method lenses of LLaMA-Factory: trained weights and number formats."""

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
from cfglint_train.frameworks.llamafactory.settings import STAGE_NAMES, get_stage, get_tuning, is_on, is_switch
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field


def _parse_words(value: Any) -> tuple[str, ...]:
    """Return the items of a list or of a comma-separated string. Raise UnreadableError for anything else."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise UnreadableError
    return tuple(item.strip() for item in items)


def _parse_targets(value: Any) -> tuple[str, ...]:
    words = _parse_words(value)
    return ("all-linear",) if words == ("all",) else words


def _join_targets(value: Any) -> str:
    return "all" if tuple(value) == ("all-linear",) else ",".join(value)


WORD_LIST: Final = Codec(_parse_words, _join_targets)
TARGET_LIST: Final = Codec(_parse_targets, _join_targets)


_STAGE_BY_LOSS: Final = {
    "sigmoid": "dpo",
    "hinge": "dpo",
    "kto_pair": "dpo",
    "ipo": "ipo",
    "orpo": "orpo",
    "simpo": "simpo",
}


def _read_stage(config: Config) -> Iterator[Triple]:
    stage = get_stage(config)
    if stage == "dpo" and config.get("pref_loss") is not None:
        loss = config.get("pref_loss")
        yield (
            "method.stage",
            _STAGE_BY_LOSS.get(loss) if isinstance(loss, str) else None,
            config.get_origin("pref_loss"),
        )
    else:
        yield "method.stage", None if stage is None else STAGE_NAMES[stage], find_origin(config, "stage")


def _read_targets(config: Config) -> Iterator[Triple]:
    tuning = get_tuning(config)
    # Without an adapter, these are the targets that LoRA would have.
    key = "oft_target" if tuning == "oft" else "lora_target"
    yield "method.lora_targets", TARGET_LIST.read_or_none(config.get(key, default="all")), find_origin(config, key)


_OFT_KEYS: Final[Mapping[Field, tuple[str, int]]] = {
    "method.block_size": ("oft_block_size", 32),
    "method.blocks": ("oft_rank", 0),
}


def _read_oft_blocks(config: Config) -> Iterator[Triple]:
    if get_tuning(config) != "oft":
        return
    for field, (key, default) in _OFT_KEYS.items():
        yield field, PLAIN.integer.read_or_none(config.get(key, default=default)), find_origin(config, key)


def _write_targets(config: Config, changes: Changes) -> list[Change]:
    if get_tuning(config) != "lora":
        raise CannotEdit("fixes only change LoRA's targets")
    refuse_override(config, ("lora_target",))
    return [Set((*config.root, "lora_target"), TARGET_LIST.write(changes["method.lora_targets"]), ("lora_rank",))]


def _read_modules_to_save(config: Config) -> Iterator[Triple]:
    if get_tuning(config) not in ("lora", "oft"):
        return
    stated = config.get("additional_target")
    if stated is not None:
        yield "method.lora_modules_to_save", WORD_LIST.read_or_none(stated), config.get_origin("additional_target")
    elif is_on(config, "resize_vocab"):
        # adapter.py adds embedding and head, under the names that they have in the model.
        yield "method.lora_modules_to_save", ("embed_tokens", "lm_head"), config.get_origin("resize_vocab")
    else:
        yield "method.lora_modules_to_save", (), build_default_origin(config, ("additional_target",))


def _read_trainable_layers(config: Config) -> Iterator[Triple]:
    if get_tuning(config) != "freeze":
        return
    origin = find_origin(config, "freeze_trainable_layers")
    modules, extra_modules = config.get("freeze_trainable_modules", default="all"), config.get("freeze_extra_modules")
    layers = config.get("freeze_trainable_layers", default=2)
    is_whole_layers = modules in ("all", ["all"]) and extra_modules is None
    if not is_whole_layers or isinstance(layers, bool) or not isinstance(layers, int):
        # Parts of layers, or modules outside of them: the number of layers does not determine how much is trained.
        yield "method.trainable_layers", None, origin
    else:
        # A negative number selects the first layers.
        yield "method.trainable_layers", abs(layers), origin


_QUANTIZATION_METHODS: Final = {"hqq": "hqq", "eetq": "eetq"}


def _get_bitsandbytes_name(config: Config) -> Any:
    """Return the value of `quantization_method` that selects bitsandbytes, which is the default.

    The name changed in 0.9.3 (hparams/model_args.py). The default in a copy of LLaMA-Factory takes precedence.
    """
    vendored = config.evidence.vocabulary
    fact = None if vendored is None else vendored.find_fact(("quantization_method",), config.release)
    if fact is not None:
        return fact.get_schema().get("default")
    return "bitsandbytes" if is_before(config, "0.9.3") else "bnb"


def _read_quantization(config: Config) -> Iterator[Triple]:
    # Without `quantization_bit`, method, type and double quantization have no effect.
    bits, bitsandbytes = config.get("quantization_bit"), _get_bitsandbytes_name(config)
    double_quantization = config.get("double_quantization", default=True)
    is_doubled = double_quantization if isinstance(double_quantization, bool) else None
    yield "method.double_quantization", is_doubled, find_origin(config, "double_quantization")
    method = config.get("quantization_method", default=bitsandbytes)
    if bits is None:
        yield "method.quantization", "none", build_default_origin(config, ("quantization_bit",))
        return
    origin = config.get_origin("quantization_bit")
    if (
        method == "bitsandbytes" != bitsandbytes
        and config.releases.is_certainly_at_least("llamafactory", "0.9.3") is None
    ):
        bitsandbytes = method
        note = "LLaMA-Factory before 0.9.3, which calls it `bitsandbytes`; set `llamafactory=RELEASE` to be sure"
        origin = origin._replace(assumption=note)
    if method == bitsandbytes and bits == 4 and not isinstance(bits, bool):
        kind = config.get("quantization_type", default="nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, origin
    elif method == bitsandbytes and bits == 8:
        yield "method.quantization", "int8", origin
    else:
        is_valid = isinstance(bits, int) and isinstance(method, str)
        if is_valid and method not in _QUANTIZATION_METHODS:
            origin = find_origin(config, "quantization_method")
        yield "method.quantization", _QUANTIZATION_METHODS.get(method) if is_valid else None, origin


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    pending_changes = select_pending(QUANTIZATION, config, changes)
    if not pending_changes:
        return []
    is_bitsandbytes = config.get(
        "quantization_method", default=_get_bitsandbytes_name(config)
    ) == _get_bitsandbytes_name(config)
    if pending_changes != {"method.quantization": "nf4"} or not is_bitsandbytes or get_tuning(config) != "lora":
        raise CannotEdit("only base weights under an adapter are quantised, to 4 bits by bitsandbytes")
    refuse_override(config, ("quantization_bit",))
    return [Set((*config.root, "quantization_bit"), 4, ("lora_rank", "finetuning_type"))]


def _read_frozen(config: Config) -> Iterator[Triple]:
    if is_before(config, "0.9.2"):
        projector_only = is_on(config, "train_mm_proj_only")
        origin = find_origin(config, "train_mm_proj_only")
        freeze_vision = config.get("freeze_vision_tower", default=True)
        frozen = True if projector_only else freeze_vision if isinstance(freeze_vision, bool) else None
        yield "model.frozen_vision", frozen, find_origin(config, "freeze_vision_tower")
        yield "model.frozen_projector", False, origin
        yield "model.frozen_language", projector_only, origin
        return
    for field, key in _FROZEN_KEYS.items():
        default = field != "model.frozen_language"
        value = default if not config.has(key) else config.get(key) or False
        yield field, value if isinstance(value, bool) else None, find_origin(config, key)


_FROZEN_KEYS: Final[Mapping[Field, str]] = {
    "model.frozen_vision": "freeze_vision_tower",
    "model.frozen_projector": "freeze_multi_modal_projector",
    "model.frozen_language": "freeze_language_model",
}


def _write_frozen(config: Config, changes: Changes) -> list[Change]:
    if is_before(config, "0.9.2"):
        raise CannotEdit("before 0.9.2, one key freezes several parts")
    for field in changes:
        refuse_override(config, (_FROZEN_KEYS[field],))
    return [Set((*config.root, _FROZEN_KEYS[field]), value, ("finetuning_type",)) for field, value in changes.items()]


def _read_precision(config: Config) -> Iterator[Triple]:
    bf16, fp16, pure = is_on(config, "bf16"), is_on(config, "fp16"), is_on(config, "pure_bf16")
    invalid_key = next((key for key in ("bf16", "fp16", "pure_bf16") if not is_switch(config, key)), None)
    if invalid_key is not None:
        # A quoted "false" is true to Python, and so is 1: the effect depends on the code that reads the key.
        yield "precision.compute", None, config.get_origin(invalid_key)
        yield "precision.autocast", None, config.get_origin(invalid_key)
        return
    if is_on(config, "fp8") and get_stage(config) in ("pt", "sft") and not is_before(config, "0.9.4"):
        yield "precision.compute", "fp8", config.get_origin("fp8")
    elif bf16 or pure:
        yield "precision.compute", "bf16", config.get_origin("bf16" if bf16 else "pure_bf16")
    elif fp16:
        yield "precision.compute", "fp16", config.get_origin("fp16")
    elif get_tuning(config) in ("full", "freeze"):
        yield "precision.compute", "fp32", build_default_origin(config, ("bf16",))
    # An adapter without mixed precision: the checkpoint's format decides, see `infer`.
    yield "precision.autocast", bf16 or fp16, find_origin(config, "bf16", "fp16")


def _write_precision(config: Config, changes: Changes) -> list[Change]:
    dtype = changes.get("precision.compute", "bf16")
    if dtype not in ("bf16", "fp16") or not changes.get("precision.autocast", True) or is_on(config, "fp8"):
        raise CannotEdit("LLaMA-Factory's own default is the only other dtype")
    for key in ("bf16", "fp16", "pure_bf16"):
        if not is_switch(config, key):
            raise CannotEdit(f"{key} is neither true nor false")
    if is_on(config, "pure_bf16"):
        raise CannotEdit("pure_bf16 sets the dtype")
    if changes.keys() != {"precision.compute", "precision.autocast"} and not (
        is_on(config, "bf16") or is_on(config, "fp16")
    ):
        raise CannotEdit("mixed precision sets both the dtype and autocasting")
    other_dtype = "fp16" if dtype == "bf16" else "bf16"
    edits: list[Change] = [Set((*config.root, dtype), True, ("warmup_ratio", "lr_scheduler_type", "learning_rate"))]
    if config.get(other_dtype) is not None:
        edits.append(Set((*config.root, other_dtype), False))
    for key in (dtype, other_dtype):
        refuse_override(config, (key,))
    return edits


STAGE: Final = Custom({"method.stage": parse_routes("stage", "pref_loss")}, _read_stage, refuse_write)
TARGET_MODULES: Final = Custom(
    {"method.lora_targets": parse_routes("lora_target")},
    _read_targets,
    _write_targets,
    other_keys=parse_routes("oft_target"),
)
OFT: Final = Custom({field: parse_routes(key) for field, (key, _) in _OFT_KEYS.items()}, _read_oft_blocks, refuse_write)
MODULES_TO_SAVE: Final = Custom(
    {"method.lora_modules_to_save": parse_routes("additional_target", "resize_vocab")},
    _read_modules_to_save,
    refuse_write,
)
TRAINABLE_LAYERS: Final = Custom(
    {
        "method.trainable_layers": parse_routes(
            "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"
        )
    },
    _read_trainable_layers,
    refuse_write,
)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": parse_routes("quantization_bit", "quantization_method", "quantization_type"),
        "method.double_quantization": parse_routes("double_quantization"),
    },
    _read_quantization,
    _write_quantization,
)
FROZEN: Final = Custom(
    {field: parse_routes(key) for field, key in _FROZEN_KEYS.items()},
    _read_frozen,
    _write_frozen,
    other_keys=parse_routes("train_mm_proj_only"),
)
PRECISION: Final = Custom(
    {
        "precision.compute": parse_routes("bf16", "fp16", "pure_bf16", "fp8"),
        "precision.autocast": parse_routes("bf16", "fp16"),
    },
    _read_precision,
    _write_precision,
)
