"""The interfaces of frameworks are small, and all that a framework overrides is in one of them."""

from __future__ import annotations

from itertools import combinations

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework, Launching
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.registry import listed


def public(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def test_each_interface_is_small_and_states_what_no_other_does():
    interfaces = Keys.__bases__
    assert {one.__name__: len(methods) for one in interfaces if len(methods := methods_of(one)) > 20} == {}
    assert not any(public(one) & public(other) for one, other in combinations(interfaces, 2))
    assert public(Keys) == set()


def methods_of(owner: type) -> set[str]:
    return {name for name in public(owner) if callable(one := vars(owner)[name]) or hasattr(one, "__get__")}


def test_a_framework_overrides_what_the_interfaces_have():
    """A method that none of them has would never be called."""
    for name in listed():
        for owner in frameworks.load(name).keys_of.__mro__:
            if issubclass(owner, Keys) and owner is not Keys:
                assert public(owner) <= {one for interface in Keys.__bases__ for one in public(interface)}


def test_a_framework_has_few_fields():
    assert len(Framework._fields) <= 15
    assert len(Launching._fields) <= 15
