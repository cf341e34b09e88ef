"""Parameter counts of models that are built with transformers' classes on the meta device (no weights, no download).

Needs torch and transformers; linting never imports this module.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Linear, ModelPart

# Path components of projectors: parameters that connect a tower (vision, audio) with the decoder.
PROJECTORS: Final = frozenset(
    {
        "multi_modal_projector",
        "connector",
        "mlp_AR",
        "merger",
        "deepstack_merger_list",
        "embed_vision",
        "embed_audio",
        "vision_projector",
        "mm_projector",
    }
)

TIED: Final = "tie_word_embeddings"

# Suffix of masked language models, which are encoders without a decoder.
MASKED_SUFFIX: Final = "ForMaskedLM"

# Attribute that holds the head of a model that scores sequences, such as a reward model.
SCORE_HEAD: Final = "score"

# Attributes that hold the blocks of transformers' decoders, and attributes that may wrap them.
BLOCKS: Final = ("layers", "h", "blocks", "layer", "block")
WRAPPERS: Final = ("model", "encoder", "transformer")


class Counts(Frozen):
    """Sizes of a built model in elements; `tensors` is the number of parameter tensors."""

    parameters: int
    tensors: int
    largest_tensor: int
    layer_parameters: int
    """Parameters of the largest decoder layer."""
    embedding: int
    """Elements of the token embedding."""
    tied: bool
    expert_parameters: int
    tower_parameters: int
    projector_parameters: int
    linears: tuple[Linear, ...]


def build_config(settings: Mapping[str, Any]) -> Any:
    """Return the configuration object of a `config.json`; raise KeyError for an unknown `model_type`."""
    settings = {key: value for key, value in settings.items() if key != "architectures"}
    return CONFIG_MAPPING[settings["model_type"]].from_dict(settings)


def add_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with all defaults filled in; `tie_word_embeddings` keeps its value if it is set.

    T5's class ties head and embedding regardless of the setting, but T5 1.1 (Flan-T5, T0, mT5) has a separate head.
    """
    complete: dict[str, Any] = build_config(settings).to_dict()
    return {**complete, **{key: settings[key] for key in (TIED,) if key in settings}}


def build_model(settings: Mapping[str, Any]) -> Any:
    """Build the model for the settings of a `config.json` on the meta device.

    `architectures` names the class. Raises KeyError for an unknown `model_type`, AttributeError for an unknown class.
    """
    model_class = getattr(transformers, settings["architectures"][0])
    config = build_config(settings)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = model_class._from_config(config)
    head = model.get_output_embeddings()
    if settings.get(TIED) is False and head is not None and head.weight is model.get_input_embeddings().weight:
        head.weight = torch.nn.Parameter(torch.empty_like(head.weight))
    return model


def count_model(model: Any) -> Counts:
    """Count the parameters of a built model; tied parameters count once.

    In models with an encoder, everything except the embedding and the head belongs to the part `decoder`.
    """
    parameters = dict(model.named_parameters())
    backbone, (decoder, head, embedding) = _get_backbone(model), _find_prefixes(model)
    tied = model.get_output_embeddings() is not None and (
        model.get_output_embeddings().weight is model.get_input_embeddings().weight
    )
    parts = {name: classify_part(name, decoder, head, embedding) for name in parameters}
    by_part: Counter[str] = Counter()
    for name, parameter in parameters.items():
        by_part[parts[name]] += parameter.numel()
    blocks = _find_blocks(backbone)
    return Counts(
        parameters=sum(parameter.numel() for parameter in parameters.values()),
        tensors=len(parameters),
        largest_tensor=max(parameter.numel() for parameter in parameters.values()),
        layer_parameters=max(sum(parameter.numel() for parameter in block.parameters()) for block in blocks),
        embedding=model.get_input_embeddings().weight.numel(),
        tied=tied,
        expert_parameters=sum(
            parameter.numel() for name, parameter in parameters.items() if is_expert(name, parameter)
        ),
        tower_parameters=by_part["tower"],
        projector_parameters=by_part["projector"],
        linears=tuple(sorted(_count_linears(model, decoder, head, embedding))),
    )


def list_matrices(model: Any) -> Iterator[tuple[str, ModelPart]]:
    """Yield the path and the part of every linear, embedding and Conv1D module of a built model."""
    prefixes = _find_prefixes(model)
    for path, module in model.named_modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) or type(module).__name__ == "Conv1D":
            yield path, classify_part(path, *prefixes)


