"""Time and cost of a run: the record of the JSON reports, and its text."""

from __future__ import annotations

from cfglint_train.records import RunCost
from cfglint_train.runs.cost import compute_cost
from cfglint_train.runs.run import Run


def build_cost(run: Run) -> RunCost | None:
    """Return the record of a run's time and cost, or None if a fact that it needs is not stated."""
    cost = compute_cost(run)
    if cost is None:
        return None
    amount, currency = (None, "") if cost.price is None else (round(cost.price.amount, 2), cost.price.currency)
    return RunCost(cost.tokens, cost.is_limit, round(cost.hours, 3), amount, currency)


def format_cost(cost: RunCost) -> str:
    """Return the time and cost in words: `at most 25.6 h, 491.52 EUR`."""
    limit = "at most " if cost.is_limit else ""
    time = f"{cost.hours:,.1f} h" if cost.hours >= 1 else f"{cost.hours * 60:,.0f} min"
    price = "" if cost.price is None else f", {cost.price:,.2f} {cost.currency}".rstrip()
    return f"{limit}{time}{price}"
