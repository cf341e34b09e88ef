"""Lenses between LLaMA-Factory v1's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, accept_unknown_folder, build_choice
from cfglint_train.frameworks.hf_trainer import fsdp, optimizers
from cfglint_train.frameworks.lens import Config, Triple, build_default_origin
from cfglint_train.frameworks.lens_types import Custom, Key, refuse_write
from cfglint_train.frameworks.llamafactory_v1.settings import get_plugin_name
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _build_key(
    field: Field, route: str, codec: Codec, default: Any, null: Any = None, beside: tuple[str, ...] = ()
) -> Key:
    return Key(field, (tuple(route.split(".")),), codec, default, null, beside)


def _find_origin(config: Config, *route: str) -> Origin:
    return config.get_origin(*route) if config.get(*route) is not None else build_default_origin(config, route)


def _read_method(config: Config) -> Iterator[Triple]:
    name = get_plugin_name(config, "peft_config")
    if config.get("peft_config") is None:
        yield "method.tuning", "full", build_default_origin(config, ("peft_config",))
        return
    yield "method.tuning", name if name in ("lora", "freeze") else None, config.get_origin("peft_config")
    if name == "freeze":
        layers = config.get("peft_config", "freeze_trainable_layers", default=2)
        modules = config.get("peft_config", "freeze_trainable_modules", default="all")
        is_whole_layers = modules in ("all", ["all"]) and not config.get("peft_config", "freeze_extra_modules")
        number = PLAIN.integer.read_or_none(layers) if is_whole_layers else None
        origin = _find_origin(config, "peft_config", "freeze_trainable_layers")
        yield "method.trainable_layers", None if number is None else abs(number), origin
    if name != "lora":
        return
    for field, key, default, codec in _LORA_KEYS:
        value = config.get("peft_config", key, default=default)
        yield field, codec.read_or_none(value), _find_origin(config, "peft_config", key)
    targets = config.get("peft_config", "target_modules", default="all")
    if isinstance(targets, str):
        targets = ["all-linear"] if targets == "all" else [targets]
    is_list = isinstance(targets, list) and all(isinstance(item, str) for item in targets)
    yield (
        "method.lora_targets",
        tuple(targets) if is_list else None,
        _find_origin(config, "peft_config", "target_modules"),
    )
    modules_to_save = config.get("peft_config", "modules_to_save", default=[])
    is_list = isinstance(modules_to_save, list) and all(isinstance(item, str) for item in modules_to_save)
    origin = _find_origin(config, "peft_config", "modules_to_save")
    yield "method.lora_modules_to_save", tuple(modules_to_save) if is_list else None, origin


def _read_quantization(config: Config) -> Iterator[Triple]:
    name, bits = get_plugin_name(config, "quant_config"), config.get("quant_config", "quantization_bit")
    if config.get("quant_config") is None or (name == "auto" and bits is None):
        yield "method.quantization", "none", build_default_origin(config, ("quant_config",))
        return
    origin = config.get_origin("quant_config")
    if name not in ("auto", "bnb"):
        yield "method.quantization", None, origin
    elif bits in (4, None):
        # `bnb` without bits means 4 bits, regardless of its warning.
        kind = config.get("quant_config", "quantization_type", default="nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, origin
        double_quantization = config.get("quant_config", "double_quantization", default=True)
        yield "method.double_quantization", PLAIN.boolean.read_or_none(double_quantization), origin
    else:
        yield "method.quantization", "int8" if bits == 8 else None, origin


def _read_parallel(config: Config) -> Iterator[Triple]:
    name = get_plugin_name(config, "dist_config")
    if config.get("dist_config") is None or name == "deepspeed":
        return
    origin = config.get_origin("dist_config")
    yield "parallel.strategy", "fsdp2" if name == "fsdp2" else None, origin
    if name != "fsdp2":
        return
    reshard = PLAIN.boolean.read_or_none(config.get("dist_config", "reshard_after_forward", default=True))
    sharding = None if reshard is None else "full_shard" if reshard else "shard_grad_op"
    yield from fsdp.yield_sharding(sharding, 2, _find_origin(config, "dist_config", "reshard_after_forward"))
    offload = config.get("dist_config", "offload_params") is True
    yield from fsdp.yield_offload("cpu" if offload else "none", _find_origin(config, "dist_config", "offload_params"))
    yield "parallel.wrapping", "block", origin
    yield "parallel.use_orig_params", True, origin
    yield "checkpoint.state_dict", "sharded", origin


_LORA_KEYS: Final[tuple[tuple[Field, str, Any, Codec], ...]] = (
    ("method.lora_rank", "r", 8, PLAIN.integer),
    ("method.lora_alpha", "lora_alpha", 16, PLAIN.number),
    ("method.lora_dora", "use_dora", False, PLAIN.boolean),
    ("method.lora_dropout", "lora_dropout", 0.05, PLAIN.number),
)


def _read_context(config: Config) -> Iterator[Triple]:
    route: Route = ("dist_config", "cp_size") if config.get("dist_config", "cp_size") is not None else ("cp_size",)
    yield (
        "parallel.context",
        PLAIN.integer.read_or_none(config.get(*route, default=1)),
        _find_origin(config, *map(str, route)),
    )


def _read_optimizer(config: Config) -> Iterator[Triple]:
    name = get_plugin_name(config, "optim_config")
    if config.get("optim_config") is None:
        for field, value in optimizers.OPTIMIZERS["adamw_torch"].items():
            yield field, value, build_default_origin(config, ("optim_config",))
        return
    origin = config.get_origin("optim_config")
    yield "optimizer.name", name, origin
    yield "optimizer.implementation", "custom", origin
    yield "optimizer.paged", False, origin
    yield "optimizer.stated_name", name, origin


def _read_kernels(config: Config) -> Iterator[Triple]:
    # Training asks the kernel plugin for the logits, so the loss is never fused.
    has_liger = get_plugin_name(config, "kernel_config") == "liger_kernel"
    yield "activations.fused_loss", "none", _find_origin(config, "kernel_config")
    yield "activations.liger_layers", has_liger, _find_origin(config, "kernel_config")


def _read_saving(config: Config) -> Iterator[Triple]:
    steps, epochs = config.get("save_steps"), config.get("save_epochs")
    if epochs is not None:
        yield "checkpoint.strategy", "epoch", config.get_origin("save_epochs")
    elif steps:
        yield "checkpoint.strategy", "steps", config.get_origin("save_steps")
        yield "checkpoint.interval", PLAIN.integer.read_or_none(steps), config.get_origin("save_steps")
    else:
        yield "checkpoint.strategy", "no", _find_origin(config, "save_steps")
    stated = config.get("resume_from_checkpoint")
    if stated == "auto":
        yield "checkpoint.resume_latest", True, config.get_origin("resume_from_checkpoint")
    elif isinstance(stated, str):
        yield "checkpoint.load_path", stated, config.get_origin("resume_from_checkpoint")


_KEEP_CODEC: Final = Codec(PLAIN.integer.read, lambda value: None if value == "all" else value)

_CHECKPOINTING_CODEC: Final = build_choice({True: "full", False: "none"})

_ATTENTION_CODEC: Final = build_choice({"sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash"})

LENSES: Final = (
    _build_key("model.id", "model", accept_unknown_folder(PLAIN.string), "Qwen/Qwen3-4B-Instruct-2507"),
    _build_key("model.trust_remote_code", "trust_remote_code", PLAIN.boolean, False, False),
    Custom(
        {
            **dict.fromkeys(("method.tuning", "method.trainable_layers"), (("peft_config",),)),
            **{field: (("peft_config", key),) for field, key, _, _ in _LORA_KEYS},
            "method.lora_targets": (("peft_config", "target_modules"),),
            "method.lora_modules_to_save": (("peft_config", "modules_to_save"),),
        },
        _read_method, refuse_write,
    ),
    Custom(
        dict.fromkeys(("method.quantization", "method.double_quantization"), (("quant_config",),)),
        _read_quantization,
        refuse_write,
    ),
    Custom(dict.fromkeys(optimizers.OPTIMIZER_FIELDS, (("optim_config",),)), _read_optimizer, refuse_write),
    _build_key("optimizer.learning_rate", "learning_rate", PLAIN.number, 1e-4, beside=("max_grad_norm",)),
    _build_key("optimizer.clipping", "max_grad_norm", PLAIN.number, 1.0, beside=("learning_rate",)),
    _build_key("batch.micro", "micro_batch_size", PLAIN.integer, 1, beside=("output_dir",)),
    Key("batch.global_", (("global_batch_size",),), PLAIN.integer, siblings=("micro_batch_size",)),
    _build_key("sequence.length", "cutoff_len", PLAIN.integer, 2048, beside=("micro_batch_size",)),
    _build_key(
        "activations.checkpointing", "enable_activation_checkpointing", _CHECKPOINTING_CODEC, "full", "none",
        ("cutoff_len",),
    ),
    _build_key("activations.attention", "flash_attn", _ATTENTION_CODEC, "sdpa", beside=("model_class", "model")),
    Custom(
        dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), (("kernel_config",),)),
        _read_kernels,
        refuse_write,
    ),
    Custom(dict.fromkeys((
        "parallel.strategy", "parallel.sharding", "parallel.reshard_after_forward", "parallel.offload_params",
        "parallel.offload_optimizer", "parallel.wrapping", "parallel.use_orig_params", "checkpoint.state_dict",
    ), (("dist_config",),)), _read_parallel, refuse_write),
    Custom({"parallel.context": (("cp_size",), ("dist_config", "cp_size"))}, _read_context, refuse_write),
    Custom(
        {
            "checkpoint.strategy": (("save_steps",), ("save_epochs",)),
            "checkpoint.interval": (("save_steps",),),
            "checkpoint.load_path": (("resume_from_checkpoint",),),
            "checkpoint.resume_latest": (("resume_from_checkpoint",),),
        },
        _read_saving, refuse_write,
    ),
    _build_key("checkpoint.keep", "save_total_limit", _KEEP_CODEC, "all", "all", ("save_steps", "output_dir")),
    Key("checkpoint.path", (("output_dir",),), PLAIN.string),
    _build_key("logging.interval", "logging_steps", PLAIN.integer, 1, beside=("max_steps", "output_dir")),
)  # fmt: skip
