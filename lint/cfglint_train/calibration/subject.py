"""Conversion of a row into a plan and an architecture.

A published row quotes its source (`method`, `parallel`, `loss`, ...); this module does not interpret those words.
Separate fields state the same job for the memory model: `plan`, `shape`, `mode`, `setup`, `counter`, `capacity` and
`context`. A row that cannot be stated as a plan has `unmapped` instead, with the reason. `data/row.schema.json`
describes the fields; `data/README.md` names the framework files that determine what a source leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.calibration.rows import Row
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.colocated_models import ColocatedModel
from cfglint_train.memory.optimizers import Scratch
from cfglint_train.memory.setup import Setup
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.lookup import find_entry
from cfglint_train.models.stated import parse_architecture
from cfglint_train.plan.fields import validate_fields
from cfglint_train.plan.names import Field

COUNTERS: Final = ("allocated", "reserved", "allocated?", "reserved?", "driver?", "unsaid?")
"""Counters of a figure: bytes that torch allocated or reserved, or all bytes that the driver reports.

A question mark means that the source does not name the counter and that this counter is the most likely.
"""


class UnmappedError(Exception):
    """Error for a row that cannot be stated as a plan; the message is the reason."""


class Subject(Frozen):
    """The job of a row in the terms of the memory model."""

    fields: dict[Field, Any]
    architecture: Architecture
    counter: str
    """One of `COUNTERS`."""
    capacity: int | None
    """Memory of the GPU in bytes, as its driver reports it; None if unstated."""
    mode: dict[str, Any]
    """Fields of `memory.layers.matrices.Mode` that no plan field states, such as the release of a kernel library."""
    setup: dict[str, Any]
    """Fields of `memory.setup.Setup` and its records that no plan field states, such as tensors of another training
    loop.
    """
    context: int = 0
    """Bytes of the driver's context in excess of its usual size."""


def build_subject(row: Row) -> Subject:
    """Return the row's plan, architecture and counter. Raise `UnmappedError` if it has no usable plan."""
    reason = row.get_text("unmapped")
    if reason:
        raise UnmappedError(reason)
    architecture, plan = read_architecture(row), row.get_table("plan")
    if not plan:
        raise UnmappedError("no plan stated")
    try:
        fields = validate_fields(_normalise_values(plan))
    except KeyError as unknown:
        raise UnmappedError(f"unknown plan field {unknown}") from None
    return Subject(
        fields=fields,
        architecture=architecture,
        counter=read_counter(row),
        capacity=row.get_count("capacity"),
        mode=_normalise_values(row.get_table("mode")),
        setup=_parse_setup(row.get_table("setup")),
        context=row.get_count("context") or 0,
    )


def read_counter(row: Row) -> str:
    """Return the counter of the row's figure. Raise `UnmappedError` if it is not in `COUNTERS`."""
    counter = row.get_text("counter")
    if counter not in COUNTERS:
        raise UnmappedError("unknown counter")
    return counter


def read_architecture(row: Row) -> Architecture:
    """Return the row's model. Raise `UnmappedError` if it is unknown.

    The model is the catalogue's entry of `model` (or of `like`) with the changes in `shape`, or a model that `shape`
    states in full.
    """
    changes = dict(row.get_table("shape"))
    catalogued = find_entry(str(changes.pop("like", row.get_text("model"))))
    if catalogued is None and not changes:
        raise UnmappedError("unknown model")
    names, first_layers = changes.pop("matrices", None), changes.pop("first", None)
    architecture = parse_architecture(changes) if catalogued is None else catalogued
    if names == "llama":  # for the whole model, even if `first` keeps only some of its layers
        architecture = architecture._replace(linears=_list_llama_linears(architecture))
    if isinstance(first_layers, int):
        architecture = _truncate_layers(architecture, first_layers)
    if catalogued is None:
        return architecture
    if "linears" in changes:
        changes["linears"] = tuple(Linear(*item) for item in changes["linears"])
    elif "vocab" in changes:
        changes["linears"] = tuple(_set_vocabulary(item, changes["vocab"]) for item in architecture.linears)
    if "model_type" in changes:  # other layers than in the catalogue, so the variant does not apply
        changes["variant"] = ""
    return architecture._replace(**changes)


def _truncate_layers(shape: Architecture, layers: int) -> Architecture:
    """Return the model with only its first layers.

    `layers` must include all dense layers of a mixture of experts.
    """
    dense = shape.experts.dense_layers if shape.experts else 0
    moe_layers, remaining = shape.layers - dense, layers - dense

    def count_left(item: Linear) -> int:
        if item.part in ("embedding", "head") or item.count == dense:
            return item.count
        if item.count % shape.layers == 0:
            return item.count // shape.layers * layers
        return item.count // moe_layers * remaining

    full_attention = shape.full_attention_layers
    return shape._replace(
        layers=layers,
        linears=tuple(item._replace(count=count_left(item)) for item in shape.linears),
        parameters=shape.parameters - shape.layer_parameters * (shape.layers - layers),
        expert_parameters=shape.expert_parameters // moe_layers * remaining,
        active_parameters=None,
        full_attention_layers=None if full_attention is None else full_attention * layers // shape.layers,
    )


def _set_vocabulary(item: Linear, vocab: int) -> Linear:
    """Return the matrix with another vocabulary size if it is the embedding or the output matrix."""
    if item.part == "embedding":
        return item._replace(inputs=vocab)
    return item._replace(outputs=vocab) if item.part == "head" else item


def _list_llama_linears(shape: Architecture) -> tuple[Linear, ...]:
    """Return the matrices under the names of transformers' Llama, even if the framework uses other names."""
    query, key, layers = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.layers
    linears = [
        Linear("q_proj", shape.hidden, query, layers),
        Linear("k_proj", shape.hidden, key, layers),
        Linear("v_proj", shape.hidden, key, layers),
        Linear("o_proj", query, shape.hidden, layers),
        Linear("up_proj", shape.hidden, shape.intermediate, layers),
        Linear("down_proj", shape.intermediate, shape.hidden, layers),
        Linear("lm_head", shape.hidden, shape.vocab, 1, "head"),
        Linear("embed_tokens", shape.vocab, shape.hidden, 1, "embedding"),
    ]
    if shape.gated:
        linears.append(Linear("gate_proj", shape.hidden, shape.intermediate, layers))
    return tuple(linears)


def _normalise_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with lists converted to tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _parse_setup(stated: Mapping[str, Any]) -> dict[str, Any]:
    fields = _normalise_values(stated)
    if "neighbours" in fields:
        fields["neighbours"] = tuple(ColocatedModel(*item) for item in fields["neighbours"])
    if "scratch" in fields:
        fields["scratch"] = Scratch(*fields["scratch"])
    if "optimizer" in fields:
        fields["state"] = fields.pop("optimizer")
    return fields


def change_setup(setup: Setup, fields: Mapping[str, Any]) -> Setup:
    """Return the setup with changed fields, in the setup itself or in one of its records."""
    changed = {name: value for name, value in fields.items() if name in setup._fields}
    for part in ("batch", "formats", "optimizer", "ranks", "sharding", "weights"):
        record = getattr(setup, part)
        changes = {name: value for name, value in fields.items() if name in record._fields}
        if changes:
            changed[part] = record._replace(**changes)
    return setup._replace(**changed)
