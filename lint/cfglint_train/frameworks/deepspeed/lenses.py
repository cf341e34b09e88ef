"""Lenses between DeepSpeed's keys and the plan, and the fields whose "auto" a host fills in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.codec import Codec, bound_below, build_choice
from cfglint_train.frameworks.lens import Auto, Changes, Config, Triple, build_default_origin, refuse_override
from cfglint_train.frameworks.lens_types import (
    ABSENT,
    NOT_STATED,
    PLAIN,
    Custom,
    Key,
    LookupResult,
    find_stated,
    refuse_write,
    replace_value,
)
from cfglint_train.frameworks.loaders import DEEPSPEED
from cfglint_train.frameworks.loaders import PLAIN as TOP
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

ZERO_SECTION: Final = "zero_optimization"

NEWEST: Final = "0.19.8"


_COUNT_CODEC: Final = bound_below(0, DEEPSPEED.integer)

_POSITIVE_CODEC: Final = bound_below(1, DEEPSPEED.integer)

# Batch sizes are top-level values, which no pydantic model converts: a string fails when it is compared with 0.
_BATCH_CODEC: Final = bound_below(1, TOP.integer)

# Every spelling of a number format (runtime/config.py DtypeEnum).
_DTYPES: Final = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "torch.float32": "fp32",
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "torch.float16": "fp16",
}  # fmt: skip


def _ignore_case(codec: Codec) -> Codec:
    return Codec(lambda value: codec.read(value.lower() if isinstance(value, str) else value), codec.write)


_COMMUNICATION_CODEC: Final = _ignore_case(
    build_choice({"fp32": "fp32", "bf16": "bf16", "bfp16": "bf16", "fp16": "fp16"})
)


def read_bool(config: Config, *route: str) -> bool | None:
    """Return a setting as the boolean that pydantic reads, or None if it is absent, invalid or "auto"."""
    value = config.get(*route)
    return None if value is None or value == "auto" else DEEPSPEED.boolean.read_or_none(value)


def _put_value(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
    """Return the changes that state a value; in JSON, a number keeps the file's notation (5e8)."""
    edits = replace_value(config, key, route, value)
    current = None if route is None else config.get_value(*route)
    if isinstance(current, float) and config.document.syntax == "json":
        return [_convert_to_float(change) for change in edits]
    return edits


def _convert_to_float(change: Change) -> Change:
    if isinstance(change, Set) and isinstance(change.value, int) and float(f"{change.value:e}") == change.value:
        return change._replace(value=float(change.value))
    return change


_KEY_ACCESS: Final = PLAIN._replace(put=_put_value, auto_word="auto")


def get_deepspeed_release(config: Config) -> str:
    """Return the DeepSpeed release that a config of any framework runs with, by default the newest known."""
    return config.releases.get("deepspeed") or NEWEST


def _build_key(
    field: Field,
    codec: Codec,
    *names: str,
    default: Any = ABSENT,
    null: Any = None,
    beside: tuple[str, ...] = (),
) -> Key:
    return Key(field, tuple(tuple(name.split(".")) for name in names), codec, default, null, beside, _KEY_ACCESS)


def read_zero_stage(config: Config) -> int | None:
    """Return the ZeRO stage: 0 without `zero_optimization`, or None if DeepSpeed would reject the value."""
    section = config.get_value(ZERO_SECTION)
    if section is MISSING:
        return 0
    if isinstance(section, bool):
        return int(section)
    if not isinstance(section, dict):
        return None
    stage = section.get("stage", 0)
    number = 0 if stage == "auto" else _COUNT_CODEC.read_or_none(stage)
    return number if number is not None and number <= 3 else None


def _find_zero_origin(config: Config, *route: str) -> Origin:
    for length in range(len(route), 0, -1):
        if config.has(*route[:length]):
            return config.get_origin(*route[:length])
    return build_default_origin(config, route)


def _read_stage(config: Config) -> Iterator[Triple]:
    yield "parallel.strategy", "zero", _find_zero_origin(config, ZERO_SECTION)
    yield "parallel.zero_stage", read_zero_stage(config), _find_zero_origin(config, ZERO_SECTION, "stage")


