"""From a source entry (what is known of a model) to its catalogue record (what is counted)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.architecture import Architecture, Linear, Tower
from cfglint_train.models.attentions import attention, sparse_layers
from cfglint_train.models.dimensions import Dimensions, decoder_config, read
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.hf_config import active, architecture, from_config
from cfglint_train.models.recurrent import recurrent
from cfglint_train.models.towers import vision
from tools.models.measure import Counts, build, complete, measure

# Fields of the record in the order in which the catalogue states them; a field at its default is left out.
FIELDS: Final = tuple(field for field in Architecture._fields if field not in ("id", "source"))


class MismatchError(Exception):
    """A count that is not the published one."""


def record(model: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The catalogue record of one source entry.

    Raises MismatchError where the count is not the published one, KeyError or AttributeError where transformers has no
    such class, LookupError for a decoder whose blocks are not found.
    """
    counted, dimensions = count(model, entry)
    published = entry.get("published_parameters")
    if published and published["count"] != counted.parameters:
        raise MismatchError(
            f"{model}: {counted.parameters} parameters are counted, {published['count']} are published "
            f"({published['source']})"
        )
    counted = counted._replace(
        dtype=entry["dtype"], quantization=entry.get("quantization"), context=dimensions.context or counted.context
    )
    fields = {name: plain(getattr(counted, name)) for name in FIELDS if _stated(counted, name)}
    fields["linears"] = [trimmed(linear) for linear in counted.linears]
    fields["source"] = entry["source"]
    if entry.get("aliases"):
        fields["aliases"] = entry["aliases"]
    return fields


def count(model: str, entry: Mapping[str, Any]) -> tuple[Architecture, Dimensions]:
    """The architecture with its counts: from the built model, or from the closed form where no class exists."""
    config = entry["config"]
    family = FAMILIES.get(config["model_type"])
    if family is not None and family.remote:
        known = from_config(config, model)
        dimensions = read(config, family.defaults)
        assert known is not None, model
        assert dimensions is not None, model
        if entry.get("split_experts"):
            known = _unfused(known._replace(**split_experts(known.linears, known.tensors, _width(dimensions))))
        return known, dimensions
    full = complete(config)
    dimensions = read(full)
    assert dimensions is not None, model
    counts = measure(build(config))
    if entry.get("split_experts"):
        counts = counts._replace(**split_experts(counts.linears, counts.tensors, _width(dimensions)))
    for name, parts in entry.get("split_linears", {}).items():
        counts = split_linear(counts, name, parts)
    rest = entry["rest"]["count"] - counts.parameters if "rest" in entry else 0
    counts = counts._replace(parameters=counts.parameters + rest, tower_parameters=counts.tower_parameters + rest)
    known = architecture(dimensions, full, model)._replace(
        tied=counts.tied,
        parameters=counts.parameters,
        tensors=counts.tensors,
        largest_tensor=counts.largest_tensor,
        layer_parameters=counts.layer_parameters,
        expert_parameters=counts.expert_parameters,
        active_parameters=active(counts.parameters, counts.expert_parameters, dimensions),
        tower=_tower(counts, dimensions, full),
        attention=attention(decoder_config(full)),
        streams=decoder_config(full).get("altup_num_inputs") or 1,
        sparse_layers=sparse_layers(decoder_config(full)),
        recurrent=recurrent(decoder_config(full)) if dimensions.recurrent_layers else None,
        gated=entry.get("gated", family.gated if family else _gated(counts)),
        linears=counts.linears,
        counted="formula" if rest else "built",
    )
    return (_unfused(known) if entry.get("split_experts") else known), dimensions


def _width(dimensions: Dimensions) -> int:
    """Of an expert's MLP."""
    assert dimensions.experts is not None
    return dimensions.experts.intermediate


def _unfused(known: Architecture) -> Architecture:
    assert known.experts is not None
    return known._replace(experts=known.experts._replace(fused=False))


def _tower(counts: Counts, dimensions: Dimensions, config: Mapping[str, Any]) -> Tower | None:
    if not counts.tower_parameters:
        return None
    known = Tower(
        counts.tower_parameters, counts.projector_parameters, dimensions.tower_layers, dimensions.tower_hidden
    )
    seen = vision(config)
    if seen is None:
        return known
    return known._replace(
        layers=seen.layers,
        hidden=seen.hidden,
        tokens=seen.tokens,
        kind=seen.kind,
        heads=seen.heads,
        intermediate=seen.intermediate,
        patches=seen.patches,
        patch=seen.patch,
    )


def split_experts(linears: Iterable[Linear], tensors: int, width: int) -> dict[str, Any]:
    """`linears`, `tensors` and `largest_tensor` with every expert as linear layers of its own: a "linearised" copy, or
    a repository's own code.

    A fused gate-and-up parameter becomes two layers for each expert, a fused down parameter one. `width` is that of an
    expert's MLP: it distinguishes (inputs, outputs) from (outputs, inputs).
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
    """The same model with one fused matrix (without bias) as several, given as leaf name and outputs."""
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


def trimmed(linear: Linear) -> list[Any]:
    """A linear as a list, without the defaults at its end."""
    values = list(linear)
    for default in reversed(list(Linear._field_defaults.values())):
        if values[-1] != default:
            break
        values.pop()
    return values


def plain(value: Any) -> Any:
    """A record as JSON: named tuples become lists."""
    return list(value) if isinstance(value, tuple) else value


def _stated(known: Architecture, name: str) -> bool:
    return name != "linears" and getattr(known, name) != Architecture._field_defaults.get(name, _NO_DEFAULT)


def _gated(counts: Counts) -> bool:
    names = {linear.name for linear in counts.linears if linear.part == "decoder"}
    return bool(names & {"gate_proj", "gate_up_proj", "w3"})


_NO_DEFAULT: Final = object()
