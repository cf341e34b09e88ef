"""Lenses between accelerate's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.accelerate.settings import build_deepspeed_route, get_distributed_type, has_deepspeed_file
from cfglint_train.frameworks.deepspeed import lenses as deepspeed
from cfglint_train.frameworks.hf_trainer import fsdp
from cfglint_train.frameworks.hf_trainer.wrapping import build_wrapping_lens
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin, refuse_override
from cfglint_train.frameworks.lens_types import NOT_STATED, PLAIN, Custom, LookupResult, find_stated, refuse_write
from cfglint_train.frameworks.loaders import ACCELERATE
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_integer(config: Config, *route: str) -> int | None:
    value = config.get(*route)
    return None if value is None else ACCELERATE.integer.read_or_none(value)


def _find_origin(config: Config, *route: str) -> Origin:
    return config.get_origin(*route) if config.get(*route) is not None else build_default_origin(config, route)


def _read_launch(config: Config) -> Iterator[Triple]:
    if get_distributed_type(config) in ("XLA", "TPU", "MULTI_CPU") or config.get("use_cpu") is True:
        return
    nodes = 1 if config.get("num_machines") is None else _read_integer(config, "num_machines")
    if nodes is None or nodes < 1:
        return
    processes = _read_integer(config, "num_processes")
    if processes is None and not config.has("num_processes") and get_distributed_type(config) == "NO":
        processes = 1
    yield "launch.nodes", nodes, _find_origin(config, "num_machines")
    # -1 means that the command line states the number.
    if processes is not None and processes >= 1:
        is_even = processes % nodes == 0
        yield "launch.gpus_per_node", processes // nodes if is_even else None, _find_origin(config, "num_processes")


def _read_rendezvous(config: Config) -> Iterator[Triple]:
    """Yield whether the nodes of a launch can find each other.

    DeepSpeed's launcher, which accelerate starts unless `deepspeed_multinode_launcher` is "standard", finds the first
    host itself. Nothing is yielded without `machine_rank`: all nodes then share the file, and the launch states what
    differs. Source: accelerate 1.15.0 utils/launch.py (prepare_multi_gpu_env, prepare_deepspeed_cmd_env), 1.11.0
    commands/config/config_args.py (machine_rank is 0 by default), commands/config/cluster.py (always prompts for it).
    """
    if config.get("main_process_ip") is not None:
        yield "launch.meets", True, config.get_origin("main_process_ip")
    elif config.get("machine_rank") is None:
        return
    elif get_distributed_type(config) != "DEEPSPEED" or config.get_value(*_MULTINODE_LAUNCHER) == "standard":
        yield "launch.meets", False, _find_origin(config, "num_machines")._replace(key="main_process_ip")


_MULTINODE_LAUNCHER: Final = build_deepspeed_route("deepspeed_multinode_launcher")

_STRATEGIES: Final = {"DEEPSPEED": "zero", "NO": "none"}


def _read_strategy(config: Config) -> Iterator[Triple]:
    stated_type = get_distributed_type(config)
    if stated_type == "FSDP":
        version = _read_fsdp_version(config)
        strategy = None if version is None else f"fsdp{version}"
    elif stated_type.startswith("MULTI_") and stated_type != "MULTI_CPU":
        strategy = "ddp"
    else:
        strategy = _STRATEGIES.get(stated_type)
    yield "parallel.strategy", strategy, _find_origin(config, "distributed_type")


def _read_fsdp_version(config: Config) -> int | None:
    stated = fsdp.get_fsdp_setting(config, "version")
    version = 1 if stated is None else ACCELERATE.integer.read_or_none(stated)
    return version if version in (1, 2) else None


def _find_fsdp_origin(config: Config, name: str) -> Origin:
    for key in (f"fsdp_{name}", name):
        if config.get("fsdp_config", key) is not None:
            return config.get_origin("fsdp_config", key)
    return build_default_origin(config, ("fsdp_config", f"fsdp_{name}"))


def _parse_choice(value: Any, names: tuple[str, ...]) -> str | None:
    """Return the choice that `value` names, by its name or by its 1-based position in `names`, or None."""
    text = str(value).lower()
    return text if text in names else {str(position): name for position, name in enumerate(names, 1)}.get(text)


# The members of torch.distributed.fsdp.StateDictType, in order.
_STATE_DICTS: Final = ("full_state_dict", "local_state_dict", "sharded_state_dict")


def _read_fsdp(config: Config) -> Iterator[Triple]:
    version = _read_fsdp_version(config)
    if version is None:
        return
    if version == 1:
        # The launcher always passes a sharding strategy, so `reshard_after_forward` has no effect.
        stated = fsdp.get_fsdp_setting(config, "sharding_strategy")
        sharding = "full_shard" if stated is None else _parse_choice(stated, fsdp.SHARDING_STRATEGIES)
        origin = _find_fsdp_origin(config, "sharding_strategy")
    else:
        keeps_weights = not fsdp.read_fsdp_flag(config, "reshard_after_forward", True)
        sharding = "shard_grad_op" if keeps_weights else "full_shard"
        origin = _find_fsdp_origin(config, "reshard_after_forward")
    yield from fsdp.yield_sharding(sharding, version, origin)
    is_offloaded = fsdp.read_fsdp_flag(config, "offload_params", False)
    yield from fsdp.yield_offload("cpu" if is_offloaded else "none", _find_fsdp_origin(config, "offload_params"))
    policy = fsdp.get_fsdp_setting(config, "auto_wrap_policy")
    wrapping = "root" if policy is None else fsdp.POLICIES.get(str(policy).upper())
    if wrapping == "size" and fsdp.get_fsdp_setting(config, "min_num_params") == 0:
        wrapping = "root"
    yield "parallel.wrapping", wrapping, _find_fsdp_origin(config, "auto_wrap_policy")
    if version == 1:
        use_orig_params = fsdp.read_fsdp_flag(config, "use_orig_params", True)
        broadcasts_weights = fsdp.read_fsdp_flag(config, "sync_module_states", True)
        yield "parallel.broadcasts_weights", broadcasts_weights, _find_fsdp_origin(config, "sync_module_states")
        yield "parallel.use_orig_params", use_orig_params, _find_fsdp_origin(config, "use_orig_params")
    loads_on_rank_0 = fsdp.read_fsdp_flag(config, "cpu_ram_efficient_loading", True)
    yield "parallel.cpu_efficient_loading", loads_on_rank_0, _find_fsdp_origin(config, "cpu_ram_efficient_loading")
    stated_form = fsdp.get_fsdp_setting(config, "state_dict_type")
    name = None if stated_form is None else _parse_choice(stated_form, _STATE_DICTS)
    state_dict = fsdp.get_default_state_dict(version) if stated_form is None else name and name.split("_")[0]
    yield "checkpoint.state_dict", state_dict, _find_fsdp_origin(config, "state_dict_type")
    if fsdp.read_fsdp_flag(config, "activation_checkpointing", False):
        yield "activations.checkpointing", "full", _find_fsdp_origin(config, "activation_checkpointing")
        yield "activations.reentrant", False, _find_fsdp_origin(config, "activation_checkpointing")


_PARALLEL_KEYS: Final[Mapping[Field, str]] = {
    "parallel.shard_size": "dp_shard_size",
    "parallel.replicas": "dp_replicate_size",
    "parallel.tensor": "tp_size",
    "parallel.context": "cp_size",
}


def _read_parallel_sizes(config: Config) -> Iterator[Triple]:
    if not isinstance(config.get("parallelism_config"), dict) or not config.get("parallelism_config"):
        return
    for field, name in _PARALLEL_KEYS.items():
        route = ("parallelism_config", f"parallelism_config_{name}")
        size = _read_integer(config, *route)
        if size is not None and size >= 1:
            yield field, size, config.get_origin(*route)


_DEVICES: Final = ("none", "cpu", "nvme")


def _read_deepspeed(config: Config) -> Iterator[Triple]:
    if has_deepspeed_file(config):
        return
    stage = (
        2
        if config.get(*build_deepspeed_route("zero_stage")) is None
        else _read_integer(config, *build_deepspeed_route("zero_stage"))
    )
    value_read = stage if stage in (0, 1, 2, 3) else None
    yield "parallel.zero_stage", value_read, _find_origin(config, *build_deepspeed_route("zero_stage"))
    for field in _OFFLOAD_FIELDS:
        key = _DEEPSPEED_KEYS[field]
        device = str(config.get(*build_deepspeed_route(key), default="none")).lower()
        yield field, device if device in _DEVICES else None, _find_origin(config, *build_deepspeed_route(key))
    gather = config.get(*build_deepspeed_route("zero3_save_16bit_model"))
    yield (
        "checkpoint.gather",
        str(gather).lower() == "true",
        _find_origin(config, *build_deepspeed_route("zero3_save_16bit_model")),
    )
    # accelerate's plugin builds a DeepSpeed config from these keys only; DeepSpeed's defaults apply to everything else.
    note = f"DeepSpeed {deepspeed.get_deepspeed_release(config)}: accelerate's own DeepSpeed settings do not include it"
    for field_left_out, value in deepspeed.ZERO_DEFAULTS.items():
        if field_left_out != "checkpoint.gather":
            yield field_left_out, value, Origin("default", note=note)
    yield _PIN_FIELD, deepspeed.is_pinning_by_default(config), Origin("default", note=note)
    steps = _read_integer(config, *build_deepspeed_route("gradient_accumulation_steps"))
    if steps is not None and steps >= 1:
        yield "batch.accumulation", steps, config.get_origin(*build_deepspeed_route("gradient_accumulation_steps"))
    clipping = config.get(*build_deepspeed_route("gradient_clipping"))
    if clipping is not None:
        value_read = ACCELERATE.number.read_or_none(clipping)
        yield "optimizer.clipping", value_read, config.get_origin(*build_deepspeed_route("gradient_clipping"))
    if config.get(*build_deepspeed_route("deepspeed_moe_layer_cls_names")):
        yield "parallel.leaf_modules", True, config.get_origin(*build_deepspeed_route("deepspeed_moe_layer_cls_names"))


def _read_sharding(config: Config) -> Iterator[Triple]:
    if get_distributed_type(config) == "FSDP":
        yield from _read_fsdp(config)
    elif get_distributed_type(config) == "DEEPSPEED":
        yield from _read_deepspeed(config)


def _read_precision(config: Config) -> Iterator[Triple]:
    # "no" leaves the format to the script.
    stated = config.get("mixed_precision")
    if stated in ("bf16", "fp16", "fp8"):
        yield "precision.compute", stated, config.get_origin("mixed_precision")
        yield "precision.autocast", True, config.get_origin("mixed_precision")


def _read_compile(config: Config) -> Iterator[Triple]:
    for route in (("dynamo_config", "dynamo_backend"), ("dynamo_backend",)):
        backend = config.get(*route)
        if isinstance(backend, str) and backend.upper() != "NO":
            yield "activations.compile", True, config.get_origin(*route)
            return


_OFFLOAD_FIELDS: Final[tuple[Field, ...]] = ("parallel.offload_optimizer", "parallel.offload_params")
_PIN_FIELD: Final[Field] = "parallel.pin_memory"
_DEEPSPEED_KEYS: Final[Mapping[Field, str]] = {
    "parallel.zero_stage": "zero_stage",
    "parallel.offload_optimizer": "offload_optimizer_device",
    "parallel.offload_params": "offload_param_device",
    "checkpoint.gather": "zero3_save_16bit_model",
    "batch.accumulation": "gradient_accumulation_steps",
    "optimizer.clipping": "gradient_clipping",
}

_FSDP_KEYS: Final[Mapping[Field, tuple[str, Mapping[Any, Any]]]] = {
    "checkpoint.state_dict": ("state_dict_type", {v: k for k, v in fsdp.STATE_DICTS.items()}),
    "parallel.wrapping": ("auto_wrap_policy", {v: k for k, v in fsdp.POLICIES.items()}),
    "parallel.offload_params": ("offload_params", {"cpu": True, "none": False}),
    "parallel.cpu_efficient_loading": ("cpu_ram_efficient_loading", {True: True, False: False}),
    "parallel.broadcasts_weights": ("sync_module_states", {True: True, False: False}),
    "parallel.use_orig_params": ("use_orig_params", {True: True, False: False}),
}


def _write_sharding(config: Config, changes: Changes) -> list[Change]:
    if get_distributed_type(config) == "DEEPSPEED":
        return [_write_deepspeed(config, field, value) for field, value in changes.items()]
    if get_distributed_type(config) == "FSDP" and _read_fsdp_version(config) is not None:
        edits = [_write_fsdp(config, field, value) for field, value in changes.items()]
        return [*edits, *_broadcast_weights(config, changes)]
    raise CannotEdit(f"distributed_type {get_distributed_type(config) or 'unknown'} has no such setting")


def _write_deepspeed(config: Config, field: Field, value: Any) -> Change:
    if has_deepspeed_file(config):
        raise CannotEdit("the settings are in deepspeed_config_file")
    if field not in _DEEPSPEED_KEYS:
        raise CannotEdit("accelerate's own DeepSpeed settings have no key for it; use a deepspeed_config_file")
    if value == "nvme" and not config.get(
        *build_deepspeed_route(f"{_DEEPSPEED_KEYS[field].removesuffix('_device')}_nvme_path")
    ):
        raise CannotEdit("offloading to NVMe needs a path, which cannot be chosen automatically")
    refuse_override(config, build_deepspeed_route(_DEEPSPEED_KEYS[field]))
    return Set((*config.root, *build_deepspeed_route(_DEEPSPEED_KEYS[field])), value, ("zero_stage",))


def _broadcast_weights(config: Config, changes: Changes) -> Iterator[Change]:
    """Yield the change that turns on weight broadcasting, which cpu_ram_efficient_loading requires.

    Source: accelerate 1.12.0 utils/launch.py (prepare_multi_gpu_env).
    """
    if changes.get("parallel.cpu_efficient_loading") is True:
        for route in _list_fsdp_routes("sync_module_states"):
            if config.get(*route) is False:
                refuse_override(config, route)
                yield Set((*config.root, *route), True)


def _write_fsdp(config: Config, field: Field, value: Any) -> Change:
    version = _read_fsdp_version(config)
    if field == "parallel.sharding" and version == 1 and value in fsdp.SHARDING_STRATEGIES:
        key, spelling = "sharding_strategy", value.upper()
    elif field == "parallel.reshard_after_forward" and version == 2:
        key, spelling = "reshard_after_forward", value
    elif field in _FSDP_KEYS and value in _FSDP_KEYS[field][1]:
        key, spelling = _FSDP_KEYS[field][0], _FSDP_KEYS[field][1][value]
        if field == "parallel.use_orig_params" and version == 2:
            raise CannotEdit("FSDP2 always keeps the original parameters")
        if field == "parallel.broadcasts_weights" and version == 2:
            raise CannotEdit("FSDP2 has no such setting")
        if value == "local" and version == 2:
            raise CannotEdit("FSDP2 has no local state dict")
    else:
        raise CannotEdit("accelerate has no single key for that")
    is_bare = config.has("fsdp_config", key) and not config.has("fsdp_config", f"fsdp_{key}")
    name = key if is_bare else f"fsdp_{key}"
    refuse_override(config, ("fsdp_config", name))
    return Set((*config.root, "fsdp_config", name), spelling)


def _find_in_section(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the first stated route among those in the section that the distributed type uses, with its value."""
    section = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config"}.get(get_distributed_type(config))
    section_routes = tuple(route for route in names if route[0] == section)
    return find_stated(config, section_routes) if section_routes else (None, NOT_STATED)


