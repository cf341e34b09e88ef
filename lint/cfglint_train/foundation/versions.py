"""Release numbers: their order, version constraints, and values that depend on the release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_NUMBER: Final = compile_on_use(r"v?(\d+(?:\.\d+)*)(?:\.?(a|b|rc|dev|post)(\d*))?")

_COMPARISON: Final = compile_on_use(r"(===|==|!=|>=|<=|~=|>|<)(\d[\w.*]*)")

_RANK: Final = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, "post": 1}


@lru_cache(maxsize=4096)
def parse_release(release: str) -> tuple[tuple[int, ...], int, int]:
    """Return a sort key that orders releases as PEP 440 does, without epochs and local labels.

    Raise `ValueError` if the text does not begin with a release.
    """
    parts = release.split(".")
    if all(map(str.isdecimal, parts)):  # the usual case, for which no pattern is compiled
        return _strip_zeros(parts), 0, 0
    match = _NUMBER.match(release.strip())
    if match is None:
        raise ValueError(f"not a release: {release!r}")
    return _strip_zeros(match.group(1).split(".")), _RANK[match.group(2)], _parse_number(match.group(3) or "0")


def _strip_zeros(parts: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of a release without zeros at the end."""
    numbers = tuple(map(_parse_number, parts))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


def _parse_number(digits: str) -> int:
    """Parse a number in a release; numbers longer than 18 digits are equal, because Python limits digits to 4,300."""
    return int(digits) if len(digits) <= 18 else 10**18


class Constraint(Frozen):
    """A version constraint: PEP 440 comparisons that must all hold, such as `>=4.45` and `<4.53`."""

    comparisons: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(text: str) -> Constraint:
        """Parse a constraint such as `>=4.45,<4.53`, without spaces. Raise `ValueError` for other text."""
        comparisons = []
        for part in text.split(","):
            match = _COMPARISON.fullmatch(part)
            if match is None:
                raise ValueError(f"not a version specifier: {part!r}")
            comparisons.append((match[1], match[2]))
        return Constraint(tuple(comparisons))

    def __str__(self) -> str:
        """Return the constraint as text that `parse` accepts."""
        return ",".join(f"{operator}{release}" for operator, release in self.comparisons)

    def is_satisfied_by(self, release: str) -> bool:
        """Return whether a release satisfies every comparison; a pre-release counts like any other release."""
        return all(_is_satisfied(operator, bound, release) for operator, bound in self.comparisons)

    def find_newest(self, releases: Iterable[str]) -> str | None:
        """Return the newest allowed release, or None. Return a pre-release only if no final release is allowed."""
        allowed = sorted((release for release in releases if self.is_satisfied_by(release)), key=parse_release)
        final = [release for release in allowed if is_final(release)] or allowed
        return final[-1] if final else None

    @property
    def exact_release(self) -> str | None:
        """The only allowed release, if a comparison names it, or None."""
        bounds = [bound for operator, bound in self.comparisons if operator in ("==", "===") and "*" not in bound]
        return bounds[0] if bounds and all(self.is_satisfied_by(bound) for bound in bounds) else None

    @property
    def last_release(self) -> str | None:
        """The newest allowed release, if a `<=` comparison names it, or None."""
        bounds = [bound for operator, bound in self.comparisons if operator == "<=" and self.is_satisfied_by(bound)]
        return bounds[0] if bounds else None

    @property
    def is_impossible(self) -> bool:
        """True if the lower and upper bounds show that no release can satisfy all comparisons."""
        if any(operator in ("==", "===") and "*" not in bound for operator, bound in self.comparisons):
            return self.exact_release is None
        lower, upper = self._find_lower_bound(unfinished=".dev0"), self._find_upper_bound()
        return (
            lower is not None
            and upper is not None
            and (lower[0] > upper[0] or (lower[0] == upper[0] and not (lower[1] and upper[1])))
        )

    def is_at_least(self, release: str) -> bool | None:
        """Return True if every allowed release is at least `release`, False if none is, and None if undetermined."""
        key = parse_release(release)
        lower, upper = self._find_lower_bound(), self._find_upper_bound()
        if lower is not None and lower[0] >= key:
            return True
        if upper is not None and (upper[0] < key or (upper[0] == key and not upper[1])):
            return False
        return None

    def _find_lower_bound(self, unfinished: str = "") -> tuple[_Key, bool] | None:
        """Return the highest lower bound and whether the bound itself is allowed, or None.

        `==4.*` includes the pre-releases of 4.0. The suffix `unfinished`, such as `.dev0`, lowers that bound
        to include them.
        """
        bounds = [
            (parse_release(bound.removesuffix(".*") + (unfinished if bound.endswith(".*") else "")), operator != ">")
            for operator, bound in self.comparisons
            if operator in ("==", "===", ">=", ">", "~=")
        ]
        return max(bounds, key=lambda bound: (bound[0], not bound[1]), default=None)

    def _find_upper_bound(self) -> tuple[_Key, bool] | None:
        """Return the lowest upper bound and whether the bound itself is allowed, or None."""
        bounds = []
        for operator, bound in self.comparisons:
            if operator == "~=" or bound.endswith(".*"):
                if operator in ("~=", "=="):
                    bounds.append((parse_release(_build_next_release(_get_prefix(operator, bound))), False))
            elif operator in ("==", "===", "<=", "<"):
                bounds.append((parse_release(bound), operator != "<"))
        return min(bounds, default=None)


