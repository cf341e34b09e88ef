"""The values of a framework's keys: which it takes, and which stop it."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any


def extract_enumeration(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the enumeration in a schema, if it alone is enforced; None if there is none."""
    return {"enum": schema["enum"]} if "enum" in schema else None


class ValueParser:
    """The values that settings take; those of their schemas if nothing else is stated."""

    placeholders: tuple[str, ...] = ()
    """Values that are replaced before the framework looks at them."""
    forwarded_settings: Mapping[str, tuple[str, tuple[str, ...]]] = {}
    """Settings that take any text and hand it on: the enumeration (by its Python name) that must have it in the end,
    and further words that are taken (`*` stands for anything)."""
    forward_target: str = "the HF Trainer"
    """The program that refuses other words."""
    fatal_settings: frozenset[str] | None = None
    """The settings whose wrong values stop the framework while it reads them; None: all of them."""

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Return the part of a setting's schema that the framework enforces; None if it enforces none."""
        return extract_enumeration(schema) if "x-unchecked" in schema else schema

    def is_accepted(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Return whether a value is taken, where the loader's types do not decide; None if they do."""
        return None

    def is_fatal(self, route: Route) -> bool:
        """Return whether a wrong value at a place stops the framework."""
        return self.fatal_settings is None or str(route[0]) in self.fatal_settings

    def describe_values(self, schema: Mapping[str, Any]) -> str | None:
        """Return in words what a setting takes, or None if its schema says it."""
        return None
