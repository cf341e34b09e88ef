"""FSDP under the Trainer: `fsdp` and `fsdp_config`, and their effect in accelerate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.loaders import ACCELERATE
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

# accelerate also accepts the position in this list, counted from 1 (utils/constants.py).
SHARDING_STRATEGIES: Final = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
STATE_DICTS: Final[Mapping[str, str]] = {
    "FULL_STATE_DICT": "full",
    "SHARDED_STATE_DICT": "sharded",
    "LOCAL_STATE_DICT": "local",
}
FSDP_FIELDS: Final[tuple[Field, ...]] = (
    "parallel.strategy",
    "parallel.sharding",
    "parallel.reshard_after_forward",
    "parallel.offload_params",
    "parallel.offload_optimizer",
    "parallel.wrapping",
    "parallel.use_orig_params",
    "parallel.cpu_efficient_loading",
    "checkpoint.state_dict",
)


def is_resharding(sharding: str | None) -> bool | None:
    """Return whether full weights are freed between forward and backward pass, or None if `sharding` is None."""
    return None if sharding is None else sharding in ("full_shard", "hybrid_shard")


def yield_sharding(sharding: str | None, version: int, origin: Origin) -> Iterator[Triple]:
    """Yield sharding strategy and resharding. FSDP1 sets the strategy, FSDP2 sets resharding; the other is derived."""
    derived_origin = Origin(
        "inferred", origin.place, "sharding strategy and reshard_after_forward set the same thing", origin.key
    )
    yield "parallel.sharding", sharding, origin if version == 1 else derived_origin
    yield "parallel.reshard_after_forward", is_resharding(sharding), derived_origin if version == 1 else origin


def yield_offload(device: str, origin: Origin) -> Iterator[Triple]:
    """Yield the offload device of weights and optimizer states, which FSDP offloads together."""
    yield "parallel.offload_params", device, origin
    derived_origin = Origin("inferred", origin.place, "FSDP offloads weights and states together", origin.key)
    yield "parallel.offload_optimizer", device, derived_origin


def get_default_state_dict(version: int) -> str:
    """Return the default state dict type of an FSDP version (FullyShardedDataParallelPlugin.set_state_dict_type)."""
    return "full" if version == 1 else "sharded"


def get_fsdp_setting(config: Config, name: str) -> Any:
    """Return a key of `fsdp_config`, with or without the prefix `fsdp_`, or None if it is not stated."""
    section = config.get("fsdp_config")
    if not isinstance(section, dict):
        return None
    stated = section.get(f"fsdp_{name}")
    return section.get(name) if stated is None else stated


def read_fsdp_flag(config: Config, name: str, default: bool) -> bool:
    """Return a boolean key of `fsdp_config`, parsed like `str_to_bool(str(value))`, or `default`."""
    value = get_fsdp_setting(config, name)
    flag = None if value is None else ACCELERATE.boolean.read_or_none(value)
    return default if flag is None else flag


def _list_fsdp_options(config: Config) -> list[str]:
    stated = config.get("fsdp")
    if stated is True:
        return ["full_shard"]
    words = stated.split() if isinstance(stated, str) else stated if isinstance(stated, list) else []
    return [word.lower() for word in words if isinstance(word, str)]


def is_wrapping_blocks(config: Config) -> bool:
    """Return whether the Trainer's own settings make FSDP wrap each transformer layer."""
    return bool(_list_fsdp_options(config)) and _get_wrapping(config) == "block"


POLICIES: Final = {"TRANSFORMER_BASED_WRAP": "block", "SIZE_BASED_WRAP": "size", "NO_WRAP": "root"}
"""Wrapping that each of accelerate's policies means."""


def _has_default_policy(config: Config) -> bool:
    """Return whether the default policy wraps layers, as of transformers 5.10.

    Up to 5.9, there is none (`training_args.py` of 5.9.0 and 5.10.1, _process_fsdp_args).
    """
    release = config.releases.get("transformers")
    return release is not None and parse_release(release) >= parse_release("5.10")


def _get_wrapping(config: Config) -> str | None:
    if _has_default_policy(config):
        return POLICIES.get(str(get_fsdp_setting(config, "auto_wrap_policy") or "TRANSFORMER_BASED_WRAP"))
    if "auto_wrap" not in _list_fsdp_options(config):
        return "root"
    return "size" if get_fsdp_setting(config, "min_num_params") else "block"