def _list_fsdp_routes(key: str) -> tuple[Route, ...]:
    return ("fsdp_config", f"fsdp_{key}"), ("fsdp_config", key)


def _list_sharding_keys() -> Mapping[Field, tuple[Route, ...]]:
    """Return the FSDP and DeepSpeed routes of each field; empty for fields that no key sets."""
    keys: dict[Field, tuple[Route, ...]] = {
        "parallel.sharding": _list_fsdp_routes("sharding_strategy"),
        "parallel.reshard_after_forward": _list_fsdp_routes("reshard_after_forward"),
        "parallel.offload_optimizer": _list_fsdp_routes("offload_params"),
        "activations.checkpointing": _list_fsdp_routes("activation_checkpointing"),
        "activations.reentrant": _list_fsdp_routes("activation_checkpointing"),
        "parallel.leaf_modules": (build_deepspeed_route("deepspeed_moe_layer_cls_names"),),
        **{field: _list_fsdp_routes(key) for field, (key, _) in _FSDP_KEYS.items()},
    }
    for field, key in _DEEPSPEED_KEYS.items():
        keys[field] = (*keys.get(field, ()), build_deepspeed_route(key))
    for field in (*deepspeed.ZERO_DEFAULTS, _PIN_FIELD):
        keys.setdefault(field, ())
    return keys


