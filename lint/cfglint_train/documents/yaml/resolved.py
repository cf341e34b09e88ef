"""The values that PyYAML makes of scalars: dates, sexagesimal and octal numbers, explicit tags, and whatever else is
rare.
"""

from __future__ import annotations

import re
from functools import cache

import yaml

from cfglint_train.documents.document import MAX_DIGITS
from cfglint_train.foundation.typed import Any, Final

_TAG: Final = "tag:yaml.org,2002:"
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()

Resolvers = dict[str, list[tuple[str, "re.Pattern[str]"]]]


@cache
def _resolvers(has_exponents: bool) -> Resolvers:
    """First character -> the types that a plain scalar may have, with their patterns."""
    plain: Resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    if not has_exponents:
        return plain
    # omegaconf 2.3.0 _utils.py get_yaml_loader (2.4.0 _yaml.py alike): one more float form, no timestamps.
    number = re.compile(
        r"""^(?:
         [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
        |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
        |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
        |[-+]?\.(?:inf|Inf|INF)
        |\.(?:nan|NaN|NAN))$""",
        re.X,
    )
    resolvers = {first: [pair for pair in pairs if pair[0] != _TAG + "timestamp"] for first, pairs in plain.items()}
    for first in "-+0123456789.":
        resolvers[first] = [*resolvers.get(first, []), (_TAG + "float", number)]
    return resolvers


def resolved(text: str, tag: str | None, has_exponents: bool) -> Any:
    """The value of a scalar with a tag, or of a plain one without, which is not empty.

    `has_exponents`: the loader is OmegaConf's, to which `1e-4` is a number.
    """
    if tag is None:
        for candidate, pattern in _resolvers(has_exponents).get(text[0], ()):
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
    except (ValueError, KeyError, AttributeError, IndexError, OverflowError):  # what PyYAML raises for an odd text
        return text
    return text
