"""The lenses between DeepSpeed's keys and the plan; the values that a host fills in for "auto"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.codec import Codec, at_least, choice
from cfglint_train.frameworks.lens import Auto, Changes, Config, Triple, granted, refuse_override
from cfglint_train.frameworks.lens_types import ABSENT, NOT_STATED, PLAIN, Custom, Found, Key, find, put, read_only
from cfglint_train.frameworks.loaders import DEEPSPEED
from cfglint_train.frameworks.loaders import PLAIN as TOP
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

ZERO: Final = "zero_optimization"

NEWEST: Final = "0.19.8"


_COUNT: Final = at_least(0, DEEPSPEED.integer)

_POSITIVE: Final = at_least(1, DEEPSPEED.integer)

# The batch sizes are top-level values, which no model converts: a string fails in the comparison with 0.
_BATCH: Final = at_least(1, TOP.integer)

# runtime/config.py DtypeEnum: every spelling that names a format.
_DTYPES: Final = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "torch.float32": "fp32",
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "torch.float16": "fp16",
}  # fmt: skip


def _lowered(codec: Codec) -> Codec:
    return Codec(lambda value: codec.read(value.lower() if isinstance(value, str) else value), codec.write)


_COMMUNICATION: Final = _lowered(choice({"fp32": "fp32", "bf16": "bf16", "bfp16": "bf16", "fp16": "fp16"}))


def read_bool(config: Config, *route: str) -> bool | None:
    """A setting as pydantic's boolean; None where it is absent, "auto" (which is dropped) or no boolean."""
    value = config.get(*route)
    return None if value is None or value == "auto" else DEEPSPEED.boolean.readable(value)


def _put(config: Config, key: Key, route: Route | None, value: Any) -> list[Change]:
    """State a value; a number keeps the notation that the file uses (5e8)."""
    written = put(config, key, route, value)
    raw = None if route is None else config.value(*route)
    if isinstance(raw, float) and config.document.syntax == "json":
        return [_as_float(change) for change in written]
    return written


def _as_float(change: Change) -> Change:
    if isinstance(change, Set) and isinstance(change.value, int) and float(f"{change.value:e}") == change.value:
        return change._replace(value=float(change.value))
    return change


_KEYS: Final = PLAIN._replace(put=_put, auto="auto")


def release_of(config: Config) -> str:
    """The DeepSpeed release that a configuration (of any framework) runs on."""
    return config.releases.get("deepspeed") or NEWEST


def _key(
    field: Field,
    codec: Codec,
    *names: str,
    default: Any = ABSENT,
    null: Any = None,
    beside: tuple[str, ...] = (),
) -> Key:
    return Key(field, tuple(tuple(name.split(".")) for name in names), codec, default, null, beside, _KEYS)


def zero_stage(config: Config) -> int | None:
    """The ZeRO stage; 0 where there is no `zero_optimization`, None where DeepSpeed would refuse what is there."""
    section = config.value(ZERO)
    if section is MISSING:
        return 0
    if isinstance(section, bool):
        return int(section)
    if not isinstance(section, dict):
        return None
    stage = section.get("stage", 0)
    number = 0 if stage == "auto" else _COUNT.readable(stage)
    return number if number is not None and number <= 3 else None


def _zero_origin(config: Config, *route: str) -> Origin:
    for length in range(len(route), 0, -1):
        if config.has(*route[:length]):
            return config.origin(*route[:length])
    return granted(config, route)


def _read_stage(config: Config) -> Iterator[Triple]:
    yield "parallel.strategy", "zero", _zero_origin(config, ZERO)
    yield "parallel.zero_stage", zero_stage(config), _zero_origin(config, ZERO, "stage")


def _write_stage(config: Config, changes: Changes) -> list[Change]:
    if set(changes) != {"parallel.zero_stage"}:
        raise CannotEdit("a DeepSpeed file configures DeepSpeed and does not state whether it is used")
    stage = changes["parallel.zero_stage"]
    if stage not in (1, 2) and read_bool(config, ZERO, "compute_grad_norm") is False:
        raise CannotEdit("DeepSpeed takes compute_grad_norm: false at ZeRO stage 1 and 2 only")
    refuse_override(config, (ZERO, "stage"))
    if isinstance(config.value(ZERO), bool):
        return [Set((*config.root, ZERO), {"stage": stage})]
    return [Set((*config.root, ZERO, "stage"), stage)]


