"""JSON Schema of `cfglint.toml` and of `[tool.cfglint]`, for editors and validators of TOML files.

It uses draft 7, because some editors of TOML know no later one. It refuses names and types that `load_settings`
refuses. It leaves to cfglint what depends on other files, on other values or on the existence of a release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.registry import list_frameworks, map_spellings
from cfglint_train.hardware.gpus import VENDOR_WORDS, list_names, list_spellings
from cfglint_train.plan.fields import FIELDS
from cfglint_train.settings.cluster_facts import COUNTS, HARDWARE_FACTS, RELEASE
from cfglint_train.settings.house_rules import COMBINABLE, PRESENCE, SEVERITIES, VALUES
from cfglint_train.settings.reader import LEVELS
from cfglint_train.settings.settings import FAIL_ON, FORMATS, Settings
from cfglint_train.settings.table import FACTS, SETTINGS

Json = dict[str, Any]

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"output-format": FORMATS, "fail-on": FAIL_ON}
"""Words of the settings that are one of several words."""

_STRING: Final[Json] = {"type": "string"}
_TEXT: Final[Json] = {"type": "string", "pattern": r"\S"}
_SIZE: Final[Json] = {
    "type": "string",
    "pattern": r"^\s*(?=[0-9.]*[1-9])(?=[0-9.]{1,20}[^0-9.])([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*"
    r"([bB]|[kKmMgGtTpP]([iI]?[bB])?)\s*$",
}
_RATES: Final[Mapping[str, tuple[int, str]]] = {
    "tokens-per-second": (12, ""),
    "price-per-gpu-hour": (9, " ?([A-Za-z]{0,8}|[$€£¥])"),
}
"""Facts about speed and price -> the largest number of digits before the point, and the text after a number."""
_SEPARATOR: Final = "[^0-9A-Za-z]"
_SELECTORS: Final[Json] = {"type": "array", "items": {"$ref": "#/definitions/selector"}}
_GLOBS: Final[Json] = {"type": "array", "items": _STRING}
_SCALAR: Final[Json] = {"type": ["string", "number", "boolean"]}
_VALUES_OF_KIND: Final[dict[str, Json]] = {
    "selectors": _SELECTORS,
    "globs": _GLOBS,
    "boolean": {"type": "boolean"},
    "path": {"type": "string", "minLength": 1},
    "seconds": {"type": "number", "exclusiveMinimum": 0},
    "address": {
        "anyOf": [
            {"const": ""},
            {
                "type": "string",
                "allOf": [{"pattern": r"^https?://[^\x00-\x1f\x7f]*$"}, {"pattern": r"\{(code|name)\}"}],
            },
        ]
    },
}
_TESTS: Final = (*VALUES, *PRESENCE)


def build_settings_schema(rules: Iterable[tuple[str, str]]) -> Json:
    """Return the JSON Schema (draft 7) of the settings; `rules` are the codes and names of all rules."""
    values: dict[str, Json] = {
        **{name: {"enum": list(words)} for name, words in CHOICES.items()},
        "per-file-ignores": {"type": "object", "additionalProperties": _SELECTORS},
        "severity": {
            "type": "object",
            "propertyNames": {"$ref": "#/definitions/selector"},
            "additionalProperties": {"enum": list(LEVELS)},
        },
        "hardware": {"allOf": [{"$ref": "#/definitions/hardware"}]},
        "releases": {"allOf": [{"$ref": "#/definitions/releases"}]},
        "overrides": {"type": "array", "items": _build_override()},
        "require": {"type": "array", "items": {"$ref": "#/definitions/requirement"}},
    }
    properties = {
        name: {**_describe_setting(name), **(values.get(name) or _VALUES_OF_KIND[setting.kind])}
        for name, setting in SETTINGS.items()
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "cfglint",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "definitions": {
            "selector": _build_selector(dict(rules)),
            "hardware": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: {"description": FACTS[name], **_build_fact(name)} for name in HARDWARE_FACTS},
            },
            "releases": {
                "type": "object",
                "additionalProperties": False,
                "properties": {name: {"type": "string", "pattern": f"^{RELEASE}$"} for name in map_spellings()},
            },
            "requirement": _build_requirement(),
        },
    }


def _describe_setting(name: str) -> Json:
    """Return the description and the default of a setting, without the Markdown of its page."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", SETTINGS[name].purpose).replace("`", "")
    default = get_default(name)
    return {"description": text} if default is None else {"description": text, "default": default}


def _build_selector(names: dict[str, str]) -> Json:
    """Return the schema of a rule selector: a family or code in upper or lower case, a name, or ALL."""
    families = sorted({code[:3] for code in names})
    words = ("ALL", *families, *names, *names.values())
    codes = "|".join(map(_ignore_case, ("ALL", *families, *names)))
    return {"anyOf": [{"enum": list(words)}, {"type": "string", "pattern": f"^({codes})$"}]}


