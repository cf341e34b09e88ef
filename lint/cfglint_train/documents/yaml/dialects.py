"""YAML dialects: typing of plain scalars. `1e-4` is a string to one framework and a float to another."""

from __future__ import annotations

import re

import yaml

from cfglint_train.documents.document import MAX_DIGITS, Scalar, Unknown
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_TAG: Final = "tag:yaml.org,2002:"
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_DECIMAL: Final = compile_on_use(r"[-+]?[1-9][0-9]{0,17}|0")
_MISSING: Final = "???"
"""Placeholder of OmegaConf and Hydra for a value that the command line sets (omegaconf 2.3.0 `base.py`: MISSING)."""
_DECIMAL_STARTS: Final = frozenset("-+0123456789")
_WORDS: Final = {"true": True, "false": False, "True": True, "False": False, "null": None, "": None}

Resolvers = dict[str, list[tuple[str, "re.Pattern[str]"]]]


class Dialect(Frozen):
    """The rules by which a loader types plain scalars."""

    name: str
    resolvers: Resolvers


def _build_omegaconf_resolvers() -> Resolvers:
    # omegaconf 2.3.0 _utils.py get_yaml_loader (2.4.0 _yaml.py is the same): one more float format, no timestamps.
    number = compile_on_use(
        r"""^(?:
         [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
        |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.X,
    )
    resolvers = {
        first: [pair for pair in pairs if pair[0] != _TAG + "timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+0123456789.":
        resolvers[first] = [*resolvers.get(first, []), (_TAG + "float", number)]
    return resolvers


PYYAML: Final = Dialect("PyYAML", yaml.SafeLoader.yaml_implicit_resolvers)
_omegaconf_dialects: list[Dialect] = []


def get_omegaconf_dialect() -> Dialect:
    """Return the dialect of OmegaConf's loader, which LLaMA-Factory and OLMo use.

    It is built on first use.
    """
    if not _omegaconf_dialects:
        _omegaconf_dialects.append(Dialect("OmegaConf", _build_omegaconf_resolvers()))
    return _omegaconf_dialects[0]


def construct_scalar(scalar: Scalar, dialect: Dialect) -> Any:
    """Return the value that a dialect's loader constructs from a scalar."""
    text, tag = scalar.text, scalar.tag
    if tag is None:
        if scalar.style:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text[0] == "{" or text == _MISSING:  # a plain scalar cannot start with `{`, so this is a placeholder
            return Unknown(text)
        if text[0] in _DECIMAL_STARTS and _DECIMAL.fullmatch(text):
            return int(text) if len(text) <= MAX_DIGITS else text
        for candidate, pattern in dialect.resolvers.get(text[0], ()):
            if pattern.match(text):
                tag = candidate
                break
        else:
            return text
    node = yaml.ScalarNode(tag, text)
    try:
        if tag == _TAG + "int":
            return _CONSTRUCTOR.construct_yaml_int(node) if len(text) <= MAX_DIGITS else text
        if tag == _TAG + "float":
            return _CONSTRUCTOR.construct_yaml_float(node)
        if tag == _TAG + "bool":
            return _CONSTRUCTOR.construct_yaml_bool(node)
        if tag == _TAG + "null":
            return None
        if tag == _TAG + "timestamp":
            return _CONSTRUCTOR.construct_yaml_timestamp(node)
    except (ValueError, KeyError, AttributeError, IndexError, OverflowError):  # PyYAML's errors for malformed values
        return text
    return text
