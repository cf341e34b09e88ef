"""Architectures from a transformers `config.json`, in closed form."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.dimensions import Dimensions, HfConfig, get_decoder_config, read_dimensions
from cfglint_train.models.families import FAMILIES, build_blueprint
from cfglint_train.models.lookup import find_by_shape

DTYPES: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
}

CLASSIFIER: Final = "ForSequenceClassification"


def parse_config(config: HfConfig, name: str = "") -> Architecture | None:
    """Return the architecture that a `config.json` describes, or None if it cannot be determined.

    Counts come from the family's closed form (`families.py`). For families without one (hybrids, models with
    towers), counts come from the catalogue's entry with the same dimensions apart from the vocabulary. The result is
    None if neither exists or a dimension is missing, because cfglint never guesses the size of a model.
    """
    family = str(get_decoder_config(config).get("model_type") or config.get("model_type") or "")
    dimensions = read_dimensions(config, FAMILIES[family].defaults if family in FAMILIES else None)
    if dimensions is None:
        return None
    scores = count_labels(config)
    if scores is not None:
        dimensions = dimensions._replace(tied=False)
    plan = build_blueprint(dimensions._replace(model_type=family), get_decoder_config(config), scores)
    if plan is None:
        catalogued = None if scores else find_by_shape(dimensions)
        uncounted = build_uncounted(dimensions, config, name)
        return catalogued and catalogued._replace(
            id=uncounted.id, dtype=uncounted.dtype, quantization=uncounted.quantization, whole_type=uncounted.whole_type
        )
    linears = plan.linears
    if dimensions.tied:
        linears += (Linear("lm_head", dimensions.hidden, dimensions.vocab, 1, "head"),)
    return build_uncounted(dimensions, config, name)._replace(
        parameters=plan.parameters,
        tensors=plan.tensors,
        largest_tensor=plan.largest_tensor,
        layer_parameters=plan.layer_parameters,
        expert_parameters=plan.expert_parameters,
        active_parameters=count_active_parameters(plan.parameters, plan.expert_parameters, dimensions),
        linears=linears,
    )


def build_uncounted(dimensions: Dimensions, config: HfConfig, name: str) -> Architecture:
    """Return the architecture with all parameter counts set to 0."""
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
        dtype=get_dtype(config),
        quantization=get_quantization(config),
        remote_code=family.remote if family else "auto_map" in config,
        context=dimensions.context,
        variant=get_variant(get_decoder_config(config)),
        whole_type=get_whole_type(config, dimensions.model_type),
        source="config.json",
    )


VARIANTS: Final[Mapping[tuple[str, str], str]] = {
    ("falcon", "new_decoder_architecture"): "falcon_new",
    ("falcon", "alibi"): "falcon_alibi",
    ("stablelm", "qk_layernorm"): "stablelm_qk_norm",
}
"""(model type, enabled setting) -> name of the formula for models with that setting."""


def get_variant(config: HfConfig) -> str:
    """Return the formula's name if the decoder is a variant of its `model_type`, or "" for the usual formula."""
    family = str(config.get("model_type") or "")
    return next((name for (kind, key), name in VARIANTS.items() if kind == family and config.get(key)), "")


def get_whole_type(config: HfConfig, decoder: str) -> str:
    """Return the `model_type` at the top of a configuration, or "" if it equals the decoder's."""
    outer = str(config.get("model_type") or "")
    return "" if outer == decoder else outer


def count_labels(config: HfConfig) -> int | None:
    """Return the number of labels of a sequence classifier (a reward model), or None for any other model."""
    names = config.get("architectures")
    if not isinstance(names, (list, tuple)) or not any(str(name).endswith(CLASSIFIER) for name in names):
        return None
    label_count = config.get("num_labels")
    if isinstance(label_count, int):
        return label_count
    by_id = config.get("id2label")
    return len(by_id) if isinstance(by_id, Mapping) and by_id else 2


def count_active_parameters(parameters: int, experts: int, dimensions: Dimensions) -> int | None:
    """Return the number of parameters used for one token, or None for a dense model."""
    mixture = dimensions.experts
    return parameters - experts + experts * mixture.per_token // mixture.count if mixture else None


def get_dtype(config: HfConfig) -> str | None:
    """Return the number format of the published weights in the plan's terms, or None if it is unknown."""
    name = config.get("dtype") or config.get("torch_dtype") or get_decoder_config(config).get("torch_dtype")
    return DTYPES.get(str(name).removeprefix("torch.")) if name else None


def get_quantization(config: HfConfig) -> str | None:
    """Return the quantization of the published weights in the plan's terms, or None if there is none."""
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
