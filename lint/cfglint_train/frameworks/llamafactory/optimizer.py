"""Optimizer lens of LLaMA-Factory: `optim`, and the switches that override it."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZER_FIELDS, read_optimizer, write_optimizer
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, parse_routes
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.llamafactory.method import TARGET_LIST
from cfglint_train.frameworks.llamafactory.settings import is_on
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field

# create_custom_optimizer: the first enabled switch decides.
_SWITCHES: Final = (
    ("use_galore", "galore_adamw"),
    ("use_apollo", "apollo_adamw"),
    ("use_badam", "badam"),
    ("use_adam_mini", "adam_mini"),
    ("use_muon", "muon"),
)


def _read_optimizer(config: Config) -> Iterator[Triple]:
    has_lora_plus = config.get("loraplus_lr_ratio") is not None
    for key, name in _SWITCHES:
        # LoRA+ uses the optimizer of `optim`; only GaLore and APOLLO are checked before it.
        if not is_on(config, key) or (has_lora_plus and key not in ("use_galore", "use_apollo")):
            continue
        origin = config.get_origin(key)
        if key in ("use_galore", "use_apollo") and is_on(config, f"{key.removeprefix('use_')}_layerwise"):
            name = f"{name}_layerwise"
        is_8bit = config.get("optim") in ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit")
        if key == "use_galore" and is_8bit:
            yield "optimizer.state_bits", 8, config.get_origin("optim")
        elif key == "use_galore" and config.get("optim") == "adafactor":
            name = name.replace("adamw", "adafactor")
        elif key == "use_badam" and config.get("badam_mode") == "ratio":
            name = "badam_ratio"
        yield "optimizer.name", name, origin
        yield "optimizer.implementation", "custom", origin
        yield "optimizer.paged", False, origin
        yield "optimizer.stated_name", key, origin
        if key in ("use_galore", "use_apollo"):
            yield from _read_projection(config, key.removeprefix("use_"))
        return
    yield from read_optimizer(config)


_PROJECTION_KEYS: Final[tuple[tuple[Field, str, Codec, Any], ...]] = (
    ("optimizer.rank", "rank", PLAIN.integer, 16),
    ("optimizer.projection", "proj_type", PLAIN.string, "std"),
    ("optimizer.targets", "target", TARGET_LIST, ("all-linear",)),
)


def _read_projection(config: Config, name: str) -> Iterator[Triple]:
    """Yield rank, projection and targets of GaLore (`galore`) or APOLLO (`apollo`), see finetuning_args.py."""
    for field, key, codec, default in _PROJECTION_KEYS:
        stated = config.get(f"{name}_{key}")
        value = default if stated is None else codec.read_or_none(stated)
        yield field, value, find_origin(config, f"{name}_{key}")


def _write_optimizer(config: Config, changes: Changes) -> list[Change]:
    switch = next((key for key, _ in _SWITCHES if is_on(config, key)), None)
    if switch is not None:
        raise CannotEdit(f"{switch} sets the optimizer")
    return write_optimizer(config, changes)


OPTIMIZER: Final = Custom(
    {
        **dict.fromkeys(OPTIMIZER_FIELDS, parse_routes("optim")),
        **{field: parse_routes(f"galore_{key}", f"apollo_{key}") for field, key, _, _ in _PROJECTION_KEYS},
    },
    _read_optimizer,
    _write_optimizer,
    other_keys=parse_routes(*(key for key, _ in _SWITCHES), "badam_mode", "galore_layerwise", "apollo_layerwise"),
)
