"""What axolotl trains, and in which number formats."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.axolotl.settings import has_plugin, read_bool
from cfglint_train.frameworks.codec import Codec, Unreadable
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    before,
    granted,
    names,
    origin_of,
    pending,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import Custom, read_only
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
        yield "method.stage", _STAGES.get(rl) if isinstance(rl, str) else None, config.origin("rl")
    elif read_bool(config, "reward_model"):
        yield "method.stage", "rm", config.origin("reward_model")
    elif read_bool(config, "process_reward_model"):
        yield "method.stage", "prm", config.origin("process_reward_model")
    elif config.get("pretraining_dataset") is not None:
        yield "method.stage", "pretrain", config.origin("pretraining_dataset")
    else:
        yield "method.stage", "sft", granted(config, ("rl",))


KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""The fused LoRA kernels; stated or not, these decide whether they switch themselves on."""
_EMBEDDING_KERNEL: Final = "lora_embedding_kernel"


def _read_kernels(config: Config) -> Iterator[Triple]:
    if config.get("adapter") not in ("lora", "qlora"):
        return
    stated = {key: read_bool(config, key) for key in KERNELS}
    given = [key for key, value in stated.items() if value is not None]
    if given:
        parts = tuple(part for part, key in zip(("mlp", "qkv", "o"), KERNELS) if stated[key])
        yield "method.lora_kernels", bool(parts), config.origin(given[0])
        if parts:
            yield "method.lora_kernel_parts", parts, config.origin(given[0])


def _write_kernels(config: Config, changes: Changes) -> list[Change]:
    """All of them off: what each may be switched on for depends on the model."""
    if "method.lora_kernels" not in pending(LORA_KERNELS, config, changes):
        return []
    if changes["method.lora_kernels"]:
        raise CannotEdit("which kernels a model can use is not known")
    if before(config, "0.7.0"):
        raise CannotEdit(f"axolotl {config.release} has no such kernels")
    keys = KERNELS if before(config, "0.16.0") else (*KERNELS, _EMBEDDING_KERNEL)
    for key in keys:
        refuse_override(config, (key,))
    return [Set((*config.root, key), False, ("lora_dropout", "lora_alpha", "adapter")) for key in keys]


LORA_KERNELS: Final = Custom(
    dict.fromkeys(("method.lora_kernels", "method.lora_kernel_parts"), names(*KERNELS)), _read_kernels, _write_kernels
)


def _read_tuning(config: Config) -> Iterator[Triple]:
    adapter = config.get("adapter")
    if adapter is None:
        partial = config.get("unfrozen_parameters")
        if partial:
            yield "method.tuning", "freeze", config.origin("unfrozen_parameters")
        else:
            yield "method.tuning", "full", origin_of(config, "adapter")
    elif isinstance(adapter, str):
        yield "method.tuning", {"lora": "lora", "qlora": "lora"}.get(adapter, adapter), config.origin("adapter")


def _read_lisa(config: Config) -> Iterator[Triple]:
    """Core/builders/causal.py: only where both are stated."""
    layers, interval = config.value("lisa_n_layers"), config.value("lisa_step_interval")
    if layers is MISSING or interval is MISSING or not layers or not interval:
        return
    yield "method.active_layers", PYDANTIC.integer.readable(layers), config.origin("lisa_n_layers")


def _read_quantization(config: Config) -> Iterator[Triple]:
    extra = config.get("bnb_config_kwargs")
    extra = extra if isinstance(extra, dict) else {}
    double, doubled = bool(extra.get("bnb_4bit_use_double_quant", True)), origin_of(config, "bnb_config_kwargs")
    if read_bool(config, "load_in_4bit") and config.get("adapter") == "lora" and not read_bool(config, "gptq"):
        # Up to 0.12.2 loaders/model.py hands `load_in_4bit` to from_pretrained, where bitsandbytes' defaults hold; then
        # _set_quantization_config asks for `qlora`. What comes of the key is the release's, as a default is.
        given = granted(config, ("load_in_4bit",))
        yield "method.quantization", "fp4" if before(config, "0.13.1") else "none", given
        double, doubled = False, given
    elif read_bool(config, "load_in_4bit"):
        kind = extra.get("bnb_4bit_quant_type", "nf4")
        yield "method.quantization", kind if kind in ("nf4", "fp4") else None, config.origin("load_in_4bit")
    elif read_bool(config, "load_in_8bit"):
        yield "method.quantization", "int8", config.origin("load_in_8bit")
    elif read_bool(config, "gptq"):
        yield "method.quantization", "gptq", config.origin("gptq")
    else:
        yield "method.quantization", "none", origin_of(config, "load_in_4bit")
    yield "method.double_quantization", double, doubled
    experts = read_bool(config, "quantize_moe_experts")
    yield "method.quantized_experts", bool(experts), origin_of(config, "quantize_moe_experts")
    # ScatterMoE adds adapters to its products (libs/scattermoe_lora, since 0.15.0), SonicMoE makes W + BA as PEFT does.
    fuses = expert_kernel(config) == "scattermoe" and not before(config, "0.15.0")
    yield "method.fuses_experts", fuses, origin_of(config, *_EXPERT_KEYS, "plugins")


