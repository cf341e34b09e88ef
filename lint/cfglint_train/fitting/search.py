"""Exact search for the least costly combination of moves that fits.

Best-first search over partial combinations. A partial combination is dropped if it does not fit even with the strongest
move of every open dimension. The first complete combination that fits is therefore the least costly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import log

from cfglint_train.fitting.moves import FILLS_IN, OPTIMISATION, SAFE, TIERS, Dimension, Move
from cfglint_train.foundation.typed import Literal

Combination = tuple[Move | None, ...]
"""One entry per dimension; None leaves it unchanged."""

Cost = tuple[int, int, int, int]
"""Cost of a combination, compared in this order.

Number of optimization changes (further halvings of an evaluation length count too), highest tier, slowdown (its
logarithm in millionths), number of changed settings. The tier of a free move is the lowest one. The goal `throughput`
counts all safe tiers as one, and `smallest-edit` compares the number of settings before the slowdown.
"""

Goal = Literal["default", "throughput", "smallest-edit"]

FREE: Cost = (0, 0, 0, 0)


def rank_tier(move: Move, goal: Goal = "default") -> int:
    """Return the tier that counts in a search: the lowest one for a move that costs no time and gives nothing up."""
    is_free = move.tier <= SAFE and (move.slowdown <= 1 or goal != "default")
    return FILLS_IN if is_free else move.tier


def compute_cost(moves: Combination, goal: Goal = "default") -> Cost:
    """Return the cost of a combination."""
    total = FREE
    for move in moves:
        if move is not None:
            total = _add_move(total, move, goal)
    return total


def _add_move(cost_so_far: Cost, move: Move, goal: Goal) -> Cost:
    changes, tier, *rest = cost_so_far
    slowdown, edits = reversed(rest) if goal == "smallest-edit" else rest
    slowdown, edits = slowdown + round(log(move.slowdown) * 1e6), edits + move.edits
    changes, tier = changes + move.steps - (move.tier != OPTIMISATION), max(tier, rank_tier(move, goal))
    return (changes, tier, edits, slowdown) if goal == "smallest-edit" else (changes, tier, slowdown, edits)


def find_cheapest(
    dimensions: Sequence[Dimension],
    fits: Callable[[Combination], bool],
    writable: Callable[[Combination], bool] = lambda _: True,
    highest: int = OPTIMISATION,
    is_barred: Callable[[Combination], bool] = lambda _: False,
    goal: Goal = "default",
) -> Combination | None:
    """Return the least costly combination that fits and can be written, or None if there is none.

    Tiers are searched in turn, so that moves that give something up are tried only if nothing else fits. `highest` is
    the last tier. `fits` and `writable` receive one entry per dimension, in the order of `dimensions`. `is_barred`
    returns whether every combination with these moves is excluded. It is also called with partial combinations, and its
    answer may change after a call of `writable`.
    """
    for tier in TIERS[: highest + 1]:
        open_ = [
            dimension._replace(moves=tuple(move for move in dimension.moves if rank_tier(move, goal) <= tier))
            for dimension in dimensions
        ]
        if tier and not any(rank_tier(move, goal) == tier for dimension in open_ for move in dimension.moves):
            continue
        combination = _search(open_, fits, writable, is_barred, goal)
        if combination is not None:
            return combination
    return None


def _search(
    dimensions: Sequence[Dimension],
    fits: Callable[[Combination], bool],
    writable: Callable[[Combination], bool],
    is_barred: Callable[[Combination], bool],
    goal: Goal,
) -> Combination | None:
    # Unordered dimensions come first, because partial combinations cannot be bounded until they are chosen. Then the
    # costliest dimension comes first, so that inevitable costs are known early.
    order = sorted(range(len(dimensions)), key=lambda place: _compute_rank(dimensions[place]))
    choices: list[tuple[Move | None, ...]] = [
        dimensions[place].moves if dimensions[place].required else (None, *dimensions[place].moves) for place in order
    ]
    unordered = sum(1 for dimension in dimensions if not dimension.ordered)
    strongest = tuple(len(moves) - 1 for moves in choices)
    results: dict[tuple[int, ...], bool] = {}

    def build_combination(picked: tuple[int, ...]) -> Combination:
        placed = {place: moves[pick] for place, moves, pick in zip(order, choices, picked)}
        return tuple(placed.get(place) for place in range(len(dimensions)))

    def is_reachable(picked: tuple[int, ...]) -> bool:
        best = picked + strongest[len(picked) :]
        if best not in results:
            results[best] = fits(build_combination(best))
        return results[best]

    heap: list[tuple[Cost, int, tuple[int, ...]]] = [(FREE, 0, ())]
    while heap:
        so_far, _, picked = heappop(heap)
        if is_barred(build_combination(picked)) or (len(picked) >= unordered and not is_reachable(picked)):
            continue
        if len(picked) == len(order):
            if writable(build_combination(picked)):
                return build_combination(picked)
            continue
        for pick, move in enumerate(choices[len(picked)]):
            after = so_far if move is None else _add_move(so_far, move, goal)
            heappush(heap, (after, -len(picked), (*picked, pick)))
    return None


def _compute_rank(dimension: Dimension) -> tuple[bool, float]:
    highest = max((move.slowdown + 10 * move.tier for move in dimension.moves), default=0.0)
    return dimension.ordered, -highest
