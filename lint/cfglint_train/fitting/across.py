"""A run on several kinds of hardware: verdict, smallest change, slowdown, headroom and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cfglint_train.fitting.alternatives import Alternatives
from cfglint_train.foundation.frozen import dataclass
from cfglint_train.foundation.typed import Final
from cfglint_train.hardware.catalogue import Price
from cfglint_train.hardware.offers import Offer
from cfglint_train.memory.budget import VERDICTS, Verdict
from cfglint_train.runs.cost import Cost, compute_cost, compute_hours
from cfglint_train.runs.run import Run

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HardwareRow:
    """A run on one kind of hardware. Sizes are bytes."""

    hardware: str
    """Name such as `H100-80GBx8x2`."""
    gpu: str
    gpus: int | None
    """Number of GPUs of the job; None if it is unknown."""
    verdict: Verdict | None
    """Verdict on the unchanged run; None if no training step was estimated."""
    expected: int | None
    """Expected peak per GPU, of the unchanged run."""
    capacity: int | None
    """Memory of one GPU."""
    change: tuple[str, ...]
    """Settings of the smallest change, if the unchanged run is not expected to fit."""
    applicability: str | None
    """`safe` or `unsafe`; None without a change."""
    outcome: Verdict | None
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
    """Price of a million tokens after the change; None unless price and throughput are stated."""
    hours: float | None
    """Duration of the run after the change; None unless the throughput and the length of the run are stated."""
    cost: float | None
    """Price of the run after the change; None unless `hours` and the price are known."""
    is_limit: bool
    """True if the run may be shorter: samples may be shorter, or the data set smaller."""
    relative_cost: float | None
    """Cost per token, as a multiple of the cheapest row."""
    is_pareto: bool
    """True if no other row is certainly as good in headroom, slowdown, price and cost per token, and better in one."""


@dataclass(frozen=True, slots=True)
class RunAcross:
    """A run on several kinds of hardware."""

    path: str
    """Path of the configuration."""
    hardware: tuple[HardwareRow, ...]


def compare_hardware(offers: Sequence[Offer], results: Sequence[Alternatives]) -> tuple[HardwareRow, ...]:
    """Return a row for each offer; `results` are the alternatives of one run on each of them."""
    rows = [_build_row(offer, alternatives) for offer, alternatives in zip(offers, results, strict=True)]
    costs = [row.cost_per_million_tokens for row in rows if row.cost_per_million_tokens is not None]
    fitting = [row for row in rows if row.headroom is not None]
    return tuple(
        replace(
            row,
            relative_cost=None if row.cost_per_million_tokens is None else row.cost_per_million_tokens / min(costs),
            is_pareto=row.headroom is not None and not any(_is_better(other, row) for other in fitting),
        )
        for row in rows
    )


def _build_row(offer: Offer, alternatives: Alternatives) -> HardwareRow:
    judgement, need, run = alternatives.judgement, alternatives.hardware_need, alternatives.run
    before = after = gpu = slowdown = None
    solution = alternatives.solution if alternatives.lacks_room else None
    if solution is not None and not solution.is_enough:
        solution = None
    if judgement is not None:
        before = max((judgement, *alternatives.host_and_disk), key=lambda item: VERDICTS.index(item.verdict))
    if solution is not None:
        after = max(solution.outcomes, key=lambda item: VERDICTS.index(item.verdict))
        gpu, slowdown = solution.after, solution.slowdown
    elif not alternatives.lacks_room and judgement is not None:
        after, gpu, slowdown = before, judgement, 1.0
    price, throughput = offer.price_per_hour, offer.tokens_per_second
    if throughput is not None:
        throughput = None if slowdown is None else throughput / slowdown
    cost = None if gpu is None else _compute_cost(gpu.run, price, throughput)
    return HardwareRow(
        hardware=offer.name,
        gpu=offer.gpu,
        gpus=run.plan.world_size,
        verdict=None if before is None else before.verdict,
        expected=None if judgement is None else judgement.budget.expected,
        capacity=run.hardware.gpu_bytes if judgement is None else int(judgement.capacity),
        change=() if solution is None else solution.settings,
        applicability=None if solution is None else solution.graded_applicability,
        outcome=None if after is None else after.verdict,
        headroom=None if gpu is None else int(gpu.capacity - gpu.budget.expected),
        slowdown=slowdown,
        global_batch=run.plan.batch.global_,
        remedy=need.description if need is not None and before is not None and after is None else "",
        price_per_hour=price,
        cost_per_million_tokens=(
            None if price is None or throughput is None else price * compute_hours(_MILLION, throughput)
        ),
        hours=None if cost is None else cost.hours,
        cost=None if cost is None or cost.price is None else cost.price.amount,
        is_limit=cost is not None and cost.is_limit,
        relative_cost=None,
        is_pareto=False,
    )


def _compute_cost(run: Run, price_per_hour: float | None, tokens_per_second: float | None) -> Cost | None:
    """Return the time and cost of a run on all its GPUs, or None if a fact that they need is not stated."""
    gpus = run.plan.world_size
    price = None if price_per_hour is None or gpus is None else Price(price_per_hour / gpus)
    hardware = run.hardware._replace(tokens_per_second=tokens_per_second, price_per_gpu_hour=price)
    return compute_cost(run, hardware)


def _is_better(other: HardwareRow, row: HardwareRow) -> bool:
    """Return whether `other` is certainly as good as `row` in each respect, and better in one.

    A price or cost that only one of two rows states makes neither better. Without prices, fewer of the same GPUs are
    cheaper.
    """
    pairs: list[tuple[float | None, float | None]] = [
        (-(other.headroom or 0), -(row.headroom or 0)), (other.slowdown, row.slowdown)
    ]  # fmt: skip
    if other.price_per_hour is None and row.price_per_hour is None:
        pairs.append((other.gpus, row.gpus if other.gpu == row.gpu else None))
    else:
        pairs.append((other.price_per_hour, row.price_per_hour))
    if other.cost_per_million_tokens is not None or row.cost_per_million_tokens is not None:
        pairs.append((other.cost_per_million_tokens, row.cost_per_million_tokens))
    stated = [(left, right) for left, right in pairs if left is not None and right is not None]
    if len(stated) < len(pairs):
        return False
    return all(left <= right for left, right in stated) and any(left < right for left, right in stated)