def _write_stage(config: Config, changes: Changes) -> list[Change]:
    if set(changes) != {"parallel.zero_stage"}:
        raise CannotEdit("a DeepSpeed file configures DeepSpeed and does not say whether it is used")
    stage = changes["parallel.zero_stage"]
    if stage not in (1, 2) and read_bool(config, ZERO_SECTION, "compute_grad_norm") is False:
        raise CannotEdit("DeepSpeed accepts compute_grad_norm: false only at ZeRO stages 1 and 2")
    refuse_override(config, (ZERO_SECTION, "stage"))
    if isinstance(config.get_value(ZERO_SECTION), bool):
        return [Set((*config.root, ZERO_SECTION), {"stage": stage})]
    return [Set((*config.root, ZERO_SECTION, "stage"), stage)]


_OFFLOAD_KEYS: Final[tuple[tuple[Field, str, str], ...]] = (
    ("parallel.offload_optimizer", "offload_optimizer", "cpu_offload"),
    ("parallel.offload_params", "offload_param", "cpu_offload_param"),
)

_PINS_SINCE: Final = "0.19.5"
_PIN_DEFAULT: Final = ValueByRelease((("", False), (_PINS_SINCE, True)))


def is_pinning_by_default(config: Config) -> bool:
    """Return whether the DeepSpeed release certainly pins offloaded memory by default (0.19.5 or newer)."""
    return config.releases.is_certainly_at_least("deepspeed", _PINS_SINCE) is True


def _read_device(config: Config, section: str, deprecated: str) -> tuple[str | None, Origin]:
    offload_section = config.get_value(ZERO_SECTION, section)
    if offload_section is MISSING:
        deprecated_flag = config.get(ZERO_SECTION, deprecated)
        if deprecated_flag is None or deprecated_flag == "auto":
            return "none", build_default_origin(config, (ZERO_SECTION, section))
        is_offloaded = read_bool(config, ZERO_SECTION, deprecated)
        return None if is_offloaded is None else "cpu" if is_offloaded else "none", config.get_origin(
            ZERO_SECTION, deprecated
        )
    origin = _find_zero_origin(config, ZERO_SECTION, section, "device")
    if offload_section is None or offload_section == "auto":
        return "none", origin
    device = offload_section.get("device", "none") if isinstance(offload_section, dict) else None
    if device == "auto":
        device = "none"
    return device if device in ("none", "cpu", "nvme") else None, origin


def _list_offload_sections(config: Config) -> list[str]:
    """Return the names of the offload sections in the file."""
    return [section for _, section, _ in _OFFLOAD_KEYS if isinstance(config.get_value(ZERO_SECTION, section), dict)]


def _is_pinned(config: Config, section: str) -> bool | None:
    """Return whether an offload section pins its memory, or None if the value is invalid."""
    stated = config.get_value(ZERO_SECTION, section, "pin_memory")
    if stated is MISSING or stated == "auto":
        return bool(_PIN_DEFAULT.get_at(get_deepspeed_release(config)))
    return read_bool(config, ZERO_SECTION, section, "pin_memory")


def _read_offload(config: Config) -> Iterator[Triple]:
    for field, section, deprecated in _OFFLOAD_KEYS:
        device, origin = _read_device(config, section, deprecated)
        yield field, device, origin
    # The field covers two sections: memory is pinned if either pins it, and unknown if either value is invalid.
    pins = {section: _is_pinned(config, section) for section in _list_offload_sections(config)}
    for is_pinned in (None, True, False):
        section_name = next((name for name, value in pins.items() if value is is_pinned), None)
        if section_name is not None:
            route = (ZERO_SECTION, section_name, "pin_memory")
            yield (
                "parallel.pin_memory",
                is_pinned,
                config.get_origin(*route) if config.has(*route) else build_default_origin(config, route),
            )
            return
    default = _PIN_DEFAULT.get_at(get_deepspeed_release(config))
    yield (
        "parallel.pin_memory",
        default,
        build_default_origin(config, (ZERO_SECTION, "offload_optimizer", "pin_memory")),
    )