def _read_fsdp(config: Config) -> Iterator[Triple]:
    options = _list_fsdp_options(config)
    if not options:
        return
    origin = config.get_origin("fsdp")
    stated_version = get_fsdp_setting(config, "version")
    version = 1 if stated_version is None else ACCELERATE.integer.read_or_none(stated_version)
    if isinstance(config.get("fsdp_config"), str):  # a separate file
        yield "parallel.strategy", None, config.get_origin("fsdp_config")
        return
    if version not in (1, 2):  # accelerate rejects any other version
        yield "parallel.strategy", None, origin
        return
    yield "parallel.strategy", f"fsdp{version}", origin
    sharding: str | None = next((name for name in SHARDING_STRATEGIES if name in options), "full_shard")
    resharding = get_fsdp_setting(config, "reshard_after_forward")
    if version == 2:
        keeps_weights = (
            sharding == "shard_grad_op"
            if resharding is None
            else not read_fsdp_flag(config, "reshard_after_forward", True)
        )
        sharding = "shard_grad_op" if keeps_weights else "full_shard"
    elif resharding is not None:
        sharding = (
            resharding.lower() if isinstance(resharding, str) and resharding.lower() in SHARDING_STRATEGIES else None
        )
    yield from yield_sharding(sharding, version, origin)
    yield from yield_offload("cpu" if "offload" in options else "none", origin)
    wrapping = _get_wrapping(config)
    is_default = wrapping == "root" and get_fsdp_setting(config, "auto_wrap_policy") is None
    yield (
        ("parallel.wrapping", None, build_default_origin(config, ("fsdp",)))  # the launcher may set a policy
        if is_default
        else ("parallel.wrapping", wrapping, origin)
    )
    yield "parallel.use_orig_params", version == 2 or read_fsdp_flag(config, "use_orig_params", True), origin
    loads_on_rank_0 = read_fsdp_flag(config, "cpu_ram_efficient_loading", False)
    yield "parallel.cpu_efficient_loading", loads_on_rank_0, _find_flag_origin(config, "cpu_ram_efficient_loading")
    # `state_dict_type` is read from the environment, not from the file.
    yield "checkpoint.state_dict", get_default_state_dict(version), origin


def _find_flag_origin(config: Config, name: str) -> Origin:
    """Return the origin of a key of `fsdp_config`, with or without its prefix, or that of its default."""
    routes = list_fsdp_routes(f"fsdp_config.{name}")
    stated = next((route for route in routes if config.has(*route)), None)
    return build_default_origin(config, routes[0]) if stated is None else config.get_origin(*stated)


def set_fsdp_key(config: Config, name: str, value: bool | str, prefixed: bool = False) -> Change:
    """Return the edit that sets a key of `fsdp_config`; `prefixed`: write a new key with the prefix `fsdp_`."""
    is_prefixed = config.has("fsdp_config", f"fsdp_{name}") or (prefixed and not config.has("fsdp_config", name))
    route = ("fsdp_config", f"fsdp_{name}" if is_prefixed else name)
    refuse_override(config, route)
    return Set((*config.root, *route), value)


def _set_if_off(config: Config, name: str) -> list[Change]:
    return [] if read_fsdp_flag(config, name, True) else [set_fsdp_key(config, name, True)]


def _write_fsdp(config: Config, changes: Changes) -> list[Change]:
    """Return the edits for loading on one rank or for the wrapping.

    The wrapping is a policy in `fsdp_config`, or the option `auto_wrap` before transformers 5.10.
    """
    stated, wrapping = config.get("fsdp"), changes.get("parallel.wrapping")
    if not _list_fsdp_options(config):
        raise CannotEdit("the Trainer's own settings do not use FSDP")
    if dict(changes) == {"parallel.cpu_efficient_loading": True} and not isinstance(config.get("fsdp_config"), str):
        return [set_fsdp_key(config, "cpu_ram_efficient_loading", True), *_set_if_off(config, "sync_module_states")]
    if len(changes) == 1 and _has_default_policy(config):
        policy = next((policy for policy, meaning in POLICIES.items() if meaning == wrapping), None)
        if policy is not None and not isinstance(config.get("fsdp_config"), str):
            return [set_fsdp_key(config, "auto_wrap_policy", policy)]
    elif dict(changes) == {"parallel.wrapping": "block"} and isinstance(stated, str | list):
        refuse_override(config, ("fsdp",))
        options = f"{stated} auto_wrap" if isinstance(stated, str) else [*stated, "auto_wrap"]
        return [Set((*config.root, "fsdp"), options)]
    raise CannotEdit("the other FSDP settings of the Trainer are not rewritten automatically")


FSDP_LENS: Final = Custom(
    {**dict.fromkeys(FSDP_FIELDS, (("fsdp",), ("fsdp_config",))), "checkpoint.state_dict": ()}, _read_fsdp, _write_fsdp
)
"""Lens of `fsdp` and `fsdp_config` in TrainingArguments."""