_OFFLOADS: Final[tuple[tuple[Field, str, str], ...]] = (
    ("parallel.offload_optimizer", "offload_optimizer", "cpu_offload"),
    ("parallel.offload_params", "offload_param", "cpu_offload_param"),
)

_PINS_SINCE: Final = "0.19.5"
_PIN_DEFAULT: Final = Since((("", False), (_PINS_SINCE, True)))


def pins_unasked(config: Config) -> bool:
    """Whether DeepSpeed is stated to be of a release that pins offloaded memory where no setting asks for it."""
    return config.releases.certain("deepspeed", _PINS_SINCE) is True


def _device(config: Config, section: str, deprecated: str) -> tuple[str | None, Origin]:
    stated = config.value(ZERO, section)
    if stated is MISSING:
        flag = config.get(ZERO, deprecated)
        if flag is None or flag == "auto":
            return "none", granted(config, (ZERO, section))
        truth = read_bool(config, ZERO, deprecated)
        return None if truth is None else "cpu" if truth else "none", config.origin(ZERO, deprecated)
    origin = _zero_origin(config, ZERO, section, "device")
    if stated is None or stated == "auto":
        return "none", origin
    device = stated.get("device", "none") if isinstance(stated, dict) else None
    if device == "auto":
        device = "none"
    return device if device in ("none", "cpu", "nvme") else None, origin


def _sections(config: Config) -> list[str]:
    """The offload sections that are there."""
    return [section for _, section, _ in _OFFLOADS if isinstance(config.value(ZERO, section), dict)]


def _pinned(config: Config, section: str) -> bool | None:
    """Whether a section pins its memory; None where it says nonsense."""
    stated = config.value(ZERO, section, "pin_memory")
    if stated is MISSING or stated == "auto":
        return bool(_PIN_DEFAULT.at(release_of(config)))
    return read_bool(config, ZERO, section, "pin_memory")


def _read_offload(config: Config) -> Iterator[Triple]:
    for field, section, deprecated in _OFFLOADS:
        device, origin = _device(config, section, deprecated)
        yield field, device, origin
    # One field for two sections: memory is pinned where either of them pins it, unknown where one says nonsense.
    pins = {section: _pinned(config, section) for section in _sections(config)}
    for pinned in (None, True, False):
        named = next((name for name, own in pins.items() if own is pinned), None)
        if named is not None:
            route = (ZERO, named, "pin_memory")
            yield "parallel.pin_memory", pinned, config.origin(*route) if config.has(*route) else granted(config, route)
            return
    default = _PIN_DEFAULT.at(release_of(config))
    yield "parallel.pin_memory", default, granted(config, (ZERO, "offload_optimizer", "pin_memory"))


def _write_offload(config: Config, changes: Changes) -> list[Change]:
    if not isinstance(config.get(ZERO, default={}), dict):
        raise CannotEdit(f"{ZERO} is not a mapping")
    written: list[Change] = []
    for field, section, deprecated in _OFFLOADS:
        if field in changes:
            written += _write_device(config, section, deprecated, changes[field])
    if "parallel.pin_memory" in changes:
        if not _sections(config):
            raise CannotEdit("there is no offload section to pin memory in")
        for section in _sections(config):
            refuse_override(config, (ZERO, section, "pin_memory"))
            written.append(
                Set((*config.root, ZERO, section, "pin_memory"), changes["parallel.pin_memory"], ("device",))
            )
    return written


def _find_offload(config: Config, names: tuple[Route, ...]) -> tuple[Route, Found]:
    """The key in use; else the one in a section that is there."""
    route, found = find(config, names)
    if found is NOT_STATED:
        route = next((name for name in names if name[1:2] and name[1] in _sections(config)), route)
    return route, found


def _write_device(config: Config, section: str, deprecated: str, device: str) -> list[Change]:
    refuse_override(config, (ZERO, section, "device"))
    stated = config.value(ZERO, section)
    if device == "nvme" and not config.get(ZERO, section, "nvme_path"):
        raise CannotEdit("offloading to NVMe needs a path, which cannot be chosen automatically")
    if isinstance(stated, dict):
        return [Set((*config.root, ZERO, section, "device"), device)]
    if stated is MISSING and config.has(ZERO, deprecated):
        return [Set((*config.root, ZERO, deprecated), device == "cpu")]
    made: dict[str, Any] = {"device": device}
    for other in _sections(config):
        # As its neighbour does, so that pinning stays what it was.
        made["pin_memory"] = _pinned(config, other)
    return [Set((*config.root, ZERO, section), made, ("stage",))]


