"""axolotl lenses for the training method: stage, trained weights, quantization and number formats."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.axolotl.settings import has_plugin, read_bool
from cfglint_train.frameworks.codec import Codec, UnreadableError
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
    refuse_override,
    select_pending,
)
from cfglint_train.frameworks.lens_types import Custom, refuse_write
from cfglint_train.frameworks.loaders import PYDANTIC

_STAGES: Final = {
    "dpo": "dpo",
    "gdpo": "grpo",
    "grpo": "grpo",
    "ipo": "ipo",
    "orpo": "orpo",
    "kto": "kto",
    "simpo": "simpo",
    "ebft": "ebft",
}


def _read_stage(config: Config) -> Iterator[Triple]:
    rl = config.get("rl")
    if rl is not None:
        yield "method.stage", _STAGES.get(rl) if isinstance(rl, str) else None, config.get_origin("rl")
    elif read_bool(config, "reward_model"):
        yield "method.stage", "rm", config.get_origin("reward_model")
    elif read_bool(config, "process_reward_model"):
        yield "method.stage", "prm", config.get_origin("process_reward_model")
    elif config.get("pretraining_dataset") is not None:
        yield "method.stage", "pretrain", config.get_origin("pretraining_dataset")
    else:
        yield "method.stage", "sft", build_default_origin(config, ("rl",))


KERNEL_KEYS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""Keys of the fused LoRA kernels, which axolotl may also turn on automatically."""
_EMBEDDING_KERNEL: Final = "lora_embedding_kernel"


def _read_kernels(config: Config) -> Iterator[Triple]:
    if config.get("adapter") not in ("lora", "qlora"):
        return
    stated = {key: read_bool(config, key) for key in KERNEL_KEYS}
    stated_keys = [key for key, value in stated.items() if value is not None]
    if stated_keys:
        parts = tuple(part for part, key in zip(("mlp", "qkv", "o"), KERNEL_KEYS) if stated[key])
        yield "method.lora_kernels", bool(parts), config.get_origin(stated_keys[0])
        if parts:
            yield "method.lora_kernel_parts", parts, config.get_origin(stated_keys[0])


def _write_kernels(config: Config, changes: Changes) -> list[Change]:
    """Return the changes that turn all kernels off.

    Raise `CannotEdit` if the change turns them on, because which kernels work depends on the model.
    """
    if "method.lora_kernels" not in select_pending(LORA_KERNELS, config, changes):
        return []
    if changes["method.lora_kernels"]:
        raise CannotEdit("it is unknown which kernels the model can use")
    if is_before(config, "0.7.0"):
        raise CannotEdit(f"axolotl {config.release} has no such kernels")
    keys = KERNEL_KEYS if is_before(config, "0.16.0") else (*KERNEL_KEYS, _EMBEDDING_KERNEL)
    for key in keys:
        refuse_override(config, (key,))
    return [Set((*config.root, key), False, ("lora_dropout", "lora_alpha", "adapter")) for key in keys]


LORA_KERNELS: Final = Custom(
    dict.fromkeys(("method.lora_kernels", "method.lora_kernel_parts"), parse_routes(*KERNEL_KEYS)),
    _read_kernels,
    _write_kernels,
)


def _read_tuning(config: Config) -> Iterator[Triple]:
    adapter = config.get("adapter")
    if adapter is None:
        unfrozen = config.get("unfrozen_parameters")
        if unfrozen:
            yield "method.tuning", "freeze", config.get_origin("unfrozen_parameters")
        else:
            yield "method.tuning", "full", find_origin(config, "adapter")
    elif isinstance(adapter, str):
        yield "method.tuning", {"lora": "lora", "qlora": "lora"}.get(adapter, adapter), config.get_origin("adapter")


def _read_lisa(config: Config) -> Iterator[Triple]:
    """Yield the number of LISA's active layers; LISA is on only if both keys are set (core/builders/causal.py)."""
    layers, interval = config.get_value("lisa_n_layers"), config.get_value("lisa_step_interval")
    if layers is MISSING or interval is MISSING or not layers or not interval:
        return
    yield "method.active_layers", PYDANTIC.integer.read_or_none(layers), config.get_origin("lisa_n_layers")


