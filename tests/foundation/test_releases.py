"""Release numbers and constraints on them, checked against packaging, the reference implementation of PEP 440."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cfglint_train.foundation.versions import Constraint, is_final, parse_release, strip_local_label
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.releases import AllowedReleases, Release, Releases

NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
SUFFIXES = st.sampled_from(["", "", "", "rc1", "a2", "b1", ".dev0", ".post1", ".post2"])
RELEASES = st.builds(lambda numbers, suffix: numbers + suffix, NUMBERS, SUFFIXES)


@st.composite
def draw_constraint(draw: st.DrawFn) -> Constraint:
    comparisons = []
    for operator in draw(
        st.lists(st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~=", "==*", "!=*"]), min_size=1, max_size=3)
    ):
        if operator.endswith("*"):
            comparisons.append((operator[:-1], draw(NUMBERS) + ".*"))
        elif operator == "~=":
            comparisons.append((operator, draw(NUMBERS.filter(lambda text: "." in text))))
        elif operator in (">", "<"):
            comparisons.append((operator, draw(NUMBERS)))  # for bounds with suffixes, packaging's own releases disagree
        else:
            comparisons.append((operator, draw(RELEASES)))
    return Constraint(tuple(comparisons))


@settings(max_examples=500)
@given(RELEASES, RELEASES)
def test_releases_are_ordered_as_pep_440_orders_them(release: str, other: str) -> None:
    assert (parse_release(release) < parse_release(other)) == (Version(release) < Version(other))
    assert (parse_release(release) == parse_release(other)) == (Version(release) == Version(other))
    assert is_final(release) == (not Version(release).is_prerelease)


def test_a_number_that_no_release_has_is_later_than_all() -> None:
    assert parse_release("1." + "9" * 5000) > parse_release("1.99999")


@pytest.mark.slow
@settings(max_examples=1000)
@given(draw_constraint(), RELEASES)
def test_constraints_allow_what_packaging_allows(constraint: Constraint, release: str) -> None:
    assert constraint.is_satisfied_by(release) == SpecifierSet(str(constraint)).contains(release, prereleases=True)


@pytest.mark.slow
@settings(max_examples=1000)
@given(draw_constraint(), RELEASES, RELEASES)
def test_bounds_never_contradict_what_is_allowed(constraint: Constraint, release: str, floor: str) -> None:
    allowed = constraint.is_satisfied_by(release)
    if constraint.is_impossible:
        assert not allowed
    answer = constraint.is_at_least(floor)
    if allowed and answer is not None and is_final(release):
        assert (parse_release(release) >= parse_release(floor)) == answer
    if constraint.exact_release is not None and allowed and "===" not in str(constraint):
        assert parse_release(constraint.exact_release) == parse_release(release)


def parse_constraint(text: str) -> Constraint:
    comparisons = []
    for part in text.split(","):
        operator = part.rstrip("0123456789.*abrcdevpost")
        comparisons.append((operator, part[len(operator) :]))
    return Constraint(tuple(comparisons))


@pytest.mark.parametrize(
    ("text", "floor", "told"),
    [
        (">=2.4", "2.3", True),
        (">=2.4", "2.4", True),
        (">=2.4", "2.5", None),
        ("<2.3", "2.3", False),
        ("<=2.3", "2.3", None),
        ("<2.4,>=2.1", "2.3", None),
        ("==2.2.*", "2.3", False),
        ("==2.2.*", "2.2", True),
        ("~=4.45.1", "4.46", False),
        ("~=4.45", "5.0", False),
        ("!=2.3", "2.3", None),
    ],
)
def test_a_range_answers_where_all_its_releases_agree(text: str, floor: str, told: bool | None) -> None:
    assert parse_constraint(text).is_at_least(floor) is told
    releases = Releases(allowed_releases={"torch": AllowedReleases(parse_constraint(text), Origin("inferred"))})
    assert releases.is_certainly_at_least("torch", floor) is told
    assert releases.is_at_least("torch", floor) is told
    assert not releases.is_stated("torch")


@pytest.mark.parametrize("text", [">=2,<2", ">3,<=3", ">=2.1,==1.*", "==1.0,==2.0", "==1.0,!=1.0", "~=1.4.2,>=1.5"])
def test_impossible_constraints_are_seen(text: str) -> None:
    assert parse_constraint(text).is_impossible


def test_the_newest_allowed_release_is_no_pre_release_unless_there_is_no_other() -> None:
    releases = ("0.9.4", "0.9.5", "0.9.6.dev0")
    assert parse_constraint(">=0.9.4").find_newest(releases) == "0.9.5"
    assert parse_constraint("<0.9.5").find_newest(releases) == "0.9.4"
    assert parse_constraint(">0.9.5").find_newest(releases) == "0.9.6.dev0"
    assert parse_constraint(">1").find_newest(releases) is None


def test_what_is_stated_stands_above_ranges_and_assumptions() -> None:
    assumed = Release("2.8", Origin("assumed"))
    release = Release("2.2", Origin("user"))
    ranges = {"torch": AllowedReleases(parse_constraint(">=2.4"), Origin("inferred"))}
    assert Releases({"torch": release}, ranges).is_certainly_at_least("torch", "2.3") is False
    assert Releases({"torch": assumed}, ranges).is_at_least("torch", "2.3") is True
    assert Releases({"torch": assumed}).is_certainly_at_least("torch", "2.3") is None
    assert Releases({"torch": assumed}).is_at_least("torch", "2.3") is True
    assert Releases({"torch": assumed}).is_assumed("torch")
    assert Releases().is_assumed("torch")
    assert Releases({}, ranges).add_defaults({"torch": assumed}).allowed_releases == ranges


def test_local_labels_say_nothing() -> None:
    assert strip_local_label("2.6.0+cu124") == "2.6.0"
    assert strip_local_label("v0.12.2") == "0.12.2"
    assert parse_release("2.6.0+cu124") == parse_release("2.6")