def _write_offload(config: Config, changes: Changes) -> list[Change]:
    if not isinstance(config.get(ZERO_SECTION, default={}), dict):
        raise CannotEdit(f"{ZERO_SECTION} is not a mapping")
    edits: list[Change] = []
    for field, section, deprecated in _OFFLOAD_KEYS:
        if field in changes:
            edits += _write_device(config, section, deprecated, changes[field])
    if "parallel.pin_memory" in changes:
        if not _list_offload_sections(config):
            raise CannotEdit("there is no offload section to pin memory in")
        for section in _list_offload_sections(config):
            refuse_override(config, (ZERO_SECTION, section, "pin_memory"))
            edits.append(
                Set((*config.root, ZERO_SECTION, section, "pin_memory"), changes["parallel.pin_memory"], ("device",))
            )
    return edits


def _find_offload(config: Config, names: tuple[Route, ...]) -> tuple[Route, LookupResult]:
    """Return the stated route and its value, or the route in an existing section if none is stated."""
    route, stated = find_stated(config, names)
    if stated is NOT_STATED:
        route = next((name for name in names if name[1:2] and name[1] in _list_offload_sections(config)), route)
    return route, stated


def _write_device(config: Config, section: str, deprecated: str, device: str) -> list[Change]:
    refuse_override(config, (ZERO_SECTION, section, "device"))
    offload_section = config.get_value(ZERO_SECTION, section)
    if device == "nvme" and not config.get(ZERO_SECTION, section, "nvme_path"):
        raise CannotEdit("offloading to NVMe needs a path, which cannot be chosen automatically")
    if isinstance(offload_section, dict):
        return [Set((*config.root, ZERO_SECTION, section, "device"), device)]
    if offload_section is MISSING and config.has(ZERO_SECTION, deprecated):
        return [Set((*config.root, ZERO_SECTION, deprecated), device == "cpu")]
    new_section: dict[str, Any] = {"device": device}
    for other_section in _list_offload_sections(config):
        # Pin as in the other section, so that `parallel.pin_memory` does not change.
        new_section["pin_memory"] = _is_pinned(config, other_section)
    return [Set((*config.root, ZERO_SECTION, section), new_section, ("stage",))]


def _get_bf16_section(config: Config) -> str:
    """Return `bf16`, or its former name `bfloat16`, which DeepSpeed reads if the new name is absent."""
    return "bfloat16" if config.get("bf16") is None and config.get("bfloat16") is not None else "bf16"


def _read_compute(config: Config) -> Iterator[Triple]:
    section = _get_bf16_section(config)
    bf16, fp16 = read_bool(config, section, "enabled"), read_bool(config, "fp16", "enabled")
    autocast = config.get("torch_autocast", "dtype")
    if bf16 and fp16:
        yield "precision.compute", None, config.get_origin(section, "enabled")
    elif bf16:
        yield "precision.compute", "bf16", config.get_origin(section, "enabled")
    elif fp16:
        yield "precision.compute", "fp16", config.get_origin("fp16", "enabled")
    elif read_bool(config, "torch_autocast", "enabled"):
        dtype = _DTYPES.get(autocast) if isinstance(autocast, str) else None
        yield "precision.compute", dtype, config.get_origin("torch_autocast", "enabled")
    else:
        # The host fills in `bf16`, but never its former name.
        auto_section = next((name for name in ("bf16", "fp16") if config.get(name, "enabled") == "auto"), None)
        if auto_section is not None:
            yield "precision.compute", Auto("fp32"), config.get_origin(auto_section, "enabled")
        else:
            yield "precision.compute", "fp32", build_default_origin(config, ("bf16", "enabled"))


def _write_compute(config: Config, changes: Changes) -> list[Change]:
    dtype = changes["precision.compute"]
    if dtype not in ("fp32", "bf16", "fp16"):
        raise CannotEdit(f"DeepSpeed has no mode for {dtype}")
    if read_bool(config, "torch_autocast", "enabled"):
        raise CannotEdit("torch_autocast sets the dtype")
    edits: list[Change] = []
    for name, section in (("bf16", _get_bf16_section(config)), ("fp16", "fp16")):
        refuse_override(config, (section, "enabled"))
        if config.has(section) and not isinstance(config.get_value(section), dict):
            raise CannotEdit(f"{section} is not a mapping")
        if name == dtype or config.has(section, "enabled"):
            edits.append(Set((*config.root, section, "enabled"), name == dtype, ("fp16", "bf16")))
    return edits