def _get_backbone(model: Any) -> Any:
    return model.base_model if type(model).__name__.endswith(MASKED_SUFFIX) else model.get_decoder()


def _find_prefixes(model: Any) -> tuple[str, str, str]:
    """Return the paths of the decoder (empty if the whole model counts as decoder), the head and the embedding."""
    is_encoder = model.config.is_encoder_decoder or type(model).__name__.endswith(MASKED_SUFFIX)
    decoder = "" if is_encoder else _find_prefix(model, _get_backbone(model))
    head = _find_prefix(model, model.get_output_embeddings() or getattr(model, SCORE_HEAD, None))
    return decoder, head, _find_prefix(model, model.get_input_embeddings())


def classify_part(name: str, decoder: str, head: str, embedding: str) -> ModelPart:
    """Return the part of the model that a parameter or module belongs to, given its path and the paths of the parts."""
    if embedding and _is_inside(name, embedding):
        return "embedding"
    if head and _is_inside(name, head):
        return "head"
    if _is_inside(name, decoder):
        return "decoder"
    return "projector" if PROJECTORS.intersection(name.split(".")) else "tower"


def is_expert(name: str, parameter: Any) -> bool:
    """Return whether a parameter belongs to the routed experts of a mixture-of-experts model."""
    path = name.split(".")
    return "experts" in path and not {"router", "gate"}.intersection(path[path.index("experts") + 1 : -2])


def _count_linears(model: Any, decoder: str, head: str, embedding: str) -> Iterator[Linear]:
    counts: Counter[tuple[str, int, int, ModelPart, int]] = Counter()
    counted_tables: set[int] = set()  # encoder and decoder may share an embedding
    for path, module in model.named_modules():
        part = classify_part(path, decoder, head, embedding)
        leaf = path.rsplit(".", 1)[-1]
        if isinstance(module, torch.nn.Linear):
            counts[(_name_leaf(path, leaf), module.in_features, module.out_features, part, 0)] += 1
        elif type(module).__name__ == "Conv1D":
            counts[(leaf, module.nx, module.nf, part, 0)] += 1
        elif isinstance(module, torch.nn.Embedding) and part in ("embedding", "decoder"):
            if id(module.weight) in counted_tables:
                continue
            counted_tables.add(id(module.weight))
            counts[(leaf, module.num_embeddings, module.embedding_dim, "embedding", 0)] += 1
        for name, parameter in module.named_parameters(recurse=False):
            if not is_expert(f"{path}.{name}", parameter):
                continue
            if parameter.dim() == 3:
                experts, rows, columns = parameter.shape
                counts[(name, rows, columns, part, experts)] += 1
            elif parameter.dim() == 2 and hasattr(
                module, "moe_num_experts"
            ):  # DBRX stacks the experts in the first dimension
                experts = module.moe_num_experts
                counts[(name, parameter.shape[0] // experts, parameter.shape[1], part, experts)] += 1
    for (name, inputs, outputs, part, experts), count in counts.items():
        yield Linear(name, inputs, outputs, count, part, experts)


def _name_leaf(path: str, leaf: str) -> str:
    """Return the last name of a path that is not a number, because a Sequential only numbers its modules."""
    while leaf.isdigit() and "." in path:
        path = path.rsplit(".", 1)[0]
        leaf = path.rsplit(".", 1)[-1]
    return leaf


def _find_blocks(decoder: Any) -> Any:
    """Return the list of the decoder's blocks; raise LookupError if none of the usual attributes holds it."""
    for owner in (decoder, *(getattr(decoder, name, None) for name in WRAPPERS)):
        for name in BLOCKS:
            blocks = getattr(owner, name, None)
            if isinstance(blocks, torch.nn.ModuleList):
                return blocks
    raise LookupError(f"{type(decoder).__name__} has its blocks in none of {', '.join(BLOCKS)}")


def _find_prefix(model: Any, module: Any) -> str:
    if module is None:
        return ""
    for name, candidate in model.named_modules():
        if candidate is module:
            return str(name)
    return ""


def _is_inside(name: str, prefix: str) -> bool:
    return prefix == "" or name == prefix or name.startswith(prefix + ".")
