"""Activation lenses of OLMo-core: checkpointing, attention, loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import build_enumeration, parse_member_name
from cfglint_train.frameworks.lens import Changes, Config, Triple, build_default_origin, refuse_override
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, StatedValue, refuse_write
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.recognise import TRAIN_MODULE_PATH, format_override
from cfglint_train.frameworks.olmo_core.settings import (
    build_key,
    find,
    find_first,
    has_train_module,
    is_before,
    set_member,
)

_AC_FIELDS: Final = ("activations.checkpointing", "activations.every", "activations.of", "activations.budget")

_AC_ROUTE: Final = ("train_module", "ac_config")


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    route = _AC_ROUTE if has_train_module(config) or config.find_override(_AC_ROUTE) else ("model", "ac_config")
    stated = find(config, route)
    if stated is NOT_STATED or (isinstance(stated, StatedValue) and stated.value is None):
        yield (
            _AC_FIELDS[0],
            "none",
            stated.origin if isinstance(stated, StatedValue) else build_default_origin(config, route),
        )
    if not isinstance(stated, StatedValue) or not isinstance(stated.value, dict):
        return
    section, origin = stated.value, stated.origin
    mode = section.get("mode", "full")
    name = parse_member_name(mode) if isinstance(mode, str) else None
    interval, budget = section.get("block_interval"), section.get("activation_memory_budget")
    interval_blocks = interval if type(interval) is int else None
    memory_budget = float(budget) if isinstance(budget, (int, float)) and not isinstance(budget, bool) else None
    if name == "selected_blocks":
        meaning = "every_n" if interval_blocks is not None else None
    elif name == "selected_modules":
        meaning = _classify_modules(section.get("modules"))
        if meaning is None:
            note = "no formula covers blocks in which `selected_modules` checkpoints some modules"
            origin = origin._replace(note=note, is_unsupported=True)
    elif name == "budget":
        meaning = "budget" if memory_budget is not None else None
    else:
        meaning = {"full": "full", "selected_ops": "selective_ops"}.get(name or "")
    yield _AC_FIELDS[0], meaning, origin
    if interval_blocks is not None:
        yield _AC_FIELDS[1], interval_blocks, origin
        yield _AC_FIELDS[2], 1, origin
    if memory_budget is not None:
        yield _AC_FIELDS[3], memory_budget, origin


_ATTENTION: Final = frozenset(("blocks.*.attention", "blocks.*.sequence_mixer"))


def _classify_modules(modules: object) -> str | None:
    """Return the checkpointing mode that the module patterns amount to, or None.

    The mode is `full` for whole blocks and `fine_grained` for the attention and the feed-forward of each block. None
    means that a part of each block keeps all its activations.
    """
    patterns = [pattern for pattern in modules if isinstance(pattern, str)] if isinstance(modules, list) else []
    if "blocks.*" in patterns:
        return "full"
    return "fine_grained" if "blocks.*.feed_forward" in patterns and not _ATTENTION.isdisjoint(patterns) else None


_MOE_PRESETS: Final = ("smallmoe", "small_hybrid_moe", "olmoe_1B_7B", "llama_like_moe")


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    present = {field: value for field, value, _ in _read_checkpointing(config)}
    target = {**present, **changes}
    refuse_override(config, _AC_ROUTE)
    settings = _build_checkpointing_settings(config, target)
    if config.get_entry(*_AC_ROUTE) is None or config.get_value(*_AC_ROUTE) is None:
        return [
            Set(config.root + _AC_ROUTE, _build_checkpointing_value(config, settings), ("dp_config", "compile_model"))
        ]
    if settings is None:
        raise CannotEdit(f"ac_config is a separate section; {format_override(_AC_ROUTE, None)}")
    if config.document.syntax != "python":
        value = {**config.get(*_AC_ROUTE), **settings}
        return [Set((*config.root, *_AC_ROUTE, key), item) for key, item in value.items()]
    edits: list[Change] = []
    for key, item in settings.items():
        if key == "mode":
            mode = ("TransformerActivationCheckpointingMode", item, "olmo_core.nn.transformer")
            edits += set_member(config, (*_AC_ROUTE, "mode"), mode, ())
        else:
            edits.append(Set((*config.root, *_AC_ROUTE, key), item, ("mode",)))
    return edits


def _build_checkpointing_settings(config: Config, target: Changes) -> dict[str, Any] | None:
    """Return the keys of `ac_config` that state the plan's values, or None for no checkpointing."""
    mode = target.get(_AC_FIELDS[0])
    is_moe = config.get_value("model", "_FACTORY_") in _MOE_PRESETS or isinstance(
        config.get_value("model", "block", "feed_forward_moe"), dict
    )
    if is_moe and mode in ("full", "every_n"):
        raise CannotEdit("OLMo-core refuses to checkpoint whole mixture-of-experts blocks")
    if mode == "none":
        return None
    if mode == "full":
        return {"mode": "full"}
    if mode == "every_n" and target.get(_AC_FIELDS[2]) == 1 and target.get(_AC_FIELDS[1]):
        return {"mode": "selected_blocks", "block_interval": target[_AC_FIELDS[1]]}
    if mode == "budget" and isinstance(target.get(_AC_FIELDS[3]), (int, float)):
        compile_model = find_first(config, "train_module.compile_model")
        if compile_model is None or compile_model[0] is not True or compile_model[1].kind == "assumed":
            raise CannotEdit("budget mode requires compile_model=True")
        return {"mode": "budget", "activation_memory_budget": target[_AC_FIELDS[3]]}
    raise CannotEdit("OLMo-core has no mode for that")