def _read_master_weights(config: Config) -> Iterator[Triple]:
    section = _get_bf16_section(config)
    if read_bool(config, section, "bf16_master_weights_and_grads"):
        yield "precision.master", "bf16", config.get_origin(section, "bf16_master_weights_and_grads")
        if read_bool(config, section, "bf16_optimizer_states"):
            yield "optimizer.state_bits", 16, config.get_origin(section, "bf16_optimizer_states")
    elif read_bool(config, "fp16", "fp16_master_weights_and_grads"):
        yield "precision.master", "fp16", config.get_origin("fp16", "fp16_master_weights_and_grads")


def _read_optimizer(config: Config) -> Iterator[Triple]:
    stated_name = config.get("optimizer", "type")
    if not isinstance(stated_name, str):
        return
    origin = config.get_origin("optimizer", "type")
    name, implementation = stated_name.lower(), "deepspeed"
    if name in ("adam", "adamw"):
        # "Adam" means AdamW unless adam_w_mode is false (engine.py _configure_basic_optimizer).
        if name == "adamw" or read_bool(config, "optimizer", "params", "adam_w_mode") is not False:
            name = "adamw"
        if read_bool(config, "optimizer", "params", "torch_adam"):
            implementation = "foreach"
    elif name in ("sgd", "adagrad", "rmsprop"):
        implementation = "foreach"
    yield "optimizer.name", name, origin
    yield "optimizer.implementation", implementation, origin
    yield "optimizer.paged", False, origin
    yield "optimizer.stated_name", stated_name, origin


def _read_leaf_modules(config: Config) -> Iterator[Triple]:
    section = config.get(ZERO_SECTION, "leaf_module")
    if isinstance(section, dict) and any(section.get(key) for key in ("classes", "names", "name_suffixes")):
        yield "parallel.leaf_modules", True, config.get_origin(ZERO_SECTION, "leaf_module")


_PARALLEL_KEYS: Final[tuple[tuple[Field, Route], ...]] = (
    ("parallel.tensor", ("tensor_parallel", "autotp_size")),
    ("parallel.context", ("sequence_parallel_size",)),
)


def _read_parallel_sizes(config: Config) -> Iterator[Triple]:
    for field, route in _PARALLEL_KEYS:
        size = config.get(*route)
        if isinstance(size, int) and not isinstance(size, bool) and size >= 1:
            yield field, size, config.get_origin(*route)


CLIPPING_DEFAULT: Final = ValueByRelease((("", 0.0), ("0.19.3", 1.0)))

# DeepSpeed's defaults for keys that `zero_optimization` omits (0.12.6 to 0.19.8).
ZERO_DEFAULTS: Final[Mapping[Field, Any]] = {
    "parallel.reduce_bucket": 500_000_000,
    "parallel.contiguous_gradients": True,
    "parallel.reduce_scatter": True,
    "parallel.prefetch_bucket": 50_000_000,
    "parallel.persistence_threshold": 100_000,
    "parallel.max_live_parameters": 1_000_000_000,
    "parallel.max_reuse_distance": 1_000_000_000,
    "parallel.sub_group": 1_000_000_000,
    "parallel.secondary_partition": 1,
    "parallel.quantized_gather": False,
    "parallel.quantized_frozen": False,
    "checkpoint.gather": False,
}


def _build_zero_key(field: Field, codec: Codec, *names: str) -> Key:
    return _build_key(
        field, codec, *(f"{ZERO_SECTION}.{name}" for name in names), default=ZERO_DEFAULTS[field], beside=("stage",)
    )


def _list_stage3_spellings(name: str) -> tuple[str, str]:
    return f"stage3_{name}", name


