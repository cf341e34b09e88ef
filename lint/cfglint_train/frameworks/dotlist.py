"""Dot lists: OmegaConf settings on a command line, such as `a.b=1 c[d]=x`.

Source: omegaconf 2.3.0 and 2.4.0 (`_utils.split_key`, `basecontainer.merge_with_dotlist`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from cfglint_train.documents.document import Document, DocumentError, Route
from cfglint_train.foundation.typed import Any


def parse_dotlist(words: list[str]) -> dict[Route, Any]:
    """Parse `a.b=c` words as `OmegaConf.from_dotlist` does, and return the value of each leaf by route.

    Later words override earlier words. Raise `ValueError` for a word that has no key or whose value is not valid YAML.
    """
    leaves: dict[Route, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        steps = tuple(split_key(key))
        if not steps or not all(steps):
            raise ValueError(f"{word!r} is not a setting")
        value = parse_value(text, word) if separator else None
        merge_setting(leaves, steps, value)
    return leaves


def merge_setting(leaves: dict[Route, Any], route: Route, value: Any) -> None:
    """Set a value after others, as `OmegaConf.update` does: mappings are merged.

    A later key below a plain value turns the value into a mapping. A plain value removes the keys below a mapping that
    it replaces.
    """
    for other in list(leaves):
        if other == route[: len(other)] or (other[: len(route)] == route and not isinstance(value, dict)):
            del leaves[other]
    for inner, leaf in _flatten(value, route):
        leaves.pop(inner, None)
        leaves[inner] = leaf


def parse_value(text: str, word: str) -> Any:
    """Parse a value as OmegaConf's YAML. Raise `ValueError`, which names `word`, if it is invalid."""
    try:
        document = _parse_yaml(text)
        return None if document.root is None else document.get_value()
    except DocumentError as error:
        raise ValueError(f"{word!r}: {error.message}") from None


@lru_cache(maxsize=256)
def _parse_yaml(text: str) -> Document:
    """Parse YAML text. The result is cached, because the launches in a repository repeat the same values."""
    from cfglint_train.documents.yaml.dialects import get_omegaconf_dialect
    from cfglint_train.documents.yaml.document import YamlDocument

    return YamlDocument("", text.encode(), get_omegaconf_dialect())


def _flatten(value: Any, route: Route) -> list[tuple[Route, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _flatten(item, (*route, key))]
    return [(route, value)]


def split_key(key: str) -> list[str]:
    """Split a key such as `a.b[c]` into its steps."""
    steps: list[str] = []
    for match in re.finditer(r"\[([^\]]*)\]|\.?([^.\[\]]+)", key):
        steps.append(match.group(1) if match.group(1) is not None else match.group(2))
    return steps
