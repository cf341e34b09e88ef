"""Records that behave like a `typing.NamedTuple`, before and after their constructor is compiled."""

from __future__ import annotations

import pickle
from dataclasses import MISSING, asdict, fields, replace
from typing import NamedTuple

import pytest

from cfglint_train.foundation import frozen
from cfglint_train.foundation.frozen import Frozen, dataclass
from tests.support.cases import for_each


class Ours(Frozen):
    """A record with a property."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    @property
    def twice(self) -> int:
        """Twice the first field."""
        return self.a * 2


class Theirs(NamedTuple):
    """A record with a property."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    @property
    def twice(self) -> int:
        """Twice the first field."""
        return self.a * 2


CALLS = [
    ((1,), {}),
    ((1, "y"), {}),
    ((1, "y", (2,)), {}),
    ((), {"a": 1}),
    ((1,), {"c": (3,)}),
    ((), {"c": (1,), "a": 2, "b": "z"}),
]
WRONG = [((), {}), ((1, 2, 3, 4), {}), ((1,), {"a": 2}), ((1,), {"d": 2}), ((), {"b": "x"}), ((1, 2, 3), {"c": 1})]


@pytest.fixture(params=["first ones", "later ones"])
def made(request):
    """Return the record class after few or many instances have been created."""

    class Ours(Frozen):
        a: int
        b: str = "x"
        c: tuple[int, ...] = ()
        twice = property(lambda self: self.a * 2)

    if request.param == "later ones":
        before = Ours.__new__
        for _ in range(frozen._PAYS + 1):
            Ours(1)
        assert Ours.__new__ is not before
    return Ours


@for_each(("values", "named"), CALLS)
def test_the_same_arguments_make_the_same_record(made, values, named):
    ours, theirs = made(*values, **named), Theirs(*values, **named)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert (ours.a, ours.b, ours.c, ours.twice) == (theirs.a, theirs.b, theirs.c, theirs.twice)
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(b="w") == theirs._replace(b="w")
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")


@for_each(("values", "named"), WRONG)
def test_wrong_arguments_are_refused(made, values, named):
    with pytest.raises(TypeError):
        Theirs(*values, **named)
    with pytest.raises(TypeError):
        made(*values, **named)


def test_a_record_without_fields_is_made_any_number_of_times():
    class Empty(Frozen):
        """No field."""

    assert {Empty() for _ in range(100)} == {()}


def test_the_class_tells_the_same():
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours._make([1, "y", ()]) == Theirs._make([1, "y", ()])
    assert Ours.__doc__ == Theirs.__doc__
    with pytest.raises(TypeError):
        Ours._make([1])
    with pytest.raises(ValueError, match="d"):
        Ours(1)._replace(d=1)
    with pytest.raises(AttributeError):
        Ours(1).a = 2


def test_records_go_between_processes():
    for _ in range(frozen._PAYS + 2):
        again = pickle.loads(pickle.dumps(Ours(1, "y", (2,))))
        assert again == Ours(1, "y", (2,))
        assert type(again) is Ours


def test_a_record_of_the_api_is_handled_as_a_data_class():
    @dataclass(frozen=True, slots=True)
    class Place:
        path: str
        line: int = 1

    assert "__dataclass_fields__" in vars(Place)
    assert [(field.name, field.default) for field in fields(Place)] == [("path", MISSING), ("line", 1)]
    assert Place.__dataclass_fields__ is Place.__dataclass_fields__
    assert asdict(Place("a")) == {"path": "a", "line": 1}
    assert replace(Place("a"), line=2) == Place("a", 2)


def test_a_record_of_the_api_equals_only_its_like():
    @dataclass(frozen=True, slots=True)
    class Place:
        path: str
        line: int

    @dataclass(frozen=True, slots=True)
    class Line:
        path: str
        line: int

    assert Place("a", 1) == Place("a", 1) != Place("a", 2)
    assert hash(Place("a", 1)) == hash(Place("a", 1))
    assert (Place("a", 1) != Place("a", 1)) is False
    for other in (Line("a", 1), ("a", 1), None):
        assert (Place("a", 1) == other) is (other == Place("a", 1)) is False
        assert (Place("a", 1) != other) is (other != Place("a", 1)) is True