def _ignore_case(word: str) -> str:
    """Return a regular expression of a word (letters, digits, - and _) in both cases; JSON Schema has no flags."""
    return "".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in word)


def _build_fact(name: str) -> Json:
    """Return the schema of a fact about the cluster."""
    if name in COUNTS:
        pattern = {"type": "string", "pattern": "^0*[1-9][0-9]{0,8}$"}
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 999_999_999}, pattern]}
    if name == "gpu":
        return {
            "anyOf": [
                {"enum": [*list_names(), *map(int, filter(str.isdigit, list_spellings()))]},
                _SIZE,
                *_build_names(),
            ]
        }
    if name in ("gpu-memory", "host-memory", "disk"):
        return _SIZE
    digits, rest = _RATES[name]
    text = rf"^\s*(?=[0-9.]*[1-9])[0-9]{{1,{digits}}}(\.[0-9]{{1,9}})?{rest}\s*$"
    number = {"type": "number", "minimum": 1e-9, "exclusiveMaximum": 10**digits}
    return {"anyOf": [number, {"type": "string", "pattern": text}]}


def _build_names() -> list[Json]:
    """Return the schemas of the texts that name a GPU, in any case and with any separators.

    Vendor words may stand before and after the name. A text with one inside is left to cfglint.
    """
    tree: dict[str, Any] = {}
    for name in list_spellings():
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[""] = {}
    words = "|".join(map(_ignore_case, VENDOR_WORDS))
    around = f"({words}|{_SEPARATOR})*"
    return [
        {"type": "string", "pattern": f"^{around}{_format_tree(tree)}{around}$"},
        {"type": "string", "pattern": f"^{around}(?!{words})[0-9A-Za-z].*({words}).*[0-9A-Za-z]"},
    ]


def _format_tree(tree: Mapping[str, Any]) -> str:
    """Return a regular expression of the names that a tree of letters has, with separators between the letters."""
    parts = [
        _ignore_case(letter) + (f"{_SEPARATOR}*" + _format_tree(inner) if inner != {"": {}} else "")
        for letter, inner in tree.items()
        if letter
    ]
    if len(parts) == 1 and "" not in tree:
        return parts[0]
    return f"({'|'.join(parts)}){'?' * ('' in tree)}"


def _build_override() -> Json:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["paths"],
        "properties": {
            "paths": _GLOBS,
            "hardware": {"allOf": [{"$ref": "#/definitions/hardware"}]},
            "releases": {"allOf": [{"$ref": "#/definitions/releases"}]},
            "ignore": _SELECTORS,
        },
    }


def _build_requirement() -> Json:
    """Return the schema of a house rule: a condition, or a subject with tests that can be combined."""
    spellings = (word for word, name in map_spellings().items() if name in list_frameworks())
    names = "|".join(map(_ignore_case, dict.fromkeys((*list_frameworks(), *spellings))))
    limits = {"type": "number"}
    combinations = [
        {"not": {"anyOf": [{"required": [test]} for test in _TESTS if test not in combination]}}
        for combination in (*COMBINABLE, {"absent"})
    ]
    subject = {
        "oneOf": [{"required": ["field"]}, {"required": ["key"]}],
        "anyOf": [{"required": [test]} for test in _TESTS],
        "allOf": [{"anyOf": combinations}],
    }
    condition = {
        "required": ["that"],
        "not": {"anyOf": [{"required": [name]} for name in ("field", "key", *_TESTS)]},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "that": _TEXT,
            "field": {"enum": [field.removesuffix("_") for field in FIELDS]},
            "key": _TEXT,
            "equals": _SCALAR,
            "one-of": {"type": "array", "minItems": 1, "items": _SCALAR},
            "at-most": limits,
            "at-least": limits,
            "present": {"const": True},
            "absent": {"const": True},
            "message": _TEXT,
            "severity": {"enum": list(SEVERITIES)},
            "paths": _GLOBS,
            "frameworks": {
                "type": "array",
                "items": {"anyOf": [{"enum": list(list_frameworks())}, {"type": "string", "pattern": f"^({names})$"}]},
            },
        },
        "anyOf": [condition, subject],
    }


# Fields of `Settings` that hold the defaults, if not named like the setting; None for settings without a default.
_FIELDS: Final[Mapping[str, str | None]] = {
    "extend-select": None, "extend-ignore": None, "extend-exclude": None, "hardware": None, "releases": None,
    "overrides": None, "require": None, "extend": None, "per-file-ignores": None, "severity": None,
    "extend-safe-fixes": "safe_fixes", "extend-unsafe-fixes": "unsafe_fixes", "unsafe-fixes": "apply_unsafe",
}  # fmt: skip


def get_default(name: str) -> Any:
    """Return the default of a setting as a settings file states it, or None if it has none."""
    field = _FIELDS.get(name, name.replace("-", "_"))
    if name == "output-format":
        return FORMATS[0]
    value = None if field is None else getattr(Settings(""), field)
    return [getattr(item, "text", item) for item in value] if isinstance(value, tuple) else value