def _read_quantization(config: Config) -> Iterator[Triple]:
    bnb_kwargs = config.get("bnb_config_kwargs")
    bnb_kwargs = bnb_kwargs if isinstance(bnb_kwargs, dict) else {}
    is_doubled, double_origin = (
        bool(bnb_kwargs.get("bnb_4bit_use_double_quant", True)),
        find_origin(config, "bnb_config_kwargs"),
    )
    if read_bool(config, "load_in_4bit") and config.get("adapter") == "lora" and not read_bool(config, "gptq"):
        # Before 0.13.1, loaders/model.py passes `load_in_4bit` to from_pretrained, which uses bitsandbytes' defaults.
        # Later, _set_quantization_config requires `qlora`. The origin is a default, because the effect of the key
        # depends on the release.
        default_origin = build_default_origin(config, ("load_in_4bit",))
        yield "method.quantization", "fp4" if is_before(config, "0.13.1") else "none", default_origin
        is_doubled, double_origin = False, default_origin
    elif read_bool(config, "load_in_4bit"):
        kind = bnb_kwargs.get("bnb_4bit_quant_type", "nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, config.get_origin("load_in_4bit")
    elif read_bool(config, "load_in_8bit"):
        yield "method.quantization", "int8", config.get_origin("load_in_8bit")
    elif read_bool(config, "gptq"):
        yield "method.quantization", "gptq", config.get_origin("gptq")
    else:
        yield "method.quantization", "none", find_origin(config, "load_in_4bit")
    yield "method.double_quantization", is_doubled, double_origin
    quantises_experts = read_bool(config, "quantize_moe_experts")
    yield "method.quantized_experts", bool(quantises_experts), find_origin(config, "quantize_moe_experts")
    # ScatterMoE adds the adapter's product inside its kernel (libs/scattermoe_lora, from 0.15.0 on). SonicMoE computes
    # W + BA, as PEFT does.
    fuses_experts = find_expert_kernel(config) == "scattermoe" and not is_before(config, "0.15.0")
    yield "method.fuses_experts", fuses_experts, find_origin(config, *_EXPERT_KEYS, "plugins")


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    """Return the changes that quantize the base weights under an adapter, and the experts, to 4 bits.

    Raise `CannotEdit` for any other change.
    """
    pending_changes, edits = select_pending(QUANTIZATION, config, changes), list[Change]()
    if "method.quantization" in pending_changes:
        if pending_changes.pop("method.quantization") != "nf4" or config.get("adapter") != "lora":
            raise CannotEdit("only base weights under an adapter are quantised, to 4 bits")
        for key in ("adapter", "load_in_4bit"):
            refuse_override(config, (key,))
        edits.append(Set((*config.root, "adapter"), "qlora"))
        edits.append(Set((*config.root, "load_in_4bit"), True, ("adapter",)))
    if pending_changes.pop("method.quantized_experts", False):
        if read_bool(config, "lora_target_linear"):
            raise CannotEdit("lora_target_linear does not work with quantize_moe_experts")
        refuse_override(config, ("quantize_moe_experts",))
        edits.append(Set((*config.root, "quantize_moe_experts"), True, ("load_in_4bit", "adapter")))
    if pending_changes:
        raise CannotEdit("only base weights under an adapter are quantised, to 4 bits")
    return edits


_EXPERT_KEYS: Final = ("expert_backend", "use_scattermoe", "use_sonicmoe", "experts_implementation")


def find_expert_kernel(config: Config) -> str:
    """Return the kernel of the experts, "scattermoe" or "sonicmoe", or "" (integrations/kernels/args.py).

    The kernels plugin reads the keys; `experts_implementation` alone does not turn a kernel on.
    """
    if not has_plugin(config, "kernels"):
        return ""
    backend, implementation = config.get("expert_backend"), config.get("experts_implementation")
    if isinstance(backend, str) and not is_before(config, "0.18.0"):
        kernel = backend.lower()
    elif read_bool(config, "use_sonicmoe"):
        kernel = "sonicmoe"
    else:
        kernel = "scattermoe" if read_bool(config, "use_scattermoe") else ""
    return kernel if kernel in ("scattermoe", "sonicmoe") and implementation in (None, kernel) else ""


def _read_targets(config: Config) -> Iterator[Triple]:
    if config.get("adapter") is None:
        return
    target_modules, origin = config.get("lora_target_modules"), find_origin(config, "lora_target_modules")
    words = WORD_LIST.read_or_none(target_modules or [])
    if config.get("peft_layers_to_transform") not in (None, []):
        note = "no formula covers adapters on some layers only (`peft_layers_to_transform`)"
        yield "method.lora_targets", None, config.get_origin("peft_layers_to_transform")._replace(note=note)
    elif read_bool(config, "lora_target_linear"):
        yield "method.lora_targets", ("all-linear", *(words or ())), config.get_origin("lora_target_linear")
    elif isinstance(target_modules, str) and target_modules and target_modules.lower() != "all-linear":
        # PEFT treats a single string as a regular expression for the full names of modules.
        yield "method.lora_targets", (), origin
        yield "method.lora_target_pattern", target_modules, origin
    else:
        yield "method.lora_targets", words, origin


def _parse_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise UnreadableError


WORD_LIST: Final = Codec(_parse_words, list)
"""Codec for a string or a list of strings, read as a tuple."""


def _read_precision(config: Config) -> Iterator[Triple]:
    # utils/config/__init__.py resolve_dtype: bf16 defaults to "auto", which is true on Ampere and later. From 0.9.1 on,
    # fp16 takes precedence over "auto" (0.9.0 uses bf16).
    bf16, fp16 = config.get_value("bf16"), read_bool(config, "fp16")
    bf16_origin = config.get_origin("bf16") if bf16 is not MISSING else build_default_origin(config, ("bf16",))
    if bf16 == "auto":
        bf16_origin = bf16_origin._replace(kind="inferred", note="auto: bf16 if the GPU supports it")
    wants_bf16 = bf16 in (MISSING, None, "auto", "full", True) or read_bool(config, "bf16")
    if bf16 is None or (bf16 in (MISSING, "auto") and fp16 and not is_before(config, "0.9.1")):
        wants_bf16 = False
    if wants_bf16 or read_bool(config, "bfloat16"):
        yield "precision.compute", "bf16", bf16_origin if wants_bf16 else config.get_origin("bfloat16")
        autocast = bf16 != "full" and not (not wants_bf16 and read_bool(config, "bfloat16"))
        yield "precision.autocast", autocast, bf16_origin
    elif fp16 or read_bool(config, "float16") or read_bool(config, "load_in_8bit"):
        yield "precision.compute", "fp16", find_origin(config, "fp16", "float16", "load_in_8bit")
        yield "precision.autocast", bool(fp16), find_origin(config, "fp16", "float16")
    else:
        yield "precision.compute", "fp32", bf16_origin
        yield "precision.autocast", False, bf16_origin


STAGE: Final = Custom(
    {"method.stage": parse_routes("rl", "reward_model", "process_reward_model", "pretraining_dataset")},
    _read_stage,
    refuse_write,
)
TUNING: Final = Custom({"method.tuning": parse_routes("adapter", "unfrozen_parameters")}, _read_tuning, refuse_write)
LISA: Final = Custom(
    {"method.active_layers": parse_routes("lisa_n_layers", "lisa_step_interval")}, _read_lisa, refuse_write
)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": parse_routes("load_in_4bit", "load_in_8bit", "gptq", "bnb_config_kwargs"),
        "method.double_quantization": parse_routes("bnb_config_kwargs"),
        "method.quantized_experts": parse_routes("quantize_moe_experts"),
        "method.fuses_experts": parse_routes(*_EXPERT_KEYS, "plugins"),
    },
    _read_quantization,
    _write_quantization,
    other_keys=parse_routes("adapter"),
)
TARGETS: Final = Custom(
    {
        "method.lora_targets": parse_routes("lora_target_modules", "lora_target_linear", "peft_layers_to_transform"),
        "method.lora_target_pattern": parse_routes("lora_target_modules"),
    },
    _read_targets,
    refuse_write,
)
PRECISION: Final = Custom(
    dict.fromkeys(("precision.compute", "precision.autocast"), parse_routes("bf16", "fp16", "bfloat16", "float16")),
    _read_precision,
    refuse_write,
)
