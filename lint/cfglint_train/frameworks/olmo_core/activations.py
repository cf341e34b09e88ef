"""What OLMo-core keeps of a forward pass: checkpointing, attention, the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import enumeration, member_name
from cfglint_train.frameworks.lens import Changes, Config, Triple, granted, refuse_override
from cfglint_train.frameworks.lens_types import NOT_STATED, Custom, Stated, read_only
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.olmo_core.recognise import TRAIN_MODULE_PATH, override
from cfglint_train.frameworks.olmo_core.settings import before, find, first, has_train_module, set_member, setting

_AC: Final = ("activations.checkpointing", "activations.every", "activations.of", "activations.budget")

_AC_ROUTE: Final = ("train_module", "ac_config")


def _read_checkpointing(config: Config) -> Iterator[Triple]:
    route = _AC_ROUTE if has_train_module(config) or config.override(_AC_ROUTE) else ("model", "ac_config")
    found = find(config, route)
    if found is NOT_STATED or (isinstance(found, Stated) and found.value is None):
        yield _AC[0], "none", found.origin if isinstance(found, Stated) else granted(config, route)
    if not isinstance(found, Stated) or not isinstance(found.value, dict):
        return
    section, origin = found.value, found.origin
    mode = section.get("mode", "full")
    name = member_name(mode) if isinstance(mode, str) else None
    interval, budget = section.get("block_interval"), section.get("activation_memory_budget")
    blocks = interval if type(interval) is int else None
    share = float(budget) if isinstance(budget, (int, float)) and not isinstance(budget, bool) else None
    if name == "selected_blocks":
        meaning = "every_n" if blocks is not None else None
    elif name == "selected_modules":
        meaning = _of_modules(section.get("modules"))
        if meaning is None:
            note = "what blocks keep of which `selected_modules` checkpoints some modules is not derived"
            origin = origin._replace(note=note, beyond=True)
    elif name == "budget":
        meaning = "budget" if share is not None else None
    else:
        meaning = {"full": "full", "selected_ops": "selective_ops"}.get(name or "")
    yield _AC[0], meaning, origin
    if blocks is not None:
        yield _AC[1], blocks, origin
        yield _AC[2], 1, origin
    if share is not None:
        yield _AC[3], share, origin


_ATTENTION: Final = frozenset(("blocks.*.attention", "blocks.*.sequence_mixer"))


def _of_modules(modules: object) -> str | None:
    """What the patterns of modules checkpoint; None where a part of each block keeps all that it computes."""
    named = [one for one in modules if isinstance(one, str)] if isinstance(modules, list) else []
    if "blocks.*" in named:
        return "full"
    return "fine_grained" if "blocks.*.feed_forward" in named and not _ATTENTION.isdisjoint(named) else None


_MIXTURES: Final = ("smallmoe", "small_hybrid_moe", "olmoe_1B_7B", "llama_like_moe")


def _write_checkpointing(config: Config, changes: Changes) -> list[Change]:
    present = {field: value for field, value, _ in _read_checkpointing(config)}
    wanted = {**present, **changes}
    refuse_override(config, _AC_ROUTE)
    settings = _checkpointing_settings(config, wanted)
    if config.entry(*_AC_ROUTE) is None or config.value(*_AC_ROUTE) is None:
        return [Set(config.root + _AC_ROUTE, _checkpointing_value(config, settings), ("dp_config", "compile_model"))]
    if settings is None:
        raise CannotEdit(f"ac_config is a section of its own; {override(_AC_ROUTE, None)}")
    if config.document.syntax != "python":
        value = {**config.get(*_AC_ROUTE), **settings}
        return [Set((*config.root, *_AC_ROUTE, key), item) for key, item in value.items()]
    written: list[Change] = []
    for key, item in settings.items():
        if key == "mode":
            mode = ("TransformerActivationCheckpointingMode", item, "olmo_core.nn.transformer")
            written += set_member(config, (*_AC_ROUTE, "mode"), mode, ())
        else:
            written.append(Set((*config.root, *_AC_ROUTE, key), item, ("mode",)))
    return written


def _checkpointing_settings(config: Config, wanted: Changes) -> dict[str, Any] | None:
    """The keys of `ac_config` for a plan's wish; None for no checkpointing."""
    mode = wanted.get(_AC[0])
    mixture = config.value("model", "_FACTORY_") in _MIXTURES or isinstance(
        config.value("model", "block", "feed_forward_moe"), dict
    )
    if mixture and mode in ("full", "every_n"):
        raise CannotEdit("OLMo-core refuses to checkpoint whole blocks of a mixture of experts")
    if mode == "none":
        return None
    if mode == "full":
        return {"mode": "full"}
    if mode == "every_n" and wanted.get(_AC[2]) == 1 and wanted.get(_AC[1]):
        return {"mode": "selected_blocks", "block_interval": wanted[_AC[1]]}
    if mode == "budget" and isinstance(wanted.get(_AC[3]), (int, float)):
        compiled = first(config, "train_module.compile_model")
        if compiled is None or compiled[0] is not True or compiled[1].kind == "assumed":
            raise CannotEdit("the budget mode needs compile_model=True")
        return {"mode": "budget", "activation_memory_budget": wanted[_AC[3]]}
    raise CannotEdit("OLMo-core has no mode for that")


