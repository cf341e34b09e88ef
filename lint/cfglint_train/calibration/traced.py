"""Traced rows: conversion of their architecture and plan."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any
from cfglint_train.models.architecture import Architecture, Attention, Experts, Latent, Linear
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field


def parse_architecture(row: Mapping[str, Any]) -> Architecture:
    """Return the architecture that a row's `architecture` object describes."""
    fields = dict(row)
    experts, latent = fields.pop("experts", None), fields.pop("latent", None)
    attention = fields.pop("attention", None)
    linears = tuple(Linear(*linear) for linear in fields.pop("linears", ()))
    return Architecture(
        **fields,
        experts=None if experts is None else Experts(**experts),
        latent=None if latent is None else Latent(**latent),
        attention=None if attention is None else Attention(*attention),
        linears=linears,
    )


def build_plan(fields: Mapping[Field, Any]) -> Plan:
    """Return a plan with these field values; lists become tuples."""
    return Plan().replace({name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
