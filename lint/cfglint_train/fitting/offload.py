"""Effect of offloading the optimizer to the host: advice only, because the host's memory is often not stated."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import CannotEdit
from cfglint_train.findings.draft import list_document_changes
from cfglint_train.findings.verdicts import Judgement, judge
from cfglint_train.fitting import words
from cfglint_train.fitting.hardware_needed import find_least_changes
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import format_route
from cfglint_train.memory.budget import STEP_PHASES, Verdict
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

_OUTCOMES: Final[dict[Verdict, str]] = {
    "fits": "fits",
    "tight": "tight",
    "probably does not fit": "probably does not fit",
    "does not fit": "still does not fit",
}


class Advice(Frozen):
    """Effect of offloading the optimizer to the host."""

    text: str
    after: Judgement


def describe_offload(run: Run, changes: Mapping[Field, Any]) -> str | None:
    """Return the text of `find_advice`, or None if offloading does not help."""
    advice = find_advice(run, changes)
    return None if advice is None else advice.text


def find_sufficient(run: Run) -> Advice | None:
    """Return the effect of offloading the optimizer if the training step then fits, or None.

    It is tried alone, then with the safe changes that reduce the step most.
    """
    no_changes: Mapping[Field, Any] = {}
    for changes in (no_changes, find_least_changes(run)):
        advice = find_advice(run, changes, is_listed=True)
        if advice is not None and advice.after.budget.expected <= advice.after.capacity:
            return advice
    return None


def find_advice(run: Run, changes: Mapping[Field, Any], is_listed: bool = False) -> Advice | None:
    """Return the effect of offloading the optimizer on top of `changes`, or None.

    Example: "set `zero_optimization.offload_optimizer`: the backward pass then needs 53.2 GiB per GPU (fits),
    and each node 390 GiB of host memory". Return None if offloading does not help or is
    already on, if ZeRO is off, or if the files cannot state the change. `is_listed`: name `changes` in the text.
    """
    if run.plan.parallel.offload_optimizer != "none" or not run.plan.parallel.zero_stage:
        return None
    offload: dict[Field, Any] = {"parallel.offload_optimizer": "cpu"}
    try:
        written = [change for _, changed in list_document_changes(run, offload) for change in changed]
    except CannotEdit:
        return None
    before = judge(run.replace_fields(changes) if changes else run, "gpu", STEP_PHASES)
    candidate = run.replace_fields({**changes, **offload})
    after = judge(candidate, "gpu", STEP_PHASES)
    host = [
        phase.host.expected
        for phase in candidate.estimate.phases
        if phase.name in STEP_PHASES and phase.host is not None
    ]
    if before is None or after is None or not host or after.budget.expected >= before.budget.expected:
        return None
    setting = next(format_route(tuple(step for step in change.route if isinstance(step, str))) for change in written)
    others = f", and {', '.join(words.format_settings(run, changes))}" if is_listed else " as well"
    text = (
        f"set `{setting}`{others if changes else ''}: {after.phase.title} then needs "
        f"{format_gib(after.budget.expected)} per GPU ({_OUTCOMES[after.verdict]}), and each node "
        f"{format_gib(max(host))} of host memory"
    )
    return Advice(text, after)
