"""The lenses between accelerate's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.accelerate.settings import deepspeed_key, distributed_type, names_file
from cfglint_train.frameworks.deepspeed import lenses as deepspeed
from cfglint_train.frameworks.hf_trainer import fsdp
from cfglint_train.frameworks.hf_trainer.wrapping import wrapping
from cfglint_train.frameworks.lens import Changes, Config, Triple, granted, refuse_override
from cfglint_train.frameworks.lens_types import NOT_STATED, PLAIN, Custom, Found, find, read_only
from cfglint_train.frameworks.loaders import ACCELERATE
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _whole(config: Config, *route: str) -> int | None:
    value = config.get(*route)
    return None if value is None else ACCELERATE.integer.readable(value)


def _origin(config: Config, *route: str) -> Origin:
    return config.origin(*route) if config.get(*route) is not None else granted(config, route)


def _read_launch(config: Config) -> Iterator[Triple]:
    if distributed_type(config) in ("XLA", "TPU", "MULTI_CPU") or config.get("use_cpu") is True:
        return
    nodes = 1 if config.get("num_machines") is None else _whole(config, "num_machines")
    if nodes is None or nodes < 1:
        return
    processes = _whole(config, "num_processes")
    if processes is None and not config.has("num_processes") and distributed_type(config) == "NO":
        processes = 1
    yield "launch.nodes", nodes, _origin(config, "num_machines")
    # -1 is "given on the command line".
    if processes is not None and processes >= 1:
        even = processes % nodes == 0
        yield "launch.gpus_per_node", processes // nodes if even else None, _origin(config, "num_processes")


def _read_meets(config: Config) -> Iterator[Triple]:
    """DeepSpeed's own launcher, which accelerate starts unless the launcher is "standard", finds the first host itself.

    Nothing is known of a file without a rank: all nodes have the same one, and the launch gives what differs.
    Source: accelerate 1.15.0 utils/launch.py (prepare_multi_gpu_env, prepare_deepspeed_cmd_env), 1.11.0
    commands/config/config_args.py (machine_rank is 0 unless given), commands/config/cluster.py (always asked for).
    """
    if config.get("main_process_ip") is not None:
        yield "launch.meets", True, config.origin("main_process_ip")
    elif config.get("machine_rank") is None:
        return
    elif distributed_type(config) != "DEEPSPEED" or config.value(*_MULTINODE) == "standard":
        yield "launch.meets", False, _origin(config, "num_machines")._replace(key="main_process_ip")


_MULTINODE: Final = deepspeed_key("deepspeed_multinode_launcher")

_STRATEGIES: Final = {"DEEPSPEED": "zero", "NO": "none"}


def _read_strategy(config: Config) -> Iterator[Triple]:
    stated = distributed_type(config)
    if stated == "FSDP":
        version = _fsdp_version(config)
        strategy = None if version is None else f"fsdp{version}"
    elif stated.startswith("MULTI_") and stated != "MULTI_CPU":
        strategy = "ddp"
    else:
        strategy = _STRATEGIES.get(stated)
    yield "parallel.strategy", strategy, _origin(config, "distributed_type")


def _fsdp_version(config: Config) -> int | None:
    stated = fsdp.fsdp_setting(config, "version")
    version = 1 if stated is None else ACCELERATE.integer.readable(stated)
    return version if version in (1, 2) else None


def _fsdp_origin(config: Config, name: str) -> Origin:
    for key in (f"fsdp_{name}", name):
        if config.get("fsdp_config", key) is not None:
            return config.origin("fsdp_config", key)
    return granted(config, ("fsdp_config", f"fsdp_{name}"))


def _numbered(value: Any, names: tuple[str, ...]) -> str | None:
    """A choice by its name, or by its place in the list, counted from 1."""
    text = str(value).lower()
    return text if text in names else {str(place): name for place, name in enumerate(names, 1)}.get(text)


_POLICIES: Final = {"TRANSFORMER_BASED_WRAP": "block", "SIZE_BASED_WRAP": "size", "NO_WRAP": "root"}

# torch.distributed.fsdp.StateDictType, in its order.
_STATE_DICTS: Final = ("full_state_dict", "local_state_dict", "sharded_state_dict")


def _read_fsdp(config: Config) -> Iterator[Triple]:
    version = _fsdp_version(config)
    if version is None:
        return
    if version == 1:
        # The launcher always hands a strategy over, so that `reshard_after_forward` has no say.
        stated = fsdp.fsdp_setting(config, "sharding_strategy")
        sharding = "full_shard" if stated is None else _numbered(stated, fsdp.SHARDING)
        origin = _fsdp_origin(config, "sharding_strategy")
    else:
        keeps = not fsdp.fsdp_flag(config, "reshard_after_forward", True)
        sharding = "shard_grad_op" if keeps else "full_shard"
        origin = _fsdp_origin(config, "reshard_after_forward")
    yield from fsdp.sharded(sharding, version, origin)
    offloads = fsdp.fsdp_flag(config, "offload_params", False)
    yield from fsdp.offloaded("cpu" if offloads else "none", _fsdp_origin(config, "offload_params"))
    policy = fsdp.fsdp_setting(config, "auto_wrap_policy")
    wrapping = "root" if policy is None else _POLICIES.get(str(policy).upper())
    if wrapping == "size" and fsdp.fsdp_setting(config, "min_num_params") == 0:
        wrapping = "root"
    yield "parallel.wrapping", wrapping, _fsdp_origin(config, "auto_wrap_policy")
    if version == 1:
        originals = fsdp.fsdp_flag(config, "use_orig_params", True)
        yield "parallel.use_orig_params", originals, _fsdp_origin(config, "use_orig_params")
    efficient = fsdp.fsdp_flag(config, "cpu_ram_efficient_loading", True)
    yield "parallel.cpu_efficient_loading", efficient, _fsdp_origin(config, "cpu_ram_efficient_loading")
    form = fsdp.fsdp_setting(config, "state_dict_type")
    name = None if form is None else _numbered(form, _STATE_DICTS)
    state_dict = fsdp.default_state_dict(version) if form is None else name and name.split("_")[0]
    yield "checkpoint.state_dict", state_dict, _fsdp_origin(config, "state_dict_type")
    if fsdp.fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", _fsdp_origin(config, "activation_checkpointing")
        yield "activations.reentrant", False, _fsdp_origin(config, "activation_checkpointing")


_RANKS: Final[Mapping[Field, str]] = {
    "parallel.shard_size": "dp_shard_size",
    "parallel.replicas": "dp_replicate_size",
    "parallel.tensor": "tp_size",
    "parallel.context": "cp_size",
}


def _read_ranks(config: Config) -> Iterator[Triple]:
    if not isinstance(config.get("parallelism_config"), dict) or not config.get("parallelism_config"):
        return
    for field, name in _RANKS.items():
        route = ("parallelism_config", f"parallelism_config_{name}")
        size = _whole(config, *route)
        if size is not None and size >= 1:
            yield field, size, config.origin(*route)


_DEVICES: Final = ("none", "cpu", "nvme")


def _read_deepspeed(config: Config) -> Iterator[Triple]:
    if names_file(config):
        return
    stage = 2 if config.get(*deepspeed_key("zero_stage")) is None else _whole(config, *deepspeed_key("zero_stage"))
    known = stage if stage in (0, 1, 2, 3) else None
    yield "parallel.zero_stage", known, _origin(config, *deepspeed_key("zero_stage"))
    for field in _OFFLOADS:
        key = _DS_KEYS[field]
        device = str(config.get(*deepspeed_key(key), default="none")).lower()
        yield field, device if device in _DEVICES else None, _origin(config, *deepspeed_key(key))
    gather = config.get(*deepspeed_key("zero3_save_16bit_model"))
    yield "checkpoint.gather", str(gather).lower() == "true", _origin(config, *deepspeed_key("zero3_save_16bit_model"))
    # The file that the plugin makes of these keys states nothing else, so that DeepSpeed's own defaults hold.
    note = f"DeepSpeed {deepspeed.release_of(config)}: accelerate's own DeepSpeed settings leave it out"
    for left_out, value in deepspeed.DEFAULTS.items():
        if left_out != "checkpoint.gather":
            yield left_out, value, Origin("default", note=note)
    yield _PINS, deepspeed.pins_unasked(config), Origin("default", note=note)
    steps = _whole(config, *deepspeed_key("gradient_accumulation_steps"))
    if steps is not None and steps >= 1:
        yield "batch.accumulation", steps, config.origin(*deepspeed_key("gradient_accumulation_steps"))
    clipping = config.get(*deepspeed_key("gradient_clipping"))
    if clipping is not None:
        known = ACCELERATE.number.readable(clipping)
        yield "optimizer.clipping", known, config.origin(*deepspeed_key("gradient_clipping"))
    if config.get(*deepspeed_key("deepspeed_moe_layer_cls_names")):
        yield "parallel.leaf_modules", True, config.origin(*deepspeed_key("deepspeed_moe_layer_cls_names"))


def _read_sharding(config: Config) -> Iterator[Triple]:
    if distributed_type(config) == "FSDP":
        yield from _read_fsdp(config)
    elif distributed_type(config) == "DEEPSPEED":
        yield from _read_deepspeed(config)


def _read_precision(config: Config) -> Iterator[Triple]:
    # "no" leaves the format to the script.
    stated = config.get("mixed_precision")
    if stated in ("bf16", "fp16", "fp8"):
        yield "precision.compute", stated, config.origin("mixed_precision")
        yield "precision.autocast", True, config.origin("mixed_precision")


def _read_compile(config: Config) -> Iterator[Triple]:
    for route in (("dynamo_config", "dynamo_backend"), ("dynamo_backend",)):
        backend = config.get(*route)
        if isinstance(backend, str) and backend.upper() != "NO":
            yield "activations.compile", True, config.origin(*route)
            return


_OFFLOADS: Final[tuple[Field, ...]] = ("parallel.offload_optimizer", "parallel.offload_params")
_PINS: Final[Field] = "parallel.pin_memory"
_DS_KEYS: Final[Mapping[Field, str]] = {
    "parallel.zero_stage": "zero_stage",
    "parallel.offload_optimizer": "offload_optimizer_device",
    "parallel.offload_params": "offload_param_device",
    "checkpoint.gather": "zero3_save_16bit_model",
    "batch.accumulation": "gradient_accumulation_steps",
    "optimizer.clipping": "gradient_clipping",
}

_FSDP_KEYS: Final[Mapping[Field, tuple[str, Mapping[Any, Any]]]] = {
    "checkpoint.state_dict": ("state_dict_type", {v: k for k, v in fsdp.STATE_DICTS.items()}),
    "parallel.wrapping": ("auto_wrap_policy", {v: k for k, v in _POLICIES.items()}),
    "parallel.offload_params": ("offload_params", {"cpu": True, "none": False}),
    "parallel.cpu_efficient_loading": ("cpu_ram_efficient_loading", {True: True, False: False}),
    "parallel.use_orig_params": ("use_orig_params", {True: True, False: False}),
}


def _write_sharding(config: Config, changes: Changes) -> list[Change]:
    if distributed_type(config) == "DEEPSPEED":
        return [_write_deepspeed(config, field, value) for field, value in changes.items()]
    if distributed_type(config) == "FSDP" and _fsdp_version(config) is not None:
        written = [_write_fsdp(config, field, value) for field, value in changes.items()]
        return [*written, *_broadcast(config, changes)]
    raise CannotEdit(f"distributed_type {distributed_type(config) or 'unknown'} has no such setting")


def _write_deepspeed(config: Config, field: Field, value: Any) -> Change:
    if names_file(config):
        raise CannotEdit("the settings are in deepspeed_config_file")
    if field not in _DS_KEYS:
        raise CannotEdit("accelerate's own DeepSpeed settings have no key for it; a deepspeed_config_file has")
    if value == "nvme" and not config.get(*deepspeed_key(f"{_DS_KEYS[field].removesuffix('_device')}_nvme_path")):
        raise CannotEdit("offloading to NVMe needs a path, which cannot be chosen automatically")
    refuse_override(config, deepspeed_key(_DS_KEYS[field]))
    return Set((*config.root, *deepspeed_key(_DS_KEYS[field])), value, ("zero_stage",))


def _broadcast(config: Config, changes: Changes) -> Iterator[Change]:
    """That the weights are broadcast, without which one process may not read them for all.

    Source: accelerate 1.12.0 utils/launch.py (prepare_multi_gpu_env).
    """
    if changes.get("parallel.cpu_efficient_loading") is True:
        for route in _fsdp_names("sync_module_states"):
            if config.get(*route) is False:
                refuse_override(config, route)
                yield Set((*config.root, *route), True)


def _write_fsdp(config: Config, field: Field, value: Any) -> Change:
    version = _fsdp_version(config)
    if field == "parallel.sharding" and version == 1 and value in fsdp.SHARDING:
        key, spelled = "sharding_strategy", value.upper()
    elif field == "parallel.reshard_after_forward" and version == 2:
        key, spelled = "reshard_after_forward", value
    elif field in _FSDP_KEYS and value in _FSDP_KEYS[field][1]:
        key, spelled = _FSDP_KEYS[field][0], _FSDP_KEYS[field][1][value]
        if field == "parallel.use_orig_params" and version == 2:
            raise CannotEdit("FSDP2 always keeps the original parameters")
        if value == "local" and version == 2:
            raise CannotEdit("FSDP2 has no local state dict")
    else:
        raise CannotEdit("accelerate has no single key for that")
    bare = config.has("fsdp_config", key) and not config.has("fsdp_config", f"fsdp_{key}")
    name = key if bare else f"fsdp_{key}"
    refuse_override(config, ("fsdp_config", name))
    return Set((*config.root, "fsdp_config", name), spelled)


def _find(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, Found]:
    """The first spelling in the section that the distributed type uses."""
    section = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config"}.get(distributed_type(config))
    own = tuple(route for route in names if route[0] == section)
    return find(config, own) if own else (None, NOT_STATED)


def _fsdp_names(key: str) -> tuple[Route, ...]:
    return ("fsdp_config", f"fsdp_{key}"), ("fsdp_config", key)


def _sharding_keys() -> Mapping[Field, tuple[Route, ...]]:
    """The keys of FSDP and of DeepSpeed by field."""
    keys: dict[Field, tuple[Route, ...]] = {
        "parallel.sharding": _fsdp_names("sharding_strategy"),
        "parallel.reshard_after_forward": _fsdp_names("reshard_after_forward"),
        "parallel.offload_optimizer": _fsdp_names("offload_params"),
        "activations.checkpointing": _fsdp_names("activation_checkpointing"),
        "activations.reentrant": _fsdp_names("activation_checkpointing"),
        "parallel.leaf_modules": (deepspeed_key("deepspeed_moe_layer_cls_names"),),
        **{field: _fsdp_names(key) for field, (key, _) in _FSDP_KEYS.items()},
    }
    for field, key in _DS_KEYS.items():
        keys[field] = (*keys.get(field, ()), deepspeed_key(key))
    for field in (*deepspeed.DEFAULTS, _PINS):
        keys.setdefault(field, ())
    return keys


def _wraps_blocks(config: Config) -> bool:
    """Whether the launch shards by FSDP and wraps the transformer's layers."""
    policy = fsdp.fsdp_setting(config, "auto_wrap_policy")
    return distributed_type(config) == "FSDP" and _POLICIES.get(str(policy).upper()) == "block"


LENSES: Final = (
    Custom(
        {"launch.nodes": (("num_machines",),), "launch.gpus_per_node": (("num_processes",),)}, _read_launch, read_only
    ),
    Custom({"launch.meets": (("main_process_ip",), ("num_machines",))}, _read_meets, read_only),
    Custom({"parallel.strategy": (("distributed_type",), ("fsdp_config", "fsdp_version"))}, _read_strategy, read_only),
    Custom(_sharding_keys(), _read_sharding, _write_sharding, PLAIN._replace(find=_find)),
    wrapping(_wraps_blocks),
    Custom(
        {field: (("parallelism_config", f"parallelism_config_{key}"),) for field, key in _RANKS.items()},
        _read_ranks,
        read_only,
    ),
    Custom(
        dict.fromkeys(("precision.compute", "precision.autocast"), (("mixed_precision",),)), _read_precision, read_only
    ),
    Custom(
        {"activations.compile": (("dynamo_config", "dynamo_backend"), ("dynamo_backend",))}, _read_compile, read_only
    ),
)
