"""Catalogue records: the counts of a model, computed from its source entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Linear, Tower
from cfglint_train.models.attentions import count_sparse_layers, read_attention
from cfglint_train.models.dimensions import Dimensions, get_decoder_config, read_dimensions
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.hf_config import build_uncounted, count_active_parameters, parse_config
from cfglint_train.models.names import parse_name
from cfglint_train.models.recurrent import read_recurrent
from cfglint_train.models.towers import read_vision
from tools.models.measure import Counts, add_defaults, build_model, count_model

# Fields of the record, in the order of the catalogue. A field with its default value is omitted.
FIELDS: Final = tuple(field for field in Architecture._fields if field not in ("id", "source"))


class MismatchError(Exception):
    """A count that differs from the published one."""


def build_record(model: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the catalogue record of one source entry.

    Raise MismatchError if the count differs from the published one, KeyError or AttributeError if transformers has no
    class for the model, LookupError if the decoder's blocks are not found.
    """
    shape, dimensions = count_architecture(model, entry)
    published = entry.get("published_parameters")
    if published and published["count"] != shape.parameters:
        raise MismatchError(
            f"{model}: {shape.parameters} parameters are counted, {published['count']} are published "
            f"({published['source']})"
        )
    shape = shape._replace(
        dtype=entry["dtype"], quantization=entry.get("quantization"), context=dimensions.context or shape.context
    )
    fields = {name: convert_tuple(getattr(shape, name)) for name in FIELDS if _has_value(shape, name)}
    fields["linears"] = [trim_defaults(linear) for linear in shape.linears]
    fields["source"] = entry["source"]
    if entry.get("aliases"):
        fields["aliases"] = entry["aliases"]
    if entry.get("contexts"):
        fields["contexts"] = {parse_name(name).full_key: tokens for name, tokens in entry["contexts"].items()}
    return fields


def count_architecture(model: str, entry: Mapping[str, Any]) -> tuple[Architecture, Dimensions]:
    """Return the architecture and its dimensions; count the built model, or use the closed form if no class exists."""
    config = entry["config"]
    family = FAMILIES.get(config["model_type"])
    if family is not None and family.remote:
        shape = parse_config(config, model)
        dimensions = read_dimensions(config, family.defaults)
        assert shape is not None, model
        assert dimensions is not None, model
        if entry.get("split_experts"):
            shape = _unfuse(
                shape._replace(**split_experts(shape.linears, shape.tensors, _get_expert_width(dimensions)))
            )
        return shape, dimensions
    complete_config = add_defaults(config)
    dimensions = read_dimensions(complete_config)
    assert dimensions is not None, model
    counts = count_model(build_model(config))
    if entry.get("split_experts"):
        counts = counts._replace(**split_experts(counts.linears, counts.tensors, _get_expert_width(dimensions)))
    for name, parts in entry.get("split_linears", {}).items():
        counts = split_linear(counts, name, parts)
    remaining = entry["rest"]["count"] - counts.parameters if "rest" in entry else 0
    counts = counts._replace(
        parameters=counts.parameters + remaining, tower_parameters=counts.tower_parameters + remaining
    )
    shape = build_uncounted(dimensions, complete_config, model)._replace(
        tied=counts.tied,
        parameters=counts.parameters,
        tensors=counts.tensors,
        largest_tensor=counts.largest_tensor,
        layer_parameters=counts.layer_parameters,
        expert_parameters=counts.expert_parameters,
        active_parameters=count_active_parameters(counts.parameters, counts.expert_parameters, dimensions),
        tower=_build_tower(counts, dimensions, complete_config),
        attention=read_attention(get_decoder_config(complete_config)),
        streams=get_decoder_config(complete_config).get("altup_num_inputs") or 1,
        sparse_layers=count_sparse_layers(get_decoder_config(complete_config)),
        recurrent=read_recurrent(get_decoder_config(complete_config)) if dimensions.recurrent_layers else None,
        gated=entry.get("gated", family.gated if family else _is_gated(counts)),
        linears=counts.linears,
        counted="formula" if remaining else "built",
    )
    return (_unfuse(shape) if entry.get("split_experts") else shape), dimensions


