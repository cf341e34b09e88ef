"""Lenses between OLMo-core's settings and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import parse_member_name
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Lens,
    Triple,
    build_default_origin,
    format_route,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import UNRESOLVED, Custom, Key, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core import activations, checkpoints, parallel
from cfglint_train.frameworks.olmo_core.model import MODEL
from cfglint_train.frameworks.olmo_core.settings import (
    COLLECTOR,
    build_callback_locator,
    build_key,
    build_section_access,
    find,
    find_first,
    get_class_name,
    is_before,
    parse_dtype,
    set_member,
    split_route,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_fixed(config: Config) -> Iterator[Triple]:
    """Yield the behavior of OLMo-core's trainer that no configuration can change."""
    if not isinstance(config.document.find_node((*config.root, "trainer")), MappingNode):
        return
    origin = Origin("default", note=f"olmo_core {config.release}", framework=config.framework)
    for field, value in _FIXED_FIELDS.items():
        yield field, value, origin


_FIXED_FIELDS: Final[Mapping[Field, Any]] = {
    "method.quantization": "none",
    "model.init_device": "meta",
    "sequence.packing": True,
    "sequence.padding": "max_length",
    "activations.offload": "none",
    "activations.reentrant": False,
    "activations.dropout": 0.0,
    "parallel.offload_params": "none",
    "parallel.offload_optimizer": "none",
    "checkpoint.model_only": False,
    "checkpoint.state_dict": "sharded",
    "checkpoint.final": True,
    "logging.metrics_enabled": True,
}


def _read_method(config: Config) -> Iterator[Triple]:
    """Yield stage and tuning: masked labels mean fine-tuning; frozen parameters leave the tuning unknown."""
    label_masks = find_first(config, "dataset.label_mask_paths")
    if label_masks is not None and label_masks[0] is not None:
        yield "method.stage", "sft", label_masks[1]
    elif find(config, ("dataset", "label_mask_paths")) is not UNRESOLVED or "dataset" not in _list_sections(config):
        yield "method.stage", "pretrain", build_default_origin(config, ("dataset", "label_mask_paths"))
    frozen = find(config, ("model", "freeze_params"))
    if isinstance(frozen, StatedValue) and frozen.value:
        note = "cfglint does not determine which parameters `freeze_params` leaves trainable"
        yield "method.tuning", None, frozen.origin._replace(note=note, is_unsupported=True)
    elif frozen is not UNRESOLVED or _is_preset(config):
        yield "method.tuning", "full", build_default_origin(config, ("model", "freeze_params"))


def _list_sections(config: Config) -> tuple[str, ...]:
    root = config.document.find_node(config.root) if config.root else config.document.root
    return tuple(root.index) if isinstance(root, MappingNode) else ()


def _is_preset(config: Config) -> bool:
    return isinstance(config.get_value("model", "_FACTORY_"), str)


# optim/*.py: class -> name, default implementation of the step.
_OPTIMIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "AdamWConfig": ("adamw", "foreach"),
    "SkipStepAdamWConfig": ("adamw", "foreach"),
    "AdamConfig": ("adam", "foreach"),
    "LionConfig": ("lion", "custom"),
    "SkipStepLionConfig": ("lion", "custom"),
    "MuonConfig": ("muon", "custom"),
    "NorMuonConfig": ("muon", "custom"),
    "DionConfig": ("dion", "custom"),
    "OLMoDDPOptimizerConfig": ("adamw", "custom"),
    "NoOpConfig": ("none", "custom"),
}


def _get_optimizer_route(config: Config) -> Route:
    return ("train_module", "optim") if config.has("train_module", "optim") else ("optim",)


def _read_optimizer(config: Config) -> Iterator[Triple]:
    route = _get_optimizer_route(config)
    name = get_class_name(config, route)
    if not name:
        return
    origin = config.get_origin(*route)
    yield "optimizer.stated_name", name, origin
    yield "optimizer.paged", False, origin
    if name not in _OPTIMIZERS:
        return
    optimizer, implementation = _OPTIMIZERS[name]
    yield "optimizer.name", optimizer, origin
    fused, foreach = find(config, (*route, "fused")), find(config, (*route, "foreach"))
    if isinstance(fused, StatedValue) and fused.value is True:
        yield "optimizer.implementation", "fused", fused.origin
    elif isinstance(foreach, StatedValue) and foreach.value is False:
        yield "optimizer.implementation", "single", foreach.origin
    elif name == "SkipStepAdamWConfig" and is_before(config, "2.2.0"):
        yield "optimizer.implementation", "single", build_default_origin(config, (*route, "foreach"))
    else:
        yield "optimizer.implementation", implementation, build_default_origin(config, (*route, "foreach"))
    dtype = find_first(config, format_route((*route, "dtype")))
    bits = {"fp32": 32, "bf16": 16, "fp16": 16}.get(parse_dtype(dtype) or "")
    if dtype is not None and bits is not None:
        yield "optimizer.state_bits", bits, dtype[1]


