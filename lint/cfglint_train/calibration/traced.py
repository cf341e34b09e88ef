"""Traced rows: conversion of their plan."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field


def build_plan(fields: Mapping[Field, Any]) -> Plan:
    """Return a plan with these field values; lists become tuples."""
    return Plan().replace({name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
