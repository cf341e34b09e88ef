"""Values: check whether a framework accepts a value for a setting, as its own loader converts it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cfglint_schemas.kinds import is_suggestion
from cfglint_train.documents.document import Unknown
from cfglint_train.foundation.credentials import shorten
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import UnreadableError
from cfglint_train.frameworks.loaders import Loader

Schema = Mapping[str, Any]

# Placeholders that a script replaces before the file is used: `<steps>`, `{{ lr }}`; for numbers also
# `TRAIN_BATCH_SIZE`. The patterns are compiled on first use, because few texts begin like a placeholder.
_PLACEHOLDER: Final = r"<.*>|\{.*\}|%.*%|@.*@|\$.*|__\w+__"
_PLACEHOLDER_STARTS: Final = ("<", "{", "%", "@", "$", "__")
_BRACKETED: Final = r"(?i)(?:your|path to|name of|insert|enter) "
"""Pattern for the start of a placeholder that YAML reads as a list: `[your output directory]`."""
_NUMBERS_PLACEHOLDER: Final = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"

# Enumerations of other packages: the union over all releases (transformers 4.41 to 5.23, torch 2.13).
_EXTERNAL_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "transformers.SchedulerType": (
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
        "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "greedy",
    ),
    "transformers.trainer_utils.SaveStrategy": ("no", "steps", "epoch", "best"),
    "transformers.modeling_utils.AttentionInterface": (
        "flash_attention_2", "flash_attention_3", "flash_attention_4", "sdpa", "eager", "flex_attention",
        "paged_attention", "sdpa_paged", "eager_paged", "paged|eager", "paged|sdpa", "paged|flash_attention_2",
        "paged|flash_attention_3",
    ),
    "torch.distributed.fsdp.ShardingStrategy": (
        "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2",
    ),
}  # fmt: skip


def list_external_words(name: str) -> tuple[str, ...]:
    """Return the words of an enumeration that another package defines, or an empty tuple if they are unknown."""
    if name == "transformers.training_args.OptimizerNames":
        from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZERS

        return tuple(OPTIMIZERS)
    return _EXTERNAL_WORDS.get(name, ())


def is_accepted(schema: Schema, value: Any, loader: Loader) -> bool:
    """Return whether a schema accepts a value; True if the schema or the value does not determine it.

    The contents of a mapping that has its own definition are not checked.
    """
    if isinstance(value, Unknown) or is_placeholder(value):
        return True
    if "anyOf" in schema:
        return any(is_accepted(part, value, loader) for part in schema["anyOf"])
    if "enum" in schema:
        if isinstance(value, list) and has_enumerated_items(schema):
            return find_refused_item(schema, value, loader) is None
        return loader.is_member(value, tuple(schema["enum"])) or (value is None and None in schema["enum"])
    if "x-external" in schema:
        words = list_external_words(schema["x-external"])
        return not words or loader.is_member(value, words)
    if "x-unchecked" in schema:
        return True
    if "$ref" in schema:
        return isinstance(value, dict)
    types = schema.get("type")
    if types is None:
        return True
    return any(_is_of_kind(kind, schema, value, loader) for kind in ([types] if isinstance(types, str) else types))


def has_enumerated_items(schema: Schema) -> bool:
    """Return whether a schema enumerates the items of a list, which a single word may replace."""
    return "enum" in schema and schema.get("type") == "array"


def find_refused_item(schema: Schema, items: list[Any], loader: Loader) -> Any:
    """Return the first item that a schema which enumerates items does not list, or None if it lists all."""
    words = {"enum": schema["enum"]}
    return next((item for item in items if not is_accepted(words, item, loader)), None)


def is_placeholder(value: Any) -> bool:
    """Return whether a value is a placeholder that OmegaConf, a script or a person fills in later."""
    if isinstance(value, list):
        first_item = value[0] if value else None
        words = (
            next(iter(first_item), None) if isinstance(first_item, dict) else first_item
        )  # [your folder. Example: saves/run]
        return isinstance(words, str) and re.match(_BRACKETED, words) is not None
    if not isinstance(value, str):
        return False
    return "${" in value or (value.startswith(_PLACEHOLDER_STARTS) and bool(re.fullmatch(_PLACEHOLDER, value)))


def is_number_placeholder(value: Any) -> bool:
    """Return whether a value is a placeholder, or a word in capitals that stands for a number (`CONFIG_MBSIZE`)."""
    return is_placeholder(value) or (isinstance(value, str) and re.fullmatch(_NUMBERS_PLACEHOLDER, value) is not None)


def _is_of_kind(kind: str, schema: Schema, value: Any, loader: Loader) -> bool:
    if kind == "null":
        return value is None
    if value is None:
        return False
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        if not isinstance(value, list):
            return False
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        items = schema.get("items")
        if not items or (items.get("type") == "string" and all(type(item) is str for item in value)):
            return True
        return all(is_accepted(items, item, loader) for item in value)
    if kind != "string" and isinstance(value, str) and value.isupper() and is_number_placeholder(value):
        return True
    try:
        converted = getattr(loader, kind).read(value)
    except UnreadableError:
        return False
    if kind == "string":
        return "pattern" not in schema or bool(re.search(schema["pattern"], converted))
    return kind not in ("integer", "number") or _is_within_limits(schema, converted)


def _is_within_limits(schema: Schema, number: float) -> bool:
    return not (
        number < schema.get("minimum", number)
        or number > schema.get("maximum", number)
        or ("exclusiveMinimum" in schema and number <= schema["exclusiveMinimum"])
        or ("exclusiveMaximum" in schema and number >= schema["exclusiveMaximum"])
    )


_KINDS: Final[Mapping[str, str]] = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
_MAX_LISTED: Final = 8
_MAX_SIMILAR: Final = 3


def describe_expected(schema: Schema, value: Any = None) -> str:
    """Describe the accepted values: `an integer or null`, `one of a, b`.

    If there are more than 8 words, the description names the words similar to `value`, or else the first 8.
    """
    alternatives = list(dict.fromkeys(_list_alternatives(schema)))
    words = [word for word in _list_enum_values(schema) if word is not None]
    if words and not is_suggestion(schema):
        alternatives.insert(0, _describe_words(words, value))
    if "null" in alternatives:  # null goes last, because it is the least likely intention
        alternatives = [alternative for alternative in alternatives if alternative != "null"] + ["null"]
    return " or ".join(alternatives)


def _describe_words(words: list[Any], value: Any) -> str:
    if len(words) == 1:
        return format_value(words[0])
    if len(words) > _MAX_LISTED and isinstance(value, str):
        from difflib import get_close_matches

        texts = [word for word in words if isinstance(word, str)]
        similar = [word for word in texts if word.startswith(value)] or get_close_matches(
            value, texts, _MAX_SIMILAR, 0.5
        )
        if similar:
            return f"a known value such as {', '.join(map(format_value, similar[:_MAX_SIMILAR]))}"
    return f"one of {', '.join(map(format_value, words[:_MAX_LISTED]))}" + (", ..." if len(words) > _MAX_LISTED else "")


def _list_alternatives(schema: Schema) -> list[str]:
    """Return the descriptions of the accepted types, without the words of enumerations."""
    if "anyOf" in schema:
        return [word for part in schema["anyOf"] for word in _list_alternatives(part)]
    if "enum" in schema:
        return ["null"] if None in schema["enum"] else []
    if "$ref" in schema:
        return ["a mapping"]
    types = schema.get("type", ())
    return [_describe_kind(kind, schema) for kind in ([types] if isinstance(types, str) else types)]


def _list_enum_values(schema: Schema) -> list[Any]:
    if "anyOf" in schema:
        return [word for part in schema["anyOf"] for word in _list_enum_values(part)]
    return list(list_external_words(schema["x-external"]) if "x-external" in schema else schema.get("enum", ()))


def _describe_kind(kind: str, schema: Schema) -> str:
    if kind == "array" and schema.get("items"):
        inner = describe_expected(schema["items"]).replace(" or ", "/")
        number = f"{schema['minItems']} " if schema.get("minItems", 0) == schema.get("maxItems") else ""
        return f"a list of {number}{_PLURALS.get(inner, inner)}"
    if kind == "string" and "pattern" in schema:
        return f"a string matching {schema['pattern']}"
    if kind not in ("integer", "number"):
        return _KINDS[kind]
    bounds = (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    )
    limits = [f"{words} {schema[key]:g}" for key, words in bounds if key in schema]
    return " ".join((_KINDS[kind], *limits))


_PLURALS: Final[Mapping[str, str]] = {
    "an integer": "integers",
    "a number": "numbers",
    "true or false": "booleans",
    "a string": "strings",
    "a mapping": "mappings",
}


def format_value(value: Any) -> str:
    """Return a value as a file spells it, shortened for messages; `a mapping` or `a list` for these types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else f"{value}"
    return text if len(text) <= 40 else f'{shorten(text, 39)}"'


def list_enum_words(schema: Schema) -> list[str]:
    """Return the strings among the values of a schema's enumerations."""
    return [word for word in _list_enum_values(schema) if isinstance(word, str)]