def _write_quantization(config: Config, changes: Changes) -> list[Change]:
    """4 bits below an adapter, and experts in as many."""
    wanted, written = pending(QUANTIZATION, config, changes), list[Change]()
    if "method.quantization" in wanted:
        if wanted.pop("method.quantization") != "nf4" or config.get("adapter") != "lora":
            raise CannotEdit("only the weights below an adapter are quantised, to 4 bits")
        for key in ("adapter", "load_in_4bit"):
            refuse_override(config, (key,))
        written.append(Set((*config.root, "adapter"), "qlora"))
        written.append(Set((*config.root, "load_in_4bit"), True, ("adapter",)))
    if wanted.pop("method.quantized_experts", False):
        if read_bool(config, "lora_target_linear"):
            raise CannotEdit("lora_target_linear does not go with quantize_moe_experts")
        refuse_override(config, ("quantize_moe_experts",))
        written.append(Set((*config.root, "quantize_moe_experts"), True, ("load_in_4bit", "adapter")))
    if wanted:
        raise CannotEdit("only the weights below an adapter are quantised, to 4 bits")
    return written


_EXPERT_KEYS: Final = ("expert_backend", "use_scattermoe", "use_sonicmoe", "experts_implementation")


def expert_kernel(config: Config) -> str:
    """The kernel that experts run in, scattermoe or sonicmoe, or none (integrations/kernels/args.py): the plugin reads
    the keys, and `experts_implementation` by itself switches none on.
    """
    if not has_plugin(config, "kernels"):
        return ""
    backend, stated = config.get("expert_backend"), config.get("experts_implementation")
    if isinstance(backend, str) and not before(config, "0.18.0"):
        kernel = backend.lower()
    elif read_bool(config, "use_sonicmoe"):
        kernel = "sonicmoe"
    else:
        kernel = "scattermoe" if read_bool(config, "use_scattermoe") else ""
    return kernel if kernel in ("scattermoe", "sonicmoe") and stated in (None, kernel) else ""


def _read_targets(config: Config) -> Iterator[Triple]:
    if config.get("adapter") is None:
        return
    listed, origin = config.get("lora_target_modules"), origin_of(config, "lora_target_modules")
    words = WORDS.readable(listed or [])
    if config.get("peft_layers_to_transform") not in (None, []):
        note = "no formula covers adapters on some layers only (`peft_layers_to_transform`)"
        yield "method.lora_targets", None, config.origin("peft_layers_to_transform")._replace(note=note)
    elif read_bool(config, "lora_target_linear"):
        yield "method.lora_targets", ("all-linear", *(words or ())), config.origin("lora_target_linear")
    elif isinstance(listed, str) and listed and listed.lower() != "all-linear":
        # To PEFT one string is a regular expression over whole paths.
        yield "method.lora_targets", (), origin
        yield "method.lora_target_pattern", listed, origin
    else:
        yield "method.lora_targets", words, origin


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise Unreadable


WORDS: Final = Codec(_words, list)
"""One string, or a list of them."""


def _read_precision(config: Config) -> Iterator[Triple]:
    # utils/config/__init__.py resolve_dtype: bf16 defaults to "auto", which is true on Ampere and later, and gives way
    # to fp16 since 0.9.1 (0.9.0 takes bf16).
    bf16, fp16 = config.value("bf16"), read_bool(config, "fp16")
    chosen = config.origin("bf16") if bf16 is not MISSING else granted(config, ("bf16",))
    if bf16 == "auto":
        chosen = chosen._replace(kind="inferred", note="auto: bf16 where the GPU has it")
    wants_bf16 = bf16 in (MISSING, None, "auto", "full", True) or read_bool(config, "bf16")
    if bf16 is None or (bf16 in (MISSING, "auto") and fp16 and not before(config, "0.9.1")):
        wants_bf16 = False
    if wants_bf16 or read_bool(config, "bfloat16"):
        yield "precision.compute", "bf16", chosen if wants_bf16 else config.origin("bfloat16")
        autocast = bf16 != "full" and not (not wants_bf16 and read_bool(config, "bfloat16"))
        yield "precision.autocast", autocast, chosen
    elif fp16 or read_bool(config, "float16") or read_bool(config, "load_in_8bit"):
        yield "precision.compute", "fp16", origin_of(config, "fp16", "float16", "load_in_8bit")
        yield "precision.autocast", bool(fp16), origin_of(config, "fp16", "float16")
    else:
        yield "precision.compute", "fp32", chosen
        yield "precision.autocast", False, chosen


STAGE: Final = Custom(
    {"method.stage": names("rl", "reward_model", "process_reward_model", "pretraining_dataset")}, _read_stage, read_only
)
TUNING: Final = Custom({"method.tuning": names("adapter", "unfrozen_parameters")}, _read_tuning, read_only)
LISA: Final = Custom({"method.active_layers": names("lisa_n_layers", "lisa_step_interval")}, _read_lisa, read_only)
QUANTIZATION: Final = Custom(
    {
        "method.quantization": names("load_in_4bit", "load_in_8bit", "gptq", "bnb_config_kwargs"),
        "method.double_quantization": names("bnb_config_kwargs"),
        "method.quantized_experts": names("quantize_moe_experts"),
        "method.fuses_experts": names(*_EXPERT_KEYS, "plugins"),
    },
    _read_quantization,
    _write_quantization,
    also=names("adapter"),
)
TARGETS: Final = Custom(
    {
        "method.lora_targets": names("lora_target_modules", "lora_target_linear", "peft_layers_to_transform"),
        "method.lora_target_pattern": names("lora_target_modules"),
    },
    _read_targets,
    read_only,
)
PRECISION: Final = Custom(
    dict.fromkeys(("precision.compute", "precision.autocast"), names("bf16", "fp16", "bfloat16", "float16")),
    _read_precision,
    read_only,
)