_MICRO_BATCH_KEYS: Final = ("train_module.rank_microbatch_size", "trainer.rank_microbatch_size")

_GLOBAL_BATCH_KEY: Final = "data_loader.global_batch_size"

_LENGTH_KEYS: Final = ("train_module.max_sequence_length", "dataset.sequence_length")


def _read_number(config: Config, *names: str) -> tuple[int, Origin] | None:
    stated = find_first(config, *names)
    if stated is None:
        return None
    number = PLAIN.integer.read_or_none(stated[0])
    return None if number is None else (number, stated[1])


def _read_valid_length(config: Config) -> int | None:
    length = _read_number(config, *_LENGTH_KEYS)
    return length[0] if length is not None and length[0] > 0 else None


def _read_length(config: Config) -> Iterator[Triple]:
    length = _read_number(config, *_LENGTH_KEYS)
    if length is not None:
        yield "sequence.length", *length
    dataset_length = _read_number(config, "dataset.sequence_length")
    if dataset_length is not None:
        yield "sequence.dataset_length", *dataset_length


def _build_batch_lens(field: Field, *names: str) -> Custom:
    """Return the lens of a batch size that the configuration states in tokens."""

    def read(config: Config) -> Iterator[Triple]:
        batch, length = _read_number(config, *names), _read_valid_length(config)
        stated = find_first(config, *names)
        if batch is not None and length is not None:
            tokens, origin = batch
            sequences = tokens // length if tokens > 0 and tokens % length == 0 else None
            yield field, sequences, origin
        elif stated is not None:
            yield field, None, stated[1]

    def write(config: Config, changes: Changes) -> list[Change]:
        length = _read_valid_length(config)
        if length is None:
            raise CannotEdit("it is a multiple of the sequence length, which cannot be determined")
        route = next((split_route(name) for name in names if config.has(*split_route(name))), split_route(names[0]))
        refuse_override(config, route)
        return [Set(config.root + route, changes[field] * length, ("max_sequence_length",))]

    return Custom({field: tuple(split_route(name) for name in names)}, read, write)


def _read_uneven_batches(config: Config) -> Iterator[Triple]:
    """Yield batch sizes in tokens that are not a whole number of sequences, if there is a train module (since 2.0)."""
    micro, length = _read_number(config, _MICRO_BATCH_KEYS[0]), _read_valid_length(config)
    if micro is None or length is None:
        return
    if micro[0] > 0 and micro[0] % length:
        yield "batch.micro_tokens", *micro
    global_batch = _read_number(config, _GLOBAL_BATCH_KEY)
    if global_batch is not None and global_batch[0] > 0 and global_batch[0] % length:
        yield "batch.global_tokens", *global_batch


def _refuse_length(config: Config, changes: Changes) -> list[Change]:
    raise CannotEdit("batch sizes are in tokens, so a new length would change them all")


_EVALUATORS: Final = ("LMEvaluatorCallbackConfig", "DownstreamEvaluatorCallbackConfig", "EvaluatorCallback")


def _read_eval(config: Config) -> Iterator[Triple]:
    callbacks = config.document.find_node((*config.root, "trainer", "callbacks"))
    no_evals = find_first(config, "trainer.no_evals")
    if no_evals is not None and no_evals[0] is True:
        yield "eval.enabled", False, no_evals[1]
        return
    if not isinstance(callbacks, MappingNode):
        return
    intervals: list[tuple[int, Origin]] = []
    is_complete = not getattr(callbacks, "open", "")
    for name in callbacks.index:
        route = ("trainer", "callbacks", name)
        if get_class_name(config, route) not in _EVALUATORS:
            continue
        enabled, interval = find(config, (*route, "enabled")), find(config, (*route, "eval_interval"))
        if enabled is UNRESOLVED or interval is UNRESOLVED:
            is_complete = False
        elif not isinstance(enabled, StatedValue) or enabled.value is not False:
            value = interval.value if isinstance(interval, StatedValue) else 1000
            origin = interval.origin if isinstance(interval, StatedValue) else config.get_origin(*route)
            if type(value) is int:
                intervals.append((value, origin))
    if intervals:
        least, origin = min(intervals, key=lambda pair: pair[0])
        yield "eval.enabled", True, origin
        yield "eval.strategy", "steps", origin
        yield "eval.interval", least, origin
    elif is_complete:
        yield "eval.enabled", False, config.get_origin("trainer", "callbacks")
        yield "eval.strategy", "no", config.get_origin("trainer", "callbacks")


