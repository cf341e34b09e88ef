"""Texts that YAML loaders reject although cfglint can read them, determined with PyYAML's own classes.

cfglint reads YAML with libyaml, which is ten times as fast as PyYAML's scanner and accepts more, such as a tab between
tokens or a comment directly after `|`. libyaml alone also misses the errors that
constructors raise (an unknown tag, an invalid date, a list as a key). cfglint therefore loads a text with a doubtful
construct (`doubts.py`) a second time, as the framework does.
"""

from __future__ import annotations

from datetime import date

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

from cfglint_train.documents.document import Document, Span, build_offset_converter, decode
from cfglint_train.documents.yaml.compose import ERRORS, LoaderStop, build_stop
from cfglint_train.documents.yaml.dialects import PYYAML, Dialect
from cfglint_train.documents.yaml.faults import explain
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_PATHLIB_TAG: Final = "tag:yaml.org,2002:python/object/apply:pathlib."


class Refusal(Frozen):
    """The rejection of a text by a loader, with the reason."""

    loader: str
    message: str
    span: Span
    """Span from the place where the loader stops to the end of the line."""
    help: str | None = None


class _LoaderMixin:
    """Common behavior of the loaders: template placeholders count as strings, and every error has a position."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.Node:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)  # type: ignore[misc]
        key = node.value[0][0] if node.flow_style and len(node.value) == 1 else None
        if isinstance(key, yaml.MappingNode) and key.start_mark.index == node.start_mark.index + 1:
            return yaml.ScalarNode("tag:yaml.org,2002:str", "", node.start_mark, node.end_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)  # type: ignore[misc]
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
            raise ConstructorError(None, None, str(error), node.start_mark) from None


class _OmegaConfMixin(_LoaderMixin):
    """OmegaConf's type checks of keys and values.

    Source: omegaconf 2.3.0 `_utils.py` (get_yaml_loader), `base.py` and `nodes.py`. Rule SYN003 reports duplicate keys.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag.startswith(_PATHLIB_TAG):
            return self.construct_sequence(node)  # type: ignore[attr-defined]
        value = super().construct_object(node, deep)
        if isinstance(value, (date, set)):
            raise ConstructorError(None, None, f"a value cannot be a {type(value).__name__}", node.start_mark)
        return value

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep)  # type: ignore[misc]
        for key, _ in node.value:
            if self.construct_object(key, deep) is None:
                raise ConstructorError(None, None, "a key cannot be null", key.start_mark)
        return mapping


def find_refusals(document: Document, dialect: Dialect, libyaml_stop: LoaderStop | None) -> tuple[Refusal | None, ...]:
    """Return, for each loader of a dialect, the reason why it rejects a text, or None if it accepts the text.

    `libyaml_stop` is not None if libyaml rejects the text and only PyYAML's scanner accepts it.
    """
    text = decode(document.source)
    offset = build_offset_converter(text, document.source)

    def build_refusal(name: str, stop: LoaderStop | None) -> Refusal | None:
        if stop is None:
            return None
        start = stop.character_offset if offset is None else offset(stop.character_offset)
        return Refusal(name, stop.message, Span(start, max(start, document.find_line_end(start))), stop.help)

    if dialect is PYYAML:
        return (build_refusal("PyYAML", _find_stop(_make_python_loader(_LoaderMixin), text, dialect)),)
    newer = libyaml_stop or _find_stop(_make_libyaml_loader(), text, dialect)
    older = _find_stop(_make_python_loader(_OmegaConfMixin), text, dialect)
    return build_refusal("OmegaConf before 2.4", older), build_refusal("OmegaConf since 2.4", newer)


def _make_python_loader(mixin: type[_LoaderMixin]) -> type[Any]:
    """Return a loader class with PyYAML's pure-Python scanner."""
    return type("Loader", (mixin, yaml.SafeLoader), {})


def _make_libyaml_loader() -> type[Any]:
    """Return a loader class with libyaml's scanner (omegaconf 2.4.0 `_yaml.py`).

    Without libyaml, the class uses PyYAML's scanner.
    """
    parser: type[Any] | None = getattr(getattr(yaml, "cyaml", None), "CParser", None)
    if parser is None:
        return _make_python_loader(_OmegaConfMixin)

    def initialize(self: Any, text: str) -> None:
        parser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    return type("Loader", (_OmegaConfMixin, Composer, parser, SafeConstructor, Resolver), {"__init__": initialize})


def _find_stop(kind: type[Any], text: str, dialect: Dialect) -> LoaderStop | None:
    """Return the place where a loader stops, or None if it loads the whole text."""
    loader: Any = None
    try:
        loader = kind(text)
        loader.yaml_implicit_resolvers = dialect.resolvers
        loader.get_single_data()
    except ERRORS as error:
        stop = build_stop(error, text, loader)
        return stop._replace(help=explain(error, stop.message, stop.position, (), text, text.encode()).help)
    finally:
        if loader is not None:
            loader.dispose()
    return None
