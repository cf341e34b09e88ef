"""The lenses between OLMo-core's settings and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import member_name
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Lens,
    Triple,
    granted,
    refuse_override,
    spelled,
)
from cfglint_train.frameworks.lens_types import UNRESOLVED, Custom, Key, Stated, read_only
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core import activations, checkpoints, parallel
from cfglint_train.frameworks.olmo_core.model import MODEL
from cfglint_train.frameworks.olmo_core.settings import (
    COLLECTOR,
    before,
    below,
    callback,
    class_name,
    dotted,
    dtype_of,
    find,
    first,
    set_member,
    setting,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_fixed(config: Config) -> Iterator[Triple]:
    """What OLMo-core's trainer does whatever the configuration says."""
    if not isinstance(config.document.node((*config.root, "trainer")), MappingNode):
        return
    origin = Origin("default", note=f"olmo_core {config.release}", framework=config.framework)
    for field, value in _FIXED.items():
        yield field, value, origin


_FIXED: Final[Mapping[Field, Any]] = {
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
    """Fine-tuning masks labels; frozen parameters leave open how much is trained."""
    masks = first(config, "dataset.label_mask_paths")
    if masks is not None and masks[0] is not None:
        yield "method.stage", "sft", masks[1]
    elif find(config, ("dataset", "label_mask_paths")) is not UNRESOLVED or "dataset" not in _sections(config):
        yield "method.stage", "pretrain", granted(config, ("dataset", "label_mask_paths"))
    frozen = find(config, ("model", "freeze_params"))
    if isinstance(frozen, Stated) and frozen.value:
        note = "which parameters `freeze_params` leaves trained is not derived"
        yield "method.tuning", None, frozen.origin._replace(note=note, beyond=True)
    elif frozen is not UNRESOLVED or _is_preset(config):
        yield "method.tuning", "full", granted(config, ("model", "freeze_params"))


def _sections(config: Config) -> tuple[str, ...]:
    root = config.document.node(config.root) if config.root else config.document.root
    return tuple(root.index) if isinstance(root, MappingNode) else ()


def _is_preset(config: Config) -> bool:
    return isinstance(config.value("model", "_FACTORY_"), str)


# optim/*.py: class -> name, how the step runs by default, bits of the state (None: the weights').
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


def _optimizer_route(config: Config) -> Route:
    return ("train_module", "optim") if config.has("train_module", "optim") else ("optim",)


def _read_optimizer(config: Config) -> Iterator[Triple]:
    route = _optimizer_route(config)
    name = class_name(config, route)
    if not name:
        return
    origin = config.origin(*route)
    yield "optimizer.stated_name", name, origin
    yield "optimizer.paged", False, origin
    if name not in _OPTIMIZERS:
        return
    meaning, implementation = _OPTIMIZERS[name]
    yield "optimizer.name", meaning, origin
    fused, foreach = find(config, (*route, "fused")), find(config, (*route, "foreach"))
    if isinstance(fused, Stated) and fused.value is True:
        yield "optimizer.implementation", "fused", fused.origin
    elif isinstance(foreach, Stated) and foreach.value is False:
        yield "optimizer.implementation", "single", foreach.origin
    elif name == "SkipStepAdamWConfig" and before(config, "2.2.0"):
        yield "optimizer.implementation", "single", granted(config, (*route, "foreach"))
    else:
        yield "optimizer.implementation", implementation, granted(config, (*route, "foreach"))
    dtype = first(config, spelled((*route, "dtype")))
    bits = {"fp32": 32, "bf16": 16, "fp16": 16}.get(dtype_of(dtype) or "")
    if dtype is not None and bits is not None:
        yield "optimizer.state_bits", bits, dtype[1]


_MICRO: Final = ("train_module.rank_microbatch_size", "trainer.rank_microbatch_size")

_GLOBAL: Final = "data_loader.global_batch_size"

_LENGTH: Final = ("train_module.max_sequence_length", "dataset.sequence_length")


def _number(config: Config, *names: str) -> tuple[int, Origin] | None:
    found = first(config, *names)
    if found is None:
        return None
    number = PLAIN.integer.readable(found[0])
    return None if number is None else (number, found[1])


def _length(config: Config) -> int | None:
    found = _number(config, *_LENGTH)
    return found[0] if found is not None and found[0] > 0 else None


def _read_length(config: Config) -> Iterator[Triple]:
    found = _number(config, *_LENGTH)
    if found is not None:
        yield "sequence.length", *found
    data = _number(config, "dataset.sequence_length")
    if data is not None:
        yield "sequence.dataset_length", *data


def _sequences(field: Field, *names: str) -> Custom:
    """A batch size that the configuration states in tokens."""

    def read(config: Config) -> Iterator[Triple]:
        found, length = _number(config, *names), _length(config)
        stated = first(config, *names)
        if found is not None and length is not None:
            tokens, origin = found
            sequences = tokens // length if tokens > 0 and tokens % length == 0 else None
            yield field, sequences, origin
        elif stated is not None:
            yield field, None, stated[1]

    def write(config: Config, changes: Changes) -> list[Change]:
        length = _length(config)
        if length is None:
            raise CannotEdit("the sequence length, in whose multiples it is stated, cannot be determined")
        route = next((dotted(name) for name in names if config.has(*dotted(name))), dotted(names[0]))
        refuse_override(config, route)
        return [Set(config.root + route, changes[field] * length, ("max_sequence_length",))]

    return Custom({field: tuple(dotted(name) for name in names)}, read, write)


def _read_uneven(config: Config) -> Iterator[Triple]:
    """The batches in tokens that are no whole number of sequences, of releases with a train module (since 2.0)."""
    micro, length = _number(config, _MICRO[0]), _length(config)
    if micro is None or length is None:
        return
    if micro[0] > 0 and micro[0] % length:
        yield "batch.micro_tokens", *micro
    whole = _number(config, _GLOBAL)
    if whole is not None and whole[0] > 0 and whole[0] % length:
        yield "batch.global_tokens", *whole


def _fixed_length(config: Config, changes: Changes) -> list[Change]:
    raise CannotEdit("batch sizes are stated in tokens; a new length changes them all")


_EVALUATORS: Final = ("LMEvaluatorCallbackConfig", "DownstreamEvaluatorCallbackConfig", "EvaluatorCallback")


def _read_eval(config: Config) -> Iterator[Triple]:
    callbacks = config.document.node((*config.root, "trainer", "callbacks"))
    off = first(config, "trainer.no_evals")
    if off is not None and off[0] is True:
        yield "eval.enabled", False, off[1]
        return
    if not isinstance(callbacks, MappingNode):
        return
    intervals: list[tuple[int, Origin]] = []
    told = not getattr(callbacks, "open", "")
    for name in callbacks.index:
        route = ("trainer", "callbacks", name)
        if class_name(config, route) not in _EVALUATORS:
            continue
        enabled, interval = find(config, (*route, "enabled")), find(config, (*route, "eval_interval"))
        if enabled is UNRESOLVED or interval is UNRESOLVED:
            told = False
        elif not isinstance(enabled, Stated) or enabled.value is not False:
            value = interval.value if isinstance(interval, Stated) else 1000
            origin = interval.origin if isinstance(interval, Stated) else config.origin(*route)
            if type(value) is int:
                intervals.append((value, origin))
    if intervals:
        least, origin = min(intervals, key=lambda pair: pair[0])
        yield "eval.enabled", True, origin
        yield "eval.strategy", "steps", origin
        yield "eval.interval", least, origin
    elif told:
        yield "eval.enabled", False, config.origin("trainer", "callbacks")
        yield "eval.strategy", "no", config.origin("trainer", "callbacks")


def _read_profiler(config: Config) -> Iterator[Triple]:
    route = callback("ProfilerCallback", name="profiler")(config)
    if route is None:
        return
    if config.document.node((*config.root, *route)) is None:
        yield "logging.profiler", False, granted(config, route)
        return
    enabled = find(config, (*route, "enabled"))
    if enabled is not UNRESOLVED:
        on = not isinstance(enabled, Stated) or enabled.value is True
        yield "logging.profiler", on, config.origin(*route)


def _read_tokens(config: Config) -> Iterator[Triple]:
    """`dtype` of the data set; without it OLMo-core takes the narrowest that holds the tokenizer's vocabulary."""
    stated = first(config, "dataset.dtype")
    if stated is not None and isinstance(stated[0], str):
        yield "data.token_dtype", member_name(stated[0]), stated[1]


def _write_tokens(config: Config, changes: Changes) -> list[Change]:
    member = ("NumpyDatasetDType", changes["data.token_dtype"], "olmo_core.data")
    return set_member(config, dotted("dataset.dtype"), member, ("paths", "tokenizer"))


_LAUNCH: Final[Mapping[Field, str]] = {
    "launch.nodes": "launch.num_nodes",
    "launch.gpus_per_node": "launch.num_gpus",
}


def _read_launch(config: Config) -> Iterator[Triple]:
    for field, key in _LAUNCH.items():
        found = _number(config, key)
        if found is not None and found[0] > 0:
            yield field, *found


LENSES: Final[tuple[Lens, ...]] = (
    Custom(dict.fromkeys(_FIXED, ()), _read_fixed, read_only),
    Custom(
        {"method.stage": (("dataset", "label_mask_paths"),), "method.tuning": (("model", "freeze_params"),)},
        _read_method,
        read_only,
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
        read_only,
    ),
    setting("optimizer.clipping", "train_module.max_grad_norm", PLAIN.number, default=0.0, null=0.0, beside=("optim",)),
    Custom(
        {
            "sequence.length": tuple(map(dotted, _LENGTH)),
            "sequence.dataset_length": (("dataset", "sequence_length"),),
        },
        _read_length,
        _fixed_length,
    ),
    _sequences("batch.micro", *_MICRO),
    _sequences("batch.global_", _GLOBAL),
    Custom(
        {"batch.micro_tokens": (dotted(_MICRO[0]),), "batch.global_tokens": (dotted(_GLOBAL),)}, _read_uneven, read_only
    ),
    *activations.LENSES,
    *checkpoints.LENSES,
    Custom(
        dict.fromkeys(("eval.enabled", "eval.strategy", "eval.interval"), (("trainer", "callbacks"),)),
        _read_eval,
        read_only,
    ),
    setting(
        "logging.metrics_interval",
        "trainer.metrics_collect_interval",
        PLAIN.integer,
        default=5,
        beside=("save_overwrite", "save_folder"),
    ),
    setting(
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
        access=below(COLLECTOR),
    ),
    Custom({"logging.profiler": (("trainer", "callbacks"),)}, _read_profiler, read_only),
    setting("data.workers", "data_loader.num_workers", PLAIN.integer, default=0, beside=("seed", "global_batch_size")),
    setting("data.prefetch", "data_loader.prefetch_factor", PLAIN.integer, default=2, null=2, beside=("num_workers",)),
    Custom({"data.token_dtype": (dotted("dataset.dtype"),)}, _read_tokens, _write_tokens),
    Custom({field: (dotted(name),) for field, name in _LAUNCH.items()}, _read_launch, read_only),
)