LENSES: Final = (
    Custom(
        {"parallel.strategy": ((ZERO_SECTION,),), "parallel.zero_stage": ((ZERO_SECTION, "stage"),)},
        _read_stage,
        _write_stage,
    ),
    _build_zero_key("parallel.reduce_bucket", _POSITIVE_CODEC, "reduce_bucket_size"),
    _build_key(
        "parallel.overlap_comm", DEEPSPEED.boolean, f"{ZERO_SECTION}.overlap_comm", null=ABSENT, beside=("stage",)
    ),
    _build_zero_key("parallel.contiguous_gradients", DEEPSPEED.boolean, "contiguous_gradients"),
    _build_zero_key("parallel.reduce_scatter", DEEPSPEED.boolean, "reduce_scatter"),
    _build_zero_key("parallel.prefetch_bucket", _COUNT_CODEC, *_list_stage3_spellings("prefetch_bucket_size")),
    _build_zero_key(
        "parallel.persistence_threshold", _COUNT_CODEC, *_list_stage3_spellings("param_persistence_threshold")
    ),
    _build_zero_key("parallel.max_live_parameters", _COUNT_CODEC, *_list_stage3_spellings("max_live_parameters")),
    _build_zero_key("parallel.max_reuse_distance", _COUNT_CODEC, *_list_stage3_spellings("max_reuse_distance")),
    _build_zero_key("parallel.sub_group", _COUNT_CODEC, "sub_group_size"),
    _build_zero_key("parallel.secondary_partition", _COUNT_CODEC, "zero_hpz_partition_size"),
    _build_zero_key("parallel.quantized_gather", DEEPSPEED.boolean, "zero_quantized_weights"),
    _build_zero_key("parallel.quantized_frozen", DEEPSPEED.boolean, "zero_quantized_nontrainable_weights"),
    _build_zero_key(
        "checkpoint.gather",
        DEEPSPEED.boolean,
        *_list_stage3_spellings("gather_16bit_weights_on_model_save"),
        "stage3_gather_fp16_weights_on_model_save",
    ),
    _build_key("checkpoint.load_universal", DEEPSPEED.boolean, "checkpoint.load_universal", default=False, null=ABSENT),
    Custom(
        {
            **{
                field: ((ZERO_SECTION, section, "device"), (ZERO_SECTION, old)) for field, section, old in _OFFLOAD_KEYS
            },
            "parallel.pin_memory": tuple((ZERO_SECTION, section, "pin_memory") for _, section, _ in _OFFLOAD_KEYS),
        },
        _read_offload,
        _write_offload,
        PLAIN._replace(find=_find_offload),
    ),
    Custom({"parallel.leaf_modules": ((ZERO_SECTION, "leaf_module"),)}, _read_leaf_modules, refuse_write),
    Custom({field: (route,) for field, route in _PARALLEL_KEYS}, _read_parallel_sizes, refuse_write),
    _build_key("parallel.communication", _COMMUNICATION_CODEC, "communication_data_type", null=ABSENT),
    Custom(
        {
            "precision.compute": (
                ("bf16", "enabled"),
                ("bfloat16", "enabled"),
                ("fp16", "enabled"),
                ("torch_autocast", "enabled"),
            )
        },
        _read_compute,
        _write_compute,
    ),
    _build_key("precision.accumulation", build_choice(_DTYPES), "data_types.grad_accum_dtype", null=ABSENT),
    Custom(
        dict.fromkeys(
            ("optimizer.name", "optimizer.implementation", "optimizer.paged", "optimizer.stated_name"),
            (("optimizer", "type"), ("optimizer", "params")),
        ),
        _read_optimizer,
        refuse_write,
    ),
    Custom(
        {
            "precision.master": (("bf16", "bf16_master_weights_and_grads"), ("fp16", "fp16_master_weights_and_grads")),
            "optimizer.state_bits": (("bf16", "bf16_optimizer_states"),),
        },
        _read_master_weights,
        refuse_write,
    ),
    _build_key("optimizer.clipping", TOP.number, "gradient_clipping", default=CLIPPING_DEFAULT, null=0.0),
    _build_key(
        "batch.micro", _BATCH_CODEC, "train_micro_batch_size_per_gpu", null=ABSENT, beside=("train_batch_size",)
    ),
    _build_key("batch.accumulation", _BATCH_CODEC, "gradient_accumulation_steps", null=ABSENT),
    _build_key("batch.global_", _BATCH_CODEC, "train_batch_size", null=ABSENT),
)

# Fields whose "auto" an HF host replaces with its own value (transformers integrations/deepspeed.py).
HOST_FILLED_FIELDS: Final = frozenset((
    "batch.micro", "batch.accumulation", "batch.global_", "optimizer.clipping", "precision.compute",
    "parallel.reduce_bucket", "parallel.prefetch_bucket", "parallel.persistence_threshold",
))  # fmt: skip


SHARED_FIELDS: Final = frozenset(("batch.micro", "batch.accumulation", "batch.global_", "precision.compute"))