def _checkpointing_value(config: Config, settings: Mapping[str, Any] | None) -> Any:
    """The value of `ac_config`, as the document's syntax states it."""
    if settings is None:
        return None
    if config.document.syntax != "python":
        name = f"{TRAIN_MODULE_PATH}.transformer.config.TransformerActivationCheckpointingConfig"
        return {"_CLASS_": name, **settings}
    from cfglint_train.documents.python.document import PythonDocument
    from cfglint_train.documents.python.write import Source

    document = config.document
    assert isinstance(document, PythonDocument)
    if not has_train_module(config) or before(config, "2.0.0"):
        raise CannotEdit("before OLMo-core 2.0 the model's own configuration takes it")
    from cfglint_train.frameworks.olmo_core.script import TRAIN_MODULES

    if len(document.calls(*TRAIN_MODULES)) != 1:
        raise CannotEdit(f"the script builds several train modules; {override(_AC_ROUTE, settings)}")
    arguments = [f"mode=TransformerActivationCheckpointingMode.{settings['mode']}"]
    arguments += [f"{key}={value!r}" for key, value in settings.items() if key != "mode"]
    return Source(
        f"TransformerActivationCheckpointingConfig({', '.join(arguments)})",
        dict(settings),
        (
            (TRAIN_MODULE_PATH, "TransformerActivationCheckpointingConfig"),
            ("olmo_core.nn.transformer", "TransformerActivationCheckpointingMode"),
        ),
    )


_BACKENDS: Final = {"torch": "sdpa", "flash_2": "flash", "flash_3": "flash3", "flash_4": "flash4", "te": "te"}


def _read_attention(config: Config) -> Iterator[Triple]:
    """The backend that is named; without one torch's, but flash attention in the OLMo 3 presets."""
    names = ("model.attn_backend", "model.block.sequence_mixer.backend", "model.block.attention.backend")
    named = first(config, *names)
    if named is not None and named[0] is not None:
        yield (
            "activations.attention",
            _BACKENDS.get(member_name(named[0])) if isinstance(named[0], str) else None,
            named[1],
        )
        return
    flash = first(config, "model.use_flash", "model.block.attention.use_flash")
    if flash is not None and flash[0] is True:
        yield "activations.attention", "flash", flash[1]
        return
    factory = config.value("model", "_FACTORY_")
    if not isinstance(factory, str) and config.document.syntax != "json":
        return
    if before(config, "2.0.0"):
        # It takes flash-attn where that is installed.
        return
    olmo3 = isinstance(factory, str) and factory.startswith("olmo3_")
    yield "activations.attention", "flash" if olmo3 else "sdpa", granted(config, ("model", "attn_backend"))


_LOSS: Final = enumeration({"default": "none", "fused_linear": "liger", "fused": "triton"})


def _read_loss(config: Config) -> Iterator[Triple]:
    if before(config, "2.0.0"):
        old = first(config, "trainer.fused_loss", "trainer.compile_loss")
        if old is not None:
            yield "activations.fused_loss", _old_loss(config), old[1]
            return
    stated = first(config, "model.lm_head.loss_implementation")
    if stated is not None:
        yield "activations.fused_loss", _LOSS.readable(stated[0]), stated[1]
    elif isinstance(config.document.node((*config.root, "model")), MappingNode):
        yield "activations.fused_loss", "none", granted(config, ("model", "lm_head", "loss_implementation"))


def _old_loss(config: Config) -> str:
    if (fused := first(config, "trainer.fused_loss")) is not None and fused[0] is True:
        return "triton"
    compiled = first(config, "trainer.compile_loss")
    return "compiled_shifted" if compiled is not None and compiled[0] is True else "none"


def _write_loss(config: Config, changes: Changes) -> list[Change]:
    route = ("model", "lm_head", "loss_implementation")
    value = _LOSS.write(changes["activations.fused_loss"])
    if value == "fused":
        raise CannotEdit("OLMo-core removed its flash-attn loss in 2.0.1")
    refuse_override(config, route)
    if config.document.syntax == "python" and config.entry(*route) is None:
        raise CannotEdit(f"the preset makes the head; {override(route, value)}")
    return [Set(config.root + route, value)]


LENSES: Final = (
    Custom(dict.fromkeys(_AC, (_AC_ROUTE,)), _read_checkpointing, _write_checkpointing),
    Custom({"activations.attention": (("model", "attn_backend"), ("model", "use_flash"))}, _read_attention, read_only),
    Custom({"activations.fused_loss": (("model", "lm_head", "loss_implementation"),)}, _read_loss, _write_loss),
    setting(
        "activations.compile",
        "train_module.compile_model model.compile",
        PLAIN.boolean,
        default=False,
        beside=("optim", "max_sequence_length"),
    ),
)
