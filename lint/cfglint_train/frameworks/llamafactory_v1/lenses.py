"""The lenses between LLaMA-Factory v1's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, choice
from cfglint_train.frameworks.hf_trainer import fsdp, optimizers
from cfglint_train.frameworks.lens import Config, Triple, granted
from cfglint_train.frameworks.lens_types import Custom, Key, read_only
from cfglint_train.frameworks.llamafactory_v1.settings import plugin
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _key(field: Field, route: str, codec: Codec, default: Any, null: Any = None, beside: tuple[str, ...] = ()) -> Key:
    return Key(field, (tuple(route.split(".")),), codec, default, null, beside)


def _origin(config: Config, *route: str) -> Origin:
    return config.origin(*route) if config.get(*route) is not None else granted(config, route)


def _read_method(config: Config) -> Iterator[Triple]:
    name = plugin(config, "peft_config")
    if config.get("peft_config") is None:
        yield "method.tuning", "full", granted(config, ("peft_config",))
        return
    yield "method.tuning", name if name in ("lora", "freeze") else None, config.origin("peft_config")
    if name == "freeze":
        layers = config.get("peft_config", "freeze_trainable_layers", default=2)
        modules = config.get("peft_config", "freeze_trainable_modules", default="all")
        whole = modules in ("all", ["all"]) and not config.get("peft_config", "freeze_extra_modules")
        number = PLAIN.integer.readable(layers) if whole else None
        origin = _origin(config, "peft_config", "freeze_trainable_layers")
        yield "method.trainable_layers", None if number is None else abs(number), origin
    if name != "lora":
        return
    for field, key, default, codec in _LORA:
        value = config.get("peft_config", key, default=default)
        yield field, codec.readable(value), _origin(config, "peft_config", key)
    targets = config.get("peft_config", "target_modules", default="all")
    if isinstance(targets, str):
        targets = ["all-linear"] if targets == "all" else [targets]
    listed = isinstance(targets, list) and all(isinstance(item, str) for item in targets)
    yield "method.lora_targets", tuple(targets) if listed else None, _origin(config, "peft_config", "target_modules")
    extra = config.get("peft_config", "modules_to_save", default=[])
    listed = isinstance(extra, list) and all(isinstance(item, str) for item in extra)
    origin = _origin(config, "peft_config", "modules_to_save")
    yield "method.lora_modules_to_save", tuple(extra) if listed else None, origin


def _read_quantization(config: Config) -> Iterator[Triple]:
    name, bits = plugin(config, "quant_config"), config.get("quant_config", "quantization_bit")
    if config.get("quant_config") is None or (name == "auto" and bits is None):
        yield "method.quantization", "none", granted(config, ("quant_config",))
        return
    origin = config.origin("quant_config")
    if name not in ("auto", "bnb"):
        yield "method.quantization", None, origin
    elif bits in (4, None):
        # bnb without bits is taken for 4, whatever its warning says.
        kind = config.get("quant_config", "quantization_type", default="nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, origin
        double = config.get("quant_config", "double_quantization", default=True)
        yield "method.double_quantization", PLAIN.boolean.readable(double), origin
    else:
        yield "method.quantization", "int8" if bits == 8 else None, origin


def _read_parallel(config: Config) -> Iterator[Triple]:
    name = plugin(config, "dist_config")
    if config.get("dist_config") is None or name == "deepspeed":
        return
    origin = config.origin("dist_config")
    yield "parallel.strategy", "fsdp2" if name == "fsdp2" else None, origin
    if name != "fsdp2":
        return
    reshard = PLAIN.boolean.readable(config.get("dist_config", "reshard_after_forward", default=True))
    sharding = None if reshard is None else "full_shard" if reshard else "shard_grad_op"
    yield from fsdp.sharded(sharding, 2, _origin(config, "dist_config", "reshard_after_forward"))
    offload = config.get("dist_config", "offload_params") is True
    yield from fsdp.offloaded("cpu" if offload else "none", _origin(config, "dist_config", "offload_params"))
    yield "parallel.wrapping", "block", origin
    yield "parallel.use_orig_params", True, origin
    yield "checkpoint.state_dict", "sharded", origin


_LORA: Final[tuple[tuple[Field, str, Any, Codec], ...]] = (
    ("method.lora_rank", "r", 8, PLAIN.integer),
    ("method.lora_alpha", "lora_alpha", 16, PLAIN.number),
    ("method.lora_dora", "use_dora", False, PLAIN.boolean),
    ("method.lora_dropout", "lora_dropout", 0.05, PLAIN.number),
)


def _read_context(config: Config) -> Iterator[Triple]:
    route: Route = ("dist_config", "cp_size") if config.get("dist_config", "cp_size") is not None else ("cp_size",)
    yield "parallel.context", PLAIN.integer.readable(config.get(*route, default=1)), _origin(config, *map(str, route))


def _read_optimizer(config: Config) -> Iterator[Triple]:
    name = plugin(config, "optim_config")
    if config.get("optim_config") is None:
        for field, value in optimizers.OPTIMIZERS["adamw_torch"].items():
            yield field, value, granted(config, ("optim_config",))
        return
    origin = config.origin("optim_config")
    yield "optimizer.name", name, origin
    yield "optimizer.implementation", "custom", origin
    yield "optimizer.paged", False, origin
    yield "optimizer.stated_name", name, origin


def _read_kernels(config: Config) -> Iterator[Triple]:
    # Training asks the kernel plugin for the logits, so that the loss is never fused.
    liger = plugin(config, "kernel_config") == "liger_kernel"
    yield "activations.fused_loss", "none", _origin(config, "kernel_config")
    yield "activations.liger_layers", liger, _origin(config, "kernel_config")


def _read_saving(config: Config) -> Iterator[Triple]:
    steps, epochs = config.get("save_steps"), config.get("save_epochs")
    if epochs is not None:
        yield "checkpoint.strategy", "epoch", config.origin("save_epochs")
    elif steps:
        yield "checkpoint.strategy", "steps", config.origin("save_steps")
        yield "checkpoint.interval", PLAIN.integer.readable(steps), config.origin("save_steps")
    else:
        yield "checkpoint.strategy", "no", _origin(config, "save_steps")
    stated = config.get("resume_from_checkpoint")
    if stated == "auto":
        yield "checkpoint.resume_latest", True, config.origin("resume_from_checkpoint")
    elif isinstance(stated, str):
        yield "checkpoint.load_path", stated, config.origin("resume_from_checkpoint")


_KEEP: Final = Codec(PLAIN.integer.read, lambda value: None if value == "all" else value)

_CHECKPOINTING: Final = choice({True: "full", False: "none"})

_ATTENTION: Final = choice({"sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash"})

LENSES: Final = (
    _key("model.id", "model", PLAIN.string, "Qwen/Qwen3-4B-Instruct-2507"),
    _key("model.trust_remote_code", "trust_remote_code", PLAIN.boolean, False, False),
    Custom(
        {
            **dict.fromkeys(("method.tuning", "method.trainable_layers"), (("peft_config",),)),
            **{field: (("peft_config", key),) for field, key, _, _ in _LORA},
            "method.lora_targets": (("peft_config", "target_modules"),),
            "method.lora_modules_to_save": (("peft_config", "modules_to_save"),),
        },
        _read_method, read_only,
    ),
    Custom(
        dict.fromkeys(("method.quantization", "method.double_quantization"), (("quant_config",),)),
        _read_quantization,
        read_only,
    ),
    Custom(dict.fromkeys(optimizers.OPTIMIZER_FIELDS, (("optim_config",),)), _read_optimizer, read_only),
    _key("optimizer.learning_rate", "learning_rate", PLAIN.number, 1e-4, beside=("max_grad_norm",)),
    _key("optimizer.clipping", "max_grad_norm", PLAIN.number, 1.0, beside=("learning_rate",)),
    _key("batch.micro", "micro_batch_size", PLAIN.integer, 1, beside=("output_dir",)),
    Key("batch.global_", (("global_batch_size",),), PLAIN.integer, beside=("micro_batch_size",)),
    _key("sequence.length", "cutoff_len", PLAIN.integer, 2048, beside=("micro_batch_size",)),
    _key(
        "activations.checkpointing", "enable_activation_checkpointing", _CHECKPOINTING, "full", "none", ("cutoff_len",)
    ),
    _key("activations.attention", "flash_attn", _ATTENTION, "sdpa", beside=("model_class", "model")),
    Custom(
        dict.fromkeys(("activations.fused_loss", "activations.liger_layers"), (("kernel_config",),)),
        _read_kernels,
        read_only,
    ),
    Custom(dict.fromkeys((
        "parallel.strategy", "parallel.sharding", "parallel.reshard_after_forward", "parallel.offload_params",
        "parallel.offload_optimizer", "parallel.wrapping", "parallel.use_orig_params", "checkpoint.state_dict",
    ), (("dist_config",),)), _read_parallel, read_only),
    Custom({"parallel.context": (("cp_size",), ("dist_config", "cp_size"))}, _read_context, read_only),
    Custom(
        {
            "checkpoint.strategy": (("save_steps",), ("save_epochs",)),
            "checkpoint.interval": (("save_steps",),),
            "checkpoint.load_path": (("resume_from_checkpoint",),),
            "checkpoint.resume_latest": (("resume_from_checkpoint",),),
        },
        _read_saving, read_only,
    ),
    _key("checkpoint.keep", "save_total_limit", _KEEP, "all", "all", ("save_steps", "output_dir")),
    Key("checkpoint.path", (("output_dir",),), PLAIN.string),
    _key("logging.interval", "logging_steps", PLAIN.integer, 1, beside=("max_steps", "output_dir")),
)  # fmt: skip
