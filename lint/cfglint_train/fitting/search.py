"""Exact search for the least costly combination of moves that fits.

Best first over partial combinations. A partial combination is dropped where it does not fit even with the strongest
move of every dimension that is still open; so the first complete one that is met is the least costly of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import log

from cfglint_train.fitting.moves import OPTIMISATION, TIERS, Dimension, Move

Chosen = tuple[Move | None, ...]
"""One entry per dimension; None leaves it as it is."""

Cost = tuple[int, int, int, int]
"""Changes of the optimisation (and further halvings of an evaluation), highest tier, slowdown (millionths of its
logarithm), changed settings."""

FREE: Cost = (0, 0, 0, 0)


def cost(moves: Chosen) -> Cost:
    """What a combination costs."""
    total = FREE
    for move in moves:
        if move is not None:
            total = _plus(total, move)
    return total


def _plus(known: Cost, move: Move) -> Cost:
    changes, tier, slowdown, edits = known
    return (
        changes + move.steps - (move.tier != OPTIMISATION),
        max(tier, move.tier),
        slowdown + round(log(move.slowdown) * 1e6),
        edits + move.edits,
    )


def cheapest(
    dimensions: Sequence[Dimension],
    fits: Callable[[Chosen], bool],
    writable: Callable[[Chosen], bool] = lambda _: True,
    highest: int = OPTIMISATION,
    barred: Callable[[Chosen], bool] = lambda _: False,
) -> Chosen | None:
    """The least costly combination that fits and can be written; None where there is none.

    Tiers are searched in turn, so that what gives something up is only looked at where nothing else fits. `fits` and
    `writable` get one entry per dimension, in the order of `dimensions`. `barred`: whether no combination with these
    moves is one; it is asked of partial ones, too, and may find out more while `writable` is asked.
    """
    for tier in TIERS[: highest + 1]:
        open_ = [one._replace(moves=tuple(move for move in one.moves if move.tier <= tier)) for one in dimensions]
        if tier and not any(move.tier == tier for one in open_ for move in one.moves):
            continue
        found = _search(open_, fits, writable, barred)
        if found is not None:
            return found
    return None


def _search(
    dimensions: Sequence[Dimension],
    fits: Callable[[Chosen], bool],
    writable: Callable[[Chosen], bool],
    barred: Callable[[Chosen], bool],
) -> Chosen | None:
    # The dearest first: what must be chosen is known soonest. What has no order cannot be bounded: before all others.
    order = sorted(range(len(dimensions)), key=lambda place: _rank(dimensions[place]))
    choices: list[tuple[Move | None, ...]] = [(None, *dimensions[place].moves) for place in order]
    unordered = sum(1 for one in dimensions if not one.ordered)
    strongest = tuple(len(moves) - 1 for moves in choices)
    known: dict[tuple[int, ...], bool] = {}

    def meant(picked: tuple[int, ...]) -> Chosen:
        placed = {place: moves[pick] for place, moves, pick in zip(order, choices, picked)}
        return tuple(placed.get(place) for place in range(len(dimensions)))

    def possible(picked: tuple[int, ...]) -> bool:
        best = picked + strongest[len(picked) :]
        if best not in known:
            known[best] = fits(meant(best))
        return known[best]

    heap: list[tuple[Cost, int, tuple[int, ...]]] = [(FREE, 0, ())]
    while heap:
        so_far, _, picked = heappop(heap)
        if barred(meant(picked)) or (len(picked) >= unordered and not possible(picked)):
            continue
        if len(picked) == len(order):
            if writable(meant(picked)):
                return meant(picked)
            continue
        for pick, move in enumerate(choices[len(picked)]):
            after = so_far if move is None else _plus(so_far, move)
            heappush(heap, (after, -len(picked), (*picked, pick)))
    return None


def _rank(dimension: Dimension) -> tuple[bool, float]:
    dearest = max((move.slowdown + 10 * move.tier for move in dimension.moves), default=0.0)
    return dimension.ordered, -dearest
