"""An architecture from a transformers `config.json`, by closed form."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.dimensions import Config, Dimensions, decoder_config, read
from cfglint_train.models.families import FAMILIES, blueprint
from cfglint_train.models.lookup import by_shape

DTYPES: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
}

CLASSIFIER: Final = "ForSequenceClassification"


def from_config(config: Config, name: str = "") -> Architecture | None:
    """The architecture that a `config.json` describes.

    Counts come from the family's closed form (`families.py`); for a family without one (hybrids, models with towers)
    from the catalogue's entry of exactly the same dimensions. None where neither has it, or where a dimension is
    missing: an unknown model is unknown, never guessed.
    """
    family = str(decoder_config(config).get("model_type") or config.get("model_type") or "")
    dimensions = read(config, FAMILIES[family].defaults if family in FAMILIES else None)
    if dimensions is None:
        return None
    scores = labels(config)
    if scores is not None:
        dimensions = dimensions._replace(tied=False)
    plan = blueprint(dimensions._replace(model_type=family), decoder_config(config), scores)
    if plan is None:
        twin = None if scores else by_shape(dimensions)
        stated = architecture(dimensions, config, name)
        return twin and twin._replace(
            id=stated.id, dtype=stated.dtype, quantization=stated.quantization, whole_type=stated.whole_type
        )
    linears = plan.linears
    if dimensions.tied:
        linears += (Linear("lm_head", dimensions.hidden, dimensions.vocab, 1, "head"),)
    return architecture(dimensions, config, name)._replace(
        parameters=plan.parameters,
        tensors=plan.tensors,
        largest_tensor=plan.largest_tensor,
        layer_parameters=plan.layer_parameters,
        expert_parameters=plan.expert_parameters,
        active_parameters=active(plan.parameters, plan.expert_parameters, dimensions),
        linears=linears,
    )


def architecture(dimensions: Dimensions, config: Config, name: str) -> Architecture:
    """The record with everything but the counts."""
    family = FAMILIES.get(dimensions.model_type)
    return Architecture(
        id=name or str(config.get("_name_or_path") or ""),
        model_type=dimensions.model_type,
        layers=dimensions.layers,
        hidden=dimensions.hidden,
        vocab=dimensions.vocab,
        heads=dimensions.heads,
        kv_heads=dimensions.kv_heads,
        head_dim=dimensions.head_dim,
        intermediate=dimensions.intermediate,
        tied=dimensions.tied,
        parameters=0,
        tensors=0,
        largest_tensor=0,
        layer_parameters=0,
        experts=dimensions.experts,
        latent=dimensions.latent,
        window=dimensions.window,
        full_attention_layers=dimensions.full_attention_layers,
        recurrent_layers=dimensions.recurrent_layers,
        gated=family.gated if family else True,
        dtype=dtype(config),
        quantization=quantization(config),
        remote_code=family.remote if family else "auto_map" in config,
        context=dimensions.context,
        variant=variant(decoder_config(config)),
        whole_type=whole_type(config, dimensions.model_type),
        source="config.json",
    )


VARIANTS: Final[Mapping[tuple[str, str], str]] = {
    ("falcon", "new_decoder_architecture"): "falcon_new",
    ("falcon", "alibi"): "falcon_alibi",
    ("stablelm", "qk_layernorm"): "stablelm_qk_norm",
}
"""(model type, setting that is on) -> the formula of models with that setting."""


def variant(config: Config) -> str:
    """The name of the formula of a decoder's layers, where its `model_type` has several; empty for the usual one."""
    family = str(config.get("model_type") or "")
    return next((name for (kind, key), name in VARIANTS.items() if kind == family and config.get(key)), "")


def whole_type(config: Config, decoder: str) -> str:
    """The `model_type` of a whole configuration; empty where it is the decoder's."""
    outer = str(config.get("model_type") or "")
    return "" if outer == decoder else outer


def labels(config: Config) -> int | None:
    """Outputs of the score that a sequence classifier (a reward model) has instead of a head; None without one."""
    names = config.get("architectures")
    if not isinstance(names, (list, tuple)) or not any(str(name).endswith(CLASSIFIER) for name in names):
        return None
    stated = config.get("num_labels")
    if isinstance(stated, int):
        return stated
    by_id = config.get("id2label")
    return len(by_id) if isinstance(by_id, Mapping) and by_id else 2


def active(parameters: int, experts: int, dimensions: Dimensions) -> int | None:
    """Parameters that one token passes through; None in a dense model."""
    mixture = dimensions.experts
    return parameters - experts + experts * mixture.per_token // mixture.count if mixture else None


def dtype(config: Config) -> str | None:
    """The number format of the published weights, in the plan's words."""
    stated = config.get("dtype") or config.get("torch_dtype") or decoder_config(config).get("torch_dtype")
    return DTYPES.get(str(stated).removeprefix("torch.")) if stated else None


def quantization(config: Config) -> str | None:
    """How the published weights are quantised, in the plan's words; None where they are not."""
    settings: Any = config.get("quantization_config")
    if not isinstance(settings, Mapping):
        return None
    method = str(settings.get("quant_method") or "").lower()
    if method == "bitsandbytes" or settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        if settings.get("load_in_8bit"):
            return "int8"
        return str(settings.get("bnb_4bit_quant_type") or "fp4")
    if method == "modelopt":
        return str(settings.get("quant_algo") or "nvfp4").lower()
    return method or None
