"""Activation lenses of OLMo: checkpointing, attention, loss, dropout, compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, build_writer
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import OMEGACONF
from cfglint_train.frameworks.olmo.settings import build_key, find, read_value, write_key

# Mode, `every`, `of`: `of` out of `every` consecutive blocks are recomputed (OLMo model.py: should_checkpoint_block).
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

_CHECKPOINTING_FIELDS: Final = ("activations.checkpointing", "activations.every", "activations.of")

_NO_CHECKPOINTING: Final = ("none", None, None)


def _parse_strategy(value: Any) -> tuple[str, int | None, int | None] | None:
    """Return the mode, `every` and `of` that a value of `activation_checkpointing` means; accept old booleans."""
    if value is None or value is False:
        return _NO_CHECKPOINTING
    if value is True:
        return _STRATEGIES["whole_layer"]
    name = value.removeprefix("ActivationCheckpointingStrategy.") if isinstance(value, str) else ""
    return _STRATEGIES.get(name)


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    stated = find(config, ("activation_checkpointing",))
    if isinstance(stated, StatedValue):
        strategy, origin = _parse_strategy(stated.value), stated.origin
    else:
        strategy = _NO_CHECKPOINTING if stated is NOT_STATED else None
        origin = build_default_origin(config, ("activation_checkpointing",))
    mode, every, recomputed = strategy or (None, None, None)
    yield "activations.checkpointing", mode, origin
    if every is not None:
        # One value of the file sets all three fields.
        origin = origin._replace(kind="inferred")
        yield "activations.every", every, origin
        yield "activations.of", recomputed, origin


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    present = {field: value for field, value, _ in _read_checkpointing(config)}
    target = tuple({**present, **changes}.get(field) for field in _CHECKPOINTING_FIELDS)
    if target[0] != "every_n":
        target = (target[0], None, None)
    if target == _NO_CHECKPOINTING:
        return write_key(config, "activation_checkpointing", None, ("compile", "fused_loss"))
    for name, strategy in _STRATEGIES.items():
        if strategy == target:
            return write_key(config, "activation_checkpointing", name, ("compile", "fused_loss", "precision"))
    raise CannotEdit("OLMo has no checkpointing strategy for that share of blocks")


def _needs_attention_bias(config: Config) -> bool:
    """Return whether attention needs a bias, for ALiBi or a mask."""
    names = ("model.alibi", "data.generate_attention_mask")
    return any(read_value(config, name, OMEGACONF.boolean)[0] for name in names)


def _read_attention(config: Config) -> Iterator[Triple]:
    """Yield the attention kernel, assuming that flash-attn is installed.

    OLMo does not use flash-attn with an attention bias (model.py).
    """
    flash, origin = read_value(config, "model.flash_attention", OMEGACONF.boolean)
    needs_bias = _needs_attention_bias(config)
    if flash is not None:
        yield "activations.attention", "flash" if flash and not needs_bias else "sdpa", origin


def _write_attention(config: Config, changes: Changes) -> list[Change]:
    attention = changes["activations.attention"]
    if attention == "flash" and _needs_attention_bias(config):
        raise CannotEdit("ALiBi and attention masks need a bias, so OLMo does not use flash attention")
    if attention not in ("flash", "sdpa"):
        raise CannotEdit(f"OLMo has no attention kernel {attention!r}")
    return write_key(config, "model.flash_attention", attention == "flash", ("rope", "alibi"))


_DROPOUTS: Final = ("residual", "attention", "embedding")


def _read_dropout(config: Config) -> Iterator[Triple]:
    """Yield the largest of the three dropout rates; every nonzero rate keeps masks and random states."""
    values = [read_value(config, f"model.{part}_dropout", OMEGACONF.number) for part in _DROPOUTS]
    known_values = [(value, origin) for value, origin in values if value is not None]
    if len(known_values) == len(values):
        value, origin = max(known_values, key=lambda pair: pair[0])
        yield "activations.dropout", value, origin


def _read_compile(config: Config) -> Iterator[Triple]:
    compile_section = find(config, ("compile",))
    if isinstance(compile_section, StatedValue):
        yield "activations.compile", compile_section.value is not None, compile_section.origin
    elif compile_section is NOT_STATED:
        yield "activations.compile", False, build_default_origin(config, ("compile",))


def _parse_loss(value: Any) -> str:
    return "triton" if OMEGACONF.boolean.read(value) else "none"


_LOSS: Final = Codec(_parse_loss, build_writer({True: "triton", False: "none"}))


LENSES: Final = (
    Custom(
        dict.fromkeys(_CHECKPOINTING_FIELDS, (("activation_checkpointing",),)),
        _read_checkpointing,
        _write_checkpointing,
    ),
    Custom({"activations.attention": (("model", "flash_attention"),)}, _read_attention, _write_attention),
    build_key(
        "activations.fused_loss", "fused_loss", _LOSS, null="none", beside=("softmax_auxiliary_loss", "precision")
    ),
    Custom(
        {"activations.dropout": tuple(("model", f"{part}_dropout") for part in _DROPOUTS)}, _read_dropout, refuse_write
    ),
    Custom({"activations.compile": (("compile",),)}, _read_compile, refuse_write),
)