def _bf16_section(config: Config) -> str:
    """`bf16`, or its old name `bfloat16`, which is read where the new one is absent."""
    return "bfloat16" if config.get("bf16") is None and config.get("bfloat16") is not None else "bf16"


def _read_compute(config: Config) -> Iterator[Triple]:
    section = _bf16_section(config)
    bf16, fp16 = read_bool(config, section, "enabled"), read_bool(config, "fp16", "enabled")
    autocast = config.get("torch_autocast", "dtype")
    if bf16 and fp16:
        yield "precision.compute", None, config.origin(section, "enabled")
    elif bf16:
        yield "precision.compute", "bf16", config.origin(section, "enabled")
    elif fp16:
        yield "precision.compute", "fp16", config.origin("fp16", "enabled")
    elif read_bool(config, "torch_autocast", "enabled"):
        known = _DTYPES.get(autocast) if isinstance(autocast, str) else None
        yield "precision.compute", known, config.origin("torch_autocast", "enabled")
    else:
        # HF fills `bf16`, never its old name.
        waiting = next((name for name in ("bf16", "fp16") if config.get(name, "enabled") == "auto"), None)
        if waiting is not None:
            yield "precision.compute", Auto("fp32"), config.origin(waiting, "enabled")
        else:
            yield "precision.compute", "fp32", granted(config, ("bf16", "enabled"))


