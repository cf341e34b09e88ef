"""Values of a framework's keys: those that it accepts, and those that stop it."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfglint_train.frameworks.lens import Config


def extract_enumeration(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a schema's enumeration without its other constraints, or None if it has no enumeration.

    The type of a list stays: the enumeration is then that of its items. So does the mark of a registry.
    """
    if "enum" not in schema:
        return None
    kept = {word: schema[word] for word in ("enum", "x-registry") if word in schema}
    return {**kept, **({"type": "array"} if schema.get("type") == "array" else {})}


class ValueParser:
    """The values that settings accept: by default, those that their schemas allow."""

    placeholders: tuple[str, ...] = ()
    """Values that are replaced before the framework reads them."""
    forwarded_settings: Mapping[str, tuple[str, tuple[str, ...]]] = {}
    """Settings that accept any string and pass it on to another library.

    Setting -> Python name of the enumeration that must contain the string, and further accepted strings (`*` matches
    anything).
    """
    forward_target: str = "the HF Trainer"
    """Library that receives the forwarded settings and rejects other strings."""
    fatal_settings: frozenset[str] | None = None
    """Settings whose wrong values stop the framework while it reads them, or None if all do."""

    def extract_enforced(self, schema: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
        """Return the part of a setting's schema that the framework enforces, or None if it enforces none."""
        return extract_enumeration(schema) if "x-unchecked" in schema else schema

    def has_user_code(self, config: Config) -> bool:
        """Return whether a setting or a variable makes the framework load a user's module."""
        return False

    def is_accepted(self, schema: Mapping[str, Any], value: Any) -> bool | None:
        """Return whether a value is accepted, or None if the loader's types decide."""
        return None

    def is_fatal(self, route: Route) -> bool:
        """Return whether a wrong value at a route stops the framework while it reads the value."""
        return self.fatal_settings is None or str(route[0]) in self.fatal_settings

    def describe_values(self, schema: Mapping[str, Any]) -> str | None:
        """Return a description of the values that a setting accepts, or None if its schema is enough."""
        return None