def _get_expert_width(dimensions: Dimensions) -> int:
    assert dimensions.experts is not None
    return dimensions.experts.intermediate


def _unfuse(shape: Architecture) -> Architecture:
    assert shape.experts is not None
    return shape._replace(experts=shape.experts._replace(fused=False))


def _build_tower(counts: Counts, dimensions: Dimensions, config: Mapping[str, Any]) -> Tower | None:
    if not counts.tower_parameters:
        return None
    tower = Tower(
        counts.tower_parameters, counts.projector_parameters, dimensions.tower_layers, dimensions.tower_hidden
    )
    vision_tower = read_vision(config)
    if vision_tower is None:
        return tower
    return tower._replace(
        layers=vision_tower.layers,
        hidden=vision_tower.hidden,
        tokens=vision_tower.tokens,
        kind=vision_tower.kind,
        heads=vision_tower.heads,
        intermediate=vision_tower.intermediate,
        patches=vision_tower.patches,
        patch=vision_tower.patch,
    )


def split_experts(linears: Iterable[Linear], tensors: int, width: int) -> dict[str, Any]:
    """Return `linears`, `tensors` and `largest_tensor` with every expert split into separate linear layers.

    This is the layout of a "linearised" copy or of a model repository's code. A fused gate-and-up parameter becomes two
    layers per expert, a fused down parameter one. `width` is the width of an expert's MLP; it distinguishes
    (inputs, outputs) from (outputs, inputs).
    """
    merged: dict[tuple[Any, ...], int] = {}
    for linear in linears:
        names: tuple[str, ...] = (linear.name,)
        inputs, outputs = linear.inputs, linear.outputs
        modules = linear.count * max(1, linear.experts)
        if linear.experts:
            tensors += linear.count * (linear.experts - 1)
            if linear.name == "gate_up_proj":
                tensors += modules
                names = ("gate_proj", "up_proj")
                inputs, outputs = (inputs, width) if outputs == 2 * width else (outputs, width)
            elif inputs != width:
                inputs, outputs = outputs, inputs
        for name in names:
            key = (name, inputs, outputs, linear.part)
            merged[key] = merged.get(key, 0) + modules
    rows = tuple(sorted(Linear(name, a, b, number, part) for (name, a, b, part), number in merged.items()))
    largest = max(linear.elements // linear.count for linear in rows)
    return {"tensors": tensors, "linears": rows, "largest_tensor": largest}


def split_linear(counts: Counts, name: str, parts: Mapping[str, int]) -> Counts:
    """Split the fused matrices called `name` (without bias) into `parts`, a mapping of leaf names to outputs."""
    rows: list[Linear] = []
    tensors = counts.tensors
    for linear in counts.linears:
        if linear.name != name:
            rows.append(linear)
            continue
        assert sum(parts.values()) == linear.outputs, name
        rows += [linear._replace(name=part, outputs=outputs) for part, outputs in parts.items()]
        tensors += linear.count * (len(parts) - 1)
    return counts._replace(tensors=tensors, linears=tuple(sorted(rows)))


def trim_defaults(linear: Linear) -> list[Any]:
    """Return a linear layer as a list, without trailing defaults."""
    values = list(linear)
    for default in reversed(list(Linear._field_defaults.values())):
        if values[-1] != default:
            break
        values.pop()
    return values


def convert_tuple(value: Any) -> Any:
    """Return a tuple as a list, because JSON has no tuples; return other values unchanged."""
    return list(value) if isinstance(value, tuple) else value


def _has_value(shape: Architecture, name: str) -> bool:
    return name != "linears" and getattr(shape, name) != Architecture._field_defaults.get(name, _NO_DEFAULT)


def _is_gated(counts: Counts) -> bool:
    names = {linear.name for linear in counts.linears if linear.part == "decoder"}
    return bool(names & {"gate_proj", "gate_up_proj", "w3"})


_NO_DEFAULT: Final = object()