def _write_compute(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["precision.compute"]
    if wanted not in ("fp32", "bf16", "fp16"):
        raise CannotEdit(f"DeepSpeed has no mode for {wanted}")
    if read_bool(config, "torch_autocast", "enabled"):
        raise CannotEdit("torch_autocast settles the format")
    written: list[Change] = []
    for name, section in (("bf16", _bf16_section(config)), ("fp16", "fp16")):
        refuse_override(config, (section, "enabled"))
        if config.has(section) and not isinstance(config.value(section), dict):
            raise CannotEdit(f"{section} is not a mapping")
        if name == wanted or config.has(section, "enabled"):
            written.append(Set((*config.root, section, "enabled"), name == wanted, ("fp16", "bf16")))
    return written


def _read_masters(config: Config) -> Iterator[Triple]:
    section = _bf16_section(config)
    if read_bool(config, section, "bf16_master_weights_and_grads"):
        yield "precision.master", "bf16", config.origin(section, "bf16_master_weights_and_grads")
        if read_bool(config, section, "bf16_optimizer_states"):
            yield "optimizer.state_bits", 16, config.origin(section, "bf16_optimizer_states")
    elif read_bool(config, "fp16", "fp16_master_weights_and_grads"):
        yield "precision.master", "fp16", config.origin("fp16", "fp16_master_weights_and_grads")


def _read_optimizer(config: Config) -> Iterator[Triple]:
    stated = config.get("optimizer", "type")
    if not isinstance(stated, str):
        return
    origin = config.origin("optimizer", "type")
    name, implementation = stated.lower(), "deepspeed"
    if name in ("adam", "adamw"):
        # "Adam" means AdamW unless the parameters say otherwise (engine.py _configure_basic_optimizer).
        if name == "adamw" or read_bool(config, "optimizer", "params", "adam_w_mode") is not False:
            name = "adamw"
        if read_bool(config, "optimizer", "params", "torch_adam"):
            implementation = "foreach"
    elif name in ("sgd", "adagrad", "rmsprop"):
        implementation = "foreach"
    yield "optimizer.name", name, origin
    yield "optimizer.implementation", implementation, origin
    yield "optimizer.paged", False, origin
    yield "optimizer.stated_name", stated, origin


def _read_leaves(config: Config) -> Iterator[Triple]:
    section = config.get(ZERO, "leaf_module")
    if isinstance(section, dict) and any(section.get(key) for key in ("classes", "names", "name_suffixes")):
        yield "parallel.leaf_modules", True, config.origin(ZERO, "leaf_module")


_RANKS: Final[tuple[tuple[Field, Route], ...]] = (
    ("parallel.tensor", ("tensor_parallel", "autotp_size")),
    ("parallel.context", ("sequence_parallel_size",)),
)


def _read_ranks(config: Config) -> Iterator[Triple]:
    for field, route in _RANKS:
        size = config.get(*route)
        if isinstance(size, int) and not isinstance(size, bool) and size >= 1:
            yield field, size, config.origin(*route)


CLIPPING_DEFAULT: Final = Since((("", 0.0), ("0.19.3", 1.0)))

# What DeepSpeed takes where `zero_optimization` does not say: the values of 0.12.6 to 0.19.8.
DEFAULTS: Final[Mapping[Field, Any]] = {
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


def _zero(field: Field, codec: Codec, *names: str) -> Key:
    return _key(field, codec, *(f"{ZERO}.{name}" for name in names), default=DEFAULTS[field], beside=("stage",))


def _stage3(name: str) -> tuple[str, str]:
    return f"stage3_{name}", name


LENSES: Final = (
    Custom(
        {"parallel.strategy": ((ZERO,),), "parallel.zero_stage": ((ZERO, "stage"),)},
        _read_stage,
        _write_stage,
    ),
    _zero("parallel.reduce_bucket", _POSITIVE, "reduce_bucket_size"),
    _key("parallel.overlap_comm", DEEPSPEED.boolean, f"{ZERO}.overlap_comm", null=ABSENT, beside=("stage",)),
    _zero("parallel.contiguous_gradients", DEEPSPEED.boolean, "contiguous_gradients"),
    _zero("parallel.reduce_scatter", DEEPSPEED.boolean, "reduce_scatter"),
    _zero("parallel.prefetch_bucket", _COUNT, *_stage3("prefetch_bucket_size")),
    _zero("parallel.persistence_threshold", _COUNT, *_stage3("param_persistence_threshold")),
    _zero("parallel.max_live_parameters", _COUNT, *_stage3("max_live_parameters")),
    _zero("parallel.max_reuse_distance", _COUNT, *_stage3("max_reuse_distance")),
    _zero("parallel.sub_group", _COUNT, "sub_group_size"),
    _zero("parallel.secondary_partition", _COUNT, "zero_hpz_partition_size"),
    _zero("parallel.quantized_gather", DEEPSPEED.boolean, "zero_quantized_weights"),
    _zero("parallel.quantized_frozen", DEEPSPEED.boolean, "zero_quantized_nontrainable_weights"),
    _zero(
        "checkpoint.gather",
        DEEPSPEED.boolean,
        *_stage3("gather_16bit_weights_on_model_save"),
        "stage3_gather_fp16_weights_on_model_save",
    ),
    _key("checkpoint.load_universal", DEEPSPEED.boolean, "checkpoint.load_universal", default=False, null=ABSENT),
    Custom(
        {
            **{field: ((ZERO, section, "device"), (ZERO, old)) for field, section, old in _OFFLOADS},
            "parallel.pin_memory": tuple((ZERO, section, "pin_memory") for _, section, _ in _OFFLOADS),
        },
        _read_offload,
        _write_offload,
        PLAIN._replace(find=_find_offload),
    ),
    Custom({"parallel.leaf_modules": ((ZERO, "leaf_module"),)}, _read_leaves, read_only),
    Custom({field: (route,) for field, route in _RANKS}, _read_ranks, read_only),
    _key("parallel.communication", _COMMUNICATION, "communication_data_type", null=ABSENT),
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
    _key("precision.accumulation", choice(_DTYPES), "data_types.grad_accum_dtype", null=ABSENT),
    Custom(
        dict.fromkeys(
            ("optimizer.name", "optimizer.implementation", "optimizer.paged", "optimizer.stated_name"),
            (("optimizer", "type"), ("optimizer", "params")),
        ),
        _read_optimizer,
        read_only,
    ),
    Custom(
        {
            "precision.master": (("bf16", "bf16_master_weights_and_grads"), ("fp16", "fp16_master_weights_and_grads")),
            "optimizer.state_bits": (("bf16", "bf16_optimizer_states"),),
        },
        _read_masters,
        read_only,
    ),
    _key("optimizer.clipping", TOP.number, "gradient_clipping", default=CLIPPING_DEFAULT, null=0.0),
    _key("batch.micro", _BATCH, "train_micro_batch_size_per_gpu", null=ABSENT, beside=("train_batch_size",)),
    _key("batch.accumulation", _BATCH, "gradient_accumulation_steps", null=ABSENT),
    _key("batch.global_", _BATCH, "train_batch_size", null=ABSENT),
)

# Fields for which an HF host puts its own value in the place of "auto" (transformers integrations/deepspeed.py).
FILLED: Final = frozenset((
    "batch.micro", "batch.accumulation", "batch.global_", "optimizer.clipping", "precision.compute",
    "parallel.reduce_bucket", "parallel.prefetch_bucket", "parallel.persistence_threshold",
))  # fmt: skip


SHARED: Final = frozenset(("batch.micro", "batch.accumulation", "batch.global_", "precision.compute"))
