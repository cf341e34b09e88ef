"""Interfaces of frameworks: small, and each method that a framework overrides belongs to exactly one of them."""

from __future__ import annotations

from itertools import combinations

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework, LaunchInterface
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.registry import list_frameworks


def list_public_names(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def test_each_interface_is_small_and_states_what_no_other_does():
    interfaces = Keys.__bases__
    assert {
        interface.__name__: len(methods) for interface in interfaces if len(methods := list_methods(interface)) > 20
    } == {}
    assert not any(
        list_public_names(interface) & list_public_names(other) for interface, other in combinations(interfaces, 2)
    )
    assert list_public_names(Keys) == set()


def list_methods(owner: type) -> set[str]:
    return {
        name for name in list_public_names(owner) if callable(member := vars(owner)[name]) or hasattr(member, "__get__")
    }


def test_a_framework_overrides_what_the_interfaces_have():
    """Reject a method that no interface has, because it would never be called."""
    for name in list_frameworks():
        for owner in frameworks.load(name).keys_type.__mro__:
            if issubclass(owner, Keys) and owner is not Keys:
                assert list_public_names(owner) <= {
                    method for interface in Keys.__bases__ for method in list_public_names(interface)
                }


def test_a_framework_has_few_fields():
    assert len(Framework._fields) <= 15
    assert len(LaunchInterface._fields) <= 15