_Key = tuple[tuple[int, ...], int, int]


def cover_constraints(constraints: Iterable[Constraint]) -> Constraint:
    """Return the range from the oldest to the newest release that any of the constraints allows.

    The range is open at an end if any of the constraints has no bound there.
    """
    ends = [(list(_list_lower_bounds(constraint)), list(_list_upper_bounds(constraint))) for constraint in constraints]
    lower = [max(bounds, key=_get_bound_key) for bounds, _ in ends if bounds]
    upper = [min(bounds, key=_get_bound_key) for _, bounds in ends if bounds]
    first = (min(lower, key=_get_bound_key),) if len(lower) == len(ends) else ()
    last = (max(upper, key=_get_bound_key),) if len(upper) == len(ends) else ()
    return Constraint((*first, *last))


def _get_bound_key(bound: tuple[str, str]) -> _Key:
    return parse_release(bound[1])


def _list_lower_bounds(constraint: Constraint) -> Iterator[tuple[str, str]]:
    """Yield the lower bounds of a constraint as `>=` comparisons."""
    for operator, bound in constraint.comparisons:
        if operator in ("==", "===", ">=", ">", "~="):
            yield ">=", bound.removesuffix(".*")


def _list_upper_bounds(constraint: Constraint) -> Iterator[tuple[str, str]]:
    """Yield the upper bounds of a constraint as `<=` or `<` comparisons."""
    for operator, bound in constraint.comparisons:
        if operator == "~=" or (operator == "==" and bound.endswith(".*")):
            yield "<", _build_next_release(_get_prefix(operator, bound))
        elif operator in ("==", "===", "<=", "<"):
            yield "<" if operator == "<" else "<=", bound


def is_final(release: str) -> bool:
    """Return whether a release is neither a pre-release nor a development version."""
    return parse_release(release)[1] >= 0


def add_final_release(release: str) -> tuple[str, ...]:
    """Return a release and, for a pre-release or development version, the final release that follows it.

    A change since the previous final release may have been made before or after the pre-release.
    """
    return (release,) if is_final(release) else (release, ".".join(map(str, _parse_numbers(release))))


def strip_local_label(release: str) -> str:
    """Return a release without its local label and a leading `v`: `2.6.0+cu124` is a build of 2.6.0."""
    return release.partition("+")[0].removeprefix("v")


def _parse_numbers(release: str) -> tuple[int, ...]:
    match = _NUMBER.match(release.strip())
    if match is None:
        raise ValueError(f"not a release: {release!r}")
    return tuple(int(part) for part in match.group(1).split("."))


def _get_prefix(operator: str, bound: str) -> tuple[int, ...]:
    """Return the numbers that every release allowed by `==1.4.*` or `~=1.4.2` begins with."""
    numbers = _parse_numbers(bound)
    return numbers[:-1] if operator == "~=" else numbers


def _build_next_release(prefix: tuple[int, ...]) -> str:
    return ".".join(map(str, (*prefix[:-1], prefix[-1] + 1)))


def _has_prefix(release: str, prefix: tuple[int, ...]) -> bool:
    numbers = _parse_numbers(release)
    return (numbers + (0,) * len(prefix))[: len(prefix)] == prefix


def _is_satisfied(operator: str, bound: str, release: str) -> bool:
    if operator == "===":
        return release == bound
    if bound.endswith(".*"):
        return _has_prefix(release, _parse_numbers(bound)) == (operator == "==")
    key, limit = parse_release(release), parse_release(bound)
    if operator == "~=":
        return key >= limit and _has_prefix(release, _get_prefix(operator, bound))
    if limit[1] == 0 and key[0] == limit[0] and operator in (">", "<"):
        return False  # `>1.7` excludes 1.7.post1, and `<1.8` excludes 1.8rc1
    return bool(_COMPARE[operator](key, limit))


_COMPARE: Final = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}


class ValueByRelease(Frozen):
    """A value that depends on the release: pairs of first release and value, in ascending order.

    The release of the first pair may be empty.
    """

    steps: tuple[tuple[str, Any], ...]

    def get_at(self, release: str) -> Any:
        """Return the value at a release; for releases before the second pair, the first value."""
        key = parse_release(release)
        value = self.steps[0][1]
        for first, following in self.steps[1:]:
            if parse_release(first) <= key:
                value = following
        return value
