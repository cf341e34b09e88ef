"""Model catalogue: architectures of released models, by the names that users write.

The data are in `catalogue/`: `index.json`, which maps keys to files and ids, and one file per family. A lookup parses
one line of the index and one entry of a family file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, Literal
from cfglint_train.models.architecture import Architecture, Attention, Experts, Latent, Linear, Recurrent, Tower
from cfglint_train.models.names import parse_name

if TYPE_CHECKING:
    from cfglint_train.models.dimensions import Dimensions

FOLDER: Final = os.path.join(os.path.dirname(__file__), "catalogue")

MatchKind = Literal["id", "name"]


class Match(Frozen):
    """A catalogue entry and the kind of match between it and the name."""

    architecture: Architecture
    kind: MatchKind
    """Kind of match: `id` if the name is the entry's id or an alias, `name` if only its last component agrees."""


_texts: dict[str, str] = {}
_cache: dict[str, Any] = {}


def find_entry(name: str) -> Architecture | None:
    """Return the architecture of a model by Hub id, alias, mirror or local folder name, or None if it is unknown."""
    match = match_name(name)
    return match.architecture if match else None


def match_name(name: str) -> Match | None:
    """Return the entry for a name with the kind of match, or None if the catalogue has none.

    The name of a quantized copy sets `quantization`. Models that share an entry may differ in context length (Qwen3-4B
    has 40,960 tokens, Qwen3-4B-Instruct-2507 262,144), so `context` is kept only if the name is the entry's own, unless
    the entry lists the length of the name.
    """
    parsed = parse_name(name)
    exact = _find_number("ids", name.strip("/").lower())
    number = exact if exact is not None else _find_number("names", parsed.key)
    if number is None:
        return None
    file, model = _find_model(number)
    record = load_entry(file, model)
    if parsed.quantization:
        record = record._replace(quantization=parsed.quantization)
    elif parsed.plain:
        record = record._replace(quantization=None)
    if parsed.dtype:
        record = record._replace(dtype=parsed.dtype)
    fields = _load_fields(file, model)
    context = fields.get("contexts", {}).get(parsed.full_key)
    if context is not None or parsed.key != parse_name(model).key:
        record = record._replace(context=context)
    names = {model, *fields.get("aliases", ())}
    return Match(record, "id" if exact is not None or name in names else "name")


def _find_number(section: Literal["ids", "names"], name: str) -> int | None:
    """Return the number of the model that a section of the index lists under a name, or None if it lists none.

    Each name starts on its own line of the file, so the other names need not be parsed.
    """
    text, key = _read_text("index.json"), f"\n{json.dumps(name)}: "
    start = text.index(f'"{section}": {{')
    at = text.find(key, start, text.index("}", start))
    return None if at < 0 else int(text[at + len(key) :].partition("\n")[0].rstrip(","))


def _find_model(number: int) -> tuple[str, str]:
    """Return the family file and the id of a model by its number, which is that of its line in the index."""
    files, _, *models = _read_text("index.json").split("\n", number + 4)[1:]
    file, model = json.loads(models[number].rstrip(","))
    return json.loads(f"{{{files.rstrip(',')}}}")["files"][file], model


def find_by_shape(dimensions: Dimensions) -> Architecture | None:
    """Return the entry whose decoder and tower have these dimensions, or None if there is none.

    Models without a closed form need it. The vocabulary may differ; the counts are then adjusted to its size.
    """
    location = _load_data("shapes.json").get(build_shape_key(dimensions))
    if location is None:
        return None
    record = load_entry(_load_data("index.json")["files"][location[0]], location[1])
    if record.vocab == dimensions.vocab:
        return record
    rows = (dimensions.vocab - record.vocab) * (1 if record.tied else 2)
    return record._replace(
        vocab=dimensions.vocab,
        parameters=record.parameters + rows * record.hidden,
        largest_tensor=max(record.largest_tensor, dimensions.vocab * record.hidden),
        linears=tuple(_resize_vocabulary(linear, record.vocab, dimensions.vocab) for linear in record.linears),
    )


def build_shape_key(dimensions: Dimensions) -> str:
    """Return the key under which `shapes.json` lists the dimensions; it ignores the vocabulary."""
    parts = (
        dimensions.model_type,
        dimensions.layers,
        dimensions.hidden,
        dimensions.intermediate,
        dimensions.heads,
        dimensions.kv_heads,
        dimensions.experts.count if dimensions.experts else 0,
        dimensions.tower_layers,
        dimensions.tower_hidden,
        int(dimensions.tied),
    )
    return "|".join(map(str, parts))


def suggest_ids(name: str, count: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the ids whose keys are most similar to the name, best first, for a "did you mean" hint."""
    import difflib  # imported here because it is needed for an unknown name only

    index = _load_data("index.json")
    keys = difflib.get_close_matches(parse_name(name).key, index["names"], n=count, cutoff=cutoff)
    return list(dict.fromkeys(index["models"][index["names"][key]][1] for key in keys))


def list_ids() -> Iterator[str]:
    """Yield the id of every entry, in the order of the files."""
    for file in _load_data("index.json")["files"]:
        yield from _load_data(f"{file}.json")


def load_entry(file: str, model: str) -> Architecture:
    """Return the entry of `model` in a family file."""
    cached = _cache.get(model)
    if isinstance(cached, Architecture):
        return cached
    record: Architecture = build_architecture(model, _load_fields(file, model))
    _cache[model] = record
    return record


def _load_fields(file: str, model: str) -> dict[str, Any]:
    """Return the fields of one model in a family file.

    Each model starts on its own line of the file, so the other models need not be parsed.
    """
    text, key = _read_text(f"{file}.json"), f"\n{json.dumps(model)}: "
    fields: dict[str, Any] = json.JSONDecoder().raw_decode(text, text.index(key) + len(key))[0]
    return fields


def build_architecture(model: str, fields: dict[str, Any]) -> Architecture:
    """Build an architecture from the fields of a catalogue entry."""
    fields = {name: value for name, value in fields.items() if name not in ("aliases", "contexts")}
    for name, kind in _PARTS:
        if name in fields:
            fields[name] = kind(*fields[name])
    fields["linears"] = tuple(Linear(*values) for values in fields["linears"])
    fields["source"] = "; ".join(fields["source"])
    return Architecture(id=model, **fields)


_PARTS: Final = (
    ("experts", Experts), ("latent", Latent), ("recurrent", Recurrent), ("tower", Tower), ("attention", Attention),
)  # fmt: skip


def _resize_vocabulary(linear: Linear, old_vocab: int, new_vocab: int) -> Linear:
    if linear.part == "embedding" and linear.inputs == old_vocab:
        return linear._replace(inputs=new_vocab)
    if linear.part == "head" and linear.outputs == old_vocab:
        return linear._replace(outputs=new_vocab)
    return linear


def _load_data(file: str) -> Any:
    data = _cache.get(file)
    if data is None:
        data = _cache[file] = json.loads(_read_text(file))
    return data


def _read_text(file: str) -> str:
    text = _texts.get(file)
    if text is None:
        with open(os.path.join(FOLDER, file), encoding="utf-8") as stream:
            text = _texts[file] = stream.read()
    return text


def get_first_release(model_type: str) -> str | None:
    """Return the first transformers release with a class for a model type, or None if no listed release has it."""
    return _load_first_releases().get(model_type)


@cache
def _load_first_releases() -> Mapping[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "model_types.json"), encoding="utf-8") as file:
        first: Mapping[str, str] = json.load(file)["first"]
    return first