def _read_profiler(config: Config) -> Iterator[Triple]:
    route = build_callback_locator("ProfilerCallback", name="profiler")(config)
    if route is None:
        return
    if config.document.find_node((*config.root, *route)) is None:
        yield "logging.profiler", False, build_default_origin(config, route)
        return
    enabled = find(config, (*route, "enabled"))
    if enabled is not UNRESOLVED:
        is_enabled = not isinstance(enabled, StatedValue) or enabled.value is True
        yield "logging.profiler", is_enabled, config.get_origin(*route)


def _read_token_dtype(config: Config) -> Iterator[Triple]:
    """Yield the dataset's `dtype` if it is stated; the default, the narrowest type for the vocabulary, is left out."""
    stated = find_first(config, "dataset.dtype")
    if stated is not None and isinstance(stated[0], str):
        yield "data.token_dtype", parse_member_name(stated[0]), stated[1]


def _write_token_dtype(config: Config, changes: Changes) -> list[Change]:
    member = ("NumpyDatasetDType", changes["data.token_dtype"], "olmo_core.data")
    return set_member(config, split_route("dataset.dtype"), member, ("paths", "tokenizer"))


_LAUNCH_KEYS: Final[Mapping[Field, str]] = {
    "launch.nodes": "launch.num_nodes",
    "launch.gpus_per_node": "launch.num_gpus",
}


def _read_launch(config: Config) -> Iterator[Triple]:
    for field, key in _LAUNCH_KEYS.items():
        count = _read_number(config, key)
        if count is not None and count[0] > 0:
            yield field, *count


LENSES: Final[tuple[Lens, ...]] = (
    Custom(dict.fromkeys(_FIXED_FIELDS, ()), _read_fixed, refuse_write),
    Custom(
        {"method.stage": (("dataset", "label_mask_paths"),), "method.tuning": (("model", "freeze_params"),)},
        _read_method,
        refuse_write,
    ),
    MODEL,
    *parallel.LENSES,
    Custom(
        {
            "optimizer.name": (("train_module", "optim"), ("optim",)),
            "optimizer.implementation": (("train_module", "optim", "foreach"), ("train_module", "optim", "fused")),
            "optimizer.state_bits": (("train_module", "optim", "dtype"),),
            "optimizer.paged": (),
            "optimizer.stated_name": (("train_module", "optim"), ("optim",)),
        },
        _read_optimizer,
        refuse_write,
    ),
    build_key(
        "optimizer.clipping", "train_module.max_grad_norm", PLAIN.number, default=0.0, null=0.0, beside=("optim",)
    ),
    Custom(
        {
            "sequence.length": tuple(map(split_route, _LENGTH_KEYS)),
            "sequence.dataset_length": (("dataset", "sequence_length"),),
        },
        _read_length,
        _refuse_length,
    ),
    _build_batch_lens("batch.micro", *_MICRO_BATCH_KEYS),
    _build_batch_lens("batch.global_", _GLOBAL_BATCH_KEY),
    Custom(
        {
            "batch.micro_tokens": (split_route(_MICRO_BATCH_KEYS[0]),),
            "batch.global_tokens": (split_route(_GLOBAL_BATCH_KEY),),
        },
        _read_uneven_batches,
        refuse_write,
    ),
    *activations.LENSES,
    *checkpoints.LENSES,
    Custom(
        dict.fromkeys(("eval.enabled", "eval.strategy", "eval.interval"), (("trainer", "callbacks"),)),
        _read_eval,
        refuse_write,
    ),
    build_key(
        "logging.metrics_interval",
        "trainer.metrics_collect_interval",
        PLAIN.integer,
        default=5,
        beside=("save_overwrite", "save_folder"),
    ),
    build_key(
        "logging.cancel_check_interval",
        "trainer.cancel_check_interval",
        PLAIN.integer,
        default=25,
        beside=("metrics_collect_interval", "save_overwrite"),
    ),
    Key(
        "logging.gc_interval",
        (("trainer", "callbacks", "garbage_collector", "gc_interval"),),
        PLAIN.integer,
        default=1000,
        access=build_section_access(COLLECTOR),
    ),
    Custom({"logging.profiler": (("trainer", "callbacks"),)}, _read_profiler, refuse_write),
    build_key(
        "data.workers", "data_loader.num_workers", PLAIN.integer, default=0, beside=("seed", "global_batch_size")
    ),
    build_key(
        "data.prefetch", "data_loader.prefetch_factor", PLAIN.integer, default=2, null=2, beside=("num_workers",)
    ),
    Custom({"data.token_dtype": (split_route("dataset.dtype"),)}, _read_token_dtype, _write_token_dtype),
    Custom({field: (split_route(name),) for field, name in _LAUNCH_KEYS.items()}, _read_launch, refuse_write),
)
