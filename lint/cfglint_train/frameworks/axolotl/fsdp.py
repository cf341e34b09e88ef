"""axolotl's `fsdp_config`, and its older list `fsdp`."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.axolotl.settings import fsdp_setting, read_integer
from cfglint_train.frameworks.hf_trainer.wrapping import wrapping
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, names, origin_of
from cfglint_train.frameworks.lens_types import Custom


def fsdp_version(config: Config) -> int | None:
    """1 or 2; None without FSDP. Unversioned is 1 up to axolotl 0.19 and 2 from 0.20 on.

    Up to 0.11 `fsdp` alone switches it on, from 0.12.0 on either does (`utils/trainer.py`, prepare_optim_env).
    """
    if not config.get("fsdp") and (not config.get("fsdp_config") or before(config, "0.12.0")):
        return None
    for route in (("fsdp_version",), ("fsdp_config", "fsdp_version"), ("fsdp_config", "version")):
        stated = read_integer(config, *route)
        if stated is not None:
            return stated
    return 1 if before(config, "0.20.0") else 2


def shards(config: Config) -> bool:
    """Whether the file itself switches FSDP on. Where accelerate's file does, axolotl takes its own sizes of groups for
    all the parallelism there is, and refuses them (0.17.0, `utils/distributed.py`, _get_parallel_config_kwargs).
    """
    return fsdp_version(config) is not None


def _wraps_blocks(config: Config) -> bool:
    """Whether FSDP wraps the transformer's layers."""
    listed = config.get("fsdp")
    options = listed.split() if isinstance(listed, str) else listed if isinstance(listed, list) else []
    policy = fsdp_setting(config, "auto_wrap_policy")
    return fsdp_version(config) is not None and (policy == "TRANSFORMER_BASED_WRAP" or "auto_wrap" in options)


_STATE_DICTS: Final = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded", "LOCAL_STATE_DICT": "local"}


def _resharding(config: Config) -> str:
    """The key as the file spells it."""
    prefixed = config.has("fsdp_config", "fsdp_reshard_after_forward")
    return "fsdp_reshard_after_forward" if prefixed else "reshard_after_forward"


def _read_fsdp(config: Config) -> Iterator[Triple]:
    version = fsdp_version(config)
    if version is None:
        return
    origin = origin_of(config, "fsdp_config", "fsdp")
    listed = config.get("fsdp")
    options = listed.split() if isinstance(listed, str) else listed if isinstance(listed, list) else []
    yield "parallel.strategy", f"fsdp{version}", origin
    sharding = "full_shard"
    if version == 1:
        # Since 0.13 `sharding_strategy` inside fsdp_config is dropped; the list form still works.
        sharding = next(
            (name for name in ("shard_grad_op", "hybrid_shard", "no_shard") if name in options), "full_shard"
        )
        inner = fsdp_setting(config, "sharding_strategy")
        if isinstance(inner, str) and before(config, "0.13.0"):
            sharding = inner.lower()
    elif fsdp_setting(config, "reshard_after_forward") is False:
        sharding = "shard_grad_op"
    yield "parallel.sharding", sharding, origin if version == 1 else config.origin("fsdp_config", _resharding(config))
    offload = fsdp_setting(config, "offload_params") is True or "offload" in options
    yield "parallel.offload_params", "cpu" if offload else "none", origin
    yield "parallel.offload_optimizer", "cpu" if offload else "none", origin
    by_size = fsdp_setting(config, "auto_wrap_policy") == "SIZE_BASED_WRAP"
    yield "parallel.wrapping", "block" if _wraps_blocks(config) else "size" if by_size else "root", origin
    yield "parallel.cpu_efficient_loading", fsdp_setting(config, "cpu_ram_efficient_loading") is True, origin
    state = fsdp_setting(config, "state_dict_type") or "FULL_STATE_DICT"
    yield "checkpoint.state_dict", _STATE_DICTS.get(str(state)), origin


def _write_fsdp(config: Config, changes: Changes) -> list[Change]:
    if set(changes) == {"checkpoint.state_dict"} and fsdp_version(config) is not None:
        name = next(name for name, meaning in _STATE_DICTS.items() if meaning == changes["checkpoint.state_dict"])
        prefixed = config.has("fsdp_config", "fsdp_state_dict_type")
        return [Set((*config.root, "fsdp_config", "fsdp_state_dict_type" if prefixed else "state_dict_type"), name)]
    if dict(changes) == {"parallel.sharding": "full_shard"} and fsdp_version(config) == 2:
        return [Set((*config.root, "fsdp_config", _resharding(config)), True)]
    raise CannotEdit("FSDP settings of axolotl are not rewritten automatically")


FSDP_LENS: Final = Custom(
    {
        "parallel.strategy": names("fsdp_version", "fsdp_config", "fsdp"),
        **dict.fromkeys(
            (
                "parallel.offload_params",
                "parallel.offload_optimizer",
                "parallel.wrapping",
                "parallel.cpu_efficient_loading",
            ),
            names("fsdp_config", "fsdp"),
        ),
        "parallel.sharding": names(
            "fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward", "fsdp_config", "fsdp"
        ),
        "checkpoint.state_dict": names("fsdp_config.state_dict_type", "fsdp_config.fsdp_state_dict_type"),
    },
    _read_fsdp,
    _write_fsdp,
)

WRAPPING: Final = wrapping(_wraps_blocks)
