"""Release numbers: their order, ranges of them, and values that changed at one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_NUMBER: Final = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.?(a|b|rc|dev|post)(\d*))?")

_COMPARISON: Final = re.compile(r"(===|==|!=|>=|<=|~=|>|<)(\d[\w.*]*)")

_RANK: Final = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, "post": 1}


@lru_cache(maxsize=4096)
def release_key(release: str) -> tuple[tuple[int, ...], int, int]:
    """A key that orders releases as PEP 440 orders them (epochs and local labels aside).

    Raises ValueError for text that is no release.
    """
    match = _NUMBER.match(release.strip())
    if match is None:
        raise ValueError(f"not a release: {release!r}")
    numbers = tuple(map(_number, match.group(1).split(".")))
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers, _RANK[match.group(2)], _number(match.group(3) or "0")


def _number(digits: str) -> int:
    """A part of a release; all that is longer than any is equally far away. Python reads at most 4,300 digits."""
    return int(digits) if len(digits) <= 18 else 10**18


class Constraint(Frozen):
    """The releases that a requirement allows: comparisons of PEP 440 that all hold (`>=4.45`, `<4.53`)."""

    comparisons: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(text: str) -> Constraint:
        """The constraint that its own text stands for (`>=4.45,<4.53`). Raises ValueError for other text."""
        found = []
        for part in text.split(","):
            match = _COMPARISON.fullmatch(part)
            if match is None:
                raise ValueError(f"not a comparison of releases: {part!r}")
            found.append((match[1], match[2]))
        return Constraint(tuple(found))

    def __str__(self) -> str:
        return ",".join(f"{operator}{release}" for operator, release in self.comparisons)

    def allows(self, release: str) -> bool:
        """Whether a release satisfies every comparison; a pre-release counts like any other."""
        return all(_compares(operator, bound, release) for operator, bound in self.comparisons)

    def newest(self, releases: Iterable[str]) -> str | None:
        """The newest of some releases that is allowed: a pre-release only where no other one is."""
        allowed = sorted((one for one in releases if self.allows(one)), key=release_key)
        final = [one for one in allowed if is_final(one)] or allowed
        return final[-1] if final else None

    @property
    def exact(self) -> str | None:
        """The one release that is allowed, where the comparisons name it."""
        named = [bound for operator, bound in self.comparisons if operator in ("==", "===") and "*" not in bound]
        return named[0] if named and all(self.allows(bound) for bound in named) else None

    @property
    def last(self) -> str | None:
        """Return the newest release that is allowed, where an upper bound names it."""
        named = [bound for operator, bound in self.comparisons if operator == "<=" and self.allows(bound)]
        return named[0] if named else None

    @property
    def impossible(self) -> bool:
        """Whether no release can satisfy all comparisons, as far as their bounds show."""
        if any(operator in ("==", "===") and "*" not in bound for operator, bound in self.comparisons):
            return self.exact is None
        lower, upper = self._lower(unfinished=".dev0"), self._upper()
        return (
            lower is not None
            and upper is not None
            and (lower[0] > upper[0] or (lower[0] == upper[0] and not (lower[1] and upper[1])))
        )

    def at_least(self, release: str) -> bool | None:
        """Whether every allowed release is `release` or later; None where that differs among them."""
        key = release_key(release)
        lower, upper = self._lower(), self._upper()
        if lower is not None and lower[0] >= key:
            return True
        if upper is not None and (upper[0] < key or (upper[0] == key and not upper[1])):
            return False
        return None

    def _lower(self, unfinished: str = "") -> tuple[_Key, bool] | None:
        """The highest lower bound, and whether it is allowed itself.

        `==4.*` takes the pre-releases of 4.0, too, which `unfinished` makes the first of them.
        """
        bounds = [
            (release_key(bound.removesuffix(".*") + (unfinished if bound.endswith(".*") else "")), operator != ">")
            for operator, bound in self.comparisons
            if operator in ("==", "===", ">=", ">", "~=")
        ]
        return max(bounds, key=lambda bound: (bound[0], not bound[1]), default=None)

    def _upper(self) -> tuple[_Key, bool] | None:
        """The lowest upper bound, and whether it is allowed itself."""
        bounds = []
        for operator, bound in self.comparisons:
            if operator == "~=" or bound.endswith(".*"):
                if operator in ("~=", "=="):
                    bounds.append((release_key(_following(_prefix(operator, bound))), False))
            elif operator in ("==", "===", "<=", "<"):
                bounds.append((release_key(bound), operator != "<"))
        return min(bounds, default=None)


_Key = tuple[tuple[int, ...], int, int]


def covering(constraints: Iterable[Constraint]) -> Constraint:
    """The releases from the oldest to the newest that some constraints allow; open where one of them has no bound."""
    ends = [(list(_lowest(one)), list(_highest(one))) for one in constraints]
    lower = [max(bounds, key=_release) for bounds, _ in ends if bounds]
    upper = [min(bounds, key=_release) for _, bounds in ends if bounds]
    first = (min(lower, key=_release),) if len(lower) == len(ends) else ()
    last = (max(upper, key=_release),) if len(upper) == len(ends) else ()
    return Constraint((*first, *last))


def _release(bound: tuple[str, str]) -> _Key:
    return release_key(bound[1])


def _lowest(constraint: Constraint) -> Iterator[tuple[str, str]]:
    """The lower bounds of a constraint, each as one comparison."""
    for operator, bound in constraint.comparisons:
        if operator in ("==", "===", ">=", ">", "~="):
            yield ">=", bound.removesuffix(".*")


def _highest(constraint: Constraint) -> Iterator[tuple[str, str]]:
    """The upper bounds of a constraint, each as one comparison."""
    for operator, bound in constraint.comparisons:
        if operator == "~=" or (operator == "==" and bound.endswith(".*")):
            yield "<", _following(_prefix(operator, bound))
        elif operator in ("==", "===", "<=", "<"):
            yield "<" if operator == "<" else "<=", bound


def is_final(release: str) -> bool:
    """Whether a release is neither a pre-release nor a development version."""
    return release_key(release)[1] >= 0


def around(release: str) -> tuple[str, ...]:
    """A release and, of a pre-release or development version, the final one that it becomes: what changes between the
    last final release and that one may have changed before it or after it.
    """
    return (release,) if is_final(release) else (release, ".".join(map(str, _numbers(release))))


def public(release: str) -> str:
    """A release without its local label (`2.6.0+cu124` is 2.6.0 built in another way)."""
    return release.partition("+")[0].removeprefix("v")


def _numbers(release: str) -> tuple[int, ...]:
    match = _NUMBER.match(release.strip())
    if match is None:
        raise ValueError(f"not a release: {release!r}")
    return tuple(int(part) for part in match.group(1).split("."))


def _prefix(operator: str, bound: str) -> tuple[int, ...]:
    """The numbers that every release allowed by `==1.4.*` or `~=1.4.2` begins with."""
    numbers = _numbers(bound)
    return numbers[:-1] if operator == "~=" else numbers


def _following(prefix: tuple[int, ...]) -> str:
    return ".".join(map(str, (*prefix[:-1], prefix[-1] + 1)))


def _begins(release: str, prefix: tuple[int, ...]) -> bool:
    numbers = _numbers(release)
    return (numbers + (0,) * len(prefix))[: len(prefix)] == prefix


def _compares(operator: str, bound: str, release: str) -> bool:
    if operator == "===":
        return release == bound
    if bound.endswith(".*"):
        return _begins(release, _numbers(bound)) == (operator == "==")
    key, limit = release_key(release), release_key(bound)
    if operator == "~=":
        return key >= limit and _begins(release, _prefix(operator, bound))
    if limit[1] == 0 and key[0] == limit[0] and operator in (">", "<"):
        return False  # `>1.7` leaves out 1.7.post1, and `<1.8` leaves out 1.8rc1
    return bool(_COMPARE[operator](key, limit))


_COMPARE: Final = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}


class Since(Frozen):
    """A value that changed: (first release, value) in ascending order; the first pair's release may be empty."""

    steps: tuple[tuple[str, Any], ...]

    def at(self, release: str) -> Any:
        """The value at a release (the first one for releases before the first step)."""
        key = release_key(release)
        value = self.steps[0][1]
        for first, following in self.steps[1:]:
            if release_key(first) <= key:
                value = following
        return value