def _is_wrapping_blocks(config: Config) -> bool:
    """Return whether the launch uses FSDP and wraps each transformer layer."""
    policy = fsdp.get_fsdp_setting(config, "auto_wrap_policy")
    return get_distributed_type(config) == "FSDP" and fsdp.POLICIES.get(str(policy).upper()) == "block"


LENSES: Final = (
    Custom(
        {"launch.nodes": (("num_machines",),), "launch.gpus_per_node": (("num_processes",),)},
        _read_launch,
        refuse_write,
    ),
    Custom({"launch.meets": (("main_process_ip",), ("num_machines",))}, _read_rendezvous, refuse_write),
    Custom(
        {"parallel.strategy": (("distributed_type",), ("fsdp_config", "fsdp_version"))}, _read_strategy, refuse_write
    ),
    Custom(_list_sharding_keys(), _read_sharding, _write_sharding, PLAIN._replace(find=_find_in_section)),
    build_wrapping_lens(_is_wrapping_blocks),
    Custom(
        {field: (("parallelism_config", f"parallelism_config_{key}"),) for field, key in _PARALLEL_KEYS.items()},
        _read_parallel_sizes,
        refuse_write,
    ),
    Custom(
        dict.fromkeys(("precision.compute", "precision.autocast"), (("mixed_precision",),)),
        _read_precision,
        refuse_write,
    ),
    Custom(
        {"activations.compile": (("dynamo_config", "dynamo_backend"), ("dynamo_backend",))}, _read_compile, refuse_write
    ),
)
