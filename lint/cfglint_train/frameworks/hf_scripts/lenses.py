"""Lenses for HF Trainer scripts: TRL's lenses without the keys of TRL's own classes, plus sample length and Liger."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set, Unknown
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom, Key, refuse_write
from cfglint_train.frameworks.trainer_script.samples import LENGTH, LIMIT, PACKED, PADDED, UNSEEN
from cfglint_train.frameworks.trl.lenses import LENSES as OF_TRL
from cfglint_train.frameworks.trl.settings import find_default, is_on
from cfglint_train.plan.origin import Origin

_TRL_ONLY_FIELDS: Final = frozenset((
    "method.stage", "sequence.length", "sequence.packing", "sequence.eval_packing", "data.preprocessing_workers",
    "activations.fused_loss",
))  # fmt: skip
"""Fields whose keys only TRL's classes have."""


def _read_sample_length(config: Config) -> Iterator[Triple]:
    """Yield the length to which the script truncates its samples, and whether it packs or pads them."""
    length = config.get(LENGTH)
    if length is None:
        return
    origin = config.get_origin(LENGTH)
    if isinstance(length, Unknown):
        yield "sequence.length", None, Origin("explicit", origin.place, f"{length.reason} cannot be determined")
        return
    if config.get(UNSEEN) is True:
        origin = origin._replace(assumption=f"data code that cuts samples at the tokenizer's `{LIMIT}`")
    yield "sequence.length", length, origin
    yield "sequence.packing", config.get(PACKED) is True, origin
    yield "sequence.padding", "max_length" if config.get(PADDED) is True else "longest", origin


def _read_loss(config: Config) -> Iterator[Triple]:
    """Yield whether Liger's loss and layers are on, through `use_liger_kernel` or a Liger model class."""
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

    node = config.get_node()
    loader = node.model_class if isinstance(node, ScriptSettings) else ""
    uses_liger = is_on(config, "use_liger_kernel") or loader.startswith("liger_kernel.")
    origin = find_origin(config, "use_liger_kernel")
    yield "activations.fused_loss", "liger" if uses_liger else "none", origin
    yield "activations.liger_layers", uses_liger, origin


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) != {"activations.fused_loss": "liger", "activations.liger_layers": True}:
        raise CannotEdit("one key turns on both Liger's loss and its layers")
    if find_default(config, "use_liger_kernel") is None:
        raise CannotEdit("transformers has no use_liger_kernel before 4.45")
    refuse_override(config, ("use_liger_kernel",))
    return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]


_DEFAULT_ATTENTION: Final = ValueByRelease((("", "eager"), ("4.36.0", "sdpa")))
"""Default attention implementation (transformers 4.36.0 modeling_utils.py, _autoset_attn_implementation)."""

LENSES: Final = (
    *(
        lens._replace(default=_DEFAULT_ATTENTION)
        if isinstance(lens, Key) and lens.field == "activations.attention"
        else lens
        for lens in OF_TRL
        if _TRL_ONLY_FIELDS.isdisjoint(lens.fields) and not any(field.startswith("rollout.") for field in lens.fields)
    ),
    Custom(
        dict.fromkeys(("sequence.length", "sequence.packing", "sequence.padding"), parse_routes("max_length")),
        _read_sample_length,
        refuse_write,
        other_keys=parse_routes(LENGTH, PACKED, PADDED),
    ),
    Custom(
        dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), parse_routes("use_liger_kernel")),
        _read_loss,
        _write_loss,
    ),
)
