"""The lenses of scripts of the HF Trainer: TRL's, save those of keys that TRL's own classes have."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Set, Unknown
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.lens import Changes, Config, Triple, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom, Key, read_only
from cfglint_train.frameworks.trainer_script.samples import LENGTH, PACKED, PADDED
from cfglint_train.frameworks.trl.lenses import LENSES as OF_TRL
from cfglint_train.frameworks.trl.settings import default_of, on
from cfglint_train.plan.origin import Origin

_OF_TRL_ALONE: Final = frozenset((
    "method.stage", "sequence.length", "sequence.packing", "sequence.eval_packing", "data.preprocessing_workers",
    "activations.fused_loss",
))  # fmt: skip
"""Fields whose keys are those of TRL's classes."""


def _read_samples(config: Config) -> Iterator[Triple]:
    """What the script itself cuts its samples to."""
    length = config.get(LENGTH)
    if length is None:
        return
    origin = config.origin(LENGTH)
    if isinstance(length, Unknown):
        yield "sequence.length", None, Origin("explicit", origin.place, f"{length.why} cannot be determined")
        return
    yield "sequence.length", length, origin
    yield "sequence.packing", config.get(PACKED) is True, origin
    yield "sequence.padding", "max_length" if config.get(PADDED) is True else "longest", origin


def _read_loss(config: Config) -> Iterator[Triple]:
    """Liger's kernels, by the Trainer's own switch or by the class that loads the model."""
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

    node = config.node()
    loader = node.model if isinstance(node, ScriptSettings) else ""
    liger = on(config, "use_liger_kernel") or loader.startswith("liger_kernel.")
    origin = origin_of(config, "use_liger_kernel")
    yield "activations.fused_loss", "liger" if liger else "none", origin
    yield "activations.liger_layers", liger, origin


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    if dict(changes) != {"activations.fused_loss": "liger", "activations.liger_layers": True}:
        raise CannotEdit("one key switches Liger's loss and its layers on")
    if default_of(config, "use_liger_kernel") is None:
        raise CannotEdit("transformers has no use_liger_kernel before 4.45")
    refuse_override(config, ("use_liger_kernel",))
    return [Set((*config.root, "use_liger_kernel"), True, ("gradient_checkpointing", "bf16"))]


_ATTENTION: Final = Since((("", "eager"), ("4.36.0", "sdpa")))
"""What models attend with by default (transformers 4.36.0 modeling_utils.py, _autoset_attn_implementation)."""

LENSES: Final = (
    *(
        lens._replace(default=_ATTENTION) if isinstance(lens, Key) and lens.field == "activations.attention" else lens
        for lens in OF_TRL
        if _OF_TRL_ALONE.isdisjoint(lens.fields) and not any(field.startswith("rollout.") for field in lens.fields)
    ),
    Custom(
        dict.fromkeys(("sequence.length", "sequence.packing", "sequence.padding"), names("max_length")),
        _read_samples,
        read_only,
        also=names(LENGTH, PACKED, PADDED),
    ),
    Custom(
        dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), names("use_liger_kernel")),
        _read_loss,
        _write_loss,
    ),
)
