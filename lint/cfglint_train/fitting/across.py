"""A run on several kinds of hardware: verdict, smallest change, slowdown, headroom and price."""

from __future__ import annotations

from collections.abc import Sequence

from cfglint_train.fitting.alternatives import Alternatives
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.offers import Offer
from cfglint_train.memory.budget import VERDICTS

_SECONDS: Final = 3600
_MILLION: Final = 1_000_000


class HardwareRow(Frozen):
    """A run on one kind of hardware. Sizes are bytes."""

    hardware: str
    verdict: str | None
    """Verdict on the unchanged run; None if no training step was estimated."""
    expected: int | None
    """Expected peak per GPU, of the unchanged run."""
    capacity: int | None
    """Memory of one GPU."""
    change: tuple[str, ...]
    """Settings of the smallest change, if the unchanged run is not expected to fit."""
    applicability: str | None
    """`safe` or `unsafe`; None without a change."""
    outcome: str | None
    """Verdict after the change, or that of the unchanged run; None if the run fits with no change."""
    headroom: int | None
    """Memory per GPU that is expected to stay free after the change; None if the run fits with no change."""
    slowdown: float | None
    """Factor of the change on the duration of a step on this hardware."""
    global_batch: int | None
    """Samples per optimizer step, which depend on the number of GPUs."""
    remedy: str
    """Hardware that would be enough, if no change is."""
    price_per_hour: float | None
    cost_per_million_tokens: float | None
    """Price of a million tokens; None unless price and throughput are stated."""
    relative_cost: float | None = None
    """Cost per token, as a multiple of the cheapest row."""
    is_pareto: bool = False
    """True if no other row is at least as good in headroom, slowdown and price, and better in one of them."""


def compare_hardware(offers: Sequence[Offer], results: Sequence[Alternatives]) -> tuple[HardwareRow, ...]:
    """Return a row for each offer; `results` are the alternatives of one run on each of them."""
    rows = [_build_row(offer, alternatives) for offer, alternatives in zip(offers, results, strict=True)]
    costs = [row.cost_per_million_tokens for row in rows if row.cost_per_million_tokens is not None]
    fitting = [row for row in rows if row.headroom is not None]
    return tuple(
        row._replace(
            relative_cost=None if row.cost_per_million_tokens is None else row.cost_per_million_tokens / min(costs),
            is_pareto=row.headroom is not None and not any(_is_better(other, row, fitting) for other in fitting),
        )
        for row in rows
    )


def _build_row(offer: Offer, alternatives: Alternatives) -> HardwareRow:
    judgement, need = alternatives.judgement, alternatives.hardware_need
    if judgement is None:
        return HardwareRow(
            offer.name, None, None, alternatives.run.hardware.gpu_bytes, (), None, None, None, None, None, "",
            offer.price_per_hour, None,
        )  # fmt: skip
    before = max((judgement, *alternatives.host_and_disk), key=lambda item: VERDICTS.index(item.verdict))
    solution = alternatives.solution if alternatives.lacks_room else None
    if solution is not None and not solution.is_enough:
        solution = None
    after, gpu, slowdown = None if alternatives.lacks_room else before, judgement, None
    if solution is not None:
        after = max(solution.outcomes, key=lambda item: VERDICTS.index(item.verdict))
        gpu, slowdown = solution.after, solution.slowdown
    elif after is not None:
        slowdown = 1.0
    cost = None
    if offer.price_per_hour is not None and offer.tokens_per_second is not None and slowdown is not None:
        cost = offer.price_per_hour * slowdown / (offer.tokens_per_second * _SECONDS) * _MILLION
    plan = alternatives.run.plan
    return HardwareRow(
        offer.name,
        before.verdict,
        judgement.budget.expected,
        int(judgement.capacity),
        () if solution is None else solution.settings,
        None if solution is None else solution.applicability,
        None if after is None else after.verdict,
        None if after is None else int(gpu.capacity - gpu.budget.expected),
        slowdown,
        plan.batch.global_,
        need.description if need is not None and after is None else "",
        offer.price_per_hour,
        cost,
    )


def _is_better(other: HardwareRow, row: HardwareRow, rows: Sequence[HardwareRow]) -> bool:
    """Return whether `other` is at least as good as `row` in each respect that every row states, and better in one."""
    pairs = [(other.headroom or 0, row.headroom or 0), (-(other.slowdown or 1), -(row.slowdown or 1))]
    if all(item.price_per_hour is not None for item in rows):
        pairs.append((-(other.price_per_hour or 0), -(row.price_per_hour or 0)))
    return all(left >= right for left, right in pairs) and any(left > right for left, right in pairs)