def infer_fsdp(job: Job) -> None:
    """Infer the wrapping, the reduction format, the size of a shard group, and the number of replicas.

    accelerate's plugin reads the policy that the launcher exports if the Trainer passes none (0.26.0 and 1.15.0
    `utils/launch.py`, prepare_multi_gpu_env; `utils/dataclasses.py`, FullyShardedDataParallelPlugin).
    """
    reading = job.plan
    if reading.get("parallel.strategy") not in FSDP:
        return
    reading.infer("parallel.wrapping", "root", "accelerate's default policy is NO_WRAP")
    plan = reading.build_plan()
    # accelerate's set_mixed_precision reduces in the compute format; without autocast, gradients keep their format.
    reduce_format = (
        plan.precision.compute if plan.precision.autocast else plan.precision.params or plan.precision.compute
    )
    reading.infer("parallel.communication", reduce_format, "accelerate reduces in the mixed-precision dtype")
    if plan.world_size is None or plan.launch.gpus_per_node is None:
        return
    ranks = max(1, plan.world_size // ((plan.parallel.tensor or 1) * (plan.parallel.pipeline or 1)))
    sharding = plan.parallel.sharding
    if sharding in ("hybrid_shard", "hybrid_shard_zero2"):
        reading.infer(
            "parallel.shard_size", min(ranks, plan.launch.gpus_per_node), "hybrid sharding shards within a node"
        )
    elif sharding == "no_shard":
        reading.infer("parallel.shard_size", 1, "nothing is sharded")
    elif sharding is not None:
        replicas = plan.parallel.replicas or 1
        reading.infer("parallel.shard_size", max(1, ranks // replicas), "all data-parallel ranks")
    size = reading.get("parallel.shard_size")
    if size and reading.is_stated("parallel.shard_size"):
        # Context-parallel ranks (accelerate's dp_shard_cp mesh) and axolotl's expert-parallel ranks shard states, too.
        size *= (plan.parallel.context or 1) * (plan.parallel.expert or 1)
    if size:
        reading.infer("parallel.replicas", max(1, ranks // size), "the ranks beyond one shard group")


def infer_deferred_reduction(job: Job) -> None:
    """Infer whether gradient reduction is deferred to the last micro batch.

    The Trainer runs every micro batch except the last under `no_sync`, unless `sync_each_batch` is set (trainer.py).
    Under FSDP, unsharded gradients then stay on every rank between micro batches.
    """
    reading = job.plan
    if reading.get("parallel.strategy") in FSDP:
        syncs_each_batch = job.main.get("accelerator_config", "gradient_accumulation_kwargs", "sync_each_batch") is True
        syncs_each_batch = syncs_each_batch and _is_sync_each_batch_read(job)
        reading.infer(
            "parallel.defers_reduction", not syncs_each_batch, "accelerate uses no_sync until the last micro batch"
        )


def _is_sync_each_batch_read(job: Job) -> bool:
    """Return whether the Trainer reads `sync_each_batch`.

    Before 4.46.2, the Trainer uses `Accelerator.accumulate`, which reads the key. From 4.46.2 on, it calls `no_sync`
    itself for every micro batch except the last, and reads the key only from 5.2 on (`trainer.py` of 4.46.1, 4.46.2,
    5.1.0 and 5.2.0).
    """
    release = job.releases.get("transformers")
    return release is None or not parse_release("4.46.2") <= parse_release(release) < parse_release("5.2")


def is_upcasting_frozen(job: Job) -> bool:
    """Return whether accelerate casts even frozen weights to fp32 for FSDP2, as releases 1.6 to 1.12 do.

    1.13 selects the trained weights but drops the result. From 1.14 on, only trained weights are cast
    (`utils/fsdp_utils.py`).
    """
    release = job.releases.get("accelerate")
    return release is not None and parse_release("1.6") <= parse_release(release) < parse_release("1.13")


def is_upcasting_trained(job: Job) -> bool:
    """Return whether accelerate casts trained weights to fp32 for FSDP with mixed precision.

    1.13 assigns the upcast weights of FSDP2 to a local name and so drops them; 1.12 and 1.14 cast them.
    """
    release = job.releases.get("accelerate")
    is_dropped = release is not None and parse_release("1.13") <= parse_release(release) < parse_release("1.14")
    strategy = job.plan.get("parallel.strategy")
    has_autocast = bool(job.plan.get("precision.autocast"))
    return strategy in FSDP and has_autocast and not (strategy == "fsdp2" and is_dropped)


def list_fsdp_routes(name: str) -> tuple[Route, ...]:
    """Return the routes of a setting; keys in `fsdp_config` may have the prefix `fsdp_`.

    Source: transformers 5.8.0 training_args.py.
    """
    route: Route = tuple(name.split("."))
    if len(route) == 2 and route[0] == "fsdp_config" and route[1] != "fsdp_version":
        return route, (route[0], f"fsdp_{route[1]}")
    return (route,)