def _build_checkpointing_value(config: Config, settings: Mapping[str, Any] | None) -> Any:
    """Return the value of `ac_config` in the document's syntax."""
    if settings is None:
        return None
    if config.document.syntax != "python":
        name = f"{TRAIN_MODULE_PATH}.transformer.config.TransformerActivationCheckpointingConfig"
        return {"_CLASS_": name, **settings}
    from cfglint_train.documents.python.document import PythonDocument
    from cfglint_train.documents.python.write import PythonSource

    document = config.document
    assert isinstance(document, PythonDocument)
    if not has_train_module(config) or is_before(config, "2.0.0"):
        raise CannotEdit("before OLMo-core 2.0, it is set in the model config")
    from cfglint_train.frameworks.olmo_core.script import TRAIN_MODULES

    if len(document.find_calls(*TRAIN_MODULES)) != 1:
        raise CannotEdit(f"the script builds several train modules; {format_override(_AC_ROUTE, settings)}")
    arguments = [f"mode=TransformerActivationCheckpointingMode.{settings['mode']}"]
    arguments += [f"{key}={value!r}" for key, value in settings.items() if key != "mode"]
    return PythonSource(
        f"TransformerActivationCheckpointingConfig({', '.join(arguments)})",
        dict(settings),
        (
            (TRAIN_MODULE_PATH, "TransformerActivationCheckpointingConfig"),
            ("olmo_core.nn.transformer", "TransformerActivationCheckpointingMode"),
        ),
    )


_BACKENDS: Final = {"torch": "sdpa", "flash_2": "flash", "flash_3": "flash3", "flash_4": "flash4", "te": "te"}


def _read_attention(config: Config) -> Iterator[Triple]:
    """Yield the stated attention backend or its default: flash attention in the OLMo 3 presets, otherwise SDPA."""
    names = ("model.attn_backend", "model.block.sequence_mixer.backend", "model.block.attention.backend")
    backend = find_first(config, *names)
    if backend is not None and backend[0] is not None:
        yield (
            "activations.attention",
            _BACKENDS.get(parse_member_name(backend[0])) if isinstance(backend[0], str) else None,
            backend[1],
        )
        return
    flash = find_first(config, "model.use_flash", "model.block.attention.use_flash")
    if flash is not None and flash[0] is True:
        yield "activations.attention", "flash", flash[1]
        return
    factory = config.get_value("model", "_FACTORY_")
    if not isinstance(factory, str) and config.document.syntax != "json":
        return
    if is_before(config, "2.0.0"):
        # Releases before 2.0 use flash-attn if it is installed.
        return
    olmo3 = isinstance(factory, str) and factory.startswith("olmo3_")
    yield "activations.attention", "flash" if olmo3 else "sdpa", build_default_origin(config, ("model", "attn_backend"))


_LOSS: Final = build_enumeration({"default": "none", "fused_linear": "liger", "fused": "triton"})


def _read_loss(config: Config) -> Iterator[Triple]:
    if is_before(config, "2.0.0"):
        legacy = find_first(config, "trainer.fused_loss", "trainer.compile_loss")
        if legacy is not None:
            yield "activations.fused_loss", _read_legacy_loss(config), legacy[1]
            return
    stated = find_first(config, "model.lm_head.loss_implementation")
    if stated is not None:
        yield "activations.fused_loss", _LOSS.read_or_none(stated[0]), stated[1]
    elif isinstance(config.document.find_node((*config.root, "model")), MappingNode):
        yield (
            "activations.fused_loss",
            "none",
            build_default_origin(config, ("model", "lm_head", "loss_implementation")),
        )


def _read_legacy_loss(config: Config) -> str:
    if (fused := find_first(config, "trainer.fused_loss")) is not None and fused[0] is True:
        return "triton"
    compiled = find_first(config, "trainer.compile_loss")
    return "compiled_shifted" if compiled is not None and compiled[0] is True else "none"


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    route = ("model", "lm_head", "loss_implementation")
    value = _LOSS.write(changes["activations.fused_loss"])
    if value == "fused":
        raise CannotEdit("OLMo-core removed its flash-attn loss in 2.0.1")
    refuse_override(config, route)
    if config.document.syntax == "python" and config.get_entry(*route) is None:
        raise CannotEdit(f"the preset builds the head; {format_override(route, value)}")
    return [Set(config.root + route, value)]


LENSES: Final = (
    Custom(dict.fromkeys(_AC_FIELDS, (_AC_ROUTE,)), _read_checkpointing, _write_checkpointing),
    Custom(
        {"activations.attention": (("model", "attn_backend"), ("model", "use_flash"))}, _read_attention, refuse_write
    ),
    Custom({"activations.fused_loss": (("model", "lm_head", "loss_implementation"),)}, _read_loss, _write_loss),
    build_key(
        "activations.compile",
        "train_module.compile_model model.compile",
        PLAIN.boolean,
        default=False,
        beside=("optim", "max_sequence_length"),
    ),
)
