"""axolotl lenses for FSDP: `fsdp_config` and the older option list `fsdp`."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.axolotl.settings import get_fsdp_setting, read_integer
from cfglint_train.frameworks.hf_trainer.fsdp import set_fsdp_key
from cfglint_train.frameworks.hf_trainer.wrapping import build_wrapping_lens
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
)
from cfglint_train.frameworks.lens_types import Custom


def read_fsdp_version(config: Config) -> int | None:
    """Return the FSDP version, or None without FSDP. The default is 1 up to axolotl 0.19 and 2 from 0.20 on.

    Up to 0.11, only `fsdp` turns FSDP on; from 0.12.0 on, either key does (`utils/trainer.py`, prepare_optim_env).
    """
    if not config.get("fsdp") and (not config.get("fsdp_config") or is_before(config, "0.12.0")):
        return None
    for route in (("fsdp_version",), ("fsdp_config", "fsdp_version"), ("fsdp_config", "version")):
        stated = read_integer(config, *route)
        if stated is not None:
            return stated
    return 1 if is_before(config, "0.20.0") else 2


def has_fsdp(config: Config) -> bool:
    """Return whether axolotl's file itself turns FSDP on.

    If only accelerate's file does, axolotl still reads the sizes of the parallel groups from its own file, and
    rejects them (0.17.0, `utils/distributed.py`, _get_parallel_config_kwargs).
    """
    return read_fsdp_version(config) is not None


def _is_wrapping_blocks(config: Config) -> bool:
    """Return whether FSDP wraps each transformer layer."""
    stated_options = config.get("fsdp")
    options = (
        stated_options.split()
        if isinstance(stated_options, str)
        else stated_options
        if isinstance(stated_options, list)
        else []
    )
    policy = get_fsdp_setting(config, "auto_wrap_policy")
    return read_fsdp_version(config) is not None and (policy == "TRANSFORMER_BASED_WRAP" or "auto_wrap" in options)


_STATE_DICTS: Final = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded", "LOCAL_STATE_DICT": "local"}


def _find_resharding_key(config: Config) -> str:
    """Return the key for resharding as the file spells it, without a prefix by default."""
    has_prefix = config.has("fsdp_config", "fsdp_reshard_after_forward")
    return "fsdp_reshard_after_forward" if has_prefix else "reshard_after_forward"


def _read_fsdp(config: Config) -> Iterator[Triple]:
    version = read_fsdp_version(config)
    if version is None:
        return
    origin = find_origin(config, "fsdp_config", "fsdp")
    stated_options = config.get("fsdp")
    options = (
        stated_options.split()
        if isinstance(stated_options, str)
        else stated_options
        if isinstance(stated_options, list)
        else []
    )
    yield "parallel.strategy", f"fsdp{version}", origin
    sharding = "full_shard"
    if version == 1:
        # From 0.13 on, `sharding_strategy` in fsdp_config is dropped; the option in `fsdp` still works.
        sharding = next(
            (name for name in ("shard_grad_op", "hybrid_shard", "no_shard") if name in options), "full_shard"
        )
        nested_sharding = get_fsdp_setting(config, "sharding_strategy")
        if isinstance(nested_sharding, str) and is_before(config, "0.13.0"):
            sharding = nested_sharding.lower()
    elif get_fsdp_setting(config, "reshard_after_forward") is False:
        sharding = "shard_grad_op"
    yield (
        "parallel.sharding",
        sharding,
        origin if version == 1 else config.get_origin("fsdp_config", _find_resharding_key(config)),
    )
    offload = get_fsdp_setting(config, "offload_params") is True or "offload" in options
    yield "parallel.offload_params", "cpu" if offload else "none", origin
    yield "parallel.offload_optimizer", "cpu" if offload else "none", origin
    policy = get_fsdp_setting(config, "auto_wrap_policy")
    wrapping = "block" if _is_wrapping_blocks(config) else "size" if policy == "SIZE_BASED_WRAP" else "root"
    is_default = wrapping == "root" and policy is None
    yield (
        ("parallel.wrapping", None, build_default_origin(config, ("fsdp_config", "auto_wrap_policy")))
        if is_default  # the launcher may set a policy
        else ("parallel.wrapping", wrapping, origin)
    )
    yield "parallel.cpu_efficient_loading", get_fsdp_setting(config, "cpu_ram_efficient_loading") is True, origin
    state = get_fsdp_setting(config, "state_dict_type") or "FULL_STATE_DICT"
    yield "checkpoint.state_dict", _STATE_DICTS.get(str(state)), origin


def _has_prefix(config: Config) -> bool:
    """Return whether new keys of `fsdp_config` have the prefix `fsdp_`.

    Before 0.12.0, axolotl reads them only with the prefix (`utils/trainer.py`, setup_fsdp_envs).
    """
    section = config.get("fsdp_config")
    is_used = isinstance(section, dict) and any(str(key).startswith("fsdp_") for key in section)
    return is_before(config, "0.12.0") or is_used


def _write_fsdp(config: Config, changes: Changes) -> list[Change]:
    if set(changes) == {"checkpoint.state_dict"} and read_fsdp_version(config) is not None:
        name = next(name for name, meaning in _STATE_DICTS.items() if meaning == changes["checkpoint.state_dict"])
        has_prefix = config.has("fsdp_config", "fsdp_state_dict_type")
        return [Set((*config.root, "fsdp_config", "fsdp_state_dict_type" if has_prefix else "state_dict_type"), name)]
    if dict(changes) == {"parallel.sharding": "full_shard"} and read_fsdp_version(config) == 2:
        return [Set((*config.root, "fsdp_config", _find_resharding_key(config)), True)]
    if dict(changes) == {"parallel.cpu_efficient_loading": True} and read_fsdp_version(config) is not None:
        names = ("cpu_ram_efficient_loading", "sync_module_states")[: 2 if read_fsdp_version(config) == 1 else 1]
        return [set_fsdp_key(config, name, True, _has_prefix(config)) for name in names]
    if dict(changes) == {"parallel.wrapping": "block"} and read_fsdp_version(config) is not None:
        return [set_fsdp_key(config, "auto_wrap_policy", "TRANSFORMER_BASED_WRAP", _has_prefix(config))]
    raise CannotEdit("FSDP settings of axolotl are not rewritten automatically")


FSDP_LENS: Final = Custom(
    {
        "parallel.strategy": parse_routes("fsdp_version", "fsdp_config", "fsdp"),
        **dict.fromkeys(
            (
                "parallel.offload_params",
                "parallel.offload_optimizer",
            ),
            parse_routes("fsdp_config", "fsdp"),
        ),
        "parallel.cpu_efficient_loading": parse_routes(
            "fsdp_config.cpu_ram_efficient_loading", "fsdp_config.fsdp_cpu_ram_efficient_loading", "fsdp_config", "fsdp"
        ),
        "parallel.wrapping": parse_routes(
            "fsdp_config.auto_wrap_policy", "fsdp_config.fsdp_auto_wrap_policy", "fsdp_config", "fsdp"
        ),
        "parallel.sharding": parse_routes(
            "fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward", "fsdp_config", "fsdp"
        ),
        "checkpoint.state_dict": parse_routes("fsdp_config.state_dict_type", "fsdp_config.fsdp_state_dict_type"),
    },
    _read_fsdp,
    _write_fsdp,
)

WRAPPING: Final = build_wrapping_lens(_is_wrapping_blocks)
