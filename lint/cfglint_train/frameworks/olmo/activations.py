"""What OLMo keeps of a forward pass: checkpointing, attention, the loss, dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, written_as
from cfglint_train.frameworks.lens import Changes, Config, Triple, granted
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, Stated, read_only
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import find, setting, value_of, write_one

# model.should_checkpoint_block: of `every` blocks in a row `of` are recomputed.
_STRATEGIES: Final[Mapping[str, tuple[str, int | None, int | None]]] = {
    "whole_layer": ("full", None, None),
    "one_in_two": ("every_n", 2, 1),
    "one_in_three": ("every_n", 3, 1),
    "one_in_four": ("every_n", 4, 1),
    "one_in_eight": ("every_n", 8, 1),
    "two_in_three": ("every_n", 3, 2),
    "three_in_four": ("every_n", 4, 3),
    "fine_grained": ("fine_grained", None, None),
}

_CHECKPOINTING: Final = ("activations.checkpointing", "activations.every", "activations.of")

_NO_CHECKPOINTING: Final = ("none", None, None)


def _strategy(value: Any) -> tuple[str, int | None, int | None] | None:
    """What one value of `activation_checkpointing` means, its old boolean spellings included."""
    if value is None or value is False:
        return _NO_CHECKPOINTING
    if value is True:
        return _STRATEGIES["whole_layer"]
    name = value.removeprefix("ActivationCheckpointingStrategy.") if isinstance(value, str) else ""
    return _STRATEGIES.get(name)


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    found = find(config, ("activation_checkpointing",))
    if isinstance(found, Stated):
        meaning, origin = _strategy(found.value), found.origin
    else:
        meaning = _NO_CHECKPOINTING if found is NOT_STATED else None
        origin = granted(config, ("activation_checkpointing",))
    mode, every, of = meaning or (None, None, None)
    yield "activations.checkpointing", mode, origin
    if every is not None:
        # One word states all three: the shares follow from it.
        origin = origin._replace(kind="inferred")
        yield "activations.every", every, origin
        yield "activations.of", of, origin


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    present = {field: value for field, value, _ in _read_checkpointing(config)}
    wanted = tuple({**present, **changes}.get(field) for field in _CHECKPOINTING)
    if wanted[0] != "every_n":
        wanted = (wanted[0], None, None)
    if wanted == _NO_CHECKPOINTING:
        return write_one(config, "activation_checkpointing", None, ("compile", "fused_loss"))
    for name, meaning in _STRATEGIES.items():
        if meaning == wanted:
            return write_one(config, "activation_checkpointing", name, ("compile", "fused_loss", "precision"))
    raise CannotEdit("OLMo has no value for that share of blocks")


def _needs_bias(config: Config) -> bool:
    """Whether attention gets a bias: ALiBi, or a mask."""
    names = ("model.alibi", "data.generate_attention_mask")
    return any(value_of(config, name, OMEGACONF.boolean)[0] for name in names)


def _read_attention(config: Config) -> Iterator[Triple]:
    """flash-attn is left out where a bias is needed (model.py); whether it is installed is unknown."""
    flash, origin = value_of(config, "model.flash_attention", OMEGACONF.boolean)
    biased = _needs_bias(config)
    if flash is not None:
        yield "activations.attention", "flash" if flash and not biased else "sdpa", origin


def _write_attention(config: Config, changes: Changes) -> list[Change]:
    wanted = changes["activations.attention"]
    if wanted == "flash" and _needs_bias(config):
        raise CannotEdit("ALiBi and attention masks need a bias, for which OLMo leaves flash attention out")
    if wanted not in ("flash", "sdpa"):
        raise CannotEdit(f"OLMo has no attention {wanted!r}")
    return write_one(config, "model.flash_attention", wanted == "flash", ("rope", "alibi"))


_DROPOUTS: Final = ("residual", "attention", "embedding")


def _read_dropout(config: Config) -> Iterator[Triple]:
    """The largest of the three: any of them keeps masks and random states."""
    values = [value_of(config, f"model.{part}_dropout", OMEGACONF.number) for part in _DROPOUTS]
    known = [(value, origin) for value, origin in values if value is not None]
    if len(known) == len(values):
        value, origin = max(known, key=lambda pair: pair[0])
        yield "activations.dropout", value, origin


def _read_compile(config: Config) -> Iterator[Triple]:
    found = find(config, ("compile",))
    if isinstance(found, Stated):
        yield "activations.compile", found.value is not None, found.origin
    elif found is NOT_STATED:
        yield "activations.compile", False, granted(config, ("compile",))


def _read_loss(value: Any) -> str:
    return "triton" if OMEGACONF.boolean.read(value) else "none"


_LOSS: Final = Codec(_read_loss, written_as({True: "triton", False: "none"}))


LENSES: Final = (
    Custom(dict.fromkeys(_CHECKPOINTING, (("activation_checkpointing",),)), _read_checkpointing, _write_checkpointing),
    Custom({"activations.attention": (("model", "flash_attention"),)}, _read_attention, _write_attention),
    setting("activations.fused_loss", "fused_loss", _LOSS, null="none", beside=("softmax_auxiliary_loss", "precision")),
    Custom(
        {"activations.dropout": tuple(("model", f"{part}_dropout") for part in _DROPOUTS)}, _read_dropout, read_only
    ),
    Custom({"activations.compile": (("compile",),)}, _read_compile, read_only),
)
