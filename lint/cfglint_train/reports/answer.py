"""The answer first: one line that says whether a run fits, made of the estimate that the details show."""

from __future__ import annotations

from cfglint_train.findings.verdicts import Judgement
from cfglint_train.fitting import places
from cfglint_train.foundation.sizes import gib
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.memory.budget import VERDICTS
from cfglint_train.plan.names import Field
from cfglint_train.reports.escape import printable
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.fitting.smallest import Solution
    from cfglint_train.whatif.plan_file import Planned

_OF: Final = {"gpu": "", "host": " of host memory", "disk": " of disk"}
_STEP: Final = 100
"""Tokens to which a length above that is rounded, upwards."""


def of_lint(result: Result) -> str | None:
    """Return the answer of a lint of one run; None if there are others, or if no rule estimated it."""
    run = result.runs[0].meant if len(result.runs) == 1 else None
    if run is None or not run.is_estimated:
        return None
    solution = None
    if any(finding.code == "MEM001" for finding in result.findings):  # which has looked for it
        from cfglint_train.fitting.smallest import smallest

        solution = smallest(run)
    return answer(run, solution)


def of_estimate(run: Run | Planned) -> str:
    """Return the answer with the largest sizes that fit, or the smallest change with which the run does."""
    worst, solution = _worst(run), None
    if worst is not None and places.lacks(worst) and isinstance(run, Run):
        from cfglint_train.fitting.smallest import smallest_of

        solution = smallest_of(run, None)
    return answer(run, solution, sizes=True)


def answer(run: Run | Planned, solution: Solution | None = None, *, sizes: bool = False) -> str:
    """Return the answer: `fits: 16.1 of 23.5 GiB`. `solution` is the change that is offered where it does not fit;
    `sizes`: also say which micro batch and which length fit.
    """
    why, worst = _not_estimated(run), _worst(run)
    if why or worst is None:
        return f"not estimated: {printable(why or 'no phase could be computed')}"
    phase = "" if worst.verdict == "fits" else f" in {worst.phase.title}"
    assumed = " (GPU assumed)" if worst.place == "gpu" and run.hardware.gpu_origin.kind == "assumed" else ""
    needed = gib(worst.budget.expected).removesuffix(" GiB")
    parts = [f"{worst.verdict}: {needed} of {gib(worst.capacity)}{_OF[worst.place]}{assumed}{phase}"]
    if places.lacks(worst):
        if solution is not None and solution.settings:
            parts.append(f"smallest change: {', '.join(solution.settings)}")
    elif sizes:
        parts += _sizes(run, worst)
    return printable("; ".join(parts))


def _not_estimated(run: Run | Planned) -> str:
    """Return why no training step was estimated, with the remedy; empty if one was."""
    if not isinstance(run, Run):
        return ""
    from cfglint_train.runs.not_estimated import unchecked

    found = unchecked(run)
    return "" if found is None else f"{found.why}; {found.remedy}"


def _worst(run: Any) -> Judgement | None:
    """Return the verdict that counts: the worst of GPU, host and disk."""
    gpu = places.judged(run, "gpu")
    if gpu is None:
        return None
    return max((gpu, *places.elsewhere(run)), key=lambda one: VERDICTS.index(one.verdict))


def _sizes(run: Any, now: Judgement) -> list[str]:
    """Return the largest micro batch that fits, and the length from which the verdict is a worse one."""
    from cfglint_train.fitting.ladder import HIGHEST, largest

    found = []
    if run.plan.batch.micro and 0 < (most := largest(run, "batch.micro")) < HIGHEST:
        found.append(f"largest micro batch {most:,}")
    field: Field = "sequence.length"
    if run.plan.sequence.length:
        allowed = VERDICTS.index(now.verdict)

        def is_no_worse(other: Run) -> bool:
            worst = _worst(other)
            return worst is not None and VERDICTS.index(worst.verdict) <= allowed

        last = largest(run, field, is_no_worse)
        if run.plan.sequence.length <= last < HIGHEST:
            first = last + 1 if last < _STEP else -(-(last + 1) // _STEP) * _STEP
            worse = _worst(run.changed({field: first}))
            found += [f"{worse.verdict} from {first:,} tokens"] if worse is not None else []
    return found
